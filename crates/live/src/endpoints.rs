//! This host's ends of all flows, on one thread: those that act write what their workload says, the
//! others read, note and answer.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use pathcast_base::clock::{RunClock, monotonic_ns, thread_cpu_s};
use pathcast_netns::renew_receive_window;
use pathcast_path::Time;
use pathcast_probe::realtime::request_fifo;
use pathcast_scenario::{Application, Message, Timers, Write};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustix::time::Timespec;

use crate::error::LiveError;
use crate::message::{HEAD_BYTES, Head, Reader};
use crate::plan::Task;

/// Bytes of one write or read.
const CHUNK_BYTES: usize = 128 << 10;
/// Chunks of one flow before the next flow has its turn.
const CHUNKS_A_TURN: usize = 4;
/// Never sleep longer, so that a stop is seen.
const LONGEST_SLEEP_NS: u64 = 20_000_000;
/// The most messages of a flow that may wait to be written or answered. A peer that asks and does not read
/// is disconnected, and so is one that requests more than its path carries.
const MOST_WAITING: usize = 1 << 16;
/// Of all flows of a run: 12 MiB, or twice as much while a queue grows.
const MOST_WAITING_IN_ALL: usize = 1 << 18;
/// Messages noted by one host: 32 MiB.
pub(crate) const MOST_MESSAGES: usize = 1 << 20;

/// A message that arrived, or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) flow: u32,
    pub(crate) bytes: u64,
    /// By the clock of the host that acts.
    pub(crate) written_ns: u64,
    /// By the clock of this host.
    pub(crate) arrived_ns: u64,
}

/// What this host saw of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointOutcome {
    /// Payload bytes that came here.
    pub(crate) arrived_bytes: u64,
    /// Messages that were written here.
    pub(crate) written: u64,
    /// When the other end had no more to say, or, of who asks, when the last answer was here.
    pub(crate) ended_ns: Option<u64>,
    /// Why the connection broke, as the kernel says.
    pub(crate) broken: Option<i32>,
}

/// What this host saw of all flows.
pub(crate) struct EndpointsReport {
    pub(crate) flows: Vec<EndpointOutcome>,
    pub(crate) arrivals: Vec<Arrival>,
    /// Arrivals that were not recorded because the log was full.
    pub(crate) missed: u64,
    pub(crate) cpu_s: f64,
    pub(crate) fifo_refused: Option<String>,
    /// Kept open: the other host is not to see its connections break before it knows why.
    pub(crate) sockets: Vec<OwnedFd>,
}

/// Something to be written.
struct Out {
    head: Option<Head>,
    bytes: u64,
    sent: u64,
}

enum Role {
    /// Writes what its application says; of messages that are answered: what is still to come of each
    /// answer, and which message arrives, or has arrived, by it.
    Acts {
        application: Box<Application>,
        answers: VecDeque<(u64, Message)>,
    },
    /// Reads messages and answers them.
    Reads(Reader),
    /// Reads a stream without messages in it.
    Counts,
}

struct Endpoint {
    flow: u32,
    socket: OwnedFd,
    role: Role,
    /// Each message that arrives is answered by one byte or more.
    answered: bool,
    asks: bool,
    out: VecDeque<Out>,
    watched: bool,
    /// The kernel forgets it when packets of another size change its idea of their overhead.
    receive_window: Option<u64>,
    outcome: EndpointOutcome,
    over: bool,
}

/// This host's ends of all flows: what a thread works on.
pub(crate) struct Endpoints {
    flows: Vec<Endpoint>,
    wakes: Timers,
    epoll: OwnedFd,
    chunk: Vec<u8>,
    arrivals: Vec<Arrival>,
    missed: u64,
    /// Messages and answers that wait, of all flows.
    waiting: usize,
    /// Flows that this end has not seen the end of.
    open: usize,
    clock: RunClock,
}

impl Endpoints {
    /// The ends of these flows, whose sockets are connected; time 0 of their sources is `begin_ns` of
    /// this host's monotonic clock.
    pub(crate) fn new(
        tasks: &[Task],
        sockets: Vec<OwnedFd>,
        seed: u64,
        begin_ns: u64,
    ) -> Result<Self, LiveError> {
        let setting_up = |errno: Errno| LiveError::from_io("setting up epoll", errno);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(setting_up)?;
        let mut flows = Vec::with_capacity(tasks.len());
        let mut wakes = Timers::new(tasks.len());
        for ((number, task), socket) in (0u32..).zip(tasks).zip(sockets) {
            let event = epoll::EventData::new_u64(number.into());
            epoll::add(&epoll, &socket, event, epoll::EventFlags::IN).map_err(setting_up)?;
            let endpoint = Endpoint::new(task, socket, seed);
            if let Role::Acts { application, .. } = &endpoint.role {
                wakes.want(number, application.next_write());
            }
            flows.push(endpoint);
        }
        Ok(Self {
            open: flows.len(),
            flows,
            wakes,
            epoll,
            chunk: vec![0; CHUNK_BYTES],
            arrivals: Vec::new(),
            missed: 0,
            waiting: 0,
            clock: RunClock {
                origin_ns: begin_ns,
            },
        })
    }

    /// Writes and reads until `stop`; raises `done` when all flows have ended.
    pub(crate) fn run(
        mut self,
        fifo_priority: i32,
        stop: &AtomicBool,
        done: &AtomicBool,
    ) -> EndpointsReport {
        let fifo_refused = request_fifo(fifo_priority)
            .err()
            .map(|error| error.to_string());
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        while !stop.load(Ordering::Relaxed) {
            if self.open == 0 {
                done.store(true, Ordering::Relaxed);
            }
            if monotonic_ns() >= self.clock.origin_ns {
                let now = self.now();
                while let Some((_, flow)) = self.wakes.pop(now) {
                    self.step(flow as usize, |endpoints, flow| {
                        endpoints.write_due(flow, now)
                    });
                }
            }
            let sleep_ns = self.sleep_ns();
            let wait = Timespec {
                tv_sec: 0,
                tv_nsec: sleep_ns as _,
            };
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => panic!("epoll_wait on our own descriptors: {errno}"),
            }
            for event in &events {
                let (flow, flags) = (event.data.u64() as usize, event.flags);
                let readable =
                    epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                if flags.intersects(readable) {
                    self.step(flow, Self::read);
                }
                if flags.contains(epoll::EventFlags::OUT) {
                    self.step(flow, Self::write_more);
                }
            }
        }
        let flows = self.flows.into_iter();
        let (flows, sockets) = flows.map(|flow| (flow.outcome, flow.socket)).unzip();
        EndpointsReport {
            flows,
            sockets,
            arrivals: self.arrivals,
            missed: self.missed,
            cpu_s: thread_cpu_s(),
            fifo_refused,
        }
    }

    /// Time since the run's beginning, which has come.
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn sleep_ns(&self) -> u64 {
        let now_ns = monotonic_ns();
        let due_ns = self.wakes.next().map(|at| self.clock.monotonic_ns(at));
        due_ns.map_or(LONGEST_SLEEP_NS, |due| {
            due.saturating_sub(now_ns).min(LONGEST_SLEEP_NS)
        })
    }

    /// Does `work` with a flow that has not ended, and notes if the connection broke.
    fn step(&mut self, flow: usize, work: impl FnOnce(&mut Self, usize) -> Result<(), Errno>) {
        if self.flows[flow].over {
            return;
        }
        if let Err(errno) = work(self, flow) {
            self.flows[flow].outcome.broken = Some(errno.raw_os_error());
            self.end(flow);
        }
    }

    /// Nothing more comes or goes here.
    fn end(&mut self, flow: usize) {
        let flow = &mut self.flows[flow];
        if !std::mem::replace(&mut flow.over, true) {
            let _ = epoll::delete(&self.epoll, &flow.socket);
            self.open -= 1;
            self.waiting -= flow.waiting();
            flow.forget();
        }
    }

    /// Lets the application write what is due at `now`.
    fn write_due(&mut self, number: usize, now: Time) -> Result<(), Errno> {
        let clock = self.clock;
        let flow = &mut self.flows[number];
        let Role::Acts {
            application,
            answers,
        } = &mut flow.role
        else {
            return Ok(());
        };
        while let Some(write) = application.write(now) {
            let Write::Message(message) = write else {
                continue;
            };
            if flow.out.len().max(answers.len()) >= MOST_WAITING
                || self.waiting >= MOST_WAITING_IN_ALL
            {
                return Err(Errno::NOBUFS);
            }
            // the head of a request says how much to answer
            let (answer, arrives) = match flow.asks {
                true => {
                    let response = application.respond(&message);
                    (response.bytes, response)
                }
                false => (flow.answered.into(), message),
            };
            let head = Head::new(message.bytes, clock.monotonic_ns(message.clock), answer);
            if answer > 0 {
                answers.push_back((answer, arrives));
                self.waiting += 1;
            }
            flow.outcome.written += 1;
            self.waiting += 1;
            flow.out.push_back(Out {
                head: Some(head),
                bytes: head.bytes,
                sent: 0,
            });
        }
        self.wakes.want(number as u32, application.next_write());
        self.write_more(number)
    }

    /// Writes what the socket takes now, and watches it for room if there is more.
    fn write_more(&mut self, number: usize) -> Result<(), Errno> {
        let flow = &mut self.flows[number];
        let mut full = false;
        while let Some(out) = flow.out.front_mut() {
            // only the head says anything; what follows is whatever lies in the chunk
            let from = out.head.map_or(0, |head| {
                self.chunk[..HEAD_BYTES].copy_from_slice(&head.encode());
                out.sent as usize
            });
            let size = (out.bytes - out.sent).min((CHUNK_BYTES - from) as u64);
            let end = match out.sent + size == out.bytes {
                // the end of a message is not to be filled up with the next one
                true => SendFlags::EOR,
                false => SendFlags::empty(),
            };
            let bytes = &self.chunk[from..from + size as usize];
            match send(&flow.socket, bytes, SendFlags::NOSIGNAL | end) {
                Ok(sent) => out.sent += sent as u64,
                Err(Errno::AGAIN | Errno::INTR) => {
                    full = true;
                    break;
                }
                Err(errno) => return Err(errno),
            }
            if out.sent >= HEAD_BYTES as u64 {
                out.head = None;
            }
            if out.sent == out.bytes {
                flow.out.pop_front();
                self.waiting -= 1;
            }
        }
        if let Role::Acts { application, .. } = &flow.role
            && application.is_greedy()
        {
            full = true;
            for _ in 0..CHUNKS_A_TURN {
                match send(&flow.socket, &self.chunk, SendFlags::NOSIGNAL) {
                    Ok(_) => {}
                    Err(Errno::AGAIN | Errno::INTR) => break,
                    Err(errno) => return Err(errno),
                }
            }
        }
        if full != flow.watched {
            flow.watched = full;
            let event = epoll::EventData::new_u64(number as u64);
            let out = match full {
                true => epoll::EventFlags::OUT,
                false => epoll::EventFlags::empty(),
            };
            epoll::modify(
                &self.epoll,
                &flow.socket,
                event,
                epoll::EventFlags::IN | out,
            )?;
        }
        self.rest(number)
    }

    /// Ends the direction of a flow that has nothing more to send.
    fn rest(&mut self, number: usize) -> Result<(), Errno> {
        let now = self.now();
        let flow = &mut self.flows[number];
        let Role::Acts {
            application,
            answers,
        } = &mut flow.role
        else {
            return Ok(());
        };
        if application.complete(now, flow.out.is_empty() && answers.is_empty()) {
            if flow.asks {
                flow.outcome.ended_ns = Some(monotonic_ns());
            }
            shutdown(&flow.socket, Shutdown::Write)?;
        }
        Ok(())
    }

    /// Reads what has come.
    fn read(&mut self, number: usize) -> Result<(), Errno> {
        for _ in 0..CHUNKS_A_TURN {
            let flow = &mut self.flows[number];
            let (most, flags) = match &flow.role {
                Role::Reads(reader) => match reader.wants() {
                    (bytes, true) => (bytes, RecvFlags::empty()),
                    // counted and discarded in the kernel: a copy is not needed
                    (bytes, false) => (bytes, RecvFlags::TRUNC),
                },
                Role::Acts { .. } | Role::Counts => (u64::MAX, RecvFlags::TRUNC),
            };
            let most = most.min(CHUNK_BYTES as u64) as usize;
            let size = match recv(&flow.socket, &mut self.chunk[..most], flags) {
                Ok((_, size)) => size as u64,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno),
            };
            let now_ns = monotonic_ns();
            if size == 0 {
                return self.on_end(number, now_ns);
            }
            flow.outcome.arrived_bytes += size;
            if let Some(window) = flow.receive_window {
                // it was accepted when the flow was connected, so an error here must not end the run
                let _ = renew_receive_window(flow.socket.as_fd(), window);
            }
            match &mut flow.role {
                Role::Counts => {}
                Role::Reads(reader) => {
                    let whole = reader.take(size, &self.chunk[..most]);
                    let Some(head) = whole.map_err(|()| Errno::PROTO)? else {
                        continue;
                    };
                    if !flow.asks && head.answer_bytes > flow.answered.into() {
                        return Err(Errno::PROTO);
                    }
                    if head.answer_bytes > 0 {
                        if flow.out.len() >= MOST_WAITING || self.waiting >= MOST_WAITING_IN_ALL {
                            return Err(Errno::NOBUFS);
                        }
                        self.waiting += 1;
                        flow.out.push_back(Out {
                            head: None,
                            bytes: head.answer_bytes,
                            sent: 0,
                        });
                    }
                    if !flow.asks {
                        let arrival = Arrival {
                            flow: flow.flow,
                            bytes: head.bytes,
                            written_ns: head.written_ns,
                            arrived_ns: now_ns,
                        };
                        self.note(arrival);
                    }
                    self.write_more(number)?;
                }
                Role::Acts { .. } => self.on_answer(number, size, now_ns)?,
            }
        }
        Ok(())
    }

    /// `size` more bytes of answers are here.
    fn on_answer(&mut self, number: usize, mut size: u64, now_ns: u64) -> Result<(), Errno> {
        let now = self.now();
        let flow = &mut self.flows[number];
        let Role::Acts {
            application,
            answers,
        } = &mut flow.role
        else {
            return Ok(());
        };
        let mut whole = Vec::new();
        while size > 0 {
            // more than was asked for
            let (left, message) = answers.front_mut().ok_or(Errno::PROTO)?;
            let part = size.min(*left);
            (*left, size) = (*left - part, size - part);
            if *left == 0 {
                whole.push(Arrival {
                    flow: flow.flow,
                    bytes: message.bytes,
                    written_ns: self.clock.monotonic_ns(message.clock),
                    arrived_ns: now_ns,
                });
                application.on_delivered(now, message);
                answers.pop_front();
                self.waiting -= 1;
            }
        }
        let asks = flow.asks;
        self.wakes.want(number as u32, application.next_write());
        if asks {
            for arrival in whole {
                self.note(arrival);
            }
        }
        self.rest(number)
    }

    fn note(&mut self, arrival: Arrival) {
        match self.arrivals.len() < MOST_MESSAGES {
            true => self.arrivals.push(arrival),
            false => self.missed += 1,
        }
    }

    /// The other end has no more to say.
    fn on_end(&mut self, number: usize, now_ns: u64) -> Result<(), Errno> {
        let flow = &mut self.flows[number];
        match &flow.role {
            // it answers until the end, and ends its direction only then
            Role::Acts { application, .. } if application.completed().is_some() => {}
            Role::Acts { .. } => return Err(Errno::CONNRESET),
            Role::Reads(_) | Role::Counts => {
                flow.outcome.ended_ns = Some(now_ns);
                shutdown(&flow.socket, Shutdown::Write)?;
            }
        }
        self.end(number);
        Ok(())
    }
}

impl Endpoint {
    /// Messages and answers that wait.
    fn waiting(&self) -> usize {
        let answers = match &self.role {
            Role::Acts { answers, .. } => answers.len(),
            Role::Reads(_) | Role::Counts => 0,
        };
        self.out.len() + answers
    }

    /// Gives the memory of what waits back.
    fn forget(&mut self) {
        self.out = VecDeque::new();
        if let Role::Acts { answers, .. } = &mut self.role {
            *answers = VecDeque::new();
        }
    }

    fn new(task: &Task, socket: OwnedFd, seed: u64) -> Self {
        let workload = &task.spec.workload;
        let role = match (task.acts(), workload.is_greedy()) {
            (true, _) => Role::Acts {
                application: Box::new(Application::new(&task.spec, task.start, seed, task.number)),
                answers: VecDeque::new(),
            },
            (false, true) => Role::Counts,
            (false, false) => Role::Reads(Reader::default()),
        };
        Self {
            flow: task.number,
            socket,
            role,
            // a workload that waits for arrivals needs answers
            answered: workload.waits_for_arrivals(),
            asks: workload.asks(),
            out: VecDeque::new(),
            watched: false,
            receive_window: task.receive_window(),
            outcome: EndpointOutcome::default(),
            over: false,
        }
    }
}

#[cfg(test)]
mod tests;
