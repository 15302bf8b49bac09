//! TCP connections with data in both directions: requests and their responses.
//!
//! Each direction is a [`Connection`](super::Connection). Two of them share their sockets, so that data of
//! the one carries acknowledgments of the other.

use pathcast_path::Time;
use pathcast_tcp::DataSegment;

use super::World;
use super::hosts::{Connection, Framing};
use super::records::ack_record;
use crate::network::Network;
use crate::recorder::Recorder;

impl<N: Network, R: Recorder> World<'_, N, R> {
    /// The connection in the other direction between the same sockets.
    #[inline]
    pub(super) fn opposite(&self, connection: u32) -> Option<u32> {
        match connection.checked_sub(self.flows.len() as u32) {
            Some(requests) => Some(self.asking[requests as usize]),
            None => self.flows[connection as usize].requests,
        }
    }

    /// A request has arrived over `requests`: the connection of the `answers` is open from the first one on, if it opens
    /// when it is needed.
    pub(super) fn open_answers(&mut self, now: Time, answers: u32, requests: u32) {
        if let Some(handshake) = self.connections[requests as usize].receiver.handshake() {
            let sender = &mut self.connections[answers as usize].sender;
            sender.on_open(now, handshake);
        }
    }

    /// The server of `flow` ends the answer that the request which arrived last gave up.
    #[inline(never)]
    pub(super) fn cut_given_up(&mut self, flow: u32) {
        let Some(number) = self.flows[flow as usize].application.take_given_up() else {
            return;
        };
        let Connection {
            sender, framing, ..
        } = &mut self.connections[flow as usize];
        if let Framing::Messages(stream) = framing {
            let (una, next) = sender.una_and_next();
            sender.end_at(stream.cut(number, una, next));
        }
    }

    /// Tells the application of `flow` how far the answer is that arrives.
    #[inline]
    pub(super) fn tell_progress(&mut self, now: Time, flow: u32) {
        let owner = &mut self.flows[flow as usize];
        if !owner.application.looks() {
            return;
        }
        let Connection {
            sender,
            receiver,
            framing,
            ..
        } = &mut self.connections[flow as usize];
        let Framing::Messages(stream) = framing else {
            return;
        };
        stream.buffer.note_window(sender.cwnd());
        if let Some((number, bytes)) = stream.progress(receiver.delivered()) {
            owner.application.on_progress(now, number, bytes);
        }
    }

    /// Data of `connection` leaves at `now`, with what its end acknowledges of the `opposite` connection.
    #[inline(never)]
    pub(super) fn carry(&mut self, now: Time, connection: u32, opposite: u32) {
        let receiver = &mut self.connections[opposite as usize].receiver;
        let ack = receiver.acknowledge_with_data(now);
        self.timers.want(2 * opposite + 1, receiver.next_timer());
        if let Framing::Messages(stream) = &mut self.connections[connection as usize].framing {
            stream.carried.leave(now, ack);
        }
    }

    /// Data of `connection` arrives at `now`. The sender of the `opposite` one hears of the acknowledgment that it
    /// carries before the receiver takes the data; what it sends then carries the acknowledgment of the data.
    #[inline(never)]
    pub(super) fn take_both(
        &mut self,
        now: Time,
        connection: u32,
        opposite: u32,
        segment: &DataSegment,
    ) {
        let has_news = self.hear_carried(now, connection, opposite, segment.sent_at);
        let answer = self.connections[connection as usize]
            .receiver
            .on_data(now, segment);
        let mut is_carried = false;
        if has_news {
            if let (Some(answer), Framing::Messages(stream)) =
                (answer, &mut self.connections[opposite as usize].framing)
            {
                stream.carried.leave(now, answer);
            }
            is_carried = self.send_data(now, opposite);
        }
        // as a probe of the kernel records each packet that reaches a sender
        self.record_ack(now, opposite);
        if let Some(answer) = answer
            && !is_carried
        {
            self.acknowledge(now, connection, answer);
        }
        let timer = self.connections[connection as usize].receiver.next_timer();
        self.timers.want(2 * connection + 1, timer);
    }

    /// Whether the data of `connection` that left at `sent_at` acknowledges anything new of the `opposite` one.
    fn hear_carried(&mut self, now: Time, connection: u32, opposite: u32, sent_at: Time) -> bool {
        let Framing::Messages(stream) = &mut self.connections[connection as usize].framing else {
            return false;
        };
        let Some(ack) = stream.carried.arrive(sent_at) else {
            return false;
        };
        let opposite = &mut self.connections[opposite as usize];
        let has_news = opposite.sender.has_news(&ack);
        if has_news {
            opposite.sender.on_ack(now, &ack);
            if let Framing::Messages(stream) = &mut opposite.framing {
                stream.forget(opposite.sender.una_and_next().0);
            }
        }
        has_news
    }

    /// Records the sender of `connection` after an acknowledgment, if that is a flow's.
    fn record_ack(&mut self, now: Time, connection: u32) {
        if R::ACKS && (connection as usize) < self.flows.len() {
            let record = ack_record(now, connection, &self.connections[connection as usize]);
            self.recorder.ack(record);
        }
    }
}
