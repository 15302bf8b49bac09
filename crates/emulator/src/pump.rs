//! The thread that carries packets between two hosts over the links of a scenario, in real time.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pathcast_base::clock::{RunClock, thread_cpu_s};
use pathcast_netns::{Device, Protocol, Segment, SuperBuffer, read_headers};
use pathcast_path::loss::LossSpec;
use pathcast_path::{Counters, Dropped, End, Heading, PacketInfo, Time};
use pathcast_probe::realtime::request_fifo;
use pathcast_scenario::{Network, Scenario, route};
use pathcast_trace::{DelayHistogram, Groups};

use crate::error::EmulatorError;
use crate::joiner::{Batch, Joiner, Leaving};
use crate::packet::{Buffer, Header, Kind, Packet, Pool, inspect, mark};
use crate::packet_log::{Event, Log};
use crate::waiting::{Turn, Waiting};

/// Packets taken from one device before the other has its turn.
const BATCH: usize = 64;

/// Up to this rate, the thread wakes for each packet; above it, waking costs more than carrying
/// (50 % of a core at 500 Mbit/s), and it sleeps for a while after each turn.
const WAKE_PER_PACKET_UP_TO_BPS: f64 = 500e6;

/// Whether a direction of a link of `scenario` is so fast that packets should be carried in groups.
pub(crate) fn is_fast(scenario: &Scenario) -> bool {
    let directions = scenario.links.iter();
    let fastest_bps = directions
        .flat_map(|link| [&link.path.forward, &link.path.reverse])
        .map(|direction| {
            let rate = direction.peak_rate();
            rate.map_or(f64::INFINITY, |rate| rate.as_bps())
        })
        .fold(0.0, f64::max);
    fastest_bps > WAKE_PER_PACKET_UP_TO_BPS
}

/// What the pump did.
#[derive(Default)]
pub(crate) struct PumpReport {
    /// Packets of data, repaired or not, that were offered.
    pub(crate) data_offered: u64,
    /// Of those, packets that the far end's device took.
    pub(crate) data_delivered: u64,
    /// Of those that TCP repairs, when each was dropped, on the monotonic clock.
    pub(crate) data_drops_ns: Vec<u64>,
    /// Datagrams that were dropped, those of QUIC among them.
    pub(crate) datagram_drops: u64,
    /// Other packets that were dropped.
    pub(crate) other_drops: u64,
    /// Packets that were marked.
    pub(crate) marked: u64,
    /// Packets that a device did not take or give.
    pub(crate) device_errors: u64,
    /// From one device to the other, data only.
    pub(crate) delays: DelayHistogram,
    /// Data by table of flows.
    pub(crate) groups: Groups,
    /// How late packets left, all of them.
    pub(crate) slips: DelayHistogram,
    /// What each direction of each link has counted: out, back, out, ...
    pub(crate) counters: Vec<Counters>,
    /// Processor time in seconds.
    pub(crate) cpu_s: f64,
    /// Why the thread was not in `SCHED_FIFO`.
    pub(crate) fifo_refused: Option<String>,
}

impl PumpReport {
    fn note_drop(&mut self, at_ns: u64, kind: Kind, flow: u64) {
        if kind != Kind::Other {
            self.groups.drop(group_of(flow));
        }
        match kind {
            Kind::Data => self.data_drops_ns.push(at_ns),
            Kind::Datagram => self.datagram_drops += 1,
            Kind::Other => self.other_drops += 1,
        }
    }
}

/// How a run begins, between the thread that connects its flows and the pump.
#[derive(Default)]
pub(crate) struct Beginning(AtomicU8);

impl Beginning {
    /// Flows are connected, and time 0 comes once nothing is in the network; it comes now; it has come.
    const CONNECTED: u8 = 1;
    const NOW: u8 = 2;
    const BEGUN: u8 = 3;
    /// What handshakes have left in the network arrives within this time; the pump looks more often than each second.
    const DRAINS_WITHIN: Duration = Duration::from_secs(2);
    const LOOKS_WITHIN: Duration = Duration::from_secs(1);

    /// All flows are connected: returns when time 0 of the network has come.
    pub(crate) fn begin(&self) {
        self.0.store(Self::CONNECTED, Ordering::Release);
        let connected = Instant::now();
        while self.0.load(Ordering::Acquire) != Self::BEGUN
            && connected.elapsed() < Self::DRAINS_WITHIN + Self::LOOKS_WITHIN
        {
            if connected.elapsed() > Self::DRAINS_WITHIN {
                let (set, failed) = (Ordering::Release, Ordering::Relaxed);
                let _ = (self.0).compare_exchange(Self::CONNECTED, Self::NOW, set, failed);
            }
            sleep(Duration::from_micros(20));
        }
    }

    /// Whether time 0 is now, where so many packets are in the network.
    #[inline]
    fn is_now(&self, inside: usize) -> bool {
        match self.0.load(Ordering::Acquire) {
            Self::CONNECTED => inside == 0,
            state => state == Self::NOW,
        }
    }
}

/// `scenario` without random losses, so that handshakes take as many packets in each run.
fn lossless(scenario: &Scenario) -> Scenario {
    let mut scenario = scenario.clone();
    for link in &mut scenario.links {
        for direction in [&mut link.path.forward, &mut link.path.reverse] {
            direction.loss = LossSpec::default();
            (direction.schedule.iter_mut()).for_each(|change| change.loss = None);
        }
    }
    scenario
}

/// Which packets a pump carries.
enum Carried {
    /// Those of groups of flows, by their addresses. Of each group: where its data goes, and whether
    /// TCP carries it.
    Groups(Vec<(End, bool)>),
    /// Whatever comes, all over the route of the first group.
    Everything,
}

/// What the pump must know about a packet that arrived.
struct Crossing {
    route: u32,
    to: End,
    kind: Kind,
    /// The key by which a queue that is fair between flows distinguishes them.
    flow: u64,
    ecn_capable: bool,
}

/// Carries packets between two devices.
pub(crate) struct Pump<'a> {
    /// The clock that the network lives by: zero when the run began, and before that when the pump was made.
    clock: RunClock,
    /// The network of the run while flows connect over another, and what says when it begins.
    next: Option<(Network<Packet>, &'a Beginning)>,
    /// Packets in the network.
    inside: usize,
    near: &'a Device,
    far: &'a Device,
    network: Network<Packet>,
    carried: Carried,
    pool: Pool,
    report: PumpReport,
    log: Option<Log>,
    waiting: Waiting,
    /// Room for what devices with super-packets give, and what they take; none with others.
    super_buffer: Option<SuperBuffer>,
    joiner: Option<Joiner>,
}

impl<'a> Pump<'a> {
    /// A pump between the devices of the near and the far host, that holds up to about `packets` packets.
    pub(crate) fn new(
        scenario: &Scenario,
        seed: u64,
        near: &'a Device,
        far: &'a Device,
        packets: usize,
        log: Option<Log>,
    ) -> Result<Self, EmulatorError> {
        let waiting = Waiting::new([near, far], is_fast(scenario))
            .map_err(|errno| EmulatorError::from_io("setting up epoll", errno))?;
        if near.super_packets() != far.super_packets() {
            let one = io::Error::other("only one of the devices has super-packets");
            return Err(EmulatorError::from_io("setting up the devices", one));
        }
        let groups = scenario.flows.iter().map(|spec| {
            let to = End::source_of(spec.heading).opposite();
            (to, spec.transport.is_tcp())
        });
        Ok(Self {
            clock: RunClock::start(),
            next: None,
            inside: 0,
            near,
            far,
            network: Network::new(scenario, seed),
            carried: Carried::Groups(groups.collect()),
            pool: Pool::new(packets),
            report: PumpReport {
                data_drops_ns: Vec::with_capacity(1 << 16),
                groups: Groups::new(scenario.flows.len()),
                ..PumpReport::default()
            },
            log,
            waiting,
            super_buffer: near.super_packets().then(SuperBuffer::default),
            joiner: near.super_packets().then(Joiner::new),
        })
    }

    /// Until `beginning` carries handshakes, without random losses. Then time and all random elements begin anew, so that
    /// a run does not depend on how many packets its handshakes took.
    pub(crate) fn connecting_first(
        mut self,
        scenario: &Scenario,
        seed: u64,
        beginning: &'a Beginning,
    ) -> Self {
        let handshakes = Network::new(&lossless(scenario), seed);
        let run = std::mem::replace(&mut self.network, handshakes);
        self.next = Some((run, beginning));
        self
    }

    /// Time 0 of the run, if it is now.
    fn begin(&mut self) {
        let is_now = |(_, beginning): &mut (_, &Beginning)| beginning.is_now(self.inside);
        if let Some((run, beginning)) = self.next.take_if(is_now) {
            self.network = run;
            self.clock = RunClock::start();
            self.inside = 0;
            self.waiting.restart();
            beginning.0.store(Beginning::BEGUN, Ordering::Release);
        }
    }

    /// From now on carries whatever comes, whoever it is from, over the route of the first group.
    pub(crate) fn carrying_everything(mut self) -> Self {
        self.carried = Carried::Everything;
        self
    }

    /// Carries packets until `stop`.
    pub(crate) fn run(mut self, fifo_priority: i32, stop: &AtomicBool) -> PumpReport {
        self.report.fifo_refused = request_fifo(fifo_priority)
            .err()
            .map(|error| error.to_string());
        while !stop.load(Ordering::Relaxed) {
            self.begin();
            let gave = self.let_go(self.clock.now());
            let (mut worked, mut more, (near, far)) = (gave, false, (self.near, self.far));
            for (end, device) in [(End::Near, near), (End::Far, far)] {
                let (more_in, came) = self.take_in(end, device);
                more |= more_in;
                worked |= came;
            }
            if !more {
                let turn = Turn { worked, gave };
                let (now, next) = (self.clock.now(), self.network.next_event());
                self.waiting.wait(now, next, turn);
            }
        }
        self.report.counters = self.network.counters().collect();
        self.report.cpu_s = thread_cpu_s();
        self.report
    }

    /// What a packet that came at the end `from` is; none if it is not to be carried, such as what a
    /// kernel says that looks for neighbors.
    #[inline]
    fn crossing(&self, from: End, packet: &[u8]) -> Option<Crossing> {
        let Carried::Groups(groups) = &self.carried else {
            let headers = read_headers(packet)?;
            return Some(Crossing {
                route: route(0, Heading::from_end(from)),
                to: from.opposite(),
                kind: Kind::Other,
                flow: headers.conversation(),
                ecn_capable: headers.ecn_capable,
            });
        };
        let header = inspect(packet)?;
        let (data_to, tcp) = *groups.get(header.group)?;
        let kind = match header.protocol {
            _ if header.to != data_to => Kind::Other,
            Protocol::Tcp if tcp && header.payload_bytes > 0 => Kind::Data,
            Protocol::Udp if !tcp => Kind::Datagram,
            _ => Kind::Other,
        };
        Some(Crossing {
            route: route(header.group, Heading::from_end(header.to.opposite())),
            to: header.to,
            kind,
            flow: flow_key(&header),
            ecn_capable: header.ecn_capable,
        })
    }

    /// Takes waiting packets off a device; whether there may be more, and whether there were any.
    #[inline]
    fn take_in(&mut self, end: End, from: &Device) -> (bool, bool) {
        if from.super_packets() {
            return self.take_in_super(end, from);
        }
        for taken in 0..BATCH {
            let mut buffer = self.pool.take();
            let size_bytes = match from.read(&mut buffer[..]) {
                Ok(Some(size)) => size,
                Ok(None) => {
                    self.pool.give_back(buffer);
                    return (false, taken > 0);
                }
                Err(_) => {
                    self.pool.give_back(buffer);
                    self.report.device_errors += 1;
                    return (false, taken > 0);
                }
            };
            let segment = Segment {
                size_bytes,
                unsummed: false,
            };
            self.enter(end, buffer, segment, None);
        }
        (true, true)
    }

    /// The same with a device that carries super-packets.
    fn take_in_super(&mut self, end: End, from: &Device) -> (bool, bool) {
        let Some(mut super_buffer) = self.super_buffer.take() else {
            return (false, false);
        };
        let (mut taken, mut more) = (0, true);
        while more && taken < BATCH {
            match from.read_super(&mut super_buffer) {
                Ok(Some(mut segments)) => {
                    let entered = self.clock.now();
                    self.let_go(entered);
                    // the packets of a super-packet arrive together, and enter one by one
                    loop {
                        let mut buffer = self.pool.take();
                        let Some(segment) = segments.next_into(&mut buffer[..]) else {
                            self.pool.give_back(buffer);
                            break;
                        };
                        taken += 1;
                        self.enter(end, buffer, segment, Some(entered));
                    }
                }
                Ok(None) => more = false,
                Err(_) => {
                    self.report.device_errors += 1;
                    more = false;
                }
            }
        }
        self.super_buffer = Some(super_buffer);
        (more, taken > 0)
    }

    /// Offers a packet that came at `end` to its first link: now, or when it `entered`.
    #[inline]
    fn enter(&mut self, end: End, buffer: Buffer, segment: Segment, entered: Option<Time>) {
        let size = segment.size_bytes;
        let Some(crossing) = self.crossing(end, &buffer[..size]) else {
            self.pool.give_back(buffer);
            return;
        };
        let kind = crossing.kind;
        if kind != Kind::Other {
            self.report.data_offered += 1;
            self.report.groups.offer(group_of(crossing.flow));
        }
        let entered = entered.unwrap_or_else(|| {
            let now = self.clock.now();
            // what is due before the packet came happens before it comes
            self.let_go(now);
            now
        });
        let info = PacketInfo {
            size_bytes: size as u32,
            flow: crossing.flow,
            ecn_capable: crossing.ecn_capable,
        };
        let packet = Packet {
            buffer,
            size_bytes: size as u32,
            to: crossing.to,
            kind,
            entered,
            flow: crossing.flow,
            unsummed: segment.unsummed,
        };
        self.note(entered, &packet, Event::Sent);
        self.inside += 1;
        let taken = self.network.enter(entered, crossing.route, info, packet);
        if let Err((packet, reason)) = taken {
            self.drop(entered, packet, Event::of(reason));
        }
        self.collect_drops();
    }

    /// Releases the packets that were due up to `now`; returns whether there were any.
    #[inline]
    fn let_go(&mut self, now: Time) -> bool {
        let mut any = false;
        while self.network.next_event().is_some_and(|at| at <= now) {
            let exit = self.network.advance(now);
            self.collect_drops();
            let Some(exit) = exit else { continue };
            any = true;
            let mut leaving = Leaving {
                packet: exit.packet,
                due: exit.due,
                marked: exit.marked,
            };
            if leaving.marked {
                let size = leaving.packet.size_bytes as usize;
                mark(&mut leaving.packet.buffer[..size]);
                self.report.marked += 1;
            }
            match &mut self.joiner {
                None => {
                    let left = self.clock.now();
                    let device = self.device(leaving.packet.to);
                    let written = device.write(leaving.packet.bytes()).is_ok();
                    self.left(left, leaving, written);
                }
                Some(joiner) => {
                    let batches = joiner.add(leaving);
                    batches
                        .into_iter()
                        .flatten()
                        .for_each(|batch| self.write(batch));
                }
            }
        }
        while let Some(batch) = self.joiner.as_mut().and_then(Joiner::take) {
            self.write(batch);
        }
        any
    }

    const fn device(&self, end: End) -> &'a Device {
        match end {
            End::Near => self.near,
            End::Far => self.far,
        }
    }

    /// Writes packets to a device that carries super-packets.
    #[inline]
    fn write(&mut self, batch: Batch) {
        let Batch { join, mut packets } = batch;
        let left = self.clock.now();
        let device = self.device(packets[0].packet.to);
        let written = match (join, &packets[..]) {
            (Some(mut join), [_, _, ..]) => {
                device.write_joined(&mut join, packets.iter().map(|l| l.packet.bytes()))
            }
            (_, [one, ..]) if one.packet.unsummed => device.write_unsummed(one.packet.bytes()),
            (_, packets) => packets
                .iter()
                .try_for_each(|one| device.write(one.packet.bytes())),
        };
        for leaving in packets.drain(..) {
            self.left(left, leaving, written.is_ok());
        }
        if let Some(joiner) = &mut self.joiner {
            joiner.give_back(packets);
        }
    }

    /// Notes that a packet left at `left`, if it was `written`.
    #[inline]
    fn left(&mut self, left: Time, leaving: Leaving, written: bool) {
        let Leaving {
            packet,
            due,
            marked,
        } = leaving;
        self.inside = self.inside.saturating_sub(1);
        self.report.slips.record(left.since(due).as_nanos());
        if written {
            if packet.kind != Kind::Other {
                self.report.data_delivered += 1;
                let delay = left.since(packet.entered);
                self.report.delays.record(delay.as_nanos());
                (self.report.groups).deliver(group_of(packet.flow), delay.as_nanos());
            }
            self.note(left, &packet, Event::Delivered { marked });
        } else {
            self.report.device_errors += 1;
        }
        self.pool.give_back(packet.buffer);
    }

    #[inline]
    fn collect_drops(&mut self) {
        while let Some(Dropped { at, packet, reason }) = self.network.take_dropped() {
            self.drop(at, packet, Event::of(reason));
        }
    }

    fn drop(&mut self, at: Time, packet: Packet, event: Event) {
        self.inside = self.inside.saturating_sub(1);
        let at_ns = self.clock.monotonic_ns(at);
        self.report.note_drop(at_ns, packet.kind, packet.flow);
        self.note(at, &packet, event);
        self.pool.give_back(packet.buffer);
    }

    /// Writes to the log, if there is one.
    #[inline]
    fn note(&mut self, at: Time, packet: &Packet, event: Event) {
        if let Some(log) = &mut self.log {
            let at_ns = self.clock.monotonic_ns(at);
            let entered_ns = self.clock.monotonic_ns(packet.entered);
            log.note(at_ns, entered_ns, packet, event);
        }
    }
}

/// See [`Crossing::flow`].
#[inline]
fn flow_key(header: &Header) -> u64 {
    let (from, to) = header.ports;
    (header.group as u64) << 32 | u64::from(from) << 16 | u64::from(to)
}

/// The table of flows that a packet with this key is of.
#[inline]
const fn group_of(flow_key: u64) -> usize {
    (flow_key >> 32) as usize
}
