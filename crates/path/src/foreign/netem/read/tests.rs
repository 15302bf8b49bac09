//! Lines that people type, and what `write` writes.

use proptest::prelude::*;

use super::*;
use crate::foreign::netem::write;

fn of(text: &str) -> (Path, String) {
    let line = read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    (line.path, line.left_out.join("\n"))
}

fn path(text: &str) -> Path {
    Path::parse(text, "path.toml").unwrap()
}

const OPEN: &str = "[reverse]\nrate = 'unlimited'\ndelay = '0 ms'\nqueue = 'unlimited'\n";

#[test]
fn lines_that_people_type_are_read() {
    for (line, toml) in [
        (
            "tc qdisc add dev eth0 root netem delay 100ms limit 1000000",
            "delay = '100 ms'\nqueue = 'unlimited'\n",
        ),
        (
            "sudo tc qdisc add dev eth0 root netem delay 20ms 5ms loss 1% rate 10mbit limit 100",
            // 17 packets are held by 20 ms at 10 Mbit/s
            "rate = '10 Mbit/s'\nloss = 0.01\nqueue = '83 packets'\n\
             delay = { kind = 'jitter', base = '15 ms', jitter = '10 ms', reorder = true }\n",
        ),
        (
            "/sbin/tc qdisc replace dev lo root handle 1: netem loss 0.3% 25% limit 1000000",
            "delay = '0 ms'\nloss = 0.003\nqueue = 'unlimited'\n",
        ),
        (
            "tc qdisc add dev eth0 root handle 1:0 netem delay 100ms 20ms distribution normal\n\
             tc qdisc add dev eth0 parent 1:1 handle 10: tbf rate 256kbit buffer 1600 limit 3000",
            "rate = '256 kbit/s'\nqueue = '3000 B'\n\
             delay = { kind = 'jitter', base = '80 ms', jitter = '40 ms', reorder = true }\n",
        ),
        (
            "tc qdisc add dev eth0 root tbf rate 1mbit burst 32kbit latency 400ms",
            // 50 kB wait for 400 ms, and 4 kB of the burst
            "rate = '1 Mbit/s'\ndelay = '0 ms'\nqueue = '54096 B'\n",
        ),
        (
            "tc qdisc add dev eth0 root handle 1: htb default 10 && \
             tc class add dev eth0 parent 1: classid 1:1 htb rate 100mbit && \
             tc class add dev eth0 parent 1:1 classid 1:10 htb rate 5mbit ceil 8mbit && \
             tc qdisc add dev eth0 parent 1:10 handle 10: netem delay 30ms limit 2000000",
            "rate = '8 Mbit/s'\ndelay = '30 ms'\nqueue = 'unlimited'\n",
        ),
        (
            "tc qdisc add dev eth0 root handle 1: tbf rate 20mbit burst 2500 limit 100000; \
             tc qdisc add dev eth0 parent 1: codel limit 50 target 6ms interval 80ms",
            "rate = '20 Mbit/s'\ndelay = '0 ms'\n\
             queue = { kind = 'codel', limit = '50 packets', target = '6 ms', interval = '80 ms' }\n",
        ),
        (
            "netem delay 10ms loss gemodel 1% 10% limit 1000000",
            "delay = '10 ms'\nqueue = 'unlimited'\n\
          loss = { kind = 'gilbert-elliott', good_to_bad = 0.01, bad_to_good = 0.1 }\n",
        ),
    ] {
        let read = of(line).0;
        assert_eq!(read, path(&format!("{toml}{OPEN}")), "{line}");
        // a path file says the same
        assert_eq!(path(&read.to_toml()), read, "{line}");
    }
}

#[test]
fn a_second_device_is_the_way_back() {
    let (read, left_out) = of("# both ways\n\
        tc qdisc add dev eth0 root netem delay 10ms limit 1000000\n\
        tc qdisc add dev eth1 root netem delay 30ms limit 1000000");
    let expected = "delay = '10 ms'\nqueue = 'unlimited'\n[reverse]\ndelay = '30 ms'\n";
    assert_eq!((read, left_out.as_str()), (path(expected), ""));
}

#[test]
fn what_a_path_has_not_is_named() {
    for (line, named) in [
        ("netem delay 10ms 2ms 25%", "correlation"),
        (
            "netem delay 10ms 2ms distribution pareto",
            "distribution pareto",
        ),
        ("netem delay 10ms", "netem limit: 1000 packets under way"),
        ("netem loss 1% 25%", "correlation"),
        ("netem duplicate 1%", "netem duplicate"),
        ("netem corrupt 0.1%", "netem corrupt"),
        ("netem delay 10ms reorder 25% 50% gap 5", "netem reorder"),
        ("netem delay 10ms reorder 25% 50% gap 5", "netem gap"),
        ("netem rate 5kbit 20 100 5", "overhead"),
        ("netem slot 800us 1000us", "netem slot"),
        (
            "netem delay 20ms rate 10mbit limit 100",
            "the delay holds 17 full ones",
        ),
        (
            "tc qdisc add dev a root tbf rate 1mbit burst 32kb limit 90000 peakrate 2mbit",
            "tbf peakrate",
        ),
        (
            "tc qdisc add dev a root tbf rate 1mbit burst 32kb limit 90000",
            "tbf burst: 32768 bytes",
        ),
        (
            "tc qdisc add dev a root pfifo limit 10",
            "nothing waits in it",
        ),
        (
            "tc qdisc del dev a root; netem delay 1ms",
            "tc qdisc del dev a root",
        ),
        (
            "tc qdisc add dev a root handle 1: htb; tc class add dev a parent 1: classid 1:1 htb rate 1mbit burst 15k",
            "htb burst",
        ),
        (
            "netem delay 1ms; tc filter add dev netem parent 1: protocol ip u32 match ip dport 80 0xffff flowid 1:1",
            "all packets take the same way",
        ),
    ] {
        let left_out = of(line).1;
        assert!(left_out.contains(named), "{line}: {left_out}");
    }
}

#[test]
fn what_is_not_understood_is_refused_with_what_would_be() {
    for (line, expected) in [
        ("", "got no qdisc, expected tc commands"),
        (
            "ip link set eth0 up",
            "got \"ip link set eth0 up\", expected tc commands",
        ),
        ("tc qdisc frob dev eth0", "got \"frob\", expected add"),
        ("tc qdisc add eth0 root netem", "expected `dev`"),
        ("tc qdisc add dev eth0 root", "got no kind of qdisc"),
        (
            "tc qdisc add dev eth0 netem delay 1ms",
            "expected root or a parent",
        ),
        ("tc qdisc add dev eth0 root cake", "got the qdisc \"cake\""),
        ("tc qdisc add dev eth0 parent 7: netem", "got the parent 7:"),
        ("tc qdisc add dev eth0 ingress", "ingress"),
        ("netem delay", "netem delay: got nothing"),
        ("netem delay 1 parsec", "got \"parsec\""),
        ("netem delay 5ms 9ms", "expected no delay below 0"),
        ("netem loss state 1%", "four states"),
        ("netem loss 101%", "expected 0% to 100%"),
        (
            "netem rate 10mbit; tc qdisc add dev netem root tbf rate 1mbit burst 2000 limit 9000",
            "two rates",
        ),
        (
            "tc qdisc add dev a root tbf rate 1mbit burst 2000",
            "either limit or latency",
        ),
        (
            "tc qdisc add dev a root tbf rate 50% burst 2000 limit 9000",
            "got \"50%\", expected a rate",
        ),
        (
            "tc qdisc add dev a root netem\ntc qdisc add dev b root netem\ntc qdisc add dev c root netem",
            "got a third device, c",
        ),
        (
            "tc qdisc add dev a root handle 1: htb\n\
             tc class add dev a parent 1: classid 1:1 htb rate 1mbit\n\
             tc class add dev a parent 1: classid 1:2 htb rate 2mbit",
            "expected one that packets take",
        ),
    ] {
        let error = read(line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

/// What is read of what is written.
fn again(path: &Path) -> (Path, Vec<String>, Vec<String>) {
    let written = write(path);
    let read = read(&written.text).unwrap_or_else(|error| panic!("{}: {error}", written.text));
    (read.path, written.lost, read.left_out)
}

#[test]
fn what_is_written_is_read_back() {
    for text in [
        "rate = '12 Mbit/s'\ndelay = '20 ms'\nloss = 0.001\nqueue = '60 packets'\n\
         [reverse]\nrate = '2 Mbit/s'\ndelay = '1.5 ms'\nqueue = '90 kB'\n",
        "delay = '20 ms'\nqueue = 'unlimited'\n",
        "rate = '1 Gbit/s'\ndelay = { kind = 'jitter', base = '20 ms', jitter = '4 ms', reorder = true }\n\
         loss = { kind = 'gilbert-elliott', good_to_bad = 0.01, bad_to_good = 0.2 }\n\
         queue = { kind = 'fq-codel', limit = '900 packets' }\npolicer = { rate = '9 Mbit/s', burst = '30 kB' }\n\
         [reverse]\nrate = '1 Mbit/s'\ndelay = '1 ms'\nqueue = { kind = 'pie', ecn = true, limit = '80 packets' }\n",
        "rate = '3 Mbit/s'\ndelay = '0 ms'\nqueue = { kind = 'drophead', limit = '7 packets' }\n\
         [reverse]\nqueue = { kind = 'codel', limit = '9 packets', ecn = true }\n",
    ] {
        let path = path(text);
        let (read, lost, left_out) = again(&path);
        assert_eq!((read, lost), (path, vec![]), "{text}");
        assert!(
            left_out.iter().all(|what| what.contains("tbf limit")),
            "{left_out:?}"
        );
    }
}

proptest! {
    #[test]
    fn any_path_of_netem_and_tbf_comes_back(
        delays in proptest::array::uniform2(0u64..3_000_000_000),
        rates in proptest::array::uniform2(1u64..10_000_000),
        loss in 0u32..1000,
        limit in 1u64..100_000,
    ) {
        let mut path = path("rate = '1 Mbit/s'\ndelay = '1 ms'\nqueue = '1 packets'\n");
        let ends = [&mut path.forward, &mut path.reverse];
        for ((direction, delay), rate) in ends.into_iter().zip(delays).zip(rates) {
            direction.delay = DelaySpec::Fixed(Span::from_nanos(delay));
            direction.rate = Bandwidth::from_bps(rate as f64 * 1000.0).map(LinkSpec::Constant);
            direction.queue.limit = QueueLimit::Packets(limit);
        }
        path.forward.loss = LossSpec::Iid(Probability::new(f64::from(loss) / 1000.0).unwrap());
        let (read, lost, _) = again(&path);
        prop_assert!(lost.is_empty());
        let LossSpec::Iid(share) = read.forward.loss else { panic!("independent losses") };
        prop_assert!((share.value() - path.forward.loss.mean()).abs() < 1e-12);
        path.forward.loss = LossSpec::Iid(share);
        prop_assert_eq!(read, path);
    }

    #[test]
    fn no_words_make_it_panic(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "tc", "qdisc", "class", "filter", "add", "dev", "a", "b", "root", "parent", "1:", "1:1", "handle", "classid",
                "netem", "tbf", "htb", "red", "pie", "delay", "loss", "rate", "limit", "burst", "ceil", "gemodel", "state",
                "20ms", "3600s", "1%", "0%", "100%", "1mbit", "999999tbit", "0", "18446744073709551615", "-1", ";", "police",
                "egress", "latency", "distribution", "min", "max", "\u{e9}", "'",
            ]),
            0..24,
        )
    ) {
        let _ = read(&words.join(" "));
        let _ = read(&format!("netem {}", words.join(" ")));
        let _ = read(&format!("tc qdisc add dev a root {}", words.join(" ")));
    }
}
