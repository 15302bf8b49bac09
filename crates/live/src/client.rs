//! The host that asks for a run.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pathcast_base::clock::monotonic_ns;
use pathcast_scenario::Scenario;
use pathcast_trace::{Record, Trace, read_parquet, write_packets, write_rows};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::arrivals;
use crate::clock::Clock;
use crate::conclude::{Findings, LiveReport, Share, conclude};
use crate::control::{
    Control, LONG_PATIENCE, MOST_FROM_SERVER, PATIENCE, Reply, Request, shown_environment, words,
};
use crate::cookie::{COOKIE_BYTES, Cookie};
use crate::error::LiveError;
use crate::handshake::{Answered, Asking, MOST_BYTES, Session, VERSION};
use crate::key::Key;
use crate::log::Rows;
use crate::party::{Party, TUNNEL_PRIORITY, schemes_of};
use crate::plan::{
    CLIENT, CONTROL_PORT, FLOW_PORT, Plan, SERVER, Task, address, check, over_real_path, tasks,
};
use crate::programs::{Program, Programs};
use crate::server::{RaiseOnDrop, environment};
use crate::socket;
use crate::tunnel::{Handle, Shared, Tunnel};

/// What to run with whom.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The server's name or address, and its port.
    pub server: (String, u16),
    /// The key that it has, too.
    pub key: Key,
    /// The flows; the real path replaces its link. The client is the near end: what goes
    /// forward goes to the server.
    pub scenario: Scenario,
    /// How long flows send at most, in seconds.
    pub duration_s: f64,
    /// Seed of all that is random in the workloads.
    pub seed: u64,
    /// Where to write what happened to each packet, as Parquet, if at all.
    pub packets_file: Option<PathBuf>,
    /// Where to write where each message spent its time, as Parquet, if at all.
    pub messages_file: Option<PathBuf>,
    /// Programs that run in place of the scenario's flows, until the client's ends.
    pub programs: Option<Programs>,
}

impl RunOptions {
    /// The kernel's flows, as this host sees them.
    pub(crate) fn tasks(&self, scenario: &Scenario) -> Vec<Task> {
        match self.programs {
            None => tasks(scenario, self.seed, CLIENT),
            Some(_) => Vec::new(),
        }
    }
}

/// A server answers immediately. After this time, the request counts as lost and is sent again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
const ASK_FOR: Duration = Duration::from_secs(10);

/// The clocks are compared before and after the flows, on an idle path, and less often meanwhile.
const COMPARE_FOR: Duration = Duration::from_millis(1000);
const COMPARE_EVERY_NS: u64 = 5_000_000;
const MEANWHILE_EVERY_NS: u64 = 100_000_000;

/// Runs flows with a server: the report, and the trace of the TCP senders of both hosts.
///
/// `progress` is called some times a second, with the seconds that the flows have been sending. When `stop`
/// becomes true, the run ends early and returns what it has.
///
/// # Errors
/// See [`LiveError`]. A run that cannot be trusted is not an error: its report has `valid: false`.
pub fn run(
    options: &RunOptions,
    progress: &dyn Fn(f64),
    stop: &AtomicBool,
) -> Result<(LiveReport, Trace), LiveError> {
    let wall = Instant::now();
    let scenario = over_real_path(&options.scenario);
    check(&scenario).map_err(LiveError::Unsupported)?;
    if !(options.duration_s > 0.0 && options.duration_s.is_finite()) {
        let got_s = options.duration_s;
        return Err(LiveError::Unsupported(format!(
            "got a duration of {got_s} s, expected more than 0 s"
        )));
    }
    let (udp, session, server) = ask(&options.server, &options.key, stop)?;
    let counted = udp.try_clone();
    let counted = counted.map_err(|error| LiveError::from_io("cloning the UDP socket", error))?;
    let index = session.index;
    let (mut tunnel, handle) = Tunnel::new(udp, None)?;
    let shared = tunnel.carry(session, server);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let starting = |error| LiveError::from_io("starting a thread", error);
        let carry = thread::Builder::new().name("pathcast-tunnel".into());
        let carry = carry
            .spawn_scoped(scope, || tunnel.run(TUNNEL_PRIORITY, &over))
            .map_err(starting)?;
        let ending = RaiseOnDrop(&over);
        let client = Client {
            options,
            scenario: &scenario,
            handle,
            index,
            shared,
            counted,
            stop,
        };
        let findings = client.run(progress)?;
        drop(ending);
        let tunnel = carry
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let concluded = conclude(options, &scenario, findings, &tunnel, wall);
        let metadata = &concluded.trace.metadata;
        if let Some(file) = &options.packets_file {
            write_packets(file, metadata, &concluded.packets)?;
        }
        if let Some(file) = &options.messages_file {
            write_rows(file, metadata, concluded.messages)?;
        }
        Ok((concluded.report, concluded.trace))
    })
}

/// Agrees on a session with the server.
pub(crate) fn ask(
    (host, port): &(String, u16),
    key: &Key,
    stop: &AtomicBool,
) -> Result<(UdpSocket, Session, SocketAddr), LiveError> {
    let name = format!("{host} port {port}");
    let looking = |error| LiveError::from_io(format!("looking for {name}"), error);
    let mut addresses = (host.as_str(), *port).to_socket_addrs().map_err(looking)?;
    let server = addresses.next();
    let server = server.ok_or_else(|| looking(std::io::ErrorKind::NotFound.into()))?;
    let any = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let udp = socket::open(any)?;
    let asking = |error| LiveError::from_io(format!("asking {server}"), error);
    udp.set_read_timeout(Some(Duration::from_millis(20)))
        .map_err(asking)?;
    let mut index = [0; 4];
    getrandom(&mut index, GetRandomFlags::empty()).map_err(|errno| asking(errno.into()))?;
    let hello = |cookie: &Cookie| Asking::new(key, u32::from_le_bytes(index), cookie);
    let mut asked = hello(&[0; COOKIE_BYTES]);
    let begin = Instant::now();
    let mut next = Duration::ZERO;
    let mut datagram = [0; MOST_BYTES];
    while begin.elapsed() < ASK_FOR && !stop.load(Ordering::Relaxed) {
        if begin.elapsed() >= next {
            // a missing server may start in time; otherwise the error comes at the end
            let _ = udp.send_to(&asked.hello, server);
            next = begin.elapsed() + ASK_AGAIN;
        }
        let Ok((size, from)) = udp.recv_from(&mut datagram) else {
            continue;
        };
        if from.port() != server.port() {
            continue;
        }
        asked = match asked.answered(&datagram[..size]) {
            Answered::Welcome(session) => return Ok((udp, session, server)),
            Answered::Busy => {
                return Err(LiveError::Refused(
                    "it has as many clients as it takes; try again later".into(),
                ));
            }
            Answered::Other(version) => {
                return Err(LiveError::Refused(format!(
                    "it speaks version {version} of the protocol, expected version {VERSION}: install the \
                     same version of pathcast on both hosts"
                )));
            }
            Answered::Again(cookie) => {
                next = Duration::ZERO;
                hello(&cookie)
            }
            Answered::Nothing(asked) => asked,
        };
    }
    Err(LiveError::NoAnswer {
        server: server.to_string(),
        waited_s: begin.elapsed().as_secs_f64(),
    })
}

struct Client<'a> {
    options: &'a RunOptions,
    scenario: &'a Scenario,
    handle: Handle,
    index: u32,
    shared: Arc<Shared>,
    counted: UdpSocket,
    stop: &'a AtomicBool,
}

impl Client<'_> {
    fn over(&self) -> bool {
        self.shared.is_over() || self.stop.load(Ordering::Relaxed)
    }

    fn gone(&self) -> LiveError {
        match self.stop.load(Ordering::Relaxed) {
            true => LiveError::Unsupported("stopped before the flows had begun".into()),
            false => LiveError::Peer("has gone".into()),
        }
    }

    /// Compares clocks for a while.
    fn compare(&self) {
        self.shared
            .ask_every_ns
            .store(COMPARE_EVERY_NS, Ordering::Relaxed);
        let begin = Instant::now();
        while begin.elapsed() < COMPARE_FOR && !self.shared.is_over() {
            thread::sleep(Duration::from_millis(20));
        }
        self.shared
            .ask_every_ns
            .store(MEANWHILE_EVERY_NS, Ordering::Relaxed);
    }

    fn run(&self, progress: &dyn Fn(f64)) -> Result<Findings, LiveError> {
        let (options, scenario) = (self.options, self.scenario);
        let tasks = options.tasks(scenario);
        let schemes = schemes_of(&tasks)?;
        let drops_before = socket::drops(&self.counted);
        let party = Party::create(CLIENT, Some(scenario), Arc::clone(&self.shared), 1)?;
        self.handle.attach(self.index, Arc::clone(&party.host));
        let listener = party.listen(FLOW_PORT)?;
        self.compare();
        let mut control = Control::new(self.call(&party)?, MOST_FROM_SERVER)?;
        let server_environment = self.plan(&mut control)?;
        let sockets = party.connect(&tasks, &schemes, &listener, &|| self.over())?;
        match self.hear(&control)? {
            Reply::Connected => {}
            Reply::Refused { why } => return Err(LiveError::Refused(words(&why))),
            _ => return Err(LiveError::Peer("is not connected".into())),
        }
        let begin_ns = self.begin(&mut control)?;
        let last_ns = begin_ns + (options.duration_s * 1e9) as u64;
        let mut program = match &options.programs {
            Some(programs) => Some(Program::start(&party, &programs.command, "")?),
            None => None,
        };
        let mut server_done = false;
        let seen = party.run(&tasks, sockets, options.seed, begin_ns, &mut |done| {
            if self.shared.is_over() {
                return Err(LiveError::Peer("has gone".into()));
            }
            if let Some(reply) = control.heard::<Reply>(Duration::ZERO)? {
                match reply {
                    Reply::Done => server_done = true,
                    _ => return Err(LiveError::Peer("said something out of turn".into())),
                }
            }
            let now_ns = monotonic_ns();
            progress((now_ns.saturating_sub(begin_ns) as f64 * 1e-9).min(options.duration_s));
            let ended = match &mut program {
                None => done && server_done,
                Some(program) => match program.ended()? {
                    None => false,
                    Some(Some(0)) => true,
                    Some(code) => return Err(LiveError::Program { code }),
                },
            };
            Ok(now_ns < last_ns && !ended && !self.stop.load(Ordering::Relaxed))
        })?;
        drop(program);
        control.say(&Request::End)?;
        loop {
            match control.hear(PATIENCE, &|| self.shared.is_over())? {
                Reply::Ended => break,
                Reply::Done => {} // said at the same moment
                _ => return Err(LiveError::Peer("does not end".into())),
            }
        }
        let (mut own, mut seen) = party.conclude(seen)?;
        // packets in transit arrive meanwhile
        self.compare();
        let server = self.share_of_server(&mut control, server_environment)?;
        self.shared.noting.store(false, Ordering::Relaxed);
        let drops = socket::drops(&self.counted).zip(drops_before);
        if let Some(drops @ 1..) = drops.map(|(now, before)| now.saturating_sub(before)) {
            let why = format!("{drops} datagrams found no room in the UDP socket");
            own.invalid_because.push(why);
        }
        self.handle.close(self.index);
        let mut notes = self.shared.notes();
        let own_rows = Rows::decode(&std::mem::take(&mut notes.log).encode());
        let own_rows = own_rows.expect("a log of our own");
        Ok(Findings {
            begin_ns,
            ended_ns: seen.ended_ns,
            samples: std::mem::take(&mut notes.samples),
            client: Share {
                results: own,
                rows: own_rows,
                records: seen.records(),
                arrivals: std::mem::take(&mut seen.report.arrivals),
                environment: environment(),
                begin_ns,
            },
            server,
        })
    }

    /// Sends the plan to the server; returns what the server is.
    fn plan(&self, control: &mut Control) -> Result<BTreeMap<String, String>, LiveError> {
        control.say(&Request::Plan(Plan {
            scenario: self.scenario.to_toml(),
            duration_s: self.options.duration_s,
            seed: self.options.seed,
            programs: (self.options.programs.as_ref()).map(|programs| programs.asked.clone()),
        }))?;
        match self.hear(control)? {
            Reply::Ready { environment } => Ok(shown_environment(environment)),
            Reply::Refused { why } => Err(LiveError::Refused(words(&why))),
            _ => Err(LiveError::Peer("is not ready".into())),
        }
    }

    /// Asks the server what it saw, and says good-bye.
    fn share_of_server(
        &self,
        control: &mut Control,
        environment: BTreeMap<String, String>,
    ) -> Result<Share, LiveError> {
        control.say(&Request::Results)?;
        let reply = control.hear(LONG_PATIENCE, &|| self.shared.is_over())?;
        let Reply::Results { begin_ns, results } = reply else {
            return Err(LiveError::Peer("has no results".into()));
        };
        let senseless = |what: &str| LiveError::Peer(format!("sent {what} that make no sense"));
        let rows = Rows::decode(&control.receive(LONG_PATIENCE)?);
        let rows = rows.ok_or_else(|| senseless("packets"))?;
        let arrivals = arrivals::decode(&control.receive(LONG_PATIENCE)?);
        let arrivals = arrivals.ok_or_else(|| senseless("arrivals"))?;
        let records = records_of(&control.receive(LONG_PATIENCE)?)?;
        let _ = control.say(&Request::End);
        Ok(Share {
            results: results.shown(),
            rows,
            records,
            arrivals,
            environment,
            begin_ns,
        })
    }

    fn hear(&self, control: &Control) -> Result<Reply, LiveError> {
        control.hear(PATIENCE, &|| self.over())
    }

    /// Connects to the server in the tunnel, which may not be at its end yet.
    fn call(&self, party: &Party) -> Result<TcpStream, LiveError> {
        let server = SocketAddr::new(address(SERVER), CONTROL_PORT);
        let begin = Instant::now();
        loop {
            let wait = Duration::from_secs(5);
            match party.inside(|| TcpStream::connect_timeout(&server, wait)) {
                Ok(stream) => return Ok(stream),
                Err(_) if self.over() => return Err(self.gone()),
                Err(error) if begin.elapsed() > PATIENCE => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Says when the run begins, by both clocks: soon.
    fn begin(&self, control: &mut Control) -> Result<u64, LiveError> {
        let samples = self.shared.notes().samples.clone();
        let now_ns = monotonic_ns();
        let clock = Clock::estimate(&samples, now_ns);
        let clock = clock.ok_or_else(|| LiveError::Peer("does not tell the time".into()))?;
        let spare_ns = 100_000_000 + (2e9 * clock.least_rtt_s) as u64;
        let begin_ns = now_ns + spare_ns;
        let at_ns = begin_ns.saturating_add_signed((clock.offset_s * 1e9) as i64);
        control.say(&Request::Begin { at_ns })?;
        Ok(begin_ns)
    }
}

/// The rows of a trace that the server sent.
fn records_of(bytes: &[u8]) -> Result<Vec<Record>, LiveError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let reading = |error| LiveError::from_io("writing a temporary file", error);
    let folder = tempfile::tempdir().map_err(reading)?;
    let file = folder.path().join("trace of the server");
    std::fs::write(&file, bytes).map_err(reading)?;
    Ok(read_parquet(&file)?.records)
}
