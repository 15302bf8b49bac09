//! Links in any arrangement: each packet crosses those of its route.

use std::collections::VecDeque;

use pathcast_path::delay::DelayLine;
use pathcast_path::{Channel, Counters, DropReason, Dropped, Heading, PacketInfo, Span, Time};

use crate::scenario::Scenario;
use crate::timers::Timers;

/// A packet in transit, how many nodes of its route it has passed, and whether it was marked.
#[derive(Clone, Debug)]
struct Travelling<P> {
    packet: P,
    info: PacketInfo,
    route: u32,
    hop: u32,
    marked: bool,
}

/// A delay that the flows of a group have to themselves, in one direction.
#[derive(Clone, Debug)]
struct OwnDelay<P> {
    span: Span,
    line: DelayLine<Travelling<P>>,
}

/// A packet that has reached the end of its route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit<P> {
    /// When it was due there.
    pub due: Time,
    /// The packet.
    pub packet: P,
    /// Whether a queue marked it: congestion experienced (RFC 3168).
    pub marked: bool,
}

/// The route of the group of flows number `group` for packets of this `heading`, as the network numbers it.
pub const fn route(group: usize, heading: Heading) -> u32 {
    2 * group as u32 + heading as u32
}

/// The links of a scenario and the routes of its groups of flows, for packets that carry a `P`.
///
/// A node is one direction of a link, or a delay of some flows' own. Each keeps one wake-up in a
/// heap, so that an event costs the logarithm of the number of nodes, not of packets or flows. As a
/// channel, it owns no clock.
#[derive(Clone, Debug)]
pub struct Network<P> {
    /// Node 2 i is the forward direction of link i, and 2 i + 1 its reverse direction.
    channels: Vec<Channel<Travelling<P>>>,
    /// The nodes after them.
    delays: Vec<OwnDelay<P>>,
    /// The nodes of each route.
    routes: Vec<Vec<u32>>,
    /// One timer a node.
    events: Timers,
    dropped: VecDeque<Dropped<P>>,
}

impl<P> Network<P> {
    /// The links of `scenario` with the random elements of `seed`.
    pub fn new(scenario: &Scenario, seed: u64) -> Self {
        let mut channels = Vec::new();
        for (number, link) in (0..).zip(&scenario.links) {
            // the first link draws as it does where it is the only one
            let own_seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number));
            let (out, back) = link.path.channels::<Travelling<P>, Travelling<P>>(own_seed);
            channels.extend([out, back]);
        }
        for channel in &mut channels {
            channel.keep_drops();
        }
        let (mut delays, mut routes) = (Vec::new(), Vec::new());
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
            routes.extend([out, back]);
        }
        let events = Timers::new(channels.len() + delays.len());
        Self {
            channels,
            delays,
            routes,
            events,
            dropped: VecDeque::new(),
        }
    }

    /// Offers a packet to the first link of a [`route`] at `now`, which is never before the `now` of
    /// an earlier call.
    ///
    /// A packet that is taken in may be dropped later: see [`Network::take_dropped`].
    ///
    /// # Errors
    /// Hands the packet back with the reason if it is known already that it is dropped.
    pub fn enter(
        &mut self,
        now: Time,
        route: u32,
        info: PacketInfo,
        packet: P,
    ) -> Result<(), (P, DropReason)> {
        self.pass(
            now,
            Travelling {
                packet,
                info,
                route,
                hop: 0,
                marked: false,
            },
        )
    }

    /// When something happens next, if anything will.
    #[inline]
    pub fn next_event(&self) -> Option<Time> {
        self.events.next()
    }

    /// Does the first thing that is due at `now` or was before. Gives the packet that reached the end
    /// of its route in it; [`Network::next_event`] says whether there is more to do.
    pub fn advance(&mut self, now: Time) -> Option<Exit<P>> {
        let (at, node) = self.events.pop(now)?;
        // whoever looks late sees what would have been on time
        let mut travelling = self.leave(at, node)?;
        travelling.hop += 1;
        let nodes = &self.routes[travelling.route as usize];
        if (travelling.hop as usize) < nodes.len() {
            if let Err((packet, reason)) = self.pass(at, travelling) {
                self.dropped.push_back(Dropped { at, packet, reason });
            }
            return None;
        }
        Some(Exit {
            due: at,
            packet: travelling.packet,
            marked: travelling.marked,
        })
    }

    /// The next packet that was dropped after it was taken in, and not yet taken here.
    #[inline]
    pub fn take_dropped(&mut self) -> Option<Dropped<P>> {
        self.dropped.pop_front()
    }

    /// What each direction of each link has counted, in their order: out, back, out, ...
    pub fn counters(&self) -> impl Iterator<Item = Counters> {
        self.channels.iter().map(Channel::counters)
    }

    /// Bytes that wait at `now` for each direction of each link, in the order of `counters`; the packets in
    /// transmission are not counted.
    pub fn backlogs_bytes(&mut self, now: Time) -> impl Iterator<Item = u64> {
        (self.channels.iter_mut()).map(move |channel| channel.backlog_bytes(now))
    }

    /// Puts a packet into the node that it is to pass next.
    fn pass(&mut self, now: Time, travelling: Travelling<P>) -> Result<(), (P, DropReason)> {
        let node = self.routes[travelling.route as usize][travelling.hop as usize];
        let at = node as usize;
        let Some(channel) = self.channels.get_mut(at) else {
            let own = &mut self.delays[at - self.channels.len()];
            own.line.push(now + own.span, travelling);
            let next = own.line.next_due();
            self.events.want(node, next);
            return Ok(());
        };
        let taken = channel.enqueue_as(now, travelling.info, travelling);
        let next = channel.next_event();
        self.events.want(node, next);
        self.collect_drops(at);
        taken.map_err(|(travelling, reason)| (travelling.packet, reason))
    }

    /// Takes a packet out of `node`, if one is due.
    fn leave(&mut self, now: Time, node: u32) -> Option<Travelling<P>> {
        let at = node as usize;
        let Some(channel) = self.channels.get_mut(at) else {
            let own = &mut self.delays[at - self.channels.len()];
            let left = own.line.pop(now);
            let next = own.line.next_due();
            self.events.want(node, next);
            return left.map(|(_, travelling)| travelling);
        };
        let arrival = channel.receive(now);
        let next = channel.next_event();
        self.events.want(node, next);
        self.collect_drops(at);
        let mut arrival = arrival?;
        arrival.packet.marked |= arrival.marked;
        Some(arrival.packet)
    }

    /// Notes what a channel has dropped of the packets that it had taken in.
    #[inline]
    fn collect_drops(&mut self, channel: usize) {
        while let Some(dropped) = self.channels[channel].take_dropped() {
            self.dropped.push_back(Dropped {
                at: dropped.at,
                packet: dropped.packet.packet,
                reason: dropped.reason,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_LINKS: &str = "
        [links.near]
        rate = '12 Mbit/s'
        delay = '10 ms'
        queue = '3 packets'
        [links.far]
        rate = '6 Mbit/s'
        delay = '5 ms'
        queue = '2 packets'
        [[flows]]
        scheme = 'reno'
        [[flows]]
        scheme = 'reno'
        route = ['far']
        delay = '7 ms'
    ";

    fn network() -> Network<u32> {
        Network::new(&Scenario::parse(TWO_LINKS, "test.toml").unwrap(), 1)
    }

    fn drain(network: &mut Network<u32>) -> (Vec<(u64, u32)>, Vec<u32>) {
        let (mut exits, mut drops) = (Vec::new(), Vec::new());
        while let Some(now) = network.next_event() {
            if let Some(exit) = network.advance(now) {
                exits.push(((exit.due.as_nanos() + 500) / 1000, exit.packet));
            }
            while let Some(dropped) = network.take_dropped() {
                drops.push(dropped.packet);
            }
        }
        (exits, drops)
    }

    #[test]
    fn a_packet_crosses_the_links_of_its_route_there_and_back() {
        let mut network = network();
        let full = PacketInfo::of_size(1500);
        for (group, heading, packet) in [
            (0, Heading::Forward, 1),
            (1, Heading::Forward, 2),
            (0, Heading::Reverse, 3),
        ] {
            network
                .enter(Time::ZERO, route(group, heading), full, packet)
                .unwrap();
        }
        let (mut exits, drops) = drain(&mut network);
        exits.sort_unstable();
        // 1 ms at 12 Mbit/s, 2 ms at 6 Mbit/s
        assert_eq!(exits, [(14_000, 2), (18_000, 1), (18_000, 3)]);
        assert!(drops.is_empty());
    }

    #[test]
    fn the_slower_link_drops_what_the_faster_lets_through() {
        let mut network = network();
        let full = PacketInfo::of_size(1500);
        let taken: Vec<bool> = (0..5)
            .map(|packet| network.enter(Time::ZERO, 0, full, packet).is_ok())
            .collect();
        assert_eq!(taken, [true, true, true, true, false]); // one on the link, three wait
        for packet in 10..14 {
            let _ = network.enter(Time::from_nanos(9_500_000), 2, full, packet);
        }
        let (exits, drops) = drain(&mut network);
        assert_eq!(exits.len() + drops.len(), 8);
        assert!(!drops.is_empty());
        let counts = network.counters().map(|c| (c.delivered, c.dropped()));
        assert_eq!(
            counts.collect::<Vec<_>>(),
            [
                (4, 1),
                (0, 0),
                (exits.len() as u64, drops.len() as u64),
                (0, 0)
            ]
        );
    }

    #[test]
    fn whoever_looks_late_sees_what_would_have_been_on_time() {
        let full = PacketInfo::of_size(1500);
        let late = |steps: u64| {
            let mut network = network();
            for packet in 0..40 {
                let now = Time::from_nanos(u64::from(packet) * 1_300_000);
                while network.next_event().is_some_and(|at| at <= now) {
                    network.advance(now);
                }
                let _ = network.enter(now, 0, full, packet);
            }
            let mut exits = Vec::new();
            let mut now = Time::from_nanos(53_000_000);
            while network.next_event().is_some() {
                now += Span::from_nanos(steps);
                while network.next_event().is_some_and(|at| at <= now) {
                    exits.extend(network.advance(now).map(|exit| (exit.due, exit.packet)));
                }
            }
            exits
        };
        assert_eq!(late(1_000), late(3_000_000));
        assert_eq!(late(1_000), late(1_000_000_000));
    }
}
