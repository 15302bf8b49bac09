//! Acknowledgments that data carries: what the packets of one direction of a connection say about the other.

use std::collections::VecDeque;

use pathcast_path::Time;
use pathcast_tcp::AckSegment;

/// What data packets in flight acknowledge, as far as it differs from one packet to the next.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// From this moment on, packets that leave carry this acknowledgment.
    since: VecDeque<(Time, AckSegment)>,
}

impl Carried {
    /// A packet with `ack` leaves at `now`.
    pub fn leave(&mut self, now: Time, ack: AckSegment) {
        let is_same = self.since.back().is_some_and(|(at, last)| {
            // of those that leave together the first has the duplicate, which is reported once
            *last == ack || (*at == now && last.cumulative == ack.cumulative)
        });
        if !is_same {
            self.since.push_back((now, ack));
        }
    }

    /// Returns what the packet that left at `sent_at` carries.
    pub fn at(&self, sent_at: Time) -> Option<&AckSegment> {
        let after = self.since.partition_point(|(at, _)| *at <= sent_at);
        after.checked_sub(1).map(|at| &self.since[at].1)
    }

    /// Likewise for a packet that arrives, unless a later one has arrived with more.
    pub fn arrive(&mut self, sent_at: Time) -> Option<AckSegment> {
        let after = self.since.partition_point(|(at, _)| *at <= sent_at);
        self.since.drain(..after.checked_sub(1)?);
        self.since.front().map(|(_, ack)| *ack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_carry_what_was_received_when_they_left() {
        let at = Time::from_nanos;
        let mut carried = Carried::default();
        assert_eq!(carried.arrive(at(1)), None);
        let duplicate = {
            let mut ack = AckSegment::new(7);
            ack.push_duplicate(3);
            ack
        };
        for (now, ack) in [
            (10, AckSegment::new(5)),
            (11, AckSegment::new(5)),
            (20, duplicate),
            (20, AckSegment::new(7)), // does not hide the duplicate
            (20, AckSegment::new(8)),
        ] {
            carried.leave(at(now), ack);
        }
        assert_eq!(carried.since.len(), 3);
        assert_eq!(carried.arrive(at(9)), None);
        for (sent_at, cumulative) in [(10, 5), (11, 5), (20, 8), (25, 8)] {
            assert_eq!(carried.arrive(at(sent_at)).unwrap().cumulative, cumulative);
        }
        // one that was overtaken says nothing new
        assert_eq!(carried.arrive(at(11)), None);
        assert_eq!(carried.since.len(), 1);
    }
}
