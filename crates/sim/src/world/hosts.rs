//! The hosts of a simulation when it begins: the applications of its flows, and what connects them.

use pathcast_congestion::{Controller, Scheme};
use pathcast_path::{Span, Time, seed};
use pathcast_quic::{Identity, Settings};
use pathcast_scenario::{
    Application, Datagrams, FlowSpec, Message, PageLoad, Protocol, Scenario, Transport, Workload,
};
use pathcast_tcp::{Handshake, Receiver, ReceiverConfig, Sender, Start};
use pathcast_trace::DelayHistogram;
use rand_core::RngCore;

use crate::ends::{growing_buffer, sender_config};
use crate::quic::{QuicFlow, settings};
use crate::send_buffer::SendBuffer;
use crate::simulation::SimError;
use crate::stream::Stream;
use crate::wire::HANDSHAKE_BYTES;

/// One direction of a TCP connection, a flow of datagrams, or a connection of QUIC.
pub struct Connection {
    pub sender: Sender,
    pub receiver: Receiver,
    pub(super) framing: Framing,
    /// Payload of a full packet.
    pub(super) mss_bytes: u32,
}

/// What is written into a connection.
pub(super) enum Framing {
    /// Bytes without an end.
    Bulk,
    /// Messages of TCP.
    Messages(Box<Stream>),
    /// Messages without TCP.
    Datagrams(Box<Datagrams>),
    /// What carries them, both ways: sender and receiver idle.
    Quic(Box<QuicFlow>),
}

/// An application and how its messages fared.
pub(super) struct Flow {
    pub(super) scheme: String,
    /// The table of the scenario that it is of.
    pub(super) group: usize,
    pub(super) kind: &'static str,
    /// It writes as much as is taken, not messages.
    pub(super) is_greedy: bool,
    pub(super) application: Application,
    pub(super) start: Time,
    /// The connection that carries requests, if there are any.
    pub(super) requests: Option<u32>,
    /// The page of which it is a connection.
    pub(super) load: Option<u32>,
    /// Its connection ends with a FIN when it writes no more.
    pub(super) closes: bool,
    pub(super) latency: Option<Box<DelayHistogram>>,
}

/// A page that is loaded over several flows.
pub(super) struct Load {
    pub(super) load: PageLoad,
    /// The flow of its first connection; those of the others follow.
    pub(super) first: u32,
    pub(super) start: Time,
    pub(super) protocol: Protocol,
}

/// All of them.
pub(super) struct Hosts {
    /// Connection i carries the data of flow i; those after the flows' carry requests.
    pub(super) connections: Vec<Connection>,
    pub(super) flows: Vec<Flow>,
    /// The flow of each connection of requests.
    pub(super) asking: Vec<u32>,
    pub(super) loads: Vec<Load>,
    pub(super) over_quic: bool,
}

/// The connections of flows, as a network must know them: one for each flow, then one for each flow
/// over TCP that asks for what it gets.
pub fn asking_flows(scenario: &Scenario) -> Vec<u32> {
    (0..)
        .zip(scenario.flows())
        .filter(|(_, flow)| asks_apart(flow.spec))
        .map(|(number, _)| number)
        .collect()
}

/// Whether requests have a connection of their own. Over QUIC they have a stream.
fn asks_apart(spec: &FlowSpec) -> bool {
    spec.workload.asks() && !matches!(spec.transport, Transport::Quic { .. })
}

impl Hosts {
    /// Those of `scenario`; `schemes` are those of its groups of flows.
    pub(super) fn new(
        scenario: &Scenario,
        schemes: &[Option<Scheme>],
        run_seed: u64,
    ) -> Result<Self, SimError> {
        let mut identities = Identities::default();
        let mut draws = seed::generator(run_seed, "flow.scheme");
        let mut connections = Vec::new();
        let mut flows = Vec::new();
        let mut of_requests = Vec::new();
        let mut loads = Vec::new();
        for (number, flow) in (0..).zip(scenario.flows_with_seed(run_seed)) {
            let (spec, scheme) = (flow.spec, &schemes[flow.group]);
            let rtt = scenario.idle_rtt(spec, HANDSHAKE_BYTES);
            let mut connect = |start, framing| {
                // datagrams never use it
                let scheme = scheme.clone().unwrap_or_else(|| Scheme::named("reno"));
                let controller = scheme.controller(draws.next_u64());
                Connection::new(&spec.transport, rtt, start, controller, framing)
            };
            let asks = spec.workload.asks();
            // QUIC has ends of its own, which shake hands
            let handshake = spec.transport.is_tcp() && spec.transport.has_handshake();
            let open = Start::After(Handshake::of_rtt(rtt));
            // who writes first opens the connection
            let (start, start_of_requests) = match (handshake, asks) {
                (false, _) => (open, open),
                (true, false) => (Start::Opens, open),
                (true, true) => (Start::Accepts, Start::Opens),
            };
            let messages = || {
                let mut stream = Stream::new(spec.transport.mss_bytes());
                stream.buffer = SendBuffer::new(spec.workload.unsent_bytes());
                Framing::Messages(Box::new(stream))
            };
            let framing = match spec.transport {
                Transport::Udp => Framing::Datagrams(Box::default()),
                Transport::Quic {
                    scheme: quic,
                    initial_window_packets: first,
                    mtu_discovery,
                    ..
                } => {
                    let element = format!("flow.{number}.quic");
                    let seed = seed::generator(run_seed, &element).next_u64();
                    let settings = settings(scenario, quic, first, mtu_discovery);
                    let quic = identities.flow(scenario, flow.group, spec, settings, seed)?;
                    Framing::Quic(Box::new(quic))
                }
                Transport::Tcp { .. } if spec.is_endless() => Framing::Bulk,
                Transport::Tcp { .. } => messages(),
            };
            connections.push(connect(start, framing));
            if asks_apart(spec) {
                of_requests.push((number, connect(start_of_requests, messages())));
            }
            if let Workload::WebPage(page) = &spec.workload
                && flow.connection == 0
            {
                let load = PageLoad::new(&page.page, page.http, flow.start);
                loads.push(Load {
                    load,
                    first: number,
                    start: flow.start,
                    protocol: page.http.protocol,
                });
            }
            flows.push(Flow {
                scheme: match scheme {
                    Some(scheme) => scheme.to_string(),
                    None => spec.transport.scheme().to_string(),
                },
                group: flow.group,
                kind: spec.workload.kind(),
                is_greedy: spec.workload.is_greedy(),
                application: Application::new(spec, flow.start, run_seed, number)
                    .watched(&spec.workload),
                start: flow.start,
                requests: None,
                load: spec.workload.is_page().then(|| loads.len() as u32 - 1),
                closes: handshake && !asks,
                latency: None,
            });
        }
        let mut asking = Vec::new();
        for (flow, connection) in of_requests {
            flows[flow as usize].requests = Some(connections.len() as u32);
            asking.push(flow);
            connections.push(connection);
        }
        Ok(Self {
            connections,
            flows,
            asking,
            loads,
            over_quic: identities.any,
        })
    }
}

/// Who the servers of QUIC are.
#[derive(Default)]
struct Identities {
    any: bool,
    /// Of all flows but pages.
    common: Option<Identity>,
    /// Of the last group of flows that is a page.
    of_page: Option<(usize, Identity)>,
}

impl Identities {
    /// Both ends of a flow of a group.
    fn flow(
        &mut self,
        scenario: &Scenario,
        group: usize,
        spec: &FlowSpec,
        settings: Settings,
        seed: u64,
    ) -> Result<QuicFlow, SimError> {
        self.any = true;
        if let Workload::WebPage(page) = &spec.workload {
            let settings = settings.for_page();
            let identity = match &self.of_page {
                Some((one, identity)) if *one == group => identity,
                _ => {
                    let identity = Identity::of_page(page, spec.count, &settings)?;
                    &self.of_page.insert((group, identity)).1
                }
            };
            return Ok(QuicFlow::of_page(&settings, identity, seed)?);
        }
        let identity = match &self.common {
            Some(identity) => identity,
            None => &*self.common.insert(Identity::new()?),
        };
        Ok(QuicFlow::new(scenario, spec, &settings, identity, seed)?)
    }
}

impl Connection {
    /// Over a path of this round-trip time, whose sender begins with `start`.
    fn new(
        transport: &Transport,
        rtt: Span,
        start: Start,
        controller: Box<dyn Controller>,
        framing: Framing,
    ) -> Self {
        Self {
            sender: Sender::new(sender_config(transport, start), controller),
            receiver: Receiver::new(ReceiverConfig {
                accepts: start == Start::Opens,
                rtt: (!transport.has_handshake()).then_some(rtt),
                buffer: growing_buffer(transport),
                ..ReceiverConfig::default()
            }),
            framing,
            mss_bytes: transport.mss_bytes(),
        }
    }
}

impl Flow {
    /// A message has arrived whole; the response, if it is a request.
    pub(super) fn deliver(&mut self, now: Time, message: &Message) -> Option<Message> {
        let response = self.application.on_delivered(now, message);
        if response.is_none() {
            self.latency
                .get_or_insert_with(|| Box::new(DelayHistogram::coarse()))
                .record(now.since(message.clock).as_nanos());
        }
        response
    }
}
