//! One expert that combines the others: a regression of the truth on their forecasts.
//!
//! Where a flow shares its path, neither its window nor its last second determines the next ten: the rate
//! returns to a mean, at a speed that depends on the path. All in logarithms and relative to the mean of
//! the training window,
//!
//! `ln truth = ln mean + b0 + b1 (ln state - ln mean) + b2 (ln last - ln mean) + b3 (ln short mean - ln mean)`
//!
//! with the coefficients learned at each horizon by ridge regression towards a prior. Errors are weighted
//! by one over their size, so the regression estimates the median, not the mean (iteratively reweighted
//! least squares, one step a sample).

use crate::experts::{ByExpert, Expert};

/// Seconds after which an observation counts 1/e, plus three horizons.
const MEMORY_S: f64 = 300.0;
/// The experts in the regression, and the coefficient assumed for each.
const FEATURES: [(Expert, f64); 3] = [
    (Expert::State, 0.7),
    (Expert::LastSample, 0.15),
    (Expert::ShortMean, 0.05),
];
/// Coefficients: one for each expert, the queue, and the intercept.
const SIZE: usize = FEATURES.len() + 2;
/// The coefficient assumed of the queue at horizon 0, and the seconds in which it falls to 1/e.
const QUEUE_PRIOR: (f64, f64) = (0.9, 5.0);
/// Standard deviation of the prior of each coefficient.
const PRIOR_SPREAD: f64 = 0.3;
/// Standard deviation of the intercept's prior, in ln.
const PRIOR_BIAS: f64 = 0.05;
/// Smaller errors count as this, in ln.
const ERROR_FLOOR: f64 = 0.01;
/// No observation is further from what was expected than this, in ln.
const ERROR_MAX: f64 = 0.7;

type Vector = [f64; SIZE];

/// Coefficients at one horizon.
#[derive(Debug, Clone)]
pub(super) struct Regression {
    horizon_s: f64,
    /// Fading sums of weight times feature times feature, and of weight times feature times what the prior
    /// is off by.
    squares: [Vector; SIZE],
    products: Vector,
    /// Fading sums of the errors' size, and of their number.
    error: (f64, f64),
    coefficients: Vector,
}

impl Regression {
    pub(super) fn new(horizon_s: f64) -> Self {
        Self {
            horizon_s,
            squares: [[0.0; SIZE]; SIZE],
            products: [0.0; SIZE],
            error: (0.0, 0.0),
            coefficients: prior(horizon_s),
        }
    }

    /// ln of what it expects, from the logarithms of what the other experts do.
    pub(super) fn ln_value(&self, ln_value: &ByExpert, ln_queue: f64) -> f64 {
        let features = features(ln_value, ln_queue);
        ln_value[Expert::WindowMean as usize] + dot(&self.coefficients, &features)
    }

    /// A forecast's truth is known, `passed_s` after the one before.
    pub(super) fn learn(
        &mut self,
        ln_value: &ByExpert,
        ln_queue: f64,
        ln_truth: f64,
        passed_s: f64,
    ) {
        let features = features(ln_value, ln_queue);
        let wanted = ln_truth - ln_value[Expert::WindowMean as usize];
        let off = wanted - dot(&self.coefficients, &features);
        let keep = (-passed_s / (MEMORY_S + 3.0 * self.horizon_s)).exp();
        let weight = 1.0 / (off.abs() + ERROR_FLOOR);
        let off_prior =
            (wanted - dot(&prior(self.horizon_s), &features)).clamp(-ERROR_MAX, ERROR_MAX);
        for i in 0..SIZE {
            for j in 0..SIZE {
                self.squares[i][j] = keep * self.squares[i][j] + weight * features[i] * features[j];
            }
            self.products[i] = keep * self.products[i] + weight * features[i] * off_prior;
        }
        self.error = (
            keep * self.error.0 + off.abs().min(ERROR_MAX),
            keep * self.error.1 + 1.0,
        );
        self.solve();
    }

    fn solve(&mut self) {
        // the prior is worth observations of the usual error; those of long horizons overlap
        let usual = (self.error.0 + ERROR_FLOOR) / (self.error.1 + 1.0) + ERROR_FLOOR;
        let overlap = 1.0 + self.horizon_s;
        let mut matrix = self.squares;
        for (i, row) in matrix.iter_mut().enumerate() {
            let spread = if i + 1 == SIZE {
                PRIOR_BIAS
            } else {
                PRIOR_SPREAD
            };
            row[i] += overlap * usual / (spread * spread);
        }
        let change = solve(matrix, self.products);
        let prior = prior(self.horizon_s);
        self.coefficients = std::array::from_fn(|i| prior[i] + change[i]);
    }
}

fn prior(horizon_s: f64) -> Vector {
    let queue = QUEUE_PRIOR.0 * (-horizon_s / QUEUE_PRIOR.1).exp();
    std::array::from_fn(|i| match FEATURES.get(i) {
        Some(feature) => feature.1,
        None if i == FEATURES.len() => queue,
        None => 0.0,
    })
}

fn features(ln_value: &ByExpert, ln_queue: f64) -> Vector {
    let mean = ln_value[Expert::WindowMean as usize];
    std::array::from_fn(|i| match FEATURES.get(i) {
        Some(feature) => ln_value[feature.0 as usize] - mean,
        None if i == FEATURES.len() => ln_queue,
        None => 1.0,
    })
}

fn dot(a: &Vector, b: &Vector) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Solves a symmetric positive definite system, by Cholesky's decomposition.
fn solve(mut matrix: [Vector; SIZE], mut right: Vector) -> Vector {
    for i in 0..SIZE {
        for j in 0..=i {
            let sum: f64 = (0..j).map(|k| matrix[i][k] * matrix[j][k]).sum();
            let left = matrix[i][j] - sum;
            matrix[i][j] = if i == j {
                left.max(f64::MIN_POSITIVE).sqrt()
            } else {
                left / matrix[j][j]
            };
        }
    }
    for i in 0..SIZE {
        let sum: f64 = (0..i).map(|k| matrix[i][k] * right[k]).sum();
        right[i] = (right[i] - sum) / matrix[i][i];
    }
    for i in (0..SIZE).rev() {
        let sum: f64 = (i + 1..SIZE).map(|k| matrix[k][i] * right[k]).sum();
        right[i] = (right[i] - sum) / matrix[i][i];
    }
    right
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{RngCore, SeedableRng};

    use super::*;
    use crate::experts::EXPERTS;

    /// Experts that all forecast `mean`, except the state and the last sample.
    fn said(mean: f64, state: f64, last: f64) -> ByExpert {
        let mut ln_value = [mean; EXPERTS.len()];
        ln_value[Expert::State as usize] = state;
        ln_value[Expert::LastSample as usize] = last;
        ln_value
    }

    #[test]
    fn at_first_it_says_about_what_the_state_says() {
        let regression = Regression::new(5.0);
        let near = regression.ln_value(&said(5.0, 5.4, 5.4), 0.0);
        assert!((near - 5.34).abs() < 1e-9, "{near}");
        assert!(regression.ln_value(&said(5.0, 5.4, 5.0), 0.2) > 5.28);
    }

    #[test]
    fn it_finds_the_speed_at_which_a_rate_comes_back_to_its_mean() {
        // an AR(1) process in ln around 5, whose state and last sample both are the value now
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut uniform = move || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut noise = move || 0.1 * (0..12).map(|_| uniform() - 0.5).sum::<f64>();
        let mut regression = Regression::new(1.0);
        let mut value = 0.0;
        for _ in 0..1000 {
            let before = said(5.0, 5.0 + value, 5.0 + value);
            value = 0.4 * value + noise();
            regression.learn(&before, 0.0, 5.0 + value, 1.0);
        }
        let expected = regression.ln_value(&said(5.0, 5.3, 5.3), 0.0);
        assert!((expected - 5.12).abs() < 0.03, "{expected}");
    }

    #[test]
    fn a_queue_that_tells_nothing_loses_its_coefficient() {
        let mut regression = Regression::new(1.0);
        let before = regression.ln_value(&said(5.0, 5.0, 5.0), 0.3);
        for second in 0..500 {
            let queue = if second % 2 == 0 { 0.3 } else { -0.3 };
            regression.learn(&said(5.0, 5.0, 5.0), queue, 5.0, 1.0);
        }
        let after = regression.ln_value(&said(5.0, 5.0, 5.0), 0.3);
        assert!(
            before > 5.2 && (after - 5.0).abs() < 0.02,
            "{before} {after}"
        );
    }

    #[test]
    fn cholesky_solves() {
        let mut matrix = [[0.0; SIZE]; SIZE];
        for (i, row) in matrix.iter_mut().enumerate() {
            for (j, value) in row.iter_mut().enumerate() {
                *value = if i == j {
                    4.0 + i as f64
                } else {
                    1.0 / (1.0 + (i + j) as f64)
                };
            }
        }
        let wanted: Vector = std::array::from_fn(|i| i as f64 - 1.5);
        let right = std::array::from_fn(|i| dot(&matrix[i], &wanted));
        let got = solve(matrix, right);
        for i in 0..SIZE {
            assert!((got[i] - wanted[i]).abs() < 1e-12);
        }
    }
}
