//! One load of a page.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;

use pathcast_page::{Kind, Page, Priority, Protocol, Resource};
use pathcast_path::{Span, Time};

use super::graph::Graph;
use super::server::{Record, Server};
use super::settings::{Http, StreamOrder, Tls};
use crate::application::{Message, Side};

/// Bytes of TLS's handshake (RFC 8446, and what Chromium and OpenSSL send): the client's first flight; the server's
/// without a certificate; the end of the client's; the end of the server's in TLS 1.2.
const HELLO_BYTES: u64 = 600;
const RESUMED_BYTES: u64 = 250;
const FINISHED_BYTES: u64 = 80;
const SERVER_FINISHED_BYTES: u64 = 280;
/// The client's preface of HTTP/2 with its settings (RFC 9113, 3.4), and those of the server; of HTTP/3, its settings and
/// the beginnings of its streams for control and headers (RFC 9114, 6.2).
const PREFACE_BYTES: u64 = 120;
/// Requests of low priority that Chromium has in flight at most, over all servers of HTTP/1.1.
const LOW_AT_ONCE: usize = 10;

/// Where a message belongs in a connection of HTTP/3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// A request and its response are one exchange: the number of the resource.
    pub resource: u32,
    /// Whether it is the last message of its side.
    pub is_last: bool,
    /// What is sent first: the largest.
    pub urgency: i32,
}

/// When the browser fetched a resource, step by step, in the time of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The browser wanted it.
    pub wanted: Option<Time>,
    /// The request was written.
    pub asked: Option<Time>,
    /// The first bytes of the response came.
    pub first_byte: Option<Time>,
    /// The last ones came.
    pub finished: Option<Time>,
    /// The connection that it came over.
    pub connection: Option<usize>,
}

impl Times {
    /// When it was wanted and asked for, and when its first and its last bytes came, in milliseconds after `start`.
    pub fn steps_ms(&self, start: Time) -> [Option<f64>; 4] {
        let steps = [self.wanted, self.asked, self.first_byte, self.finished];
        steps.map(|at| at.map(|at| at.since(start).as_secs() * 1e3))
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug)]
enum Piece {
    /// Part of the handshake of TLS, from 0.
    Tls(u8),
    Request(u32),
    Record(Record),
}

/// What is due at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The browser needs a resource.
    Want(u32),
    /// The main thread has something to do: a node's task, or what has come of its resource.
    Ready(u32),
    /// The main thread has done it.
    End(u32),
    /// The network thread has read the last of a response.
    Read { connection: u32, resource: u32 },
    /// The name of an origin is known.
    Resolved(u32),
    /// A server has the response to a request.
    Answer { connection: u32, resource: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// Handshakes are in flight.
    Opens,
    Open,
}

/// A connection to an origin, with both its ends.
#[derive(Debug)]
struct Connection {
    origin: u32,
    state: State,
    /// Requests that were written and not answered whole.
    asked: u32,
    /// Whether a request was ever written.
    used: bool,
    resumes: bool,
    server: Server,
}

/// What the browser knows of an origin, or of several that one connection serves.
#[derive(Clone, Debug, Default)]
struct Origin {
    /// Its connections are from here on.
    first: u32,
    connections: u32,
    /// Requests that wait for a connection: the most urgent first, then the first.
    queue: BTreeSet<(Priority, u32)>,
    resolving: bool,
    resolved: bool,
    /// A connection has opened, so that others may resume its session.
    known: bool,
}

/// A browser that loads a page, and the servers of its origins.
#[derive(Debug)]
pub struct PageLoad {
    page: Arc<Page>,
    http: Http,
    graph: Graph,
    origin_of: Vec<u32>,
    origins: Vec<Origin>,
    connections: Vec<Connection>,
    times: Vec<Times>,
    /// Bytes of bodies that have come.
    received: Vec<u64>,
    /// Requests of low priority in flight over HTTP/1.1.
    low: usize,
    /// Nodes that wait for the main thread.
    tasks: VecDeque<u32>,
    computes: bool,
    /// Until when the network thread is busy.
    reads_until: Time,
    task_ends: Vec<Option<Time>>,
    due: BinaryHeap<Reverse<(Time, u64, Event)>>,
    noted: u64,
    pieces: Vec<Piece>,
    written: VecDeque<(usize, Message)>,
    /// Connections whose servers have had a response since they were last asked.
    answering: Vec<u32>,
    /// Connections that QUIC is to open.
    connecting: Vec<u32>,
    loaded: Option<Time>,
}

impl PageLoad {
    /// A load of `page` that begins at `start`.
    pub fn new(page: &Arc<Page>, http: Http, start: Time) -> Self {
        let (servers, origin_of) = page.servers(http.protocol);
        let mut origins = vec![Origin::default(); servers];
        for &origin in &origin_of {
            origins[origin].connections += 1;
        }
        let mut connections = Vec::new();
        for (number, origin) in (0..).zip(&mut origins) {
            let most = http.protocol.connections_per_origin() as u32;
            origin.connections = origin.connections.min(most);
            origin.first = connections.len() as u32;
            origin.resolved = http.dns == Span::ZERO;
            connections.extend((0..origin.connections).map(|_| Connection {
                origin: number,
                state: State::Closed,
                asked: 0,
                used: false,
                resumes: false,
                server: Server::default(),
            }));
        }
        let mut load = Self {
            graph: Graph::new(page),
            origin_of: origin_of.into_iter().map(|origin| origin as u32).collect(),
            origins,
            connections,
            times: vec![Times::default(); page.resources.len()],
            received: vec![0; page.resources.len()],
            low: 0,
            tasks: VecDeque::new(),
            computes: false,
            reads_until: start,
            task_ends: vec![None; page.tasks.len()],
            due: BinaryHeap::new(),
            noted: 0,
            pieces: Vec::new(),
            written: VecDeque::new(),
            answering: Vec::new(),
            connecting: Vec::new(),
            loaded: None,
            page: page.clone(),
            http,
        };
        let roots: Vec<usize> = load.graph.roots().collect();
        roots.into_iter().for_each(|node| load.begin(node, start));
        load
    }

    /// The most connections that it opens; a message names one by its number.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// The connections that were opened.
    pub fn opened(&self) -> usize {
        let states = self.connections.iter().map(|one| one.state);
        states.filter(|state| *state != State::Closed).count()
    }

    /// When [`advance`](Self::advance) is to be called next, if nothing arrives before.
    pub fn next(&self) -> Option<Time> {
        self.due.peek().map(|Reverse((at, ..))| *at)
    }

    /// Does what is due by `now`.
    pub fn advance(&mut self, now: Time) {
        while self.next().is_some_and(|at| at <= now)
            && let Some(Reverse((_, _, event))) = self.due.pop()
        {
            match event {
                Event::Want(resource) => self.want(now, resource),
                Event::Ready(node) => {
                    self.tasks.push_back(node);
                    self.compute(now);
                }
                Event::End(node) => {
                    self.computes = false;
                    if let Some(task) = (node as usize).checked_sub(self.graph.resources()) {
                        self.task_ends[task] = Some(now);
                    }
                    self.come_whole(now, node as usize);
                    self.compute(now);
                }
                Event::Read {
                    connection,
                    resource,
                } => self.read(now, connection as usize, resource),
                Event::Resolved(origin) => {
                    self.origins[origin as usize].resolved = true;
                    self.dispatch(now, origin);
                }
                Event::Answer {
                    connection,
                    resource,
                } => {
                    let what = &self.page.resources[resource as usize];
                    self.connections[connection as usize].server.answer(
                        &self.http,
                        resource,
                        what.priority,
                        what.header_bytes,
                        what.body_bytes,
                    );
                    self.answering.push(connection);
                }
            }
        }
    }

    /// A message that browser or server wrote, and its connection; the first one on a connection opens it. Call until
    /// none.
    pub fn take_written(&mut self) -> Option<(usize, Message)> {
        self.written.pop_front()
    }

    /// A connection that QUIC is to open; see [`on_connected`](Self::on_connected). Call until none.
    pub fn take_connecting(&mut self) -> Option<usize> {
        self.connecting.pop().map(|connection| connection as usize)
    }

    /// A connection of QUIC takes requests from now on.
    pub fn on_connected(&mut self, now: Time, connection: usize) {
        if self.connections[connection].state == State::Opens {
            self.on_open(now, connection);
        }
    }

    /// Where a message belongs in a connection of HTTP/3.
    pub fn exchange(&self, message: &Message) -> Option<Exchange> {
        let (resource, is_last) = match self.pieces[message.number as usize] {
            Piece::Tls(_) => return None,
            Piece::Request(resource) => (resource, true),
            Piece::Record(record) => (record.resource, record.is_last),
        };
        let priority = self.page.resources[resource as usize].priority;
        let urgency = match self.http.streams {
            StreamOrder::Priority => -(priority as i32),
            StreamOrder::RoundRobin => 0,
        };
        Some(Exchange {
            resource,
            is_last,
            urgency,
        })
    }

    /// A connection whose server has a response that it did not have before. Call until none.
    pub fn take_answering(&mut self) -> Option<usize> {
        self.answering.pop().map(|connection| connection as usize)
    }

    /// Whether the server of `connection` has a record to write.
    pub fn has_record(&self, connection: usize) -> bool {
        self.connections[connection].server.has_more()
    }

    /// The next record of the server of `connection`, which the transport must take.
    pub fn take_record(&mut self, now: Time, connection: usize) -> Option<Message> {
        let record = self.connections[connection].server.next(&self.http)?;
        Some(self.message(now, Side::Source, record.bytes, Piece::Record(record)))
    }

    /// `message` has arrived whole at the other end of `connection`.
    pub fn on_delivered(&mut self, now: Time, connection: usize, message: &Message) {
        match self.pieces[message.number as usize] {
            Piece::Tls(step) => self.shake_hands(now, connection, step),
            Piece::Request(resource) => {
                let at = now + self.page.resources[resource as usize].server_time;
                let connection = connection as u32;
                self.note(
                    at,
                    Event::Answer {
                        connection,
                        resource,
                    },
                );
                self.advance(now);
            }
            Piece::Record(record) => self.receive(now, connection, record),
        }
    }

    /// When the load event came.
    pub fn loaded(&self) -> Option<Time> {
        self.loaded
    }

    /// Whether everything has come, also what the load event does not wait for.
    pub fn is_done(&self) -> bool {
        self.graph.is_done()
    }

    /// Of each resource.
    pub fn times(&self) -> &[Times] {
        &self.times
    }

    /// When each task ended.
    pub fn task_ends(&self) -> &[Option<Time>] {
        &self.task_ends
    }

    /// The page.
    pub fn page(&self) -> &Page {
        &self.page
    }

    fn note(&mut self, at: Time, event: Event) {
        self.noted += 1;
        self.due.push(Reverse((at, self.noted, event)));
    }

    fn message(&mut self, now: Time, from: Side, bytes: u64, piece: Piece) -> Message {
        self.pieces.push(piece);
        Message {
            from,
            number: self.pieces.len() as u64 - 1,
            bytes,
            clock: now,
        }
    }

    fn write(&mut self, now: Time, connection: usize, from: Side, bytes: u64, piece: Piece) {
        let message = self.message(now, from, bytes, piece);
        self.written.push_back((connection, message));
    }

    /// A node of the graph may begin at `at`.
    fn begin(&mut self, node: usize, at: Time) {
        let event = match node.checked_sub(self.graph.resources()) {
            None => Event::Want(node as u32),
            Some(_) => Event::Ready(node as u32),
        };
        self.note(at, event);
    }

    /// A share of a node has come.
    fn come(&mut self, now: Time, node: usize, share: f64) {
        let mut begun = Vec::new();
        let shown = now.max(self.shown(node));
        self.graph
            .come(shown, node, share, |other, at| begun.push((other, at)));
        begun
            .into_iter()
            .for_each(|(other, at)| self.begin(other, at));
    }

    /// From when on what a node causes can begin: a document that nothing causes makes the browser show a new page first.
    fn shown(&self, node: usize) -> Time {
        let is_document = |one: &&Resource| one.kind == Kind::Document && one.causes.is_empty();
        let document = self.page.resources.get(node).filter(is_document);
        let first_byte = document.and_then(|_| self.times[node].first_byte);
        first_byte.map_or(Time::ZERO, |at| at + self.http.browser.navigation)
    }

    fn finish(&mut self, now: Time, node: usize) {
        if self.graph.finish(node) {
            self.loaded = Some(now);
        }
    }

    /// All of a node has come, or is done.
    fn come_whole(&mut self, now: Time, node: usize) {
        self.come(now, node, 1.0);
        self.finish(now, node);
    }

    /// The main thread begins with what comes next, if it does nothing.
    fn compute(&mut self, now: Time) {
        if self.computes {
            return;
        }
        if let Some(node) = self.tasks.pop_front() {
            self.computes = true;
            let took = match (node as usize).checked_sub(self.graph.resources()) {
                None => self.http.browser.main_thread,
                Some(task) => self.page.tasks[task].time,
            };
            self.note(now + took, Event::End(node));
        }
    }

    fn want(&mut self, now: Time, resource: u32) {
        self.times[resource as usize].wanted = Some(now);
        let number = self.origin_of[resource as usize];
        let origin = &mut self.origins[number as usize];
        let priority = self.page.resources[resource as usize].priority;
        origin.queue.insert((priority, resource));
        if !origin.resolved && !std::mem::replace(&mut origin.resolving, true) {
            self.note(now + self.http.dns, Event::Resolved(number));
        }
        self.dispatch(now, number);
    }

    /// Writes requests that wait for a connection to `origin`, and opens connections for those that find none.
    fn dispatch(&mut self, now: Time, number: u32) {
        let origin = &self.origins[number as usize];
        if !origin.resolved {
            return;
        }
        let range = origin.first as usize..(origin.first + origin.connections) as usize;
        let one_at_a_time = self.http.protocol == Protocol::Http1;
        while let Some(&(priority, resource)) = self.origins[number as usize].queue.first() {
            if one_at_a_time && priority.can_wait() && self.low >= LOW_AT_ONCE {
                return;
            }
            let free = range.clone().find(|&one| {
                let connection = &self.connections[one];
                connection.state == State::Open && !(one_at_a_time && connection.asked > 0)
            });
            let Some(free) = free else { break };
            self.origins[number as usize].queue.pop_first();
            self.ask(now, free, resource);
        }
        let waiting = self.origins[number as usize].queue.len();
        let opening = range
            .clone()
            .filter(|&one| self.connections[one].state == State::Opens)
            .count();
        let closed = range.filter(|&one| self.connections[one].state == State::Closed);
        let closed: Vec<usize> = closed.take(waiting.saturating_sub(opening)).collect();
        closed.into_iter().for_each(|one| self.open(now, one));
    }

    /// Opens a connection.
    fn open(&mut self, now: Time, number: usize) {
        let connection = &mut self.connections[number];
        connection.state = State::Opens;
        connection.resumes = self.origins[connection.origin as usize].known;
        match (self.http.protocol, self.http.tls) {
            (Protocol::Http3, _) => self.connecting.push(number as u32),
            // the first request opens it
            (_, Tls::None) => self.on_open(now, number),
            (_, Tls::V1_2 | Tls::V1_3) => {
                self.write(now, number, Side::Sink, HELLO_BYTES, Piece::Tls(0));
            }
        }
    }

    /// A part of TLS's handshake has arrived.
    fn shake_hands(&mut self, now: Time, number: usize, step: u8) {
        let certificate_bytes = match self.connections[number].resumes {
            true => 0,
            false => self.http.certificate_bytes,
        };
        // a session that is resumed needs one round trip in either version
        let v1_2 = self.http.tls == Tls::V1_2 && !self.connections[number].resumes;
        let (from, bytes) = match step {
            0 => (Side::Source, RESUMED_BYTES + certificate_bytes),
            1 => (Side::Sink, FINISHED_BYTES),
            2 if v1_2 => (Side::Source, SERVER_FINISHED_BYTES),
            _ => (Side::Sink, 0),
        };
        if bytes > 0 {
            self.write(now, number, from, bytes, Piece::Tls(step + 1));
        }
        if step == if v1_2 { 3 } else { 1 } {
            self.on_open(now, number);
        }
    }

    fn on_open(&mut self, now: Time, number: usize) {
        let connection = &mut self.connections[number];
        connection.state = State::Open;
        let origin = connection.origin;
        self.origins[origin as usize].known = true;
        self.dispatch(now, origin);
    }

    /// Writes a request.
    fn ask(&mut self, now: Time, number: usize, resource: u32) {
        let connection = &mut self.connections[number];
        connection.asked += 1;
        let is_first = !std::mem::replace(&mut connection.used, true);
        let what = &self.page.resources[resource as usize];
        let mut bytes =
            self.http.header_bytes(what.request_bytes, is_first) + self.http.overhead_bytes();
        if self.http.protocol != Protocol::Http1 && is_first {
            bytes += PREFACE_BYTES;
        }
        self.low += usize::from(what.priority.can_wait());
        let times = &mut self.times[resource as usize];
        times.asked = Some(now);
        times.connection = Some(number);
        self.write(now, number, Side::Sink, bytes, Piece::Request(resource));
    }

    /// A record has arrived at the browser.
    fn receive(&mut self, now: Time, number: usize, record: Record) {
        let resource = record.resource as usize;
        self.times[resource].first_byte.get_or_insert(now);
        self.received[resource] += record.body_bytes;
        let what = &self.page.resources[resource];
        if !record.is_last {
            let share = self.received[resource] as f64 / what.body_bytes.max(1) as f64;
            // all of it has come with the last record alone
            self.come(now, resource, share.min(1.0 - f64::EPSILON));
            return self.advance(now);
        }
        self.times[resource].finished = Some(now);
        let took = self.http.browser.network_thread;
        if took == Span::ZERO {
            self.read(now, number, record.resource);
        } else {
            self.reads_until = self.reads_until.max(now) + took;
            let read = Event::Read {
                connection: number as u32,
                resource: record.resource,
            };
            self.note(self.reads_until, read);
        }
        self.advance(now);
    }

    /// The network thread has read all of a response: the main thread has it now, and the connection takes another
    /// request.
    fn read(&mut self, now: Time, number: usize, resource: u32) {
        let could_wait = self.page.resources[resource as usize].priority.can_wait();
        self.connections[number].asked -= 1;
        self.low -= usize::from(could_wait);
        if self.http.browser.main_thread == Span::ZERO {
            self.come_whole(now, resource as usize);
        } else {
            self.note(now, Event::Ready(resource));
        }
        let (origin, was_full) = (self.connections[number].origin, self.low + 1 == LOW_AT_ONCE);
        self.dispatch(now, origin);
        if self.http.protocol == Protocol::Http1 && could_wait && was_full {
            // others may have waited for this
            (0..self.origins.len() as u32).for_each(|other| self.dispatch(now, other));
        }
    }
}
