//! Bands from residuals: quantiles of what forecasts were off by, in units of how sure they were.

use std::collections::VecDeque;

use crate::score::interval_score;
use crate::types::{QUANTILES, SAMPLE_S};

/// Seconds after which a residual counts 1/e in the bands, plus three horizons.
const MEMORY_S: f64 = 300.0;
/// Residuals assumed before any is known, standard deviations: a normal law with heavier tails.
const PRIOR: [f64; 11] = [
    -2.3, -1.645, -1.2, -0.8, -0.4, 0.0, 0.4, 0.8, 1.2, 1.645, 2.3,
];
/// How many residuals the prior counts as at horizon 0; resolved forecasts overlap, so it counts
/// more the longer the horizon: times 1 + H/5.
const PRIOR_WEIGHT: f64 = 8.0;

/// Forecasts are made each second, so that windows overlap: one that is this much longer holds half as many
/// independent ones. Chosen so that bands on emulated paths hold as often as they say.
const OVERLAP_S: f64 = 8.0;

/// Residuals of one horizon, older ones fading out.
#[derive(Debug, Clone)]
pub(crate) struct Residuals {
    horizon_s: f64,
    /// (time, residual in units of the spread), sorted by residual.
    known: Vec<(f64, f64)>,
    /// Quantiles at [`QUANTILES`].
    cut: [f64; QUANTILES.len()],
}

impl Residuals {
    pub(crate) fn new(horizon_s: f64) -> Self {
        let mut residuals = Self {
            horizon_s,
            known: Vec::new(),
            cut: [0.0; QUANTILES.len()],
        };
        residuals.recut(0.0);
        residuals
    }

    pub(crate) fn push(&mut self, now_s: f64, residual: f64) {
        let at = self.known.partition_point(|known| known.1 < residual);
        self.known.insert(at, (now_s, residual));
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
        let memory_s = self.memory_s();
        let prior = PRIOR_WEIGHT * (1.0 + self.horizon_s / 5.0) / PRIOR.len() as f64;
        let mut assumed = PRIOR.iter().peekable();
        for &(time_s, residual) in &self.known {
            while let Some(&&value) = assumed.peek()
                && value < residual
            {
                each(value, prior);
                assumed.next();
            }
            each(residual, ((time_s - now_s) / memory_s).exp());
        }
        assumed.for_each(|&value| each(value, prior));
    }

    /// Recomputes the quantiles as of `now_s`.
    pub(crate) fn recut(&mut self, now_s: f64) {
        // what counts less than e^-4 is dropped
        let oldest_s = now_s - 4.0 * self.memory_s();
        self.known.retain(|known| known.0 >= oldest_s);
        let mut total = 0.0;
        self.for_each(now_s, |_, weight| total += weight);
        // of few residuals the next is beyond the outermost more often than their levels say: the outer
        // quantiles are those of one residual more, as in split conformal prediction
        let independent = total / (1.0 + self.horizon_s / OVERLAP_S);
        let level = |q: f64| match q {
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

/// Seconds after which the interval scores of both kinds of bands count 1/e.
const SCORE_MEMORY_S: f64 = 300.0;
/// Bands in units of the mean are taken if their scores are below this part of those in logarithms.
const CLEARLY: f64 = 0.85;

/// Bands of one horizon, of two kinds: errors in logarithms, in units of the forecast's spread, and errors in units of
/// the mean truth. A band is of the first kind unless the second scored clearly better so far. The first suits rates
/// whose size changes and forecasts whose spread is informative; the second suits rates that stop.
#[derive(Debug, Clone)]
pub(crate) struct Bands {
    in_ln: Residuals,
    in_units: Residuals,
    /// Fading sums of the interval scores of both kinds.
    scores: [f64; 2],
    /// Fading sum of the truths, and of the weights in it.
    truths: (f64, f64),
}

/// What bands need of a forecast once its truth is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Banded {
    point: f64,
    /// Of the logarithm.
    spread: f64,
    /// The unit of errors that are not logarithms.
    unit: f64,
    /// 5-95 % of both kinds.
    bands: [[f64; 2]; 2],
}

impl Bands {
    pub(crate) fn new(horizon_s: f64) -> Self {
        Self {
            in_ln: Residuals::new(horizon_s),
            in_units: Residuals::new(horizon_s),
            scores: [0.0; 2],
            truths: (0.0, 0.0),
        }
    }

    /// Puts both kinds around a forecast, as of the last [`Bands::recut`].
    pub(crate) fn around(&self, point: f64, spread: f64) -> Banded {
        let unit = self.unit(point);
        let band =
            |quantiles: [f64; QUANTILES.len()]| [quantiles[0], quantiles[QUANTILES.len() - 1]];
        Banded {
            point,
            spread,
            unit,
            bands: [
                band((self.in_ln.cut()).map(|cut| or_zero(by_ln(point, spread, cut)))),
                band(self.in_units.cut().map(|cut| by_unit(point, unit, cut))),
            ],
        }
    }

    /// The 5-95 % band of a forecast, of the kind that did better.
    pub(crate) fn band(&self, banded: &Banded) -> [f64; 2] {
        banded.bands[usize::from(self.is_in_units())]
    }

    /// Whether bands in units of the mean truth did better than those in logarithms.
    fn is_in_units(&self) -> bool {
        self.scores[1] < CLEARLY * self.scores[0]
    }

    fn unit(&self, point: f64) -> f64 {
        match self.truths {
            (sum, weight) if sum > 0.0 => ASSUMED_SPREAD * sum / weight,
            _ => ASSUMED_SPREAD * point.max(VALUE_FLOOR),
        }
    }

    /// A forecast's truth is known, `passed_s` after the one before.
    pub(crate) fn learn(&mut self, said: &Banded, truth: f64, now_s: f64, passed_s: f64) {
        let ln = |value: f64| value.max(VALUE_FLOOR).ln();
        (self.in_ln).push(now_s, (ln(truth) - ln(said.point)) / said.spread);
        (self.in_units).push(now_s, (truth - said.point) / said.unit);
        let keep = (-passed_s / SCORE_MEMORY_S).exp();
        for (sum, band) in self.scores.iter_mut().zip(said.bands) {
            *sum = keep * *sum + interval_score(band, truth);
        }
        self.truths = (keep * self.truths.0 + truth, keep * self.truths.1 + 1.0);
    }

    /// Recomputes the quantiles as of `now_s`.
    pub(crate) fn recut(&mut self, now_s: f64) {
        self.in_ln.recut(now_s);
        self.in_units.recut(now_s);
    }

    /// Quantiles of a forecast at [`QUANTILES`], and its mean, each value within `believable`.
    pub(crate) fn quantiles(
        &self,
        point: f64,
        spread: f64,
        believable: (f64, f64),
        now_s: f64,
    ) -> ([f64; QUANTILES.len()], f64) {
        let unit = self.unit(point);
        if self.is_in_units() {
            // a rate that was measured as 0 may be 0 again, but none is below
            let at = |cut: f64| by_unit(point, unit, cut).min(believable.1);
            return (self.in_units.cut().map(at), self.in_units.mean(now_s, at));
        }
        let at = |cut: f64| or_zero(by_ln(point, spread, cut).clamp(believable.0, believable.1));
        (self.in_ln.cut().map(at), self.in_ln.mean(now_s, at))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.in_ln.len() + self.in_units.len()
    }
}

fn by_ln(point: f64, spread: f64, cut: f64) -> f64 {
    point * (spread * cut).exp()
}

fn by_unit(point: f64, unit: f64, cut: f64) -> f64 {
    (point + unit * cut).max(0.0)
}

/// 5-95 % bands around a model without its own: its recent errors at this horizon (split conformal
/// prediction).
#[derive(Debug, Clone)]
pub(crate) struct Conformal {
    horizon_s: f64,
    pending: VecDeque<(f64, Banded)>,
    bands: Bands,
}

impl Conformal {
    pub(crate) fn new(horizon_s: f64) -> Self {
        Self {
            horizon_s,
            pending: VecDeque::new(),
            bands: Bands::new(horizon_s),
        }
    }

    /// The band around a forecast made now, from what is known now: `truth(from_s, to_s)` may be called for
    /// the past. NaN around NaN.
    pub(crate) fn band(
        &mut self,
        now_s: f64,
        point: f64,
        truth: impl Fn(f64, f64) -> f64,
    ) -> [f64; 2] {
        while let Some((said_s, said)) = self.pending.front().copied()
            && said_s + self.horizon_s <= now_s
        {
            self.pending.pop_front();
            let truth = truth(said_s, said_s + self.horizon_s);
            if !truth.is_nan() {
                self.bands.learn(&said, truth, now_s, SAMPLE_S);
            }
        }
        if !point.is_finite() {
            return [f64::NAN; 2];
        }
        self.bands.recut(now_s);
        let banded = self.bands.around(point, ASSUMED_SPREAD);
        self.pending.push_back((now_s, banded));
        self.bands.band(&banded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::BandScore;

    /// Bands around `said` for what `happens` each second, after the first 200.
    fn judged(happens: impl Fn(u32) -> f64, said: impl Fn(u32) -> f64) -> BandScore {
        let mut conformal = Conformal::new(1.0);
        let second = |time_s: f64| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole and > 0
            let second = time_s.round() as u32;
            second
        };
        let bands = (1..1000_u32).map(|now| {
            let truth = |from_s: f64, _to_s: f64| happens(second(from_s));
            let band = conformal.band(f64::from(now), said(now), truth);
            (now, band)
        });
        let bands: Vec<_> = bands.filter(|(now, _)| *now > 200).collect();
        BandScore::of(bands.into_iter().map(|(now, band)| (band, happens(now)))).unwrap()
    }

    #[test]
    fn bands_hold_what_they_say_for_rates_that_grow_and_for_rates_that_stop() {
        let noise = |i: u32| f64::from((i * 7919 + 13) % 101) / 101.0;
        let grows = |i: u32| 10.0 * (f64::from(i) / 200.0).exp();
        let growing = judged(|i| grows(i) * (0.8 + 0.4 * noise(i)), grows);
        assert!((0.86..0.95).contains(&growing.coverage90), "{growing:?}");
        let stopping = judged(
            |i| if i % 2 == 0 { 0.0 } else { 100.0 * noise(i) },
            |_| 50.0,
        );
        assert!((0.86..=1.0).contains(&stopping.coverage90), "{stopping:?}");
        // the band in logarithms would be e^17 wide
        assert!(stopping.width_pct < 500.0, "{stopping:?}");
    }
}
