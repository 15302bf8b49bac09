//! The host that waits for others to run flows with it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use pathcast_base::clock::monotonic_ns;
use pathcast_kernel_schemes::{Schemes, available};
use pathcast_scenario::Scenario;
use pathcast_trace::{Metadata, Source, Trace, write_parquet};
use rustix::system::uname;

use crate::arrivals;
use crate::control::{Control, MOST_FROM_CLIENT, PATIENCE, Reply, Request};
use crate::error::LiveError;
use crate::key::Key;
use crate::party::{Party, TUNNEL_PRIORITY, schemes_of};
use crate::plan::{CONTROL_PORT, FLOW_PORT, Plan, SERVER, Task, check, tasks};
use crate::programs::{MOST_ASKED_BYTES, Program};
use crate::socket;
use crate::tunnel::{Arrived, Handle, Tunnel, Welcoming};

/// How a server serves.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where it waits for datagrams.
    pub listen: SocketAddr,
    /// Who may use it: those who have it.
    pub key: Key,
    /// The most simultaneous clients.
    pub most_clients: usize,
    /// The longest run that it takes part in, in seconds.
    pub most_duration_s: f64,
    /// Whether it ends after its first client.
    pub once: bool,
    /// The command line of the program that runs what clients ask of programs; none: it refuses.
    pub programs: Option<Vec<String>>,
}

/// What happens at a server.
#[derive(Clone, Debug)]
pub enum ServerEvent {
    /// It waits for clients at this address.
    Listens(SocketAddr),
    /// A client that has the key has come.
    Came(SocketAddr),
    /// A run begins.
    Began {
        /// The client.
        client: SocketAddr,
        /// Flows of the kernel's TCP; 0: schemes run.
        flows: usize,
        /// How long it is to take, in seconds.
        duration_s: f64,
    },
    /// A client has gone; why, if that was not agreed.
    Went(SocketAddr, Option<String>),
}

impl fmt::Display for ServerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listens(at) => write!(f, "waiting for clients at {at}"),
            Self::Came(client) => write!(f, "{client} has come"),
            Self::Began {
                client,
                flows,
                duration_s,
            } if *flows == 0 => write!(f, "{client} runs schemes for {duration_s} s at most"),
            Self::Began {
                client,
                flows,
                duration_s,
            } => write!(f, "{client} runs {flows} flows for {duration_s} s"),
            Self::Went(client, None) => write!(f, "{client} has gone"),
            Self::Went(client, Some(why)) => write!(f, "{client} has gone: {why}"),
        }
    }
}

/// Serves clients until `stop`; `tell` is called from the threads that serve them.
///
/// A client without the key gets no answer. Each client gets its own network namespace, from which only the
/// client can be reached.
///
/// # Errors
/// The address cannot be listened on. Errors of one client go to `tell`, and do not end the server.
pub fn serve(
    options: &ServerOptions,
    tell: &(dyn Fn(ServerEvent) + Sync),
    stop: &AtomicBool,
) -> Result<(), LiveError> {
    let udp = socket::open(options.listen)?;
    let address = udp.local_addr();
    let address = address.map_err(|error| LiveError::from_io("asking for our address", error))?;
    let (arrived, arrivals) = channel();
    let welcoming = Welcoming::new(options.key.clone(), options.most_clients, arrived)?;
    let counted = udp.try_clone();
    let counted = counted.map_err(|error| LiveError::from_io("cloning the UDP socket", error))?;
    let (tunnel, handle) = Tunnel::new(udp, Some(welcoming))?;
    let (over, served) = (AtomicBool::new(false), AtomicBool::new(false));
    tell(ServerEvent::Listens(address));
    thread::scope(|scope| {
        let starting = |error| LiveError::from_io("starting a thread", error);
        let named = |name: &str| thread::Builder::new().name(name.into());
        let carry =
            named("pathcast-tunnel").spawn_scoped(scope, || tunnel.run(TUNNEL_PRIORITY, &over));
        carry.map_err(starting)?;
        let _over = RaiseOnDrop(&over);
        let enough = || options.once && served.load(Ordering::Relaxed);
        while !(stop.load(Ordering::Relaxed) || enough()) {
            let arrived = match arrivals.recv_timeout(Duration::from_millis(100)) {
                Ok(arrived) => arrived,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let (handle, served, counted) = (handle.clone(), &served, &counted);
            let work = move || {
                let client = arrived.peer;
                tell(ServerEvent::Came(client));
                let drops_before = socket::drops(counted);
                let drops = || Some(socket::drops(counted)?.saturating_sub(drops_before?));
                let visit = Visit {
                    options,
                    handle: &handle,
                    arrived: &arrived,
                    drops: &drops,
                    stop,
                };
                let ended = visit.serve(tell);
                handle.close(arrived.index);
                tell(ServerEvent::Went(
                    client,
                    ended.err().map(|error| error.to_string()),
                ));
                served.store(true, Ordering::Relaxed);
            };
            named("pathcast-client")
                .spawn_scoped(scope, work)
                .map_err(starting)?;
        }
        Ok(())
    })
}

/// Raises a flag when it is dropped, also after an error.
pub(crate) struct RaiseOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for RaiseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What this host is, for whoever reads the run.
pub(crate) fn environment() -> BTreeMap<String, String> {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let kernel = uname().release().to_string_lossy().into_owned();
    BTreeMap::from([
        ("kernel".to_string(), kernel),
        ("load_average".to_string(), load.trim().to_string()),
        (
            "pathcast".to_string(),
            env!("CARGO_PKG_VERSION").to_string(),
        ),
        ("schemes".to_string(), available().join(" ")),
    ])
}

/// What a client asked for and the server accepts.
struct Agreed {
    plan: Plan,
    tasks: Vec<Task>,
    schemes: Schemes,
}

/// One client at the server.
struct Visit<'a> {
    options: &'a ServerOptions,
    handle: &'a Handle,
    arrived: &'a Arrived,
    /// Datagrams that found no room in the UDP socket.
    drops: &'a dyn Fn() -> Option<u64>,
    stop: &'a AtomicBool,
}

impl Visit<'_> {
    fn over(&self) -> bool {
        self.arrived.shared.is_over() || self.stop.load(Ordering::Relaxed)
    }

    fn serve(&self, tell: &(dyn Fn(ServerEvent) + Sync)) -> Result<(), LiveError> {
        let party = Party::create(
            SERVER,
            None,
            Arc::clone(&self.arrived.shared),
            self.options.most_clients,
        )?;
        let talks = party.listen(CONTROL_PORT)?;
        let flows = party.listen(FLOW_PORT)?;
        self.handle
            .attach(self.arrived.index, Arc::clone(&party.host));
        let mut control = Control::new(self.accept(&talks)?, MOST_FROM_CLIENT)?;
        let refused = match self.agree(&control, &party) {
            Ok(agreed) => {
                tell(ServerEvent::Began {
                    client: self.arrived.peer,
                    flows: agreed.tasks.len(),
                    duration_s: agreed.plan.duration_s,
                });
                match self.run(&mut control, &party, &flows, &agreed) {
                    Err(LiveError::Unsupported(why)) => why,
                    ended => return ended,
                }
            }
            Err(LiveError::Unsupported(why)) => why,
            Err(error) => return Err(error),
        };
        control.say(&Reply::Refused {
            why: refused.clone(),
        })?;
        // until the client has read it
        let _ = control.hear::<Request>(PATIENCE, &|| self.over());
        Err(LiveError::Unsupported(refused))
    }

    fn accept(&self, talks: &TcpListener) -> Result<TcpStream, LiveError> {
        let begin = Instant::now();
        loop {
            match talks.accept() {
                Ok((stream, _)) => {
                    let blocking = stream.set_nonblocking(false);
                    let failed = |error| LiveError::from_io("accepting the client", error);
                    return blocking.map(|()| stream).map_err(failed);
                }
                Err(_) if self.over() => return Err(LiveError::Peer("has gone".into())),
                Err(_) if begin.elapsed() > PATIENCE => {
                    let waited_s = begin.elapsed().as_secs();
                    return Err(LiveError::Peer(format!(
                        "has said nothing for {waited_s} s"
                    )));
                }
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Receives what the client asks for, and checks whether it is available.
    fn agree(&self, control: &Control, party: &Party) -> Result<Agreed, LiveError> {
        let Request::Plan(plan) = control.hear(PATIENCE, &|| self.over())? else {
            return Err(LiveError::Peer("has no plan".into()));
        };
        let most_s = self.options.most_duration_s;
        if !(plan.duration_s > 0.0 && plan.duration_s <= most_s) {
            let got_s = plan.duration_s;
            return Err(LiveError::Unsupported(format!(
                "got a duration of {got_s} s, expected more than 0 s and at most {most_s} s"
            )));
        }
        let scenario = Scenario::parse(&plan.scenario, "plan");
        let scenario = scenario.map_err(|error| LiveError::Unsupported(error.to_string()))?;
        check(&scenario).map_err(LiveError::Unsupported)?;
        let tasks = match &plan.programs {
            None => tasks(&scenario, plan.seed, SERVER),
            Some(asked) if asked.len() > MOST_ASKED_BYTES => {
                return Err(LiveError::Unsupported(format!(
                    "got {} bytes of what schemes to run, expected at most {MOST_ASKED_BYTES}",
                    asked.len()
                )));
            }
            Some(_) if self.options.programs.is_some() => Vec::new(),
            Some(_) => {
                return Err(LiveError::Unsupported(
                    "it runs no schemes; start `pathcast live server` with --schemes".into(),
                ));
            }
        };
        let schemes = schemes_of(&tasks);
        let schemes = schemes.map_err(|error| LiveError::Unsupported(error.to_string()))?;
        party.settle(&scenario)?;
        Ok(Agreed {
            plan,
            tasks,
            schemes,
        })
    }

    fn run(
        &self,
        control: &mut Control,
        party: &Party,
        listener: &TcpListener,
        agreed: &Agreed,
    ) -> Result<(), LiveError> {
        let Agreed {
            plan,
            tasks,
            schemes,
        } = agreed;
        control.say(&Reply::Ready {
            environment: environment(),
        })?;
        let sockets = party.connect(tasks, schemes, listener, &|| self.over())?;
        let program = match (&plan.programs, &self.options.programs) {
            (Some(asked), Some(command)) => Some(Program::start(party, command, asked)?),
            _ => None,
        };
        control.say(&Reply::Connected)?;
        let Request::Begin { at_ns } = control.hear(PATIENCE, &|| self.over())? else {
            return Err(LiveError::Peer("did not begin".into()));
        };
        // a client that asks to begin at another time has other clocks than it reported
        let soon_ns = monotonic_ns() + PATIENCE.as_nanos() as u64;
        let begin_ns = at_ns.min(soon_ns);
        let last_ns = begin_ns + (plan.duration_s * 1e9) as u64 + PATIENCE.as_nanos() as u64;
        let mut said = false;
        let seen = party.run(tasks, sockets, plan.seed, begin_ns, &mut |done| {
            if done && !said {
                control.say(&Reply::Done)?;
                said = true;
            }
            if self.over() {
                return Err(LiveError::Peer("has gone".into()));
            }
            if monotonic_ns() > last_ns {
                return Err(LiveError::Peer("has not ended the run".into()));
            }
            match control.heard::<Request>(Duration::ZERO)? {
                None => Ok(true),
                Some(Request::End) => Ok(false),
                Some(_) => Err(LiveError::Peer(
                    "said something else than that it ends".into(),
                )),
            }
        })?;
        control.say(&Reply::Ended)?;
        drop(program);
        let (mut results, mut seen) = party.conclude(seen)?;
        let Request::Results = control.hear(PATIENCE, &|| self.over())? else {
            return Err(LiveError::Peer("does not want the results".into()));
        };
        self.arrived.shared.noting.store(false, Ordering::Relaxed);
        if let Some(drops @ 1..) = (self.drops)() {
            let why = format!("{drops} datagrams found no room in the UDP socket");
            results.invalid_because.push(why);
        }
        let log = std::mem::take(&mut self.arrived.shared.notes().log);
        control.say(&Reply::Results {
            begin_ns: seen.begin_ns,
            results,
        })?;
        control.send(&log.encode())?;
        control.send(&arrivals::encode(&seen.report.arrivals))?;
        control.send(&trace_bytes(seen.records())?)?;
        // the client says good-bye when it has all
        let _ = control.hear::<Request>(PATIENCE, &|| self.over());
        Ok(())
    }
}

/// Rows of a trace as a Parquet file; empty if there are no rows.
fn trace_bytes(records: Vec<pathcast_trace::Record>) -> Result<Vec<u8>, LiveError> {
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let writing = |error| LiveError::from_io("writing a temporary file", error);
    let folder = tempfile::tempdir().map_err(writing)?;
    let file = folder.path().join("trace.parquet");
    let trace = Trace {
        metadata: Metadata::new(Source::Live),
        records,
    };
    write_parquet(&file, &trace)?;
    let mut bytes = Vec::new();
    let read = File::open(&file).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(writing)?;
    Ok(bytes)
}
