//! Links in any arrangement: each flow crosses those of its route, data in either direction.

use std::collections::VecDeque;

use pathcast_path::delay::DelayLine;
use pathcast_path::{Channel, Counters, DropReason, Dropped, Span, Time};
use pathcast_scenario::{Heading, Scenario};

use crate::network::Network;
use crate::timers::Timers;
use crate::wire::{Ack, Body, Data};

/// A packet on its way, and how many nodes of its route it has passed.
#[derive(Clone, Copy, Debug)]
struct Packet {
    body: Body,
    hop: u32,
}

/// A delay that the flows of a group have to themselves, in one direction.
#[derive(Debug)]
struct OwnDelay {
    span: Span,
    line: DelayLine<Packet>,
}

/// The nodes that the data of a connection passes, and those that its acknowledgments do, as indices
/// into the list of routes.
#[derive(Clone, Copy, Debug)]
struct Routes {
    data: u32,
    ack: u32,
}

/// Links and routes over them.
///
/// A node is one direction of a link, or a delay of some flows' own. Each keeps one wake-up in a
/// heap, so that an event costs the logarithm of the number of nodes, not of packets or flows.
#[derive(Debug)]
pub struct Routed {
    /// Node 2 i is link i forward, 2 i + 1 its way back.
    channels: Vec<Channel<Packet>>,
    /// The nodes after them.
    delays: Vec<OwnDelay>,
    routes: Vec<Vec<u32>>,
    /// Of each connection.
    connections: Vec<Routes>,
    events: Timers,
    /// Acknowledgments that have reached their senders, who have not taken them yet.
    acks: VecDeque<(Time, Ack)>,
    counters: Counters,
    /// Drops that nobody has looked at yet, if they are kept.
    dropped: Option<VecDeque<Dropped<Data>>>,
}

impl Routed {
    /// The links of `scenario` with the random elements of `seed`. Connection i is flow i; those
    /// after them carry the requests of the flows `asking`, in their order, the other way.
    pub fn new(scenario: &Scenario, seed: u64, asking: &[u32]) -> Self {
        let mut channels = Vec::new();
        for (number, link) in (0..).zip(&scenario.links) {
            // the first link draws as it does where it is the only one
            let own_seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number));
            let (forward, reverse) = link.path.channels::<Packet, Packet>(own_seed);
            channels.extend([forward, reverse]);
        }
        for channel in &mut channels {
            channel.keep_drops();
        }
        let (mut delays, mut routes, mut connections) = (Vec::new(), Vec::new(), Vec::new());
        for spec in &scenario.flows {
            let mut out: Vec<u32> = spec.route.iter().map(|&link| 2 * link as u32).collect();
            let mut back: Vec<u32> = out.iter().rev().map(|node| node + 1).collect();
            if spec.delay > Span::ZERO {
                let node = (channels.len() + delays.len()) as u32;
                out.insert(0, node);
                back.push(node + 1);
                for _ in 0..2 {
                    let (span, line) = (spec.delay, DelayLine::default());
                    delays.push(OwnDelay { span, line });
                }
            }
            let (out_at, back_at) = (routes.len() as u32, routes.len() as u32 + 1);
            routes.extend([out, back]);
            let (data, ack) = match spec.heading {
                Heading::Forward => (out_at, back_at),
                Heading::Reverse => (back_at, out_at),
            };
            connections.extend((0..spec.count).map(|_| Routes { data, ack }));
        }
        for &flow in asking {
            let Routes { data, ack } = connections[flow as usize];
            let (data, ack) = (ack, data);
            connections.push(Routes { data, ack });
        }
        let events = Timers::new(channels.len() + delays.len());
        Self {
            channels,
            delays,
            routes,
            connections,
            events,
            acks: VecDeque::new(),
            counters: Counters::default(),
            dropped: None,
        }
    }

    /// The nodes of the packet's route.
    fn route(&self, body: &Body) -> &[u32] {
        let connection = self.connections[body.flow() as usize];
        let route = match body {
            Body::Data(_) => connection.data,
            Body::Ack(_) => connection.ack,
        };
        &self.routes[route as usize]
    }

    /// Puts a packet into the node that it is to pass next.
    fn enter(&mut self, now: Time, packet: Packet) -> Result<(), (Body, DropReason)> {
        let node = self.route(&packet.body)[packet.hop as usize];
        let at = node as usize;
        if let Some(channel) = self.channels.get_mut(at) {
            let taken = channel.enqueue_as(now, packet.body.info(), packet);
            self.events.want(node, channel.next_event());
            self.collect_drops(at);
            return taken.map_err(|(packet, reason)| (packet.body, reason));
        }
        let own = &mut self.delays[at - self.channels.len()];
        own.line.push(now + own.span, packet);
        self.events.want(node, own.line.next_due());
        Ok(())
    }

    /// Notes a packet that was dropped under way.
    fn drop(&mut self, at: Time, body: Body, reason: DropReason) {
        if let Body::Data(packet) = body {
            self.counters.count(reason);
            if let Some(dropped) = &mut self.dropped {
                dropped.push_back(Dropped { at, packet, reason });
            }
        }
    }

    /// Notes what `channel` has dropped of the packets that it had taken in.
    #[inline]
    fn collect_drops(&mut self, channel: usize) {
        while let Some(dropped) = self.channels[channel].take_dropped() {
            self.drop(dropped.at, dropped.packet.body, dropped.reason);
        }
    }

    /// Takes a packet out of `node`, if one is due.
    fn leave(&mut self, now: Time, node: u32) -> Option<Packet> {
        let at = node as usize;
        let Some(channel) = self.channels.get_mut(at) else {
            let own = &mut self.delays[at - self.channels.len()];
            let left = own.line.pop(now);
            self.events.want(node, own.line.next_due());
            return left.map(|(_, packet)| packet);
        };
        let arrival = channel.receive(now);
        self.events.want(node, channel.next_event());
        self.collect_drops(at);
        let mut arrival = arrival?;
        if arrival.marked
            && let Body::Data(data) = &mut arrival.packet.body
            && data.segment.mark()
        {
            self.counters.marked += 1;
        }
        Some(arrival.packet)
    }
}

impl Network for Routed {
    #[inline]
    fn next_data(&self) -> Time {
        self.events.next().unwrap_or(Time::MAX)
    }

    #[inline]
    fn next_ack(&self) -> Time {
        self.acks.front().map_or(Time::MAX, |(at, _)| *at)
    }

    fn send(&mut self, now: Time, data: Data) -> Result<(), (Data, DropReason)> {
        self.counters.enqueued += 1;
        self.counters.enqueued_bytes += u64::from(data.size_bytes());
        let (body, hop) = (Body::Data(data), 0);
        self.enter(now, Packet { body, hop })
            .map_err(|(_, reason)| {
                self.counters.count(reason);
                (data, reason)
            })
    }

    fn acknowledge(&mut self, now: Time, ack: Ack) {
        let (body, hop) = (Body::Ack(ack), 0);
        let _ = self.enter(now, Packet { body, hop });
    }

    fn take_data(&mut self, now: Time) -> Option<Data> {
        let node = self.events.pop(now)?;
        let mut packet = self.leave(now, node)?;
        packet.hop += 1;
        if (packet.hop as usize) < self.route(&packet.body).len() {
            if let Err((body, reason)) = self.enter(now, packet) {
                self.drop(now, body, reason);
            }
            return None;
        }
        match packet.body {
            Body::Data(data) => {
                self.counters.delivered += 1;
                Some(data)
            }
            Body::Ack(ack) => {
                self.acks.push_back((now, ack));
                None
            }
        }
    }

    fn take_ack(&mut self, now: Time) -> Option<Ack> {
        if self.next_ack() > now {
            return None;
        }
        self.acks.pop_front().map(|(_, ack)| ack)
    }

    fn keep_drops(&mut self) {
        self.dropped.get_or_insert_default();
    }

    fn take_dropped(&mut self) -> Option<Dropped<Data>> {
        self.dropped.as_mut()?.pop_front()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
