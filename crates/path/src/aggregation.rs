//! Aggregation: packets that arrive one by one are handed over in bursts, as acknowledgments are by
//! Wi-Fi (802.11n A-MPDU), cable (DOCSIS grants) and receive offload.

use std::collections::VecDeque;

use pathcast_base::{Span, Time};

use crate::reader::{Field, Read};

/// When a burst is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregationSpec {
    /// At every multiple of this span.
    Interval(Span),
    /// When `packets` packets have arrived, or when the first of them has waited for `within`.
    Count {
        /// Packets that make a burst.
        packets: u64,
        /// The longest that a packet waits.
        within: Span,
    },
}

/// Packets that have arrived and wait to be handed over, in order.
#[derive(Clone, Debug)]
pub struct Aggregator<P> {
    spec: AggregationSpec,
    /// Bursts that are complete, with the moment at which they are handed over.
    complete: VecDeque<(Time, P)>,
    /// The burst that is not.
    open: Vec<P>,
    /// When the open burst is handed over at the latest.
    deadline: Time,
}

impl<P> Aggregator<P> {
    /// Nothing waits.
    pub const fn new(spec: AggregationSpec) -> Self {
        Self {
            spec,
            complete: VecDeque::new(),
            open: Vec::new(),
            deadline: Time::ZERO,
        }
    }

    /// Takes in a packet that arrived at `arrived`, no sooner than the one before it.
    pub fn push(&mut self, arrived: Time, packet: P) {
        match self.spec {
            AggregationSpec::Interval(interval) => {
                let interval = interval.as_nanos().max(1);
                let release = arrived
                    .as_nanos()
                    .div_ceil(interval)
                    .saturating_mul(interval);
                self.complete.push_back((Time::from_nanos(release), packet));
            }
            AggregationSpec::Count { packets, within } => {
                if !self.open.is_empty() && self.deadline < arrived {
                    self.close(self.deadline);
                }
                if self.open.is_empty() {
                    self.deadline = arrived + within;
                }
                self.open.push(packet);
                if self.open.len() as u64 >= packets {
                    self.close(arrived);
                }
            }
        }
    }

    fn close(&mut self, release: Time) {
        let burst = self.open.drain(..).map(|packet| (release, packet));
        self.complete.extend(burst);
    }

    /// When the next packet is handed over, if no other arrives.
    pub fn next_release(&self) -> Option<Time> {
        match self.complete.front() {
            Some((release, _)) => Some(*release),
            None => (!self.open.is_empty()).then_some(self.deadline),
        }
    }

    /// The next packet if it is handed over at `now` or was before, with that moment.
    pub fn pop(&mut self, now: Time) -> Option<(Time, P)> {
        if self.next_release()? > now {
            return None;
        }
        if self.complete.is_empty() {
            self.close(self.deadline);
        }
        self.complete.pop_front()
    }
}

impl AggregationSpec {
    /// The value of the key `aggregation`.
    pub(crate) fn read(field: Field<'_, '_>) -> Read<Self> {
        let (kind, table) = field.kind(&[
            ("interval", &["interval"]),
            ("count", &["packets", "within"]),
        ])?;
        if kind == "interval" {
            return Ok(Self::Interval(table.need("interval")?.some_time()?));
        }
        Ok(Self::Count {
            packets: table.need("packets")?.whole(1, 1_000_000)?,
            within: table.need("within")?.some_time()?,
        })
    }

    pub(crate) fn to_toml(self) -> String {
        match self {
            Self::Interval(interval) => {
                format!("{{ kind = \"interval\", interval = \"{interval}\" }}")
            }
            Self::Count { packets, within } => {
                format!("{{ kind = \"count\", packets = {packets}, within = \"{within}\" }}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn releases(spec: AggregationSpec, arrivals_ms: &[u64]) -> Vec<u64> {
        let mut aggregator = Aggregator::new(spec);
        for (n, millis) in arrivals_ms.iter().enumerate() {
            aggregator.push(at(*millis), n);
        }
        std::iter::from_fn(|| aggregator.pop(Time::MAX))
            .enumerate()
            .map(|(expected, (release, n))| {
                assert_eq!(n, expected);
                release.as_nanos() / 1_000_000
            })
            .collect()
    }

    #[test]
    fn an_interval_hands_over_at_its_multiples() {
        let spec = AggregationSpec::Interval(Span::from_millis(10));
        assert_eq!(releases(spec, &[1, 9, 10, 11, 35]), [10, 10, 10, 20, 40]);
    }

    #[test]
    fn a_count_hands_over_when_full_or_when_time_is_up() {
        let spec = AggregationSpec::Count {
            packets: 3,
            within: Span::from_millis(20),
        };
        // three together; then two that wait until the deadline, because no third arrives
        assert_eq!(
            releases(spec, &[1, 2, 3, 10, 12, 31]),
            [3, 3, 3, 30, 30, 51]
        );
    }
}
