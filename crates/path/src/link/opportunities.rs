//! A link that sends a number of bytes at each of a list of moments, as mahimahi's `link_queue` does.
//!
//! An opportunity carries 1504 bytes: a packet of 1500 bytes and the 4 bytes that the TUN device puts
//! before each. Small packets share an opportunity, and a large packet continues in the next one. The rest
//! of an opportunity is lost when the queue is empty. A packet that arrives at the very moment of an
//! opportunity is too late for it.

use pathcast_base::Time;

use super::mahimahi::MahimahiTrace;
use super::poisson::PoissonClock;
use super::wandering::WanderingClock;

/// Bytes that an opportunity carries.
pub const OPPORTUNITY_BYTES: u32 = 1504;

/// Bytes that each packet occupies in addition to its own.
pub(crate) const HEADER_BYTES: u32 = 4;

/// Where the moments come from.
#[derive(Clone, Debug)]
enum Clock {
    Poisson(PoissonClock),
    Wandering(WanderingClock),
    Trace {
        trace: MahimahiTrace,
        index: usize,
        period_start_ms: u64,
    },
}

/// The moments at which packets can be sent.
#[derive(Clone, Debug)]
pub struct OpportunityLink {
    clock: Clock,
}

impl OpportunityLink {
    /// Opportunities at the moments of a Poisson process.
    pub const fn poisson(clock: PoissonClock) -> Self {
        Self {
            clock: Clock::Poisson(clock),
        }
    }

    /// Opportunities at the moments of a Poisson process whose rate wanders.
    pub const fn wandering(clock: WanderingClock) -> Self {
        Self {
            clock: Clock::Wandering(clock),
        }
    }

    /// Opportunities at the moments of a trace, again and again.
    pub const fn trace(trace: MahimahiTrace) -> Self {
        Self {
            clock: Clock::Trace {
                trace,
                index: 0,
                period_start_ms: 0,
            },
        }
    }

    /// The next opportunity.
    #[inline]
    pub fn next(&self) -> Time {
        match &self.clock {
            Clock::Poisson(clock) => clock.next(),
            Clock::Wandering(clock) => clock.next(),
            Clock::Trace {
                trace,
                index,
                period_start_ms,
            } => {
                let millis = period_start_ms + u64::from(trace.opportunities_ms()[*index]);
                Time::from_nanos(millis.saturating_mul(1_000_000))
            }
        }
    }

    /// Uses the next opportunity, or lets it go.
    #[inline]
    pub fn advance(&mut self) {
        match &mut self.clock {
            Clock::Poisson(clock) => clock.advance(),
            Clock::Wandering(clock) => clock.advance(),
            Clock::Trace {
                trace,
                index,
                period_start_ms,
            } => {
                *index += 1;
                if *index == trace.opportunities_ms().len() {
                    *index = 0;
                    *period_start_ms += u64::from(trace.period_ms());
                }
            }
        }
    }

    /// Lets all opportunities go up to and with `now`.
    pub fn skip_past(&mut self, now: Time) {
        if self.next() > now {
            return;
        }
        match &mut self.clock {
            Clock::Poisson(clock) => clock.skip_past(now),
            Clock::Wandering(clock) => clock.skip_past(now),
            Clock::Trace {
                trace,
                index,
                period_start_ms,
            } => {
                let now_ms = now.as_nanos() / 1_000_000;
                let period_ms = u64::from(trace.period_ms());
                let since_ms = now_ms - *period_start_ms;
                // at the very end of a period, the moments at its end are still in the old one
                *period_start_ms += since_ms / period_ms * period_ms;
                let since_ms = since_ms % period_ms;
                *index = trace
                    .opportunities_ms()
                    .partition_point(|millis| u64::from(*millis) <= since_ms);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(opportunities_ms: &[u32]) -> OpportunityLink {
        OpportunityLink::trace(MahimahiTrace::new(opportunities_ms).unwrap())
    }

    fn next_ms(link: &OpportunityLink) -> u64 {
        link.next().as_nanos() / 1_000_000
    }

    #[test]
    fn a_trace_begins_anew_after_its_last_moment() {
        let mut link = link(&[0, 3, 3, 10]);
        let moments: Vec<u64> = (0..9)
            .map(|_| {
                let at = next_ms(&link);
                link.advance();
                at
            })
            .collect();
        assert_eq!(moments, [0, 3, 3, 10, 10, 13, 13, 20, 20]);
    }

    #[test]
    fn skipping_is_the_same_as_letting_go_one_by_one() {
        for opportunities_ms in [&[0, 3, 3, 10][..], &[7], &[1, 2, 3], &[0, 0, 1]] {
            for now_us in (0..45_000).step_by(250) {
                let now = Time::from_nanos(now_us * 1000);
                let (mut skips, mut steps) = (link(opportunities_ms), link(opportunities_ms));
                skips.skip_past(now);
                while steps.next() <= now {
                    steps.advance();
                }
                for _ in 0..5 {
                    assert_eq!(
                        next_ms(&skips),
                        next_ms(&steps),
                        "{opportunities_ms:?} {now_us}"
                    );
                    skips.advance();
                    steps.advance();
                }
            }
        }
    }
}
