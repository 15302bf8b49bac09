//! One expert made of the others: a regression of what happened on what they said.
//!
//! Where a flow shares its path, neither its window nor its last second tells the next ten: the rate
//! comes back to a mean, at a speed that depends on the path. All in logarithms and relative to the mean
//! of the training window,
//!
//! `ln truth = ln mean + b0 + b1 (ln state - ln mean) + b2 (ln last - ln mean) + b3 (ln short mean - ln mean)`
//!
//! with the coefficients learned at each horizon by ridge regression towards a prior. Errors are weighed by
//! one over their size, so that it is the median that is regressed and not the mean (iteratively
//! reweighted least squares, one step a sample).

use crate::experts::{ByExpert, Expert};

/// Seconds after which an observation counts 1/e, plus three horizons.
const MEMORY_S: f64 = 300.0;
/// The experts regressed upon, and the coefficient assumed of each.
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
/// Errors are not told apart below this, in ln.
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
