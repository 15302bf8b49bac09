//! One end of a connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use noq_proto::congestion::{Bbr3Config, ControllerFactory, CubicConfig, NewRenoConfig};
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, EndpointConfig, Event,
    FourTuple, MtuDiscoveryConfig, PathId, ServerConfig, StreamEvent, StreamId, TransportConfig,
    VarInt, WriteError,
};
use pathcast_scenario::{QuicScheme, UNSENT_BYTES};

use crate::conversation::LEAST_UNSENT_BYTES;
use crate::exchanges::Exchanges;
use crate::identity::SERVER_NAME;
use crate::ledger::{Packet, Sender, SharedLedger, Watched};
use crate::ranges::Frontier;
use crate::seal::{Noting, Seal};
use crate::{Controller, Identity, QuicError};

/// Content of streams, which is never read.
static CONTENT: [u8; 64 << 10] = [0; 64 << 10];

/// The most answers that wait to datagrams of no connection.
const ANSWERS: usize = 16;

/// The largest IP packet, Ethernet's.
const MTU_BYTES: u16 = 1500;
/// A UDP header.
const UDP_BYTES: u16 = 8;
/// The least that each path carries (RFC 9000, section 14), with which discovery begins.
const LEAST_DATAGRAM_BYTES: u16 = 1200;
/// The most that discovery looks for: what is left of Ethernet's packets over IPv6.
const DISCOVERED_BYTES: u16 = MTU_BYTES - 40 - UDP_BYTES;

/// What both ends of a connection are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What controls congestion.
    pub controller: Controller,
    /// The largest UDP payload, which the path must carry. At least 1200.
    pub datagram_bytes: u16,
    /// The most bytes that may be in flight, or wait to be read.
    pub window_bytes: u64,
    /// The most exchanges that may be open at once.
    pub exchanges: u32,
    /// Whether datagrams have 1200 bytes at first, and grow as probes of larger ones arrive (RFC 9000, section 14.3).
    pub mtu_discovery: bool,
    /// First window in datagrams; none: that of RFC 9002, section 7.2.
    pub initial_window_packets: Option<u32>,
}

/// How an endpoint draws random numbers and protects packets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// The system's randomness, packets sealed: for datagrams that leave the process.
    Networked,
    /// Random numbers of a seed, packets open: for two ends in one process.
    InMemory { seed: [u8; 32] },
}

impl Kind {
    const fn seal(self) -> Seal {
        match self {
            Self::Networked => Seal::Closed,
            Self::InMemory { .. } => Seal::Open,
        }
    }
}

impl Settings {
    /// Those of `scheme` where packets have at most 1500 bytes, of which the IP header takes `ip_bytes`.
    pub const fn new(scheme: QuicScheme, ip_bytes: u16, window_bytes: u64) -> Self {
        Self {
            controller: match scheme {
                QuicScheme::Cubic => Controller::Cubic,
                QuicScheme::Reno => Controller::NewReno,
                QuicScheme::Bbr3 => Controller::Bbr3,
            },
            datagram_bytes: MTU_BYTES - UDP_BYTES - ip_bytes,
            window_bytes,
            exchanges: 0,
            mtu_discovery: false,
            initial_window_packets: None,
        }
    }

    /// The same, whose datagrams are small at first and grow to what discovery looks for at most, if `discovers`.
    #[must_use]
    pub const fn with_mtu_discovery(self, discovers: bool) -> Self {
        let smaller = discovers && self.datagram_bytes > DISCOVERED_BYTES;
        Self {
            datagram_bytes: if smaller {
                DISCOVERED_BYTES
            } else {
                self.datagram_bytes
            },
            mtu_discovery: discovers,
            ..self
        }
    }

    /// The same with a first window of so many datagrams.
    #[must_use]
    pub const fn with_initial_window(self, packets: Option<u32>) -> Self {
        Self {
            initial_window_packets: packets,
            ..self
        }
    }

    /// The same, for a page by HTTP/3: as most servers, they allow a hundred exchanges at once.
    #[must_use]
    pub const fn for_page(self) -> Self {
        self.with_exchanges(100)
    }

    /// The same, for a client that opens up to so many exchanges at once.
    #[must_use]
    pub const fn with_exchanges(self, exchanges: u32) -> Self {
        Self { exchanges, ..self }
    }

    fn transport(&self, ledger: &SharedLedger) -> Result<TransportConfig, QuicError> {
        if self.datagram_bytes < LEAST_DATAGRAM_BYTES {
            return Err(QuicError::Setup(format!(
                "got datagrams of {} bytes, expected at least {LEAST_DATAGRAM_BYTES}",
                self.datagram_bytes
            )));
        }
        let first_bytes = match self.mtu_discovery {
            true => LEAST_DATAGRAM_BYTES,
            false => self.datagram_bytes,
        };
        let datagram = u64::from(first_bytes);
        let discovery = self.mtu_discovery.then(|| {
            let mut discovery = MtuDiscoveryConfig::default();
            discovery.upper_bound(self.datagram_bytes);
            discovery
        });
        let window = VarInt::from_u64(self.window_bytes)
            .map_err(|error| QuicError::Setup(error.to_string()))?;
        let initial_window = match self.initial_window_packets {
            Some(packets) => u64::from(packets) * datagram,
            None => 14_720.clamp(2 * datagram, 10 * datagram),
        };
        let factory: Arc<dyn ControllerFactory + Send + Sync> = match self.controller {
            Controller::Cubic => {
                let mut cubic = CubicConfig::default();
                cubic.initial_window(initial_window);
                Arc::new(cubic)
            }
            Controller::NewReno => {
                let mut reno = NewRenoConfig::default();
                reno.initial_window(initial_window);
                Arc::new(reno)
            }
            Controller::Bbr3 => {
                let mut bbr = Bbr3Config::default();
                bbr.initial_window(initial_window);
                Arc::new(bbr)
            }
        };
        let watched: Watched<dyn ControllerFactory + Send + Sync> = Watched {
            ledger: ledger.clone(),
            inner: factory,
        };
        let mut transport = TransportConfig::default();
        transport
            .congestion_controller_factory(Arc::new(watched))
            .initial_mtu(first_bytes)
            .min_mtu(first_bytes)
            .mtu_discovery_config(discovery)
            .enable_segmentation_offload(false)
            .max_idle_timeout(None)
            .max_concurrent_bidi_streams(VarInt::from_u32(self.exchanges))
            .max_concurrent_uni_streams(VarInt::from_u32(1))
            .datagram_receive_buffer_size(None)
            .stream_receive_window(window)
            .receive_window(window)
            .send_window(self.window_bytes);
        Ok(transport)
    }

    fn endpoint(&self, kind: Kind) -> Result<Arc<EndpointConfig>, QuicError> {
        let mut config = EndpointConfig::default();
        if let Kind::InMemory { seed } = kind {
            config.rng_seed(Some(seed));
        }
        config
            .max_udp_payload_size(self.datagram_bytes)
            .map_err(|error| QuicError::Setup(error.to_string()))?;
        Ok(Arc::new(config))
    }
}

/// One end of a connection with one stream each way, and exchanges.
///
/// After each call that may change something, take datagrams by [`Endpoint::transmit`] until there are
/// none, and then read [`Endpoint::timeout`].
pub struct Endpoint {
    endpoint: noq_proto::Endpoint,
    pub(crate) connection: Option<(ConnectionHandle, Connection)>,
    /// Of a client that has not connected yet.
    client: Option<ClientConfig>,
    ledger: SharedLedger,
    open: bool,
    confirmed: bool,
    failed: Option<QuicError>,
    answers: VecDeque<Vec<u8>>,
    outgoing: Option<StreamId>,
    incoming: Option<StreamId>,
    written: u64,
    read: Frontier,
    pub(crate) exchanges: Exchanges,
}

impl Endpoint {
    /// The end that connects to `remote`, which must show the certificate of `identity`.
    ///
    /// # Errors
    /// The settings are not as they must be.
    pub fn client(
        settings: &Settings,
        identity: &Identity,
        remote: SocketAddr,
        now: Instant,
    ) -> Result<Self, QuicError> {
        let mut end = Self::client_apart(settings, identity)?;
        end.connect(remote, now)?;
        Ok(end)
    }

    /// A client that [connects](Self::connect) later.
    ///
    /// # Errors
    /// The settings are not as they must be.
    pub fn client_apart(settings: &Settings, identity: &Identity) -> Result<Self, QuicError> {
        Self::client_of(Kind::Networked, settings, identity)
    }

    pub(crate) fn client_of(
        kind: Kind,
        settings: &Settings,
        identity: &Identity,
    ) -> Result<Self, QuicError> {
        let ledger = SharedLedger::default();
        let crypto = Noting {
            ledger: ledger.clone(),
            seal: kind.seal(),
            inner: Arc::clone(&identity.client),
        };
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(settings.transport(&ledger)?));
        let endpoint = noq_proto::Endpoint::new(settings.endpoint(kind)?, None, true);
        let mut end = Self::new(endpoint, ledger);
        end.client = Some(config);
        Ok(end)
    }

    /// A client that has not connected yet begins to.
    ///
    /// # Errors
    /// TLS refuses the server's name.
    pub fn connect(&mut self, remote: SocketAddr, now: Instant) -> Result<(), QuicError> {
        let Some(config) = self.client.take() else {
            return Ok(());
        };
        let connection = self.endpoint.connect(now, config, remote, SERVER_NAME);
        let connection = connection.map_err(|error| QuicError::Setup(error.to_string()))?;
        // a server that is known takes requests at once
        self.open = connection.1.has_0rtt();
        self.connection = Some(connection);
        Ok(())
    }

    /// The end that a client connects to.
    ///
    /// # Errors
    /// The settings are not as they must be.
    pub fn server(settings: &Settings, identity: &Identity) -> Result<Self, QuicError> {
        Self::server_of(Kind::Networked, settings, identity)
    }

    pub(crate) fn server_of(
        kind: Kind,
        settings: &Settings,
        identity: &Identity,
    ) -> Result<Self, QuicError> {
        let ledger = SharedLedger::default();
        let crypto = Noting {
            ledger: ledger.clone(),
            seal: kind.seal(),
            inner: Arc::clone(&identity.server),
        };
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config
            .transport_config(Arc::new(settings.transport(&ledger)?))
            .migration(false)
            .max_incoming(1);
        let config = Some(Arc::new(config));
        let endpoint = noq_proto::Endpoint::new(settings.endpoint(kind)?, config, true);
        Ok(Self::new(endpoint, ledger))
    }

    fn new(endpoint: noq_proto::Endpoint, ledger: SharedLedger) -> Self {
        Self {
            endpoint,
            connection: None,
            client: None,
            ledger,
            open: false,
            confirmed: false,
            failed: None,
            answers: VecDeque::new(),
            outgoing: None,
            incoming: None,
            written: 0,
            read: Frontier::default(),
            exchanges: Exchanges::default(),
        }
    }

    /// Takes a datagram that came from `remote`.
    pub fn handle(&mut self, now: Instant, remote: SocketAddr, datagram: &[u8]) {
        let mut answer = Vec::new();
        let network_path = FourTuple::from_remote(remote);
        let datagram = BytesMut::from(datagram);
        let event = self
            .endpoint
            .handle(now, network_path, None, datagram, &mut answer);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some((ours, connection)) = &mut self.connection
                    && *ours == handle
                {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                if self.connection.is_some() {
                    self.endpoint.ignore(incoming);
                } else {
                    match self.endpoint.accept(incoming, now, &mut answer, None) {
                        Ok(connection) => self.connection = Some(connection),
                        Err(error) => {
                            if let Some(transmit) = error.response {
                                self.answer(answer, transmit.size);
                            }
                        }
                    }
                }
            }
            Some(DatagramEvent::Response(transmit)) => self.answer(answer, transmit.size),
            None => {}
        }
        self.settle();
        self.drain();
    }

    fn answer(&mut self, mut answer: Vec<u8>, size: usize) {
        answer.truncate(size);
        if self.answers.len() < ANSWERS {
            self.answers.push_back(answer);
        }
    }

    /// Does what is due at `now`; nothing if that is nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some((_, connection)) = &mut self.connection {
            connection.handle_timeout(now);
        }
        self.settle();
    }

    /// When [`Endpoint::handle_timeout`] is to be called at the latest.
    pub fn timeout(&self) -> Option<Instant> {
        let (_, connection) = self.connection.as_ref()?;
        connection.poll_timeout()
    }

    /// Replaces what is in `datagram` by the next datagram that is to be sent now; whether there was
    /// any.
    pub fn transmit(&mut self, now: Instant, datagram: &mut Vec<u8>) -> bool {
        datagram.clear();
        if let Some(mut answer) = self.answers.pop_front() {
            datagram.append(&mut answer);
            return true;
        }
        let Some((_, connection)) = &mut self.connection else {
            return false;
        };
        match connection.poll_transmit(now, NonZeroUsize::MIN, datagram) {
            Some(transmit) => {
                datagram.truncate(transmit.size);
                self.settle();
                true
            }
            None => false,
        }
    }

    /// Passes on what connection and endpoint have to say to each other and to us.
    fn settle(&mut self) {
        let Some((handle, connection)) = &mut self.connection else {
            return;
        };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected => {
                    self.open = true;
                    self.outgoing = connection.streams().open(Dir::Uni);
                }
                Event::HandshakeConfirmed => self.confirmed = true,
                Event::ConnectionLost { reason } => {
                    let reason = reason.to_string();
                    self.failed.get_or_insert(QuicError::Lost(reason));
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    self.incoming = self.incoming.or(connection.streams().accept(Dir::Uni));
                }
                Event::Stream(event) => self.exchanges.note(connection, &event),
                _ => {}
            }
        }
    }

    /// Whether the handshake is over and both ends know: bytes can be written.
    pub const fn is_connected(&self) -> bool {
        self.confirmed && self.outgoing.is_some() && self.failed.is_none()
    }

    /// Whether exchanges may begin: the handshake is over for this end, or it knows the server from before.
    pub const fn is_open(&self) -> bool {
        self.open && self.failed.is_none()
    }

    /// Why the connection has ended, if so.
    pub const fn failure(&self) -> Option<&QuicError> {
        self.failed.as_ref()
    }

    /// From now on counts what is sent; `keep` keeps packets for [`Endpoint::take_packets`].
    pub fn begin(&mut self, keep: bool) {
        let mut ledger = self.ledger.lock();
        ledger.begin();
        if keep {
            ledger.keep();
        }
    }

    /// Whether bytes can be written: the handshake is over for this end.
    pub const fn can_write(&self) -> bool {
        self.outgoing.is_some() && self.failed.is_none()
    }

    /// Writes up to `bytes` bytes; returns how many were accepted. While the window is full, none are.
    ///
    /// # Errors
    /// There is no connection, or it has ended.
    pub fn write(&mut self, bytes: u64) -> Result<u64, QuicError> {
        match self.outgoing {
            Some(stream) => self.write_stream(stream, bytes),
            None => Err(self.unconnected()),
        }
    }

    pub(crate) fn unconnected(&self) -> QuicError {
        let failed = self.failed.clone();
        failed.unwrap_or_else(|| QuicError::Lost("not connected yet".into()))
    }

    pub(crate) fn write_stream(&mut self, stream: StreamId, bytes: u64) -> Result<u64, QuicError> {
        let (Some((_, connection)), None) = (&mut self.connection, &self.failed) else {
            return Err(self.unconnected());
        };
        let mut taken = 0;
        while taken < bytes {
            let size = (bytes - taken).min(CONTENT.len() as u64);
            let chunk = Bytes::from_static(&CONTENT[..size as usize]);
            match connection
                .send_stream(stream)
                .write_chunks(&mut &mut [chunk][..])
            {
                Ok(written) => taken += written as u64,
                Err(WriteError::Blocked) => break,
                Err(error) => return Err(QuicError::Lost(error.to_string())),
            }
        }
        self.written += taken;
        Ok(taken)
    }

    /// Writes what a greedy application may: up to as much unsent as TCP would take.
    ///
    /// # Errors
    /// As [`Endpoint::write`].
    pub fn write_greedily(&mut self) -> Result<u64, QuicError> {
        let room = u64::from(UNSENT_BYTES).saturating_sub(self.unsent_bytes());
        self.write(room)
    }

    /// Writes of `bytes` only what leaves little unsent, for an answer that may be given up: a server of HTTP/3
    /// resets its stream then, and sends nothing more of it. Call it again when something was sent.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_little(&mut self, bytes: u64) -> Result<u64, QuicError> {
        let room = LEAST_UNSENT_BYTES.saturating_sub(self.unsent_bytes());
        self.write(bytes.min(room))
    }

    /// Bytes that were written.
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Bytes written that no packet has held yet.
    pub fn unsent_bytes(&self) -> u64 {
        let sent = self.ledger.lock().sender().sent_bytes;
        self.written.saturating_sub(sent)
    }

    /// How many bytes of the stream have arrived, from its beginning on and without gaps. Their content
    /// is dropped as they come.
    pub const fn read(&self) -> u64 {
        self.read.whole()
    }

    /// Takes what has arrived out of noq's buffer, in whatever order.
    ///
    /// In order would be simpler, but noq ends connections whose buffer has more than 1024 gaps ("too many
    /// gaps in stream buffer"), which slow start can cause. And after each datagram, because noq 1.4
    /// compacts a buffer with many small pieces, and then takes the number of bytes that were read out of
    /// order for an offset, and throws away all that is before it.
    fn drain(&mut self) {
        let Some((_, connection)) = &mut self.connection else {
            return;
        };
        self.exchanges.drain(connection);
        if let Some(stream) = self.incoming {
            take_all(connection, stream, &mut self.read);
        }
    }

    /// What this end knows as a sender.
    pub fn sender(&self) -> Sender {
        let mut sender = self.ledger.lock().sender();
        if let Some((_, connection)) = &self.connection {
            sender.rtt = connection.rtt(PathId::ZERO).unwrap_or_default();
            if let Some(controller) = connection.congestion_state(PathId::ZERO) {
                let metrics = controller.metrics();
                sender.window_bytes = controller.window();
                sender.slow_start_threshold_bytes =
                    metrics.ssthresh.filter(|bytes| *bytes < u64::MAX);
                sender.pacing_bytes_per_s = metrics.pacing_rate;
            }
        }
        sender
    }

    /// How many acknowledgments have arrived. A change means that [`Endpoint::sender`] has changed.
    pub fn acknowledgments(&self) -> u64 {
        self.ledger.lock().sender().acknowledgments
    }

    /// Appends the packets that were sent since this was last asked, if they are kept.
    pub fn take_packets(&mut self, into: &mut Vec<Packet>) {
        self.ledger.lock().take_packets(into);
    }
}

/// Takes all that has arrived of a stream out of noq's buffer, and notes in `read` which bytes that were. A stream that
/// has ended has nothing more.
pub(crate) fn take_all(connection: &mut Connection, stream: StreamId, read: &mut Frontier) {
    if let Ok(mut chunks) = connection.recv_stream(stream).read(false) {
        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
            let end = chunk.offset + chunk.bytes.len() as u64;
            read.add(chunk.offset..end);
        }
        // whether it has to say something is asked anyhow
        let _ = chunks.finalize();
    }
}
