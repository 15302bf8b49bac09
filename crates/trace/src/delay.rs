//! Quantiles of delays in bounded memory.

use hdrhistogram::Histogram;

use crate::report::{Latency, OneWayDelay, Slip};

const HOUR_NS: u64 = 3_600_000_000_000;

/// Delays in nanoseconds, up to an hour, with three significant digits.
///
/// It counts by the classes of [`Histogram`], which reads them for a quantile: a run counts millions of delays and
/// asks for three quantiles.
#[derive(Clone, Debug)]
pub struct DelayHistogram {
    scale: Scale,
    /// By class.
    counts: Vec<u64>,
    sum_ns: u128,
    least_ns: u64,
    most_ns: u64,
}

/// Which delays are of one class: those that have the same leading bits.
#[derive(Clone, Copy, Debug)]
struct Scale {
    lowest_ns: u64,
    digits: u8,
    /// Low bits that do not count, and bits after the first that do.
    unit_bits: u32,
    bits: u32,
}

impl Scale {
    const FINE: Self = Self {
        lowest_ns: 1,
        digits: 3,
        unit_bits: 0,
        bits: 10,
    };
    const COARSE: Self = Self {
        lowest_ns: 1000,
        digits: 2,
        unit_bits: 9,
        bits: 7,
    };

    /// The class of a delay, in ascending order.
    #[inline]
    const fn class(self, delay_ns: u64) -> usize {
        let units = delay_ns >> self.unit_bits;
        let dropped = (63 - self.bits).saturating_sub(units.leading_zeros());
        (dropped << self.bits) as usize + (units >> dropped) as usize
    }

    /// The least delay of a class.
    const fn least_ns(self, class: usize) -> u64 {
        let dropped = (class >> self.bits).saturating_sub(1);
        ((class - (dropped << self.bits)) as u64) << dropped << self.unit_bits
    }
}

impl Default for DelayHistogram {
    fn default() -> Self {
        Self::of(Scale::FINE)
    }
}

impl DelayHistogram {
    fn of(scale: Scale) -> Self {
        Self {
            scale,
            counts: vec![0; scale.class(HOUR_NS) + 1],
            sum_ns: 0,
            least_ns: u64::MAX,
            most_ns: 0,
        }
    }

    /// Returns a histogram with two significant digits. It takes a tenth of the memory, for one
    /// histogram a flow.
    pub fn coarse() -> Self {
        Self::of(Scale::COARSE)
    }

    /// Counts one delay.
    #[inline]
    pub fn record(&mut self, delay_ns: u64) {
        let class = self.scale.class(delay_ns).min(self.counts.len() - 1);
        self.counts[class] += 1;
        self.sum_ns += u128::from(delay_ns);
        self.least_ns = self.least_ns.min(delay_ns);
        self.most_ns = self.most_ns.max(delay_ns);
    }

    /// The number of delays counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn histogram(&self) -> Histogram<u64> {
        let Scale {
            lowest_ns, digits, ..
        } = self.scale;
        let mut histogram =
            Histogram::new_with_bounds(lowest_ns, HOUR_NS, digits).expect("bounds are in range");
        for (class, &count) in self.counts.iter().enumerate() {
            if count > 0 {
                histogram.saturating_record_n(self.scale.least_ns(class), count);
            }
        }
        histogram
    }

    /// The `q`-quantile in nanoseconds, or 0 if nothing was counted. It is accurate to a thousandth
    /// (coarse: a hundredth); a single delay is returned exactly.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        if self.most_ns < self.least_ns {
            return 0;
        }
        let quantile = self.histogram().value_at_quantile(q);
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
    fn classes_are_those_of_the_histogram() {
        for scale in [Scale::FINE, Scale::COARSE] {
            let counted = DelayHistogram::of(scale);
            let histogram = counted.histogram();
            assert_eq!(
                scale.class(scale.least_ns(counted.counts.len() - 1)) + 1,
                counted.counts.len()
            );
            for class in 0..counted.counts.len() {
                let least_ns = scale.least_ns(class);
                assert_eq!(scale.class(least_ns), class);
                assert_eq!(histogram.lowest_equivalent(least_ns), least_ns);
                let next_ns = histogram.highest_equivalent(least_ns) + 1;
                assert_eq!(scale.least_ns(class + 1), next_ns);
            }
        }
    }

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
