//! The event loop: hosts at both ends of a network, in virtual time.

mod conclude;
mod hosts;
mod pages;
mod quic;
mod records;
mod two_way;

use std::hint::black_box;
use std::ops::ControlFlow;

use pathcast_congestion::Scheme;
use pathcast_path::Time;
use pathcast_scenario::{DATAGRAM_BYTES, Datagrams, Message, Scenario, Timers, Transport, Write};
use pathcast_tcp::{AckSegment, DataSegment, Ecn};
use pathcast_trace::{DelayHistogram, Groups, PacketEvent};

pub use self::hosts::{Connection, asking_flows};

use self::hosts::{Flow, Framing, Hosts, Load};
use self::records::{ack_record, drop_event, message_record};
use crate::network::Network;
use crate::quic::{SINK, SOURCE};
use crate::recorder::Recorder;
use crate::simulation::{SimError, Until};
use crate::wire::{Ack, Data, MSS_BYTES};

/// Events between two looks at the progress callback.
const EVENTS_PER_PROGRESS: u32 = 1 << 16;
/// Events at one moment after which a run is taken to go round in circles: more than the packets of
/// any window that fits into memory.
const MAX_EVENTS_AT_ONCE: u64 = 1 << 28;

/// More connections than this do not fit into the fastest caches: the processor is then asked to fetch the connection
/// of a packet while so many packets before it are dealt with.
const MANY_CONNECTIONS: usize = 100;
const AHEAD: usize = 2;

/// Everything that moves.
pub struct World<'a, N, R> {
    pub network: N,
    /// Connection i carries the data of flow i; those after the flows' carry requests.
    pub connections: Vec<Connection>,
    flows: Vec<Flow>,
    /// The flow of each connection of requests.
    asking: Vec<u32>,
    /// Pages that are loaded.
    loads: Vec<Load>,
    /// Those that have not come.
    loading: usize,
    /// Timer 2 i is the sender's of connection i, 2 i + 1 the receiver's; then one for each flow's
    /// application.
    timers: Timers,
    one_way_delay: DelayHistogram,
    groups: Groups,
    /// Flows that may still write, or wait for what they wrote.
    open: usize,
    keeps_drops: bool,
    over_quic: bool,
    recorder: &'a mut R,
}

impl<'a, N: Network, R: Recorder> World<'a, N, R> {
    /// The hosts of `scenario` around `network`; `schemes` are those of its groups of flows.
    pub fn new(
        scenario: &Scenario,
        schemes: &[Option<Scheme>],
        run_seed: u64,
        mut network: N,
        recorder: &'a mut R,
    ) -> Result<Self, SimError> {
        let Hosts {
            connections,
            flows,
            asking,
            loads,
            over_quic,
        } = Hosts::new(scenario, schemes, run_seed)?;
        let mut timers = Timers::new(2 * connections.len() + flows.len());
        for (id, flow) in (2 * connections.len() as u32..).zip(&flows) {
            timers.want(id, flow.application.next_write());
        }
        // the run may end when nothing is in transit, so all drops must be counted
        let datagrams = scenario
            .flows
            .iter()
            .any(|flow| flow.transport == Transport::Udp);
        let groups = Groups::new(scenario.flows.len());
        let keeps_drops = R::PACKETS || datagrams || over_quic || groups.are_counted();
        if keeps_drops {
            network.keep_drops();
        }
        if over_quic {
            network.keep_dropped_acks();
        }
        let mut world = Self {
            network,
            connections,
            open: flows.len(),
            flows,
            asking,
            loading: loads.len(),
            loads,
            timers,
            one_way_delay: DelayHistogram::default(),
            groups,
            keeps_drops,
            over_quic,
            recorder,
        };
        world.begin_quic();
        Ok(world)
    }

    /// Takes one event after another up to `end`, or until all flows have done what they ever will;
    /// returns the moment it got to.
    pub fn run(
        &mut self,
        end: Time,
        until: Until,
        progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
    ) -> Result<Time, SimError> {
        let (mut events, mut at_once, mut last) = (0, 0u64, Time::ZERO);
        loop {
            let data = self.network.next_data();
            let ack = self.network.next_ack();
            let timer = self.timers.next().unwrap_or(Time::MAX);
            let now = data.min(ack).min(timer);
            if R::QUEUES && now.min(end) >= self.recorder.next_look() {
                self.look_at_queues(now.min(end));
            }
            if now > end {
                return match self.open > 0 && now == Time::MAX {
                    true => Err(self.stalled(last, "no flow has anything left to wait for")),
                    false => Ok(end),
                };
            }
            if now == data {
                self.deliver_data(now);
            } else if now == ack {
                self.deliver_ack(now);
            } else if let Some((_, id)) = self.timers.pop(now) {
                self.wake(now, id);
            }
            events += 1;
            if events == EVENTS_PER_PROGRESS {
                events = 0;
                at_once += u64::from(EVENTS_PER_PROGRESS);
                if now > last {
                    at_once = 0;
                }
                if at_once > MAX_EVENTS_AT_ONCE {
                    return Err(self.stalled(now, "time does not pass any more"));
                }
                last = now;
                if progress(now).is_break() {
                    return Ok(now);
                }
            }
            if self.open == 0 && self.network.in_flight() == 0 {
                return Ok(now);
            }
            if N::BOTH_WAYS && until == Until::Loaded && self.loading == 0 {
                return Ok(now);
            }
        }
    }

    #[inline(always)]
    fn deliver_data(&mut self, now: Time) {
        let arrived = self.network.take_data(now);
        if self.connections.len() > MANY_CONNECTIONS
            && let Some(flow) = self.network.coming_data(AHEAD)
        {
            black_box(self.connections[flow as usize].receiver.touch());
        }
        if self.keeps_drops {
            self.note_drops();
        }
        let Some(data) = arrived else {
            return;
        };
        let delay = now.since(data.segment.sent_at);
        self.one_way_delay.record(delay.as_nanos());
        if let Some(group) = self.group(data.flow) {
            self.groups.deliver(group, delay.as_nanos());
        }
        if R::PACKETS {
            self.record_packet(now, &data, PacketEvent::Delivered, Some(delay));
            if data.segment.ecn() == Ecn::Marked {
                self.record_packet(now, &data, PacketEvent::Marked, Some(delay));
            }
        }
        if R::CAPTURE && data.flow as usize >= self.flows.len() {
            self.capture_data(now, &data);
        }
        let opposite = match N::BOTH_WAYS && !data.segment.is_empty() {
            true => self.opposite(data.flow),
            false => None,
        };
        let connection = &mut self.connections[data.flow as usize];
        if let Framing::Datagrams(datagrams) = &mut connection.framing {
            let bytes = DATAGRAM_BYTES - u32::from(data.segment.short_by_bytes());
            if let Some(message) = datagrams.on_arrival(now, data.segment.seq, bytes) {
                self.flows[data.flow as usize].deliver(now, &message);
            }
            return;
        }
        if N::BOTH_WAYS && matches!(connection.framing, Framing::Quic(_)) {
            return self.deliver_quic(now, data.flow, SINK, data.segment.seq);
        }
        if R::MESSAGES
            && let Framing::Messages(stream) = &mut connection.framing
            && !data.segment.is_empty()
            && !data.segment.is_fin()
            && !connection.receiver.has(data.segment.seq)
        {
            stream.note_arrived(now, data.segment.seq, data.segment.sent_at);
        }
        if let Some(opposite) = opposite {
            self.take_both(now, data.flow, opposite, &data.segment);
        } else if let Some(segment) = connection.receiver.on_data(now, &data.segment) {
            let flow = data.flow;
            if segment.is_syn {
                let timer = connection.receiver.next_timer();
                self.timers.want(2 * flow + 1, timer);
            }
            self.acknowledge(now, flow, segment);
        } else {
            let timer = connection.receiver.next_timer();
            self.timers.want(2 * data.flow + 1, timer);
        }
        if !matches!(self.connections[data.flow as usize].framing, Framing::Bulk) {
            self.deliver_messages(now, data.flow);
        }
    }

    /// Sends an acknowledgment of the data of `connection` that no data carries.
    #[inline(always)]
    fn acknowledge(&mut self, now: Time, connection: u32, segment: AckSegment) {
        let ack = Ack::of_tcp(connection, segment);
        if R::CAPTURE && connection as usize >= self.flows.len() {
            self.capture_ack(now, &ack);
        }
        self.network.acknowledge(now, ack);
    }

    #[inline(always)]
    const fn has_quic(&self) -> bool {
        N::BOTH_WAYS && self.over_quic
    }

    /// The table of a connection's data, where tables are counted apart; requests are of none.
    #[inline(always)]
    fn group(&self, connection: u32) -> Option<usize> {
        if !self.groups.are_counted() {
            return None;
        }
        let flow = self.flows.get(connection as usize)?;
        Some(flow.group)
    }

    /// Records packets that the network dropped in transit.
    fn note_drops(&mut self) {
        while let Some(dropped) = self.network.take_dropped() {
            if let Some(group) = self.group(dropped.packet.flow) {
                self.groups.drop(group);
            }
            if self.has_quic() {
                self.lose_quic(dropped.packet.flow, SOURCE, dropped.packet.segment.seq);
            }
            if R::PACKETS {
                let event = drop_event(dropped.reason);
                self.record_packet(dropped.at, &dropped.packet, event, None);
            }
        }
    }

    /// Reports to applications the messages of `connection` that are now complete.
    fn deliver_messages(&mut self, now: Time, connection: u32) {
        let flows = self.flows.len() as u32;
        let requests = connection >= flows;
        let owner = match requests {
            true => self.asking[(connection - flows) as usize],
            false => connection,
        };
        loop {
            let Connection {
                receiver, framing, ..
            } = &mut self.connections[connection as usize];
            let Framing::Messages(stream) = framing else {
                return;
            };
            let Some(whole) = stream.take_delivered(receiver.delivered()) else {
                break;
            };
            if N::BOTH_WAYS && self.flows[owner as usize].load.is_some() {
                self.deliver_of_page(now, owner, &whole.message);
                continue;
            }
            if R::MESSAGES {
                self.recorder.message(message_record(now, owner, &whole));
            }
            let flow = &mut self.flows[owner as usize];
            if let Some(response) = flow.deliver(now, &whole.message) {
                self.open_answers(now, owner, connection);
                if N::BOTH_WAYS {
                    self.cut_given_up(owner);
                }
                self.write(now, owner, Write::Message(response));
            } else {
                let next = flow.application.next_write();
                let id = self.application(owner);
                self.timers.want(id, next);
            }
        }
        if !requests {
            if N::BOTH_WAYS {
                self.tell_progress(now, owner);
            }
            self.complete_if_done(now, owner);
        }
    }

    /// The timer of flow `flow`'s application.
    fn application(&self, flow: u32) -> u32 {
        2 * self.connections.len() as u32 + flow
    }

    /// Counts a flow out that writes no more and whose writes have all arrived.
    fn complete_if_done(&mut self, now: Time, flow: u32) {
        let application = &mut self.flows[flow as usize].application;
        if !application.is_finished() {
            return;
        }
        let is_carried = match &self.connections[flow as usize].framing {
            Framing::Bulk => false,
            Framing::Datagrams(_) => true, // losses are not repaired
            Framing::Messages(stream) => stream.is_delivered() && !application.is_waiting(),
            Framing::Quic(quic) => quic.is_delivered() && !application.is_waiting(),
        };
        if application.complete(now, is_carried) {
            self.open -= 1;
        }
    }

    #[inline(always)]
    fn deliver_ack(&mut self, now: Time) {
        let arrived = self.network.take_ack(now);
        if self.connections.len() > MANY_CONNECTIONS
            && let Some(flow) = self.network.coming_ack(AHEAD)
        {
            black_box(self.connections[flow as usize].sender.touch());
        }
        if self.has_quic() {
            self.note_dropped_acks();
        }
        let Some(ack) = arrived else {
            return;
        };
        if R::CAPTURE && (ack.flow as usize) < self.flows.len() {
            self.capture_ack(now, &ack);
        }
        if N::BOTH_WAYS && ack.datagram_bytes > 0 {
            return self.deliver_quic(now, ack.flow, SOURCE, ack.segment.cumulative);
        }
        let Connection {
            sender, framing, ..
        } = &mut self.connections[ack.flow as usize];
        sender.on_ack(now, &ack.segment);
        if let Framing::Messages(stream) = framing {
            stream.forget(sender.una_and_next().0);
        }
        if ack.segment.is_syn {
            self.note_open(now, ack.flow);
        }
        self.send_data(now, ack.flow);
        if R::ACKS && !ack.segment.is_syn && (ack.flow as usize) < self.flows.len() {
            let connection = &self.connections[ack.flow as usize];
            self.recorder.ack(ack_record(now, ack.flow, connection));
        }
    }

    /// The SYN/ACK of `connection` arrived: what was written while it opened leaves.
    #[cold]
    fn note_open(&mut self, now: Time, connection: u32) {
        self.send_data(now, connection);
        if (connection as usize) < self.flows.len() {
            return self.close_if_done(now, connection);
        }
        // the end that asks has measured the round trip, and it also receives the answers
        let answers = self.asking[connection as usize - self.flows.len()];
        if let Some(rtt) = self.connections[connection as usize].sender.rtt().min() {
            self.connections[answers as usize].receiver.on_rtt(rtt);
        }
    }

    /// Ends the connection of a flow that closes it and writes no more. The FIN goes with the last data if
    /// that has not left yet.
    fn close_if_done(&mut self, now: Time, flow: u32) {
        let Flow {
            application,
            closes,
            ..
        } = &mut self.flows[flow as usize];
        let Connection {
            sender, framing, ..
        } = &mut self.connections[flow as usize];
        if !*closes || !application.is_finished() || !sender.is_open() {
            return;
        }
        *closes = false;
        if !sender.has_unsent()
            && let Framing::Messages(stream) = framing
        {
            sender.supply(stream.finish());
            self.send_data(now, flow);
        }
    }

    /// Sends what windows and pace allow; returns whether that was anything.
    #[inline]
    fn send_data(&mut self, now: Time, flow: u32) -> bool {
        let opposite = match N::BOTH_WAYS {
            true => self.opposite(flow),
            false => None,
        };
        if N::BOTH_WAYS && !self.loads.is_empty() {
            self.fill(now, flow);
        }
        let mut has_sent = false;
        let missing = (MSS_BYTES - self.connections[flow as usize].mss_bytes) as u16;
        while let Some(mut segment) = self.connections[flow as usize].sender.poll_transmit(now) {
            let mut short = 0;
            if let Framing::Messages(stream) = &mut self.connections[flow as usize].framing
                && !segment.is_empty()
            {
                if R::MESSAGES {
                    stream.note_sent(now, segment.seq);
                }
                if stream.is_fin(segment.seq) {
                    segment = segment.as_fin();
                } else if let Some(bytes) = stream.end_of_message(segment.seq) {
                    segment = segment.with_pushed(true);
                    short = bytes;
                }
            }
            segment = segment.with_short_by_bytes(short + missing);
            if let Some(opposite) = opposite
                && !segment.is_empty()
            {
                self.carry(now, flow, opposite);
            }
            self.send(now, Data { flow, segment });
            has_sent = true;
        }
        let sender = &self.connections[flow as usize].sender;
        self.timers.want(2 * flow, sender.next_timer());
        has_sent
    }

    #[inline(always)]
    fn send(&mut self, now: Time, data: Data) {
        if R::PACKETS {
            self.record_packet(now, &data, PacketEvent::Sent, None);
        }
        if R::CAPTURE && (data.flow as usize) < self.flows.len() {
            self.capture_data(now, &data);
        }
        let group = self.group(data.flow);
        if let Some(group) = group {
            self.groups.offer(group);
        }
        // the sender will find out by itself
        if let Err((data, reason)) = self.network.send(now, data) {
            if let Some(group) = group {
                self.groups.drop(group);
            }
            if self.has_quic() {
                self.lose_quic(data.flow, SOURCE, data.segment.seq);
            }
            if R::PACKETS {
                self.record_packet(now, &data, drop_event(reason), None);
            }
        }
    }

    fn wake(&mut self, now: Time, id: u32) {
        let index = id / 2;
        if let Some(flow) = id.checked_sub(2 * self.connections.len() as u32) {
            self.write_due(now, flow);
        } else if self.has_quic() && self.quic(index).is_some() {
            self.wake_quic(now, index, id as usize % 2);
        } else if id % 2 == 1 {
            let receiver = &mut self.connections[index as usize].receiver;
            let answer = receiver.on_timer(now);
            self.timers.want(id, receiver.next_timer());
            if let Some(segment) = answer {
                self.acknowledge(now, index, segment);
            }
        } else {
            self.connections[index as usize].sender.on_timer(now);
            self.send_data(now, index);
        }
    }

    /// Lets the application of `flow` write what is due.
    fn write_due(&mut self, now: Time, flow: u32) {
        while let Some(write) = self.flows[flow as usize].application.write(now) {
            let to = self.flows[flow as usize].requests.unwrap_or(flow);
            self.write(now, to, write);
        }
        let id = self.application(flow);
        let next_write = self.flows[flow as usize].application.next_write();
        self.timers.want(id, next_write);
        if N::BOTH_WAYS && self.flows[flow as usize].load.is_some() {
            self.advance_page(now, flow);
        }
        self.close_if_done(now, flow);
        self.complete_if_done(now, flow);
    }

    /// Puts a write into `connection`.
    fn write(&mut self, now: Time, connection: u32, write: Write<Message>) {
        let Connection {
            sender, framing, ..
        } = &mut self.connections[connection as usize];
        match (framing, write) {
            (Framing::Bulk, Write::Message(_) | Write::Endless) => sender.supply(u64::MAX),
            (Framing::Messages(stream), Write::Message(message)) => {
                sender.supply(stream.write(message));
            }
            (Framing::Messages(stream), Write::Endless) => sender.supply(stream.write_endless()),
            (Framing::Messages(stream), Write::Stop) => {
                let (_, next) = sender.una_and_next();
                sender.end_at(stream.stop(next));
                let delivered = self.connections[connection as usize].receiver.delivered();
                if let Framing::Messages(stream) =
                    &mut self.connections[connection as usize].framing
                {
                    // all of it may be there already
                    stream.take_delivered(delivered);
                }
            }
            (Framing::Datagrams(datagrams), Write::Message(message)) => {
                let flow = connection;
                let numbers = datagrams.write(message);
                let short = (DATAGRAM_BYTES - Datagrams::last_bytes(message.bytes)) as u16;
                let last = numbers.end - 1;
                for seq in numbers {
                    let short = if seq == last { short } else { 0 };
                    let segment = DataSegment::new(now, seq).with_short_by_bytes(short);
                    self.send(now, Data { flow, segment });
                }
                return;
            }
            (Framing::Quic(_), _) => return self.write_quic(now, connection, write),
            (Framing::Bulk, Write::Stop) | (Framing::Datagrams(_), _) => return,
        }
        self.send_data(now, connection);
    }
}
