//! How good forecasts were: errors and bands in a few numbers. Every table and every page takes them from here.

/// The distribution of errors in four numbers, in the unit of the errors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// 10 % quantile.
    pub p10: f64,
    /// 90 % quantile.
    pub p90: f64,
}

impl Summary {
    /// Summarizes the finite ones of `errors`; `None` if there is none.
    ///
    /// Quantiles between two errors are interpolated linearly (Hyndman and Fan 1996, definition 7).
    pub fn of(errors: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut errors: Vec<f64> = errors.into_iter().filter(|e| e.is_finite()).collect();
        if errors.is_empty() {
            return None;
        }
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        errors.sort_unstable_by(f64::total_cmp);
        Some(Self {
            mean,
            median: quantile(&errors, 0.5),
            p10: quantile(&errors, 0.1),
            p90: quantile(&errors, 0.9),
        })
    }
}

/// A quantile of sorted values; there must be one at least.
fn quantile(sorted: &[f64], level: f64) -> f64 {
    let at = level * (sorted.len() - 1) as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let part = at - at.floor();
    sorted[below] * (1.0 - part) + sorted[above] * part
}

/// Relative error of a forecast, |forecast / truth - 1|, per cent.
pub fn error_pct(forecast: f64, truth: f64) -> f64 {
    100.0 * (forecast / truth - 1.0).abs()
}

/// Part of the truths that lie in their bands, ends included; `None` without a band.
pub fn coverage(in_band: impl IntoIterator<Item = bool>) -> Option<f64> {
    let (mut inside, mut all) = (0_u64, 0_u64);
    for held in in_band {
        inside += u64::from(held);
        all += 1;
    }
    (all > 0).then(|| inside as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated_and_what_is_not_finite_is_left_out() {
        let errors = [f64::NAN, 4.0, 1.0, 3.0, 2.0, f64::INFINITY];
        let summary = Summary::of(errors).unwrap();
        assert_eq!((summary.mean, summary.median), (2.5, 2.5));
        assert!((summary.p10 - 1.3).abs() < 1e-12, "{summary:?}");
        assert!((summary.p90 - 3.7).abs() < 1e-12, "{summary:?}");
        let one = Summary::of([7.0]).unwrap();
        assert_eq!([one.mean, one.median, one.p10, one.p90], [7.0; 4]);
        assert_eq!(Summary::of([f64::NAN]), None);
    }

    #[test]
    fn coverage_is_the_part_within() {
        assert_eq!(coverage([true, false, true, true]), Some(0.75));
        assert_eq!(coverage([]), None);
        assert_eq!(error_pct(3.0, 4.0), 25.0);
    }
}
