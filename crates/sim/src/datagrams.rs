//! A flow without a transport that answers: datagrams leave as they are written.

use std::collections::VecDeque;

use pathcast_path::Time;
use pathcast_tcp::DataSegment;

use crate::wire::DATAGRAM_BYTES;

/// Messages that are followed until all their datagrams are there; the oldest counts as lost when
/// this many are open.
const OPEN_MESSAGES: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Message {
    first: u64,
    missing: u64,
    written: Time,
}

/// Both ends of such a flow.
#[derive(Clone, Debug, Default)]
pub struct Datagrams {
    next: u64,
    open: VecDeque<Message>,
    written: u64,
    delivered: u64,
    delivered_bytes: u64,
    last_arrival: Option<Time>,
}

impl Datagrams {
    /// The application writes `bytes` at `now`; returns the datagrams that leave.
    pub fn write(&mut self, now: Time, bytes: u64) -> impl Iterator<Item = DataSegment> + use<> {
        let full = u64::from(DATAGRAM_BYTES);
        let (first, count) = (self.next, bytes.div_ceil(full));
        self.next += count;
        self.written += 1;
        if self.open.len() == OPEN_MESSAGES {
            self.open.pop_front();
        }
        self.open.push_back(Message {
            first,
            missing: count,
            written: now,
        });
        let short = (count * full - bytes) as u16;
        (first..first + count).map(move |seq| {
            let last = seq + 1 == first + count;
            DataSegment::new(now, seq).with_short_by_bytes(if last { short } else { 0 })
        })
    }

    /// A datagram arrives; returns when its message was written if that is whole now.
    pub fn on_arrival(&mut self, now: Time, segment: &DataSegment) -> Option<Time> {
        self.delivered_bytes += u64::from(DATAGRAM_BYTES - u32::from(segment.short_by_bytes()));
        self.last_arrival = Some(now);
        let after = self
            .open
            .partition_point(|message| message.first <= segment.seq);
        let at = after.checked_sub(1)?;
        let message = self.open.get_mut(at)?;
        message.missing = message.missing.checked_sub(1)?;
        if message.missing > 0 {
            return None;
        }
        let written = message.written;
        self.delivered += 1;
        while self
            .open
            .front()
            .is_some_and(|message| message.missing == 0)
        {
            self.open.pop_front();
        }
        Some(written)
    }

    /// Messages written and messages that arrived whole.
    pub const fn counts(&self) -> (u64, u64) {
        (self.written, self.delivered)
    }

    /// Bytes that arrived.
    pub const fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// When the last datagram arrived.
    pub const fn last_arrival(&self) -> Option<Time> {
        self.last_arrival
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_there_when_all_its_datagrams_are_in_any_order() {
        let at = Time::from_nanos;
        let mut flow = Datagrams::default();
        let first: Vec<DataSegment> = flow.write(at(1), 3000).collect();
        let second: Vec<DataSegment> = flow.write(at(2), 100).collect();
        assert_eq!((first.len(), second.len()), (3, 1));
        assert_eq!(first[2].short_by_bytes(), 3 * 1472 - 3000);
        assert_eq!(flow.on_arrival(at(5), &first[2]), None);
        assert_eq!(flow.on_arrival(at(6), &second[0]), Some(at(2)));
        assert_eq!(flow.on_arrival(at(7), &first[0]), None);
        assert_eq!(flow.on_arrival(at(8), &first[1]), Some(at(1)));
        assert_eq!((flow.counts(), flow.delivered_bytes()), ((2, 2), 3100));
    }

    #[test]
    fn lost_messages_do_not_pile_up() {
        let mut flow = Datagrams::default();
        for _ in 0..3 * OPEN_MESSAGES {
            flow.write(Time::ZERO, 1).for_each(drop);
        }
        assert_eq!(flow.open.len(), OPEN_MESSAGES);
        let late = DataSegment::new(Time::ZERO, 0);
        assert_eq!(flow.on_arrival(Time::ZERO, &late), None);
    }
}
