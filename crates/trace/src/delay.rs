//! Quantiles of delays in bounded memory.

use hdrhistogram::Histogram;

use crate::report::{Latency, OneWayDelay, Slip};

const HOUR_NS: u64 = 3_600_000_000_000;

/// Delays in nanoseconds, up to an hour, with three significant digits.
#[derive(Clone, Debug)]
pub struct DelayHistogram {
    histogram: Histogram<u64>,
    sum_ns: u128,
    least_ns: u64,
    most_ns: u64,
}

impl Default for DelayHistogram {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, HOUR_NS, 3).expect("bounds are in range");
        Self::of(histogram)
    }
}

impl DelayHistogram {
    const fn of(histogram: Histogram<u64>) -> Self {
        Self {
            histogram,
            sum_ns: 0,
            least_ns: u64::MAX,
            most_ns: 0,
        }
    }

    /// Returns a histogram with two significant digits. It takes a tenth of the memory, for one
    /// histogram a flow.
    pub fn coarse() -> Self {
        let histogram = Histogram::new_with_bounds(1000, HOUR_NS, 2).expect("bounds are in range");
        Self::of(histogram)
    }

    /// Counts one delay.
    #[inline]
    pub fn record(&mut self, delay_ns: u64) {
        self.histogram.saturating_record(delay_ns);
        self.sum_ns += u128::from(delay_ns);
        self.least_ns = self.least_ns.min(delay_ns);
        self.most_ns = self.most_ns.max(delay_ns);
    }

    /// The number of delays counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The `q`-quantile in nanoseconds, or 0 if nothing was counted. It is accurate to a thousandth
    /// (coarse: a hundredth); a single delay is returned exactly.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        if self.most_ns < self.least_ns {
            return 0;
        }
        let quantile = self.histogram.value_at_quantile(q);
        quantile.clamp(self.least_ns, self.most_ns)
    }

    /// The delays as a one-way delay summary.
    pub fn one_way_delay_ms(&self) -> OneWayDelay {
        let ms = |q| self.quantile_ns(q) as f64 * 1e-6;
        let mean = self.sum_ns as f64 * 1e-6 / self.count().max(1) as f64;
        OneWayDelay {
            mean,
            p50: ms(0.5),
            p95: ms(0.95),
        }
    }

    /// The delays as a message latency summary.
    pub fn latency_ms(&self) -> Latency {
        let OneWayDelay { mean, p50, p95 } = self.one_way_delay_ms();
        let p99 = self.quantile_ns(0.99) as f64 * 1e-6;
        Latency {
            mean,
            p50,
            p95,
            p99,
        }
    }

    /// The delays as a slip report.
    pub fn slip_us(&self) -> Slip {
        let us = |q| self.quantile_ns(q) as f64 * 1e-3;
        Slip {
            p50: us(0.5),
            p99: us(0.99),
            max: us(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_as_fine_as_they_say_and_a_single_delay_is_exact() {
        for (mut histogram, within) in [
            (DelayHistogram::default(), 1e-3),
            (DelayHistogram::coarse(), 1e-2),
        ] {
            assert_eq!(histogram.quantile_ns(0.5), 0);
            histogram.record(3_597_123_456);
            assert_eq!(histogram.latency_ms().p50, 3597.123456);
            for delay_us in 1..=100_000 {
                histogram.record(delay_us * 1000);
            }
            let p95 = histogram.quantile_ns(0.95) as f64 / 95_000_000.0;
            assert!((p95 - 1.0).abs() < within, "{p95}");
        }
    }
}
