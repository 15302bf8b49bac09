//! Forecasts of a flow that has just begun, from what other flows did next on many paths.
//!
//! Seconds of data say little of what a flow will do: its window law has no loss curve yet, means hold slow start. What
//! they do say is learned from simulated flows over paths drawn at random. [`Beginning`] has the numbers,
//! all ratios but the horizon, age, round-trip time and rate. A small network, made by
//! `benches/cold_start.py train`, gives quantiles of the rate ahead over the present rate. Its part in a forecast fades
//! as the flow's own past grows ([`part`]).

mod beginning;
mod network;

pub use beginning::{Beginning, FEATURES, WINDOWS};
pub(crate) use network::outlook;

/// From this age on, in seconds, the prior has no part.
pub(crate) const OVER_S: f64 = 100.0;
/// The age at which it has half a part, in seconds: at a horizon of 1 s, and the power by which this grows with the
/// horizon. Errors on 600 of the flows that the network was trained on hardly change from 12 to 40 s.
const HALF_S: (f64, f64) = (16.0, 0.3);
/// How fast the part falls around that age.
const STEEPNESS: f64 = 3.0;

/// The part of the prior in a forecast of a flow that is known for `known_s` seconds: 1 at first, 0 at [`OVER_S`].
pub(crate) fn part(known_s: f64, horizon_s: f64) -> f64 {
    let fall = |age_s: f64| {
        let half_s = HALF_S.0 * horizon_s.powf(HALF_S.1);
        1.0 / (1.0 + (age_s / half_s).powf(STEEPNESS))
    };
    let last = fall(OVER_S);
    ((fall(known_s) - last) / (1.0 - last)).max(0.0)
}

#[cfg(test)]
mod tests {
    use pathcast_window_law::Cc;

    use super::*;

    #[test]
    fn the_part_of_the_prior_falls_from_one_to_nothing() {
        for horizon_s in [0.5, 1.0, 10.0, 60.0] {
            let parts = [0.0, 1.0, 5.0, 20.0, 100.0, 300.0].map(|known_s| part(known_s, horizon_s));
            assert!(parts.is_sorted_by(|a, b| a >= b), "{parts:?}");
            assert_eq!((parts[0], parts[4], parts[5]), (1.0, 0.0, 0.0));
        }
        assert!(part(5.0, 30.0) > part(5.0, 1.0));
    }

    /// A CUBIC flow of 4 s over 40 ms whose rate was the same in all windows.
    fn steady(rate: f64) -> Beginning {
        Beginning {
            cc: Cc::Cubic,
            age_s: 4.0,
            rtt_s: 0.06,
            least_rtt_s: 0.04,
            cwnd_packets: 0.06 * rate,
            largest_cwnd_packets: 0.08 * rate,
            w_max_packets: 0.08 * rate,
            in_slow_start: false,
            losses: 1,
            since_loss_s: Some(3.0),
            rate_last: rate,
            rate_before: rate,
            rate_trip: rate,
            rate_of_all: 0.95 * rate,
            rates: vec![rate; WINDOWS],
            held_s: 0.0,
        }
    }

    #[test]
    fn what_fills_its_path_goes_on_and_what_doubles_grows() {
        for rate in [200.0, 2000.0, 10_000.0] {
            for horizon_s in [1.0, 10.0] {
                let outlook = outlook(&steady(rate), horizon_s);
                assert!(outlook.is_sorted(), "{outlook:?}");
                assert!((outlook[2] - rate.ln()).abs() < 0.1, "{outlook:?}");
                assert!(outlook[4] - outlook[0] < 0.7, "{outlook:?}");
            }
        }
        let doubling = Beginning {
            age_s: 0.6,
            rtt_s: 0.1,
            least_rtt_s: 0.1,
            cwnd_packets: 320.0,
            largest_cwnd_packets: 320.0,
            w_max_packets: 0.0,
            in_slow_start: true,
            losses: 0,
            since_loss_s: None,
            rate_last: 1000.0,
            rate_before: 240.0,
            rate_trip: 3100.0,
            rate_of_all: 1000.0,
            rates: vec![100.0, 200.0, 400.0, 800.0, 1600.0, 3100.0],
            ..steady(1000.0)
        };
        let outlook = outlook(&doubling, 5.0);
        assert!(outlook[2] > 3000_f64.ln(), "{outlook:?}");
        assert!(outlook[4] - outlook[0] > 0.7, "{outlook:?}");
    }
}
