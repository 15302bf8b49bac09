//! Bands from residuals: quantiles of what forecasts were off by, in units of how sure they were.

use std::collections::VecDeque;

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
/// Values are not told apart below this (logarithms need > 0), packets or packets/s.
pub(crate) const VALUE_FLOOR: f64 = 1e-3;

/// A value that came from a logarithm: at [`VALUE_FLOOR`] it is that of nothing at all.
pub(crate) fn or_zero(value: f64) -> f64 {
    if value <= 1.01 * VALUE_FLOOR {
        0.0
    } else {
        value
    }
}

/// 5-95 % bands around a model that has none of its own: what it was lately off by at this horizon (split conformal
/// prediction). Errors are kept in logarithms and in units of the mean truth; the band is of the kind whose interval
/// scores are smaller so far. The first suits rates that change their size, the second those that stop.
#[derive(Debug, Clone)]
pub(crate) struct Conformal {
    horizon_s: f64,
    pending: VecDeque<Said>,
    in_ln: Residuals,
    in_units: Residuals,
    /// Sums of the interval scores of both kinds.
    scores: [f64; 2],
    /// Sum of the truths, and their number.
    truths: (f64, f64),
}

/// A forecast whose truth is not known yet.
#[derive(Debug, Clone, Copy)]
struct Said {
    time_s: f64,
    point: f64,
    /// What an error is measured in.
    unit: f64,
    bands: [[f64; 2]; 2],
}

impl Conformal {
    pub(crate) fn new(horizon_s: f64) -> Self {
        Self {
            horizon_s,
            pending: VecDeque::new(),
            in_ln: Residuals::new(horizon_s),
            in_units: Residuals::new(horizon_s),
            scores: [0.0; 2],
            truths: (0.0, 0.0),
        }
    }

    /// The band around a forecast made now, with what is known by now: `truth(from_s, to_s)` may be asked for the past.
    /// NaN around NaN.
    pub(crate) fn band(
        &mut self,
        now_s: f64,
        point: f64,
        truth: impl Fn(f64, f64) -> f64,
    ) -> [f64; 2] {
        while let Some(said) = self.pending.front().copied()
            && said.time_s + self.horizon_s <= now_s
        {
            self.pending.pop_front();
            let truth = truth(said.time_s, said.time_s + self.horizon_s);
            if !truth.is_nan() {
                self.learn(&said, truth, now_s);
            }
        }
        if !point.is_finite() {
            return [f64::NAN; 2];
        }
        self.in_ln.recut(now_s);
        self.in_units.recut(now_s);
        let unit = match self.truths {
            (sum, count) if sum > 0.0 => ASSUMED_SPREAD * sum / count,
            _ => ASSUMED_SPREAD * point.max(VALUE_FLOOR),
        };
        let last = QUANTILES.len() - 1;
        let (ln, units) = (self.in_ln.cut(), self.in_units.cut());
        let bands = [
            [ln[0], ln[last]].map(|cut| or_zero(point * (ASSUMED_SPREAD * cut).exp())),
            [units[0], units[last]].map(|cut| (point + unit * cut).max(0.0)),
        ];
        self.pending.push_back(Said {
            time_s: now_s,
            point,
            unit,
            bands,
        });
        bands[usize::from(self.scores[1] < self.scores[0])]
    }

    fn learn(&mut self, said: &Said, truth: f64, now_s: f64) {
        let ln = |value: f64| value.max(VALUE_FLOOR).ln();
        (self.in_ln).push(now_s, (ln(truth) - ln(said.point)) / ASSUMED_SPREAD);
        (self.in_units).push(now_s, (truth - said.point) / said.unit);
        for (sum, band) in self.scores.iter_mut().zip(said.bands) {
            *sum += interval_score(band, truth);
        }
        self.truths = (self.truths.0 + truth, self.truths.1 + 1.0);
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
