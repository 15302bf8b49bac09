//! The applications of all flows, both ends, on one thread: each writes what its workload says and
//! reads all that arrives.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use pathcast_netns::renew_receive_window;
use pathcast_path::{Span, Time};
use pathcast_probe::realtime::{monotonic_ns, request_fifo, thread_cpu_s};
use pathcast_scenario::{Datagrams, Source, Timers, Transport, Workload, Write};
use pathcast_trace::{DelayHistogram, Direction, Read};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::{Errno, write};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::connection::Connection;
use crate::datagram::{receive_datagram, send_datagrams};
use crate::error::EmulatorError;
use crate::options::Flow;
use crate::packet_log::Conclusion;
use crate::pipe::Pipe;
use crate::pump::timespec;

/// Bytes written or read at once.
const CHUNK_BYTES: usize = 128 << 10;

/// Messages that were read of which the log is told at once.
const READS_AT_ONCE: usize = 512;

/// Chunks of one flow before the next flow has its turn.
const CHUNKS_A_TURN: usize = 4;

/// The number of the stop event among those of the flows.
const STOP: u64 = u64::MAX;

/// How long a datagram may wait in queues after the last one was written.
const LONGEST_QUEUE: Span = Span::from_millis(1000);

/// What became of a flow.
#[derive(Default)]
pub(crate) struct FlowOutcome {
    pub(crate) delivered_bytes: u64,
    /// Messages written and arrived whole.
    pub(crate) messages: (u64, u64),
    pub(crate) latency: Option<Box<DelayHistogram>>,
    /// When all that it ever writes had arrived, since the beginning of the run.
    pub(crate) completed: Option<Time>,
}

/// What the thread says at its end.
pub(crate) struct ApplicationsReport {
    pub(crate) flows: Vec<FlowOutcome>,
    pub(crate) cpu_s: f64,
    /// Flows whose connection broke, and how.
    pub(crate) broken: Vec<(usize, Errno)>,
    /// Why the thread was not in `SCHED_FIFO`.
    pub(crate) fifo_refused: Option<String>,
}

/// Which end of a flow's data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Sink,
}

enum Carrier {
    Tcp {
        /// With the data, and against it: requests.
        pipes: [Pipe; 2],
        /// It writes as much as is taken.
        greedy: bool,
        asks: bool,
    },
    Udp(Box<Datagrams>),
}

struct Application<'a> {
    source: Source,
    sockets: [&'a OwnedFd; 2],
    /// Whether the sockets are watched for room to write.
    watched: [bool; 2],
    carrier: Carrier,
    outcome: FlowOutcome,
    broken: bool,
    /// What the receiver's window is to be.
    window: Option<u64>,
}

/// The applications of all flows: what a thread works on.
pub(crate) struct Applications<'a> {
    flows: Vec<Application<'a>>,
    /// When each application wants to write next.
    wakes: Timers,
    epoll: OwnedFd,
    /// Kept open: an event whose last descriptor is closed vanishes, raised or not.
    _stop: OwnedFd,
    /// Flows that may still write, or wait for what they wrote.
    open: usize,
    broken: Vec<(usize, Errno)>,
    chunk: Vec<u8>,
    /// Who wants to know of messages that were read, and those not told yet.
    log: Option<Conclusion>,
    reads: Vec<Read>,
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
        flows: &[Flow<'_>],
        connections: &'a [Connection],
        seed: u64,
        base_rtt: Span,
        log: Option<Conclusion>,
    ) -> Result<(Self, ApplicationsStop), EmulatorError> {
        let make = || -> Result<_, Errno> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
            let event = epoll::EventData::new_u64(STOP);
            epoll::add(&epoll, &stop, event, epoll::EventFlags::IN)?;
            for (number, connection) in connections.iter().enumerate() {
                let ends = [&connection.sender, &connection.receiver];
                for (side, socket) in ends.into_iter().enumerate() {
                    let event = epoll::EventData::new_u64(2 * number as u64 + side as u64);
                    epoll::add(&epoll, socket, event, epoll::EventFlags::IN)?;
                }
            }
            let raise = rustix::io::fcntl_dupfd_cloexec(&stop, 0)?;
            Ok((epoll, stop, raise))
        };
        let (epoll, stop, raise) =
            make().map_err(|errno| EmulatorError::from_io("setting up epoll", errno))?;
        let applications: Vec<Application<'a>> = flows
            .iter()
            .zip(connections)
            .map(|(flow, connection)| Application::new(flow, connection, seed))
            .collect();
        let mut wakes = Timers::new(applications.len());
        for (number, flow) in (0..).zip(&applications) {
            wakes.want(number, flow.source.next_write());
        }
        Ok((
            Self {
                wakes,
                open: applications.len(),
                flows: applications,
                epoll,
                _stop: stop,
                broken: Vec::new(),
                chunk: vec![0; CHUNK_BYTES],
                log,
                reads: Vec::new(),
                grace: base_rtt + LONGEST_QUEUE,
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
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        let mut give_up = None;
        'running: loop {
            let moment = now();
            while let Some((_, flow)) = self.wakes.pop(moment) {
                self.write_due(flow as usize, moment);
            }
            let mut next = self.wakes.next();
            if self.open == 0 {
                // nobody repairs datagrams: those that do not come are waited for, but not for ever
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
                let (flow, side) = ((number / 2) as usize, (number % 2) as usize);
                let flags = event.flags;
                let readable =
                    epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                let mut outcome = Ok(());
                if flags.intersects(readable) {
                    outcome = self.read(flow, side, now());
                }
                if outcome.is_ok() && flags.contains(epoll::EventFlags::OUT) {
                    outcome = self.write_more(flow, side);
                }
                if let Err(errno) = outcome {
                    self.break_flow(flow, errno);
                }
            }
        }
        self.tell_reads();
        ApplicationsReport {
            flows: self.flows.into_iter().map(Application::finish).collect(),
            cpu_s: thread_cpu_s(),
            broken: self.broken,
            fifo_refused,
        }
    }

    fn tell_reads(&mut self) {
        if let Some(log) = &self.log {
            log.reads(std::mem::take(&mut self.reads));
        }
    }

    /// Whether a datagram may still be under way.
    fn datagrams_missing(&self) -> bool {
        self.flows.iter().any(|flow| match &flow.carrier {
            Carrier::Udp(datagrams) => {
                let (written, delivered) = datagrams.counts();
                delivered < written
            }
            Carrier::Tcp { .. } => false,
        })
    }

    fn break_flow(&mut self, number: usize, errno: Errno) {
        let flow = &mut self.flows[number];
        if !std::mem::replace(&mut flow.broken, true) {
            self.broken.push((number, errno));
            for socket in flow.sockets {
                let _ = epoll::delete(&self.epoll, socket);
            }
            if flow.outcome.completed.is_none() {
                self.open -= 1;
            }
        }
    }

    /// Lets the application write what is due.
    fn write_due(&mut self, number: usize, now: Time) {
        if self.flows[number].broken {
            return;
        }
        while let Some(write) = self.flows[number].source.write(now) {
            let flow = &mut self.flows[number];
            let side = match (&mut flow.carrier, write) {
                (Carrier::Udp(datagrams), Write::Message(bytes)) => {
                    let numbers = datagrams.write(now, bytes);
                    send_datagrams(flow.sockets[0].as_fd(), &mut self.chunk, numbers, bytes);
                    continue;
                }
                (Carrier::Udp(_), Write::Endless | Write::Stop) => continue,
                (Carrier::Tcp { greedy, .. }, Write::Endless) => {
                    *greedy = true;
                    Side::Source
                }
                (Carrier::Tcp { greedy, .. }, Write::Stop) => {
                    *greedy = false;
                    continue;
                }
                (Carrier::Tcp { pipes, asks, .. }, Write::Message(bytes)) => {
                    let side = if *asks { Side::Sink } else { Side::Source };
                    pipes[side as usize].offer(now, now, bytes);
                    side
                }
            };
            if let Err(errno) = self.write_more(number, side as usize) {
                return self.break_flow(number, errno);
            }
        }
        self.rest(number, now);
    }

    /// Notes when the application wants to write next, or that it is done.
    fn rest(&mut self, number: usize, now: Time) {
        let flow = &mut self.flows[number];
        self.wakes.want(number as u32, flow.source.next_write());
        let delivered = match &flow.carrier {
            Carrier::Udp(_) => true,
            Carrier::Tcp { pipes, .. } => pipes.iter().all(|pipe| pipe.ends.is_empty()),
        };
        if flow.source.is_finished() && delivered && flow.outcome.completed.is_none() {
            flow.outcome.completed = Some(now);
            self.open -= 1;
        }
    }

    /// Writes what the socket takes now, and watches it for room if there is more.
    fn write_more(&mut self, number: usize, side: usize) -> Result<(), Errno> {
        let flow = &mut self.flows[number];
        let Carrier::Tcp { pipes, greedy, .. } = &mut flow.carrier else {
            return Ok(());
        };
        let socket = flow.sockets[side].as_fd();
        let mut full = false;
        if *greedy && side == Side::Source as usize {
            for _ in 0..CHUNKS_A_TURN {
                match send(socket, &self.chunk, SendFlags::NOSIGNAL) {
                    Ok(_) => {}
                    Err(Errno::AGAIN | Errno::INTR) => break,
                    Err(errno) => return Err(errno),
                }
            }
            full = true;
        } else {
            while let Some(bytes) = pipes[side].pending.front_mut() {
                let size = (*bytes).min(CHUNK_BYTES as u64) as usize;
                // the end of a message is not to be filled up with the next one
                let end = match size as u64 == *bytes {
                    true => SendFlags::EOR,
                    false => SendFlags::empty(),
                };
                match send(socket, &self.chunk[..size], SendFlags::NOSIGNAL | end) {
                    Ok(sent) => *bytes -= sent as u64,
                    Err(Errno::AGAIN | Errno::INTR) => {
                        full = true;
                        break;
                    }
                    Err(errno) => return Err(errno),
                }
                if *bytes == 0 {
                    pipes[side].pending.pop_front();
                }
            }
        }
        if full != flow.watched[side] {
            flow.watched[side] = full;
            let event = epoll::EventData::new_u64(2 * number as u64 + side as u64);
            let out = match full {
                true => epoll::EventFlags::OUT,
                false => epoll::EventFlags::empty(),
            };
            epoll::modify(
                &self.epoll,
                flow.sockets[side],
                event,
                epoll::EventFlags::IN | out,
            )?;
        }
        Ok(())
    }

    /// Reads what has arrived at one end of a flow.
    fn read(&mut self, number: usize, side: usize, now: Time) -> Result<(), Errno> {
        let flow = &mut self.flows[number];
        let socket = flow.sockets[side].as_fd();
        let mut any = false;
        match &mut flow.carrier {
            Carrier::Udp(datagrams) => {
                while let Some((seq, bytes)) = receive_datagram(socket, &mut self.chunk)? {
                    if let Some(written) = datagrams.on_arrival(now, seq, bytes) {
                        flow.outcome.note(now, written);
                    }
                }
                return Ok(());
            }
            Carrier::Tcp { pipes, .. } => {
                let pipe = &mut pipes[1 - side];
                for _ in 0..CHUNKS_A_TURN {
                    // counted and thrown away in the kernel: the copy would tell nothing
                    match recv(socket, &mut self.chunk[..], RecvFlags::TRUNC) {
                        Ok((_, 0)) => return Err(Errno::CONNRESET), // closed before we did
                        Ok((_, size)) => pipe.arrived += size as u64,
                        Err(Errno::AGAIN | Errno::INTR) => break,
                        Err(errno) => return Err(errno),
                    }
                }
                if let Some(window) = flow.window
                    && side == Side::Sink as usize
                {
                    // it was taken when the flow was connected, and is no reason to end the run now
                    let _ = renew_receive_window(socket, window);
                }
                while let Some(message) = pipe.take_delivered() {
                    any = true;
                    if self.log.is_some() {
                        self.reads.push(Read {
                            flow: number as u32,
                            direction: match side == Side::Source as usize {
                                true => Direction::Back,
                                false => Direction::Data,
                            },
                            number: pipe.messages.1 - 1,
                            first: message.first,
                            end: message.end,
                            written_ns: message.written.as_nanos(),
                            read_ns: now.as_nanos(),
                        });
                    }
                    if side == Side::Source as usize {
                        // a request: the far end answers at once; the clock began with it
                        let bytes = flow.source.answer();
                        pipes_of(&mut flow.carrier)[0].offer(message.clock, now, bytes);
                        break;
                    }
                    flow.outcome.note(now, message.clock);
                    flow.source.on_delivered(now);
                }
                if self.reads.len() >= READS_AT_ONCE {
                    self.tell_reads();
                }
            }
        }
        if any {
            if side == Side::Source as usize {
                self.write_more(number, side)?;
                return self.read(number, side, now);
            }
            self.rest(number, now);
        }
        Ok(())
    }
}

fn pipes_of(carrier: &mut Carrier) -> &mut [Pipe; 2] {
    match carrier {
        Carrier::Tcp { pipes, .. } => pipes,
        Carrier::Udp(_) => unreachable!("only TCP has requests"),
    }
}

impl<'a> Application<'a> {
    fn new(flow: &Flow<'_>, connection: &'a Connection, seed: u64) -> Self {
        let spec = flow.spec;
        let stop = spec.stop.map(|stop| Time::ZERO + stop);
        Self {
            source: Source::new(&spec.workload, flow.start, stop, seed, flow.number),
            sockets: [&connection.sender, &connection.receiver],
            watched: [false; 2],
            carrier: match spec.transport {
                Transport::Udp => Carrier::Udp(Box::default()),
                Transport::Tcp { .. } => Carrier::Tcp {
                    pipes: Default::default(),
                    greedy: false,
                    asks: matches!(spec.workload, Workload::RequestResponse { .. }),
                },
            },
            outcome: FlowOutcome::default(),
            broken: false,
            window: match spec.transport {
                Transport::Tcp {
                    receive_window_bytes,
                    ..
                } => receive_window_bytes,
                Transport::Udp => None,
            },
        }
    }

    fn finish(self) -> FlowOutcome {
        let mut outcome = self.outcome;
        match self.carrier {
            Carrier::Udp(datagrams) => {
                outcome.delivered_bytes = datagrams.delivered_bytes();
                outcome.messages = datagrams.counts();
                outcome.completed = outcome.completed.and(datagrams.last_arrival());
            }
            Carrier::Tcp {
                pipes: [data, requests],
                asks,
                ..
            } => {
                outcome.delivered_bytes = data.arrived;
                outcome.messages = match asks {
                    true => (requests.messages.0, data.messages.1),
                    false => data.messages,
                };
            }
        }
        outcome
    }
}

impl FlowOutcome {
    /// A message whose clock began at `written` has arrived whole.
    fn note(&mut self, now: Time, written: Time) {
        self.latency
            .get_or_insert_with(|| Box::new(DelayHistogram::coarse()))
            .record(now.since(written).as_nanos());
    }
}
