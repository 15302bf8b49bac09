//! What the hosts do with flows over QUIC.

use pathcast_path::Time;
use pathcast_scenario::{Message, Pending, Write};
use pathcast_tcp::{AckSegment, DataSegment};
use pathcast_trace::Read;

use super::World;
use super::hosts::Framing;
use crate::network::Network;
use crate::quic::{QuicFlow, SINK, SOURCE, direction};
use crate::recorder::Recorder;
use crate::simulation::SimError;
use crate::wire::{Ack, Data, MTU_BYTES};

impl<N: Network, R: Recorder> World<'_, N, R> {
    pub(super) fn quic(&mut self, flow: u32) -> Option<&mut QuicFlow> {
        match &mut self.connections[flow as usize].framing {
            Framing::Quic(quic) => Some(quic),
            _ => None,
        }
    }

    /// Time 0 of the flows over QUIC.
    pub(super) fn begin_quic(&mut self) {
        for flow in 0..self.flows.len() as u32 {
            let follow = R::MESSAGES && !self.flows[flow as usize].is_greedy;
            let Some(quic) = self.quic(flow) else {
                continue;
            };
            quic.begin(flow, follow);
            let record = quic.begins_open().then(|| quic.record(flow, Time::ZERO));
            if R::ACKS
                && let Some(record) = record
            {
                self.recorder.ack(record);
            }
            self.set_quic_timers(Time::ZERO, flow);
        }
    }

    fn set_quic_timers(&mut self, now: Time, flow: u32) {
        for end in [SOURCE, SINK] {
            let timer = self.quic(flow).and_then(|quic| quic.timer(end, now));
            self.timers.want(2 * flow + end as u32, timer);
        }
    }

    /// The browser of a page opens a connection.
    pub(super) fn open_quic(&mut self, now: Time, flow: u32) {
        if let Some(quic) = self.quic(flow) {
            quic.open(now);
        }
        // it may know the server, and ask at once
        self.deliver_quic_of_page(now, flow, SINK);
        self.drive_quic(now, flow, SINK);
    }

    /// The application of a flow writes.
    #[cold]
    #[inline(never)]
    pub(super) fn write_quic(&mut self, now: Time, flow: u32, write: Write<Message>) {
        let Some(quic) = self.quic(flow) else { return };
        quic.start(now);
        let end = match write {
            Write::Message(message) => {
                quic.pipes[message.from as usize].offer(now, message);
                message.from as usize
            }
            Write::Endless => SOURCE,
            Write::Stop => return,
        };
        self.drive_quic(now, flow, end);
    }

    /// An end of a flow writes and sends what it may.
    #[inline(never)]
    pub(super) fn drive_quic(&mut self, now: Time, flow: u32, end: usize) {
        loop {
            if end == SOURCE {
                self.fill_quic(now, flow);
            }
            let greedy = end == SOURCE && self.flows[flow as usize].application.is_greedy();
            let Some(quic) = self.quic(flow) else { return };
            quic.write(end, greedy);
            let mut any = false;
            while let Some((number, size_bytes)) =
                self.quic(flow).and_then(|quic| quic.transmit(end, now))
            {
                any = true;
                match end {
                    SOURCE => {
                        let short = (MTU_BYTES - size_bytes) as u16;
                        let segment = DataSegment::new(now, number).with_short_by_bytes(short);
                        self.send(now, Data { flow, segment });
                    }
                    _ => {
                        let segment = AckSegment::new(number);
                        let ack = Ack {
                            flow,
                            datagram_bytes: size_bytes,
                            segment,
                        };
                        if !self.network.acknowledge(now, ack) {
                            self.lose_quic(flow, SINK, number);
                        }
                    }
                }
            }
            // what pacing or the window held back has its turn by a timer, or when acknowledgments come
            if !any {
                break;
            }
        }
        self.set_quic_timers(now, flow);
    }

    #[cold]
    #[inline(never)]
    pub(super) fn wake_quic(&mut self, now: Time, flow: u32, end: usize) {
        if let Some(quic) = self.quic(flow) {
            quic.on_timer(end, now);
        }
        self.record_quic(now, flow);
        self.drive_quic(now, flow, end);
    }

    /// A datagram of the end `from` will not arrive.
    #[cold]
    #[inline(never)]
    pub(super) fn lose_quic(&mut self, flow: u32, from: usize, number: u64) {
        if let Some(quic) = self.quic(flow) {
            quic.lose(from, number);
        }
    }

    /// Frees datagrams that were dropped in the reverse direction.
    #[cold]
    #[inline(never)]
    pub(super) fn note_dropped_acks(&mut self) {
        while let Some(ack) = self.network.take_dropped_ack() {
            self.lose_quic(ack.flow, SINK, ack.segment.cumulative);
        }
    }

    /// Datagram `number` arrives at an end.
    #[cold]
    #[inline(never)]
    pub(super) fn deliver_quic(&mut self, now: Time, flow: u32, end: usize, number: u64) {
        let Some(quic) = self.quic(flow) else { return };
        quic.receive(end, number, now);
        self.record_quic(now, flow);
        if self.flows[flow as usize].load.is_some() {
            self.deliver_quic_of_page(now, flow, end);
            return self.drive_quic(now, flow, end);
        }
        let delivered = self.read_quic(now, flow, end);
        // to acknowledge, and because acknowledgments make room
        self.drive_quic(now, flow, end);
        if end == SINK && (delivered || self.flows[flow as usize].application.is_finished()) {
            let id = self.application(flow);
            let next = self.flows[flow as usize].application.next_write();
            self.timers.want(id, next);
            self.complete_if_done(now, flow);
        }
    }

    /// Reports the sender to the recorder if acknowledgments were processed.
    fn record_quic(&mut self, now: Time, flow: u32) {
        if R::ACKS
            && let Some(quic) = self.quic(flow)
            && quic.has_acknowledged()
        {
            let record = quic.record(flow, now);
            self.recorder.ack(record);
        }
    }

    /// Reports to the application messages that are now complete; returns whether there were any.
    fn read_quic(&mut self, now: Time, flow: u32, end: usize) -> bool {
        let Framing::Quic(quic) = &mut self.connections[flow as usize].framing else {
            return false;
        };
        let owner = &mut self.flows[flow as usize];
        let mut any = false;
        while let Some(Pending {
            first,
            end: past,
            message,
            written,
        }) = quic.pipes[1 - end].take_delivered()
        {
            any = true;
            if R::MESSAGES {
                let read = Read {
                    flow,
                    direction: direction(1 - end),
                    number: message.number,
                    first,
                    end: past,
                    written_ns: written.as_nanos(),
                    read_ns: now.as_nanos(),
                };
                quic.tell(read, |record| self.recorder.message(record));
            }
            if let Some(response) = owner.deliver(now, &message) {
                if let Some(number) = owner.application.take_given_up() {
                    quic.pipes[SOURCE].cut(number);
                }
                quic.pipes[SOURCE].offer(now, response);
            }
        }
        if end == SINK
            && owner.application.looks()
            && let Some((number, bytes)) = quic.pipes[SOURCE].progress()
        {
            owner.application.on_progress(now, number, bytes);
        }
        any
    }

    /// The error of the first flow whose connection broke, if one did.
    pub(super) fn check_quic(&mut self) -> Result<(), SimError> {
        for flow in 0..self.flows.len() as u32 {
            if let Some(why) = self.quic(flow).and_then(|quic| quic.failure()) {
                return Err(SimError::Broken { flow, why });
            }
        }
        Ok(())
    }
}
