use proptest::prelude::*;

use super::*;
use pathcast_analysis::epochs::Phase;

const MSS: u64 = 1448;

fn path(cc: Cc, rtt_s: f64) -> LatencyPath<'static> {
    LatencyPath {
        rtt_s,
        ..LatencyPath::unlimited(cc)
    }
}

fn open() -> Start<'static> {
    Start::New(Opening {
        handshake_round_trips: 0.0,
        ..Opening::default()
    })
}

fn packets(n: u64) -> Transfer {
    Transfer::of(n * MSS)
}

#[test]
fn without_losses_it_takes_the_rounds_of_slow_start() {
    for cc in [Cc::Cubic, Cc::Reno] {
        for (n, rounds) in [
            (1, 1.0),
            (10, 1.0),
            (11, 2.0),
            (30, 2.0),
            (70, 3.0),
            (71, 4.0),
        ] {
            let time = latency(&path(cc, 0.1), open(), &packets(n)).unwrap();
            let expected = 0.1 * rounds;
            assert!((time.mean_s - expected).abs() < 1e-9, "{n}: {time:?}");
            assert!((time.quantiles_s[0] - time.quantiles_s[4]).abs() < 1e-9);
            assert_eq!(time.no_loss_probability, 1.0);
        }
    }
}

#[test]
fn the_link_carries_what_is_left_once_the_pipe_is_full() {
    // 1000 packets/s and 100 ms: rounds of 10, 20, 40, 80, then 100 packets and more keep the link busy
    let path = LatencyPath {
        capacity_packets_per_s: 1000.0,
        ..path(Cc::Cubic, 0.1)
    };
    let time = latency(&path, open(), &packets(5000)).unwrap();
    // the fifth round begins after 0.4 s, when 150 packets have left
    let expected = 0.1 + 0.4 + (5000.0 - 150.0) / 1000.0;
    assert!((time.mean_s - expected).abs() < 1e-9, "{time:?}");
}

#[test]
fn a_handshake_and_thinking_come_on_top() {
    let new = |handshake_round_trips, think_s| {
        let opening = Opening {
            handshake_round_trips,
            think_s,
            ..Opening::default()
        };
        latency(&path(Cc::Reno, 0.1), Start::New(opening), &packets(70)).unwrap()
    };
    for (round_trips, think_s, expected) in [(1.0, 0.0, 0.4), (2.0, 0.05, 0.55), (3.0, 0.0, 0.6)] {
        assert!((new(round_trips, think_s).mean_s - expected).abs() < 1e-9);
    }
}

#[test]
fn the_receive_window_bounds_a_round() {
    let path = LatencyPath {
        max_window_packets: 20.0,
        ..path(Cc::Reno, 0.1)
    };
    // 10, 20, 20: three round trips; 10 + 50 x 20 packets: 51
    for (n, rounds) in [(50, 3.0), (1010, 51.0)] {
        let time = latency(&path, open(), &packets(n)).unwrap();
        assert!((time.mean_s - 0.1 * rounds).abs() < 1e-9, "{n}: {time:?}");
    }
}

#[test]
fn a_lost_last_packet_shows_in_the_upper_quantile() {
    let path = LatencyPath {
        loss: Loss::Constant(0.06),
        ..path(Cc::Cubic, 0.05)
    };
    // one packet: lost with 6 %, then a timeout 0.25 s after it was sent
    let time = latency(&path, open(), &packets(1)).unwrap();
    assert!((time.quantiles_s[2] - 0.05).abs() < 1e-9);
    assert!((time.quantiles_s[4] - 0.3).abs() < 1e-9, "{time:?}");
    assert!((time.no_loss_probability - 0.94).abs() < 1e-9);
    // two: the last is probed for two round trips after the acknowledgment of the first
    let time = latency(&path, open(), &packets(2)).unwrap();
    assert!((time.quantiles_s[4] - 0.2).abs() < 1e-9, "{time:?}");
}

#[test]
fn a_running_flow_goes_on_from_its_window() {
    let state = FlowState {
        phase: Phase::Avoidance,
        cwnd_packets: 100.0,
        epoch_start_s: 0.0,
        epoch_start_packets: 80.0,
        w_max_packets: 160.0,
        last_loss_s: Some(-0.1),
        ssthresh_packets: 80.0,
        growth: 1.0,
        held_s: 0.0,
        release_in_s: 0.0,
    };
    let start = Start::MidFlow {
        state: &state,
        now_s: 2.0,
    };
    let sent = Transfer {
        until: Until::Sent,
        ..packets((100..110).sum())
    };
    // 100 + 101 + ... + 109 packets: ten round trips
    let time = latency(&path(Cc::Reno, 0.1), start, &sent).unwrap();
    assert!((time.mean_s - 1.0).abs() < 0.01, "{time:?}");
    let acknowledged = Transfer {
        until: Until::Answered,
        ..sent
    };
    let later = latency(&path(Cc::Reno, 0.1), start, &acknowledged).unwrap();
    assert!((later.mean_s - time.mean_s - 0.1).abs() < 1e-9);
    // held for half a second, it sends 100 packets a round trip meanwhile
    let held = FlowState {
        held_s: 1.0,
        release_in_s: 100.0,
        ..state
    };
    let start = Start::MidFlow {
        state: &held,
        now_s: 3.0,
    };
    let time = latency(&path(Cc::Reno, 0.1), start, &sent).unwrap();
    assert!((time.mean_s - 1.045).abs() < 0.01, "{time:?}");
}

#[test]
fn connections_share_bytes_and_link() {
    let four = |path: &LatencyPath<'_>, bytes| {
        let transfer = Transfer {
            connections: 4,
            ..Transfer::of(bytes)
        };
        latency(path, open(), &transfer).unwrap()
    };
    // 70 packets each: three round trips
    let time = four(&path(Cc::Cubic, 0.1), 4 * 70 * MSS);
    assert!((time.mean_s - 0.3).abs() < 1e-9);
    // a busy link takes as long for all
    let link = LatencyPath {
        capacity_packets_per_s: 1000.0,
        ..path(Cc::Cubic, 0.1)
    };
    let all = four(&link, 20_000 * MSS);
    let alone = latency(&link, open(), &packets(20_000)).unwrap();
    assert!(
        (all.mean_s / alone.mean_s - 1.0).abs() < 0.01,
        "{all:?} {alone:?}"
    );
    // all have to be done: each may be late
    let lossy = LatencyPath {
        loss: Loss::Constant(0.01),
        ..path(Cc::Cubic, 0.1)
    };
    let (all, one) = (
        four(&lossy, 4 * 40 * MSS),
        latency(&lossy, open(), &packets(40)).unwrap(),
    );
    assert!(all.mean_s > one.mean_s);
    assert!((all.no_loss_probability - one.no_loss_probability.powi(4)).abs() < 1e-9);
}

#[test]
fn numbers_out_of_range_are_named() {
    let bad = LatencyPath {
        loss: Loss::Constant(1.5),
        ..path(Cc::Cubic, 0.1)
    };
    let error = latency(&bad, open(), &packets(1)).unwrap_err();
    assert_eq!(error.to_string(), "loss is 1.5, expected >= 0 and < 1");
    let error = latency(&path(Cc::Cubic, f64::NAN), open(), &packets(1)).unwrap_err();
    assert!(error.to_string().starts_with("rtt_s is NaN"), "{error}");
    let error = latency(&path(Cc::Cubic, 0.1), open(), &Transfer::of(0)).unwrap_err();
    assert_eq!(error.to_string(), "bytes is 0, expected >= 1");
}

#[test]
fn where_most_losses_are_the_queue_s_a_long_transfer_takes_what_the_link_does() {
    for cc in [Cc::Reno, Cc::Cubic] {
        let path = LatencyPath {
            capacity_packets_per_s: 4000.0,
            buffer_packets: 200.0,
            ..path(cc, 0.05)
        };
        let time = latency(&path, open(), &packets(100_000)).unwrap();
        // a buffer of one BDP keeps the link busy
        let link_s = 100_000.0 / 4000.0;
        assert!(
            (1.0..1.05).contains(&(time.mean_s / link_s)),
            "{cc:?} {time:?}"
        );
    }
}

/// No acknowledgment shows the loss of a packet that is alone: its repair waits for the timer. Of two packets the
/// other one's does, so that more bytes may take less time: the one case in which they do.
#[test]
fn one_packet_waits_for_the_timer_and_two_do_not() {
    let lossy = LatencyPath {
        loss: Loss::Constant(0.03),
        ..path(Cc::Cubic, 0.005)
    };
    let time = |n| latency(&lossy, open(), &packets(n)).unwrap().mean_s;
    let lone = 0.005 + 0.03 * (RTO_MIN_S + 0.005);
    assert!((time(1) / lone - 1.0).abs() < 0.05, "{} {lone}", time(1));
    assert!(time(2) < 0.6 * time(1), "{} {}", time(2), time(1));
}

proptest! {
    #[test]
    fn more_bytes_or_a_longer_path_never_take_less(
        rtt_s in 0.005..0.5f64, p in 0.0..0.03f64, mbit in 1.0..1000.0f64, buffer in 10.0..1000.0f64,
        // not from one on: see one_packet_waits_for_the_timer_and_two_do_not
        n in 2..20_000u64, reno in any::<bool>(),
    ) {
        let cc = if reno { Cc::Reno } else { Cc::Cubic };
        let path = LatencyPath {
            loss: Loss::Constant(p),
            capacity_packets_per_s: mbit * 1e6 / 12_000.0,
            buffer_packets: buffer,
            ..path(cc, rtt_s)
        };
        let time = latency(&path, open(), &packets(n)).unwrap();
        prop_assert!(time.quantiles_s.windows(2).all(|pair| pair[0] <= pair[1] + 1e-12));
        let least = rtt_s + n as f64 * 12_000.0 / (mbit * 1e6);
        prop_assert!(time.quantiles_s[0] >= least * (1.0 - 1e-9), "{time:?} {least}");
        prop_assert!(time.mean_s.is_finite());
        prop_assert!((0.0..=1.0).contains(&time.no_loss_probability));
        let twice = latency(&path, open(), &packets(2 * n)).unwrap();
        prop_assert!(twice.mean_s >= time.mean_s, "{time:?} {twice:?}");
        prop_assert!(twice.point_s() >= time.point_s() * (1.0 - 1e-9));
        // without a queue's limit: a longer path makes the same buffer a smaller part
        let open_path = LatencyPath {
            capacity_packets_per_s: f64::INFINITY,
            buffer_packets: f64::INFINITY,
            ..path
        };
        let longer = LatencyPath { rtt_s: 2.0 * rtt_s, ..open_path };
        let (near, far) = (
            latency(&open_path, open(), &packets(n)).unwrap(),
            latency(&longer, open(), &packets(n)).unwrap(),
        );
        prop_assert!(far.mean_s >= near.mean_s && far.point_s() >= near.point_s());
    }
}

/// The same process drawn packet by packet: time until `n` packets have left and are repaired.
fn drawn(path: &LatencyPath<'_>, n: u64, runs: u32) -> Vec<f64> {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{RngCore, SeedableRng};
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let mut uniform = move || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let total = n as f64;
    let cells = walk::opening(path, INITIAL_WINDOW, total);
    let end_s = walk::time_of(&cells, total);
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            // the first loss, in the walk without one
            let (mut sent, mut first) = (0.0, None);
            'walk: for cell in &cells {
                let hazard = path.hazard(cell.window);
                let gap = if hazard > 0.0 {
                    -(1.0 - uniform()).ln() / hazard
                } else {
                    f64::INFINITY
                };
                if gap < cell.packets && sent + gap < total - LAST {
                    first = Some((sent + gap, cell.at(gap), cell.at_loss));
                    break 'walk;
                }
                sent += cell.packets;
                if cell.overflows && sent < total {
                    first = Some((sent, cell.end_s, cell.at_loss));
                    break 'walk;
                }
            }
            let Some((at, mut now_s, mut window)) = first else {
                return end_s;
            };
            let mut left = total - at;
            let rtt_s = path.rtt_at(window);
            let overflows = cells.iter().any(|cell| cell.overflows);
            if !overflows && left <= window.min(path.capacity_packets_per_s * rtt_s) {
                return end_s.max(now_s + rtt_s);
            }
            let mut aim = 0.0;
            loop {
                let mut flow = after_loss::Recovering::new(path, window, aim);
                let (begun_s, repair_s) = (now_s, flow.repair_s);
                let mut budget = -(1.0 - uniform()).ln();
                // in parts of a packet or of the window
                while left > 0.0 && budget > 0.0 {
                    let part = (0.05 * flow.window_at_loss()).min(left);
                    let (s, hazard) = flow.send(path, part);
                    now_s += s;
                    left -= part;
                    budget -= hazard;
                }
                if budget > 0.0 {
                    return now_s.max(begun_s + repair_s);
                }
                window = flow.window_at_loss();
                aim = flow.w_max();
            }
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times
}

#[test]
fn drawing_the_same_process_agrees() {
    let runs = 1000;
    for cc in [Cc::Reno, Cc::Cubic] {
        for (p, mbit, n) in [
            (1e-2, 1e9, 700),
            (1e-2, 1e9, 7000),
            (1e-3, 1e9, 700),
            (1e-3, 1e9, 7000),
            (1e-3, 1e9, 70_000),
            (1e-4, 50.0, 7000),
            (1e-3, 20.0, 7000),
            (1e-3, 50.0, 70_000),
            (1e-4, 100.0, 70_000),
        ] {
            let path = LatencyPath {
                loss: Loss::Constant(p),
                capacity_packets_per_s: mbit * 1e6 / 12000.0,
                buffer_packets: mbit * 1e6 / 12000.0 * 0.1,
                ..path(cc, 0.1)
            };
            let (mixture, _) = but_for_the_last(&path, open(), n as f64);
            let (mean, quantiles) = mixture.summary(1.0);
            let draws = drawn(&path, n, runs);
            let drawn_mean = draws.iter().sum::<f64>() / f64::from(runs);
            let inside = (draws.iter())
                .filter(|&&t| t >= quantiles[0] * 0.995 && t <= quantiles[4] * 1.005)
                .count() as f64
                / f64::from(runs);
            let median = draws[runs as usize / 2];
            let at = format!(
                "{cc:?} p {p} {mbit} Mbit/s {n}: mean {mean} drawn {drawn_mean}, median {} drawn \
                 {median}, {inside} inside",
                quantiles[2]
            );
            assert!((mean / drawn_mean - 1.0).abs() < 0.08, "{at}");
            assert!((quantiles[2] / median - 1.0).abs() < 0.1, "{at}");
            // half a per cent counts as equal; atoms at the quantiles make the band wider than 90 %
            assert!((0.8..=1.0).contains(&inside), "{at}");
        }
    }
}

#[test]
fn the_literature_s_times_are_of_the_definition_asked_for_and_never_below_the_link_s() {
    for cc in [Cc::Cubic, Cc::Reno] {
        for (p, n) in [0.0, 1e-9, 1e-4, 0.01]
            .into_iter()
            .flat_map(|p| [1.0, 7.0, 70.0, 7000.0].map(|n| (p, n)))
        {
            let path = LatencyPath {
                loss: Loss::Constant(p),
                capacity_packets_per_s: 1000.0,
                ..path(cc, 0.1)
            };
            let of = |until| {
                let said = literature::new_connection(&path, n, 10.0, until);
                [said.cardwell_s, said.econ_s, said.pftk_s, said.link_s]
            };
            let (sent, arrived, answered) =
                (of(Until::Sent), of(Until::Arrived), of(Until::Answered));
            for model in 0..4 {
                let at = format!("{cc:?} {p} {n}: model {model}");
                assert!(sent[model] >= n / 1000.0 - 1e-9, "{at}: {sent:?}");
                assert!((arrived[model] - sent[model] - 0.05).abs() < 1e-9, "{at}");
                assert!((answered[model] - sent[model] - 0.1).abs() < 1e-9, "{at}");
            }
        }
    }
}

#[test]
fn econ_s_time_of_a_new_connection_is_continuous_where_losses_vanish() {
    for n in [1.0, 30.0, 500.0, 7000.0] {
        let time = |p: f64| {
            let path = LatencyPath {
                loss: Loss::Constant(p),
                ..path(Cc::Cubic, 0.1)
            };
            literature::econ_new(&path, n, 10.0)
        };
        assert!((time(1e-9) / time(0.0) - 1.0).abs() < 1e-4, "{n}");
    }
}
