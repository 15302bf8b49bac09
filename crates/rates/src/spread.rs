//! How far off the pool may be: quantiles of its own errors.

use std::collections::VecDeque;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// Errors that are kept at most.
pub(crate) const KEPT: usize = 256;
/// Seconds after which an error counts half.
const HALF_LIFE_S: f64 = 200.0;
/// As how many errors of its own those of other paths count, with which each path begins.
const PRIOR_COUNT: f64 = 25.0;
/// After as many of its own errors, those of other paths count half, where they fade.
const PRIOR_FADES: f64 = 4.0;
/// Their standard deviation, in units of the spread.
const PRIOR: f64 = 1.5;
/// Their quantiles, as of a normal distribution: in equal parts.
const NORMAL: [f64; 12] = [
    -1.73, -1.15, -0.81, -0.55, -0.32, -0.1, 0.1, 0.32, 0.55, 0.81, 1.15, 1.73,
];

/// An error is kept as a byte, on a scale that is fine near zero: `UNIT * sinh(code / FINE)`. A step of it is 0.02 at zero
/// and 4 % of large errors, and the largest is 49.
const UNIT: f64 = 0.5;
const FINE: f64 = 24.0;
const CODES: usize = 255;
const LARGEST: f64 = 127.0;

/// Where codes from -127 on begin, and where the last one ends.
static EDGES: LazyLock<[f64; CODES + 1]> = LazyLock::new(|| {
    std::array::from_fn(|at| UNIT * libm::sinh((at as f64 - LARGEST - 0.5) / FINE))
});

#[allow(clippy::cast_possible_truncation)] // limited
fn code(error: f64) -> i8 {
    (FINE * libm::asinh(error / UNIT))
        .round()
        .clamp(-LARGEST, LARGEST) as i8
}

/// The place of a code in [`EDGES`].
fn place(code: i8) -> usize {
    usize::from(code.wrapping_add(127).cast_unsigned())
}

/// Errors of a path's forecasts, in units of the spread that was expected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Errors {
    /// Codes, the newest last.
    kept: VecDeque<i8>,
}

impl Errors {
    pub(crate) fn push(&mut self, error: f64, most: usize) {
        while self.kept.len() >= most {
            self.kept.pop_front();
        }
        self.kept.push_back(code(error));
    }

    /// Bytes of memory beyond its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.kept.capacity()
    }

    /// Errors with weights, ascending. Each is `step_s` after the one before, and forecasts of `horizon_s` overlap. With
    /// `fades`, errors of other paths count less the more there are of its own.
    pub(crate) fn distribution(&self, step_s: f64, horizon_s: f64, fades: bool) -> Distribution {
        let overlap = (step_s / horizon_s).min(1.0);
        let keep = libm::exp2(-step_s / HALF_LIFE_S);
        let mut weights = [0.0; CODES];
        let mut weight = overlap;
        for &code in self.kept.iter().rev() {
            weights[place(code)] += weight;
            weight *= keep;
        }
        let own: f64 = if fades { weights.iter().sum() } else { 0.0 };
        let prior_weight = PRIOR_COUNT / (1.0 + own / PRIOR_FADES) / NORMAL.len() as f64;
        for normal in NORMAL {
            weights[place(code(PRIOR * normal))] += prior_weight;
        }
        let total: f64 = weights.iter().sum();
        // from the middle of a code's first error to the middle of its last one, it goes from edge to edge
        let half = 0.5 * overlap / total;
        let mut values = Vec::with_capacity(64);
        let mut before = 0.0;
        for (edges, weight) in EDGES.windows(2).zip(weights) {
            if weight > 0.0 {
                let part = weight / total;
                let edge = half.min(0.5 * part);
                values.push((edges[0], before + edge));
                values.push((edges[1], before + part - edge));
                before += part;
            }
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_begins_with_the_errors_of_others_and_goes_on_with_its_own() {
        let mut errors = Errors::default();
        let at = |errors: &Errors, level| errors.distribution(1.0, 4.0, false).quantile(level);
        assert!(at(&errors, 0.5).abs() < 1e-9);
        let first = at(&errors, 0.9);
        assert!((first - 1.28 * PRIOR).abs() < 0.3);
        for number in 0..2000 {
            errors.push(f64::from(number % 100) / 100.0, KEPT);
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
            errors.push(f64::from(number * 7919 % 101) - 50.0, KEPT);
        }
        let distribution = errors.distribution(0.5, 4.0, true);
        let levels = (0..=100).map(|percent| distribution.quantile(f64::from(percent) / 100.0));
        assert!(levels.collect::<Vec<_>>().is_sorted());
    }

    proptest! {
        #[test]
        fn a_byte_keeps_an_error_to_a_fiftieth(error in -40.0..40.0) {
            let place = place(code(error));
            let [low, high] = [EDGES[place], EDGES[place + 1]];
            prop_assert!((low..=high).contains(&error), "{error} {low} {high}");
            prop_assert!(high - low <= 0.022 + 0.043 * error.abs(), "{error} {low} {high}");
        }
    }
}
