//! Sequential tests of a mean: valid at every look, so a trial may be judged after each report.

use serde::{Deserialize, Serialize};

/// Number, sum and sum of squares of values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// Number of values.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
    /// Sum of their squares.
    pub squares: f64,
}

impl Sums {
    /// Adds other values.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// The mean; none without values.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }

    /// The unbiased variance; none of fewer than two values.
    pub fn variance(&self) -> Option<f64> {
        let mean = self.mean()?;
        (self.count >= 2.0)
            .then(|| ((self.squares - self.sum * mean) / (self.count - 1.0)).max(0.0))
    }
}

/// An interval of a mean, and its estimate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Estimate.
    pub mean: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// The interval of the ratio, from that of a difference of logarithms, less 1: 0.1 is a tenth more.
    #[must_use]
    pub fn ratio(self) -> Self {
        Self {
            low: self.low.exp_m1(),
            mean: self.mean.exp_m1(),
            high: self.high.exp_m1(),
        }
    }
}

/// The interval, at one time, of the difference of two means of independent values; none of fewer than two each.
/// `z` is the quantile of the normal law, such as 1.96 for 95 %.
pub fn difference(one: &Sums, other: &Sums, z: f64) -> Option<Interval> {
    let mean = one.mean()? - other.mean()?;
    let error = (one.variance()? / one.count + other.variance()? / other.count).sqrt();
    Some(Interval {
        low: mean - z * error,
        mean,
        high: mean + z * error,
    })
}

/// A confidence sequence of the weighted mean of differences between paired arms: the normal mixture (Robbins, Annals of
/// Mathematical Statistics 41, 1970; Howard et al., Annals of Statistics 49, 2021, eq. 14) with the empirical variance
/// (Waudby-Smith et al., Annals of Statistics 52, 2024). With the chance `alpha` at most, asymptotically, it excludes the
/// mean at some time.
///
/// ```
/// use pathcast_control::sequential::Confidence;
/// let mut differences = Confidence::default();
/// for i in 0..400 {
///     differences.add(0.1 + if i % 2 == 0 { 0.2 } else { -0.2 }, 1.0);
/// }
/// let interval = differences.interval(0.05, 4.0).unwrap();
/// assert!(interval.low > 0.0 && interval.high < 0.2);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Confidence {
    /// Number of differences.
    pub count: u64,
    weights: f64,
    sum: f64,
    /// Sums of w^2, w^2 x and w^2 x^2.
    moments: [f64; 3],
}

impl Confidence {
    /// Adds a difference with its weight, which must not depend on the difference.
    pub fn add(&mut self, difference: f64, weight: f64) {
        self.count += 1;
        self.weights += weight;
        self.sum += weight * difference;
        let square = weight * weight;
        self.moments[0] += square;
        self.moments[1] += square * difference;
        self.moments[2] += square * difference * difference;
    }

    /// The interval now. `rho` is the sum of w^2 x^2 near which it is tightest, a seventh of it, fixed before the trial.
    /// None before the tenth difference: the variance is not known yet.
    pub fn interval(&self, alpha: f64, rho: f64) -> Option<Interval> {
        if self.count < 10 || self.weights <= 0.0 {
            return None;
        }
        let mean = self.sum / self.weights;
        let [one, first, second] = self.moments;
        let variance = (second - 2.0 * mean * first + mean * mean * one).max(0.0);
        // |S - W mu| <= sqrt((V + rho) (ln((V + rho) / rho) + 2 ln(1 / alpha)))
        let v = variance + rho;
        let radius = (v * ((v / rho).ln() - 2.0 * alpha.ln())).sqrt() / self.weights;
        Some(Interval {
            low: mean - radius,
            mean,
            high: mean + radius,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the normal law, by Box and Muller.
    fn normal(state: &mut u64) -> f64 {
        let mut uniform = || {
            *state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((*state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        };
        (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
    }

    #[test]
    fn zero_is_excluded_at_any_look_less_often_than_alpha() {
        let (mut state, mut excluded) = (7, 0);
        for _ in 0..1000 {
            let mut differences = Confidence::default();
            excluded += u32::from((0..1000).any(|_| {
                differences.add(0.2 * normal(&mut state), 2.0);
                let interval = differences.interval(0.05, 4.0);
                interval.is_some_and(|interval| interval.low > 0.0 || interval.high < 0.0)
            }));
        }
        // 50 expected at most; looks at a fixed 95 % interval would exclude zero in about 400
        assert!(excluded <= 50, "{excluded} of 1000");
    }

    #[test]
    fn an_interval_of_two_means_covers_their_difference() {
        let (mut state, mut covered) = (3, 0);
        for _ in 0..1000 {
            let mut sums = [Sums::default(), Sums::default()];
            for (arm, shift) in sums.iter_mut().zip([0.3, 0.0]) {
                for _ in 0..50 {
                    let value = shift + normal(&mut state);
                    arm.add(&Sums {
                        count: 1.0,
                        sum: value,
                        squares: value * value,
                    });
                }
            }
            let interval = difference(&sums[0], &sums[1], 1.96).unwrap();
            covered += u32::from(interval.low <= 0.3 && 0.3 <= interval.high);
        }
        assert!((925..=975).contains(&covered), "{covered} of 1000");
    }
}
