//! The distribution of a rate, as quantiles at fixed levels: what all decisions choose from.

/// The levels.
pub const LEVELS: [f64; 31] = [
    0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5,
    0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995,
];
/// Between two levels, rates below count as this, bit/s.
const LEAST_BPS: f64 = 1.0;

/// The distribution of a mean rate over some seconds.
///
/// ```
/// use pathcast_decide::distribution::{LEVELS, RateDistribution};
/// let rates = RateDistribution::new(LEVELS.map(|level| 1e6 + 1e6 * level));
/// assert!((rates.quantile_bps(0.5) / 1.5e6 - 1.0).abs() < 1e-6);
/// assert!((rates.at_least(1.25e6) - 0.75).abs() < 1e-6);
/// assert_eq!(rates.at_least(1e6), 0.995);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateDistribution {
    /// Ascending.
    rates_bps: [f64; LEVELS.len()],
}

impl RateDistribution {
    /// From rates at [`LEVELS`], bit/s. One that is below the one before counts as that.
    pub fn new(mut rates_bps: [f64; LEVELS.len()]) -> Self {
        let mut least = 0.0;
        for rate in &mut rates_bps {
            *rate = rate.max(least);
            least = *rate;
        }
        Self { rates_bps }
    }

    /// The rate below which it is with this probability, bit/s: between two levels on a line, in logarithms of the rate.
    pub fn quantile_bps(&self, level: f64) -> f64 {
        let next = LEVELS.partition_point(|one| *one < level - 1e-12);
        let Some(before) = next.checked_sub(1) else {
            return self.rates_bps[0];
        };
        let Some(&to) = LEVELS.get(next) else {
            return self.rates_bps[before];
        };
        let (low, high) = (self.rates_bps[before], self.rates_bps[next]);
        let part = (level - LEVELS[before]) / (to - LEVELS[before]);
        if part > 1.0 - 1e-9 || low == high {
            return high;
        }
        let ln = |rate: f64| rate.max(LEAST_BPS).ln();
        (ln(low) + part * (ln(high) - ln(low))).exp()
    }

    /// The probability of at least this rate. What is outside of the levels is taken as the outermost.
    pub fn at_least(&self, rate_bps: f64) -> f64 {
        let next = self.rates_bps.partition_point(|one| *one < rate_bps);
        let Some(before) = next.checked_sub(1) else {
            return 1.0 - LEVELS[0];
        };
        let Some(&high) = self.rates_bps.get(next) else {
            return 1.0 - LEVELS[before];
        };
        let ln = |rate: f64| rate.max(LEAST_BPS).ln();
        let low = self.rates_bps[before];
        let part = (ln(rate_bps) - ln(low)) / (ln(high) - ln(low)).max(f64::MIN_POSITIVE);
        1.0 - LEVELS[before] - part.clamp(0.0, 1.0) * (LEVELS[next] - LEVELS[before])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_and_its_probability_belong_together() {
        let rates = RateDistribution::new(LEVELS.map(|level| 1e6 * (3.0 * level).exp()));
        for percent in 1..100 {
            let level = f64::from(percent) / 100.0;
            let found = 1.0 - rates.at_least(rates.quantile_bps(level));
            assert!((found - level).abs() < 1e-9, "{level} {found}");
        }
    }

    #[test]
    fn a_rate_that_may_be_none_is_none_as_often() {
        let rates = RateDistribution::new(LEVELS.map(|level| if level < 0.2 { 0.0 } else { 1e6 }));
        assert_eq!(rates.quantile_bps(0.1), 0.0);
        assert!((0.8..0.85).contains(&rates.at_least(1e3)));
        assert_eq!(rates.at_least(0.0), 0.995);
    }
}
