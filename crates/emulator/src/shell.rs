//! A command in its own network namespace, which only emulated links connect with the outside.

use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use pathcast_base::clock::monotonic_ns;
use pathcast_kernel_schemes::{Schemes, check_name};
use pathcast_netns::{
    Device, DeviceKind, Namespace, Shape, configure, index, route, set_sysctls, switch_on_loopback,
};
use pathcast_path::{Counters, Direction, End, Path, Span};
use pathcast_scenario::{FlowSpec, Link, Scenario, Transport};
use pathcast_trace::{Metadata, PacketRecord, Slip, Source, TableWriter, TraceError};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::addresses::{MTU, SHAPE};
use crate::error::EmulatorError;
use crate::mm_log::MmLog;
use crate::options::Options;
use crate::outcome::origins;
use crate::outside::Outside;
use crate::packet_log::{Log, Message, Rows, if_wanted, log_of_everything};
use crate::pump::{Pump, PumpReport};
use crate::run::{PUMP_PRIORITY, RaiseOnDrop, join, spawn};
use crate::sys::die_with_this_thread;
use crate::verdict::{Evidence, PACKETS_FOR_STALLS, slip_bound, stall_bound};

mod block;

use block::{Block, INNER_DEVICE};

/// What runs over what.
#[derive(Clone, Debug)]
pub struct ShellOptions {
    /// What lies between the command and the outside, from the command outwards; at least one. What
    /// the command sends goes forward.
    pub links: Vec<Path>,
    /// Seed of all that is random in the links.
    pub seed: u64,
    /// The program, by its path or its name in `PATH`, and its arguments.
    pub command: (OsString, Vec<OsString>),
    /// The congestion control that TCP inside has unless it chooses another, if not that of the calling
    /// thread's network namespace.
    pub scheme: Option<String>,
    /// A server that runs outside meanwhile, if any: program and arguments.
    pub outside: Option<(OsString, Vec<OsString>)>,
    /// Variables that the environment of both has in addition to this process's own.
    pub environment: Vec<(OsString, OsString)>,
    /// The user and the group that it runs as, and whose the files are, if not those of this process.
    pub user: Option<(u32, u32)>,
    /// The devices that packets pass. Default: TUN devices where they are available, else veth pairs.
    pub device: Option<DeviceKind>,
    /// Whether TUN devices carry super-packets; by default on links of more than 500 Mbit/s.
    pub super_packets: Option<bool>,
    /// Where to write what happened to each packet, as Parquet, if at all.
    pub packets_file: Option<PathBuf>,
    /// Where to write mm-link's logs of the two directions, if at all: forward, reverse.
    pub mm_logs: [Option<PathBuf>; 2],
}

/// What crossed in one direction, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crossed {
    /// Sent into the links.
    pub offered: u64,
    /// Bytes of those.
    pub offered_bytes: u64,
    /// Packets that left the path. Packets in transit at the end count in neither.
    pub delivered: u64,
    /// Dropped by queues and policers.
    pub dropped: u64,
    /// Lost on the wire.
    pub lost: u64,
    /// Marked by queues.
    pub marked: u64,
}

/// How the command ended, and what crossed.
#[derive(Clone, Debug)]
pub struct ShellReport {
    /// The command's exit code; 128 and the signal if it was killed by one.
    pub exit_code: i32,
    /// From the command outwards.
    pub forward: Crossed,
    /// To the command.
    pub reverse: Crossed,
    /// How late packets left, in microseconds.
    pub slip_us: Slip,
    /// How long the command ran, in seconds.
    pub wall_s: f64,
    /// Processor time of the thread that carried the packets, in seconds.
    pub cpu_s: f64,
    /// Why what was measured inside must not be used; empty if it may.
    pub invalid_because: Vec<String>,
    /// What is missing that helps: real-time priority, settings of the kernel.
    pub refused: Vec<String>,
}

/// Runs a command inside links: all that it sends crosses them forward and comes out in the calling
/// thread's network namespace, and what comes back crosses them in reverse.
///
/// The command has this process's standard streams, working directory and environment; there,
/// `PATHCAST_BASE` and `MAHIMAHI_BASE` are the address at which the (outermost) outside can be
/// reached, `PATHCAST_ADDRESS` is its own, and `PATHCAST_SCHEME` is the kernel's name of the congestion
/// control, if one was asked for. Shells may be nested. It is killed when this process
/// ends before it, however it ends; then nothing is left of the namespace and the devices.
///
/// `signals` is called some times a second; a signal that it gives is sent to the command. A signal of the
/// terminal (Ctrl-C) reaches the command anyway; the caller must survive it.
///
/// The server outside, if there is one, is started first, and the command when it listens, or after 10 s.
/// When the command has ended, the server's process group is ended.
///
/// # Errors
/// See [`EmulatorError`]. A command that fails is not an error.
pub fn shell(
    options: &ShellOptions,
    signals: &dyn Fn() -> Option<i32>,
) -> Result<ShellReport, EmulatorError> {
    let run = run_of(options);
    let schemes = Schemes::provide(options.scheme.as_deref())?;
    let scheme = options.scheme.as_deref();
    let scheme = scheme.map(|name| schemes.kernel_name(name));
    let mut ends = Ends::create(&run, scheme, options.device)?;
    let environment = ends.block.environment(scheme, &options.environment);
    let outside = options.outside.as_ref();
    let outside = outside.map(|server| Outside::start(server, &environment, options.user));
    let _outside = outside.transpose()?;
    let (began_ns, began) = (monotonic_ns(), Instant::now());
    let logged = options.packets_file.is_some() || options.mm_logs.iter().any(Option::is_some);
    let (log, conclusion, messages) = match logged {
        true => {
            let (log, conclusion, messages) = log_of_everything();
            (Some(log), Some(conclusion), Some(messages))
        }
        false => (None, None, None),
    };
    thread::scope(|scope| {
        let write = |messages| {
            spawn(scope, "pathcast-log", move || {
                write(options, began_ns, &messages)
            })
        };
        let written = messages.map(write).transpose()?;
        let (status, pumped) = carry(options, &run, &ends, &environment, log, signals)?;
        let mut report = conclude(&run, &pumped, &mut ends, status)?;
        report.wall_s = began.elapsed().as_secs_f64();
        if let Some(conclusion) = conclusion {
            conclusion.end(metadata(&run, &schemes, &report));
        }
        written.map(join).transpose()?;
        Ok(report)
    })
}

/// The links as a scenario of one flow that crosses them all.
fn run_of(options: &ShellOptions) -> Options {
    let links = (0..)
        .zip(&options.links)
        .map(|(number, path): (u32, _)| Link {
            name: format!("link{number}"),
            path: path.clone(),
        });
    let flow = FlowSpec {
        route: (0..options.links.len()).collect(),
        ..FlowSpec::bulk(Transport::tcp("cubic"))
    };
    let scenario = Scenario {
        name: String::new(),
        duration: None,
        links: links.collect(),
        flows: vec![flow],
    };
    Options {
        super_packets: options.super_packets,
        ..Options::of_scenario(scenario, Span::from_secs(1.0), options.seed)
    }
}

/// The device outside, with a number that the kernel gives, so that no two shells have the same.
const OUTER_DEVICE: &str = "pathcast";
/// Which congestion control TCP has in the calling thread's network namespace.
const SCHEME: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Both ends of the links.
struct Ends {
    block: Block,
    outer: Device,
    inner: Device,
    namespace: Namespace,
    /// Settings that the kernel did not let us make.
    refused: Vec<String>,
}

impl Ends {
    /// The outer end in the calling thread's namespace, the inner end in a new one.
    fn create(
        run: &Options,
        scheme: Option<&str>,
        kind: Option<DeviceKind>,
    ) -> Result<Self, EmulatorError> {
        let kernel = |doing: &'static str| move |error| EmulatorError::from_io(doing, error);
        let around = Block::around().map_err(kernel("looking for a shell around this one"))?;
        let shape = run.shape();
        let outer = Device::create(kind, &format!("{OUTER_DEVICE}%d"), shape)?;
        let shape = Shape {
            super_packets: outer.super_packets(),
            ..shape
        };
        let (kind, name) = (outer.kind(), outer.name());
        let number = name.strip_prefix(OUTER_DEVICE).and_then(|n| n.parse().ok());
        let block = Block::of(around, number.unwrap_or(u32::MAX - 1))?;
        // a kernel without IPv6 has nothing to switch off
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        configure(name, &[block.outer().into()], block.shape())
            .map_err(kernel("configuring the outer device"))?;
        let outside = fs::read_to_string(SCHEME).unwrap_or_else(|_| "cubic".into());
        // a shell around this one may have set its scheme by routes
        let outside = match around.and_then(|_| std::env::var("PATHCAST_SCHEME").ok()) {
            Some(name) if check_name(&name).is_ok() => name,
            _ => outside,
        };
        let namespace = Namespace::create().map_err(kernel("creating a network namespace"))?;
        let made = namespace.run(|| -> Result<_, EmulatorError> {
            let address = IpAddr::V4(block.inner());
            let mut refused = set_sysctls(&run.settings(), &[address]);
            // those inside may have shells inside
            if let Err(error) = fs::write("/proc/sys/net/ipv4/ip_forward", "1") {
                refused.push(format!("net.ipv4.ip_forward=1: {error}"));
            }
            // without a wish, TCP is as it is outside
            let value = scheme.unwrap_or(outside.trim());
            // the kernel keeps restricted schemes from being the default of any namespace but the first,
            // and takes them as a property of routes
            let by_route = match fs::write(SCHEME, value) {
                Ok(()) => None,
                Err(error) => {
                    refused.push(format!(
                        "net.ipv4.tcp_congestion_control={value}: {error}; connections over the path \
                         have {value} by their route instead, also those that chose another before they \
                         connected"
                    ));
                    Some(value)
                }
            };
            let name = format!("{INNER_DEVICE}{}", block.level);
            let device = Device::create(Some(kind), &name, shape)?;
            switch_on_loopback()
                .and_then(|()| {
                    configure(
                        &name,
                        &[address],
                        Shape {
                            prefix_v4: 32,
                            ..SHAPE
                        },
                    )
                })
                .map_err(kernel("configuring the inner device"))?;
            let everywhere = Ipv4Addr::UNSPECIFIED;
            let first = Ipv4Addr::from_bits(block.first);
            index(&name)
                .and_then(|index| {
                    route::add(block.outer(), 32, Some(index), by_route)?;
                    // what is not there must not go round in circles
                    route::add(first, block.prefix() as u8, None, None)?;
                    route::add(everywhere, 0, Some(index), by_route)
                })
                .map_err(|error| match by_route {
                    Some(value) => EmulatorError::RestrictedScheme {
                        scheme: value.into(),
                        source: error,
                    },
                    None => kernel("adding routes")(error),
                })?;
            Ok((device, refused))
        });
        let (inner, refused) = made.map_err(kernel("entering a network namespace"))??;
        Ok(Self {
            block,
            outer,
            inner,
            namespace,
            refused,
        })
    }
}

/// Starts the command, and carries its packets until it ends.
fn carry(
    options: &ShellOptions,
    run: &Options,
    ends: &Ends,
    environment: &[(OsString, OsString)],
    log: Option<Log>,
    signals: &dyn Fn() -> Option<i32>,
) -> Result<(ExitStatus, PumpReport), EmulatorError> {
    // half as many again as the links can hold
    let packets = (run.scenario.bytes_on_the_way() / u64::from(MTU) / 2 * 3).clamp(1024, 1 << 15);
    let (near, far) = (&ends.inner, &ends.outer);
    let pump = Pump::new(&run.scenario, run.seed, near, far, packets as usize, log)?;
    let pump = pump.carrying_everything();
    let stop_pump = AtomicBool::new(false);
    thread::scope(|scope| {
        let pumping = RaiseOnDrop(&stop_pump);
        let pump = spawn(scope, "pathcast-pump", || {
            pump.run(PUMP_PRIORITY, &stop_pump)
        })?;
        let (started, start) = channel();
        // the command dies with the thread that starts it, which therefore waits for it
        let command = spawn(scope, "pathcast-command", || {
            let work = move || run_command(options, environment, &started);
            let ran = ends.namespace.run(work);
            ran.map_err(|error| EmulatorError::from_io("entering a network namespace", error))?
        })?;
        pass_on_signals(&start, signals);
        let status = join(command)?;
        drop(pumping);
        Ok((status, join(pump)))
    })
}

/// Runs the command in the calling thread's namespace, and waits for its end; sends a descriptor of
/// it when it has begun, and closes the channel when it has ended.
fn run_command(
    options: &ShellOptions,
    environment: &[(OsString, OsString)],
    started: &Sender<OwnedFd>,
) -> Result<ExitStatus, EmulatorError> {
    let (program, arguments) = &options.command;
    let mut command = Command::new(program);
    command.args(arguments);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    if let Some((user, group)) = options.user {
        command.uid(user).gid(group);
    }
    die_with_this_thread(&mut command);
    let mut child = command.spawn().map_err(|source| EmulatorError::Command {
        program: program.to_string_lossy().into_owned(),
        source,
    })?;
    if let Ok(fd) = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        let _ = started.send(fd);
    }
    let ended = child.wait();
    ended.map_err(|error| EmulatorError::from_io("waiting for the command", error))
}

/// Sends the command the signals that the caller gives, until it has ended.
fn pass_on_signals(start: &Receiver<OwnedFd>, signals: &dyn Fn() -> Option<i32>) {
    let Ok(child) = start.recv() else { return };
    let ended = || match start.recv_timeout(Duration::from_millis(50)) {
        Err(RecvTimeoutError::Timeout) => false,
        Ok(_) | Err(RecvTimeoutError::Disconnected) => true,
    };
    while !ended() {
        if let Some(signal) = signals().and_then(Signal::from_named_raw) {
            let _ = pidfd_send_signal(&child, signal);
        }
    }
}

fn conclude(
    run: &Options,
    pumped: &PumpReport,
    ends: &mut Ends,
    status: ExitStatus,
) -> Result<ShellReport, EmulatorError> {
    let last = run.scenario.links.len() - 1;
    let sum = |way: usize, first: usize, last: usize| {
        let of = |link: usize| pumped.counters[2 * link + way];
        let every = || pumped.counters.iter().skip(way).step_by(2);
        Crossed {
            offered: of(first).enqueued,
            offered_bytes: of(first).enqueued_bytes,
            delivered: of(last).delivered,
            dropped: every()
                .map(|c| c.dropped_by_queue + c.dropped_by_policer)
                .sum(),
            lost: every().map(|c: &Counters| c.dropped_by_loss).sum(),
            marked: pumped.counters[2 * last + way].marked,
        }
    };
    let quantile = |q| Span::from_nanos(pumped.slips.quantile_ns(q));
    let rtt = run.base_rtt();
    let evidence = Evidence {
        slip_p99: quantile(0.99),
        slip_bound: slip_bound(rtt),
        slip_p999: match pumped.slips.count() {
            PACKETS_FOR_STALLS.. => quantile(0.999),
            _ => Span::ZERO,
        },
        stall_bound: stall_bound(rtt),
        device_drops: ends.outer.drops()? + ends.inner.drops()?,
        device_errors: pumped.device_errors,
        ..Evidence::default()
    };
    let mut refused = std::mem::take(&mut ends.refused);
    let fifo = pumped.fifo_refused.iter();
    refused.extend(fifo.map(|why| format!("real-time priority (SCHED_FIFO): {why}")));
    Ok(ShellReport {
        exit_code: status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        forward: sum(0, 0, last),
        reverse: sum(1, last, 0),
        slip_us: pumped.slips.slip_us(),
        wall_s: 0.0,
        cpu_s: pumped.cpu_s,
        invalid_because: evidence.invalid_because(),
        refused,
    })
}

fn metadata(run: &Options, schemes: &Schemes, report: &ShellReport) -> Metadata {
    let mut metadata = Metadata::new(Source::Emulator);
    metadata.seed = Some(run.seed);
    match &run.scenario.links[..] {
        [link] => metadata.path_toml = Some(link.path.to_toml()),
        _ => metadata.scenario_toml = Some(run.scenario.to_toml()),
    }
    metadata.environment.extend(origins(schemes));
    metadata.valid = report.invalid_because.is_empty();
    if !metadata.valid {
        let why = report.invalid_because.join("; ");
        metadata.environment.insert("invalid_because".into(), why);
    }
    metadata
}

/// Writes the logs as they come.
fn write(
    options: &ShellOptions,
    began_ns: u64,
    messages: &Receiver<Message>,
) -> Result<(), TraceError> {
    let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let epoch_ms = epoch.map_or(0, |since| since.as_millis());
    let (out, back): (Vec<&Direction>, Vec<&Direction>) = options
        .links
        .iter()
        .map(|path| (&path.forward, &path.reverse))
        .unzip();
    let [uplink, downlink] = &options.mm_logs;
    let user = options.user;
    if_wanted(user, options.packets_file.as_ref(), |packets| {
        if_wanted(user, uplink.as_ref(), |uplink| {
            if_wanted(user, downlink.as_ref(), |downlink| {
                let mm_log = |file, name, directions: &[&Direction]| {
                    MmLog::new(file, name, directions, began_ns, epoch_ms)
                };
                let mut uplink = uplink.map(|file| mm_log(file, "uplink", &out));
                let mut downlink = downlink.map(|file| mm_log(file, "downlink", &back));
                let mut table = packets.map(TableWriter::<PacketRecord>::new).transpose()?;
                let mut rows = table.as_mut().map(|table| Rows::new(began_ns, table));
                let mut metadata = loop {
                    match messages.recv() {
                        Ok(Message::Entries(entries)) => {
                            for entry in &entries {
                                if let Some(rows) = &mut rows {
                                    rows.push(entry);
                                }
                                let log = match entry.to {
                                    End::Far => &mut uplink,
                                    End::Near => &mut downlink,
                                };
                                if let Some(log) = log {
                                    log.push(entry);
                                }
                            }
                        }
                        Ok(Message::Flows(_) | Message::Reads(_) | Message::Sealed(_)) => {}
                        Ok(Message::End(metadata)) => break metadata,
                        Err(_) => return Err("the run was stopped".into()),
                    }
                };
                let conversations = rows.as_ref().map(Rows::conversations);
                let known = [
                    ("began_ns", Some(began_ns.to_string())),
                    ("conversations", conversations),
                ];
                for (name, value) in known {
                    let environment = &mut metadata.environment;
                    value.map(|value| environment.insert(name.into(), value));
                }
                let ended_ns = monotonic_ns();
                for log in [uplink, downlink].into_iter().flatten() {
                    log.finish(ended_ns)?;
                }
                table.map_or(Ok(()), |table| table.finish(&metadata))
            })
            .map_err(|error| error.to_string())
        })
        .map_err(|error| error.to_string())
    })
}
