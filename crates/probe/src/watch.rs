//! Watches flows of any process.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use pathcast_base::clock::monotonic_ns;
use pathcast_trace::{
    Metadata, Record, Source, TableWriter, Trace, TraceError, WatchReport, WatchedFlow,
    write_beside, write_parquet,
};
use rustix::system::uname;

use crate::error::ProbeError;
use crate::method::Method;
use crate::own::Own;
use crate::owner::{Cgroup, in_namespace_of};
use crate::selection::Selection;
use crate::sock_diag::{Destroyed, Diag};
use crate::tcp_probe::Recording;
use crate::watcher::{Owners, Seen, Watcher};

/// Records handed to the writer together, and how many such batches may wait for it.
const BATCH: usize = 4096;
const BATCHES_WAITING: usize = 64;

/// How to watch, and what becomes of the records.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// For any process's flows `TcpProbe` or `SockDiag`; by default, the first of them that is available.
    /// For own sockets any method; by default `TcpProbe`, or else `TcpInfo`.
    pub method: Option<Method>,
    /// What becomes of the records.
    pub keep: Keep,
}

/// What becomes of the records of a watch.
#[derive(Clone, Debug, Default)]
pub enum Keep {
    /// They are counted, and make up the report.
    #[default]
    Nothing,
    /// A trace in memory, about 100 bytes a record.
    Memory,
    /// A trace in this file, written as they come; memory stays bounded.
    File(PathBuf),
    /// They are handed to another thread four times a second. What does not fit into its queue is left out and counted as
    /// lost. Own sockets are not handed over.
    Feed(SyncSender<Fed>),
}

/// Records of a quarter of a second, for [`Keep::Feed`].
#[derive(Clone, Debug)]
pub struct Fed {
    /// The flows of these records, with their numbers.
    pub flows: Vec<(u32, WatchedFlow)>,
    /// The records in order; their times count from [`Watch::began_unix_s`].
    pub records: Vec<Record>,
}

/// How far a watch is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchProgress {
    /// Flows found so far.
    pub flows: u64,
    /// Records taken so far; of own sockets known at the end only.
    pub records: u64,
    /// Flows of these that have ended; of own sockets none.
    pub ended: u64,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) flows: AtomicU64,
    pub(crate) ended: AtomicU64,
    pub(crate) records: AtomicU64,
}

/// Watches flows until it is finished or dropped; dropped, it leaves no file.
pub struct Watch {
    running: Option<Running>,
    method: Method,
    fallback_because: Option<String>,
    began_ns: u64,
    began_unix_s: f64,
    counts: Arc<Counts>,
}

enum Running {
    Any(Threads),
    Own(Own, Keep),
}

struct Threads {
    stop: Sender<()>,
    reader: JoinHandle<Seen>,
    writer: Option<Writer>,
}

impl Threads {
    /// Ends the reading: what was seen, and who still waits for the end of the trace.
    fn stop(self) -> (Seen, Option<Writer>) {
        drop(self.stop);
        let seen = self.reader.join();
        let seen = seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (seen, self.writer)
    }
}

struct Writer {
    messages: SyncSender<Message>,
    thread: JoinHandle<Result<(), TraceError>>,
}

enum Message {
    Records(Vec<Record>),
    End(Box<Metadata>),
}

impl Watch {
    /// Watches the flows of a selection, those that are there and those that come.
    ///
    /// # Errors
    /// The selection does not exist or is inconsistent, the kernel does not list its sockets, the requested
    /// method is not available, or a file cannot be written.
    pub fn start(selection: Selection, options: WatchOptions) -> Result<Self, ProbeError> {
        selection.check()?;
        let (method, recording, fallback_because) = open_method(&selection, options.method)?;
        if selection.all_namespaces && method != Method::TcpProbe {
            let why = fallback_because.unwrap_or_else(|| format!("{method} was asked for"));
            return Err(ProbeError::Selection(format!(
                "all namespaces can be watched by tcp_probe only: {why}"
            )));
        }
        let owners = Owners::new(
            selection.pid,
            match &selection.cgroup {
                Some(text) => Some(Cgroup::find(text)?),
                None => None,
            },
        )?;
        // without permission to receive the ends of flows, flows that are no longer listed have ended
        let (diag, destroyed) = in_namespace_of(selection.pid, || {
            Ok((Diag::open()?, Destroyed::open().ok()))
        })?;
        let (began_ns, counts) = (monotonic_ns(), Arc::new(Counts::default()));
        let (output, writer) = Output::open(options.keep, Arc::clone(&counts))?;
        let mut watcher = Watcher::new(selection, owners, diag, destroyed, recording, output);
        watcher
            .begin(began_ns)
            .map_err(|source| ProbeError::Diag { source })?;
        let (stop, stopped) = channel();
        let reader = thread::Builder::new()
            .name("pathcast-watch".into())
            .spawn(move || watcher.run(&stopped))
            .map_err(ProbeError::Thread)?;
        Ok(Self {
            method,
            fallback_because,
            began_ns,
            began_unix_s: since_1970_s(),
            counts,
            running: Some(Running::Any(Threads {
                stop,
                reader,
                writer,
            })),
        })
    }

    /// Watches sockets of this process, by any method; their numbers are places in this list. The
    /// records are in memory until the end.
    ///
    /// # Errors
    /// A socket is not a connected TCP socket, or the requested method is not available.
    pub fn sockets(sockets: &[BorrowedFd<'_>], options: WatchOptions) -> Result<Self, ProbeError> {
        let own = Own::start(sockets, options.method)?;
        let counts = Counts::default();
        counts.flows.store(own.flows() as u64, Ordering::Relaxed);
        Ok(Self {
            method: own.method(),
            fallback_because: own.fallback_because(),
            began_ns: monotonic_ns(),
            began_unix_s: since_1970_s(),
            counts: Arc::new(counts),
            running: Some(Running::Own(own, options.keep)),
        })
    }

    /// How the records are taken.
    pub const fn method(&self) -> Method {
        self.method
    }

    /// When it began, seconds since 1970.
    pub const fn began_unix_s(&self) -> f64 {
        self.began_unix_s
    }

    /// Whether it goes on: a watch ends itself if the kernel does not list its sockets any more.
    pub fn is_running(&self) -> bool {
        match &self.running {
            Some(Running::Any(threads)) => !threads.reader.is_finished(),
            Some(Running::Own(..)) => true,
            None => false,
        }
    }

    /// How far it is.
    pub fn progress(&self) -> WatchProgress {
        WatchProgress {
            flows: self.counts.flows.load(Ordering::Relaxed),
            records: self.counts.records.load(Ordering::Relaxed),
            ended: self.counts.ended.load(Ordering::Relaxed),
        }
    }

    /// Takes a last look and ends: what was seen, and the trace if it was to be kept in memory.
    ///
    /// # Errors
    /// The kernel stopped listing its sockets, or the file could not be written.
    pub fn finish(mut self) -> Result<(WatchReport, Option<Trace>), ProbeError> {
        match self.running.take().expect("only the end takes it") {
            Running::Any(threads) => {
                let (seen, writer) = threads.stop();
                let report = self.report(seen.report, seen.ended_ns);
                let metadata = metadata(&report, self.began_unix_s);
                if let Some(Writer { messages, thread }) = writer {
                    // a writer that has given up says why when it is joined
                    let _ = messages.send(Message::End(Box::new(metadata.clone())));
                    drop(messages);
                    let written = thread.join();
                    written.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                }
                if let Some(source) = seen.failed {
                    return Err(ProbeError::Diag { source });
                }
                let trace = seen.kept.map(|records| Trace { metadata, records });
                Ok((report, trace))
            }
            Running::Own(own, keep) => {
                let (report, records, ended_ns) = own.finish(self.began_ns);
                let report = self.report(report, ended_ns);
                let metadata = metadata(&report, self.began_unix_s);
                let trace = Trace { metadata, records };
                match keep {
                    Keep::Nothing | Keep::Feed(_) => Ok((report, None)),
                    Keep::Memory => Ok((report, Some(trace))),
                    Keep::File(file) => {
                        write_parquet(&file, &trace)?;
                        Ok((report, None))
                    }
                }
            }
        }
    }

    fn report(&mut self, report: WatchReport, ended_ns: u64) -> WatchReport {
        WatchReport {
            method: self.method.to_string(),
            fallback_because: self.fallback_because.take(),
            duration_s: ended_ns.saturating_sub(self.began_ns) as f64 * 1e-9,
            ..report
        }
    }
}

/// Seconds since 1970.
fn since_1970_s() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(Running::Any(threads)) = self.running.take()
            && let (_, Some(Writer { messages, thread })) = threads.stop()
        {
            drop(messages);
            let _ = thread.join(); // its unfinished file is removed, and its error is not needed
        }
    }
}

/// What takes the records, and why it is not tcp_probe if that was tried.
fn open_method(
    selection: &Selection,
    wanted: Option<Method>,
) -> Result<(Method, Option<Recording>, Option<String>), ProbeError> {
    match wanted {
        Some(Method::SockDiag) => Ok((Method::SockDiag, None, None)),
        Some(own @ (Method::TcpInfo | Method::OptStats)) => Err(ProbeError::Selection(format!(
            "{own} can only watch sockets of this process, expected tcp_probe or sock_diag"
        ))),
        None | Some(Method::TcpProbe) => match Recording::open(&selection.filter()) {
            Ok(recording) => Ok((Method::TcpProbe, Some(recording), None)),
            Err(why) if wanted.is_some() => Err(ProbeError::Unavailable(why.to_string())),
            Err(why) => Ok((Method::SockDiag, None, Some(why.to_string()))),
        },
    }
}

fn metadata(report: &WatchReport, began_unix_s: f64) -> Metadata {
    let mut metadata = Metadata::new(Source::Watch);
    let scheme = |scheme: &Option<String>| scheme.clone().unwrap_or_default();
    metadata.schemes = report
        .flows
        .iter()
        .map(|flow| scheme(&flow.scheme))
        .collect();
    let busiest = report.flows.iter().max_by_key(|flow| flow.acked_bytes);
    metadata.mss_bytes = busiest.and_then(|flow| flow.mss_bytes);
    let mut environment = BTreeMap::from([
        (
            "kernel".to_string(),
            uname().release().to_string_lossy().into_owned(),
        ),
        ("measured_by".to_string(), report.method.clone()),
        (
            "pathcast".to_string(),
            env!("CARGO_PKG_VERSION").to_string(),
        ),
        ("began_unix_s".to_string(), format!("{began_unix_s:.6}")),
    ]);
    if let Some(why) = &report.fallback_because {
        environment.insert("no_tcp_probe".into(), why.clone());
    }
    for (number, flow) in report
        .flows
        .iter()
        .enumerate()
        .filter(|(_, f)| f.records > 0)
    {
        let who = format!("{} > {}", flow.local, flow.remote);
        environment.insert(format!("flow {number}"), who);
    }
    metadata.valid = report.records_lost == 0;
    if !metadata.valid {
        let why = format!(
            "{} records were lost: the trace has gaps",
            report.records_lost
        );
        environment.insert("invalid_because".into(), why);
    }
    metadata.environment = environment;
    metadata
}

/// Where records go.
pub(crate) struct Output {
    counts: Arc<Counts>,
    kept: Option<Vec<Record>>,
    batch: Vec<Record>,
    messages: Option<SyncSender<Message>>,
    feed: Option<SyncSender<Fed>>,
    /// Records that the feed's queue had no room for.
    lost: u64,
}

impl Output {
    fn open(keep: Keep, counts: Arc<Counts>) -> Result<(Self, Option<Writer>), ProbeError> {
        let mut output = Self {
            counts,
            kept: None,
            batch: Vec::new(),
            messages: None,
            feed: None,
            lost: 0,
        };
        match keep {
            Keep::Nothing => Ok((output, None)),
            Keep::Feed(feed) => {
                output.feed = Some(feed);
                Ok((output, None))
            }
            Keep::Memory => {
                output.kept = Some(Vec::new());
                Ok((output, None))
            }
            Keep::File(file) => {
                // a disk that cannot keep up makes the watch wait, and then records are lost and
                // counted, rather than memory
                let (messages, written) = sync_channel(BATCHES_WAITING);
                let thread = thread::Builder::new()
                    .name("pathcast-write".into())
                    .spawn(move || write(&file, &written))
                    .map_err(ProbeError::Thread)?;
                output.messages = Some(messages.clone());
                Ok((output, Some(Writer { messages, thread })))
            }
        }
    }

    pub(crate) fn push(&mut self, record: Record) {
        self.counts.records.fetch_add(1, Ordering::Relaxed);
        if let Some(kept) = &mut self.kept {
            kept.push(record);
        }
        if self.feed.is_some() {
            self.batch.push(record);
        }
        if self.messages.is_some() {
            self.batch.push(record);
            if self.batch.len() == BATCH {
                self.flush();
            }
        }
    }

    pub(crate) fn found(&self, flows: usize) {
        self.counts.flows.store(flows as u64, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self, flows: usize) {
        self.counts.ended.store(flows as u64, Ordering::Relaxed);
    }

    /// Hands the records over, if somebody takes them; `flow` reports a flow.
    pub(crate) fn hand_over(&mut self, flow: impl Fn(u32) -> WatchedFlow) {
        let Some(feed) = &self.feed else { return };
        let records = std::mem::take(&mut self.batch);
        if records.is_empty() {
            return;
        }
        let numbers: BTreeSet<u32> = records.iter().map(|record| record.flow).collect();
        let flows = numbers.into_iter().map(|number| (number, flow(number)));
        let count = records.len() as u64;
        let fed = Fed {
            flows: flows.collect(),
            records,
        };
        if feed.try_send(fed).is_err() {
            self.lost += count;
        }
    }

    /// Records that nobody took in time.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    fn flush(&mut self) {
        if self.messages.is_none() {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        if let Some(messages) = &self.messages {
            let _ = messages.send(Message::Records(batch));
        }
    }

    /// How many there were, and those that were kept.
    pub(crate) fn finish(mut self) -> (u64, Option<Vec<Record>>) {
        self.flush();
        (self.counts.records.load(Ordering::Relaxed), self.kept)
    }
}

/// Writes records to `file` until the end is reported; if it never is, the file is removed.
fn write(file: &std::path::Path, messages: &Receiver<Message>) -> Result<(), TraceError> {
    write_beside(file, |file| {
        let mut rows = TableWriter::<Record>::new(file)?;
        loop {
            match messages.recv() {
                Ok(Message::Records(records)) => {
                    records.into_iter().for_each(|record| rows.push(record));
                }
                Ok(Message::End(metadata)) => return rows.finish(&metadata),
                Err(_) => return Err("the watch was stopped".into()),
            }
        }
    })
}
