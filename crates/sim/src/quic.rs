//! A flow over QUIC: both ends, what is written into them, and their datagrams in transit.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use pathcast_path::{Span, Time};
use pathcast_quic::{Conversation, Identity, Packet, Pair, QuicError, Sender, Settings};
use pathcast_scenario::{Exchange, FlowSpec, Heading, Message, Pipe, QuicScheme, Scenario, Side};
use pathcast_trace::{Direction, MessageRecord, Read, Record, Segment, Splitter};

use crate::wire::{IP_BYTES, UDP_IP_BYTES};

/// The end that sends the flow's data, and the other.
pub const SOURCE: usize = Side::Source as usize;
pub const SINK: usize = Side::Sink as usize;

/// What is due now has its next turn after all else, as in the emulator.
const SOON: Span = Span::from_nanos(1000);

/// A datagram in transit.
struct Parcel {
    datagram: Vec<u8>,
    sent: Time,
    /// Bytes of the stream in it; only where messages are followed.
    pieces: Vec<Range<u64>>,
}

/// Datagrams in transit in one direction, by their numbers.
#[derive(Default)]
struct Under {
    first: u64,
    parcels: VecDeque<Option<Parcel>>,
}

impl Under {
    fn put(&mut self, parcel: Parcel) -> u64 {
        self.parcels.push_back(Some(parcel));
        self.first + self.parcels.len() as u64 - 1
    }

    fn take(&mut self, number: u64) -> Option<Parcel> {
        let at = number.checked_sub(self.first)?;
        let parcel = self.parcels.get_mut(at as usize)?.take();
        while let Some(None) = self.parcels.front() {
            self.parcels.pop_front();
            self.first += 1;
        }
        parcel
    }
}

/// Messages of one flow that are passing through stacks and network.
struct Followed {
    flow: u32,
    splitter: Splitter,
    packets: Vec<Packet>,
}

/// See the module.
pub struct QuicFlow {
    pair: Pair,
    datagram_bytes: u16,
    /// With the data, and against it: requests.
    pub pipes: [Pipe; 2],
    under: [Under; 2],
    /// Buffers of datagrams that have arrived.
    spare: Vec<Vec<u8>>,
    /// Of the last record.
    acknowledgments: u64,
    followed: Option<Box<Followed>>,
    /// Of a page.
    conversation: Option<Box<Conversation>>,
    /// Little waits unsent: what is written may be given up.
    holds_little: bool,
    /// It opens over the links, and has not begun to.
    is_closed: bool,
    failure: Option<QuicError>,
}

/// What both ends of a connection are like.
pub fn settings(
    scenario: &Scenario,
    scheme: QuicScheme,
    initial_window_packets: Option<u32>,
    mtu_discovery: bool,
) -> Settings {
    Settings::new(scheme, IP_BYTES as u16, scenario.buffer_bytes())
        .with_initial_window(initial_window_packets)
        .with_mtu_discovery(mtu_discovery)
}

impl QuicFlow {
    /// The ends of a flow of `scenario`, which have connected over its empty links before time 0, or will over its
    /// links when it begins.
    pub fn new(
        scenario: &Scenario,
        spec: &FlowSpec,
        settings: &Settings,
        identity: &Identity,
        seed: u64,
    ) -> Result<Self, QuicError> {
        let is_closed = spec.transport.has_handshake();
        let pair = if is_closed {
            // who writes first opens the connection
            let client = if spec.workload.asks() { SINK } else { SOURCE };
            Pair::apart(settings, identity, seed, client)?
        } else {
            let travel = |end, bytes| empty_links(scenario, spec, end, bytes);
            Pair::connect(settings, identity, seed, travel)?
        };
        Ok(Self {
            holds_little: spec.workload.looks(),
            is_closed,
            ..Self::over(pair, settings)
        })
    }

    /// The ends of a connection of a page, which the browser opens when it needs it.
    pub fn of_page(settings: &Settings, identity: &Identity, seed: u64) -> Result<Self, QuicError> {
        let pair = Pair::apart(settings, identity, seed, SINK)?;
        Ok(Self {
            conversation: Some(Box::default()),
            ..Self::over(pair, settings)
        })
    }

    fn over(pair: Pair, settings: &Settings) -> Self {
        Self {
            pair,
            datagram_bytes: settings.datagram_bytes,
            pipes: Default::default(),
            under: Default::default(),
            spare: Vec::new(),
            acknowledgments: 0,
            followed: None,
            conversation: None,
            holds_little: false,
            is_closed: false,
            failure: None,
        }
    }

    /// Time 0: from now on counts what is sent. `follow` follows the messages of flow number `flow`.
    pub fn begin(&mut self, flow: u32, follow: bool) {
        self.pair.begin(follow);
        self.followed = follow.then(|| {
            Box::new(Followed {
                flow,
                splitter: Splitter::new([flow], 0),
                packets: Vec::new(),
            })
        });
    }

    /// What the sender of the data knows.
    pub fn sender(&self) -> Sender {
        self.pair.end(SOURCE).sender()
    }

    /// A row of the trace.
    pub fn record(&self, flow: u32, now: Time) -> Record {
        self.sender()
            .record(flow, now.as_secs(), self.datagram_bytes)
    }

    /// Whether acknowledgments were processed since this was last asked.
    pub fn has_acknowledged(&mut self) -> bool {
        let acknowledgments = self.pair.end(SOURCE).acknowledgments();
        acknowledgments != std::mem::replace(&mut self.acknowledgments, acknowledgments)
    }

    /// Why the connection cannot continue, if so.
    pub fn failure(&self) -> Option<String> {
        let failures = [SOURCE, SINK].map(|end| self.pair.end(end).failure());
        let failure = failures.into_iter().flatten().next();
        let unreadable = self.sender().unreadable_packets;
        match failure.or(self.failure.as_ref()) {
            Some(failure) => Some(failure.to_string()),
            None if unreadable > 0 => Some(format!(
                "{unreadable} packets held frames that are not known"
            )),
            None => None,
        }
    }

    /// When an end has something to do next.
    pub fn timer(&self, end: usize, now: Time) -> Option<Time> {
        let at = self.pair.timeout(end)?;
        let at = Time::from_nanos(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        Some(at.max(now + SOON))
    }

    /// An end does what is due by `now`.
    pub fn on_timer(&mut self, end: usize, now: Time) {
        self.pair.handle_timeout(end, since_zero(now));
    }

    /// Writes what the application has and the connection takes: messages, or without an end.
    pub fn write(&mut self, end: usize, greedy: bool) {
        if self.conversation.is_none() && !self.pair.end(end).can_write() {
            return;
        }
        let (pair, pipe) = (&mut self.pair, &mut self.pipes[end]);
        let written = match (&mut self.conversation, greedy) {
            (Some(conversation), _) => conversation.write_waiting(pair.ends_mut()),
            (None, true) => pair.write_greedily(end).map(drop),
            (None, false) if self.holds_little => {
                pipe.write(u64::MAX, |bytes, _| pair.write_little(end, bytes))
            }
            (None, false) => pipe.write(u64::MAX, |bytes, _| pair.write(end, bytes)),
        };
        self.note(written);
    }

    fn note(&mut self, done: Result<(), QuicError>) {
        if let Err(error) = done {
            self.failure.get_or_insert(error);
        }
    }

    /// The browser of a page begins to connect.
    pub fn open(&mut self, now: Time) {
        let opened = self.pair.open(since_zero(now));
        self.note(opened);
    }

    /// Whether the connection is open when the run begins.
    pub const fn begins_open(&self) -> bool {
        !self.is_closed && self.conversation.is_none()
    }

    /// A flow begins: it connects unless it has.
    pub fn start(&mut self, now: Time) {
        if std::mem::take(&mut self.is_closed) {
            self.open(now);
        }
    }

    /// Whether the browser of a page may ask, since this was last asked.
    pub fn take_open(&mut self) -> bool {
        let conversation = self.conversation.as_mut();
        conversation.is_some_and(|conversation| conversation.take_open(self.pair.ends()))
    }

    /// Browser or server of a page write a message.
    pub fn put(&mut self, message: Message, exchange: Exchange) {
        if let Some(conversation) = &mut self.conversation {
            let put = conversation.put(self.pair.ends_mut(), message, exchange);
            self.note(put);
        }
    }

    /// Appends the messages of a page that are whole at `end` and were not before.
    pub fn take_delivered(&mut self, end: usize, into: &mut Vec<Message>) {
        if let Some(conversation) = &mut self.conversation {
            conversation.take_delivered(self.pair.ends_mut(), end, into);
        }
    }

    /// Whether the server of a page may write more.
    pub fn has_room(&self) -> bool {
        let conversation = self.conversation.as_ref();
        conversation.is_some_and(|conversation| conversation.has_room(self.pair.ends()))
    }

    /// The number and the size as an IP packet of the next datagram that an end sends now, if it sends one.
    pub fn transmit(&mut self, end: usize, now: Time) -> Option<(u64, u32)> {
        let mut datagram = self.spare.pop().unwrap_or_default();
        if !self.pair.transmit(end, since_zero(now), &mut datagram) {
            self.spare.push(datagram);
            return None;
        }
        let mut pieces = Vec::new();
        if let Some(followed) = &mut self.followed {
            self.pair.take_packets(end, &mut followed.packets);
            let held = followed.packets.drain(..).map(|packet| packet.bytes);
            pieces.extend(held.filter(|bytes| !bytes.is_empty()));
        }
        let size_bytes = UDP_IP_BYTES + datagram.len() as u32;
        let parcel = Parcel {
            datagram,
            sent: now,
            pieces,
        };
        self.follow(end, &parcel, None);
        Some((self.under[end].put(parcel), size_bytes))
    }

    /// Datagram `number` of the other end arrives at `end`.
    pub fn receive(&mut self, end: usize, number: u64, now: Time) {
        let Some(parcel) = self.under[1 - end].take(number) else {
            return;
        };
        self.follow(1 - end, &parcel, Some(now));
        self.pair.handle(end, since_zero(now), &parcel.datagram);
        self.spare.push(parcel.datagram);
        self.pipes[1 - end].arrived = self.pair.end(end).read();
    }

    /// Datagram `number` of `end` was dropped in transit.
    pub fn lose(&mut self, end: usize, number: u64) {
        if let Some(parcel) = self.under[end].take(number) {
            self.spare.push(parcel.datagram);
        }
    }

    /// Notes that a datagram of `from` enters the network, or that it left it.
    fn follow(&mut self, from: usize, parcel: &Parcel, left: Option<Time>) {
        let Some(followed) = &mut self.followed else {
            return;
        };
        for bytes in &parcel.pieces {
            let segment = Segment {
                first: bytes.start,
                end: bytes.end,
                entered_ns: parcel.sent.as_nanos(),
                left_ns: left.map(Time::as_nanos),
            };
            followed
                .splitter
                .packet(followed.flow, direction(from), segment);
        }
    }

    /// Reports a message that was read.
    pub fn tell(&mut self, read: Read, take: impl FnMut(MessageRecord)) {
        if let Some(followed) = &mut self.followed {
            followed.splitter.read(read);
            followed.splitter.tell(0, take);
        }
    }

    /// Bytes of the data that have arrived.
    pub fn arrived_bytes(&self) -> u64 {
        match &self.conversation {
            Some(conversation) => conversation.arrived_bytes(),
            None => self.pipes[SOURCE].arrived,
        }
    }

    /// Whether all data that was written has arrived.
    pub fn is_delivered(&self) -> bool {
        self.pipes[SOURCE].arrived == self.pair.end(SOURCE).written()
    }
}

/// Which way what leaves an end goes.
pub const fn direction(from: usize) -> Direction {
    match from {
        SOURCE => Direction::Data,
        _ => Direction::Back,
    }
}

const fn since_zero(now: Time) -> Duration {
    Duration::from_nanos(now.as_nanos())
}

/// How long a datagram of `bytes` bytes from `end` takes over links that nothing else is on.
fn empty_links(scenario: &Scenario, spec: &FlowSpec, end: usize, bytes: usize) -> Duration {
    let out = (spec.heading == Heading::Forward) == (end == SOURCE);
    let bits = f64::from(8 * (UDP_IP_BYTES + bytes as u32));
    let links = spec.route.iter().map(|&link| {
        let path = &scenario.links[link].path;
        let direction = match out {
            true => &path.forward,
            false => &path.reverse,
        };
        let rate = direction.mean_rate();
        let sending = rate.map_or(Span::ZERO, |rate| Span::from_secs(bits / rate.as_bps()));
        direction.delay.base() + sending
    });
    let way = links.fold(spec.delay, |way, link| way + link);
    Duration::from_nanos(way.as_nanos())
}
