//! From weighted futures to one value and quantiles.

use super::{LEVELS, SizeEstimate};

/// A longer future counts as this many times as long as the median.
const MOST_TIMES_LONGER: f64 = 4.0;

/// Values with weights, sorted, the weights cumulative and ending at 1.
pub(super) fn weighted(values: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut values: Vec<(f64, f64)> = values.collect();
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = values.iter().map(|value| value.1).sum();
    let mut sum = 0.0;
    for value in &mut values {
        sum += value.1 / all;
        value.1 = sum;
    }
    values
}

/// The value at a level, of what [`weighted`] gives.
pub(super) fn quantile(cumulative: &[(f64, f64)], level: f64) -> f64 {
    let at = cumulative.partition_point(|value| value.1 < level);
    cumulative[at.min(cumulative.len() - 1)].0
}

/// The best guess of one size and its quantiles, from `(seconds, weight)` of every future.
pub(super) fn size_estimate(size_bytes: f64, times: &[(f64, f64)]) -> SizeEstimate {
    let cumulative = weighted(times.iter().copied());
    let time_quantiles_s = LEVELS.map(|level| quantile(&cumulative, level));
    // E |throughput / true - 1| is least at the median with weights 1 / true, that is, times; unlikely
    // futures that are many times as long must not dominate
    let longest_s = MOST_TIMES_LONGER * time_quantiles_s[LEVELS.len() / 2];
    let for_errors = weighted(
        times
            .iter()
            .map(|&(time_s, weight)| (time_s, weight * time_s.min(longest_s))),
    );
    let time_s = quantile(&for_errors, 0.5);
    let mut throughput_quantiles_bps = time_quantiles_s.map(|time_s| size_bytes * 8.0 / time_s);
    throughput_quantiles_bps.reverse();
    SizeEstimate {
        size_bytes,
        time_s,
        throughput_bps: size_bytes * 8.0 / time_s,
        time_quantiles_s,
        throughput_quantiles_bps,
    }
}
