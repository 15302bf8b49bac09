//! The queueing delay by round trips, as LEDBAT has it: the smallest of the last few over the smallest of ten minutes.

use pathcast_base::{Span, Time};

use crate::window_filter::TimeMin;

/// How long a base delay is remembered (RFC 6817: BASE_HISTORY, ten minutes).
const BASE_HISTORY: Span = Span::from_millis(600_000);

/// The base delay, and the last `N` samples (RFC 6817: CURRENT_FILTER).
#[derive(Clone, Debug)]
pub(crate) struct QueueingDelay<const N: usize> {
    base: TimeMin,
    current: [Span; N],
    samples: usize,
}

impl<const N: usize> QueueingDelay<N> {
    pub const fn new() -> Self {
        Self {
            base: TimeMin::new(),
            current: [Span::ZERO; N],
            samples: 0,
        }
    }

    /// The smallest round trip; none before any sample.
    pub fn base(&self) -> Option<Span> {
        (self.samples > 0).then(|| self.base.min())
    }

    /// Takes a sample, if there is one; the queueing delay.
    pub fn update(&mut self, now: Time, rtt: Option<Span>) -> Span {
        if let Some(rtt) = rtt {
            self.base.update(now, rtt, BASE_HISTORY);
            self.current[self.samples % N] = rtt;
            self.samples += 1;
        }
        let filled = &self.current[..self.samples.min(N)];
        let current = filled.iter().min().copied().unwrap_or(self.base.min());
        current - self.base.min()
    }
}
