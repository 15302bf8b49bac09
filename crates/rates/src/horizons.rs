//! Forecasts of one path over any horizon, in some kilobytes: for tables of many paths.

use serde::{Deserialize, Serialize};

use crate::forecaster::{BadTime, Rate, RateForecaster};

/// Horizons that are forecast, in seconds; others lie between two of them.
pub const HORIZONS_S: [f64; 4] = [1.0, 4.0, 16.0, 64.0];

/// Between two horizons, less counts as this: bits a second.
const LEAST_BPS: f64 = 1000.0;

/// The mean rate of one path over any horizon.
///
/// A [`RateForecaster`] runs for each of four horizons. Steps are a quarter of a horizon, so all four have the same memory:
/// 5 kB together at most. Quantiles of a horizon between two are on a line between theirs, in logarithms of both.
///
/// ```
/// use pathcast_rates::Horizons;
///
/// let mut path = Horizons::default();
/// for second in 0..60 {
///     path.observe(1.0, if second % 2 == 0 { 4e6 } else { 6e6 })?;
/// }
/// let rate = path.forecast(5.0).unwrap();
/// assert!((rate.point_bps() / 5e6 - 1.0).abs() < 0.1);
/// assert!(rate.quantile_bps(0.1) < rate.point_bps());
/// # Ok::<(), pathcast_rates::BadTime>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Horizons {
    each: [RateForecaster; HORIZONS_S.len()],
}

impl Default for Horizons {
    fn default() -> Self {
        Self {
            each: HORIZONS_S.map(RateForecaster::compact),
        }
    }
}

impl Horizons {
    /// `bits` came in the next `seconds` of the path.
    ///
    /// # Errors
    /// [`BadTime::Sample`]; nothing was taken then.
    pub fn observe(&mut self, seconds: f64, bits: f64) -> Result<(), BadTime> {
        // each of them refuses the same samples
        self.each
            .iter_mut()
            .try_for_each(|one| one.observe(seconds, bits))
    }

    /// The path paused: forecasts that wait for their truth are dropped.
    pub fn pause(&mut self) {
        self.each.iter_mut().for_each(RateForecaster::pause);
    }

    /// How long it has been observed, in seconds.
    pub fn observed_s(&self) -> f64 {
        self.each[0].observed_s()
    }

    /// The distribution of the mean rate over the next `horizon_s` seconds; horizons beyond the outermost are taken as those.
    /// `None` before the first step.
    pub fn forecast(&self, horizon_s: f64) -> Option<HorizonRate> {
        let above = HORIZONS_S.partition_point(|one| *one < horizon_s);
        let at = |place: usize| self.each.get(place)?.forecast();
        // the first step of a longer horizon may not be whole yet
        let below = (0..above).rev().find_map(|place| Some((place, at(place)?)));
        let high = at(above);
        let Some((place, low)) = below else {
            let low = high.or_else(|| at(0))?;
            return Some(HorizonRate { low, high: None });
        };
        let high = high.filter(|_| place + 1 == above).map(|rate| {
            let (from_s, to_s) = (HORIZONS_S[place], HORIZONS_S[above]);
            (
                rate,
                libm::log(horizon_s / from_s) / libm::log(to_s / from_s),
            )
        });
        Some(HorizonRate { low, high })
    }

    /// Bytes of memory that it has.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self
                .each
                .iter()
                .map(RateForecaster::heap_bytes)
                .sum::<usize>()
    }
}

/// The mean rate of a path over a horizon, as a distribution.
pub struct HorizonRate {
    low: Rate,
    /// That of the next longer horizon, and its part.
    high: Option<(Rate, f64)>,
}

impl HorizonRate {
    fn between(&self, value: impl Fn(&Rate) -> f64) -> f64 {
        let low = value(&self.low);
        let Some((high, part)) = &self.high else {
            return low;
        };
        let ln = |rate: f64| libm::log(rate.max(LEAST_BPS));
        let rate = libm::exp((1.0 - part) * ln(low) + part * ln(value(high)));
        if rate > 1.01 * LEAST_BPS { rate } else { 0.0 }
    }

    /// The one number to use, in bits a second.
    pub fn point_bps(&self) -> f64 {
        self.between(Rate::point_bps)
    }

    /// A quantile in bits a second, at a level from 0 to 1.
    pub fn quantile_bps(&self, level: f64) -> f64 {
        self.between(|rate| rate.quantile_bps(level))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_horizon_of_the_grid_is_that_of_its_forecaster_without_the_errors_of_other_paths() {
        let (mut all, mut one) = (Horizons::default(), RateForecaster::new(4.0).unwrap());
        for second in 0..300 {
            let bits = 1e6 * f64::from(5 + second * 7919 % 13);
            all.observe(1.0, bits).unwrap();
            one.observe(1.0, bits).unwrap();
        }
        let (all, one) = (all.forecast(4.0).unwrap(), one.forecast().unwrap());
        assert_eq!(all.point_bps(), one.point_bps());
        // the mean of four is off by less than those of other paths: its own errors make a narrower band
        let band = |quantile: &dyn Fn(f64) -> f64| [0.05, 0.95].map(quantile);
        let (own, other) = (
            band(&|level| all.quantile_bps(level)),
            band(&|level| one.quantile_bps(level)),
        );
        assert!(other[0] < own[0] && own[1] < other[1], "{own:?} {other:?}");
        assert!(own[1] / own[0] > 1.02, "{own:?}");
    }

    #[test]
    fn the_first_step_is_enough_for_all_horizons() {
        let mut path = Horizons::default();
        assert!(path.forecast(4.0).is_none());
        path.observe(1.0, 3e6).unwrap();
        for horizon_s in [0.1, 1.0, 4.0, 5.0, 1e4] {
            let rate = path.forecast(horizon_s).unwrap();
            assert!((rate.point_bps() / 3e6 - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut path = Horizons::default();
        for number in 0..20_000 {
            path.observe(0.25, 1e6 * f64::from(1 + number % 7)).unwrap();
        }
        assert!(path.bytes() <= 5 << 10, "{}", path.bytes());
    }

    proptest! {
        #[test]
        fn quantiles_are_finite_and_ascend(
            samples in prop::collection::vec((1e-3..20.0, 0.0..1e9), 1..80),
            horizon in 0.1..300.0,
        ) {
            let mut path = Horizons::default();
            for (seconds, bits) in samples {
                path.observe(seconds, bits).unwrap();
            }
            if let Some(rate) = path.forecast(horizon) {
                let found: Vec<f64> = (0..=20).map(|part| rate.quantile_bps(f64::from(part) / 20.0)).collect();
                prop_assert!(found.iter().all(|one| one.is_finite()), "{:?}", found);
                prop_assert!(found.is_sorted(), "{:?}", found);
            }
        }
    }
}
