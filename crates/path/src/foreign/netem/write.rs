//! Linux's traffic control (tc(8)): netem for delay and loss, tbf for the rate, queues of their own.
//!
//! netem comes before the queue, so packets that it loses occupy no place in the queue.

use std::fmt::Write;

use crate::delay::{DelaySpec, Distribution};
use crate::foreign::{Foreign, directions, time};
use crate::link::LinkSpec;
use crate::loss::LossSpec;
use crate::packet::FULL_PACKET_BYTES;
use crate::path::{Direction, Path};
use crate::queue::QueueLimit;
use crate::queue::{Discipline, QueueSpec, RedSpec};

/// The path as tc commands for two devices, one for each direction.
pub fn write(path: &Path) -> Foreign {
    let mut foreign = Foreign {
        text: "# FORWARD and REVERSE: the interfaces that data and acknowledgments leave by\n\
               # netem loses packets before the queue, a path behind it; on Ethernet, tbf counts 14\n\
               # bytes more a packet than a path does\n"
            .into(),
        ..Foreign::default()
    };
    for ((name, direction), device) in directions(path).into_iter().zip(["$FORWARD", "$REVERSE"]) {
        let text = write_direction(name, device, path, direction, &mut foreign);
        foreign.text += &text;
    }
    foreign
}

fn write_direction(
    name: &str,
    device: &str,
    path: &Path,
    direction: &Direction,
    foreign: &mut Foreign,
) -> String {
    foreign.lose_what_nobody_has(name, direction);
    let mut text = String::new();
    if let Some(policer) = &direction.policer {
        let (rate, burst) = (policer.rate.as_bps(), policer.burst_bytes);
        let _ = writeln!(
            text,
            "tc qdisc add dev {device} clsact\n\
             tc filter add dev {device} egress matchall action police rate {rate:.0}bit burst \
             {burst}b conform-exceed drop"
        );
    }
    let _ = write!(text, "tc qdisc add dev {device} root handle 1: netem delay");
    match &direction.delay {
        DelaySpec::Fixed(delay) => {
            let _ = write!(text, " {}", time(*delay));
        }
        DelaySpec::Jitter(jitter) if jitter.distribution == Distribution::Uniform => {
            // netem's is around the mean
            let half = jitter.jitter.mul_div(1, 2);
            let _ = write!(text, " {} {}", time(jitter.base + half), time(half));
            if !jitter.reorder {
                foreign.lose(format!(
                    "{name} delay: netem's jitter lets packets overtake"
                ));
            }
        }
        delay => {
            let _ = write!(text, " {}", time(foreign.fixed_delay(name, delay)));
        }
    }
    match &direction.loss {
        LossSpec::GilbertElliott(spec) => {
            let percent = [
                spec.good_to_bad,
                spec.bad_to_good,
                spec.loss_bad,
                spec.loss_good,
            ];
            let [p, r, bad, good] = percent.map(|share| share.value() * 100.0);
            let _ = write!(text, " loss gemodel {p}% {r}% {bad}% {good}%");
        }
        loss => {
            let share = foreign.independent_loss(name, loss);
            if share > 0.0 {
                let _ = write!(text, " loss random {}%", share * 100.0);
            }
        }
    }
    // more packets than can be in transit
    text += " limit 1000000\n";
    if let Some(rate) = &direction.rate {
        text += &write_link(name, device, path, direction, rate, foreign);
    }
    text
}

fn write_link(
    name: &str,
    device: &str,
    path: &Path,
    direction: &Direction,
    rate: &LinkSpec,
    foreign: &mut Foreign,
) -> String {
    let bps = foreign.constant_rate(name, rate).as_bps();
    let (bytes, packets) = path.queue_limits(direction);
    // what fits into 4 GiB, the most that tbf takes
    let bytes = bytes.min(u64::from(u32::MAX));
    // a burst is what may leave in one tick of the kernel's clock, at least one packet
    let burst = ((bps / 8.0 / 1000.0) as u64).max(FULL_PACKET_BYTES + 40);
    let mut text = format!(
        "tc qdisc add dev {device} parent 1: handle 2: tbf rate {bps:.0}bit burst {burst} limit \
         {bytes}\n"
    );
    let child = queue(name, &direction.queue, bytes, packets, foreign);
    if let Some(child) = child {
        let _ = writeln!(
            text,
            "tc qdisc add dev {device} parent 2: handle 3: {child}"
        );
    }
    text
}

/// The queue discipline within tbf, if the path needs another than tbf's own queue in bytes.
fn queue(
    name: &str,
    queue: &QueueSpec,
    bytes: u64,
    packets: u64,
    foreign: &mut Foreign,
) -> Option<String> {
    let in_packets = |foreign: &mut Foreign| match packets {
        u64::MAX => {
            let packets = (bytes / FULL_PACKET_BYTES).max(1);
            if queue.limit != QueueLimit::Unlimited {
                foreign.lose(format!(
                    "{name} queue: tc limits it in packets; written as {packets} full ones"
                ));
            }
            packets
        }
        packets => packets.min(u64::from(u32::MAX)),
    };
    let ecn = |ecn: bool| if ecn { " ecn" } else { "" };
    #[allow(unreachable_patterns)] // tc has all that there are today
    Some(match &queue.discipline {
        Discipline::DropTail if packets == u64::MAX => return None,
        Discipline::DropTail => format!("pfifo limit {}", in_packets(foreign)),
        Discipline::DropHead => format!("pfifo_head_drop limit {}", in_packets(foreign)),
        Discipline::CoDel(spec) => format!(
            "codel limit {} target {} interval {}{}",
            in_packets(foreign),
            time(spec.target),
            time(spec.interval),
            ecn(spec.ecn)
        ),
        Discipline::FqCoDel(spec) => format!(
            "fq_codel limit {} flows {} quantum {} target {} interval {}{}",
            in_packets(foreign),
            spec.flows,
            spec.quantum_bytes,
            time(spec.codel.target),
            time(spec.codel.interval),
            if spec.codel.ecn { " ecn" } else { " noecn" }
        ),
        Discipline::Pie(spec) => {
            // tc counts both in sixteenths
            let (alpha, beta) = (spec.alpha * 16.0, spec.beta * 16.0);
            let fixed = [(alpha, alpha.round()), (beta, beta.round())];
            if fixed.iter().any(|(wanted, got)| wanted != got) {
                foreign.lose(format!(
                    "{name} queue: alpha and beta are whole sixteenths in tc"
                ));
            }
            if spec.max_burst.as_nanos() != 150_000_000 || spec.mark_below.value() != 0.1 {
                foreign.lose(format!(
                    "{name} queue: tc's pie has a max_burst of 150 ms and marks below 0.1"
                ));
            }
            format!(
                "pie limit {} target {} tupdate {} alpha {:.0} beta {:.0}{}",
                in_packets(foreign),
                time(spec.target),
                time(spec.update),
                alpha,
                beta,
                ecn(spec.ecn)
            )
        }
        Discipline::Red(spec) => red(name, spec, bytes, packets, foreign),
        _ => {
            foreign.lose(format!(
                "{name} queue: written as pfifo, for tc has none that is alike"
            ));
            format!("pfifo limit {}", in_packets(foreign))
        }
    })
}

fn red(name: &str, spec: &RedSpec, bytes: u64, packets: u64, foreign: &mut Foreign) -> String {
    let in_bytes = |limit: QueueLimit| match limit {
        QueueLimit::Bytes(bytes) => bytes,
        QueueLimit::Packets(packets) => packets.saturating_mul(FULL_PACKET_BYTES),
        QueueLimit::Bdp(_) | QueueLimit::Unlimited => bytes,
    };
    let limit = match packets {
        u64::MAX => bytes,
        packets => in_bytes(QueueLimit::Packets(packets)).min(u64::from(u32::MAX)),
    };
    let five = (QueueLimit::Packets(5), QueueLimit::Packets(15)); // Floyd 2000
    let (min, max) = spec.thresholds.unwrap_or(five);
    let (min, max) = (in_bytes(min), in_bytes(max));
    foreign.lose(format!(
        "{name} queue: tc's red has a weight of its own, which follows from `burst`{}",
        if spec.gentle {
            ", and is not gentle"
        } else {
            ""
        }
    ));
    format!(
        "red limit {limit} min {min} max {max} avpkt 1000 burst {} probability {}{}{}",
        (2 * min + max) / 3000 + 1,
        spec.max_probability.value(),
        if spec.adaptive { " adaptive" } else { "" },
        if spec.ecn { " ecn" } else { "" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (String, Vec<String>) {
        let foreign = write(&Path::parse(text, "path.toml").unwrap());
        let lines = foreign.text.lines().filter(|line| !line.starts_with('#'));
        (lines.collect::<Vec<_>>().join("\n"), foreign.lost)
    }

    #[test]
    fn delay_loss_rate_and_queue_are_written_for_both_directions() {
        let (text, lost) = of("rate = '12 Mbit/s'\ndelay = '20 ms'\nloss = 0.001\n\
                               queue = '60 packets'\n[reverse]\nrate = '2 Mbit/s'\ndelay = '1.5 ms'\n\
                               queue = '90 kB'\n");
        let expected = "\
            tc qdisc add dev $FORWARD root handle 1: netem delay 20ms loss random 0.1% limit 1000000\n\
            tc qdisc add dev $FORWARD parent 1: handle 2: tbf rate 12000000bit burst 1540 limit 4294967295\n\
            tc qdisc add dev $FORWARD parent 2: handle 3: pfifo limit 60\n\
            tc qdisc add dev $REVERSE root handle 1: netem delay 1500us limit 1000000\n\
            tc qdisc add dev $REVERSE parent 1: handle 2: tbf rate 2000000bit burst 1540 limit 90000";
        assert_eq!(text, expected);
        assert_eq!(lost, [""; 0]);
    }

    #[test]
    fn what_netem_has_too_is_said_in_its_words() {
        let (text, lost) = of(
            "rate = '1 Gbit/s'\nloss = { kind = 'gilbert-elliott', good_to_bad = 0.01, bad_to_good = 0.2 }\n\
             delay = { kind = 'jitter', base = '20 ms', jitter = '4 ms', reorder = true }\n\
             queue = { kind = 'fq-codel' }\npolicer = { rate = '9 Mbit/s', burst = '30 kB' }\n\
             [reverse]\ndelay = '1 ms'\nqueue = { kind = 'pie', ecn = true }\n",
        );
        for part in [
            "action police rate 9000000bit burst 30000b conform-exceed drop",
            "netem delay 22ms 2ms loss gemodel 1% 20% 100% 0% limit",
            "tbf rate 1000000000bit burst 125000 ",
            "fq_codel limit 10240 flows 1024 quantum 1514 target 5ms interval 100ms ecn",
            "pie limit 1000 target 15ms tupdate 15ms alpha 2 beta 20 ecn",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(lost, [""; 0]);
    }

    #[test]
    fn what_netem_cannot_do_is_told() {
        let (_, lost) = of(
            "rate = { kind = 'poisson', rate = '9 Mbit/s' }\nloss = { kind = 'periodic', every = 9 }\n\
             delay = { kind = 'jitter', base = '20 ms', jitter = '4 ms', distribution = 'exponential' }\n\
             queue = { kind = 'red' }\naggregation = { kind = 'interval', interval = '1 ms' }\n\
             [reverse]\nrate = '1 Mbit/s'\ndelay = '1 ms'\nqueue = { kind = 'codel', limit = '90 kB' }\n",
        );
        let all = lost.join("\n");
        for what in [
            "forward rate: varies",
            "forward loss: written as independent",
            "forward delay: jitter",
            "forward queue: tc's red",
            "forward aggregation",
            "reverse queue: tc limits it in packets; written as 60 full ones",
        ] {
            assert!(all.contains(what), "{what}: {all}");
        }
    }
}
