//! Medians in bounded memory.

use std::collections::BTreeMap;

/// Width of a bin: 1 %, so that a median is right within half of that.
const LOG_WIDTH: f64 = 0.009_950_330_853_168_083; // ln(1.01)

/// The median of values above 0, each with a weight, in a histogram whose size grows with their spread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Median {
    bins: BTreeMap<i32, u64>,
}

impl Median {
    pub(crate) fn add(&mut self, value: f64, weight: u64) {
        if value > 0.0 && weight > 0 {
            let bin = (value.ln() / LOG_WIDTH).round() as i32;
            *self.bins.entry(bin).or_default() += weight;
        }
    }

    /// The value with half of the weight at or below it, within 0.5 %; none without any value.
    pub(crate) fn value(&self) -> Option<f64> {
        let half = self.bins.values().sum::<u64>().div_ceil(2);
        let mut below = 0;
        let bin = self.bins.iter().find_map(|(bin, weight)| {
            below += weight;
            (below >= half).then_some(*bin)
        });
        bin.map(|bin| (f64::from(bin) * LOG_WIDTH).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_within_half_a_per_cent_and_heavy_values_count_for_more() {
        let mut median = Median::default();
        assert_eq!(median.value(), None);
        for value in 1..=999 {
            median.add(f64::from(value), 1);
        }
        assert!((median.value().unwrap() / 500.0 - 1.0).abs() < 0.0051);
        median.add(0.02, 2000);
        assert!((median.value().unwrap() / 0.02 - 1.0).abs() < 0.0051);
        median.add(0.0, 10_000);
        assert!(median.bins.len() < 400);
    }
}
