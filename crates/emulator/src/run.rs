//! One run: flows over a path, from the first namespace to the verdict.

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use pathcast_path::Span;
use pathcast_probe::Probe;
use pathcast_probe::realtime::{monotonic_ns, request_fifo};
use pathcast_trace::{RunReport, Trace};

use crate::bulk::{Endpoint, Role};
use crate::connection::{Connections, Sockets};
use crate::error::EmulatorError;
use crate::host::Host;
use crate::interface::MTU;
use crate::options::Options;
use crate::outcome::{Findings, FlowFindings, Measured, conclude};
use crate::pump::Pump;

/// The pump goes before everything else; reading the trace before making more of it.
const PUMP_PRIORITY: i32 = 50;
const PROBE_PRIORITY: i32 = 45;
const ENDPOINT_PRIORITY: i32 = 40;

const SENDER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const RECEIVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// Runs bulk flows over an emulated path: the report, and the trace of the senders.
///
/// `progress` is called from the calling thread about ten times a second, with the seconds that the
/// flows have been sending. When `stop` becomes true the run ends early and returns what it has.
/// The calling thread's namespace, priority and affinity stay as they are; the threads that do the
/// work end before this returns.
///
/// Flows connect first, and all begin to send at the same moment, which is time 0 of the trace.
///
/// # Errors
/// See [`EmulatorError`]. A run that cannot be trusted is no error but a report with
/// `valid: false`.
pub fn emulate(
    options: &Options,
    progress: &(dyn Fn(f64) + Sync),
    stop: &AtomicBool,
) -> Result<(RunReport, Trace), EmulatorError> {
    options.check()?;
    let began_ns = AtomicU64::new(0);
    let abandoned = AtomicBool::new(false);
    let wall = Instant::now();
    let findings = thread::scope(|scope| {
        // a progress function that panics must not leave the run going until its end
        let _abandon = RaiseOnDrop(&abandoned);
        let (done, is_done) = channel::<()>();
        let run = Run {
            options,
            stops: [stop, &abandoned],
            began_ns: &began_ns,
        };
        let conductor = spawn(scope, "pathcast-run", move || {
            let _done = done;
            run.conduct()
        })?;
        while is_done.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
            let began_ns = began_ns.load(Ordering::Relaxed);
            if began_ns > 0 {
                let elapsed = Span::from_nanos(monotonic_ns() - began_ns);
                progress(elapsed.min(options.duration).as_secs());
            }
        }
        join(conductor)
    })?;
    Ok(conclude(options, findings, wall))
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, EmulatorError> {
    thread::Builder::new()
        .name(name.into())
        .spawn_scoped(scope, work)
        .map_err(|error| EmulatorError::from_io("starting a thread", error))
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Raises a flag when it goes, also on the way out of an error.
struct RaiseOnDrop<'a>(&'a AtomicBool);

impl Drop for RaiseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A run in the making.
struct Run<'a> {
    options: &'a Options,
    stops: [&'a AtomicBool; 2],
    /// When the flows began to send, on the monotonic clock; 0 before.
    began_ns: &'a AtomicU64,
}

impl Run<'_> {
    fn stopped(&self) -> bool {
        self.stops.iter().any(|stop| stop.load(Ordering::Relaxed))
    }

    /// Makes the hosts, runs the flows between them, and takes everything down again.
    fn conduct(&self) -> Result<Findings, EmulatorError> {
        let load_average = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        // the end of the run must not wait for a busy machine; the threads begun here inherit it
        let fifo_refused = request_fifo(ENDPOINT_PRIORITY)
            .err()
            .map(|error| error.to_string());
        let buffer_bytes = self.buffer_bytes();
        let mut sender = Host::create(SENDER_ADDRESS, buffer_bytes)?;
        let mut receiver = Host::create(RECEIVER_ADDRESS, buffer_bytes)?;
        let flows = self.run_flows(&sender, &receiver)?;
        let device_drops = sender.device_drops()? + receiver.device_drops()?;
        let settings_refused = sender.refused;
        Ok(Findings {
            load_average,
            fifo_refused,
            settings_refused,
            device_drops,
            flows,
        })
    }

    /// The largest buffers that the kernel may give a socket: twice what the path can hold, and
    /// twice again because the kernel counts its own overhead too.
    fn buffer_bytes(&self) -> u64 {
        const LEAST: u64 = 16 << 20;
        const MOST: u64 = 1 << 30;
        self.options
            .bytes_on_the_way()
            .saturating_mul(4)
            .clamp(LEAST, MOST)
    }

    /// Packets for which to set memory aside: half as many again as the path can hold.
    fn pool_packets(&self) -> usize {
        (self.options.bytes_on_the_way() / u64::from(MTU) / 2 * 3).clamp(1024, 1 << 16) as usize
    }

    /// Runs the flows between two hosts; `None` if stopped before they were connected.
    fn run_flows(
        &self,
        sender: &Host,
        receiver: &Host,
    ) -> Result<Option<FlowFindings>, EmulatorError> {
        let sockets = Sockets::open(sender, receiver, &self.options.schemes)?;
        let (path, seed) = (&self.options.path, self.options.seed);
        let pump = Pump::new(path, seed, &sender.tun, &receiver.tun, self.pool_packets())?;
        let stop_pump = AtomicBool::new(false);
        thread::scope(|scope| {
            let pumping = RaiseOnDrop(&stop_pump);
            let pump = spawn(scope, "pathcast-pump", || {
                pump.run(PUMP_PRIORITY, &stop_pump)
            })?;
            let Some(connections) = sockets.connect(&|| self.stopped())? else {
                return Ok(None);
            };
            let measured = self.measure(&connections)?;
            drop(pumping);
            Ok(Some(FlowFindings {
                measured,
                pump: join(pump),
            }))
        })
    }

    /// Lets connected flows send, and watches them.
    fn measure(&self, connections: &Connections) -> Result<Measured, EmulatorError> {
        let watch = pathcast_probe::Options {
            method: self.options.method,
            fifo_priority: Some(PROBE_PRIORITY),
        };
        let senders: Vec<_> = connections.senders.iter().map(AsFd::as_fd).collect();
        let probe = Probe::attach(&senders, &watch)?;
        let counters = || -> Vec<AtomicU64> { senders.iter().map(|_| AtomicU64::new(0)).collect() };
        let (sent, received) = (counters(), counters());
        thread::scope(|scope| {
            let (reading, stop_reading) = Endpoint::new(Role::Receive, &connections.receivers)?;
            let (writing, stop_writing) = Endpoint::new(Role::Send, &connections.senders)?;
            let reader = spawn(scope, "pathcast-read", || {
                reading.run(ENDPOINT_PRIORITY, &received)
            })?;
            let began_ns = monotonic_ns();
            let writer = spawn(scope, "pathcast-write", || {
                writing.run(ENDPOINT_PRIORITY, &sent)
            })?;
            self.began_ns.store(began_ns, Ordering::Relaxed);
            let end_ns = began_ns.saturating_add(self.options.duration.as_nanos());
            while monotonic_ns() < end_ns && !self.stopped() {
                const LONGEST_SLEEP_NS: u64 = 10_000_000; // so that a stop is seen
                let rest_ns = end_ns.saturating_sub(monotonic_ns()).min(LONGEST_SLEEP_NS);
                thread::sleep(Duration::from_nanos(rest_ns));
            }
            let ended_ns = monotonic_ns();
            let received_bytes = received.iter().map(|n| n.load(Ordering::Relaxed)).collect();
            let probe = probe.stop();
            drop((stop_reading, stop_writing));
            let endpoints = [join(writer), join(reader)];
            Ok(Measured {
                began_ns,
                ended_ns,
                received_bytes,
                probe,
                endpoints,
            })
        })
    }
}
