//! One interface to all ways of watching senders of this process.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pathcast_base::clock::{monotonic_ns, thread_cpu_s};
use pathcast_trace::Record;
use rustix::net::sockopt::socket_cookie;
use rustix::net::{getpeername, getsockname};

use crate::error::ProbeError;
use crate::method::Method;
use crate::realtime::request_fifo;
use crate::sample::{Look, Retransmits, records_of_events, records_of_looks};
use crate::sock_diag::SocketId;
use crate::source::{Source, diag_of, opt_stats_of};
use crate::tcp_info::TcpInfo;
use crate::tcp_probe::TcpProbe;

/// How to watch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Which method to try first. Where `TcpProbe` is not available, `TcpInfo` replaces it.
    pub method: Method,
    /// `SCHED_FIFO` priority of the reading thread; none: an ordinary thread.
    pub fifo_priority: Option<i32>,
    /// The most records that are kept, of all flows; those after are counted as lost. None: all.
    pub most_records: Option<usize>,
}

/// What was seen of one flow in all, since it was first watched.
#[derive(Clone, Debug)]
pub struct FlowTotals {
    /// The socket's state when it was first watched.
    pub first: TcpInfo,
    /// The socket's state at the end.
    pub last: TcpInfo,
    /// Packets sent again.
    pub retransmits: u64,
    /// Packets that the receiver said it had got twice.
    pub duplicates: u64,
    /// Time in which the receiver's window held the sender back, in seconds.
    pub rwnd_limited_s: f64,
    /// Time in which the send buffer was too small, in seconds.
    pub sndbuf_limited_s: f64,
    history: Retransmits,
}

impl FlowTotals {
    /// Packets sent again up to `time_ns` of the monotonic clock, to within 10 ms.
    pub fn retransmits_at(&self, time_ns: u64) -> u64 {
        self.history.at(time_ns)
    }
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
    reader: JoinHandle<Watcher>,
    first: Vec<TcpInfo>,
    latest: Latest,
}

/// The last look at each flow, for who follows the flows while they run.
type Latest = Arc<Mutex<Vec<Option<Look>>>>;

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
            let socket = socket.try_clone_to_owned().map_err(error)?;
            let first = TcpInfo::of(socket.as_fd()).map_err(error)?;
            ids.push(id_of(socket.as_fd(), cookies[flow]).map_err(error)?);
            flows.push(Watched {
                socket,
                first,
                last: first,
                retransmits: Retransmits::default(),
            });
        }
        let (source, fallback_because) = match options.method {
            Method::TcpInfo => (Source::TcpInfo, None),
            Method::TcpProbe => match TcpProbe::open(cookies, &peer_ports) {
                Ok(tcp_probe) => (Source::TcpProbe(tcp_probe), None),
                Err(unavailable) => (Source::TcpInfo, Some(unavailable.to_string())),
            },
            Method::SockDiag => (diag_of(ids)?, None),
            Method::OptStats => (opt_stats_of(&mut flows)?, None),
        };
        let method = source.method();
        let most_records = options.most_records.unwrap_or(usize::MAX);
        let (stop, stopped) = channel();
        let first = flows.iter().map(|flow| flow.first).collect();
        let latest: Latest = Arc::new(Mutex::new(vec![None; flows.len()]));
        let fifo_priority = options.fifo_priority;
        let watcher = Watcher {
            flows,
            source,
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
            reader,
            first,
            latest,
        })
    }

    /// The state of each flow as of the last look at it, milliseconds ago; time 0 is `origin_ns` of the
    /// monotonic clock. Flows that were not looked at yet are left out.
    pub fn latest(&self, origin_ns: u64) -> Vec<Record> {
        let latest = self.latest.lock().expect("no panic holds it");
        let looks: Vec<Look> = latest.iter().flatten().copied().collect();
        drop(latest);
        records_of_looks(&looks, &self.first, origin_ns)
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

pub(crate) fn id_of(socket: BorrowedFd<'_>, cookie: u64) -> io::Result<SocketId> {
    let local = SocketAddr::try_from(getsockname(socket)?)?;
    let peer = getpeername(socket)?.ok_or(io::ErrorKind::NotConnected)?;
    Ok(SocketId::new(local, peer.try_into()?, cookie))
}

fn peer_port(socket: BorrowedFd<'_>) -> io::Result<u16> {
    let peer = getpeername(socket)?.ok_or(io::ErrorKind::NotConnected)?;
    Ok(SocketAddr::try_from(peer)?.port())
}

/// A flow under watch.
pub(crate) struct Watched {
    pub(crate) socket: OwnedFd,
    pub(crate) first: TcpInfo,
    last: TcpInfo,
    retransmits: Retransmits,
}

impl Watched {
    /// Notes the flow's state; whether it has changed.
    fn look(&mut self, info: TcpInfo, time_ns: u64) -> bool {
        let retransmits = info.total_retrans.wrapping_sub(self.first.total_retrans);
        self.retransmits.note(time_ns, retransmits.into());
        let row = |info: &TcpInfo| {
            let bytes = (info.bytes_sent, info.bytes_acked, info.total_retrans);
            (
                info.snd_cwnd,
                info.snd_ssthresh,
                info.rtt_us,
                info.snd_wnd,
                bytes,
            )
        };
        let changed = row(&info) != row(&self.last);
        self.last = info.with_mss_in_use(Some(&self.last));
        changed
    }

    fn totals(self) -> FlowTotals {
        let Self {
            first,
            last,
            retransmits,
            ..
        } = self;
        let seconds = |now: Option<u64>, then: Option<u64>| {
            now.unwrap_or(0).saturating_sub(then.unwrap_or(0)) as f64 * 1e-6
        };
        FlowTotals {
            first,
            last,
            retransmits: retransmits.at(u64::MAX),
            duplicates: last
                .dsack_dups
                .unwrap_or(0)
                .wrapping_sub(first.dsack_dups.unwrap_or(0))
                .into(),
            rwnd_limited_s: seconds(last.rwnd_limited_us, first.rwnd_limited_us),
            sndbuf_limited_s: seconds(last.sndbuf_limited_us, first.sndbuf_limited_us),
            history: retransmits,
        }
    }
}

/// What the reading thread works on.
struct Watcher {
    flows: Vec<Watched>,
    source: Source,
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
        let interval = base.max(per_flow * self.flows.len() as u32);
        let mut next = Instant::now();
        loop {
            next += interval;
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
                // a socket that was accepted at the start stays a TCP socket until it is closed here
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
                latest[number] = Some(look);
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
    fn the_mss_is_that_of_the_data_that_was_acknowledged() {
        let info = |acked_bytes, snd_mss| TcpInfo {
            bytes_acked: Some(acked_bytes),
            snd_mss,
            ..TcpInfo::at_the_beginning()
        };
        let first = info(0, 536);
        let mut watched = Watched {
            socket: TcpListener::bind("127.0.0.1:0").unwrap().into(),
            first,
            last: first,
            retransmits: Retransmits::default(),
        };
        // larger once the path is known, and 36 bytes after its device has disappeared
        let looks = [(1448, 1448), (4344, 1448), (4344, 36), (4344, 36)];
        for (time_ns, (acked_bytes, snd_mss)) in (1..).zip(looks) {
            watched.look(info(acked_bytes, snd_mss), time_ns);
        }
        assert_eq!(watched.totals().last.snd_mss, 1448);
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
