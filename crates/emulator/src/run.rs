//! One run: flows over a path, from the first namespace to the verdict.

use std::fs;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use pathcast_base::clock::monotonic_ns;
use pathcast_kernel_schemes::Schemes;
use pathcast_netns::{Host, Shape};
use pathcast_path::{End, Span};
use pathcast_probe::Probe;
use pathcast_probe::realtime::request_fifo;
use pathcast_scenario::Transport;
use pathcast_trace::{Record, RunReport, Splitter, Trace};

use crate::addresses::MTU;
use crate::applications::Applications;
use crate::connection::{Connected, Sockets};
use crate::error::EmulatorError;
use crate::naming::{Flows, Named};
use crate::options::{Flow, Options};
use crate::outcome::{Findings, FlowFindings, Measured, bound, conclude};
use crate::packet_log::{Conclusion, Files, Log, packet_log};
use crate::pump::{Beginning, Pump};
use crate::quic::{self, QuicFlow};
use crate::{receive_buffers, send_buffers};

/// The pump goes before everything else; reading the trace before making more of it.
pub(crate) const PUMP_PRIORITY: i32 = 50;
const PROBE_PRIORITY: i32 = 45;
const ENDPOINT_PRIORITY: i32 = 40;

/// Runs flows over emulated links: the report, and the trace of the TCP senders.
///
/// `progress` is called from the calling thread about ten times a second, with the seconds that the
/// flows have been sending. When `stop` becomes true the run ends early and returns what it has.
/// The calling thread's namespace, priority and affinity stay as they are; the threads that do the
/// work end before this returns.
///
/// Flows connect first. Then the run begins, at time 0 of the trace, and each flow begins to send at
/// its own time.
///
/// # Errors
/// See [`EmulatorError`]. A run that cannot be trusted is not an error: its report has `valid: false`.
pub fn emulate(
    options: &Options,
    progress: &(dyn Fn(f64) + Sync),
    stop: &AtomicBool,
) -> Result<(RunReport, Trace), EmulatorError> {
    emulate_watched(options, &|elapsed_s, _| progress(elapsed_s), stop)
}

/// As [`emulate`]; `progress` also has the state of each TCP sender as of a moment ago.
pub fn emulate_watched(
    options: &Options,
    progress: &(dyn Fn(f64, &[Record]) + Sync),
    stop: &AtomicBool,
) -> Result<(RunReport, Trace), EmulatorError> {
    options.check()?;
    let latest = Mutex::new(Vec::new());
    let began_ns = AtomicU64::new(0);
    let abandoned = AtomicBool::new(false);
    let wall = Instant::now();
    let flows = options.flows();
    // until the sockets are closed: connections of ours keep theirs, but nothing else needs it
    let schemes = Schemes::provide(options.schemes())?;
    let files = Files {
        packets: options.packets_file.as_ref(),
        messages: options.messages_file.as_ref(),
    };
    // a page reports when its resources came
    let in_messages = |flow: &&Flow<'_>| {
        let workload = &flow.spec.workload;
        flow.spec.transport != Transport::Udp && !workload.is_greedy() && !workload.is_page()
    };
    let splitter = || {
        let numbers = flows.iter().filter(in_messages).map(|flow| flow.number);
        Splitter::new(numbers, bound(options).as_nanos())
    };
    let wanted = files.packets.or(files.messages).is_some();
    let (log, conclusion, writer) = match wanted || flows.iter().any(|flow| in_messages(&flow)) {
        true => {
            let groups = options.scenario.flows.iter();
            let sealed = groups.map(|spec| matches!(spec.transport, Transport::Quic { .. }));
            let (log, conclusion, writer) = packet_log(sealed.collect());
            (Some(log), Some(conclusion), Some((writer, splitter())))
        }
        false => (None, None, None),
    };
    thread::scope(|scope| {
        // a progress function that panics must not leave the run going until its end
        let _abandon = RaiseOnDrop(&abandoned);
        let (done, is_done) = channel::<()>();
        let began_at = || began_ns.load(Ordering::Relaxed);
        let written = writer.map(|(writer, splitter)| {
            let work = move || writer.write(files, splitter, began_at);
            spawn(scope, "pathcast-log", work)
        });
        let written = written.transpose()?;
        let run = Run {
            options,
            flows: &flows,
            schemes: &schemes,
            stops: [stop, &abandoned],
            began_ns: &began_ns,
            latest: &latest,
            conclusion: conclusion.clone(),
        };
        let conductor = spawn(scope, "pathcast-run", move || {
            let _done = done;
            run.conduct(log)
        })?;
        while is_done.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
            let began_ns = began_at();
            if began_ns > 0 {
                let elapsed = Span::from_nanos(monotonic_ns() - began_ns);
                let senders = mem::take(&mut *latest.lock().expect("no panic holds it"));
                progress(elapsed.min(options.duration).as_secs(), &senders);
            }
        }
        let findings = join(conductor)?;
        let (mut report, trace) = conclude(options, &flows, &schemes, findings, wall);
        if let (Some(conclusion), true) = (conclusion, began_at() > 0) {
            conclusion.end(trace.metadata.clone());
        }
        if let Some(written) = written {
            for (flow, split) in join(written)? {
                if let Some(messages) = &mut report.flows[flow as usize].messages {
                    messages.delay_split_ms = Some(split);
                }
            }
        }
        Ok((report, trace))
    })
}

pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, EmulatorError> {
    thread::Builder::new()
        .name(name.into())
        .spawn_scoped(scope, work)
        .map_err(|error| EmulatorError::from_io("starting a thread", error))
}

pub(crate) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Raises a flag when it is dropped, also after an error.
pub(crate) struct RaiseOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for RaiseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A run in the making.
struct Run<'a> {
    options: &'a Options,
    flows: &'a [Flow<'a>],
    schemes: &'a Schemes,
    stops: [&'a AtomicBool; 2],
    /// When the run began, on the monotonic clock; 0 before.
    began_ns: &'a AtomicU64,
    /// What the senders last were, until it is taken.
    latest: &'a Mutex<Vec<Record>>,
    conclusion: Option<Conclusion>,
}

impl Run<'_> {
    fn stopped(&self) -> bool {
        self.stops.iter().any(|stop| stop.load(Ordering::Relaxed))
    }

    /// Makes the hosts, runs the flows between them, and takes everything down again.
    fn conduct(&self, log: Option<Log>) -> Result<Findings, EmulatorError> {
        let load_average = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        // the end of the run must not wait for a busy machine; the threads begun here inherit it
        let fifo_refused = request_fifo(ENDPOINT_PRIORITY)
            .err()
            .map(|error| error.to_string());
        let settings = self.options.settings();
        let groups = 0..self.options.scenario.flows.len();
        let addresses = |end: End| -> Vec<IpAddr> {
            let groups = groups.clone();
            groups
                .map(|group| self.options.ip.address(group, end))
                .collect()
        };
        let host = |kind, shape, end| Host::create(kind, &addresses(end), shape, &settings);
        let shape = self.options.shape();
        let mut near = host(self.options.device, shape, End::Near)?;
        let (device, super_packets) = (near.device.kind(), near.device.super_packets());
        let shape = Shape {
            super_packets,
            ..shape
        };
        let mut far = host(Some(device), shape, End::Far)?;
        if let Ok(Some(bytes)) = receive_buffers::largest_buffer(&self.options.scenario) {
            receive_buffers::limit(&mut near, bytes)?;
            receive_buffers::limit(&mut far, bytes)?;
        }
        if self.flows.iter().any(|flow| flow.spec.workload.is_page()) {
            for host in [&mut near, &mut far] {
                send_buffers::begin_as_servers(host, settings.buffer_bytes)?;
            }
        }
        for (group, spec, beginning) in self.options.beginnings() {
            // whoever sends the data connects, to an address of the group's own; to the servers of a page, the browser
            let from = End::source_of(spec.heading);
            let connecting = [from, from.opposite()];
            let ends = if spec.workload.is_page() { 2 } else { 1 };
            for from in connecting.into_iter().take(ends) {
                let host = if from == End::Near { &near } else { &far };
                let to = self.options.ip.address(group, from.opposite());
                host.begin_with(to, beginning)?;
            }
        }
        let flows = self.run_flows(&near, &far, log)?;
        let device_drops = near.device.drops()? + far.device.drops()?;
        let near_dropped = dropped_by_stack(&near)?;
        let far_dropped = dropped_by_stack(&far)?;
        let settings_refused = near.refused;
        Ok(Findings {
            load_average,
            fifo_refused,
            settings_refused,
            device,
            super_packets,
            device_drops,
            socket_drops: near_dropped.datagrams + far_dropped.datagrams,
            outdated: near_dropped.outdated + far_dropped.outdated,
            flows,
        })
    }

    /// Packets for which to set memory aside: half as many again as the links can hold.
    fn pool_packets(&self) -> usize {
        (self.options.scenario.bytes_on_the_way() / u64::from(MTU) / 2 * 3).clamp(1024, 1 << 16)
            as usize
    }

    /// Runs the flows between two hosts; `None` if stopped before they were connected.
    fn run_flows(
        &self,
        near: &Host,
        far: &Host,
        log: Option<Log>,
    ) -> Result<Option<FlowFindings>, EmulatorError> {
        let sockets = Sockets::open(near, far, self.flows, self.schemes, self.options.ip)?;
        let (scenario, seed) = (&self.options.scenario, self.options.seed);
        let pump = Pump::new(
            scenario,
            seed,
            &near.device,
            &far.device,
            self.pool_packets(),
            log,
        )?;
        let beginning = Beginning::default();
        let pump = pump.connecting_first(scenario, seed, &beginning);
        let stop_pump = AtomicBool::new(false);
        thread::scope(|scope| {
            let pumping = RaiseOnDrop(&stop_pump);
            let pump = spawn(scope, "pathcast-pump", || {
                pump.run(PUMP_PRIORITY, &stop_pump)
            })?;
            let Some(connected) = sockets.connect(&|| self.stopped())? else {
                return Ok(None);
            };
            let stopped = || self.stopped();
            let connections = &connected.connections;
            let Some(quic) = quic::connect(self.options, connections, &stopped)? else {
                return Ok(None);
            };
            if let Some(conclusion) = &self.conclusion {
                conclusion.flows(self.named(&connected));
            }
            let measured = self.measure(&connected, quic, &beginning)?;
            drop(pumping);
            Ok(Some(FlowFindings {
                measured,
                pump: join(pump),
            }))
        })
    }

    /// The flows as the packet log must know them.
    fn named(&self, connected: &Connected) -> Flows {
        let flows = self.flows.iter().zip(&connected.connections);
        let named = flows.map(|(flow, connection)| {
            let named = Named {
                flow: flow.number,
                data_to: End::source_of(flow.spec.heading).opposite(),
                sealed: matches!(flow.spec.transport, Transport::Quic { .. }),
            };
            ((flow.group as u16, connection.ports), named)
        });
        Flows::ByPorts(named.collect())
    }

    /// Lets connected flows send, and watches them.
    fn measure(
        &self,
        connected: &Connected,
        quic: Vec<Option<Box<QuicFlow>>>,
        beginning: &Beginning,
    ) -> Result<Measured, EmulatorError> {
        let connections = &connected.connections;
        let servers = connections.iter().find_map(|one| one.server);
        let watch = pathcast_probe::Options {
            method: self.options.method,
            fifo_priority: Some(PROBE_PRIORITY),
            joining_port: servers.map(|server| server.port()),
            ..pathcast_probe::Options::default()
        };
        // the connections of pages join when they open
        let mut watched: Vec<usize> = (0..self.flows.len())
            .filter(|&flow| {
                self.flows[flow].spec.transport.is_tcp() && connections[flow].server.is_none()
            })
            .collect();
        let senders: Vec<_> = watched
            .iter()
            .map(|&flow| connections[flow].sender().as_fd())
            .collect();
        let probe = Probe::attach(&senders, &watch)?;
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let (applications, stop_applications) = Applications::new(
                self.options,
                self.flows,
                connected,
                quic,
                probe.joining(),
                self.conclusion.clone(),
            )?;
            beginning.begin();
            let began_ns = monotonic_ns();
            let ended = &done;
            let applications = spawn(scope, "pathcast-flows", move || {
                applications.run(ENDPOINT_PRIORITY, began_ns, ended)
            })?;
            self.began_ns.store(began_ns, Ordering::Relaxed);
            let end_ns = began_ns.saturating_add(self.options.duration.as_nanos());
            while monotonic_ns() < end_ns && !self.stopped() && !done.load(Ordering::Relaxed) {
                const LONGEST_SLEEP_NS: u64 = 10_000_000; // so that a stop is seen
                let rest_ns = end_ns.saturating_sub(monotonic_ns()).min(LONGEST_SLEEP_NS);
                thread::sleep(Duration::from_nanos(rest_ns));
                if let Ok(mut latest) = self.latest.try_lock() {
                    *latest = probe.latest(began_ns);
                }
            }
            let ended_ns = monotonic_ns();
            let probe = probe.stop();
            drop(stop_applications);
            let applications = join(applications);
            watched.extend(&applications.joined);
            Ok(Measured {
                began_ns,
                ended_ns,
                watched,
                probe,
                applications,
            })
        })
    }
}

/// What a host's stack dropped that the path had delivered.
#[derive(Debug, Default, PartialEq, Eq)]
struct DroppedByStack {
    /// Datagrams that sockets had no room for.
    datagrams: u64,
    /// TCP packets whose timestamp was older than the newest seen in order (PAWS).
    outdated: u64,
}

fn dropped_by_stack(host: &Host) -> Result<DroppedByStack, EmulatorError> {
    let failed = |error| EmulatorError::from_io("counting what the stack dropped", error);
    let read = || -> io::Result<DroppedByStack> {
        let of_v4 = fs::read_to_string("/proc/thread-self/net/snmp")?;
        // a kernel without IPv6 has none
        let of_v6 = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
        let of_tcp = fs::read_to_string("/proc/thread-self/net/netstat")?;
        Ok(DroppedByStack {
            datagrams: counter(&of_v4, "Udp:", "RcvbufErrors") + udp6_drops(&of_v6),
            outdated: counter(&of_tcp, "TcpExt:", "PAWSEstab"),
        })
    };
    let counted = host.namespace.run(read);
    counted
        .map_err(|error| EmulatorError::from_io("entering a network namespace", error))?
        .map_err(failed)
}

/// A counter of `/proc/net/snmp` or `/proc/net/netstat`, whose lines come in pairs of names and numbers;
/// 0 if the counter is missing.
fn counter(text: &str, protocol: &str, wanted: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let names = lines.next().unwrap_or_default().split_whitespace();
    let numbers = lines.next().unwrap_or_default().split_whitespace();
    let found = names.zip(numbers).find(|(name, _)| *name == wanted);
    found.map_or(0, |(_, number)| number.parse().unwrap_or(0))
}

/// `RcvbufErrors` of UDP in `/proc/net/snmp6`, which has a line for each counter.
fn udp6_drops(text: &str) -> u64 {
    let found = text
        .lines()
        .filter_map(|line| line.split_once(char::is_whitespace))
        .find(|(name, _)| *name == "Udp6RcvbufErrors");
    found.map_or(0, |(_, number)| number.trim().parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_stack_dropped_is_found_among_the_counters() {
        let v4 = "Tcp: A B\nTcp: 1 2\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors \
                  SndbufErrors\nUdp: 9 8 7 6 5 4\nUdpLite: InDatagrams\nUdpLite: 3\n";
        assert_eq!(counter(v4, "Udp:", "RcvbufErrors"), 5);
        assert_eq!(counter("", "Udp:", "RcvbufErrors"), 0);
        let v6 = "Ip6InReceives  \t12\nUdp6RcvbufErrors                \t11\n";
        assert_eq!((udp6_drops(v6), udp6_drops("")), (11, 0));
        let tcp = "TcpExt: SyncookiesSent PAWSActive PAWSEstab\nTcpExt: 0 1 7\nIpExt: PAWSEstab\nIpExt: 9\n";
        assert_eq!(counter(tcp, "TcpExt:", "PAWSEstab"), 7);
    }
}
