//! The thread of a watch: finds flows, follows them, and notices their end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use pathcast_base::clock::{monotonic_ns, thread_cpu_s};
use pathcast_trace::{Record, WatchReport};

use crate::error::ProbeError;
use crate::flow::Flow;
use crate::owner::{Cgroup, processes_of, sockets_of};
use crate::sample::Event;
use crate::selection::Selection;
use crate::sock_diag::{Destroyed, Diag, Socket, SocketId};
use crate::tcp_probe::Recording;
use crate::watch::Output;

/// How often the kernel's list is read whole.
const LIST_EVERY: Duration = Duration::from_millis(100);
/// How often tcp_probe's records are read, and the state of flows with records.
const DRAIN_EVERY: Duration = Duration::from_millis(10);
/// How often flows are looked at without tcp_probe, and the least time for each of them: a look costs
/// 11 us, so that this is at most a twentieth of a processor.
const LOOK_EVERY: Duration = Duration::from_millis(2);
const LOOK_FOR_EACH: Duration = Duration::from_micros(200);
/// A flow in which nothing changed for so long is looked at with the whole list only.
const QUIET_AFTER_NS: u64 = 1_000_000_000;
/// How often records are handed over, if somebody takes them.
const HAND_OVER_EVERY: Duration = Duration::from_millis(250);
/// Processes are looked for no more often: all of their descriptors have to be read.
const PROCESSES_EVERY: Duration = Duration::from_secs(1);
/// Of records of several processors, those younger than this may not be all: they are put in order
/// with the next ones.
const SETTLED_AFTER_NS: u64 = 1_000_000;
/// Flows that are watched at most, some 100 MB.
const MOST_FLOWS: usize = 1 << 16;
/// Sockets that are remembered as being no flows of ours.
const MOST_PASSED: usize = 1 << 17;

/// To whom a socket must belong.
pub(crate) struct Owners {
    pid: Option<u32>,
    cgroup: Option<Cgroup>,
    inodes: BTreeSet<u32>,
    /// Ports at which the process listens: connections that it has not accepted yet belong to it already.
    ports: BTreeSet<u16>,
    groups: BTreeSet<u64>,
}

impl Owners {
    /// # Errors
    /// There is no such process, or it belongs to another user.
    pub(crate) fn new(pid: Option<u32>, cgroup: Option<Cgroup>) -> Result<Self, ProbeError> {
        let inodes = pid.map_or(Ok(BTreeSet::new()), |pid| {
            sockets_of(pid).map_err(|source| ProbeError::Process { pid, source })
        })?;
        Ok(Self {
            pid,
            cgroup,
            inodes,
            ports: BTreeSet::new(),
            groups: BTreeSet::new(),
        })
    }

    fn refresh(&mut self, diag: &mut Diag) -> io::Result<()> {
        if let Some(pid) = self.pid {
            // a process that has ended has none
            self.inodes = sockets_of(pid).unwrap_or_default();
            self.ports.clear();
            let Self { inodes, ports, .. } = self;
            diag.listeners(&mut |socket| {
                if inodes.contains(&socket.inode) {
                    ports.insert(socket.id.local.port());
                }
            })?;
        }
        if let Some(cgroup) = &self.cgroup {
            self.groups = cgroup.numbers();
        }
        Ok(())
    }

    fn own(&self, socket: &Socket) -> bool {
        let not_accepted = socket.inode == 0 && self.ports.contains(&socket.id.local.port());
        (self.pid.is_none() || not_accepted || self.inodes.contains(&socket.inode))
            && (self.cgroup.is_none()
                || socket
                    .cgroup
                    .is_some_and(|group| self.groups.contains(&group)))
    }

    const fn matter(&self) -> bool {
        self.pid.is_some() || self.cgroup.is_some()
    }
}

/// What is known about a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Flow(u32),
    Passed,
}

/// What a watch saw.
pub(crate) struct Seen {
    pub(crate) report: WatchReport,
    pub(crate) kept: Option<Vec<Record>>,
    pub(crate) ended_ns: u64,
    /// Why the watcher could not continue.
    pub(crate) failed: Option<io::Error>,
}

pub(crate) struct Watcher {
    selection: Selection,
    owners: Owners,
    diag: Diag,
    destroyed: Option<Destroyed>,
    recording: Option<Recording>,
    output: Output,
    flows: Vec<Flow>,
    fates: HashMap<u64, Fate>,
    passed: usize,
    /// Records that are not in order yet, with the cookies of their sockets.
    held: Vec<(u64, Event)>,
    /// Ends that were reported since the last turn.
    ends: Vec<Socket>,
    began_ns: u64,
    last_s: f64,
    listed: Instant,
    looked_up: Option<Instant>,
    handed: Instant,
    report: WatchReport,
}

impl Watcher {
    pub(crate) fn new(
        selection: Selection,
        owners: Owners,
        diag: Diag,
        destroyed: Option<Destroyed>,
        recording: Option<Recording>,
        output: Output,
    ) -> Self {
        Self {
            selection,
            owners,
            diag,
            destroyed,
            recording,
            output,
            flows: Vec::new(),
            fates: HashMap::new(),
            passed: 0,
            held: Vec::new(),
            ends: Vec::new(),
            began_ns: 0,
            last_s: 0.0,
            listed: Instant::now(),
            looked_up: None,
            handed: Instant::now(),
            report: WatchReport::default(),
        }
    }

    /// Finds the flows that are there already.
    ///
    /// # Errors
    /// The kernel does not list its sockets.
    pub(crate) fn begin(&mut self, began_ns: u64) -> io::Result<()> {
        self.began_ns = began_ns;
        self.list(false)
    }

    /// Watches until the other end of `stopped` goes away.
    pub(crate) fn run(mut self, stopped: &Receiver<()>) -> Seen {
        let mut next = Instant::now();
        let mut failed = None;
        loop {
            next += self.interval();
            let wait = next.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                next = Instant::now(); // we were kept from running: do not catch up
            }
            let stop = match stopped.recv_timeout(wait) {
                Err(RecvTimeoutError::Timeout) => false,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => true,
            };
            if let Err(error) = self.turn(stop) {
                failed.get_or_insert(error);
            }
            if stop || self.handed.elapsed() >= HAND_OVER_EVERY {
                self.handed = Instant::now();
                let (flows, began_ns) = (&self.flows, self.began_ns);
                self.output
                    .hand_over(|number| flows[number as usize].report(began_ns));
            }
            if stop || failed.is_some() {
                return self.finish(failed);
            }
        }
    }

    fn interval(&self) -> Duration {
        if self.recording.is_some() {
            return DRAIN_EVERY;
        }
        let now_ns = monotonic_ns();
        let lively = self
            .flows
            .iter()
            .filter(|flow| is_lively(flow, now_ns))
            .count();
        LOOK_EVERY.max(LOOK_FOR_EACH * lively as u32)
    }

    fn turn(&mut self, last: bool) -> io::Result<()> {
        if let Some(destroyed) = &mut self.destroyed {
            let ends = &mut self.ends;
            destroyed.drain(|socket| ends.push(socket));
        }
        if last && let Some(recording) = &self.recording {
            recording.disable();
        }
        self.take_events(last)?;
        self.note_ends();
        match last || self.listed.elapsed() >= LIST_EVERY {
            true => self.list(true),
            false => self.look(),
        }
    }

    /// Takes tcp_probe's records, finds whose they are, and lets those go that are in order.
    fn take_events(&mut self, all: bool) -> io::Result<()> {
        let Some(recording) = &mut self.recording else {
            return Ok(());
        };
        let began_ns = monotonic_ns();
        let mut unknown: BTreeMap<u64, (SocketAddr, SocketAddr)> = BTreeMap::new();
        let (fates, held, selection) = (&mut self.fates, &mut self.held, &self.selection);
        let passed = &mut self.passed;
        recording.drain(|sighting| {
            let Some(cookie) = sighting.cookie() else {
                return;
            };
            let number = match fates.get(&cookie) {
                Some(Fate::Passed) => return,
                Some(Fate::Flow(number)) => *number,
                None if unknown.contains_key(&cookie) => u32::MAX,
                None => {
                    let Some((local, remote)) = sighting.ends() else {
                        return;
                    };
                    if !selection.has(local, remote) {
                        fates.insert(cookie, Fate::Passed);
                        *passed += 1;
                        return;
                    }
                    unknown.insert(cookie, (local, remote));
                    u32::MAX
                }
            };
            held.extend(sighting.event(number).map(|event| (cookie, event)));
        });
        if !unknown.is_empty() {
            if self.owners.matter() {
                self.owners.refresh(&mut self.diag)?;
            }
            for (cookie, (local, remote)) in unknown {
                self.decide(SocketId::new(local, remote, cookie))?;
            }
        }
        let settled_ns = if all {
            u64::MAX
        } else {
            began_ns - SETTLED_AFTER_NS
        };
        self.held.sort_by_key(|(_, event)| event.time_ns);
        let settled = self
            .held
            .partition_point(|(_, event)| event.time_ns <= settled_ns);
        let events: Vec<_> = self.held.drain(..settled).collect();
        for (cookie, mut event) in events {
            if let Some(Fate::Flow(number)) = self.fates.get(&cookie) {
                event.flow = *number;
                let record = self.flows[*number as usize].event(&event, self.began_ns);
                self.push(record);
            }
        }
        if self.passed > MOST_PASSED {
            self.fates.retain(|_, fate| *fate != Fate::Passed);
            self.passed = 0;
        }
        Ok(())
    }

    /// Decides whether a socket that tcp_probe reported is one of the selected flows.
    fn decide(&mut self, id: SocketId) -> io::Result<()> {
        let now_ns = monotonic_ns();
        let listed = self.diag.socket(&id)?;
        let ended = || {
            self.ends
                .iter()
                .find(|end| end.id.cookie == id.cookie)
                .cloned()
        };
        match listed.or_else(ended) {
            Some(socket) if self.owners.own(&socket) => {
                self.add(id.cookie, Flow::listed(&socket, true, now_ns));
            }
            None if self.selection.all_namespaces => {
                self.add(id.cookie, Flow::unlisted(id, now_ns));
            }
            other => {
                self.report.flows_elsewhere += u64::from(other.is_none());
                self.pass(id.cookie);
            }
        }
        Ok(())
    }

    fn pass(&mut self, cookie: u64) {
        self.fates.insert(cookie, Fate::Passed);
        self.passed += 1;
    }

    fn add(&mut self, cookie: u64, flow: Flow) -> Option<u32> {
        if self.flows.len() == MOST_FLOWS {
            if self.fates.get(&cookie) != Some(&Fate::Passed) {
                self.report.flows_left_out += 1;
                self.pass(cookie);
            }
            return None;
        }
        let number = self.flows.len() as u32;
        self.fates.insert(cookie, Fate::Flow(number));
        self.flows.push(flow);
        self.output.found(self.flows.len());
        Some(number)
    }

    fn push(&mut self, record: Option<Record>) {
        if let Some(mut record) = record {
            // a record that a processor wrote late comes late: times of a trace never decrease
            record.time_s = record.time_s.max(self.last_s);
            self.last_s = record.time_s;
            self.output.push(record);
        }
    }

    /// Processes flows that the kernel reports as ended, also those so short that they were never listed.
    fn note_ends(&mut self) {
        if self.ends.is_empty() {
            return;
        }
        let now_ns = monotonic_ns();
        for socket in std::mem::take(&mut self.ends) {
            let Some(info) = socket.info else { continue };
            let number = match self.fates.get(&socket.id.cookie) {
                Some(Fate::Passed) => continue,
                Some(Fate::Flow(number)) => *number,
                None => {
                    let (local, remote) = (socket.id.local, socket.id.remote);
                    let used = info.bytes_sent.max(info.bytes_received) > Some(0);
                    // ends are reported late: at first, also of flows from before the watch
                    let early = now_ns - self.began_ns < LIST_EVERY.as_nanos() as u64;
                    let wanted = used && !early && !self.owners.matter();
                    if !wanted || !self.selection.has(local, remote) {
                        continue;
                    }
                    let flow = Flow::listed(&socket, true, now_ns);
                    let Some(number) = self.add(socket.id.cookie, flow) else {
                        continue;
                    };
                    number
                }
            };
            // one that the list lacked already has its last counts here, unless it was handed on
            if !self.flows[number as usize].ended || !self.owners.matter() {
                self.see(number, &socket, now_ns);
                self.flows[number as usize].ended = true;
            }
        }
        self.count_ended();
    }

    fn count_ended(&self) {
        let ended = self.flows.iter().filter(|flow| flow.ended);
        self.output.ended(ended.count());
    }

    /// Notes what the kernel says of a flow.
    fn see(&mut self, number: u32, socket: &Socket, now_ns: u64) {
        let flow = &mut self.flows[number as usize];
        flow.learn(socket);
        flow.stirred = false;
        let rows = self.recording.is_none();
        if let Some(info) = &socket.info {
            let record = flow.look(info, number, now_ns, self.began_ns, rows);
            self.push(record);
        }
    }

    /// Looks at the flows that may have changed.
    fn look(&mut self) -> io::Result<()> {
        let with_events = self.recording.is_some();
        let now_ns = monotonic_ns();
        for number in 0..self.flows.len() {
            let flow = &self.flows[number];
            let wanted = match with_events {
                true => flow.stirred && flow.is_listed(),
                false => is_lively(flow, now_ns),
            };
            if flow.ended || !wanted {
                continue;
            }
            let id = flow.id;
            // a flow that has disappeared is found when all are listed, or by the report of its end
            if let Some(socket) = self.diag.socket(&id)? {
                self.see(number as u32, &socket, monotonic_ns());
            }
        }
        Ok(())
    }

    /// Reads the kernel's whole list: new flows, and those that are gone. `began` says that the new
    /// ones were not there when the watch began.
    fn list(&mut self, began: bool) -> io::Result<()> {
        self.listed = Instant::now();
        self.owners.refresh(&mut self.diag)?;
        let mut sockets = Vec::new();
        for ports in self.selection.ports() {
            let (selection, owners) = (&self.selection, &self.owners);
            self.diag.connections(ports, &mut |socket| {
                if selection.has(socket.id.local, socket.id.remote) && owners.own(&socket) {
                    sockets.push(socket);
                }
            })?;
        }
        let mut there = BTreeSet::new();
        for socket in &sockets {
            let now_ns = monotonic_ns();
            let number = match self.fates.get(&socket.id.cookie) {
                Some(Fate::Flow(number)) => Some(*number),
                // a socket that was passed over because of its owner may have been handed to a selected process
                Some(Fate::Passed) | None => {
                    self.add(socket.id.cookie, Flow::listed(socket, began, now_ns))
                }
            };
            if let Some(number) = number {
                there.insert(number);
                if !self.flows[number as usize].ended {
                    self.see(number, socket, now_ns);
                }
            }
        }
        for (number, flow) in (0u32..).zip(&mut self.flows) {
            // what its owner handed to somebody else is over for us, too
            flow.ended |= flow.is_listed() && !there.contains(&number);
        }
        self.count_ended();
        self.look_up_processes();
        Ok(())
    }

    fn look_up_processes(&mut self) {
        let since = self.looked_up.map(|looked_up| looked_up.elapsed());
        if since.is_some_and(|since| since < PROCESSES_EVERY) {
            return;
        }
        let nameless = |flow: &&mut Flow| flow.process.is_none() && flow.inode != 0 && !flow.ended;
        let wanted = self
            .flows
            .iter_mut()
            .filter(nameless)
            .map(|flow| flow.inode);
        let inodes: BTreeSet<u32> = wanted.collect();
        if inodes.is_empty() {
            return;
        }
        let found = processes_of(&inodes);
        for flow in self.flows.iter_mut().filter(nameless) {
            flow.process = found.get(&flow.inode).cloned();
        }
        self.looked_up = Some(Instant::now());
    }

    fn finish(mut self, failed: Option<io::Error>) -> Seen {
        self.looked_up = None;
        self.look_up_processes();
        let report = |flow: &Flow| flow.report(self.began_ns);
        let flows = self.flows.iter().map(report).collect();
        let unfed = self.output.lost();
        let (records, kept) = self.output.finish();
        let report = WatchReport {
            flows,
            records,
            records_lost: unfed + self.recording.map_or(0, |recording| recording.lost()),
            cpu_s: thread_cpu_s(),
            ..self.report
        };
        Seen {
            report,
            kept,
            ended_ns: monotonic_ns(),
            failed,
        }
    }
}

/// Whether to look at a flow more often than all are listed.
fn is_lively(flow: &Flow, now_ns: u64) -> bool {
    !flow.ended && now_ns.saturating_sub(flow.changed_ns) < QUIET_AFTER_NS
}
