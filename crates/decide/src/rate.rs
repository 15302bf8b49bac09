//! The distribution of a client's future rates. Two calls make it up: [`Rates::update`] takes a rate that was measured,
//! and [`Rates::quantiles`] gives quantiles of the mean rate over the next seconds.
//!
//! Three forecasts run beside each other: the last rate, and two fading means. For each horizon, the one that was off
//! least is taken. Its band is made of its own past errors at that horizon (split conformal prediction), and its ends
//! move with how often they held (adaptive conformal inference, Gibbs and Candes 2021).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Rates within this many seconds make up one step.
const STEP_S: f64 = 0.5;
/// Most steps kept.
const STEPS: usize = 48;
/// Horizons at which errors are known, seconds.
const HORIZONS_S: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
/// Errors kept for each horizon.
const ERRORS: usize = 32;
/// An error is stored in this unit of its logarithm.
const UNIT: f64 = 0.001;
/// Rates below count as none, bit/s.
const FLOOR_BPS: f64 = 1000.0;
/// Time constants of the fading means, seconds.
const FADING_S: [f64; 2] = [3.0, 20.0];
/// How many errors the assumed ones count as at first, and after how many known ones that is halved.
const ASSUMED_WEIGHT: f64 = 4.0;
const ASSUMED_HALF: f64 = 6.0;
/// Spread of the assumed errors' logarithm at one second; it grows with the horizon's square root of the square root.
const ASSUMED_SPREAD: f64 = 0.3;
/// The assumed errors: normal quantiles of equal chance.
const ASSUMED: [f64; 5] = [-1.28, -0.52, 0.0, 0.52, 1.28];
/// Of the weights by which forecasts' errors fade.
const KEEP: f32 = 0.95;
/// An end of the band moves outward by this, in logarithms, when a truth was beyond it, times the level.
const MOVE: f32 = 0.1;
const MOVED_MAX: f32 = 1.5;
/// The level of a band's lower end.
const LEVEL: f64 = 0.05;
/// A clock that was set back by more than this makes all that was measured before it useless, seconds.
const BACK_S: f64 = 60.0;

/// The rate of one step, and what was forecast at its end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Step {
    end_s: f64,
    rate_bps: f32,
    /// The fading means; the third forecast is the rate itself.
    fading_bps: [f32; 2],
}

impl Step {
    fn points(&self) -> [f64; 3] {
        [self.rate_bps, self.fading_bps[0], self.fading_bps[1]].map(f64::from)
    }
}

/// The errors at one horizon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Errors {
    /// Logarithms of truth over forecast in [`UNIT`]s.
    known: VecDeque<i16>,
    /// When the newest was found; they are half a horizon apart at least.
    at_s: f64,
    /// How much each forecast was off, fading.
    off: [f32; 3],
    /// By what the distance of the lower and the upper end from the median is multiplied, in logarithms.
    moved: [f32; 2],
}

impl Default for Errors {
    fn default() -> Self {
        Self {
            known: VecDeque::new(),
            at_s: f64::NEG_INFINITY,
            off: [0.0; 3],
            moved: [0.0; 2],
        }
    }
}

impl Errors {
    /// The forecast that was off least.
    fn best(&self) -> usize {
        let least = (0..3).min_by(|&a, &b| self.off[a].total_cmp(&self.off[b]));
        least.unwrap_or(0)
    }
}

/// Rates of one client prefix, and their forecast.
///
/// ```
/// use pathcast_decide::rate::Rates;
/// let mut rates = Rates::default();
/// for second in 0..60 {
///     rates.update(f64::from(second), 10e6 + 1e5 * f64::from(second % 5));
/// }
/// let found = rates.quantiles(60.0, 4.0, &[0.05, 0.5, 0.95]).unwrap();
/// assert!(found[0] < found[1] && found[1] < found[2]);
/// assert!((9e6..11.5e6).contains(&found[1]));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    steps: VecDeque<Step>,
    /// Beginning, sum and number of the rates since the last step.
    open: Option<(f64, f64, u32)>,
    errors: [Errors; HORIZONS_S.len()],
}

impl Rates {
    /// Takes a rate that was measured; an earlier time than the newest counts as the newest.
    pub fn update(&mut self, now_s: f64, rate_bps: f64) {
        let newest_s = self.newest_s().unwrap_or(now_s);
        if now_s < newest_s - BACK_S {
            self.steps.clear();
            self.open = None;
        }
        let now_s = match self.newest_s() {
            Some(newest_s) => now_s.max(newest_s),
            None => return self.close(now_s, rate_bps),
        };
        let (begin_s, sum, count) = self.open.unwrap_or((newest_s, 0.0, 0));
        if now_s - begin_s >= STEP_S {
            self.open = None;
            self.close(now_s, (sum + rate_bps) / f64::from(count + 1));
        } else {
            self.open = Some((begin_s, sum + rate_bps, count.saturating_add(1)));
        }
    }

    /// When the newest rate was measured, to a step.
    pub fn newest_s(&self) -> Option<f64> {
        self.steps.back().map(|step| step.end_s)
    }

    /// Steps that the forecast rests on.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    fn close(&mut self, end_s: f64, rate_bps: f64) {
        #[allow(clippy::cast_possible_truncation)] // seven digits are more than a rate has
        let rate = rate_bps as f32;
        let fading_bps = match self.steps.back() {
            None => [rate; 2],
            Some(last) => std::array::from_fn(|which| {
                #[allow(clippy::cast_possible_truncation)]
                let keep = (-(end_s - last.end_s) / FADING_S[which]).exp() as f32;
                keep * last.fading_bps[which] + (1.0 - keep) * rate
            }),
        };
        if self.steps.len() == STEPS {
            self.steps.pop_front();
        }
        self.steps.push_back(Step {
            end_s,
            rate_bps: rate,
            fading_bps,
        });
        self.learn(end_s);
    }

    /// Compares the forecasts of before with what came.
    fn learn(&mut self, now_s: f64) {
        // seconds, and bits in them, from each step to now; those before a pause are not compared
        let (mut seconds, mut bits) = (0.0, 0.0);
        let mut horizon = 0;
        for pair in (1..self.steps.len()).rev() {
            let (before, after) = (&self.steps[pair - 1], &self.steps[pair]);
            let gap_s = after.end_s - before.end_s;
            seconds += gap_s;
            bits += gap_s * f64::from(after.rate_bps);
            while horizon < HORIZONS_S.len() && seconds >= 0.95 * HORIZONS_S[horizon] {
                let longest = 1.6 * HORIZONS_S[horizon] + STEP_S;
                if seconds <= longest {
                    let truth = (bits / seconds).max(FLOOR_BPS);
                    let points = before.points();
                    self.errors[horizon].learn(now_s, HORIZONS_S[horizon], points, truth);
                }
                horizon += 1;
            }
            if horizon == HORIZONS_S.len() {
                break;
            }
        }
    }

    /// Quantiles of the mean rate over the next `horizon_s` seconds, at ascending `levels`; none if nothing is known.
    pub fn quantiles<const N: usize>(
        &self,
        now_s: f64,
        horizon_s: f64,
        levels: &[f64; N],
    ) -> Option<[f64; N]> {
        let last = self.steps.back()?;
        // a forecast of long ago is one of a longer horizon
        let reach_s = horizon_s.max(now_s - last.end_s).max(HORIZONS_S[0]);
        let errors = &self.errors[nearest(reach_s)];
        let point = last.points()[errors.best()].max(FLOOR_BPS);
        let beyond = (reach_s / HORIZONS_S[HORIZONS_S.len() - 1])
            .sqrt()
            .clamp(1.0, 3.0);
        let mut ends = errors.cut(reach_s, levels);
        let middle = errors.cut(reach_s, &[0.5])[0];
        for (end, level) in ends.iter_mut().zip(levels) {
            *end = errors.moved(middle, middle + (*end - middle) * beyond) + resolution(*level);
        }
        Some(ends.map(|error| {
            let rate = point * error.exp();
            if rate <= 1.01 * FLOOR_BPS { 0.0 } else { rate }
        }))
    }

    /// A forecast over `horizon_s` whose 5 and 95 % quantiles were `low` and `high` came true with `truth`.
    pub fn score(&mut self, horizon_s: f64, low: f64, high: f64, truth: f64) {
        self.errors[nearest(horizon_s)].follow([truth < low, truth > high]);
    }
}

/// Errors are known to a unit: the ends of a band are that much further out.
fn resolution(level: f64) -> f64 {
    match level {
        low if low < 0.5 => -UNIT,
        high if high > 0.5 => UNIT,
        _ => 0.0,
    }
}

/// The horizon whose errors are taken.
fn nearest(horizon_s: f64) -> usize {
    let off = |which: usize| (HORIZONS_S[which] / horizon_s.max(1e-3)).ln().abs();
    let nearest = (0..HORIZONS_S.len()).min_by(|&a, &b| off(a).total_cmp(&off(b)));
    nearest.unwrap_or(0)
}

impl Errors {
    fn learn(&mut self, now_s: f64, horizon_s: f64, points: [f64; 3], truth: f64) {
        let errors = points.map(|point| (truth / point.max(FLOOR_BPS)).ln());
        let error = errors[self.best()];
        for (off, error) in self.off.iter_mut().zip(errors) {
            #[allow(clippy::cast_possible_truncation)] // logarithms
            let error = error.abs() as f32;
            *off = KEEP * *off + (1.0 - KEEP) * error;
        }
        if now_s - self.at_s < 0.5 * horizon_s {
            return;
        }
        self.at_s = now_s;
        let [low, middle, high] = self.cut(horizon_s, &[LEVEL, 0.5, 1.0 - LEVEL]);
        self.follow([
            error < self.moved(middle, low) - UNIT,
            error > self.moved(middle, high) + UNIT,
        ]);
        if self.known.len() == ERRORS {
            self.known.pop_front();
        }
        #[allow(clippy::cast_possible_truncation)] // saturates
        self.known.push_back((error / UNIT).round() as i16);
    }

    /// An end moves outward by 0.95 steps when the truth was beyond it, and inward by 0.05 when it was not: it rests where
    /// one truth in twenty is beyond.
    fn follow(&mut self, beyond: [bool; 2]) {
        for (moved, beyond) in self.moved.iter_mut().zip(beyond) {
            #[allow(clippy::cast_possible_truncation)] // a level
            let by = f32::from(u8::from(beyond)) - LEVEL as f32;
            *moved = (*moved + MOVE * by).clamp(-MOVED_MAX, MOVED_MAX);
        }
    }

    /// An error of a quantile as it is given.
    fn moved(&self, middle: f64, error: f64) -> f64 {
        let moved = self.moved[usize::from(error > middle)];
        middle + (error - middle) * f64::from(moved).exp()
    }

    /// Quantiles of the errors, known and assumed; the outer ones as if there were one error more.
    fn cut<const N: usize>(&self, horizon_s: f64, levels: &[f64; N]) -> [f64; N] {
        let spread = ASSUMED_SPREAD * horizon_s.sqrt().sqrt();
        let assumed_weight = ASSUMED_WEIGHT / (1.0 + self.known.len() as f64 / ASSUMED_HALF);
        let each = assumed_weight / ASSUMED.len() as f64;
        let mut all = [(0.0, 0.0); ERRORS + ASSUMED.len()];
        let count = self.known.len() + ASSUMED.len();
        let known = self
            .known
            .iter()
            .map(|&error| (UNIT * f64::from(error), 1.0));
        let assumed = ASSUMED.iter().map(|&normal| (spread * normal, each));
        for (place, item) in all.iter_mut().zip(known.chain(assumed)) {
            *place = item;
        }
        let all = &mut all[..count];
        all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let total = self.known.len() as f64 + assumed_weight;
        levels.map(|level| {
            let level = match level {
                low if low < 0.5 => low - (1.0 - low) / total * 0.5,
                high => high + high / total * 0.5 * f64::from(u8::from(high > 0.5)),
            };
            weighted(all, level * total)
        })
    }
}

/// The value at which the weights sum up to `aim`; between two values on a line, through the middles of their weights.
fn weighted(ascending: &[(f64, f64)], aim: f64) -> f64 {
    let mut before: Option<(f64, f64)> = None;
    let mut sum = 0.0;
    for &(value, weight) in ascending {
        let middle = sum + 0.5 * weight;
        if middle >= aim {
            return match before {
                None => value,
                Some((at, low)) => low + (value - low) * (aim - at) / (middle - at),
            };
        }
        before = Some((middle, value));
        sum += weight;
    }
    before.map_or(0.0, |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(i: u32) -> f64 {
        f64::from((i.wrapping_mul(2_654_435_761) >> 7) % 1009) / 1009.0
    }

    /// Part of the mean rates over `horizon_s` within 5 to 95 %.
    fn coverage(horizon_s: f64, rate_bps: impl Fn(u32) -> f64) -> f64 {
        let mut rates = Rates::default();
        let (mut held, mut all) = (0.0, 0.0);
        let ahead = (horizon_s / STEP_S) as u32;
        for i in 0..4000 {
            rates.update(f64::from(i) * STEP_S, rate_bps(i));
            if i > 400 {
                let now_s = f64::from(i) * STEP_S;
                let band = rates.quantiles(now_s, horizon_s, &[0.05, 0.95]).unwrap();
                let truth = (1..=ahead).map(|k| rate_bps(i + k)).sum::<f64>() / f64::from(ahead);
                held += f64::from(u8::from((band[0]..=band[1]).contains(&truth)));
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
            rates.update(f64::from(i) * STEP_S, rate);
        }
        let band = rates.quantiles(200.0, 1.0, &[0.05, 0.95]).unwrap();
        assert!(band[0] < 1e5, "{band:?}");
    }

    #[test]
    fn a_forecast_of_long_ago_is_wider() {
        let mut rates = Rates::default();
        for i in 0..100_u32 {
            rates.update(f64::from(i) * STEP_S, 1e7 * (0.8 + 0.4 * noise(i)));
        }
        let width = |now_s: f64| {
            let band = rates.quantiles(now_s, 1.0, &[0.05, 0.95]).unwrap();
            band[1] / band[0]
        };
        assert!(width(50.0) < width(400.0));
    }

    #[test]
    fn a_clock_that_was_set_back_does_no_harm() {
        let mut rates = Rates::default();
        rates.update(1e9, 1e6);
        rates.update(1e9 - 1.0, 2e6);
        assert_eq!(rates.newest_s(), Some(1e9));
        rates.update(5e8, 2e6);
        assert_eq!(rates.newest_s(), Some(5e8));
        let median = rates.quantiles(5e8, 1.0, &[0.5]).unwrap()[0];
        assert!((1.9e6..2.1e6).contains(&median));
    }

    #[test]
    fn a_band_that_does_not_hold_is_widened() {
        let mut rates = Rates::default();
        rates.update(0.0, 1e6);
        let before = rates.quantiles(0.0, 1.0, &[0.05, 0.95]).unwrap();
        for _ in 0..5 {
            rates.score(1.0, before[0], before[1], 5e5);
        }
        let after = rates.quantiles(0.0, 1.0, &[0.05, 0.95]).unwrap();
        assert!(after[0] < before[0] && after[1] < before[1]);
    }
}
