//! Links, and the flows that run over them.

use pathcast_path::reader::document;
use pathcast_path::seed::{generator, uniform};
use pathcast_path::{Defaults, Heading, Loader, Path, PathError, Span, Time};

use crate::file;
use crate::transport::Transport;
use crate::workload::{Bulk, Workload};

/// The largest IP packet.
const MTU_BYTES: u64 = 1500;

/// A link and its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// What routes call it.
    pub name: String,
    /// What it does, in both directions.
    pub path: Path,
}

/// Flows that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSpec {
    /// How many.
    pub count: u32,
    /// What carries them.
    pub transport: Transport,
    /// What they send.
    pub workload: Workload,
    /// Indices of the links that they cross, from near to far.
    pub route: Vec<usize>,
    /// Which way their data goes.
    pub heading: Heading,
    /// The flows' own delay in each direction, added to that of the links at the near end.
    pub delay: Span,
    /// When the first begins. None: the first of the scenario at 0, and all others at random within the
    /// first round-trip time, because flows that begin together would stay synchronized.
    pub start: Option<Span>,
    /// From the beginning of one to that of the next; none: all at random within a round-trip time
    /// after the first.
    pub every: Option<Span>,
    /// When they write no more.
    pub stop: Option<Span>,
}

impl FlowSpec {
    /// One bulk flow over link 0.
    pub fn bulk(transport: Transport) -> Self {
        Self {
            count: 1,
            transport,
            workload: Workload::Bulk(Bulk),
            route: vec![0],
            heading: Heading::Forward,
            delay: Span::ZERO,
            start: None,
            every: None,
            stop: None,
        }
    }

    /// Connections of all of them together; each is a flow of its own to transports and traces.
    pub fn connections(&self) -> u64 {
        u64::from(self.count) * u64::from(self.workload.connections())
    }

    /// Whether it writes as much as is taken from its start on, and never stops.
    pub fn is_endless(&self) -> bool {
        self.stop.is_none() && matches!(self.workload, Workload::Bulk(_))
    }
}

/// One flow.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// What it is like.
    pub spec: &'a FlowSpec,
    /// Its number among the groups of flows that are alike.
    pub group: usize,
    /// When it begins.
    pub start: Time,
    /// Which of the connections of its workload it is, from 0.
    pub connection: u32,
}

/// What runs over what.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// For people; empty if the file gives none.
    pub name: String,
    /// How long it is meant to run.
    pub duration: Option<Span>,
    /// At least one.
    pub links: Vec<Link>,
    /// At least one; their order is that of the flows' numbers.
    pub flows: Vec<FlowSpec>,
}

impl Scenario {
    /// Most flows of one scenario.
    pub const MAX_FLOWS: u64 = 100_000;

    /// Bulk flows over one path, one for each scheme.
    pub fn bulk<S: Into<String>>(path: Path, schemes: impl IntoIterator<Item = S>) -> Self {
        let flows = schemes
            .into_iter()
            .map(|scheme| FlowSpec::bulk(Transport::by_scheme(scheme)));
        Self {
            name: path.name.clone(),
            duration: None,
            flows: flows.collect(),
            links: vec![Link {
                name: "path".into(),
                path,
            }],
        }
    }

    /// Reads a scenario's text; `file` names it in errors. It must not name other files: see
    /// [`Scenario::parse_with`].
    ///
    /// # Errors
    /// A [`PathError`] with line and column if the text is no TOML, a key is missing, unknown or of
    /// the wrong type, a quantity lacks its unit or is out of range, or nothing could ever be sent.
    pub fn parse(text: &str, file: &str) -> Result<Self, PathError> {
        Self::parse_with(text, file, &mut |_| {
            Err("expected no other files here, for the scenario was not read from a file".into())
        })
    }

    /// Reads a scenario's text, and the files that it names by `load`.
    ///
    /// # Errors
    /// As [`Scenario::parse`], or if a file cannot be loaded.
    pub fn parse_with(text: &str, file: &str, load: &mut Loader<'_>) -> Result<Self, PathError> {
        document(text, file, |root| file::read(root, load))
    }

    /// Gives all flows the workload that `text` says, a TOML value such as
    /// `{ kind = "transfer", size = "5 MB" }`.
    ///
    /// # Errors
    /// The text is not a workload, or a flow's transport cannot carry it.
    pub fn set_workload(&mut self, text: &str) -> Result<(), String> {
        let workload = Workload::of_value(text)?;
        for flow in &mut self.flows {
            if flow.transport == Transport::Udp && !workload.is_open_loop() {
                return Err(format!("udp cannot carry {}", workload.kind()));
            }
            workload.check(&flow.transport)?;
            flow.workload = workload.clone();
            if workload.is_page() {
                flow.transport = flow.transport.clone().opening();
            }
        }
        Ok(())
    }

    /// Whether the text looks like a scenario rather than a path: it has `flows` or `links`.
    pub fn is_scenario(text: &str) -> bool {
        toml::de::DeTable::parse(text).is_ok_and(|root| {
            let root = root.get_ref();
            root.contains_key("flows") || root.contains_key("links")
        })
    }

    /// The scenario as TOML, every default and every recording written out; [`Scenario::parse`] reads
    /// it back.
    pub fn to_toml(&self) -> String {
        self.to_toml_with(Defaults::All)
    }

    /// As [`Scenario::to_toml`], with these defaults written out.
    pub fn to_toml_with(&self, defaults: Defaults) -> String {
        file::write(self, defaults)
    }

    /// The path of a scenario with one link and bulk flows that differ only in their scheme, and the
    /// schemes.
    pub fn as_bulk(&self) -> Option<(&Path, Vec<&str>)> {
        let [link] = &self.links[..] else { return None };
        let schemes = self.flows.iter().map(|flow| {
            let scheme = flow.transport.scheme();
            (*flow == FlowSpec::bulk(Transport::by_scheme(scheme))).then_some(scheme)
        });
        Some((&link.path, schemes.collect::<Option<_>>()?))
    }

    /// The round-trip time of `flow` on an idle network.
    pub fn base_rtt(&self, flow: &FlowSpec) -> Span {
        let links = flow
            .route
            .iter()
            .map(|&link| self.links[link].path.base_rtt());
        links.fold(flow.delay + flow.delay, |rtt, link| rtt + link)
    }

    /// The round-trip time of `flow` for packets of `bytes` in each direction on an idle network: the
    /// delays, and the transmission over each link.
    pub fn idle_rtt(&self, flow: &FlowSpec, bytes: u32) -> Span {
        let directions = (flow.route.iter()).flat_map(|&link| {
            let path = &self.links[link].path;
            [&path.forward, &path.reverse]
        });
        let rates = directions.filter_map(|direction| direction.mean_rate());
        let sending_s = rates.map(|rate| f64::from(8 * bytes) / rate.as_bps()).sum();
        self.base_rtt(flow) + Span::from_secs(sending_s)
    }

    /// The longest round-trip time of a flow on an idle network.
    pub fn longest_rtt(&self) -> Span {
        let rtts = self.flows.iter().map(|spec| self.base_rtt(spec));
        rtts.max().unwrap_or(Span::ZERO)
    }

    /// The most bytes that can be in transit at the same time: bandwidth-delay products and queues.
    pub fn bytes_on_the_way(&self) -> u64 {
        let rtt_s = self.longest_rtt().as_secs();
        let links = self.links.iter().map(|link| {
            let Some(rate) = link.path.forward.mean_rate() else {
                return u64::MAX;
            };
            let (bytes, packets) = link.path.queue_limits(&link.path.forward);
            let queue = bytes.min(packets.saturating_mul(MTU_BYTES));
            queue.saturating_add((rate.as_bps() * rtt_s / 8.0) as u64)
        });
        links.fold(0, u64::saturating_add)
    }

    /// The largest buffers of a connection's ends: twice what can be in transit, and twice again because
    /// kernels count their own overhead too.
    pub fn buffer_bytes(&self) -> u64 {
        const LEAST: u64 = 16 << 20;
        const MOST: u64 = 1 << 30;
        self.bytes_on_the_way().saturating_mul(4).clamp(LEAST, MOST)
    }

    /// Every flow with its beginning, in the order of their numbers; each connection of a page is one.
    pub fn flows(&self) -> impl Iterator<Item = Flow<'_>> {
        self.flows_with_seed(0)
    }

    /// As [`Scenario::flows`], with the random beginnings of `seed`.
    pub fn flows_with_seed(&self, seed: u64) -> impl Iterator<Item = Flow<'_>> {
        let mut draws = generator(seed, "flow.start");
        self.flows
            .iter()
            .enumerate()
            .flat_map(move |(group, spec)| {
                let rtt_s = self.base_rtt(spec).as_secs();
                let starts: Vec<Time> = (0..spec.count)
                    .map(|member| {
                        let first = (group == 0 || spec.start.is_some()) && member == 0;
                        let begin = Time::ZERO + spec.start.unwrap_or(Span::ZERO);
                        match spec.every {
                            Some(every) => begin + every.mul_div(u64::from(member), 1),
                            None if first => begin,
                            None => begin + Span::from_secs(uniform(&mut draws) * rtt_s),
                        }
                    })
                    .collect();
                let connections = spec.workload.connections();
                starts.into_iter().flat_map(move |start| {
                    (0..connections).map(move |connection| Flow {
                        spec,
                        group,
                        start,
                        connection,
                    })
                })
            })
    }
}
