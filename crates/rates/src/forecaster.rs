//! Samples in, distributions out.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::experts::{Experts, HARMONIC_SPANS, Mean, Said};
use crate::recent::Recent;
use crate::spread::{Distribution, Errors, KEPT};

/// Rates below this part of the path's mean count as none.
const FLOOR: f64 = 0.02;
/// What is expected is this at most, in times of the largest step so far.
const CEILING: f64 = 2.0;
/// Half-life of how much the rate varies, in seconds; what is assumed at first, and as how many seconds it counts.
const VARIES_HALF_LIFE_S: f64 = 8.0;
const VARIES_ASSUMED: f64 = 0.3;
const VARIES_ASSUMED_S: f64 = 4.0;
/// Errors are expected of this size, in logarithms, and in addition of half of how much the rate varies from step to step
/// and of how far the experts disagree.
const LEAST_SPREAD: f64 = 0.05;
const SHARE: f64 = 0.5;
/// A step is a part of the horizon, but not shorter or longer than these, in seconds.
const STEPS: f64 = 4.0;
const STEP_S: (f64, f64) = (0.05, 1.0);

/// A time is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum BadTime {
    /// A horizon is not greater than 0, or too long.
    #[error("got a horizon of {0} s; expected more than 0 and at most a day")]
    Horizon(f64),
    /// A sample took no time, or its bits are no amount.
    #[error(
        "got a sample of {seconds} s and {bits} bits; expected a time above 0 and an amount of 0 or more"
    )]
    Sample {
        /// How long it took.
        seconds: f64,
        /// What came.
        bits: f64,
    },
}

/// A forecast that waits for its truth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Pending {
    said: Said,
    point: f32,
    spread: f32,
    /// Seconds and bits since.
    seconds: f32,
    bits: f32,
}

/// How much one path carries over the next seconds, from samples of what it carried.
///
/// Time is that of the samples: pauses between them do not count. Memory is bounded.
///
/// ```
/// use pathcast_rates::RateForecaster;
///
/// let mut path = RateForecaster::new(4.0)?;
/// for second in 0..60 {
///     path.observe(1.0, if second % 2 == 0 { 4e6 } else { 6e6 })?;
/// }
/// let rate = path.forecast().unwrap();
/// assert!((rate.point_bps() / 5e6 - 1.0).abs() < 0.1);
/// assert!(rate.quantile_bps(0.1) < rate.point_bps());
/// # Ok::<(), pathcast_rates::BadTime>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateForecaster {
    horizon_s: f64,
    step_s: f64,
    /// Whether errors of other paths fade.
    fades: bool,
    /// Of the step that is not whole yet.
    seconds: f64,
    bits: f64,
    recent: Recent,
    experts: Experts,
    pending: VecDeque<Pending>,
    errors: Errors,
    varies: Mean,
    last: Option<f64>,
    /// Of all steps.
    total_s: f64,
    total_bits: f64,
    largest_bps: f64,
    /// The newest point and its spread, in logarithms.
    now: Option<(f64, f64)>,
}

impl RateForecaster {
    /// Forecasts of the mean rate over so many seconds.
    ///
    /// # Errors
    /// [`BadTime::Horizon`].
    pub fn new(horizon_s: f64) -> Result<Self, BadTime> {
        if !(horizon_s > 0.0 && horizon_s <= 86_400.0) {
            return Err(BadTime::Horizon(horizon_s));
        }
        let step_s = (horizon_s / STEPS).clamp(STEP_S.0, STEP_S.1);
        Ok(Self::with_steps(horizon_s, step_s, false))
    }

    /// One of a valid horizon, with steps that are a quarter of it, however long: its memory is the same for each horizon. Its
    /// bands become those of the path alone.
    pub(crate) fn compact(horizon_s: f64) -> Self {
        Self::with_steps(horizon_s, horizon_s / STEPS, true)
    }

    fn with_steps(horizon_s: f64, step_s: f64, fades: bool) -> Self {
        Self {
            horizon_s,
            step_s,
            fades,
            seconds: 0.0,
            bits: 0.0,
            recent: Recent::new(horizon_s.max(step_s) * HARMONIC_SPANS as f64),
            experts: Experts::new(),
            pending: VecDeque::new(),
            errors: Errors::default(),
            varies: Mean::assumed(VARIES_HALF_LIFE_S, VARIES_ASSUMED, VARIES_ASSUMED_S),
            last: None,
            total_s: 0.0,
            total_bits: 0.0,
            largest_bps: 0.0,
            now: None,
        }
    }

    /// The horizon in seconds.
    pub const fn horizon_s(&self) -> f64 {
        self.horizon_s
    }

    /// How long it has been observed, in seconds.
    pub const fn observed_s(&self) -> f64 {
        self.total_s
    }

    /// `bits` came in the next `seconds` of the path. Short samples become steps of a quarter of the horizon, of 1 s at
    /// most; a long sample is one step.
    ///
    /// # Errors
    /// [`BadTime::Sample`].
    pub fn observe(&mut self, seconds: f64, bits: f64) -> Result<(), BadTime> {
        let valid = seconds > 0.0 && seconds.is_finite() && bits >= 0.0 && bits.is_finite();
        if !valid {
            return Err(BadTime::Sample { seconds, bits });
        }
        self.seconds += seconds;
        self.bits += bits;
        // a hair less counts: sums of short samples are not exact
        if self.seconds >= self.step_s * (1.0 - 1e-9) {
            let (seconds, bits) = (
                std::mem::take(&mut self.seconds),
                std::mem::take(&mut self.bits),
            );
            self.step(seconds, bits);
        }
        Ok(())
    }

    fn floor(&self) -> f64 {
        (FLOOR * self.total_bits / self.total_s).max(1.0)
    }

    fn step(&mut self, seconds: f64, bits: f64) {
        let rate = bits / seconds;
        self.total_s += seconds;
        self.total_bits += bits;
        self.largest_bps = self.largest_bps.max(rate);
        let floor = self.floor();
        self.learn(seconds, bits, floor);
        let level = libm::log(rate.max(floor));
        if let Some(last) = self.last.replace(level) {
            self.varies.push(seconds, (level - last).abs());
        }
        self.recent.push(seconds, bits);
        self.experts.push(seconds, rate);
        let said = self
            .experts
            .say(&self.recent, self.step_s, self.horizon_s, floor);
        let (point, disagree) = self.experts.pool(&said);
        let spread = LEAST_SPREAD + SHARE * (self.varies.get() + disagree);
        self.now = Some((point, spread));
        #[allow(clippy::cast_possible_truncation)] // logarithms to seven digits
        self.pending.push_back(Pending {
            said,
            point: point as f32,
            spread: spread as f32,
            seconds: 0.0,
            bits: 0.0,
        });
    }

    /// Bytes of memory beyond its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.recent.heap_bytes()
            + self.pending.capacity() * size_of::<Pending>()
            + self.errors.heap_bytes()
    }

    /// What was forecast is not compared with what comes: the path paused.
    pub(crate) fn pause(&mut self) {
        self.pending.clear();
    }

    /// A step was observed: some forecasts have come true.
    fn learn(&mut self, seconds: f64, bits: f64, floor: f64) {
        for one in &mut self.pending {
            // a long step may reach past the horizon
            let part = ((self.horizon_s - f64::from(one.seconds)) / seconds).clamp(0.0, 1.0);
            #[allow(clippy::cast_possible_truncation)] // seven digits
            {
                one.seconds += (part * seconds) as f32;
                one.bits += (part * bits) as f32;
            }
        }
        while let Some(one) = self.pending.front()
            && f64::from(one.seconds) >= self.horizon_s * (1.0 - 1e-6)
            && let Some(one) = self.pending.pop_front()
        {
            let came = f64::from(one.bits) / f64::from(one.seconds);
            let truth = libm::log(came.max(floor));
            self.experts
                .learn(&one.said, truth, seconds.min(self.horizon_s));
            let error = (truth - f64::from(one.point)) / f64::from(one.spread);
            self.errors.push(error, KEPT);
        }
    }

    /// The distribution of the mean rate over the horizon from now on; `None` before the first step.
    pub fn forecast(&self) -> Option<Rate> {
        let (point, spread) = self.now?;
        Some(Rate {
            point,
            spread,
            none_below: 1.1 * self.floor(),
            ceiling: CEILING * self.largest_bps,
            errors: self
                .errors
                .distribution(self.step_s, self.horizon_s, self.fades),
        })
    }
}

/// The mean rate of a path over the next seconds, as a distribution.
pub struct Rate {
    point: f64,
    spread: f64,
    none_below: f64,
    ceiling: f64,
    errors: Distribution,
}

impl Rate {
    /// The one number to use, in bits a second.
    pub fn point_bps(&self) -> f64 {
        libm::exp(self.point)
    }

    /// A quantile in bits a second, at a level from 0 to 1.
    pub fn quantile_bps(&self, level: f64) -> f64 {
        let rate = libm::exp(self.point + self.spread * self.errors.quantile(level));
        if rate <= self.none_below {
            return 0.0;
        }
        rate.min(self.ceiling)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A rate that wanders: a random walk in logarithms, from a generator of its own.
    fn wanders(count: usize) -> Vec<f64> {
        let (mut state, mut level) = (7_u64, 0.0_f64);
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as f64 / (1_u64 << 31) as f64 - 0.5
        };
        (0..count)
            .map(|_| {
                level = 0.98 * level + next();
                5e6 * level.exp()
            })
            .collect()
    }

    fn coverage(rates: &[f64], level: f64) -> f64 {
        let mut path = RateForecaster::new(4.0).unwrap();
        let mut held = Vec::new();
        for (second, rate) in rates.iter().enumerate() {
            path.observe(1.0, *rate).unwrap();
            let Some(next) = rates.get(second + 1..second + 5) else {
                break;
            };
            let truth = next.iter().sum::<f64>() / 4.0;
            held.push(truth >= path.forecast().unwrap().quantile_bps(level));
        }
        held.iter().filter(|held| **held).count() as f64 / held.len() as f64
    }

    #[test]
    fn quantiles_hold_what_they_say() {
        let rates = wanders(3000);
        for (level, at_least) in [(0.1, 0.9), (0.5, 0.5), (0.9, 0.1)] {
            let held = coverage(&rates, level);
            assert!((held - at_least).abs() < 0.05, "{level}: {held}");
        }
    }

    #[test]
    fn a_rate_that_stops_is_none_as_often_as_it_was() {
        // one second in three carries nothing for long
        let rates: Vec<f64> = (0..600)
            .map(|second| f64::from(u8::from(second % 60 < 40)) * 8e6)
            .collect();
        let mut path = RateForecaster::new(4.0).unwrap();
        rates
            .iter()
            .for_each(|rate| path.observe(1.0, *rate).unwrap());
        // it has stopped for 20 s
        let rate = path.forecast().unwrap();
        assert_eq!(rate.quantile_bps(0.1), 0.0);
        assert!(rate.quantile_bps(0.99) <= 16e6);
    }

    #[test]
    fn how_a_path_is_sampled_does_not_matter() {
        let rates = wanders(300);
        let (mut coarse, mut fine) = (
            RateForecaster::new(4.0).unwrap(),
            RateForecaster::new(4.0).unwrap(),
        );
        for rate in rates {
            coarse.observe(1.0, rate).unwrap();
            (0..10).for_each(|_| fine.observe(0.1, rate / 10.0).unwrap());
        }
        let (a, b) = (coarse.forecast().unwrap(), fine.forecast().unwrap());
        assert!((a.point_bps() / b.point_bps() - 1.0).abs() < 1e-6);
        assert!((a.quantile_bps(0.1) / b.quantile_bps(0.1) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_no_sample_is_refused_and_changes_nothing() {
        let mut path = RateForecaster::new(1.0).unwrap();
        assert!(path.forecast().is_none());
        for (seconds, bits) in [
            (0.0, 1.0),
            (-1.0, 1.0),
            (f64::NAN, 1.0),
            (1.0, f64::NAN),
            (1.0, -1.0),
        ] {
            assert!(path.observe(seconds, bits).is_err());
        }
        assert!(path.forecast().is_none());
        for horizon in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(RateForecaster::new(horizon).is_err());
        }
    }

    proptest! {
        #[test]
        fn forecasts_are_finite_and_ascend(
            samples in prop::collection::vec((1e-4..20.0, 0.0..1e9), 1..80),
            horizon in 0.1..30.0,
        ) {
            let mut path = RateForecaster::new(horizon).unwrap();
            for (seconds, bits) in samples {
                path.observe(seconds, bits).unwrap();
            }
            if let Some(rate) = path.forecast() {
                let found: Vec<f64> = (0..=20).map(|part| rate.quantile_bps(f64::from(part) / 20.0)).collect();
                prop_assert!(found.is_sorted() && found.iter().all(|one| one.is_finite()), "{:?}", found);
            }
            prop_assert!(path.pending.len() <= 1 + (horizon / path.step_s) as usize + 1);
        }
    }
}
