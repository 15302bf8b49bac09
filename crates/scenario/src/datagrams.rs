//! What becomes of messages that are sent as datagrams.

use std::collections::VecDeque;
use std::ops::Range;

use pathcast_path::Time;

use crate::application::Message;

/// Payload of a full datagram: an Ethernet payload less the headers of IPv4 and UDP.
pub const DATAGRAM_BYTES: u32 = 1500 - 20 - 8;

/// Messages that are followed until all their datagrams are there; the oldest counts as lost when
/// this many are open.
const OPEN_MESSAGES: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Open {
    first: u64,
    missing: u64,
    message: Message,
}

/// The messages of a flow without a transport that answers: datagrams leave as they are written.
#[derive(Clone, Debug, Default)]
pub struct Datagrams {
    next: u64,
    open: VecDeque<Open>,
    delivered_bytes: u64,
    last_arrival: Option<Time>,
}

impl Datagrams {
    /// The application writes a message of some bytes: the numbers of the datagrams that leave. All are
    /// full but the last, which has [`Datagrams::last_bytes`].
    pub fn write(&mut self, message: Message) -> Range<u64> {
        let count = message.bytes.div_ceil(u64::from(DATAGRAM_BYTES));
        let first = self.next;
        self.next += count;
        if self.open.len() == OPEN_MESSAGES {
            self.open.pop_front();
        }
        self.open.push_back(Open {
            first,
            missing: count,
            message,
        });
        first..self.next
    }

    /// Payload of the last datagram of a message of `bytes`.
    pub const fn last_bytes(bytes: u64) -> u32 {
        ((bytes - 1) % DATAGRAM_BYTES as u64) as u32 + 1
    }

    /// Datagram `seq` arrives with `bytes` of payload; its message, if that is whole now.
    pub fn on_arrival(&mut self, now: Time, seq: u64, bytes: u32) -> Option<Message> {
        self.delivered_bytes += u64::from(bytes);
        self.last_arrival = Some(now);
        let after = self.open.partition_point(|message| message.first <= seq);
        let at = after.checked_sub(1)?;
        let open = self.open.get_mut(at)?;
        open.missing = open.missing.checked_sub(1)?;
        if open.missing > 0 {
            return None;
        }
        let message = open.message;
        while self
            .open
            .front()
            .is_some_and(|message| message.missing == 0)
        {
            self.open.pop_front();
        }
        Some(message)
    }

    /// Payload bytes that arrived.
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
    use crate::application::Side;

    const fn message(clock: Time, bytes: u64) -> Message {
        Message {
            from: Side::Source,
            number: 0,
            bytes,
            clock,
        }
    }

    #[test]
    fn a_message_is_there_when_all_its_datagrams_are_in_any_order() {
        let at = Time::from_nanos;
        let mut flow = Datagrams::default();
        let (large, small) = (message(at(1), 3000), message(at(2), 1472));
        assert_eq!(flow.write(large), 0..3);
        assert_eq!(flow.write(small), 3..4);
        assert_eq!(Datagrams::last_bytes(3000), 3000 - 2 * 1472);
        assert_eq!(Datagrams::last_bytes(1472), 1472);
        assert_eq!(flow.on_arrival(at(5), 2, 56), None);
        assert_eq!(flow.on_arrival(at(6), 3, 1472), Some(small));
        assert_eq!(flow.on_arrival(at(7), 0, 1472), None);
        assert_eq!(flow.on_arrival(at(8), 1, 1472), Some(large));
        assert_eq!(flow.delivered_bytes(), 4472);
    }

    #[test]
    fn lost_messages_do_not_pile_up() {
        let mut flow = Datagrams::default();
        for _ in 0..3 * OPEN_MESSAGES {
            flow.write(message(Time::ZERO, 1));
        }
        assert_eq!(flow.open.len(), OPEN_MESSAGES);
        assert_eq!(flow.on_arrival(Time::ZERO, 0, 1), None);
    }
}
