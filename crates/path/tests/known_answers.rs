//! Whole channels against closed forms and against each other.

use pathcast_path::{Arrival, Channel, DropReason, PacketInfo, Path, Span, Time, seed};

fn channel(text: &str, seed: u64) -> Channel<u64> {
    let path = Path::parse(text, "test.toml").unwrap();
    path.channels::<u64, ()>(seed).0
}

const fn at_ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

/// Arrivals in milliseconds with their packets, of packets of `size_bytes` offered at `offered_ms`.
fn arrivals(text: &str, size_bytes: u32, offered_ms: &[u64]) -> Vec<(u64, u64)> {
    let mut channel = channel(text, 1);
    for (id, millis) in offered_ms.iter().enumerate() {
        let _ = channel.enqueue(at_ms(*millis), size_bytes, id as u64);
    }
    std::iter::from_fn(|| channel.dequeue(Time::MAX))
        .map(|(due, id)| (due.as_nanos() / 1_000_000, id))
        .collect()
}

/// Mean time in the system, in seconds, of packets of 1500 bytes that come as a Poisson process
/// and find a link that could send 1,000 a second.
fn mean_sojourn_s(rate: &str, load: f64) -> f64 {
    let mut channel = channel(
        &format!("rate = {rate}\ndelay = '0 ms'\nqueue = 'unlimited'\n"),
        1,
    );
    let mut rng = seed::generator(9, "arrivals");
    let (mut now, mut sum_s, packets) = (Time::ZERO, 0.0, 1_000_000);
    let mut entered = Vec::with_capacity(packets);
    for id in 0..packets {
        now += Span::from_secs(-seed::uniform(&mut rng).ln() / (1000.0 * load));
        entered.push(now);
        channel.enqueue(now, 1500, id as u64).unwrap();
        while let Some((due, id)) = channel.dequeue(now) {
            sum_s += due.since(entered[id as usize]).as_secs();
        }
    }
    while let Some((due, id)) = channel.dequeue(Time::MAX) {
        sum_s += due.since(entered[id as usize]).as_secs();
    }
    sum_s / packets as f64
}

#[test]
fn poisson_arrivals_at_a_constant_rate_wait_as_in_an_m_d_1_queue() {
    for load in [0.5, 0.8] {
        // service, and rho / (2 mu (1 - rho)) of waiting (Pollaczek-Khinchine)
        let expected_s = 1e-3 * (1.0 + load / (2.0 * (1.0 - load)));
        let mean_s = mean_sojourn_s("'12 Mbit/s'", load);
        assert!(
            (mean_s / expected_s - 1.0).abs() < 0.02,
            "{load}: {mean_s}, {expected_s}"
        );
    }
}

#[test]
fn poisson_arrivals_at_a_poisson_link_wait_as_in_an_m_m_1_queue() {
    for load in [0.5, 0.8] {
        // opportunities without a packet are lost, so that 1 / (mu - lambda)
        let expected_s = 1e-3 / (1.0 - load);
        let mean_s = mean_sojourn_s("{ kind = 'poisson', rate = '12 Mbit/s' }", load);
        assert!(
            (mean_s / expected_s - 1.0).abs() < 0.03,
            "{load}: {mean_s}, {expected_s}"
        );
    }
}

#[test]
fn a_mahimahi_trace_loops_and_an_opportunity_carries_1504_bytes() {
    let text = "rate = { kind = 'mahimahi', opportunities_ms = [2, 5, 5, 10] }\n\
                delay = '0 ms'\nqueue = 'unlimited'\n";
    // full packets, one an opportunity; one that comes at 5 ms is too late for those at 5 ms
    let full = arrivals(text, 1500, &[0, 0, 5, 5, 5, 30]);
    assert_eq!(full, [(2, 0), (5, 1), (10, 2), (12, 3), (15, 4), (32, 5)]);
    // with the 4 bytes of the device, 40 bytes are 44: 34 of them in 1504
    let small = arrivals(text, 40, &[0; 35]);
    assert_eq!((small[33].0, small[34].0), (2, 5));
    // 3000 bytes take two opportunities and 4 bytes of a third
    let large = arrivals(text, 3005, &[0, 0]);
    assert_eq!(large, [(5, 0), (12, 1)]);
}

#[test]
fn stages_and_virtual_time_agree() {
    // a policer that lets everything pass makes a channel of stages
    let policer = "policer = { rate = '1000 Gbit/s', burst = '1000 MB' }\n";
    for keys in [
        "rate = '7 Mbit/s'\ndelay = '3 ms'\nqueue = '9 packets'\nloss = 0.05\n",
        "rate = '7 Mbit/s'\ndelay = '3 ms'\nqueue = '9 kB'\n",
        "delay = '3 ms'\nloss = 0.3\n",
    ] {
        let run = |text: &str| {
            let mut channel = channel(text, 5);
            let mut rng = seed::generator(6, "arrivals");
            let (mut now, mut seen) = (Time::ZERO, Vec::new());
            for id in 0..20_000 {
                now += Span::from_nanos((seed::uniform(&mut rng) * 3e6) as u64);
                let size_bytes = 40 + (seed::uniform(&mut rng) * 1460.0) as u32;
                let _ = channel.enqueue(now, size_bytes, id);
                seen.extend(std::iter::from_fn(|| channel.dequeue(now)));
            }
            seen.extend(std::iter::from_fn(|| channel.dequeue(Time::MAX)));
            (seen, channel.counters())
        };
        assert_eq!(run(keys), run(&format!("{keys}{policer}")), "{keys}");
    }
}

#[test]
fn rate_loss_and_delay_change_as_scheduled() {
    let text = "rate = '12 Mbit/s'\ndelay = '10 ms'\nqueue = 'unlimited'\n\
                [[schedule]]\nat = '5 ms'\nrate = '6 Mbit/s'\n\
                [[schedule]]\nat = '20 ms'\ndelay = '2 ms'\n\
                [[schedule]]\nat = '40 ms'\nloss = { kind = 'periodic', every = 2 }\n";
    let offered = [4, 4, 18, 18, 30, 40, 40, 40];
    let expected = [
        (15, 0), // 1 ms on the link
        (17, 1), // 2 ms from 5 ms on
        (22, 2), // leaves the link at 20 ms, just when the delay falls
        (24, 3),
        (34, 4),
        (44, 5),
        (48, 7), // of those sent from 40 ms on, the second is lost
    ];
    assert_eq!(arrivals(text, 1500, &offered), expected);
}

#[test]
fn a_fall_of_the_delay_closes_packets_up_in_order() {
    let text = "delay = '100 ms'\n[[schedule]]\nat = '50 ms'\ndelay = '10 ms'\n";
    let seen = arrivals(text, 1500, &[0, 40, 50, 60, 135]);
    assert_eq!(seen, [(100, 0), (140, 1), (140, 2), (140, 3), (145, 4)]);
}

#[test]
fn acknowledgments_come_in_bursts() {
    let text = "delay = '1 ms'\naggregation = { kind = 'count', packets = 3, within = '10 ms' }\n";
    let seen = arrivals(text, 40, &[0, 2, 4, 6]);
    assert_eq!(seen, [(5, 0), (5, 1), (5, 2), (17, 3)]);
}

#[test]
fn packets_dropped_inside_are_handed_out_and_marks_are_told() {
    let text = "rate = '12 Mbit/s'\ndelay = '1 ms'\n\
                queue = { kind = 'codel', ecn = true }\n";
    for ecn_capable in [false, true] {
        let mut channel = channel(text, 1);
        channel.keep_drops();
        let (mut dropped, mut marked) = (0, 0);
        for step in 0..4000u64 {
            let now = Time::from_nanos(step * 500_000); // twice the rate
            let info = PacketInfo {
                size_bytes: 1500,
                flow: 1,
                ecn_capable,
            };
            if let Err((_, reason)) = channel.enqueue_as(now, info, step) {
                assert_eq!(reason, DropReason::Queue);
                dropped += 1;
            }
            while let Some(Arrival { marked: mark, .. }) = channel.receive(now) {
                marked += u64::from(mark);
            }
            while let Some(drop) = channel.take_dropped() {
                assert_eq!(drop.reason, DropReason::Aqm);
                dropped += 1;
            }
        }
        let counters = channel.counters();
        assert_eq!(counters.dropped(), dropped);
        assert!(if ecn_capable {
            marked > 10
        } else {
            dropped > 10 && marked == 0
        });
        assert!(counters.marked - marked <= 1);
    }
}

#[test]
fn real_traces_deliver_their_mean_rate() {
    let Some(data) = std::env::var_os("PATHCAST_DATA").filter(|data| !data.is_empty()) else {
        eprintln!("skipped: PATHCAST_DATA is not set; it names the folder of real data");
        return;
    };
    let folder = std::path::Path::new(&data).join("traces");
    for (file, rate_mbps) in [
        ("0.57mbps-poisson.trace", 0.557),
        ("2.64mbps-poisson.trace", 2.435),
        ("3.04mbps-poisson.trace", 2.817),
    ] {
        let text = format!(
            "rate = {{ kind = 'mahimahi', file = '{file}' }}\ndelay = '1 ms'\n\
             queue = 'unlimited'\n"
        );
        let path = Path::parse_with(&text, "test.toml", &mut |name| {
            std::fs::read(folder.join(name)).map_err(|error| error.to_string())
        })
        .unwrap();
        let told = path.forward.mean_rate().unwrap().as_bps() / 1e6;
        assert!((told / rate_mbps - 1.0).abs() < 1e-3, "{file}: {told}");
        // inlined, it is the same path
        assert_eq!(Path::parse(&path.to_toml(), "again.toml").unwrap(), path);
        // two periods of a queue that is never empty
        let mut channel = path.channels::<u64, ()>(1).0;
        for id in 0..100_000 {
            channel.enqueue(Time::ZERO, 1500, id).unwrap();
        }
        let end = Time::from_nanos(120_001_000_000);
        let delivered = std::iter::from_fn(|| channel.dequeue(end)).count();
        let rate = delivered as f64 * 12_000.0 / 120.0 / 1e6;
        assert!((rate / rate_mbps - 1.0).abs() < 1e-3, "{file}: {rate}");
    }
}

#[test]
fn paths_that_ship_carry_packets() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../paths");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let name = file.display().to_string();
        let path = Path::parse(&std::fs::read_to_string(&file).unwrap(), &name)
            .unwrap_or_else(|error| panic!("{error}"));
        let (mut forward, mut reverse) = path.channels::<u64, u64>(1);
        for id in 0..100 {
            let _ = forward.enqueue(at_ms(id * 100), 1500, id);
            let _ = reverse.enqueue(at_ms(id * 100), 40, id);
        }
        let count =
            |channel: &mut Channel<u64>| std::iter::from_fn(|| channel.dequeue(Time::MAX)).count();
        assert!(
            count(&mut forward) > 80 && count(&mut reverse) == 100,
            "{name}"
        );
        files += 1;
    }
    assert!(files >= 22, "{files}");
}

#[test]
fn every_example_in_the_docs_is_a_path() {
    let page =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/path-file.md");
    let text = std::fs::read_to_string(page).unwrap();
    let examples: Vec<&str> = text
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(examples.len() >= 8);
    for example in examples {
        let path = Path::parse(example, "path-file.md").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(Path::parse(&path.to_toml(), "again.toml").unwrap(), path);
    }
}
