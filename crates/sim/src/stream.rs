//! The messages that an application writes into a TCP connection.
//!
//! Each message begins with a packet of its own, as if the application disabled Nagle's algorithm and
//! marked the end of each (`MSG_EOR`): the last packet of a message is as short as the message makes
//! it. Linux may fill packets with several messages that wait for the window.

use std::collections::VecDeque;

use pathcast_path::Time;
use pathcast_scenario::{Message, UNSENT_BYTES};

use crate::carried::Carried;
use crate::send_buffer::SendBuffer;

/// A message, or what is written without an end, in packets of the connection.
#[derive(Clone, Copy, Debug)]
struct Piece {
    first: u64,
    /// One past its last packet; [`u64::MAX`] while it has no end.
    end: u64,
    bytes: u64,
    /// Bytes of its last packet, with what is before it.
    tail_bytes: u64,
    /// None: bulk data, which is no message.
    message: Option<Message>,
    way: Way,
}

/// Where a message was when; [`Time::MAX`] for what was not noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Its last packet was sent for the first time.
    pub entered: Time,
    /// The packet that completed it at the far end was sent.
    pub sent: Time,
    /// That packet arrived.
    pub left: Time,
}

impl Way {
    const UNKNOWN: Self = Self {
        entered: Time::MAX,
        sent: Time::MAX,
        left: Time::MAX,
    };
}

/// A message that has arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// What it is.
    pub message: Message,
    /// What was noted of it.
    pub way: Way,
}

/// What was written, as far as it is not acknowledged.
#[derive(Clone, Debug)]
pub struct Stream {
    mss_bytes: u64,
    pieces: VecDeque<Piece>,
    /// Packets before the first of the next message.
    packets: u64,
    /// Bytes of the last of them.
    tail_bytes: u64,
    /// The packet after all messages that ends the connection.
    fin: Option<u64>,
    /// How many of `pieces`, from the front, have arrived whole.
    arrived: usize,
    /// Bytes of what has arrived whole.
    delivered_bytes: u64,
    /// What its packets acknowledge of the data that goes the other way.
    pub carried: Carried,
    /// What holds what was written.
    pub buffer: SendBuffer,
}

impl Stream {
    /// Nothing written, to be sent in packets of `mss_bytes`.
    pub fn new(mss_bytes: u32) -> Self {
        Self {
            mss_bytes: u64::from(mss_bytes),
            pieces: VecDeque::new(),
            packets: 0,
            tail_bytes: 0,
            fin: None,
            arrived: 0,
            delivered_bytes: 0,
            carried: Carried::default(),
            buffer: SendBuffer::new(None),
        }
    }

    /// The application writes a message; returns the packets to supply.
    pub fn write(&mut self, message: Message) -> u64 {
        let packets = message.bytes.div_ceil(self.mss_bytes);
        self.tail_bytes = message.bytes - (packets - 1) * self.mss_bytes;
        self.push(
            self.packets,
            self.packets + packets,
            message.bytes,
            Some(message),
        );
        packets
    }

    /// As [`write`](Self::write), but the message begins in the last packet if that is not full and has not left, when
    /// `next` is the first packet that was never sent: as the kernel's TCP fills what waits in the socket.
    pub fn write_filling(&mut self, message: Message, next: u64) -> u64 {
        let room = match self.packets > next {
            true => self.mss_bytes - self.tail_bytes,
            false => 0,
        };
        if room == 0 {
            return self.write(message);
        }
        let rest = message.bytes.saturating_sub(room);
        let packets = rest.div_ceil(self.mss_bytes);
        self.tail_bytes = match packets {
            0 => self.tail_bytes + message.bytes,
            _ => rest - (packets - 1) * self.mss_bytes,
        };
        self.push(
            self.packets - 1,
            self.packets + packets,
            message.bytes,
            Some(message),
        );
        packets
    }

    /// Packets that were written and never sent, when `next` is the first of those.
    pub const fn unsent(&self, next: u64) -> u64 {
        self.packets.saturating_sub(next)
    }

    /// The application begins to write without an end; returns the packets to supply.
    pub fn write_endless(&mut self) -> u64 {
        self.tail_bytes = self.mss_bytes;
        self.push(self.packets, u64::MAX, u64::MAX, None);
        u64::MAX
    }

    /// The application closes the connection after all that it wrote was sent; returns the packets to
    /// supply: a FIN.
    pub fn finish(&mut self) -> u64 {
        self.fin = Some(self.packets);
        1
    }

    /// Whether packet `seq` is a FIN without data.
    pub fn is_fin(&self, seq: u64) -> bool {
        self.fin == Some(seq)
    }

    fn push(&mut self, first: u64, end: u64, bytes: u64, message: Option<Message>) {
        self.pieces.push_back(Piece {
            first,
            end,
            bytes,
            tail_bytes: self.tail_bytes,
            message,
            way: Way::UNKNOWN,
        });
        self.packets = end;
    }

    /// What has no end ends: with what the application wrote before it stops, when `next` is the first packet
    /// that was never sent. Returns the packets in all.
    pub fn stop(&mut self, next: u64) -> u64 {
        if let Some(last) = self.pieces.back_mut()
            && last.end == u64::MAX
        {
            let sent_bytes = next.saturating_sub(last.first) * self.mss_bytes;
            let unsent_bytes = u64::from(UNSENT_BYTES) - sent_bytes % u64::from(UNSENT_BYTES / 2);
            last.end = last.first.max(next + unsent_bytes / self.mss_bytes);
            last.bytes = (last.end - last.first) * self.mss_bytes;
            self.packets = last.end;
        }
        self.packets
    }

    /// Message `number`, the last one, ends with what was written of it into the socket, when `una` is the first packet that was
    /// not acknowledged and `next` the first that was never sent. Returns the packets in all.
    pub fn cut(&mut self, number: u64, una: u64, next: u64) -> u64 {
        if let Some(last) = self.pieces.back_mut()
            && last.message.is_some_and(|message| message.number == number)
            && let end = self.buffer.written(last.first, una, next, self.mss_bytes)
            && end < last.end
        {
            last.end = end;
            last.bytes = (end - last.first) * self.mss_bytes;
            last.tail_bytes = self.mss_bytes;
            (self.packets, self.tail_bytes) = (end, self.mss_bytes);
        }
        self.packets
    }

    /// The first message that has not arrived whole, and how much of it has, when all packets before `delivered` have.
    pub fn progress(&self, delivered: u64) -> Option<(u64, u64)> {
        let piece = self.pieces.get(self.arrived)?;
        let message = piece.message?;
        let packets = delivered.saturating_sub(piece.first);
        Some((message.number, packets * self.mss_bytes))
    }

    /// Whether packet `seq` is the last of a message, and the bytes by which it is then shorter than an MSS.
    pub fn end_of_message(&self, seq: u64) -> Option<u16> {
        // the last one with a part of it
        let message = match self.pieces.back() {
            Some(last) if last.first <= seq => last,
            _ => {
                let begun = self.pieces.partition_point(|message| message.first <= seq);
                self.pieces.get(begun.checked_sub(1)?)?
            }
        };
        (message.end == seq + 1).then(|| (self.mss_bytes - message.tail_bytes) as u16)
    }

    /// Where the message of packet `seq` lies among those that are not forgotten.
    fn position(&self, seq: u64) -> usize {
        // nearly always the last message that is not acknowledged
        match self.pieces.back() {
            Some(last) if last.first <= seq => self.pieces.len() - 1,
            _ => self.pieces.partition_point(|message| message.end <= seq),
        }
    }

    /// Packet `seq` is sent, for the first time or again.
    pub fn note_sent(&mut self, now: Time, seq: u64) {
        let at = self.position(seq);
        if let Some(message) = self.pieces.get_mut(at)
            && message.end == seq + 1
            && message.way.entered == Time::MAX
        {
            message.way.entered = now;
        }
    }

    /// Packet `seq`, sent at `sent`, arrives for the first time.
    pub fn note_arrived(&mut self, now: Time, seq: u64, sent: Time) {
        let at = self.position(seq);
        if let Some(message) = self.pieces.get_mut(at) {
            // the last of its packets to arrive is what completes it
            (message.way.sent, message.way.left) = (sent, now);
        }
    }

    /// The next message that is whole now that all packets before `delivered` have arrived. Call until
    /// none.
    pub fn take_delivered(&mut self, delivered: u64) -> Option<Delivered> {
        loop {
            let piece = self.pieces.get(self.arrived)?;
            if piece.end > delivered {
                return None;
            }
            self.arrived += 1;
            self.delivered_bytes += piece.bytes;
            if let Some(message) = piece.message {
                let way = piece.way;
                return Some(Delivered { message, way });
            }
        }
    }

    /// All packets before `una` are acknowledged: what arrived of them may be forgotten.
    pub fn forget(&mut self, una: u64) {
        while self.arrived > 0 && self.pieces.front().is_some_and(|m| m.end <= una) {
            self.pieces.pop_front();
            self.arrived -= 1;
        }
    }

    /// Bytes that have arrived in order, when all packets before `delivered` have.
    pub fn delivered_bytes(&self, delivered: u64) -> u64 {
        let partial = self.pieces.get(self.arrived).map_or(0, |message| {
            delivered.saturating_sub(message.first) * self.mss_bytes
        });
        self.delivered_bytes + partial
    }

    /// Whether all that was written has arrived.
    pub fn is_delivered(&self) -> bool {
        self.arrived == self.pieces.len()
    }
}

#[cfg(test)]
mod tests {
    use pathcast_scenario::Side;

    use super::*;

    const fn message(clock: Time, bytes: u64) -> Message {
        Message {
            from: Side::Source,
            number: 0,
            bytes,
            clock,
        }
    }

    #[test]
    fn the_last_packet_of_a_message_ends_it_and_may_be_short() {
        let mut stream = Stream::new(1448);
        assert_eq!(stream.write(message(Time::ZERO, 100)), 1);
        assert_eq!(stream.write(message(Time::ZERO, 2 * 1448)), 2);
        assert_eq!(stream.write(message(Time::ZERO, 1449)), 2);
        let ends: Vec<Option<u16>> = (0..5).map(|seq| stream.end_of_message(seq)).collect();
        assert_eq!(ends, [Some(1348), None, Some(0), None, Some(1447)]);
    }

    #[test]
    fn what_waits_in_the_socket_is_filled() {
        let mut stream = Stream::new(1448);
        assert_eq!(stream.write_filling(message(Time::ZERO, 1000), 0), 1);
        assert_eq!(stream.write_filling(message(Time::ZERO, 400), 0), 0); // 1400 of 1448
        assert_eq!(
            stream.write_filling(message(Time::ZERO, 48 + 1448 + 100), 0),
            2
        );
        let ends: Vec<Option<u16>> = (0..3).map(|seq| stream.end_of_message(seq)).collect();
        assert_eq!(ends, [None, None, Some(1348)]);
        // what has left is not touched
        assert_eq!(
            (
                stream.unsent(3),
                stream.write_filling(message(Time::ZERO, 9), 3)
            ),
            (0, 1)
        );
        assert_eq!(stream.end_of_message(2), Some(1348));
        let bytes = |whole: Option<Delivered>| whole.map(|whole| whole.message.bytes);
        assert_eq!(bytes(stream.take_delivered(1)), Some(1000));
        assert_eq!(bytes(stream.take_delivered(1)), Some(400));
        assert_eq!(bytes(stream.take_delivered(2)), None);
        assert_eq!(bytes(stream.take_delivered(4)), Some(1596));
        assert_eq!(bytes(stream.take_delivered(4)), Some(9));
        assert_eq!(stream.delivered_bytes(4), 1000 + 400 + 1596 + 9);
    }

    #[test]
    fn messages_are_delivered_in_order_and_forgotten_when_acknowledged() {
        let at = Time::from_nanos;
        let mut stream = Stream::new(1448);
        stream.write(message(at(1), 3000));
        stream.write(message(at(2), 10));
        assert_eq!(stream.take_delivered(2), None);
        assert_eq!(stream.delivered_bytes(2), 2896);
        let written =
            |stream: &mut Stream| stream.take_delivered(4).map(|whole| whole.message.clock);
        assert_eq!(written(&mut stream), Some(at(1)));
        assert_eq!(written(&mut stream), Some(at(2)));
        assert_eq!(stream.take_delivered(4), None);
        assert!(stream.is_delivered());
        assert_eq!(stream.delivered_bytes(4), 3010);
        stream.forget(3);
        assert_eq!(stream.end_of_message(3), Some(1438)); // not acknowledged yet
        stream.forget(4);
        assert!(stream.pieces.is_empty());
    }

    #[test]
    fn the_way_of_a_message_is_that_of_the_packet_that_completed_it() {
        let at = Time::from_nanos;
        let mut stream = Stream::new(1448);
        stream.write(message(at(1), 3000));
        for (now, seq) in [(2, 0), (3, 1), (4, 2), (9, 1)] {
            stream.note_sent(at(now), seq); // the second was lost and is sent again
        }
        for (now, seq, sent) in [(7, 0, 2), (8, 2, 4), (14, 1, 9)] {
            stream.note_arrived(at(now), seq, at(sent));
        }
        let whole = stream.take_delivered(3).unwrap();
        let way = Way {
            entered: at(4),
            sent: at(9),
            left: at(14),
        };
        assert_eq!((whole.message.bytes, whole.way), (3000, way));
    }

    #[test]
    fn what_is_given_up_ends_with_what_waits_in_the_socket() {
        let message = |number, bytes| Message {
            number,
            ..message(Time::ZERO, bytes)
        };
        let mut stream = Stream::new(1448);
        stream.write(message(0, 1448));
        assert_eq!(stream.write(message(1, 200 * 1448)), 200);
        assert_eq!(stream.progress(0), Some((0, 0)));
        assert!(stream.take_delivered(11).is_some());
        assert_eq!(stream.progress(11), Some((1, 10 * 1448)));
        // 90 packets from the first that is not acknowledged; another message is not cut
        assert_eq!(stream.cut(0, 1, 21), 201);
        assert_eq!(stream.cut(1, 1, 21), 91);
        assert_eq!(stream.end_of_message(90), Some(0));
        assert_eq!(stream.write(message(2, 100)), 1);
        assert_eq!(stream.take_delivered(91).unwrap().message.number, 1);
        assert_eq!(stream.take_delivered(92).unwrap().message.number, 2);
        assert_eq!(stream.delivered_bytes(92), 91 * 1448 + 100);
        // what waits in the socket whole is not cut
        assert_eq!(stream.write(message(3, 5 * 1448)), 5);
        assert_eq!(stream.cut(3, 92, 94), 97);
    }

    #[test]
    fn what_has_no_end_ends_with_what_waits_in_the_socket() {
        let mut stream = Stream::new(1448);
        assert_eq!(stream.write_endless(), u64::MAX);
        assert_eq!(stream.end_of_message(1_000_000), None);
        assert_eq!(stream.delivered_bytes(10), 14_480);
        // 128 KiB were written at first: 90 packets, of which 12 had been sent
        assert_eq!(stream.stop(12), 90);
        assert_eq!(stream.write(message(Time::ZERO, 5)), 1);
        assert_eq!(stream.take_delivered(90), None); // bulk data is no message
        assert!(!stream.is_delivered());
        assert_eq!(stream.take_delivered(91).unwrap().message.bytes, 5);
        assert_eq!(stream.end_of_message(90), Some(1443));
        // as much as was left of the first 128 KiB was made up each time that half had gone
        let mut stream = Stream::new(1448);
        stream.write_endless();
        assert_eq!(
            stream.stop(50),
            50 + (131_072 - (50 * 1448 - 65_536)) / 1448
        );
        assert_eq!(stream.stop(60), stream.stop(50)); // it has stopped
    }
}
