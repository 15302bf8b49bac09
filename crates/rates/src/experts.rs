//! Simple forecasts of a rate, and their pool.

use serde::{Deserialize, Serialize};

use crate::recent::Recent;

/// Half-lives of the exponentially weighted means, in seconds.
pub const HALF_LIVES_S: [f64; 5] = [1.0, 2.0, 3.0, 5.0, 8.0];
/// Spans of the harmonic mean, each of one horizon.
pub const HARMONIC_SPANS: usize = 5;
/// The last sample, the mean over the last horizon, the harmonic mean, and the exponentially weighted means.
pub const EXPERTS: usize = 3 + HALF_LIVES_S.len();
/// Seconds after which an error counts half.
const MEMORY_S: f64 = 69.0;
/// Errors count as this at most, in logarithms: a path that stops says little of experts.
const WORST: f64 = 1.5;

/// What each expert expects, in logarithms; in single precision, as all that is kept of a path: tables hold many paths.
pub(crate) type Said = [f32; EXPERTS];

/// An exponentially weighted mean over time, as players keep of rates: the first value counts as if it had always been so.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    half_life_s: f64,
    sum: f64,
    weight: f64,
}

impl Mean {
    /// One that halves what is older than so many seconds.
    pub const fn new(half_life_s: f64) -> Self {
        Self {
            half_life_s,
            sum: 0.0,
            weight: 0.0,
        }
    }

    /// Begins with a value that counts as `seconds` long.
    pub(crate) fn assumed(half_life_s: f64, value: f64, seconds: f64) -> Self {
        let mut mean = Self::new(half_life_s);
        mean.push(seconds, value);
        mean
    }

    /// For so many seconds it was `value`.
    pub fn push(&mut self, seconds: f64, value: f64) {
        let keep = libm::exp2(-seconds / self.half_life_s);
        self.sum = keep * self.sum + (1.0 - keep) * value;
        self.weight = keep * self.weight + (1.0 - keep);
    }

    /// The mean; NaN before the first value.
    pub fn get(&self) -> f64 {
        self.sum / self.weight
    }
}

/// The experts of one path and horizon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Experts {
    means: [Mean; HALF_LIVES_S.len()],
    losses: Said,
}

impl Experts {
    pub(crate) fn new() -> Self {
        Self {
            means: HALF_LIVES_S.map(Mean::new),
            losses: [0.0; EXPERTS],
        }
    }

    /// Takes a step of the path.
    pub(crate) fn push(&mut self, seconds: f64, rate: f64) {
        for mean in &mut self.means {
            mean.push(seconds, rate);
        }
    }

    /// What each expects now; rates below `floor` count as that.
    pub(crate) fn say(&self, recent: &Recent, step_s: f64, horizon_s: f64, floor: f64) -> Said {
        let mut said = [0.0_f64; EXPERTS];
        let last = recent.means(step_s, 1).next().unwrap_or(0.0);
        let (mut spans, mut over, mut lately) = (0.0, 0.0, last);
        for (number, mean) in recent.means(horizon_s, HARMONIC_SPANS).enumerate() {
            if number == 0 {
                lately = mean;
            }
            spans += 1.0;
            over += 1.0 / mean.max(floor);
        }
        said[..3].copy_from_slice(&[last, lately, spans / over.max(f64::MIN_POSITIVE)]);
        for (place, mean) in said[3..].iter_mut().zip(&self.means) {
            *place = mean.get();
        }
        #[allow(clippy::cast_possible_truncation)] // a logarithm to seven digits
        said.map(|rate| libm::log(rate.max(floor)) as f32)
    }

    /// What was said has come true, as `truth`; `seconds` after the one before.
    pub(crate) fn learn(&mut self, said: &Said, truth: f64, seconds: f64) {
        let keep = libm::exp2(-seconds / MEMORY_S);
        for (loss, one) in self.losses.iter_mut().zip(said) {
            let off = (f64::from(*one) - truth).abs().min(WORST);
            #[allow(clippy::cast_possible_truncation)] // below the memory times the worst
            let faded = (keep * f64::from(*loss) + seconds * off) as f32;
            *loss = faded;
        }
    }

    /// The pooled value, and the standard deviation of what the experts say, by weight.
    pub(crate) fn pool(&self, said: &Said) -> (f64, f64) {
        let losses = self.losses.map(f64::from);
        let least = losses.iter().copied().fold(f64::INFINITY, f64::min);
        let weights = losses.map(|loss| libm::exp(least - loss));
        let total: f64 = weights.iter().sum();
        let mean = |value: &dyn Fn(f64) -> f64| {
            let parts = weights
                .iter()
                .zip(said)
                .map(|(weight, one)| weight * value(f64::from(*one)));
            parts.sum::<f64>() / total
        };
        let point = mean(&|one| one);
        (point, mean(&|one| (one - point).powi(2)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_forgets_half_of_it_in_a_half_life() {
        let mut mean = Mean::new(3.0);
        mean.push(1e6, 8.0);
        mean.push(3.0, 0.0);
        assert!((mean.get() - 4.0).abs() < 1e-9);
        let mut first = Mean::new(3.0);
        first.push(0.1, 7.0);
        assert!((first.get() - 7.0).abs() < 1e-9);
    }

    #[test]
    fn the_pool_follows_the_expert_that_is_right() {
        let mut experts = Experts::new();
        let mut said = [1.0; EXPERTS];
        said[4] = 0.0;
        assert!((experts.pool(&said).0 - 7.0 / 8.0).abs() < 1e-9);
        for _ in 0..50 {
            experts.learn(&said, 0.0, 1.0);
        }
        let (point, spread) = experts.pool(&said);
        assert!(point < 1e-6 && spread < 1e-3, "{point} {spread}");
        // and back, in about as many steps as the memory has
        for _ in 0..100 {
            experts.learn(&said, 1.0, 1.0);
        }
        assert!(experts.pool(&said).0 > 0.9);
    }
}
