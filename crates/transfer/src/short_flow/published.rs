//! The published estimator of short CUBIC flows (De Silva, Chan and Ooi, "Throughput Estimation for
//! Short Lived TCP Cubic Flows", MobiQuitous 2016): Algorithm 1 finds the window at which slow start
//! ended, Algorithm 2 continues from there.
//!
//! The round-trip time is constant, there is no loss, and nothing but `clamp_packets` limits the window:
//! not the link. Both algorithms are as the paper means them; two misprints of Algorithm 1 are corrected
//! (`(RTT)^3 / 4` stands outside the sum, the inner loop runs over windows and stops at `ss > N`).

use serde::Serialize;

use pathcast_window_law::CUBIC_C;

/// The constants of the paper's section 5.1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constants {
    /// CUBIC's C, packets/s^3.
    pub cubic_c: f64,
    /// First window W0, packets, 1 or more.
    pub initial_window_packets: f64,
    /// Payload of a packet, bytes.
    pub mss_bytes: f64,
    /// The largest window that the receiver lets the flow have, packets.
    pub clamp_packets: f64,
}

impl Default for Constants {
    /// C 0.4 and W0 10 (Linux), MSS 1388 and a clamp of 800 packets (the paper's telephone).
    fn default() -> Self {
        Self {
            cubic_c: CUBIC_C,
            initial_window_packets: 10.0,
            mss_bytes: 1388.0,
            clamp_packets: 800.0,
        }
    }
}

/// How slow start ended, by Algorithm 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SlowStartEnd {
    /// Ws, packets.
    pub window_packets: f64,
    /// Whether all of the transfer was slow start: nothing that Algorithm 1 tries is as fast as the
    /// flow was, and Ws is taken to be the window at its end (section 5.2).
    pub at_the_end: bool,
}

/// Algorithm 1, the HyStart solver: the first Ws with which `bytes` are sent within `time_s`.
///
/// `time_s` and `rtt_s` are seconds from the first byte to the last and of a round trip; all > 0. `None`
/// if no Ws is fast enough. A flow that is slower than its first window would have been gives W0.
pub fn hystart_solver(bytes: f64, time_s: f64, rtt_s: f64, constants: &Constants) -> Option<f64> {
    let Constants {
        cubic_c,
        initial_window_packets: w0,
        mss_bytes,
        ..
    } = *constants;
    let packets = (bytes / mss_bytes).ceil(); // N
    let rounds = time_s / rtt_s; // T, a real number
    let mut first = w0; // 2^(r-1) W0
    let mut round = 1.0;
    // beyond that, slow start alone sends more than N
    while round <= rounds && 2.0 * first - w0 <= packets {
        let left = rounds - round;
        let growth = cubic_c * left.powi(2) * (left + 1.0).powi(2) * rtt_s.powi(3) / 4.0;
        // equation 5 is linear in Ws: the first whole step from `first` on that reaches N
        let wanted = (packets + w0 - growth) / (2.0 + left);
        let window = first + (wanted - first).max(0.0).ceil();
        if window < 2.0 * first && 2.0 * window - w0 <= packets {
            return Some(window);
        }
        first *= 2.0;
        round += 1.0;
    }
    None
}

/// Algorithm 1 and, where it finds none, what the paper does then: slow start ended with the transfer.
pub fn slow_start_end(bytes: f64, time_s: f64, rtt_s: f64, constants: &Constants) -> SlowStartEnd {
    let at_the_end = || {
        let packets = (bytes / constants.mss_bytes).ceil();
        f64::midpoint(packets, constants.initial_window_packets) // equation 2, for Ws
    };
    let solved = hystart_solver(bytes, time_s, rtt_s, constants);
    SlowStartEnd {
        window_packets: solved
            .unwrap_or_else(at_the_end)
            .max(constants.initial_window_packets),
        at_the_end: solved.is_none(),
    }
}

/// Algorithm 2, the throughput estimator: seconds that `size_bytes` take with slow start left at
/// `window_packets`. A whole number of round trips, at least two.
pub fn estimator(size_bytes: f64, rtt_s: f64, window_packets: f64, constants: &Constants) -> f64 {
    let Constants {
        cubic_c,
        initial_window_packets: w0,
        mss_bytes,
        clamp_packets,
    } = *constants;
    let packets = (size_bytes / mss_bytes).ceil();
    let slow_start_rounds = ((window_packets / w0).log2() + 1.0).floor(); // x
    let mut left = packets - (2.0 * window_packets - w0);
    let mut round = 1.0; // t
    loop {
        // W(t) = Ws + C t^3 (equation 1 with K = 0)
        let window = window_packets + cubic_c * (round * rtt_s).powi(3);
        if window >= clamp_packets {
            // from here on each round trip carries the clamp
            let rounds = (left / clamp_packets).ceil().max(1.0);
            return rtt_s * (round - 1.0 + rounds + slow_start_rounds);
        }
        left -= window;
        if left <= 0.0 {
            return rtt_s * (round + slow_start_rounds);
        }
        round += 1.0;
    }
}

/// Windows by Algorithm 2 until `size_bytes` are sent: seconds since the first byte, and packets.
///
/// One point each round trip, at its beginning, of slow start (10, 20, 40 ... as in equation 2); after
/// it each or, of many, `most_points` evenly spaced ones, and the moment at which all is sent.
pub fn evolution(
    size_bytes: f64,
    rtt_s: f64,
    window_packets: f64,
    constants: &Constants,
    most_points: u32,
) -> Vec<(f64, f64)> {
    let w0 = constants.initial_window_packets;
    let end_s = estimator(size_bytes, rtt_s, window_packets, constants);
    let slow_start_rounds = ((window_packets / w0).log2() + 1.0).floor(); // x
    let mut points = Vec::new();
    let mut window = w0;
    for round in 0..slow_start_rounds as u32 {
        points.push((f64::from(round) * rtt_s, window));
        window *= 2.0;
    }
    let rounds = (end_s / rtt_s - slow_start_rounds).round().max(1.0);
    let step = (rounds / f64::from(most_points.max(1))).ceil().max(1.0);
    let mut round = 1.0; // t
    let at = |round: f64| {
        let window = window_packets + constants.cubic_c * (round * rtt_s).powi(3);
        window.min(constants.clamp_packets)
    };
    while round <= rounds {
        points.push(((slow_start_rounds + round - 1.0) * rtt_s, at(round)));
        round += step;
    }
    points.push((end_s, at(rounds)));
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// W0 10 and packets of 1000 bytes, for sums that can be done by hand.
    const BY_HAND: Constants = Constants {
        cubic_c: 0.4,
        initial_window_packets: 10.0,
        mss_bytes: 1000.0,
        clamp_packets: 800.0,
    };

    /// Equation 5 as printed: packets in T rounds.
    fn equation_5(window: f64, exit_round: f64, rounds: f64, rtt_s: f64) -> f64 {
        let left = rounds - exit_round;
        (2.0 + left) * window - 10.0
            + 0.4 * left * left * (left + 1.0) * (left + 1.0) * rtt_s.powi(3) / 4.0
    }

    #[test]
    fn the_solver_knows_a_sum_done_by_hand() {
        // RTT 0.1 s, T = 8: Ws = 50 is in round 3 (40..80); 5 rounds follow:
        // (2 + 5) 50 - 10 + 0.4 25 36 0.001 / 4 = 340.09
        assert!((equation_5(50.0, 3.0, 8.0, 0.1) - 340.09).abs() < 1e-9);
        assert_eq!(hystart_solver(340e3, 0.8, 0.1, &BY_HAND), Some(50.0));
        // 341 packets need the next window
        assert_eq!(hystart_solver(341e3, 0.8, 0.1, &BY_HAND), Some(51.0));
    }

    #[test]
    fn the_fraction_of_a_round_counts() {
        // T = 8.5: 5.5 rounds carry 49 packets each: 7.5 49 - 10 + 0.4 30.25 42.25 0.001 / 4 = 357.6
        assert_eq!(hystart_solver(357e3, 0.85, 0.1, &BY_HAND), Some(49.0));
    }

    #[test]
    fn a_flow_slower_than_its_first_window_gives_that() {
        assert_eq!(hystart_solver(100e3, 60.0, 0.1, &BY_HAND), Some(10.0));
    }

    #[test]
    fn what_slow_start_alone_can_do_ends_with_the_transfer() {
        // 1270 packets in 7 rounds: 10 + 20 + ... + 640
        assert_eq!(hystart_solver(1271e3, 0.6, 0.1, &BY_HAND), None);
        let end = slow_start_end(1270e3, 0.6, 0.1, &BY_HAND);
        assert!(end.at_the_end);
        assert_eq!(end.window_packets, 640.0);
    }

    #[test]
    fn the_estimator_knows_a_sum_done_by_hand() {
        // Ws = 50: slow start sends 90 packets in 3 rounds; then 50.0004, 50.0032, 50.0108, ...
        assert!((estimator(140e3, 0.1, 50.0, &BY_HAND) - 0.4).abs() < 1e-12);
        assert!((estimator(141e3, 0.1, 50.0, &BY_HAND) - 0.5).abs() < 1e-12);
        // with Ws at the clamp: 1590 in 7 rounds, then 800 a round
        assert!((estimator(1590e3 + 8000e3, 0.1, 800.0, &BY_HAND) - 1.7).abs() < 1e-9);
    }

    #[test]
    fn the_clamp_is_where_the_paper_has_it() {
        // one round trip by one, as printed
        let by_rounds = |size: f64, rtt_s: f64, ws: f64| {
            let mut clamped = false;
            let (mut cwnd, mut sent, mut t) = (0.0, 2.0 * ws - 10.0, 1.0_f64);
            loop {
                if !clamped {
                    cwnd = ws + 0.4 * (t * rtt_s).powi(3);
                    if cwnd >= 800.0 {
                        cwnd = 800.0;
                        clamped = true;
                    }
                }
                sent += cwnd;
                if sent >= (size / 1000.0).ceil() {
                    return rtt_s * (t + ((ws / 10.0).log2() + 1.0).floor());
                }
                t += 1.0;
            }
        };
        for ws in [10.0, 37.0, 300.0, 799.0] {
            for rtt_s in [0.02, 0.08, 0.3] {
                for size in [1e6, 5e6, 20e6, 2e8] {
                    let ours = estimator(size, rtt_s, ws, &BY_HAND);
                    assert!((ours - by_rounds(size, rtt_s, ws)).abs() < 1e-9);
                }
            }
        }
    }

    proptest! {
        /// The least window that reaches N is found, and no smaller one of its round does.
        #[test]
        fn the_solution_reaches_and_the_window_before_does_not(
            packets in 50.0_f64..3000.0, rtt_s in 0.01_f64..0.4, rounds in 3.0_f64..60.0,
        ) {
            let packets = packets.ceil();
            let time_s = rounds * rtt_s;
            if let Some(window) = hystart_solver(packets * 1e3, time_s, rtt_s, &BY_HAND) {
                let round = ((window / 10.0).log2() + 1.0).floor();
                let rounds = time_s / rtt_s;
                prop_assert!(equation_5(window, round, rounds, rtt_s) >= packets - 1e-6);
                if window > 10.0 && (window - 1.0) / 10.0 >= 2f64.powf(round - 1.0) {
                    prop_assert!(equation_5(window - 1.0, round, rounds, rtt_s) < packets);
                }
            }
        }

        /// A flow that the model makes itself is recovered to the packet.
        #[test]
        fn a_flow_of_the_model_is_recovered(
            window in 10.0_f64..300.0, rtt_s in 0.02_f64..0.3, rounds_after in 1.0_f64..30.0,
        ) {
            let window = window.floor();
            let round = ((window / 10.0).log2() + 1.0).floor();
            let rounds = round + rounds_after;
            let packets = equation_5(window, round, rounds, rtt_s).floor();
            let found = hystart_solver(packets * 1e3, rounds * rtt_s, rtt_s, &BY_HAND);
            // an earlier exit may explain the same flow as well: then it is found first
            let found = found.expect("the model explains its own flow");
            prop_assert!(found <= window);
            let same_round = ((found / 10.0).log2() + 1.0).floor() == round;
            prop_assert!(!same_round || found >= window - 1.0);
        }

        /// The windows that are drawn are those that are counted.
        #[test]
        fn the_evolution_sends_what_the_estimator_counts(
            doublings in 0_u32..6, rtt_s in 0.02_f64..0.3, size in 2e6_f64..5e7,
        ) {
            let window = 10.0 * f64::from(1 << doublings);
            let constants = BY_HAND;
            let end_s = estimator(size, rtt_s, window, &constants);
            let points = evolution(size, rtt_s, window, &constants, u32::MAX);
            let (last, rounds) = points.split_last().unwrap();
            prop_assert!((last.0 - end_s).abs() < 1e-9);
            prop_assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
            let sent: f64 = rounds.iter().map(|point| point.1).sum();
            prop_assert!(sent >= (size / 1000.0).ceil() - 1e-6);
            prop_assert!(sent - last.1 < (size / 1000.0).ceil());
            let few = evolution(size, rtt_s, window, &constants, 50);
            prop_assert!(few.len() <= doublings as usize + 52);
            let is_among = |point: &(f64, f64)| points.iter().any(|one| {
                (one.0 - point.0).abs() < 1e-9 && one.1 == point.1
            });
            prop_assert!(few.iter().all(is_among));
        }

        /// More bytes never take less time.
        #[test]
        fn time_grows_with_size(
            window in 10.0_f64..2000.0, rtt_s in 0.005_f64..0.5, size in 1e5_f64..1e8, more in 1.0_f64..10.0,
        ) {
            let constants = Constants::default();
            let time = |size: f64| estimator(size, rtt_s, window, &constants);
            prop_assert!(time(size * more) >= time(size));
        }
    }
}
