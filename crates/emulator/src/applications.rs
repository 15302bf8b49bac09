//! The applications of all flows, both ends, on one thread: each writes what its workload says and
//! reads all that arrives.

mod pages;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pathcast_base::clock::{monotonic_ns, thread_cpu_s};
use pathcast_path::{Span, Time};
use pathcast_probe::Joining;
use pathcast_probe::realtime::request_fifo;
use pathcast_quic::Packet;
use pathcast_scenario::{Side, Timers, Write};
use pathcast_trace::{Direction, PageReport, Read};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::{Errno, write};

use self::pages::Pages;
use crate::connection::Connected;
use crate::datagram::send_datagrams;
use crate::error::EmulatorError;
use crate::options::{Flow, Options};
use crate::packet_log::Conclusion;
use crate::quic::{Broken, QuicFlow};
use crate::seals::SealedPacket;
use crate::session::{CHUNK_BYTES, Carrier, FlowOutcome, Session};
use crate::waiting::timespec;

/// How many messages that were read are reported to the log together.
const READS_AT_ONCE: usize = 512;

/// The number of the stop event among those of the flows, and that of the first server of pages.
const STOP: u64 = u64::MAX;
const SERVERS: u64 = 1 << 32;

/// How long a datagram may wait in queues after the last one was written.
const LONGEST_QUEUE: Span = Span::from_millis(1000);

/// What the thread says at its end.
pub(crate) struct ApplicationsReport {
    pub(crate) flows: Vec<FlowOutcome>,
    pub(crate) pages: Vec<PageReport>,
    /// Flows that the probe watches since they opened, in the order in which they did.
    pub(crate) joined: Vec<usize>,
    pub(crate) cpu_s: f64,
    /// Flows whose connection broke, and how.
    pub(crate) broken: Vec<(usize, Broken)>,
    /// Why the thread was not in `SCHED_FIFO`.
    pub(crate) fifo_refused: Option<String>,
}

/// The applications of all flows: what a thread works on.
pub(crate) struct Applications<'a> {
    flows: Vec<Session<'a>>,
    pages: Pages<'a>,
    /// When each application writes next.
    wakes: Timers,
    /// When each end of a flow over QUIC has something to do, two for each flow.
    timers: Timers,
    /// Time 0 of the run.
    origin: Instant,
    epoll: OwnedFd,
    /// Kept open: an event whose last descriptor is closed vanishes, raised or not.
    _stop: OwnedFd,
    /// Flows that may still write, or wait for what they wrote.
    open: usize,
    broken: Vec<(usize, Broken)>,
    chunk: Vec<u8>,
    /// The log that receives messages that were read, if any, and those not reported yet.
    log: Option<Conclusion>,
    reads: Vec<Read>,
    /// Packets of QUIC that left and are not reported yet, and room for those that leave now.
    sealed: Vec<SealedPacket>,
    packets: Vec<Packet>,
    /// How long to wait for datagrams when all else is done.
    grace: Span,
}

/// Ends the thread, when it is dropped at the latest.
pub(crate) struct ApplicationsStop(OwnedFd);

impl Drop for ApplicationsStop {
    fn drop(&mut self) {
        let _ = write(&self.0, &1u64.to_ne_bytes()); // fails only if it is raised already
    }
}

impl<'a> Applications<'a> {
    pub(crate) fn new(
        options: &Options,
        flows: &[Flow<'_>],
        connected: &'a Connected,
        quic: Vec<Option<Box<QuicFlow>>>,
        joining: Joining,
        log: Option<Conclusion>,
    ) -> Result<(Self, ApplicationsStop), EmulatorError> {
        let connections = &connected.connections;
        let make = || -> Result<_, Errno> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
            let event = epoll::EventData::new_u64(STOP);
            epoll::add(&epoll, &stop, event, epoll::EventFlags::IN)?;
            for (number, connection) in connections.iter().enumerate() {
                if connection.server.is_some() {
                    continue; // it is watched from when it opens
                }
                for (side, socket) in connection.sockets() {
                    let event = epoll::EventData::new_u64(2 * number as u64 + side as u64);
                    epoll::add(&epoll, socket, event, epoll::EventFlags::IN)?;
                }
            }
            for (number, (_, server)) in (0..).zip(&connected.servers) {
                let event = epoll::EventData::new_u64(SERVERS + number);
                epoll::add(&epoll, server, event, epoll::EventFlags::IN)?;
            }
            let raise = rustix::io::fcntl_dupfd_cloexec(&stop, 0)?;
            Ok((epoll, stop, raise))
        };
        let (epoll, stop, raise) =
            make().map_err(|errno| EmulatorError::from_io("setting up epoll", errno))?;
        let mut sessions: Vec<Session<'a>> = flows
            .iter()
            .zip(connections)
            .zip(quic)
            .map(|((flow, connection), mut quic)| {
                if let Some(quic) = &mut quic {
                    let workload = &flow.spec.workload;
                    quic.begin(log.is_some() && !workload.is_greedy() && !workload.is_page());
                }
                Session::new(flow, connection, quic, options.seed)
            })
            .collect();
        let pages = Pages::new(flows, &mut sessions, &connected.servers, joining)?;
        let mut wakes = Timers::new(sessions.len());
        for (number, flow) in (0..).zip(&sessions) {
            wakes.want(number, pages.next_write(flow));
        }
        Ok((
            Self {
                wakes,
                timers: Timers::new(2 * sessions.len()),
                origin: Instant::now(),
                open: sessions.len(),
                flows: sessions,
                pages,
                epoll,
                _stop: stop,
                broken: Vec::new(),
                chunk: vec![0; CHUNK_BYTES],
                log,
                reads: Vec::new(),
                sealed: Vec::new(),
                packets: Vec::new(),
                grace: options.scenario.longest_rtt() + LONGEST_QUEUE,
            },
            ApplicationsStop(raise),
        ))
    }

    /// Writes and reads until stopped; raises `done` when no flow has anything left to do. The run
    /// begins at `began_ns` of the monotonic clock.
    pub(crate) fn run(
        mut self,
        fifo_priority: i32,
        began_ns: u64,
        done: &AtomicBool,
    ) -> ApplicationsReport {
        let fifo_refused = request_fifo(fifo_priority)
            .err()
            .map(|error| error.to_string());
        let now = || Time::from_nanos(monotonic_ns().saturating_sub(began_ns));
        self.origin = Instant::now() - Duration::from_nanos(now().as_nanos());
        // QUIC has timers from the handshake on
        (0..self.flows.len()).for_each(|flow| self.set_timers(flow, now()));
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        let mut give_up = None;
        'running: loop {
            let moment = now();
            while let Some((_, flow)) = self.wakes.pop(moment) {
                self.write_due(flow as usize, moment);
            }
            while let Some((_, timer)) = self.timers.pop(moment) {
                self.quic_timeout((timer / 2) as usize, (timer % 2) as usize, moment);
            }
            let mut next = self
                .wakes
                .next()
                .into_iter()
                .chain(self.timers.next())
                .min();
            if self.open == 0 {
                // lost datagrams are not repaired: wait for those that are missing for a limited time only
                let waited = *give_up.get_or_insert(moment + self.grace);
                if self.datagrams_missing() && moment < waited {
                    next = Some(waited);
                } else {
                    done.store(true, Ordering::Relaxed);
                }
            }
            let wait = next.map(|at| timespec(at.since(now())));
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), wait.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => panic!("epoll_wait on our own descriptors: {errno}"),
            }
            for event in &events {
                let number = event.data.u64();
                if number == STOP {
                    break 'running;
                }
                if let Some(server) = number.checked_sub(SERVERS) {
                    self.accept(server as usize);
                    continue;
                }
                let (flow, side) = ((number / 2) as usize, (number % 2) as usize);
                let flags = event.flags;
                let readable =
                    epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                let mut outcome = Ok(());
                if flags.intersects(readable) {
                    outcome = self.read(flow, side, now());
                }
                if outcome.is_ok() && flags.contains(epoll::EventFlags::OUT) {
                    outcome = self.write_more(flow, side, now());
                }
                if let Err(broken) = outcome {
                    self.break_flow(flow, broken);
                }
            }
        }
        self.tell();
        ApplicationsReport {
            flows: self.flows.into_iter().map(Session::finish).collect(),
            pages: self.pages.reports(),
            joined: self.pages.joined,
            cpu_s: thread_cpu_s(),
            broken: self.broken,
            fifo_refused,
        }
    }

    /// Reports to the log what has accumulated.
    fn tell(&mut self) {
        if let Some(log) = &self.log {
            // what was in packets is known before their messages are read
            log.sealed(std::mem::take(&mut self.sealed));
            log.reads(std::mem::take(&mut self.reads));
        }
    }

    fn instant(&self, at: Time) -> Instant {
        self.origin + Duration::from_nanos(at.as_nanos())
    }

    /// Both ends of a flow over QUIC say when they have something to do.
    fn set_timers(&mut self, number: usize, now: Time) {
        // what is due immediately has its next turn after all others
        const SOON: Span = Span::from_nanos(1000);
        let Some(quic) = self.flows[number].quic() else {
            return;
        };
        for side in [0, 1] {
            let at = quic.timeout(side);
            let at = at.map(|at| since(self.origin, at).max(now + SOON));
            self.timers.want((2 * number + side) as u32, at);
        }
    }

    /// An end of a flow over QUIC does what is due, which may have been put off meanwhile.
    fn quic_timeout(&mut self, number: usize, side: usize, now: Time) {
        let at = self.instant(now);
        let flow = &mut self.flows[number];
        if flow.broken {
            return;
        }
        if let Some(quic) = flow.quic()
            && quic.timeout(side).is_some_and(|due| due <= at)
        {
            quic.handle_timeout(side, at);
        }
        if let Err(broken) = self.write_more(number, side, now) {
            self.break_flow(number, broken);
        }
    }

    /// Notes what is in the packets that left.
    fn note_packets(&mut self, number: usize, side: usize) {
        let Some(quic) = self.flows[number].quic() else {
            return;
        };
        quic.take_packets(side, &mut self.packets);
        let direction = direction(side == Side::Source as usize);
        let sealed = self.packets.drain(..).map(|packet| SealedPacket {
            flow: number as u32,
            direction,
            packet,
        });
        self.sealed.extend(sealed);
        if self.sealed.len() >= READS_AT_ONCE {
            self.tell();
        }
    }

    /// Whether a datagram may still be in transit.
    fn datagrams_missing(&self) -> bool {
        let datagrams = |flow: &&Session<'_>| matches!(flow.carrier, Carrier::Udp(_));
        let mut flows = self.flows.iter().filter(datagrams);
        flows.any(|flow| flow.application.is_waiting())
    }

    fn break_flow(&mut self, number: usize, broken: Broken) {
        let flow = &mut self.flows[number];
        if !std::mem::replace(&mut flow.broken, true) {
            self.broken.push((number, broken));
            for (_, socket) in flow.connection.sockets() {
                let _ = epoll::delete(&self.epoll, socket);
            }
            if flow.application.completed().is_none() {
                self.open -= 1;
            }
        }
    }

    /// Lets the application write what is due.
    fn write_due(&mut self, number: usize, now: Time) {
        if self.flows[number].load.is_some() {
            return self.advance_page(number, now);
        }
        if self.flows[number].broken {
            return;
        }
        while let Some(write) = self.flows[number].application.write(now) {
            let flow = &mut self.flows[number];
            let side = match (&mut flow.carrier, write) {
                (Carrier::Udp(datagrams), Write::Message(message)) => {
                    if let Some(socket) = flow.connection.socket(0) {
                        let numbers = datagrams.write(message);
                        send_datagrams(socket, &mut self.chunk, numbers, message.bytes);
                    }
                    continue;
                }
                (Carrier::Udp(_), Write::Endless) | (_, Write::Stop) => continue,
                (Carrier::Stream(_), Write::Endless) => Side::Source,
                (Carrier::Stream(stream), Write::Message(message)) => {
                    stream.pipes[message.from as usize].offer(now, message);
                    message.from
                }
            };
            if let Err(broken) = self.write_more(number, side as usize, now) {
                return self.break_flow(number, broken);
            }
        }
        self.rest(number, now);
    }

    /// Notes when the application writes next, or that it is done.
    fn rest(&mut self, number: usize, now: Time) {
        let flow = &mut self.flows[number];
        self.wakes
            .want(number as u32, flow.application.next_write());
        if flow.application.complete(now, flow.is_carried()) {
            self.open -= 1;
        }
    }

    /// Writes what is taken now, and watches the socket for room if there is more.
    fn write_more(&mut self, number: usize, side: usize, now: Time) -> Result<(), Broken> {
        let at = self.instant(now);
        let flow = &mut self.flows[number];
        let greedy = flow.application.is_greedy() && side == Side::Source as usize;
        let (Carrier::Stream(stream), Some(socket)) =
            (&mut flow.carrier, flow.connection.socket(side))
        else {
            return Ok(());
        };
        let mut full = stream.write(side, greedy, socket, &self.chunk, at)?;
        while side == Side::Source as usize
            && !full
            && stream.quic.as_ref().is_none_or(|quic| quic.has_room())
            && let Some((record, exchange)) = self.pages.next_record(flow.load, now)
        {
            match (&mut stream.quic, exchange) {
                (Some(quic), Some(exchange)) => quic.put(record, exchange)?,
                _ => stream.pipes[side].offer(now, record),
            }
            full = stream.write(side, greedy, socket, &self.chunk, at)?;
        }
        let over_quic = stream.quic.is_some();
        if full != flow.watched[side] {
            flow.watched[side] = full;
            let event = epoll::EventData::new_u64(2 * number as u64 + side as u64);
            let out = match full {
                true => epoll::EventFlags::OUT,
                false => epoll::EventFlags::empty(),
            };
            epoll::modify(&self.epoll, socket, event, epoll::EventFlags::IN | out)?;
        }
        if over_quic {
            self.note_packets(number, side);
            self.set_timers(number, now);
        }
        Ok(())
    }

    /// Reads what has arrived at one end of a flow.
    fn read(&mut self, number: usize, side: usize, now: Time) -> Result<(), Broken> {
        let at = self.instant(now);
        let flow = &mut self.flows[number];
        let Some(socket) = flow.connection.socket(side) else {
            return Ok(());
        };
        let stream = match &mut flow.carrier {
            Carrier::Udp(_) => return flow.receive_datagrams(side, &mut self.chunk, now),
            Carrier::Stream(stream) => stream,
        };
        stream.take_in(side, socket, &mut self.chunk, at, now)?;
        // some of it may have come since
        let now = now.max(since(self.origin, Instant::now()));
        if flow.load.is_some() {
            return self.deliver_of_page(number, side, now);
        }
        let (over_quic, pipe) = (stream.quic.is_some(), 1 - side);
        let mut any = false;
        while let Some(whole) = stream.pipes[pipe].take_delivered() {
            any = true;
            if self.log.is_some() {
                self.reads.push(Read {
                    flow: number as u32,
                    direction: direction(side != Side::Source as usize),
                    number: whole.message.number,
                    first: whole.first,
                    end: whole.end,
                    written_ns: whole.written.as_nanos(),
                    read_ns: now.as_nanos(),
                });
            }
            if let Some(response) = flow.application.on_delivered(now, &whole.message) {
                let answers = &mut stream.pipes[Side::Source as usize];
                if let Some(number) = flow.application.take_given_up() {
                    answers.cut(number);
                }
                answers.offer(now, response);
                break;
            }
            flow.outcome.note(now, &whole.message);
        }
        if side == Side::Sink as usize
            && flow.application.looks()
            && let Some((number, bytes)) = stream.pipes[pipe].progress()
        {
            flow.application.on_progress(now, number, bytes);
        }
        if self.reads.len() >= READS_AT_ONCE {
            self.tell();
        }
        if over_quic {
            // to acknowledge, and because acknowledgments make room
            self.write_more(number, side, now)?;
        }
        if any {
            if side == Side::Source as usize {
                self.write_more(number, side, now)?;
                return self.read(number, side, now);
            }
            self.rest(number, now);
        }
        Ok(())
    }
}

/// The time of a run that began at `origin`.
fn since(origin: Instant, at: Instant) -> Time {
    Time::from_nanos(at.saturating_duration_since(origin).as_nanos() as u64)
}

/// Which way what left at a source, or did not, goes.
const fn direction(from_source: bool) -> Direction {
    match from_source {
        true => Direction::Data,
        false => Direction::Back,
    }
}
