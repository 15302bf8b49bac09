//! How far off the pool may be: quantiles of its own errors.

use std::collections::VecDeque;

/// Errors that are kept.
const KEPT: usize = 256;
/// Seconds after which an error counts half.
const HALF_LIFE_S: f64 = 200.0;
/// As how many errors of its own those of other paths count, with which each path begins.
const PRIOR_COUNT: f64 = 25.0;
/// Their standard deviation, in units of the spread.
const PRIOR: f64 = 1.5;
/// Their quantiles, as of a normal distribution: in equal parts.
const NORMAL: [f64; 12] = [
    -1.73, -1.15, -0.81, -0.55, -0.32, -0.1, 0.1, 0.32, 0.55, 0.81, 1.15, 1.73,
];

/// Errors of a path's forecasts, in units of the spread that was expected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Errors {
    /// The newest last.
    kept: VecDeque<f32>,
}

impl Errors {
    #[allow(clippy::cast_possible_truncation)] // three digits are enough
    pub(crate) fn push(&mut self, error: f64) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(error as f32);
    }

    /// Errors with weights, ascending. Each is `step_s` after the one before, and forecasts of `horizon_s` overlap.
    pub(crate) fn distribution(&self, step_s: f64, horizon_s: f64) -> Distribution {
        let overlap = (step_s / horizon_s).min(1.0);
        let keep = libm::exp2(-step_s / HALF_LIFE_S);
        let mut weight = overlap / keep;
        let kept = self.kept.iter().rev().map(|&error| {
            weight *= keep;
            (f64::from(error), weight)
        });
        let prior_weight = PRIOR_COUNT / NORMAL.len() as f64;
        let mut values: Vec<(f64, f64)> = kept
            .chain(NORMAL.map(|one| (PRIOR * one, prior_weight)))
            .collect();
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        // the middle of each value's part
        let total: f64 = values.iter().map(|(_, weight)| weight).sum();
        let mut before = 0.0;
        for (_, weight) in &mut values {
            let part = *weight / total;
            *weight = before + part / 2.0;
            before += part;
        }
        Distribution { values }
    }
}

/// Values, ascending, each with the probability of less.
pub(crate) struct Distribution {
    values: Vec<(f64, f64)>,
}

impl Distribution {
    /// The quantile at `level`, between two values on a line.
    pub(crate) fn quantile(&self, level: f64) -> f64 {
        let next = self.values.partition_point(|(_, below)| *below < level);
        match (next.checked_sub(1), self.values.get(next)) {
            (None, _) => self.values[0].0,
            (Some(last), None) => self.values[last].0,
            (Some(last), Some(&(b, at_b))) => {
                let (a, at_a) = self.values[last];
                a + (b - a) * (level - at_a) / (at_b - at_a).max(f64::MIN_POSITIVE)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_begins_with_the_errors_of_others_and_goes_on_with_its_own() {
        let mut errors = Errors::default();
        let at = |errors: &Errors, level| errors.distribution(1.0, 4.0).quantile(level);
        assert!(at(&errors, 0.5).abs() < 1e-9);
        let first = at(&errors, 0.9);
        assert!((first - 1.28 * PRIOR).abs() < 0.3);
        for number in 0..2000 {
            errors.push(f64::from(number % 100) / 100.0);
        }
        assert_eq!(errors.kept.len(), KEPT);
        // 256 errors at a weight of a quarter, which halves in 200: three fifths, beside 25 of others
        let middle = at(&errors, 0.5);
        assert!((0.3..0.5).contains(&middle), "{middle}");
        let last = at(&errors, 0.9);
        assert!(0.9 < last && last < 0.8 * first, "{first} {last}");
    }

    #[test]
    fn quantiles_ascend() {
        let mut errors = Errors::default();
        for number in 0..37 {
            errors.push(f64::from(number * 7919 % 101) - 50.0);
        }
        let distribution = errors.distribution(0.5, 4.0);
        let levels = (0..=100).map(|percent| distribution.quantile(f64::from(percent) / 100.0));
        assert!(levels.collect::<Vec<_>>().is_sorted());
    }
}
