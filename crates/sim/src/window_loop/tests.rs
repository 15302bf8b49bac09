use std::ops::ControlFlow;

use super::*;

fn probe(of: &WindowLoop, rate_pps: f64, packets: u64, seed: u64) -> Samples {
    let probe = Probe {
        rate_pps,
        warm_up_packets: packets / 10,
        packets,
        packets_per_sample: 7,
    };
    of.probe(&probe, seed, &mut |_| ControlFlow::Continue(()))
        .unwrap()
}

/// The paper's network: 10 Mbit/s in packets of 1 kbit, 50 ms each way.
fn fixed(packets: u64) -> WindowLoop {
    WindowLoop::new(Window::Static { packets }, 10_000.0, 0.05, 0.05).unwrap()
}

fn adaptive(probability: f64) -> WindowLoop {
    let marks = Marks::Random(probability);
    WindowLoop::new(Window::Adaptive { marks }, f64::INFINITY, 0.05, 0.05).unwrap()
}

#[test]
fn below_what_the_window_allows_only_the_network_delays() {
    let samples = probe(&fixed(500), 4_900.0, 100_000, 1);
    assert_eq!(samples.buffered, 0);
    for delay_s in samples.delay_s {
        assert!((delay_s - 0.0501).abs() < 1e-9, "{delay_s}");
    }
}

#[test]
fn above_it_the_delay_grows_by_what_is_too_much() {
    let samples = probe(&fixed(500), 6_000.0, 60_000, 1);
    // 1,000 packets a second too many, of 5,000 (500 a round trip and a packet's time)
    let served = 500.0 / 0.1001;
    let (first, last) = (0, samples.delay_s.len() - 1);
    let growth = (samples.delay_s[last] - samples.delay_s[first])
        / (samples.written_s[last] - samples.written_s[first]);
    assert!((growth - (6_000.0 / served - 1.0)).abs() < 0.01, "{growth}");
}

#[test]
fn a_greedy_source_gets_a_window_a_round_trip_or_the_link() {
    let rate = |of: &WindowLoop| {
        let samples = probe(of, f64::INFINITY, 2_000_000, 1);
        (samples.packets - 1) as f64 / samples.arriving_s
    };
    assert!((rate(&fixed(500)) / (500.0 / 0.1001) - 1.0).abs() < 1e-3);
    assert!((rate(&fixed(2_000)) / 10_000.0 - 1.0).abs() < 1e-9);
}

#[test]
fn the_adaptive_window_attains_what_mathis_says() {
    // Mathis et al. 1997: 1.31 / (R sqrt(p)) for marks at random, 1.22 for periodic ones
    let samples = probe(&adaptive(1e-4), f64::INFINITY, 40_000_000, 1);
    let rate = samples.packets as f64 / samples.arriving_s;
    assert!((rate / (1.31 / (0.1 * 1e-2)) - 1.0).abs() < 0.02, "{rate}");
    let marks = Marks::Periodic(10_000);
    let of = WindowLoop::new(Window::Adaptive { marks }, f64::INFINITY, 0.05, 0.05).unwrap();
    let samples = probe(&of, f64::INFINITY, 4_000_000, 1);
    let rate = samples.packets as f64 / samples.arriving_s;
    assert!(
        (rate / ((1.5_f64).sqrt() / (0.1 * 1e-2)) - 1.0).abs() < 0.02,
        "{rate}"
    );
}

#[test]
fn periodic_marks_never_let_the_window_below_two_thirds_of_its_mean() {
    let marks = Marks::Periodic(10_000);
    let of = WindowLoop::new(Window::Adaptive { marks }, f64::INFINITY, 0.05, 0.05).unwrap();
    let samples = probe(&of, 700.0, 1_000_000, 1); // of 1,225: 0.57
    assert_eq!(samples.buffered, 0);
    let samples = probe(&adaptive(1e-4), 700.0, 10_000_000, 1);
    assert!(
        samples.buffered > samples.packets / 100,
        "{}",
        samples.buffered
    );
}

#[test]
fn the_same_seed_gives_the_same_delays() {
    let delays = |seed| probe(&adaptive(1e-3), 300.0, 100_000, seed).delay_s;
    assert_eq!(delays(1), delays(1));
    assert_ne!(delays(1), delays(2));
}

#[test]
fn nothing_overtakes_and_no_more_than_a_window_is_under_way() {
    let of = adaptive(1e-2);
    let mut flow = of.start(3);
    let (mut last, mut passages) = (0.0, Vec::new());
    for number in 0..50_000 {
        let written_s = f64::from(number) / 120.0;
        let passage = flow.carry(written_s);
        assert!(passage.sent_s >= written_s && passage.delivered_s >= last);
        last = passage.delivered_s;
        passages.push((passage, flow.window_packets()));
    }
    for (i, (passage, window)) in passages.iter().enumerate() {
        let before = passages[..i].iter().rev();
        let under_way = before
            .take_while(|(earlier, _)| earlier.delivered_s + 0.05 > passage.sent_s)
            .count();
        // what was sent before the window was halved stays in flight
        let halved = passages[i.saturating_sub(200)..i]
            .iter()
            .any(|(_, w)| *w > window + 1.0);
        assert!(
            halved || under_way < *window as usize,
            "{i}: {under_way} of {window}"
        );
    }
}

#[test]
fn impossible_loops_and_trains_are_refused() {
    let refused =
        |window, rate, latency, back| WindowLoop::new(window, rate, latency, back).is_err();
    let window = Window::Static { packets: 10 };
    assert!(refused(window, 0.0, 0.1, 0.1));
    assert!(refused(window, f64::NAN, 0.1, 0.1));
    assert!(refused(window, 1.0, -0.1, 0.1));
    assert!(refused(window, 1.0, f64::NAN, 0.1));
    assert!(refused(window, 1.0, 0.0, 0.0));
    assert!(refused(Window::Static { packets: 0 }, 1.0, 0.1, 0.1));
    assert!(refused(Window::Static { packets: u64::MAX }, 1.0, 0.1, 0.1));
    for marks in [
        Marks::Random(0.0),
        Marks::Random(1.1),
        Marks::Random(f64::NAN),
        Marks::Periodic(0),
    ] {
        assert!(
            refused(Window::Adaptive { marks }, 1.0, 0.1, 0.1),
            "{marks:?}"
        );
    }
    let train = |rate_pps, packets, packets_per_sample| {
        let probe = Probe {
            rate_pps,
            warm_up_packets: 0,
            packets,
            packets_per_sample,
        };
        fixed(10).probe(&probe, 1, &mut |_| ControlFlow::Continue(()))
    };
    assert!(train(0.0, 10, 1).is_err());
    assert!(train(f64::NAN, 10, 1).is_err());
    assert!(train(1.0, 0, 1).is_err());
    assert!(train(1.0, u64::MAX, 1).is_err());
    assert!(train(1.0, 10, 0).is_err());
    assert!(train(1.0, 10, 1).is_ok());
    let fluid = |of: WindowLoop, rate_pps, steps| {
        let probe = FluidProbe {
            rate_pps,
            warm_up_s: 0.0,
            duration_s: 1.0,
            every_s: 0.1,
            steps,
        };
        of.probe_fluid(&probe, 1, &mut |_| ControlFlow::Continue(()))
    };
    assert!(fluid(fixed(10), 1.0, 10).is_err()); // it has a capacity
    assert!(fluid(adaptive(0.1), 0.0, 10).is_err());
    assert!(fluid(adaptive(0.1), 1.0, 0).is_err());
    assert!(fluid(adaptive(0.1), 1.0, 10).is_ok());
}

#[test]
fn fluid_and_packets_agree() {
    let of = adaptive(1e-4);
    // of 1,310 packets a second: rarely, often, nearly always buffered
    for (rate_pps, steps) in [(500.0, 20), (900.0, 20), (1_150.0, 10)] {
        let sorted = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values
        };
        let packets = probe(&of, rate_pps, 60_000_000, 1);
        let fluid = FluidProbe {
            rate_pps,
            warm_up_s: 1e3,
            duration_s: 2e5,
            every_s: 0.02,
            steps,
        };
        let fluid = of
            .probe_fluid(&fluid, 2, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        let (a, b) = (sorted(packets.delay_s), sorted(fluid.delay_s));
        for level in [0.5, 0.9, 0.99] {
            let at = |values: &[f64]| values[(level * values.len() as f64) as usize];
            let (a, b) = (at(&a), at(&b));
            assert!(
                (a - b).abs() < 0.02 + 0.15 * a,
                "{rate_pps}, {level}: {a} and {b}"
            );
        }
    }
}

#[test]
fn a_fluid_of_a_static_window_waits_as_packets_do() {
    let of = WindowLoop::new(Window::Static { packets: 100 }, f64::INFINITY, 0.05, 0.05).unwrap();
    let fluid = |rate_pps| {
        let probe = FluidProbe {
            rate_pps,
            warm_up_s: 1.0,
            duration_s: 50.0,
            every_s: 0.01,
            steps: 10,
        };
        of.probe_fluid(&probe, 1, &mut |_| ControlFlow::Continue(()))
            .unwrap()
    };
    assert!(fluid(990.0).sender_s.iter().all(|&waited| waited < 1e-9));
    let above = fluid(2_000.0); // twice what it may: half of the time since the beginning
    for (written, waited) in above.written_s.iter().zip(&above.sender_s) {
        assert!((waited - written).abs() < 0.11, "{written}: {waited}");
    }
}

#[test]
fn the_fluid_of_a_greedy_source_is_as_fast_as_its_packets() {
    let of = adaptive(1e-4);
    let fluid = of.greedy_rate(1e5, 10, 1).unwrap();
    let packets = probe(&of, f64::INFINITY, 40_000_000, 1);
    let packets = packets.packets as f64 / packets.arriving_s;
    assert!(
        (fluid / packets - 1.0).abs() < 0.01,
        "{fluid} and {packets}"
    );
    let slow = WindowLoop::new(Window::Static { packets: 500 }, f64::INFINITY, 0.05, 0.05).unwrap();
    assert!((slow.greedy_rate(100.0, 10, 1).unwrap() / 5_000.0 - 1.0).abs() < 1e-3);
    assert!(slow.greedy_rate(0.0, 10, 1).is_err());
    assert!(slow.greedy_rate(1.0, 0, 1).is_err());
}
