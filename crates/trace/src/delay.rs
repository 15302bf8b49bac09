//! Quantiles of delays in bounded memory.

use hdrhistogram::Histogram;

use crate::report::{OneWayDelay, Slip};

/// Delays in nanoseconds, up to an hour, with three significant digits.
#[derive(Clone, Debug)]
pub struct DelayHistogram {
    histogram: Histogram<u64>,
    sum_ns: u128,
}

impl Default for DelayHistogram {
    fn default() -> Self {
        const HOUR_NS: u64 = 3_600_000_000_000;
        let histogram = Histogram::new_with_bounds(1, HOUR_NS, 3).expect("bounds are in range");
        Self {
            histogram,
            sum_ns: 0,
        }
    }
}

impl DelayHistogram {
    /// Counts one delay.
    #[inline]
    pub fn record(&mut self, delay_ns: u64) {
        self.histogram.saturating_record(delay_ns);
        self.sum_ns += u128::from(delay_ns);
    }

    /// Delays counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The `q`-quantile in nanoseconds, within a thousandth; 0 if nothing was counted.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        self.histogram.value_at_quantile(q)
    }

    /// As one-way delays.
    pub fn one_way_delay_ms(&self) -> OneWayDelay {
        let ms = |q| self.quantile_ns(q) as f64 * 1e-6;
        let mean = self.sum_ns as f64 * 1e-6 / self.count().max(1) as f64;
        OneWayDelay {
            mean,
            p50: ms(0.5),
            p95: ms(0.95),
        }
    }

    /// As a slip report.
    pub fn slip_us(&self) -> Slip {
        let us = |q| self.quantile_ns(q) as f64 * 1e-3;
        Slip {
            p50: us(0.5),
            p99: us(0.99),
            max: us(1.0),
        }
    }
}
