//! One host's part in a run: connects its flows, lets them send, watches them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pathcast_base::clock::monotonic_ns;
use pathcast_kernel_schemes::Schemes;
use pathcast_netns::{Host, limit_receive_window, set_sysctls, set_tcp_option};
use pathcast_path::End;
use pathcast_probe::{Method, Observation, Probe};
use pathcast_scenario::{Scenario, UNSENT_BYTES};
use pathcast_trace::Record;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, acceptfrom_with, bind, connect, getpeername,
    socket_with, sockopt,
};

use crate::control::{Endpoint, Results, Sender};
use crate::endpoints::{Endpoints, EndpointsReport};
use crate::error::LiveError;
use crate::plan::{
    FIRST_FLOW_PORT, FLOW_PORT, MOST_FLOWS, SHAPE, Task, address, beginning, settings,
};
use crate::tunnel::Shared;

const PROBE_PRIORITY: i32 = 45;
const ENDPOINT_PRIORITY: i32 = 40;
pub(crate) const TUNNEL_PRIORITY: i32 = 50;

/// Long enough for five lost SYNs in a row.
const CONNECT_WITHIN: Duration = Duration::from_secs(40);
/// Of linux/tcp.h.
const TCP_NOTSENT_LOWAT: i32 = 25;

/// One host in a run.
pub(crate) struct Party {
    pub(crate) host: Arc<Host>,
    pub(crate) side: End,
    pub(crate) shared: Arc<Shared>,
    most_records: usize,
}

/// What a host keeps of its senders' states in all, for all its sessions: 170 MB, and 600 MB when they are made
/// into a trace.
const MOST_RECORDS: usize = 1 << 22;

impl Party {
    /// A host with its address in the tunnel, which will run `scenario`; one of `parties` at the same time.
    pub(crate) fn create(
        side: End,
        scenario: Option<&Scenario>,
        shared: Arc<Shared>,
        parties: usize,
    ) -> Result<Self, LiveError> {
        let host = Arc::new(Host::create(
            None,
            &[address(side)],
            SHAPE,
            &settings(scenario),
        )?);
        if let Some(scenario) = scenario {
            host.begin_with(address(side.opposite()), beginning(scenario))?;
        }
        Ok(Self {
            host,
            side,
            shared,
            most_records: MOST_RECORDS / parties.max(1),
        })
    }

    /// Applies the scenario's settings of TCP.
    pub(crate) fn settle(&self, scenario: &Scenario) -> Result<Vec<String>, LiveError> {
        let settings = settings(Some(scenario));
        let peer = address(self.side.opposite());
        self.host.begin_with(peer, beginning(scenario))?;
        self.inside(|| Ok(set_sysctls(&settings, &[address(self.side)])))
    }

    /// Does `work` in the namespace of the tunnel.
    pub(crate) fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> Result<T, LiveError> {
        let entering = |error| LiveError::from_io("entering a network namespace", error);
        let done = self.host.namespace.run(work).map_err(entering)?;
        done.map_err(|error| LiveError::from_io("opening a socket in the tunnel", error))
    }

    /// Waits for connections at `port` of the tunnel.
    pub(crate) fn listen(&self, port: u16) -> Result<TcpListener, LiveError> {
        let address = SocketAddr::new(address(self.side), port);
        self.inside(|| {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
            bind(&socket, &address)?;
            rustix::net::listen(&socket, MOST_FLOWS as i32)?;
            Ok(TcpListener::from(socket))
        })
    }

    /// A socket for each flow, connected to the other host.
    pub(crate) fn connect(
        &self,
        tasks: &[Task],
        schemes: &Schemes,
        listener: &TcpListener,
        given_up: &dyn Fn() -> bool,
    ) -> Result<Vec<OwnedFd>, LiveError> {
        let opened = self.inside(|| {
            let sockets = tasks.iter().map(|task| match task.sends {
                true => self.sender(task, schemes).map(Some),
                false => Ok(None),
            });
            Ok(sockets.collect::<Result<Vec<_>, LiveError>>())
        })?;
        let mut sockets = opened?;
        let connecting = |errno: Errno| LiveError::from_io("connecting over the tunnel", errno);
        let begin = Instant::now();
        let peer = address(self.side.opposite());
        let mut waiting = tasks.len();
        let mut connected = vec![false; tasks.len()];
        while waiting > 0 {
            loop {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                match acceptfrom_with(listener, flags) {
                    Ok((socket, Some(from))) => {
                        let from = SocketAddr::try_from(from).map_err(connecting)?;
                        let flow = from.port().checked_sub(FIRST_FLOW_PORT).map(usize::from);
                        let flow = flow.filter(|&flow| {
                            from.ip() == peer && flow < tasks.len() && sockets[flow].is_none()
                        });
                        // ignore other connections
                        let Some(flow) = flow else { continue };
                        let task = &tasks[flow];
                        prepare(&socket, task).map_err(|error| {
                            LiveError::from_io("setting up an accepted connection", error)
                        })?;
                        sockets[flow] = Some(socket);
                        connected[flow] = true;
                        waiting -= 1;
                    }
                    Ok((_, None)) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                    Err(Errno::AGAIN) => break,
                    Err(errno) => return Err(connecting(errno)),
                }
            }
            for (flow, socket) in sockets.iter().enumerate() {
                let Some(socket) = socket.as_ref().filter(|_| !connected[flow]) else {
                    continue;
                };
                if let Err(errno) = sockopt::socket_error(socket).map_err(connecting)? {
                    return Err(connecting(errno));
                }
                if getpeername(socket).is_ok() {
                    connected[flow] = true;
                    waiting -= 1;
                }
            }
            if waiting == 0 {
                break;
            }
            if given_up() {
                return Err(LiveError::Peer("has gone".into()));
            }
            if begin.elapsed() > CONNECT_WITHIN {
                let (done, all) = (tasks.len() - waiting, tasks.len());
                let waited_s = begin.elapsed().as_secs();
                return Err(LiveError::Peer(format!(
                    "has connected {done} of {all} flows within {waited_s} s"
                )));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(sockets.into_iter().flatten().collect())
    }

    /// A socket that connects to the other host, to send a flow's data.
    fn sender(&self, task: &Task, schemes: &Schemes) -> Result<OwnedFd, LiveError> {
        let opening = |errno: Errno| LiveError::from_io("opening a TCP socket", errno);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
        let socket = socket.map_err(opening)?;
        let port = FIRST_FLOW_PORT + task.number as u16;
        bind(&socket, &SocketAddr::new(address(self.side), port)).map_err(opening)?;
        let scheme = schemes.kernel_name(task.scheme());
        sockopt::set_tcp_congestion(&socket, scheme).map_err(|errno| {
            LiveError::from_io(format!("setting the congestion control {scheme:?}"), errno)
        })?;
        prepare(&socket, task)
            .map_err(|error| LiveError::from_io("opening a TCP socket", error))?;
        let to = SocketAddr::new(address(self.side.opposite()), FLOW_PORT);
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
            Err(errno) => Err(opening(errno)),
        }
    }

    /// Lets connected flows send from `begin_ns` of this host's monotonic clock on, until `turn`, which
    /// is called some fifty times a second with whether all flows have ended here, says no.
    pub(crate) fn run(
        &self,
        tasks: &[Task],
        sockets: Vec<OwnedFd>,
        seed: u64,
        begin_ns: u64,
        turn: &mut dyn FnMut(bool) -> Result<bool, LiveError>,
    ) -> Result<Seen, LiveError> {
        let sending: Vec<usize> = (0..tasks.len()).filter(|&flow| tasks[flow].sends).collect();
        let senders: Vec<_> = sending.iter().map(|&flow| sockets[flow].as_fd()).collect();
        let watch = pathcast_probe::Options {
            method: match senders.is_empty() {
                true => Method::TcpInfo, // nothing to see
                false => method(),
            },
            fifo_priority: Some(PROBE_PRIORITY),
            most_records: Some(self.most_records),
            ..pathcast_probe::Options::default()
        };
        let probe = Probe::attach(&senders, &watch)?;
        let endpoints = Endpoints::new(tasks, sockets, seed, begin_ns)?;
        let (stop, done) = (AtomicBool::new(false), AtomicBool::new(false));
        self.shared.noting.store(true, Ordering::Relaxed);
        let (report, ended_ns) = thread::scope(|scope| {
            let work = || endpoints.run(ENDPOINT_PRIORITY, &stop, &done);
            let thread = thread::Builder::new().name("pathcast-flows".into());
            let thread = thread
                .spawn_scoped(scope, work)
                .map_err(|error| LiveError::from_io("starting a thread", error))?;
            let mut go_on = || -> Result<(), LiveError> {
                while turn(done.load(Ordering::Relaxed))? {
                    thread::sleep(Duration::from_millis(10));
                }
                Ok(())
            };
            let ended = go_on();
            let ended_ns = monotonic_ns();
            stop.store(true, Ordering::Relaxed);
            let report = thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended.map(|()| (report, ended_ns))
        })?;
        let mut observation = probe.finish(begin_ns);
        for record in &mut observation.records {
            record.flow = sending[record.flow as usize] as u32;
        }
        Ok(Seen {
            sending,
            report,
            observation,
            begin_ns,
            ended_ns,
        })
    }

    /// Closes the flows; gives what this host has to say of the run.
    pub(crate) fn conclude(&self, mut seen: Seen) -> Result<(Results, Seen), LiveError> {
        let mut results = Results {
            cpu_s: seen.report.cpu_s + seen.observation.cpu_s,
            measured_by: seen.observation.method.to_string(),
            ..Results::default()
        };
        for (flow, outcome) in seen.report.flows.iter().enumerate() {
            results.endpoints.push(Endpoint {
                arrived_bytes: outcome.arrived_bytes,
                written: outcome.written,
                ended_ns: outcome.ended_ns,
            });
            if let Some(code) = outcome.broken {
                let why = if code == Errno::NOBUFS.raw_os_error() {
                    format!(
                        "flow {flow} was ended: too many of its messages waited, for they were written \
                         faster than the path carries them"
                    )
                } else {
                    let error = io::Error::from_raw_os_error(code);
                    format!("the connection of flow {flow} broke: {error}")
                };
                results.invalid_because.push(why);
            }
        }
        for (&flow, totals) in seen.sending.iter().zip(&seen.observation.flows) {
            let sender = Sender {
                retransmits: totals.retransmits,
                mss_bytes: totals.last.snd_mss,
            };
            results.senders.insert(flow as u32, sender);
        }
        seen.report.sockets.clear();
        let missed = self.shared.notes().log.missed;
        for (count, what) in [
            (
                seen.observation.records_lost,
                "records of the senders were lost",
            ),
            (missed, "packets were not noted, for want of room"),
            (
                seen.report.missed,
                "messages were not noted, for want of room",
            ),
            (
                self.shared.refused.load(Ordering::Relaxed),
                "packets were not taken by this host's socket or device",
            ),
            (
                self.host.device.drops()?,
                "packets were dropped by the tunnel's device",
            ),
        ] {
            if count > 0 {
                results.invalid_because.push(format!("{count} {what}"));
            }
        }
        results.refused.extend(self.host.refused.iter().cloned());
        if let Some(why) = &seen.report.fifo_refused {
            results
                .refused
                .push(format!("no real-time priority: {why}"));
        }
        if let Some(why) = &seen.observation.fallback_because {
            results.refused.push(format!("no tcp_probe: {why}"));
        }
        Ok((results, seen))
    }
}

/// What a host saw of a run.
pub(crate) struct Seen {
    sending: Vec<usize>,
    pub(crate) report: EndpointsReport,
    observation: Observation,
    pub(crate) begin_ns: u64,
    pub(crate) ended_ns: u64,
}

impl Seen {
    /// The rows of this host's senders.
    pub(crate) fn records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.observation.records)
    }
}

/// What a flow's socket is like, on either side.
fn prepare(socket: &OwnedFd, task: &Task) -> io::Result<()> {
    // nothing is left of a flow when its run is over
    sockopt::set_socket_linger(socket, Some(Duration::ZERO))?;
    if !task.spec.workload.is_greedy() {
        sockopt::set_tcp_nodelay(socket, true)?;
    } else if !task.spec.is_endless() {
        set_tcp_option(socket.as_fd(), TCP_NOTSENT_LOWAT, UNSENT_BYTES as i32)?;
    }
    if let Some(window) = task.receive_window() {
        limit_receive_window(socket.as_fd(), window)?;
    }
    Ok(())
}

/// The congestion controls of the flows that this host sends.
pub(crate) fn schemes_of(tasks: &[Task]) -> Result<Schemes, LiveError> {
    let sending = tasks.iter().filter(|task| task.sends).map(Task::scheme);
    let names: BTreeSet<&str> = sending.collect();
    Ok(Schemes::provide(names)?)
}

/// How to watch the senders: in a time namespace, the kernel's records have another clock than this
/// process.
fn method() -> Method {
    let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let shifted = offsets
        .lines()
        .filter_map(|line| line.strip_prefix("monotonic"))
        .any(|line| line.split_whitespace().any(|number| number != "0"));
    match shifted {
        true => Method::TcpInfo,
        false => Method::TcpProbe,
    }
}
