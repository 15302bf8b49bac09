//! Extremes over a sliding window: the largest rate of the last rounds, the smallest RTT of the
//! last seconds.

use pathcast_base::{Span, Time};

/// Largest value of the last `N` rounds, the current one included. Exact; a sample costs two
/// comparisons, a new round `N`.
#[derive(Clone, Debug)]
pub(crate) struct RoundMax<const N: usize> {
    of_round: [f64; N],
    round: u64,
    max: f64,
}

impl<const N: usize> RoundMax<N> {
    pub const fn new() -> Self {
        Self {
            of_round: [0.0; N],
            round: 0,
            max: 0.0,
        }
    }

    pub const fn max(&self) -> f64 {
        self.max
    }

    /// Adds a sample of round `round`, which is at least the last sample's.
    #[inline]
    pub fn update(&mut self, round: u64, value: f64) {
        if round > self.round {
            let from = (self.round + 1).max((round + 1).saturating_sub(N as u64));
            for passed in from..=round {
                self.of_round[(passed % N as u64) as usize] = 0.0;
            }
            self.round = round;
            self.max = self.of_round.iter().copied().fold(0.0, f64::max);
        }
        let slot = &mut self.of_round[(round % N as u64) as usize];
        *slot = slot.max(value);
        self.max = self.max.max(value);
    }
}

/// Smallest span of the last `window`, in eight buckets: a sample is forgotten after between 7/8 of
/// the window and the whole of it.
#[derive(Clone, Debug)]
pub(crate) struct TimeMin {
    buckets: [Span; Self::BUCKETS],
    newest: usize,
    bucket_began: Time,
    min: Span,
}

impl TimeMin {
    const BUCKETS: usize = 8;
    const NONE: Span = Span::from_nanos(u64::MAX);

    pub const fn new() -> Self {
        Self {
            buckets: [Self::NONE; Self::BUCKETS],
            newest: 0,
            bucket_began: Time::ZERO,
            min: Self::NONE,
        }
    }

    /// The smallest, or `u64::MAX` nanoseconds before any sample.
    pub const fn min(&self) -> Span {
        self.min
    }

    #[inline]
    pub fn update(&mut self, now: Time, value: Span, window: Span) -> Span {
        let width = window.mul_div(1, Self::BUCKETS as u64);
        let passed = now.since(self.bucket_began);
        if passed >= width {
            if passed >= window {
                self.buckets = [Self::NONE; Self::BUCKETS];
            } else {
                for _ in 0..passed.as_nanos() / width.as_nanos().max(1) {
                    self.newest = (self.newest + 1) % Self::BUCKETS;
                    self.buckets[self.newest] = Self::NONE;
                }
            }
            let whole = passed.as_nanos() / width.as_nanos().max(1) * width.as_nanos();
            self.bucket_began += Span::from_nanos(whole);
            self.min = self.buckets.iter().copied().min().expect("eight buckets");
        }
        self.buckets[self.newest] = self.buckets[self.newest].min(value);
        self.min = self.min.min(value);
        self.min
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_largest_value_is_forgotten_after_its_rounds() {
        let mut filter = RoundMax::<11>::new();
        filter.update(0, 9.0);
        for round in 1..=10 {
            filter.update(round, 5.0);
            assert_eq!(filter.max(), 9.0, "round {round}");
        }
        filter.update(11, 4.0);
        assert_eq!(filter.max(), 5.0);
        filter.update(1000, 1.0);
        assert_eq!(filter.max(), 1.0);
    }

    #[test]
    fn a_smallest_span_is_forgotten_after_its_window() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let (mut filter, window) = (TimeMin::new(), Span::from_millis(800));
        filter.update(at(50), Span::from_millis(10), window);
        for ms in (100..750).step_by(10) {
            let min = filter.update(at(ms), Span::from_millis(20), window);
            assert_eq!(min, Span::from_millis(10), "{ms}");
        }
        let min = filter.update(at(801), Span::from_millis(20), window);
        assert_eq!(min, Span::from_millis(20));
        let min = filter.update(at(9000), Span::from_millis(30), window);
        assert_eq!(min, Span::from_millis(30));
    }
}
