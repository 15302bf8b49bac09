//! One interface to all ways of watching senders of this process.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pathcast_base::clock::{monotonic_ns, thread_cpu_s};
use pathcast_trace::Record;
use rustix::net::getpeername;
use rustix::net::sockopt::socket_cookie;

use crate::error::ProbeError;
use crate::joining::{Joined, Joining};
use crate::method::Method;
use crate::realtime::request_fifo;
use crate::sample::{Look, Retransmits, record_of_look, records_of_events, records_of_looks};
use crate::source::{Source, diag_of, opt_stats_of};
use crate::tcp_info::TcpInfo;
use crate::tcp_probe::TcpProbe;
use crate::watched::{FlowTotals, Watched, id_of};

/// How to watch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Which method to try first. Where `TcpProbe` is not available, `TcpInfo` replaces it.
    pub method: Method,
    /// `SCHED_FIFO` priority of the reading thread; none: an ordinary thread.
    pub fifo_priority: Option<i32>,
    /// The most records that are kept, of all flows; those after are counted as lost. None: all.
    pub most_records: Option<usize>,
    /// The local port of sockets that [join](Joining) later, if any do.
    pub joining_port: Option<u16>,
}

/// What a probe saw.
#[derive(Clone, Debug)]
pub struct Observation {
    /// How it was taken.
    pub method: Method,
    /// Why it is not tcp_probe, if that was asked for.
    pub fallback_because: Option<String>,
    /// Rows of a trace, in order of time.
    pub records: Vec<Record>,
    /// Records that the kernel could not hand over: the trace has a gap.
    pub records_lost: u64,
    /// One entry a flow.
    pub flows: Vec<FlowTotals>,
    /// When the last look at the flows was, on the monotonic clock.
    pub end_ns: u64,
    /// Processor time of the reading thread in seconds.
    pub cpu_s: f64,
    /// Why the reading thread is not in `SCHED_FIFO`, if that was asked for and refused.
    pub fifo_refused: Option<String>,
}

/// Watches TCP sockets of this process until it is finished or dropped.
pub struct Probe {
    method: Method,
    fallback_because: Option<String>,
    stop: Sender<()>,
    joining: Joining,
    reader: JoinHandle<Watcher>,
    latest: Latest,
}

/// The last look at each flow and the flow's state when it was first watched, for who follows the flows while they run.
type Latest = Arc<Mutex<Vec<Option<(Look, TcpInfo)>>>>;

impl Probe {
    /// Watches `sockets` from now on; flow numbers are places in this list.
    ///
    /// Sequence numbers in the records count from where the sender stood at this moment, which is
    /// the flow's start if nothing has been sent yet.
    ///
    /// # Errors
    /// A socket is not a connected TCP socket. If tcp_probe is not available, the sockets are polled
    /// instead, and [`Observation::fallback_because`] says why.
    pub fn attach(sockets: &[BorrowedFd<'_>], options: &Options) -> Result<Self, ProbeError> {
        let mut flows = Vec::with_capacity(sockets.len());
        let (mut cookies, mut peer_ports, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        for (flow, socket) in sockets.iter().enumerate() {
            let error = |source| ProbeError::Socket { flow, source };
            peer_ports.push(peer_port(*socket).map_err(error)?);
            cookies.push(socket_cookie(socket).map_err(|errno| error(errno.into()))?);
            flows.push(Watched::of(*socket).map_err(error)?);
            ids.push(id_of(*socket, cookies[flow]).map_err(error)?);
        }
        let (source, fallback_because) = match options.method {
            Method::TcpInfo => (Source::TcpInfo, None),
            Method::TcpProbe => match TcpProbe::open(cookies, &peer_ports, options.joining_port) {
                Ok(tcp_probe) => (Source::TcpProbe(tcp_probe), None),
                Err(unavailable) => (Source::TcpInfo, Some(unavailable.to_string())),
            },
            Method::SockDiag => (diag_of(ids)?, None),
            Method::OptStats => (opt_stats_of(&mut flows)?, None),
        };
        let method = source.method();
        let most_records = options.most_records.unwrap_or(usize::MAX);
        let (stop, stopped) = channel();
        let (joining, joins) = Joining::new(method);
        let latest: Latest = Arc::new(Mutex::new(vec![None; flows.len()]));
        let fifo_priority = options.fifo_priority;
        let watcher = Watcher {
            flows,
            source,
            joins,
            looks: Vec::new(),
            latest: Arc::clone(&latest),
            most_records,
            lost: 0,
            end_ns: 0,
            cpu_s: 0.0,
            fifo_refused: None,
        };
        let reader = std::thread::Builder::new()
            .name("pathcast-probe".into())
            .spawn(move || watcher.run(fifo_priority, &stopped))
            .map_err(ProbeError::Thread)?;
        Ok(Self {
            method,
            fallback_because,
            stop,
            joining,
            reader,
            latest,
        })
    }

    /// What brings sockets under this watch while it runs.
    pub fn joining(&self) -> Joining {
        self.joining.clone()
    }

    /// The state of each flow as of the last look at it, milliseconds ago; time 0 is `origin_ns` of the
    /// monotonic clock. Flows that were not looked at yet are left out.
    pub fn latest(&self, origin_ns: u64) -> Vec<Record> {
        let latest = self.latest.lock().expect("no panic holds it");
        let looks: Vec<(Look, TcpInfo)> = latest.iter().flatten().copied().collect();
        drop(latest);
        let records = looks.iter();
        let records = records.map(|(look, first)| record_of_look(look, first, origin_ns));
        records.collect()
    }

    /// How the records are taken.
    pub const fn method(&self) -> Method {
        self.method
    }

    /// Why it is not tcp_probe, if that was asked for.
    pub fn fallback_because(&self) -> Option<&str> {
        self.fallback_because.as_deref()
    }

    /// Takes a last look, ends the reading, and gives all that was seen; time 0 of the records is
    /// `origin_ns` of the monotonic clock.
    pub fn finish(self, origin_ns: u64) -> Observation {
        self.stop().observation(origin_ns)
    }

    /// Takes a last look and ends the reading, quickly; putting the records in order can wait.
    pub fn stop(self) -> Stopped {
        drop(self.stop);
        let watcher = self
            .reader
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Stopped {
            method: self.method,
            fallback_because: self.fallback_because,
            watcher,
        }
    }
}

/// A probe that has ended; what it saw is still in the kernel's form.
pub struct Stopped {
    method: Method,
    fallback_because: Option<String>,
    watcher: Watcher,
}

impl Stopped {
    /// When the last look was, on the monotonic clock.
    pub const fn end_ns(&self) -> u64 {
        self.watcher.end_ns
    }

    /// All that was seen; time 0 of the records is `origin_ns` of the monotonic clock.
    pub fn observation(self, origin_ns: u64) -> Observation {
        let Self {
            method,
            fallback_because,
            watcher,
        } = self;
        let Watcher {
            flows,
            source,
            mut looks,
            most_records,
            lost: no_room,
            end_ns,
            cpu_s,
            fifo_refused,
            ..
        } = watcher;
        let first: Vec<TcpInfo> = flows.iter().map(|flow| flow.first).collect();
        let history: Vec<Retransmits> = flows.iter().map(|flow| flow.retransmits.clone()).collect();
        let (records, records_lost) = match source {
            Source::TcpProbe(tcp_probe) => {
                let (mut events, lost) = tcp_probe.finish(most_records);
                events.retain(|event| event.time_ns <= end_ns);
                (records_of_events(events, &history, origin_ns), lost)
            }
            Source::TcpInfo | Source::SockDiag(..) => {
                (records_of_looks(&looks, &first, origin_ns), 0)
            }
            Source::OptStats(queues) => {
                // each socket has its own queue
                looks.sort_by_key(|look| look.time_ns);
                let lost = queues.iter().map(|queue| queue.lost).sum();
                (records_of_looks(&looks, &first, origin_ns), lost)
            }
        };
        let flows = flows.into_iter().map(Watched::totals).collect();
        Observation {
            method,
            fallback_because,
            records,
            records_lost: records_lost + no_room,
            flows,
            end_ns,
            cpu_s,
            fifo_refused,
        }
    }
}

fn peer_port(socket: BorrowedFd<'_>) -> io::Result<u16> {
    let peer = getpeername(socket)?.ok_or(io::ErrorKind::NotConnected)?;
    Ok(SocketAddr::try_from(peer)?.port())
}

/// What the reading thread works on.
struct Watcher {
    flows: Vec<Watched>,
    source: Source,
    joins: Receiver<Joined>,
    looks: Vec<Look>,
    latest: Latest,
    most_records: usize,
    /// Looks that found no room.
    lost: u64,
    end_ns: u64,
    cpu_s: f64,
    fifo_refused: Option<String>,
}

impl Watcher {
    /// Reads until the other end of `stopped` goes away.
    fn run(mut self, fifo_priority: Option<i32>, stopped: &Receiver<()>) -> Self {
        if let Some(priority) = fifo_priority {
            self.fifo_refused = request_fifo(priority).err().map(|error| error.to_string());
        }
        // TCP_INFO costs 5 us a flow: with many flows, look less often
        let (base_ms, each_us) = match self.source {
            Source::TcpProbe(_) => (10, 100),
            Source::TcpInfo => (1, 50),
            Source::SockDiag(..) => (2, 200),
            // an error queue that fills up takes room from what is received
            Source::OptStats(_) => (2, 100),
        };
        let (base, per_flow) = (
            Duration::from_millis(base_ms),
            Duration::from_micros(each_us),
        );
        let mut next = Instant::now();
        loop {
            next += base.max(per_flow * self.flows.len() as u32);
            let wait = next.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                next = Instant::now(); // we were kept from running: do not catch up
            }
            let stop = match stopped.recv_timeout(wait) {
                Err(RecvTimeoutError::Timeout) => false,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => true,
            };
            self.look();
            if stop {
                self.cpu_s = thread_cpu_s();
                return self;
            }
        }
    }

    fn look(&mut self) {
        while let Ok(joined) = self.joins.try_recv() {
            self.flows.push(joined.join(&mut self.source));
        }
        self.end_ns = monotonic_ns();
        let (looks, most, lost) = (&mut self.looks, self.most_records, &mut self.lost);
        let mut keep = |look| match looks.len() < most {
            true => looks.push(look),
            false => *lost += 1,
        };
        if let Source::OptStats(queues) = &mut self.source {
            for (flow, queue) in (0u32..).zip(queues) {
                queue.drain(|time_ns, info| {
                    keep(Look {
                        time_ns,
                        flow,
                        info,
                    });
                });
            }
        }
        for (number, flow) in self.flows.iter_mut().enumerate() {
            let info = match &mut self.source {
                Source::SockDiag(diag, ids) => {
                    let socket = diag.socket(&ids[number]);
                    socket.ok().flatten().and_then(|socket| socket.info)
                }
                // a socket that was accepted here stays a TCP socket until it is closed here
                _ => TcpInfo::of(flow.socket.as_fd()).ok(),
            };
            let Some(info) = info else { continue };
            let time_ns = monotonic_ns();
            let changed = flow.look(info, time_ns);
            let look = Look {
                time_ns,
                flow: number as u32,
                info,
            };
            // who reads it must not keep this thread waiting
            if let Ok(mut latest) = self.latest.try_lock() {
                let known = latest.len().max(number + 1);
                latest.resize(known, None);
                latest[number] = Some((look, flow.first));
            }
            if changed && matches!(self.source, Source::TcpInfo | Source::SockDiag(..)) {
                keep(look);
            }
        }
        if let Source::TcpProbe(tcp_probe) = &mut self.source {
            tcp_probe.drain(most);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn transfer(method: Method) -> Observation {
        const BYTES: usize = 4_000_000;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let options = Options {
            method,
            fifo_priority: None,
            ..Options::default()
        };
        let probe = Probe::attach(&[sender.as_fd()], &options).unwrap();
        let origin_ns = monotonic_ns();
        let reader = std::thread::spawn(move || {
            let (mut buffer, mut bytes) = (vec![0; 1 << 16], 0);
            while bytes < BYTES {
                bytes += receiver.read(&mut buffer).unwrap();
            }
            receiver
        });
        sender.write_all(&vec![1; BYTES]).unwrap();
        let _receiver = reader.join().unwrap();
        while TcpInfo::of(sender.as_fd())
            .unwrap()
            .bytes_acked
            .is_none_or(|acked| acked < BYTES as u64)
        {
            std::thread::yield_now();
        }
        let seen = probe.finish(origin_ns);
        assert!(
            seen.records
                .windows(2)
                .all(|pair| pair[0].time_s <= pair[1].time_s)
        );
        assert!(
            seen.records
                .windows(2)
                .all(|pair| pair[0].snd_una_bytes <= pair[1].snd_una_bytes)
        );
        assert!(
            seen.records
                .iter()
                .all(|r| r.snd_una_bytes <= r.snd_nxt_bytes)
        );
        assert!(
            seen.records
                .iter()
                .all(|r| r.snd_nxt_bytes.unwrap() <= BYTES as u64)
        );
        assert_eq!(seen.records_lost, 0);
        seen
    }

    #[test]
    fn polling_sees_every_byte_acknowledged() {
        let seen = transfer(Method::TcpInfo);
        assert_eq!(
            (seen.method, seen.fallback_because),
            (Method::TcpInfo, None)
        );
        assert_eq!(seen.records.last().unwrap().snd_una_bytes, Some(4_000_000));
    }

    #[test]
    fn the_kernel_s_list_sees_every_byte_acknowledged() {
        let seen = transfer(Method::SockDiag);
        assert_eq!(seen.method, Method::SockDiag);
        assert_eq!(seen.records.last().unwrap().snd_una_bytes, Some(4_000_000));
    }

    #[test]
    fn an_error_queue_tells_the_window_of_a_sender_until_its_last_byte() {
        let seen = transfer(Method::OptStats);
        assert_eq!(seen.method, Method::OptStats);
        let last = seen.records.last().unwrap();
        assert_eq!(last.snd_una_bytes, Some(4_000_000));
        assert!(
            last.cwnd_packets >= 1.0 && last.srtt_s.unwrap() > 0.0,
            "{last:?}"
        );
    }

    #[test]
    fn tcp_probe_starts_at_byte_zero_or_says_why_it_cannot_be_had() {
        let seen = transfer(Method::TcpProbe);
        match seen.method {
            Method::TcpProbe => assert_eq!(seen.records[0].snd_una_bytes, Some(0)),
            _ => {
                println!(
                    "tcp_probe was not tested: {}",
                    seen.fallback_because.unwrap()
                );
            }
        }
    }

    #[test]
    fn a_socket_that_is_not_connected_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = Probe::attach(&[listener.as_fd()], &Options::default())
            .err()
            .unwrap();
        assert!(
            error
                .to_string()
                .contains("expected a connected TCP socket"),
            "{error}"
        );
    }
}
