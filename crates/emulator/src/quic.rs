//! Flows over QUIC: their ends, the sockets between them, their handshake.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use pathcast_path::Span;
use pathcast_quic::{Conversation, Endpoint, Identity, Packet, QuicError, Sender, Settings};
use pathcast_scenario::{Exchange, Message, QuicScheme, Transport, Workload};
use pathcast_trace::Record;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::addresses::Ip;
use crate::connection::{CONNECT_WITHIN, Connection, local};
use crate::error::EmulatorError;
use crate::options::Options;
use crate::waiting::timespec;

/// The most datagrams read in one turn.
const DATAGRAMS_A_TURN: usize = 64;

/// Why a flow cannot continue.
#[derive(Debug)]
pub(crate) enum Broken {
    Socket(Errno),
    Quic(QuicError),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(errno) => errno.fmt(f),
            Self::Quic(error) => error.fmt(f),
        }
    }
}

impl From<Errno> for Broken {
    fn from(errno: Errno) -> Self {
        Self::Socket(errno)
    }
}

impl From<QuicError> for Broken {
    fn from(error: QuicError) -> Self {
        Self::Quic(error)
    }
}

/// What is left of a flow over QUIC.
pub(crate) struct QuicOutcome {
    pub(crate) sender: Sender,
    /// The sender whenever it had processed acknowledgments; flows are not numbered.
    pub(crate) records: Vec<Record>,
}

/// A connection: the end that sends the flow's data, and the other.
pub(crate) struct QuicFlow {
    ends: [Endpoint; 2],
    /// Whom each end talks to.
    peers: [SocketAddr; 2],
    datagram_bytes: u16,
    /// Of a page, whose browser is end 1 and connects when it needs to.
    conversation: Option<Box<Conversation>>,
    /// Little waits unsent: what is written may be given up.
    holds_little: bool,
    /// Datagrams that the sockets had no room for.
    blocked: [Option<Vec<u8>>; 2],
    datagram: Vec<u8>,
    acknowledgments: u64,
    records: Vec<Record>,
}

impl QuicFlow {
    /// The ends of a connection of a page, which have not connected.
    fn of_page(
        settings: &Settings,
        identity: &Identity,
        connection: &Connection,
    ) -> Result<Self, EmulatorError> {
        let server = Endpoint::server(settings, identity)?;
        let ends = [server, Endpoint::client_apart(settings, identity)?];
        let mut flow = Self::over(ends, settings, connection)?;
        flow.conversation = Some(Box::default());
        Ok(flow)
    }

    /// The ends of a flow, whose sockets are connected with each other; the sender has begun to
    /// connect.
    fn new(
        settings: &Settings,
        identity: &Identity,
        connection: &Connection,
        now: Instant,
    ) -> Result<Self, EmulatorError> {
        let client = Endpoint::client_apart(settings, identity)?;
        let ends = [client, Endpoint::server(settings, identity)?];
        let mut flow = Self::over(ends, settings, connection)?;
        flow.ends[0].connect(flow.peers[0], now)?;
        Ok(flow)
    }

    fn over(
        ends: [Endpoint; 2],
        settings: &Settings,
        connection: &Connection,
    ) -> Result<Self, EmulatorError> {
        Ok(Self {
            ends,
            peers: [local(&connection.receiver)?, local(connection.sender())?],
            datagram_bytes: settings.datagram_bytes,
            conversation: None,
            holds_little: false,
            blocked: [None, None],
            datagram: Vec::new(),
            acknowledgments: 0,
            records: Vec::new(),
        })
    }

    /// The handshake is over: from now on counts what is sent. `keep` keeps what is in packets for
    /// [`QuicFlow::take_packets`].
    pub(crate) fn begin(&mut self, keep: bool) {
        for end in &mut self.ends {
            end.begin(keep);
        }
        let sender = self.ends[0].sender();
        self.acknowledgments = 0;
        self.records.clear();
        // connections of a page open later
        if self.conversation.is_none() {
            self.records
                .push(sender.record(0, 0.0, self.datagram_bytes));
        }
    }

    /// The browser of a page begins to connect.
    pub(crate) fn open(&mut self, now: Instant) -> Result<(), Broken> {
        Ok(self.ends[1].connect(self.peers[1], now)?)
    }

    /// Whether the browser of a page may ask, since this was last asked.
    pub(crate) fn take_open(&mut self) -> bool {
        let conversation = self.conversation.as_mut();
        conversation.is_some_and(|conversation| conversation.take_open(&self.ends))
    }

    /// Whether more of a page may be written into the server's end.
    pub(crate) fn has_room(&self) -> bool {
        let conversation = self.conversation.as_ref();
        conversation.is_some_and(|conversation| conversation.has_room(&self.ends))
    }

    /// Browser or server of a page write a message.
    pub(crate) fn put(&mut self, message: Message, exchange: Exchange) -> Result<(), Broken> {
        if let Some(conversation) = &mut self.conversation {
            conversation.put(&mut self.ends, message, exchange)?;
        }
        Ok(())
    }

    /// Writes what of a page waited for room; whether this is a connection of one.
    pub(crate) fn write_waiting(&mut self) -> Result<bool, Broken> {
        let Some(conversation) = &mut self.conversation else {
            return Ok(false);
        };
        conversation.write_waiting(&mut self.ends)?;
        Ok(true)
    }

    /// Appends the messages of a page that are whole at an end and were not before.
    pub(crate) fn take_delivered(&mut self, side: usize, into: &mut Vec<Message>) {
        if let Some(conversation) = &mut self.conversation {
            conversation.take_delivered(&mut self.ends, side, into);
        }
    }

    /// Takes the datagrams that wait in a socket; `at_s` is the time of the run.
    pub(crate) fn receive(
        &mut self,
        side: usize,
        socket: BorrowedFd<'_>,
        chunk: &mut [u8],
        now: Instant,
        at_s: f64,
    ) -> Result<(), Broken> {
        let end = &mut self.ends[side];
        for _ in 0..DATAGRAMS_A_TURN {
            match recv(socket, &mut *chunk, RecvFlags::empty()) {
                Ok((_, size)) => end.handle(now, self.peers[side], &chunk[..size]),
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        if side == 0 && end.acknowledgments() != self.acknowledgments {
            let sender = end.sender();
            self.acknowledgments = sender.acknowledgments;
            self.records
                .push(sender.record(0, at_s, self.datagram_bytes));
        }
        match end.failure() {
            None => Ok(()),
            Some(failure) => Err(failure.clone().into()),
        }
    }

    /// Bytes that have arrived at an end in order; of a page, those of responses.
    pub(crate) fn arrived(&self, side: usize) -> u64 {
        match &self.conversation {
            Some(conversation) if side == 1 => conversation.arrived_bytes(),
            Some(_) => 0,
            None => self.ends[side].read(),
        }
    }

    /// Writes up to `bytes`; how many were taken.
    pub(crate) fn write(&mut self, side: usize, bytes: u64) -> Result<u64, Broken> {
        Ok(match self.holds_little {
            true => self.ends[side].write_little(bytes)?,
            false => self.ends[side].write(bytes)?,
        })
    }

    /// Lets a greedy application write, as much as TCP would take of it.
    pub(crate) fn write_greedily(&mut self, side: usize) -> Result<(), Broken> {
        self.ends[side].write_greedily()?;
        Ok(())
    }

    /// Sends what may be sent now; whether there was anything.
    pub(crate) fn send(
        &mut self,
        side: usize,
        socket: BorrowedFd<'_>,
        now: Instant,
    ) -> Result<bool, Broken> {
        let mut any = false;
        loop {
            let datagram = match self.blocked[side].take() {
                Some(datagram) => datagram,
                None => {
                    let mut datagram = std::mem::take(&mut self.datagram);
                    if !self.ends[side].transmit(now, &mut datagram) {
                        self.datagram = datagram;
                        return Ok(any);
                    }
                    datagram
                }
            };
            match send(socket, &datagram, SendFlags::NOSIGNAL) {
                Ok(_) => any = true,
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => {
                    self.blocked[side] = Some(datagram);
                    return Ok(any);
                }
                Err(errno) => return Err(errno.into()),
            }
            self.datagram = datagram;
        }
    }

    /// Whether the socket must have room before more can be sent.
    pub(crate) const fn is_blocked(&self, side: usize) -> bool {
        self.blocked[side].is_some()
    }

    /// When [`QuicFlow::handle_timeout`] is to be called at the latest.
    pub(crate) fn timeout(&self, side: usize) -> Option<Instant> {
        self.ends[side].timeout()
    }

    pub(crate) fn handle_timeout(&mut self, side: usize, now: Instant) {
        self.ends[side].handle_timeout(now);
    }

    /// Appends the packets that left since this was last asked.
    pub(crate) fn take_packets(&mut self, side: usize, into: &mut Vec<Packet>) {
        self.ends[side].take_packets(into);
    }

    pub(crate) fn finish(self) -> QuicOutcome {
        QuicOutcome {
            sender: self.ends[0].sender(),
            records: self.records,
        }
    }
}

/// Connects the flows over QUIC; the entries of other flows are none. Returns none if `stopped` becomes
/// true meanwhile.
pub(crate) fn connect(
    options: &Options,
    connections: &[Connection],
    stopped: &dyn Fn() -> bool,
) -> Result<Option<Vec<Option<Box<QuicFlow>>>>, EmulatorError> {
    let flows = options.flows();
    let begin = Instant::now();
    let (mut common, mut of_pages) = (None, None);
    let mut ends = Vec::with_capacity(flows.len());
    for (flow, connection) in flows.iter().zip(connections) {
        let Transport::Quic {
            scheme,
            initial_window_packets,
            mtu_discovery,
            ..
        } = flow.spec.transport
        else {
            ends.push(None);
            continue;
        };
        let settings = settings(options, scheme)
            .with_initial_window(initial_window_packets)
            .with_mtu_discovery(mtu_discovery);
        ends.push(Some(Box::new(
            if let Workload::WebPage(page) = &flow.spec.workload {
                let settings = settings.for_page();
                // the loads of a group have one
                let identity = match &of_pages {
                    Some((group, identity)) if *group == flow.group => identity,
                    _ => {
                        let identity = Identity::of_page(page, flow.spec.count, &settings)?;
                        &of_pages.insert((flow.group, identity)).1
                    }
                };
                QuicFlow::of_page(&settings, identity, connection)?
            } else {
                let identity = match &common {
                    Some(identity) => identity,
                    None => &*common.insert(Identity::new()?),
                };
                let mut ends = QuicFlow::new(&settings, identity, connection, begin)?;
                ends.holds_little = flow.spec.workload.looks();
                ends
            },
        )));
    }
    let mut chunk = vec![0; usize::from(u16::MAX)];
    loop {
        let now = Instant::now();
        let (mut waiting, mut next, mut sockets) = (0, None, Vec::new());
        for (flow, connection) in ends.iter_mut().zip(connections) {
            let Some(flow) = flow.as_mut().filter(|flow| flow.conversation.is_none()) else {
                continue;
            };
            let both = [connection.sender(), &connection.receiver];
            for (side, socket) in both.into_iter().enumerate() {
                let at = drive(flow, side, socket, &mut chunk, now)?;
                next = next.into_iter().chain(at).min();
                sockets.push(socket);
            }
            waiting += usize::from(!flow.ends.iter().all(Endpoint::is_connected));
        }
        if waiting == 0 {
            return Ok(Some(ends));
        }
        if stopped() {
            return Ok(None);
        }
        if begin.elapsed() > CONNECT_WITHIN {
            let flows = ends.iter().flatten().count();
            return Err(EmulatorError::NoHandshake {
                connected: flows - waiting,
                flows,
                waited_s: begin.elapsed().as_secs_f64(),
            });
        }
        wait_for(&sockets, next)?;
    }
}

/// Does the handshake's work for one end; returns when to call again.
fn drive(
    flow: &mut QuicFlow,
    side: usize,
    socket: &OwnedFd,
    chunk: &mut [u8],
    now: Instant,
) -> Result<Option<Instant>, EmulatorError> {
    let mut work = || -> Result<(), Broken> {
        flow.receive(side, socket.as_fd(), chunk, now, 0.0)?;
        if flow.timeout(side).is_some_and(|at| at <= now) {
            flow.handle_timeout(side, now);
        }
        flow.send(side, socket.as_fd(), now).map(drop)
    };
    match work() {
        Ok(()) => Ok(flow.timeout(side)),
        Err(Broken::Socket(errno)) => {
            Err(EmulatorError::from_io("connecting over the path", errno))
        }
        Err(Broken::Quic(error)) => Err(error.into()),
    }
}

/// Waits until one of the sockets has something, or until `at`, but not so long that a stop is missed.
fn wait_for(sockets: &[&OwnedFd], at: Option<Instant>) -> Result<(), EmulatorError> {
    const LONGEST: Duration = Duration::from_millis(20);
    let rest = at.map(|at| at.saturating_duration_since(Instant::now()));
    let rest = rest.map_or(LONGEST, |rest| rest.min(LONGEST));
    let mut watched: Vec<_> = sockets
        .iter()
        .map(|socket| PollFd::new(socket, PollFlags::IN))
        .collect();
    let wait = timespec(Span::from_nanos(rest.as_nanos() as u64));
    match poll(&mut watched, Some(&wait)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(EmulatorError::from_io("connecting over the path", errno)),
    }
}

fn settings(options: &Options, scheme: QuicScheme) -> Settings {
    let ip_bytes = match options.ip {
        Ip::V4 => 20,
        Ip::V6 => 40,
    };
    Settings::new(scheme, ip_bytes, options.scenario.buffer_bytes())
}
