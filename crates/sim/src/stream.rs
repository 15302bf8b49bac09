//! The messages that an application writes into a TCP connection.
//!
//! Each message begins with a packet of its own, as if the application disabled Nagle's algorithm and
//! marked the end of each (`MSG_EOR`): the last packet of a message is as short as the message makes
//! it. Linux may fill packets with several messages that wait for the window.

use std::collections::VecDeque;

use pathcast_path::Time;

use crate::wire::MSS_BYTES;

/// A message in packets of the connection.
#[derive(Clone, Copy, Debug)]
struct Message {
    first: u64,
    /// One past its last packet; [`u64::MAX`] while it has no end.
    end: u64,
    bytes: u64,
    written: Time,
    /// It was written as much as is taken, and is no message that somebody waits for.
    is_endless: bool,
}

/// What was written, as far as it is not acknowledged.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    messages: VecDeque<Message>,
    /// Packets before the first of the next message.
    packets: u64,
    /// How many of `messages`, from the front, have arrived whole.
    arrived: usize,
    /// Messages written and arrived whole, and the bytes of the latter.
    written: u64,
    delivered: u64,
    delivered_bytes: u64,
}

impl Stream {
    /// The application writes `bytes`; returns the packets to supply. `written` is when its clock for
    /// this message begins.
    pub fn write(&mut self, written: Time, bytes: u64) -> u64 {
        let packets = bytes.div_ceil(u64::from(MSS_BYTES));
        let (first, end) = (self.packets, self.packets + packets);
        self.written += 1;
        self.push(Message {
            first,
            end,
            bytes,
            written,
            is_endless: false,
        });
        packets
    }

    /// The application begins to write without an end; returns the packets to supply.
    pub fn write_endless(&mut self, written: Time) -> u64 {
        let (first, end, bytes) = (self.packets, u64::MAX, u64::MAX);
        self.push(Message {
            first,
            end,
            bytes,
            written,
            is_endless: true,
        });
        u64::MAX
    }

    fn push(&mut self, message: Message) {
        self.packets = message.end;
        self.messages.push_back(message);
    }

    /// What has no end ends before packet `end`, which was never sent.
    pub fn stop(&mut self, end: u64) {
        if let Some(last) = self.messages.back_mut()
            && last.end == u64::MAX
        {
            last.end = end;
            last.bytes = (end - last.first) * u64::from(MSS_BYTES);
            self.packets = end;
        }
    }

    /// Bytes by which packet `seq` is shorter than an MSS.
    pub fn short_by_bytes(&self, seq: u64) -> u16 {
        // nearly always the last message that is not acknowledged
        let at = match self.messages.back() {
            Some(last) if last.first <= seq => self.messages.len() - 1,
            _ => self.messages.partition_point(|message| message.end <= seq),
        };
        match self.messages.get(at) {
            Some(message) if message.end == seq + 1 => {
                let full = (message.end - message.first) * u64::from(MSS_BYTES);
                (full - message.bytes) as u16
            }
            _ => 0,
        }
    }

    /// The next message that is whole now that all packets before `delivered` have arrived: when it
    /// was written. Call until none.
    pub fn take_delivered(&mut self, delivered: u64) -> Option<Time> {
        loop {
            let message = self.messages.get(self.arrived)?;
            if message.end > delivered {
                return None;
            }
            self.arrived += 1;
            self.delivered_bytes += message.bytes;
            if !message.is_endless {
                self.delivered += 1;
                return Some(message.written);
            }
        }
    }

    /// All packets before `una` are acknowledged: what arrived of them may be forgotten.
    pub fn forget(&mut self, una: u64) {
        while self.arrived > 0 && self.messages.front().is_some_and(|m| m.end <= una) {
            self.messages.pop_front();
            self.arrived -= 1;
        }
    }

    /// Bytes that have arrived in order, when all packets before `delivered` have.
    pub fn delivered_bytes(&self, delivered: u64) -> u64 {
        let partial = self.messages.get(self.arrived).map_or(0, |message| {
            delivered.saturating_sub(message.first) * u64::from(MSS_BYTES)
        });
        self.delivered_bytes + partial
    }

    /// Messages written and messages that arrived whole.
    pub const fn counts(&self) -> (u64, u64) {
        (self.written, self.delivered)
    }

    /// Whether all that was written has arrived.
    pub fn is_delivered(&self) -> bool {
        self.arrived == self.messages.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_packet_of_a_message_is_short() {
        let mut stream = Stream::default();
        assert_eq!(stream.write(Time::ZERO, 100), 1);
        assert_eq!(stream.write(Time::ZERO, 2 * 1448), 2);
        assert_eq!(stream.write(Time::ZERO, 1449), 2);
        let short: Vec<u16> = (0..5).map(|seq| stream.short_by_bytes(seq)).collect();
        assert_eq!(short, [1348, 0, 0, 0, 1447]);
    }

    #[test]
    fn messages_are_delivered_in_order_and_forgotten_when_acknowledged() {
        let at = Time::from_nanos;
        let mut stream = Stream::default();
        stream.write(at(1), 3000);
        stream.write(at(2), 10);
        assert_eq!(stream.take_delivered(2), None);
        assert_eq!(stream.delivered_bytes(2), 2896);
        assert_eq!(stream.take_delivered(4), Some(at(1)));
        assert_eq!(stream.take_delivered(4), Some(at(2)));
        assert_eq!(stream.take_delivered(4), None);
        assert!(stream.is_delivered());
        assert_eq!(stream.delivered_bytes(4), 3010);
        stream.forget(3);
        assert_eq!(stream.short_by_bytes(3), 1438); // not acknowledged yet
        stream.forget(4);
        assert!(stream.messages.is_empty());
    }

    #[test]
    fn what_has_no_end_is_ended_where_it_was_sent_to() {
        let mut stream = Stream::default();
        assert_eq!(stream.write_endless(Time::ZERO), u64::MAX);
        assert_eq!(stream.short_by_bytes(1_000_000), 0);
        assert_eq!(stream.delivered_bytes(10), 14_480);
        stream.stop(12);
        assert_eq!(stream.write(Time::ZERO, 5), 1);
        assert_eq!(stream.take_delivered(12), None); // nobody waits for it
        assert_eq!((stream.counts(), stream.is_delivered()), ((1, 0), false));
        assert_eq!(stream.take_delivered(13), Some(Time::ZERO));
        assert_eq!(stream.short_by_bytes(12), 1443);
    }
}
