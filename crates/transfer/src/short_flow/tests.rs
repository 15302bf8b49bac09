//! What the model of a flow does, what is read off a timeline, and what estimates come to.

use proptest::prelude::*;

use super::flow::{Exit, Flow, Link};
use super::timeline::Timeline;
use super::*;

const NEVER: f64 = f64::INFINITY;

fn link(rate: f64, rtt_s: f64) -> Link {
    Link {
        rate,
        rtt_s,
        room: f64::INFINITY,
        window_limit: f64::INFINITY,
    }
}

/// Every packet of a flow of the model: seconds and bytes, until `packets` have arrived.
fn arrivals(mut flow: Flow, link: &Link, packets: f64, mut losses: Vec<f64>) -> Vec<(f64, f64)> {
    let mut seen: Vec<(f64, f64)> = Vec::new();
    losses.push(NEVER);
    while flow.arrived < packets {
        losses.retain(|&lost| lost > flow.arrived);
        let round = flow.round(link, losses[0]);
        let last = (round.before + round.packets) as u32;
        for packet in round.before as u32 + 1..=last {
            seen.push((
                round.arrival_s(f64::from(packet)),
                f64::from(packet) * 1448.0,
            ));
        }
    }
    seen.retain(|one| one.1 <= packets * 1448.0);
    seen
}

fn measured(timeline: Vec<(f64, f64)>, rtt_s: f64) -> Measured {
    let &(time_s, bytes) = timeline.last().unwrap();
    Measured {
        timeline,
        ..Measured::new(bytes, time_s, rtt_s)
    }
}

/// What the same flow takes for `bytes`.
fn truth_s(exit: Exit, link: &Link, bytes: f64) -> f64 {
    let packets = (bytes / 1448.0).floor();
    arrivals(Flow::new(10.0, exit), link, packets, Vec::new())
        .last()
        .unwrap()
        .0
}

#[test]
fn slow_start_doubles_a_round_trip_apart() {
    let link = link(10_000.0, 0.1);
    let mut flow = Flow::new(10.0, Exit::At(NEVER));
    let rounds: Vec<_> = (0..4).map(|_| flow.round(&link, NEVER)).collect();
    let packets: Vec<f64> = rounds.iter().map(|round| round.packets).collect();
    assert_eq!(packets, [10.0, 20.0, 40.0, 80.0]);
    // a round trip and the two packets that the first acknowledgment waits for
    assert!((rounds[3].at_s - 3.0 * 0.1002).abs() < 1e-12);
    assert!((rounds[3].arrival_s(150.0) - (3.0 * 0.1002 + 79.0 / 10_000.0)).abs() < 1e-12);
}

#[test]
fn a_full_path_delivers_at_its_rate() {
    let link = link(1000.0, 0.05);
    let seen = arrivals(Flow::new(10.0, Exit::HyStart), &link, 5000.0, Vec::new());
    let at = |packet: usize| seen[packet - 1].0;
    assert!((at(5000) - at(1000) - 4.0).abs() < 1e-9);
}

#[test]
fn hystart_ends_slow_start_between_one_bdp_and_four() {
    for (rate, rtt_s) in [
        (2000.0, 0.04),
        (5000.0, 0.1),
        (300.0, 0.2),
        (20_000.0, 0.15),
    ] {
        let link = link(rate, rtt_s);
        let mut flow = Flow::new(10.0, Exit::HyStart);
        while flow.window.in_slow_start {
            flow.round(&link, NEVER);
        }
        // by the train of acknowledgments within 2 BDP; by delay in the round after the one that was
        // too large, which is twice that
        let (bdp, exit) = (rate * rtt_s, flow.window.cwnd);
        assert!(exit > bdp, "{rate} {rtt_s} {exit}");
        assert!(exit < 4.0 * bdp + 32.0, "{rate} {rtt_s} {exit}");
    }
}

#[test]
fn before_a_loss_the_window_grows_by_a_twentieth_at_least() {
    // so long a round trip that Reno is slower than CUBIC
    let link = link(1e6, 0.2);
    let mut flow = Flow::new(10.0, Exit::At(100.0));
    while flow.window.in_slow_start {
        flow.round(&link, NEVER);
    }
    let before = flow.window.cwnd;
    flow.round(&link, NEVER);
    assert!((flow.window.cwnd / before - 1.05).abs() < 1e-3);
    // after a loss it falls to seven tenths, and is back at K = cbrt(0.3 W / 0.4)
    let top = flow.window.cwnd;
    flow.round(&link, flow.arrived + 1.0);
    assert!((flow.window.cwnd - 0.7 * top).abs() < 1e-9);
    let began_s = flow.at_s;
    while flow.window.cwnd < top {
        flow.round(&link, NEVER);
    }
    let k_s = (0.3 * top / 0.4).cbrt();
    assert!(
        (flow.at_s - began_s - k_s).abs() < 0.21,
        "{} {k_s}",
        flow.at_s - began_s
    );
}

#[test]
fn a_receive_window_holds_the_flow() {
    let held = Link {
        window_limit: 64.0,
        ..link(1e5, 0.1)
    };
    let mut flow = Flow::new(10.0, Exit::HyStart);
    for _ in 0..30 {
        flow.round(&held, NEVER);
    }
    assert_eq!(flow.in_flight(&held), 64.0);
    assert!(!flow.is_full(&held));
}

#[test]
fn what_the_queue_has_no_room_for_is_a_loss() {
    let small = Link {
        room: 120.0,
        ..link(1000.0, 0.1)
    };
    let mut flow = Flow::new(10.0, Exit::At(NEVER));
    for _ in 0..4 {
        flow.round(&small, NEVER);
    }
    assert_eq!(flow.window.cwnd, 160.0);
    let round = flow.round(&small, NEVER);
    assert_eq!(round.packets, 120.0);
    assert!(!flow.window.in_slow_start);
}

#[test]
fn a_loss_is_found_where_it_was_and_jitter_is_none() {
    let link = link(2000.0, 0.08);
    let flow = Flow::new(10.0, Exit::HyStart);
    let lossless = Timeline::new(in_packets(&arrivals(flow, &link, 690.0, vec![])));
    assert!(lossless.losses(0.08).is_empty());
    let lossy = Timeline::new(in_packets(&arrivals(flow, &link, 690.0, vec![300.0])));
    assert_eq!(lossy.losses(0.08), [299.0]);
}

#[test]
fn several_losses_in_a_window_are_one_event() {
    let link = link(2000.0, 0.08);
    let flow = Flow::new(10.0, Exit::HyStart);
    let mut twice = in_packets(&arrivals(flow, &link, 690.0, vec![400.0]));
    // the first repair hands over the 60 packets up to the second loss, the next one the rest
    let repaired_s = twice[399].0;
    for one in twice.iter_mut().skip(459) {
        one.0 = one.0.max(repaired_s + 0.02);
    }
    let timeline = Timeline::new(twice);
    assert_eq!(timeline.losses(0.08), [399.0]);
}

#[test]
fn a_recovery_that_differs_is_no_wandering_rate() {
    // 3 Mbit/s, far from the usual; what comes after the loss is late by more than jitter
    let link = link(260.0, 0.12);
    let flow = Flow::new(10.0, Exit::HyStart);
    let mut seen = arrivals(flow, &link, 690.0, vec![400.0]);
    for one in seen.iter_mut().skip(399) {
        one.0 += 0.03;
    }
    // in order: nothing is handed on before what it follows
    let mut latest_s: f64 = 0.0;
    for one in &mut seen {
        latest_s = latest_s.max(one.0);
        one.0 = latest_s;
    }
    let found = estimate(&measured(seen, 0.12), &[5e6]).unwrap();
    assert_eq!(found.losses, 1);
    assert!(found.misfit < 0.003, "{found:?}");
    let of_rate = found.sizes[0].throughput_bps / (260.0 * 1448.0 * 8.0);
    assert!((0.9..1.0).contains(&of_rate), "{of_rate} {found:?}");
    let [low, .., high] = found.sizes[0].throughput_quantiles_bps;
    assert!(high < 1.5 * low, "{low} {high}");
}

fn in_packets(seen: &[(f64, f64)]) -> Vec<(f64, f64)> {
    seen.iter().map(|one| (one.0, one.1 / 1448.0)).collect()
}

#[test]
fn rates_are_read_off_a_timeline() {
    let link = link(2500.0, 0.1);
    let seen = arrivals(Flow::new(10.0, Exit::HyStart), &link, 690.0, vec![]);
    let timeline = Timeline::new(in_packets(&seen));
    assert!((timeline.peak_rate() / 2500.0 - 1.0).abs() < 0.01);
    assert!((timeline.last_rate(0.1) / 2500.0 - 1.0).abs() < 0.02);
    // probes say 95 ms, rounds 100.8
    let round_s = timeline.round_s(10.0, 0.095).unwrap();
    assert!((round_s - 0.1008).abs() < 1e-9);
    assert_eq!(timeline.round_s(10.0, 0.1008), None);
}

#[test]
fn a_flow_of_the_model_is_recovered() {
    for rate_mbps in [3.0, 12.0, 30.0, 60.0] {
        for rtt_s in [0.03, 0.1, 0.2] {
            let link = link(rate_mbps * 1e6 / 8.0 / 1448.0, rtt_s);
            let seen = arrivals(Flow::new(10.0, Exit::HyStart), &link, 691.0, vec![]);
            let found = estimate(&measured(seen, rtt_s), &[5e6, 20e6]).unwrap();
            for size in &found.sizes {
                let truth = truth_s(Exit::HyStart, &link, size.size_bytes);
                let [low, _, median, _, high] = size.time_quantiles_s;
                let off = median / truth - 1.0;
                assert!(off.abs() < 0.03, "{rate_mbps} {rtt_s}: {off} {found:?}");
                assert!(
                    low <= truth && truth <= high,
                    "{rate_mbps} {rtt_s} {low} {truth} {high}"
                );
            }
        }
    }
}

#[test]
fn a_window_that_grows_is_carried_on() {
    // jitter ended slow start at 30 packets on a path that holds 800: the paper's case
    let (link, exit) = (link(10_000.0, 0.08), Exit::At(30.0));
    let seen = arrivals(Flow::new(10.0, exit), &link, 691.0, vec![]);
    let found = estimate(&measured(seen, 0.08), &[5e6]).unwrap();
    assert_eq!(found.states[0].state, State::Growing);
    let off = found.sizes[0].time_s / truth_s(exit, &link, 5e6) - 1.0;
    assert!(off.abs() < 0.08, "{off} {found:?}");
}

#[test]
fn what_limits_the_flow_is_told() {
    let state = |link: &Link| {
        let seen = arrivals(Flow::new(10.0, Exit::HyStart), link, 691.0, vec![]);
        let limit = link.window_limit * 1448.0;
        let told = Measured {
            receive_window_bytes: limit.is_finite().then_some(limit),
            ..measured(seen, link.rtt_s)
        };
        estimate(&told, &[5e6]).unwrap().states[0].state
    };
    assert_eq!(state(&link(500.0, 0.05)), State::PathLimited);
    assert_eq!(state(&link(50_000.0, 0.2)), State::SlowStart);
    let held = Link {
        window_limit: 44.0,
        ..link(5000.0, 0.1)
    };
    assert_eq!(state(&held), State::WindowLimited);
}

#[test]
fn slow_start_alone_leaves_the_band_wide() {
    let width = |told: &Measured| {
        let found = estimate(told, &[20e6]).unwrap();
        let [low, .., high] = found.sizes[0].throughput_quantiles_bps;
        high / low
    };
    // 691 packets in slow start take six round trips
    let blind = width(&Measured::new(1e6, 0.63, 0.1));
    let full = arrivals(
        Flow::new(10.0, Exit::HyStart),
        &link(500.0, 0.05),
        691.0,
        vec![],
    );
    let sure = width(&measured(full, 0.05));
    assert!(blind > 3.0 && sure < 1.5, "{blind} {sure}");
}

#[test]
fn timeouts_that_are_unlikely_do_not_decide() {
    // a megabyte over loopback: a loss might cost ten thousand round trips, but there was none
    let found = estimate(&Measured::new(1e6, 4e-3, 4e-5), &[20e6]).unwrap();
    assert!(found.sizes[0].time_s < 0.2, "{found:?}");
}

#[test]
fn losses_seen_make_it_slower() {
    let with = |losses| {
        let told = Measured {
            losses: Some(losses),
            ..Measured::new(1e6, 2.0, 0.1)
        };
        estimate(&told, &[20e6]).unwrap().sizes[0].time_s
    };
    assert!(with(2) > 1.2 * with(0), "{} {}", with(2), with(0));
}

#[test]
fn wrong_input_is_told_in_words() {
    let said =
        |measured: Measured, size: f64| estimate(&measured, &[size]).unwrap_err().to_string();
    let good = Measured::new(1e6, 2.0, 0.1);
    assert_eq!(
        said(
            Measured {
                bytes: 0.0,
                ..good.clone()
            },
            5e6
        ),
        "bytes is 0, expected 28960 (two first windows) to 100000000 bytes"
    );
    assert!(
        said(
            Measured {
                time_s: 0.05,
                ..good.clone()
            },
            5e6
        )
        .contains("less than the round-trip")
    );
    assert!(
        said(
            Measured {
                rtts_s: vec![],
                ..good.clone()
            },
            5e6
        )
        .contains("at least one")
    );
    assert!(
        said(
            Measured {
                rtts_s: vec![0.1, f64::NAN],
                ..good.clone()
            },
            5e6
        )
        .starts_with("rtt is NaN")
    );
    assert!(said(good.clone(), 5e5).starts_with("size is 500000, expected the 1000000 bytes"));
    let falls = Measured {
        timeline: vec![(0.1, 2e4), (0.2, 1e4)],
        ..good
    };
    assert_eq!(
        said(falls, 5e6),
        "timeline, point 1: bytes falls from 20000 to 10000"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever was measured, estimates are finite, rise with size, and lie within their bands.
    #[test]
    fn estimates_are_in_order(
        bytes in 3e4_f64..5e6, rounds in 1.0_f64..200.0, rtt_s in 1e-4_f64..1.0,
        losses in proptest::option::of(0_u32..20), window in proptest::option::of(2e3_f64..1e7),
    ) {
        let told = Measured {
            losses,
            receive_window_bytes: window,
            ..Measured::new(bytes, rounds * rtt_s, rtt_s)
        };
        let sizes = [bytes, 2.0 * bytes, 1.5 * bytes, 20.0 * bytes];
        let found = estimate(&told, &sizes).unwrap();
        for (size, wanted) in found.sizes.iter().zip(sizes) {
            prop_assert_eq!(size.size_bytes, wanted);
            prop_assert!(size.time_s.is_finite() && size.time_s > 0.0, "{:?}", found);
            prop_assert!(size.time_quantiles_s.is_sorted());
            prop_assert!(size.throughput_quantiles_bps.is_sorted());
        }
        let times: Vec<f64> = [0, 2, 1, 3].map(|i| found.sizes[i].time_quantiles_s[2]).to_vec();
        prop_assert!(times.is_sorted(), "{:?}", times);
        prop_assert_eq!(&found, &estimate(&told, &sizes).unwrap());
    }

    /// A timeline of anything is borne.
    #[test]
    fn any_timeline_is_borne(
        steps in proptest::collection::vec((0.0_f64..0.3, 0.0_f64..3e4), 2..80),
        rtt_s in 1e-3_f64..0.5,
    ) {
        let mut at = (0.0, 4e4);
        let timeline: Vec<(f64, f64)> = steps
            .iter()
            .map(|step| {
                at = (at.0 + step.0, at.1 + step.1);
                at
            })
            .collect();
        let told = measured(timeline, rtt_s);
        match estimate(&told, &[2.0 * told.bytes]) {
            Ok(found) => prop_assert!(found.sizes[0].time_s.is_finite()),
            Err(error) => prop_assert!(told.time_s < rtt_s, "{}", error),
        }
    }
}
