//! The distribution of a client's future rates. Two calls make it up: [`Rates::update`] takes a rate that was measured,
//! and [`Rates::forecast`] gives the distribution of the mean rate over the next seconds, by the crate rates.

use pathcast_rates::{BadTime, Horizons};
use serde::{Deserialize, Serialize};

use crate::distribution::{LEVELS, RateDistribution};

/// Rates within this many seconds are averaged: those of several flows of one prefix.
const STEP_S: f64 = 0.5;
/// The first rate counts as so many seconds long.
const FIRST_S: f64 = 1.0;
/// A longer time without rates is a pause. Nothing is learned from it, and the rate after it counts as long as this.
const PAUSE_S: f64 = 10.0;
/// Beyond this age or horizon, in seconds, a distribution is wider by the square root of the ratio, up to the factor.
const REACH_S: f64 = 64.0;
const WIDEST: f64 = 3.0;
/// An end of the band moves outward by this, in logarithms, when a truth was beyond it, times the level.
const MOVE: f32 = 0.1;
const MOVED_MAX: f32 = 1.5;
/// The level of a band's lower end.
const LEVEL: f32 = 0.05;
/// Rates below count as none, bit/s.
const FLOOR_BPS: f64 = 1000.0;
/// A clock that was set back by more than this makes all that was measured before it useless, seconds.
const BACK_S: f64 = 60.0;

/// Rates of one client prefix, and their forecast.
///
/// ```
/// use pathcast_decide::rate::Rates;
/// let mut rates = Rates::default();
/// for second in 0..60 {
///     rates.update(f64::from(second), 10e6 + 1e5 * f64::from(second % 5), None);
/// }
/// let found = rates.forecast(60.0, 4.0).unwrap();
/// let [low, middle, high] = [0.05, 0.5, 0.95].map(|level| found.quantile_bps(level));
/// assert!(low < middle && middle < high);
/// assert!((9e6..11.5e6).contains(&middle));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    horizons: Horizons,
    newest_s: Option<f64>,
    /// The rates since the last step.
    open: Option<Open>,
    steps: u32,
    /// By what the distance of the lower and the upper end from the median is multiplied, in logarithms.
    moved: [f32; 2],
}

/// Rates of a step that is not over.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Open {
    begin_s: f64,
    /// Their sum and number.
    sum: f64,
    count: u32,
    /// Over how long they were measured, in sum; infinite if one does not say.
    measured_s: f64,
}

impl Rates {
    /// Takes a rate that was measured in the last `duration_s` seconds, or since the last one; an earlier time than the
    /// newest counts as the newest. What passed before it was measured is a pause, of which it says nothing.
    pub fn update(&mut self, now_s: f64, rate_bps: f64, duration_s: Option<f64>) {
        if self
            .newest_s
            .is_some_and(|newest_s| now_s < newest_s - BACK_S)
        {
            *self = Self::default();
        }
        let Some(newest_s) = self.newest_s else {
            self.newest_s = Some(now_s);
            let seconds = duration_s.unwrap_or(FIRST_S);
            self.step(seconds, seconds * rate_bps);
            return;
        };
        let now_s = now_s.max(newest_s);
        let mut open = self.open.take().unwrap_or(Open {
            begin_s: newest_s,
            sum: 0.0,
            count: 0,
            measured_s: 0.0,
        });
        open.sum += rate_bps;
        open.count = open.count.saturating_add(1);
        open.measured_s += duration_s.unwrap_or(f64::INFINITY);
        let passed_s = now_s - open.begin_s;
        if passed_s < STEP_S {
            self.open = Some(open);
            return;
        }
        self.newest_s = Some(now_s);
        if passed_s > PAUSE_S {
            self.horizons.pause();
        }
        let seconds = passed_s.min(open.measured_s).min(PAUSE_S);
        self.step(seconds, seconds * open.sum / f64::from(open.count));
    }

    fn step(&mut self, seconds: f64, bits: f64) {
        // samples are within their range, and times ascend
        if self.horizons.observe(seconds, bits).is_ok() {
            self.steps = self.steps.saturating_add(1);
        }
    }

    /// Takes a sample of a series in which each follows the one before: `bits` came in `seconds`. Its time begins at 0.
    ///
    /// # Errors
    /// [`BadTime::Sample`]; nothing was taken then.
    pub fn observe(&mut self, seconds: f64, bits: f64) -> Result<(), BadTime> {
        self.horizons.observe(seconds, bits)?;
        self.steps = self.steps.saturating_add(1);
        self.newest_s = Some(self.newest_s.unwrap_or(0.0) + seconds);
        Ok(())
    }

    /// When the newest rate was measured, to a step.
    pub fn newest_s(&self) -> Option<f64> {
        self.newest_s
    }

    /// Steps that were taken.
    pub fn len(&self) -> usize {
        self.steps as usize
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.steps == 0
    }

    /// Bytes of memory beyond its own size.
    pub fn heap_bytes(&self) -> usize {
        self.horizons.bytes() - size_of::<Horizons>()
    }

    /// The distribution of the mean rate over the next `horizon_s` seconds; none if nothing is known.
    pub fn forecast(&self, now_s: f64, horizon_s: f64) -> Option<RateDistribution> {
        // a forecast of long ago is one of a longer horizon
        let reach_s = horizon_s.max(now_s - self.newest_s?);
        let found = self.horizons.forecast(reach_s)?;
        let mut rates = LEVELS.map(|level| found.quantile_bps(level));
        let wider = (reach_s / REACH_S).sqrt().clamp(1.0, WIDEST);
        if wider > 1.0 || self.moved != [0.0; 2] {
            let middle = found.quantile_bps(0.5).max(FLOOR_BPS);
            for (rate, level) in rates.iter_mut().zip(LEVELS) {
                let moved = f64::from(self.moved[usize::from(level > 0.5)]).exp();
                let distance = (rate.max(FLOOR_BPS) / middle).ln() * wider * moved;
                let moved = middle * distance.exp();
                *rate = if moved > 1.01 * FLOOR_BPS { moved } else { 0.0 };
            }
        }
        Some(RateDistribution::new(rates))
    }

    /// A forecast whose 5 and 95 % quantiles were `low` and `high` came true with `truth`. An end moves outward by 0.95
    /// steps when the truth was beyond it, and inward by 0.05 when it was not: it rests where one truth in twenty is beyond
    /// (adaptive conformal inference, Gibbs and Candes 2021).
    pub fn score(&mut self, low: f64, high: f64, truth: f64) {
        for (moved, beyond) in self.moved.iter_mut().zip([truth < low, truth > high]) {
            let by = f32::from(u8::from(beyond)) - LEVEL;
            *moved = (*moved + MOVE * by).clamp(-MOVED_MAX, MOVED_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number from 0 to 1 (SplitMix64's finish), independent of that before.
    fn noise(i: u32) -> f64 {
        let mut draw = (u64::from(i) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        draw = (draw ^ (draw >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        draw = (draw ^ (draw >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((draw ^ (draw >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn band(rates: &Rates, now_s: f64, horizon_s: f64) -> [f64; 2] {
        let found = rates.forecast(now_s, horizon_s).unwrap();
        [0.05, 0.95].map(|level| found.quantile_bps(level))
    }

    /// Part of the mean rates over `horizon_s` within 5 to 95 %.
    fn coverage(horizon_s: f64, rate_bps: impl Fn(u32) -> f64) -> f64 {
        let mut rates = Rates::default();
        let (mut held, mut all) = (0.0, 0.0);
        let ahead = (horizon_s / STEP_S) as u32;
        for i in 0..4000 {
            rates.update(f64::from(i) * STEP_S, rate_bps(i), None);
            if i > 400 {
                let [low, high] = band(&rates, f64::from(i) * STEP_S, horizon_s);
                let truth = (1..=ahead).map(|k| rate_bps(i + k)).sum::<f64>() / f64::from(ahead);
                held += f64::from(u8::from((low..=high).contains(&truth)));
                all += 1.0;
            }
        }
        held / all
    }

    #[test]
    fn bands_hold_about_nine_times_in_ten() {
        for horizon_s in [1.0, 4.0, 16.0] {
            let held = coverage(horizon_s, |i| 1e7 * (0.5 + noise(i)));
            assert!((0.85..0.995).contains(&held), "{horizon_s} s: {held}");
        }
        // a rate that wanders slowly
        let wanders = |i: u32| 5e6 * (1.5 + (f64::from(i) / 40.0).sin() + 0.3 * noise(i));
        for horizon_s in [1.0, 4.0] {
            let held = coverage(horizon_s, wanders);
            assert!((0.85..0.995).contains(&held), "{horizon_s} s: {held}");
        }
    }

    #[test]
    fn a_rate_that_stays_the_same_is_in_its_band() {
        let held = coverage(4.0, |_| 12_345_678.9);
        assert!(held > 0.999, "{held}");
    }

    #[test]
    fn a_rate_that_stops_again_and_again_is_forecast_as_one_that_may_be_zero() {
        let mut rates = Rates::default();
        for i in 0..400_u32 {
            let rate = if (i / 8).is_multiple_of(2) { 8e6 } else { 0.0 };
            rates.update(f64::from(i) * STEP_S, rate, None);
        }
        assert!(band(&rates, 200.0, 1.0)[0] < 1e5);
    }

    #[test]
    fn a_forecast_of_long_ago_is_wider() {
        let mut rates = Rates::default();
        for i in 0..400_u32 {
            rates.update(f64::from(i) * STEP_S, 1e7 * (0.8 + 0.4 * noise(i)), None);
        }
        let width = |now_s: f64| {
            let [low, high] = band(&rates, now_s, 1.0);
            high / low
        };
        assert!(width(264.0) < width(264.0 + 500.0));
    }

    #[test]
    fn a_clock_that_was_set_back_does_no_harm() {
        let mut rates = Rates::default();
        rates.update(1e9, 1e6, None);
        rates.update(1e9 - 1.0, 2e6, None);
        assert_eq!(rates.newest_s(), Some(1e9));
        rates.update(5e8, 2e6, None);
        assert_eq!(rates.newest_s(), Some(5e8));
        let median = rates.forecast(5e8, 1.0).unwrap().quantile_bps(0.5);
        assert!((1.9e6..2.1e6).contains(&median));
    }

    #[test]
    fn a_rate_counts_as_long_as_it_was_measured() {
        // a player fetches for two seconds, slow at first, and pauses for two
        let median = |says: bool| {
            let mut rates = Rates::default();
            for fetch in 0..100_u32 {
                for (part, rate_bps) in [1e6, 4e6, 4e6, 4e6].into_iter().enumerate() {
                    let now_s = 4.0 * f64::from(fetch) + 0.5 * (part + 1) as f64;
                    rates.update(now_s, rate_bps, says.then_some(0.5));
                }
            }
            rates.forecast(398.0, 4.0).unwrap().quantile_bps(0.5)
        };
        // 3.25 Mbit/s are the mean of a fetch
        assert!((2.7e6..3.6e6).contains(&median(true)), "{}", median(true));
        assert!(median(false) < 2.3e6, "{}", median(false));
    }

    #[test]
    fn rates_of_parallel_flows_count_once() {
        let (mut alone, mut two) = (Rates::default(), Rates::default());
        for i in 0..100_u32 {
            let now_s = 0.5 * f64::from(i);
            alone.update(now_s, 2e6 * (1.0 + noise(i)), Some(0.5));
            for shift_s in [0.0, 0.01] {
                two.update(now_s + shift_s, 2e6 * (1.0 + noise(i)), Some(0.5));
            }
        }
        assert!((two.horizons.observed_s() / alone.horizons.observed_s() - 1.0).abs() < 0.02);
    }

    #[test]
    fn a_pause_teaches_nothing() {
        let mut rates = Rates::default();
        for i in 0..200_u32 {
            rates.update(f64::from(i) * STEP_S, 1e7 * (0.9 + 0.2 * noise(i)), None);
        }
        let [low, high] = band(&rates, 100.0, 4.0);
        // an hour later the rate is a tenth, and stays so
        for i in 0..60_u32 {
            rates.update(
                3700.0 + f64::from(i) * STEP_S,
                1e6 * (0.9 + 0.2 * noise(i)),
                None,
            );
        }
        let [low_then, high_then] = band(&rates, 3730.0, 4.0);
        assert!(high_then / low_then < 2.0 * high / low);
        assert!((8e5..1.3e6).contains(&(low_then * high_then).sqrt()));
    }

    #[test]
    fn a_band_that_does_not_hold_is_widened() {
        let mut rates = Rates::default();
        rates.update(0.0, 1e6, None);
        let before = band(&rates, 0.0, 1.0);
        for _ in 0..5 {
            rates.score(before[0], before[1], 5e4);
        }
        let after = band(&rates, 0.0, 1.0);
        assert!(after[0] < before[0] && after[1] < before[1]);
    }
}
