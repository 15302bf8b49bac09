//! Forecasts of a flow that has just begun, from what other flows did next on many paths.
//!
//! Seconds of data say little of what a flow will do: its window law has no loss curve yet, means hold slow start. What
//! they do say is learned from simulated flows over paths drawn at random. [`Beginning`] has the numbers,
//! all ratios but the horizon, age, round-trip time and rate. A small network, made by
//! `benches/cold_start.py train`, gives quantiles of the rate ahead over the present rate. Its part in a forecast fades
//! as the flow's own past grows ([`part`]).

mod beginning;
mod network;
mod siblings;

pub(crate) use beginning::{Beginning, REFERENCE_S, WINDOWS};
pub(crate) use network::outlook;
pub use siblings::{Sibling, Siblings};

/// From this age on, in seconds, the prior has no part.
pub(crate) const OVER_S: f64 = 100.0;
/// The age at which it has half a part, in seconds, where it and the flow's own past have done equally well: at a horizon
/// of 1 s, and the power by which this grows with the horizon.
const HALF_S: (f64, f64) = (5.0, 0.3);
/// How fast the part falls around that age.
const STEEPNESS: f64 = 3.0;

/// Odds are multiplied by (error of the flow's own past / error of the prior) to this power.
const SHARPNESS: f64 = 6.0;
/// Seconds after which such an error counts 1/e, how many are assumed of both at horizon 0, and in addition
/// for each second of horizon.
const ERROR_MEMORY_S: f64 = 4.0;
const EQUAL_ERRORS: (f64, f64) = (3.0, 1.0);
/// Smaller errors count as this, in ln.
const ERROR_FLOOR: f64 = 1e-3;
/// Of what errors at the next shorter horizon say, so much is assumed at a longer one.
const INHERITED: f64 = 1.0;

/// How far off the prior and the flow's own past were lately, at one horizon.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contest {
    /// Fading sum of ln(error of the flow's own past / error of the prior), and of the weights in it.
    ln_ratio: f64,
    weight: f64,
    /// The mean that is assumed.
    assumed: f64,
}

impl Contest {
    /// A forecast's truth is known, `passed_s` after the one before; all in logarithms.
    pub(crate) fn learn(&mut self, ln_prior: f64, ln_own: f64, ln_truth: f64, passed_s: f64) {
        let keep = (-passed_s / ERROR_MEMORY_S).exp();
        let error = |ln_value: f64| (ln_truth - ln_value).abs() + ERROR_FLOOR;
        self.ln_ratio = keep * self.ln_ratio + (error(ln_own) / error(ln_prior)).ln();
        self.weight = keep * self.weight + 1.0;
    }

    /// Expects what was seen at a shorter horizon, where truths are known earlier.
    pub(crate) fn expect_as(&mut self, shorter: &Self, shorter_s: f64) {
        self.assumed = INHERITED * shorter.mean(shorter_s);
    }

    fn mean(&self, horizon_s: f64) -> f64 {
        let assumed = EQUAL_ERRORS.0 + EQUAL_ERRORS.1 * horizon_s;
        (self.ln_ratio + assumed * self.assumed) / (self.weight + assumed)
    }

    /// ln of what odds are multiplied by.
    fn ln_odds(&self, horizon_s: f64) -> f64 {
        SHARPNESS * self.mean(horizon_s)
    }
}

/// The part of the prior in a forecast of a flow that is known for `known_s` seconds: 1 at first, 0 at [`OVER_S`].
pub(crate) fn part(known_s: f64, horizon_s: f64, contest: &Contest) -> f64 {
    let ln_odds = contest.ln_odds(horizon_s);
    let fall = |age_s: f64| {
        let half_s = HALF_S.0 * horizon_s.powf(HALF_S.1);
        1.0 / (1.0 + (STEEPNESS * (age_s / half_s).ln() - ln_odds).exp())
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
            let level = Contest::default();
            let parts = [0.0, 1.0, 5.0, 20.0, 100.0, 300.0];
            let parts = parts.map(|known_s| part(known_s, horizon_s, &level));
            assert!(parts.is_sorted_by(|a, b| a >= b), "{parts:?}");
            assert_eq!((parts[0], parts[4], parts[5]), (1.0, 0.0, 0.0));
        }
        let at = |horizon_s| part(5.0, horizon_s, &Contest::default());
        assert!(at(30.0) > at(1.0));
    }

    #[test]
    fn whoever_was_nearer_has_the_larger_part() {
        let after = |ln_prior: f64, ln_own: f64| {
            let mut contest = Contest::default();
            (0..20).for_each(|_| contest.learn(ln_prior, ln_own, 0.0, 1.0));
            part(20.0, 5.0, &contest)
        };
        let level = after(0.1, -0.1);
        assert!((level - part(20.0, 5.0, &Contest::default())).abs() < 1e-12);
        assert!(after(0.2, 0.1) < 0.3 * level);
        assert!(after(0.1, 0.2) > 2.0 * level);
        // what is known of a second is expected of ten
        let (mut short, mut long) = (Contest::default(), Contest::default());
        (0..10).for_each(|_| short.learn(0.1, 0.0, 0.0, 1.0));
        let before = part(10.0, 10.0, &long);
        long.expect_as(&short, 1.0);
        assert!(part(10.0, 10.0, &long) < 0.1 * before);
    }

    /// A CUBIC flow of 4 s over 40 ms whose rate was the same in all windows.
    fn steady(rate: f64) -> Beginning {
        Beginning {
            cc: Cc::Cubic,
            start_s: 0.0,
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
            siblings: None,
        }
    }

    #[test]
    fn what_fills_its_path_goes_on_and_what_doubles_grows() {
        let width = |outlook: [f64; 5]| outlook[4] - outlook[0];
        let mut widest = 0.0_f64;
        for rate in [200.0, 2000.0, 10_000.0] {
            for horizon_s in [1.0, 10.0] {
                let outlook = outlook(&steady(rate), horizon_s);
                assert!(outlook.is_sorted(), "{outlook:?}");
                assert!((outlook[2] - rate.ln()).abs() < 0.1, "{outlook:?}");
                widest = widest.max(width(outlook));
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
        assert!(width(outlook) > 1.5 * widest, "{outlook:?} {widest}");
    }
}
