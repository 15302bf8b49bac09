//! Bands from residuals: quantiles of what forecasts were off by, in units of how sure they were.

use crate::score::interval_score;
use crate::types::QUANTILES;

/// Seconds after which a residual counts 1/e in the bands, plus three horizons.
const MEMORY_S: f64 = 300.0;
/// Residuals assumed before any is known, standard deviations: a normal law with heavier tails.
const PRIOR: [f64; 11] = [
    -2.3, -1.645, -1.2, -0.8, -0.4, 0.0, 0.4, 0.8, 1.2, 1.645, 2.3,
];
/// How many residuals the prior counts as at horizon 0; resolved forecasts overlap, so it counts
/// more the longer the horizon: times 1 + H/5.
const PRIOR_WEIGHT: f64 = 3.0;
/// The same where a single kind of band is not widened afterwards by what it missed.
const CAUTIOUS_PRIOR_WEIGHT: f64 = 8.0;

/// A residual beyond this counts as this, and stored weights are computed anew after so many memories: what single
/// precision holds.
const LARGEST: f64 = 1e30;
const WEIGHTS_HOLD: f64 = 40.0;

/// Forecasts are made each second, so that windows overlap: one that is this much longer holds half as many
/// independent ones. Chosen so that bands on emulated paths hold as often as they say.
const OVERLAP_S: f64 = 8.0;

/// Residuals of one horizon, older ones fading out.
///
/// A weight is stored as of one moment for all, so that time passes by one factor, without an exponential each.
#[derive(Debug, Clone)]
pub(crate) struct Residuals {
    horizon_s: f64,
    prior_weight: f64,
    /// Whether levels of few residuals are moved outward.
    is_cautious: bool,
    /// When weights are as stored, seconds: one that came then counts 1.
    as_of_s: f64,
    /// (weight, residual in units of the spread), sorted by residual.
    known: Vec<(f32, f32)>,
    /// Quantiles at [`QUANTILES`].
    cut: [f64; QUANTILES.len()],
}

impl Residuals {
    pub(crate) fn new(horizon_s: f64) -> Self {
        Self::with(horizon_s, PRIOR_WEIGHT, false)
    }

    /// With a stronger prior, and the levels of few residuals moved outward.
    pub(crate) fn cautious(horizon_s: f64) -> Self {
        Self::with(horizon_s, CAUTIOUS_PRIOR_WEIGHT, true)
    }

    fn with(horizon_s: f64, prior_weight: f64, is_cautious: bool) -> Self {
        let mut residuals = Self {
            horizon_s,
            prior_weight,
            is_cautious,
            as_of_s: 0.0,
            known: Vec::new(),
            cut: [0.0; QUANTILES.len()],
        };
        residuals.recut(0.0);
        residuals
    }

    #[allow(clippy::cast_possible_truncation)] // seven digits of an error are enough
    pub(crate) fn push(&mut self, now_s: f64, residual: f64) {
        self.keep_in_range(now_s);
        let residual = residual.clamp(-LARGEST, LARGEST) as f32;
        let at = self.known.partition_point(|known| known.1 < residual);
        let weight = self.weight_of(now_s) as f32;
        self.known.insert(at, (weight, residual));
    }

    /// The stored weight of a residual of this moment.
    fn weight_of(&self, time_s: f64) -> f64 {
        ((time_s - self.as_of_s) / self.memory_s()).exp()
    }

    /// Stores weights as of now before they leave what single precision holds.
    #[allow(clippy::cast_possible_truncation)] // within its range
    fn keep_in_range(&mut self, now_s: f64) {
        if self.known.is_empty() {
            self.as_of_s = now_s;
        } else if (now_s - self.as_of_s).abs() > WEIGHTS_HOLD * self.memory_s() {
            let factor = ((self.as_of_s - now_s) / self.memory_s()).exp() as f32;
            for (weight, _) in &mut self.known {
                *weight *= factor;
            }
            self.as_of_s = now_s;
        }
    }

    /// Quantiles at [`QUANTILES`], as of the last [`Residuals::recut`].
    pub(crate) fn cut(&self) -> [f64; QUANTILES.len()] {
        self.cut
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    fn memory_s(&self) -> f64 {
        MEMORY_S + 3.0 * self.horizon_s
    }

    /// Residuals, known and assumed, in ascending order, with their weights.
    fn for_each(&self, now_s: f64, mut each: impl FnMut(f64, f64)) {
        let passed = 1.0 / self.weight_of(now_s);
        let prior = self.prior_weight * (1.0 + self.horizon_s / 5.0) / PRIOR.len() as f64;
        let mut assumed = PRIOR.iter().peekable();
        for &(weight, residual) in &self.known {
            let residual = f64::from(residual);
            while let Some(&&value) = assumed.peek()
                && value < residual
            {
                each(value, prior);
                assumed.next();
            }
            each(residual, f64::from(weight) * passed);
        }
        assumed.for_each(|&value| each(value, prior));
    }

    /// Recomputes the quantiles as of `now_s`.
    pub(crate) fn recut(&mut self, now_s: f64) {
        self.keep_in_range(now_s);
        // what counts less than e^-4 is dropped
        let least = self.weight_of(now_s - 4.0 * self.memory_s());
        self.known.retain(|known| f64::from(known.0) >= least);
        let mut total = 0.0;
        self.for_each(now_s, |_, weight| total += weight);
        // of few residuals the next is beyond the outermost more often than their levels say: the outer
        // quantiles are those of one residual more, as in split conformal prediction
        let independent = total / (1.0 + self.horizon_s / OVERLAP_S);
        let level = |q: f64| match q {
            q if !self.is_cautious => q,
            q if q < 0.5 => (q - (1.0 - q) / independent).max(0.0),
            q if q > 0.5 => (q + q / independent).min(1.0),
            q => q,
        };
        let mut cut = [f64::NAN; QUANTILES.len()];
        let (mut sum, mut next, mut largest) = (0.0, 0, 0.0);
        self.for_each(now_s, |residual, weight| {
            sum += weight;
            largest = residual;
            while next < QUANTILES.len() && sum >= level(QUANTILES[next]) * total {
                cut[next] = residual;
                next += 1;
            }
        });
        cut[next..].fill(largest);
        self.cut = cut;
    }

    /// Mean of `value(residual)`.
    pub(crate) fn mean(&self, now_s: f64, value: impl Fn(f64) -> f64) -> f64 {
        let (mut sum, mut total) = (0.0, 0.0);
        self.for_each(now_s, |residual, weight| {
            sum += weight * value(residual);
            total += weight;
        });
        sum / total
    }
}

/// What a model is off by before anything is known, as a part of its forecast.
pub(crate) const ASSUMED_SPREAD: f64 = 0.3;
/// Smaller values count as this (logarithms need > 0), packets or packets/s.
pub(crate) const VALUE_FLOOR: f64 = 1e-3;

/// A value that came from a logarithm: at [`VALUE_FLOOR`] it is that of nothing at all.
pub(crate) fn or_zero(value: f64) -> f64 {
    if value <= 1.01 * VALUE_FLOOR {
        0.0
    } else {
        value
    }
}

/// Kinds of bands.
const KINDS: usize = 3;
/// The score assumed of each kind at first, over that of the first.
const PRIOR_SCORE: [f64; KINDS] = [1.0, 1.3, 1.3];
/// How many forecasts these scores count as at horizon 0; times 1 + H/5.
const PRIOR_SCORES: f64 = 10.0;
/// Weight of a kind: (interval score)^-8.
const SCORE_SHARPNESS: f64 = 8.0;
/// Seconds after which interval scores count 1/e.
const SCORE_MEMORY_S: f64 = 100.0;
/// Seconds after which a truth counts 1/e in the mean that errors are measured in.
const TRUTH_MEMORY_S: f64 = 300.0;
/// What units are of the mean truth: this many times the usual relative error.
const UNIT: f64 = 2.0;
/// A usual error below this counts as this.
const LEAST_USUAL: f64 = 1e-4;
/// And one above this as this: forecasts of a flow that stops are off by any factor.
const MOST_USUAL: f64 = 0.15;
/// No error counts as more units than this: one made while the unit was too small says little of later ones.
const RESIDUAL_MAX: f64 = 20.0;
/// An end of the band moves outward by this part of its distance from the median, in logarithms, when a truth was
/// beyond it, times the level; see [`Bands::learn`]. At horizon H it is divided by 1 + H / [`STEP_HORIZON_S`].
const STEP: f64 = 0.06;
const STEP_HORIZON_S: f64 = 10.0;
/// No end is moved further than this, in logarithms.
const MOVED_MAX: f64 = 1.0;

/// What a band is put around.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    /// The forecast.
    pub(crate) point: f64,
    /// Mean of the training window.
    pub(crate) center: f64,
    /// The spread of the forecast's logarithm.
    pub(crate) spread: f64,
    /// The usual relative error of forecasts.
    pub(crate) usual: f64,
    /// All values of the band are within.
    pub(crate) believable: (f64, f64),
}

/// Bands of one horizon: the mean of three kinds, each weighed by its interval scores so far.
///
/// 1. Errors in logarithms, in units of the forecast's spread. It suits rates whose size changes, and forecasts whose
///    spread is informative.
/// 2. Errors in units of the mean truth: for rates that stop.
/// 3. The same around the mean of the training window: for rates that no model predicts.
///
/// Interval scores are convex, so that the mean of the ends is never worse than the mean of the scores. Its ends are
/// then moved by how often they held so far (adaptive conformal inference, Gibbs and Candes 2021; each end by itself,
/// as in quantile tracking, Angelopoulos 2023).
#[derive(Debug, Clone)]
pub(crate) struct Bands {
    horizon_s: f64,
    residuals: [Residuals; KINDS],
    /// Fading sums of the interval scores, and of the weights in them.
    scores: [f64; KINDS],
    scored: f64,
    /// Fading sum of the truths, and of the weights in it.
    truths: (f64, f64),
    /// What the distance of the lower and the upper end from the median is multiplied by, in logarithms.
    moved: [f64; 2],
}

/// What bands need of a forecast once its truth is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Banded {
    point: f64,
    center: f64,
    spread: f64,
    /// The unit of errors that are not logarithms.
    unit: f64,
    /// 5-95 % of each kind.
    kinds: [[f64; 2]; KINDS],
    /// 5-95 % as they were given.
    given: [f64; 2],
}

impl Bands {
    pub(crate) fn new(horizon_s: f64) -> Self {
        Self {
            horizon_s,
            residuals: std::array::from_fn(|_| Residuals::new(horizon_s)),
            scores: [0.0; KINDS],
            scored: 0.0,
            truths: (0.0, 0.0),
            moved: [0.0; 2],
        }
    }

    fn unit(&self, said: &Said) -> f64 {
        let mean = match self.truths {
            (sum, weight) if sum > 0.0 => sum / weight,
            _ => said.point.max(VALUE_FLOOR),
        };
        UNIT * said.usual.clamp(LEAST_USUAL, MOST_USUAL) * mean
    }

    /// Puts all kinds around a forecast, as of the last [`Bands::recut`].
    pub(crate) fn around(&self, said: &Said) -> Banded {
        let unit = self.unit(said);
        let kinds = std::array::from_fn(|kind| {
            let cut = self.residuals[kind].cut();
            [cut[0], cut[QUANTILES.len() - 1]].map(|cut| edge(kind, said, unit, cut))
        });
        let quantiles = self.quantiles(said);
        Banded {
            point: said.point,
            center: said.center,
            spread: said.spread,
            unit,
            kinds,
            given: [quantiles[0], quantiles[QUANTILES.len() - 1]],
        }
    }

    /// A forecast's truth is known, `passed_s` after the one before.
    ///
    /// An end moves by 0.95 steps outward when the truth was beyond it, and by 0.05 inward when it was not: it rests
    /// where one truth in twenty is beyond.
    pub(crate) fn learn(&mut self, banded: &Banded, truth: f64, now_s: f64, passed_s: f64) {
        let ln = |value: f64| value.max(VALUE_FLOOR).ln();
        let residuals = [
            (ln(truth) - ln(banded.point)) / banded.spread,
            (truth - banded.point) / banded.unit,
            (truth - banded.center) / banded.unit,
        ];
        let keep = (-passed_s / SCORE_MEMORY_S).exp();
        let scores = banded.kinds.map(|band| interval_score(band, truth));
        // as a part of their sum, so that one surprise does not decide for minutes
        let sum = scores.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        for (kind, residual) in residuals.into_iter().enumerate() {
            let counted = residual.clamp(-RESIDUAL_MAX, RESIDUAL_MAX);
            self.residuals[kind].push(now_s, counted);
            self.scores[kind] = keep * self.scores[kind] + scores[kind] / sum;
        }
        self.scored = keep * self.scored + 1.0;
        let keep = (-passed_s / TRUTH_MEMORY_S).exp();
        self.truths = (keep * self.truths.0 + truth, keep * self.truths.1 + 1.0);
        let step = STEP / (1.0 + self.horizon_s / STEP_HORIZON_S);
        let level = QUANTILES[0];
        let beyond = [truth < banded.given[0], truth > banded.given[1]];
        for (moved, is_beyond) in self.moved.iter_mut().zip(beyond) {
            let by = if is_beyond { 1.0 - level } else { -level };
            *moved = (*moved + step * by).clamp(-MOVED_MAX, MOVED_MAX);
        }
    }

    /// Recomputes the quantiles as of `now_s`.
    pub(crate) fn recut(&mut self, now_s: f64) {
        for residuals in &mut self.residuals {
            residuals.recut(now_s);
        }
    }

    /// The weight of each kind, by its interval scores, assumed and known.
    fn weights(&self) -> [f64; KINDS] {
        let least = self.scores.iter().copied().fold(f64::INFINITY, f64::min);
        let assumed = PRIOR_SCORES * (1.0 + self.horizon_s / 5.0);
        let least = least.max(f64::MIN_POSITIVE);
        let weights: [f64; KINDS] = std::array::from_fn(|kind| {
            let known = (self.scores[kind] / least).clamp(1.0, 1e6).ln();
            let ln_score =
                (self.scored * known + assumed * PRIOR_SCORE[kind].ln()) / (self.scored + assumed);
            (-SCORE_SHARPNESS * ln_score).exp()
        });
        let sum: f64 = weights.iter().sum();
        weights.map(|weight| weight / sum)
    }

    /// Quantiles of a forecast at [`QUANTILES`].
    pub(crate) fn quantiles(&self, said: &Said) -> [f64; QUANTILES.len()] {
        let (unit, weights) = (self.unit(said), self.weights());
        let mut quantiles = [0.0; QUANTILES.len()];
        for (kind, weight) in weights.into_iter().enumerate() {
            for (sum, cut) in quantiles.iter_mut().zip(self.residuals[kind].cut()) {
                *sum += weight * within(kind, edge(kind, said, unit, cut), said.believable);
            }
        }
        let middle = quantiles[QUANTILES.len() / 2];
        quantiles.map(|quantile| {
            let moved = self.moved[usize::from(quantile > middle)];
            (middle + (quantile - middle) * moved.exp()).max(0.0)
        })
    }

    /// The mean of a forecast.
    pub(crate) fn mean(&self, said: &Said, now_s: f64) -> f64 {
        let unit = self.unit(said);
        let mean = |kind: usize| {
            let value = |residual| within(kind, edge(kind, said, unit, residual), said.believable);
            self.residuals[kind].mean(now_s, value)
        };
        let weights = self.weights().into_iter().enumerate();
        weights.map(|(kind, weight)| weight * mean(kind)).sum()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.residuals.iter().map(Residuals::len).sum()
    }
}

/// A value of a kind of band, by its residual.
fn edge(kind: usize, said: &Said, unit: f64, residual: f64) -> f64 {
    match kind {
        0 => or_zero(by_ln(said.point, said.spread, residual)),
        1 => by_unit(said.point, unit, residual),
        _ => by_unit(said.center, unit, residual),
    }
}

/// Keeps a value within what is believable. A rate that was measured as 0 may be 0 again: only logarithms need a
/// lower bound.
fn within(kind: usize, value: f64, believable: (f64, f64)) -> f64 {
    if kind == 0 {
        or_zero(value.clamp(believable.0, believable.1))
    } else {
        value.min(believable.1)
    }
}

pub(crate) fn by_ln(point: f64, spread: f64, cut: f64) -> f64 {
    point * (spread * cut).exp()
}

pub(crate) fn by_unit(point: f64, unit: f64, cut: f64) -> f64 {
    (point + unit * cut).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Coverage of the last 600 of 1000 seconds, and the mean width over the mean truth.
    fn judged(happens: impl Fn(u32) -> f64, said: impl Fn(u32) -> f64) -> (f64, f64) {
        let mut bands = Bands::new(1.0);
        let (mut held, mut width, mut sent) = (0.0, 0.0, 0.0);
        for now in 1..1000_u32 {
            let now_s = f64::from(now);
            bands.recut(now_s);
            let said = Said {
                point: said(now),
                center: 50.0,
                spread: 0.3,
                usual: 0.3,
                believable: (0.0, 1e6),
            };
            let banded = bands.around(&said);
            let truth = happens(now);
            if now >= 400 {
                held += f64::from(u8::from(
                    (banded.given[0]..=banded.given[1]).contains(&truth),
                ));
                width += banded.given[1] - banded.given[0];
                sent += truth;
            }
            bands.learn(&banded, truth, now_s, 1.0);
        }
        (held / 600.0, width / sent)
    }

    fn noise(i: u32) -> f64 {
        f64::from((i * 7919 + 13) % 101) / 101.0
    }

    #[test]
    fn bands_hold_for_rates_that_grow_that_stop_and_whose_noise_grows() {
        let grows = |i: u32| 10.0 * (f64::from(i) / 200.0).exp();
        let (held, _) = judged(|i| grows(i) * (0.8 + 0.4 * noise(i)), grows);
        assert!((0.87..0.93).contains(&held), "{held}");
        let stops = |i: u32| {
            if i.is_multiple_of(2) {
                0.0
            } else {
                100.0 * noise(i)
            }
        };
        let (held, width) = judged(stops, |_| 50.0);
        assert!((0.87..0.93).contains(&held), "{held}");
        assert!(width < 5.0, "{width}");
        // residuals of before are too small: only what moves the ends keeps up
        let size = |i: u32| 0.1 * f64::from(i) / 10.0;
        let (held, _) = judged(|i| 100.0 + size(i) * (noise(i) - 0.5), |_| 100.0);
        assert!((0.87..0.93).contains(&held), "{held}");
    }

    #[test]
    fn weights_fade_over_any_time() {
        // a residual a day, which counts 1/e each 300 s: nothing overflows in weeks
        let mut residuals = Residuals::new(0.0);
        let weight_of_newest = |residuals: &Residuals, now_s: f64| {
            let mut found = f64::NAN;
            residuals.for_each(now_s, |residual, weight| {
                if residual == 100.0 {
                    found = weight;
                }
            });
            found
        };
        for day in 0..30 {
            let now_s = 86_400.0 * f64::from(day);
            residuals.push(now_s, 100.0);
            residuals.recut(now_s);
            assert_eq!(
                residuals.len(),
                1,
                "the one of the day before counts no more"
            );
            assert!((weight_of_newest(&residuals, now_s) - 1.0).abs() < 1e-6);
            let later = weight_of_newest(&residuals, now_s + MEMORY_S);
            assert!((later - (-1.0_f64).exp()).abs() < 1e-6);
            residuals.recut(now_s + 3.9 * MEMORY_S);
            assert_eq!(residuals.len(), 1);
            assert!((weight_of_newest(&residuals, now_s) - 1.0).abs() < 1e-5);
        }
        residuals.push(1e9, f64::MAX);
        residuals.recut(1e9);
        assert!(residuals.cut().iter().all(|cut| cut.is_finite()));
    }

    #[test]
    fn a_model_that_predicts_nothing_gets_the_band_of_the_mean() {
        // the forecast is off by as much as the truths vary, both at random around 50
        let happens = |i: u32| 40.0 + 20.0 * noise(i);
        let (held, width) = judged(happens, |i| 10.0 + 80.0 * noise(i + 57));
        assert!((0.87..0.93).contains(&held), "{held}");
        // 90 % of the truths lie in 18 of 50; around the forecast they would lie in some 80
        assert!(width < 0.6, "{width}");
    }
}
