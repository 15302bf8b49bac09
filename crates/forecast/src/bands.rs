//! Bands from residuals: quantiles of what forecasts were off by, in units of how sure they were.

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
