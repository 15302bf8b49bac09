//! Links in any arrangement, data in either direction.

use std::collections::VecDeque;

use pathcast_path::{Counters, DropReason, Dropped, Time};
use pathcast_scenario::{Scenario, route};

use crate::network::Network;
use crate::wire::{Ack, Body, Data};

/// The routes of a connection's data and of its acknowledgments.
#[derive(Clone, Copy, Debug)]
struct Routes {
    data: u32,
    ack: u32,
}

/// The links of a scenario, and what became of the data packets that crossed them.
#[derive(Debug)]
pub struct Routed {
    links: pathcast_scenario::Network<Body>,
    /// Of each connection.
    connections: Vec<Routes>,
    /// Acknowledgments that have reached their senders, who have not taken them yet.
    acks: VecDeque<(Time, Ack)>,
    counters: Counters,
    /// Data packets that were dropped in transit and not taken yet, if they are kept.
    dropped: Option<VecDeque<Dropped<Data>>>,
    /// The same for QUIC's datagrams in the reverse direction.
    dropped_acks: Option<VecDeque<Ack>>,
}

impl Routed {
    /// The links of `scenario` with the random elements of `seed`. Connection i is flow i; those
    /// after them carry the requests of the flows `asking`, in their order, the other way.
    pub fn new(scenario: &Scenario, seed: u64, asking: &[u32]) -> Self {
        let mut connections = Vec::new();
        for (group, spec) in scenario.flows.iter().enumerate() {
            let data = route(group, spec.heading);
            let ack = route(group, spec.heading.opposite());
            connections.extend((0..spec.connections()).map(|_| Routes { data, ack }));
        }
        for &flow in asking {
            let Routes { data, ack } = connections[flow as usize];
            let (data, ack) = (ack, data);
            connections.push(Routes { data, ack });
        }
        Self {
            links: pathcast_scenario::Network::new(scenario, seed),
            connections,
            acks: VecDeque::new(),
            counters: Counters::default(),
            dropped: None,
            dropped_acks: None,
        }
    }

    /// Counts the data packets that were dropped in transit.
    fn collect_drops(&mut self) {
        while let Some(Dropped { at, packet, reason }) = self.links.take_dropped() {
            match packet {
                Body::Data(packet) => {
                    self.counters.count(reason);
                    if let Some(dropped) = &mut self.dropped {
                        dropped.push_back(Dropped { at, packet, reason });
                    }
                }
                Body::Ack(ack) => {
                    if let Some(dropped) = &mut self.dropped_acks {
                        dropped.push_back(ack);
                    }
                }
            }
        }
    }
}

impl Network for Routed {
    const BOTH_WAYS: bool = true;

    #[inline]
    fn next_data(&self) -> Time {
        self.links.next_event().unwrap_or(Time::MAX)
    }

    #[inline]
    fn next_ack(&self) -> Time {
        self.acks.front().map_or(Time::MAX, |(at, _)| *at)
    }

    fn send(&mut self, now: Time, data: Data) -> Result<(), (Data, DropReason)> {
        self.counters.enqueued += 1;
        self.counters.enqueued_bytes += u64::from(data.size_bytes());
        let route = self.connections[data.flow as usize].data;
        let taken = self.links.enter(now, route, data.info(), Body::Data(data));
        self.collect_drops();
        taken.map_err(|(_, reason)| {
            self.counters.count(reason);
            (data, reason)
        })
    }

    fn acknowledge(&mut self, now: Time, ack: Ack) -> bool {
        let route = self.connections[ack.flow as usize].ack;
        let taken = self.links.enter(now, route, ack.info(), Body::Ack(ack));
        self.collect_drops();
        taken.is_ok()
    }

    fn take_data(&mut self, now: Time) -> Option<Data> {
        let exit = self.links.advance(now);
        self.collect_drops();
        let exit = exit?;
        match exit.packet {
            Body::Data(mut data) => {
                self.counters.delivered += 1;
                if exit.marked && data.segment.mark() {
                    self.counters.marked += 1;
                }
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

    fn keep_dropped_acks(&mut self) {
        self.dropped_acks.get_or_insert_default();
    }

    fn take_dropped_ack(&mut self) -> Option<Ack> {
        self.dropped_acks.as_mut()?.pop_front()
    }

    fn look_at_queues(&mut self, now: Time, each: &mut dyn FnMut(u64)) {
        self.links.backlogs_bytes(now).for_each(each);
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
