//! What the recorder is given.

use pathcast_path::{DropReason, Span, Time};
use pathcast_scenario::Side;
use pathcast_trace::{Direction, MessageRecord, PacketEvent, PacketRecord, QueueRecord, Record};

use super::World;
use super::hosts::{Connection, Framing};
use crate::network::Network;
use crate::quic::direction;
use crate::recorder::{Crossing, Recorder};
use crate::stream::Delivered;
use crate::wire::{Ack, Data};

impl<N: Network, R: Recorder> World<'_, N, R> {
    /// Reports the queues to the recorder at each of its sampling moments up to `now`, before the event at
    /// `now`.
    #[cold]
    pub(super) fn look_at_queues(&mut self, now: Time) {
        loop {
            let at = self.recorder.next_look();
            if at > now {
                return;
            }
            let mut number = 0;
            let recorder = &mut *self.recorder;
            self.network.look_at_queues(at, &mut |backlog_bytes| {
                recorder.queue(QueueRecord {
                    time_s: at.as_secs(),
                    link: number / 2,
                    direction: match number % 2 {
                        0 => Direction::Data,
                        _ => Direction::Back,
                    },
                    backlog_bytes,
                });
                number += 1;
            });
            recorder.looked();
        }
    }

    /// Hands a data packet of a connection to the capture at the senders' side.
    #[cold]
    pub(super) fn capture_data(&mut self, now: Time, data: &Data) {
        let crossing = self.crossing(now, data.flow, Side::Source, data.size_bytes());
        let carried = match &self.connections[data.flow as usize].framing {
            Framing::Messages(stream) => stream.carried.at(data.segment.sent_at),
            _ => None,
        };
        self.recorder.data(crossing, &data.segment, carried);
    }

    /// Likewise an acknowledgment without data.
    #[cold]
    pub(super) fn capture_ack(&mut self, now: Time, ack: &Ack) {
        let crossing = self.crossing(now, ack.flow, Side::Sink, ack.size_bytes());
        self.recorder.acknowledgment(crossing, &ack.segment);
    }

    /// A packet from the `from` end of a connection. Connections of requests go the other way than their flow.
    fn crossing(&self, at: Time, connection: u32, from: Side, size_bytes: u32) -> Crossing {
        let requests = connection.checked_sub(self.flows.len() as u32);
        let (flow, from) = match (requests, from) {
            (None, _) => (connection, from),
            (Some(number), Side::Source) => (self.asking[number as usize], Side::Sink),
            (Some(number), Side::Sink) => (self.asking[number as usize], Side::Source),
        };
        Crossing {
            at,
            flow,
            from,
            size_bytes,
        }
    }

    pub(super) fn record_packet(
        &mut self,
        at: Time,
        data: &Data,
        event: PacketEvent,
        one_way_delay: Option<Span>,
    ) {
        // requests go the other way and would be taken for the flow's data
        if (data.flow as usize) < self.flows.len() {
            self.recorder.packet(PacketRecord {
                time_s: at.as_secs(),
                flow: data.flow,
                seq: data.segment.seq,
                size_bytes: data.size_bytes(),
                event,
                one_way_delay_s: one_way_delay.map(Span::as_secs),
                direction: Direction::Data,
            });
        }
    }
}

/// A policer's drop counts as a queue's: a policer is a queue without room.
pub(super) const fn drop_event(reason: DropReason) -> PacketEvent {
    match reason {
        DropReason::Queue | DropReason::Aqm | DropReason::Policer => PacketEvent::DroppedByQueue,
        DropReason::Loss => PacketEvent::DroppedByLoss,
    }
}

pub(super) fn message_record(
    read: Time,
    flow: u32,
    Delivered { message, way }: &Delivered,
) -> MessageRecord {
    MessageRecord {
        flow,
        direction: direction(message.from as usize),
        message: message.number,
        bytes: message.bytes,
        written_s: message.clock.as_secs(),
        entered_s: way.entered.as_secs(),
        sent_s: way.sent.as_secs(),
        left_s: way.left.as_secs(),
        read_s: read.as_secs(),
    }
}

pub(super) fn ack_record(now: Time, flow: u32, connection: &Connection) -> Record {
    let Connection {
        sender, mss_bytes, ..
    } = connection;
    let mss = u64::from(*mss_bytes);
    let (una, next) = sender.una_and_next();
    let controller = sender.controller();
    let ssthresh = controller.ssthresh();
    let belief = controller.belief();
    let bps = |packets_per_s: f64| packets_per_s * f64::from(8 * mss_bytes);
    Record {
        time_s: now.as_secs(),
        flow,
        cwnd_packets: sender.cwnd() as f64,
        ssthresh_packets: ssthresh.is_finite().then(|| ssthresh.floor()),
        srtt_s: sender.rtt().srtt().map(Span::as_secs),
        snd_nxt_bytes: Some(next * mss),
        snd_una_bytes: Some(una * mss),
        rwnd_bytes: sender.receive_window().map(|packets| packets * mss),
        retransmits: Some(sender.retransmits()),
        min_rtt_s: belief.min_rtt.or(sender.rtt().min()).map(Span::as_secs),
        bandwidth_bps: belief.bandwidth.map(bps),
        pacing_bps: controller.pacing_rate().map(bps),
        delivery_bps: sender.delivery_rate().map(bps),
        mode: Some(belief.mode),
    }
}
