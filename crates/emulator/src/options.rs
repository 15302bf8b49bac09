//! What to run.

use std::path::PathBuf;

use pathcast_netns::route::Beginning;
use pathcast_netns::{DeviceKind, Settings, Shape};
use pathcast_path::{Path, Span, Time};
use pathcast_probe::Method;
use pathcast_scenario::{FlowSpec, Heading, QuicScheme, Scenario, Transport};

use crate::addresses::{Ip, MAX_GROUPS, SHAPE};
use crate::error::EmulatorError;
use crate::pump::is_fast;
use crate::receive_buffers::largest_buffer;

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// What runs over what; schemes are the kernel's, or QUIC's.
    pub scenario: Scenario,
    /// How long the flows send at most; connecting comes before it. A run ends before if all flows
    /// have done what they ever will.
    pub duration: Span,
    /// Seed of all that is random in the scenario; the kernel's timing is not repeatable.
    pub seed: u64,
    /// How to watch the senders. Where tcp_probe is not available, they are polled.
    pub method: Method,
    /// Which version of IP the flows use.
    pub ip: Ip,
    /// The devices that packets pass. Default: TUN devices where they are available, else veth pairs.
    pub device: Option<DeviceKind>,
    /// Whether TUN devices carry super-packets; by default on paths of more than 500 Mbit/s.
    pub super_packets: Option<bool>,
    /// Where to write the log of all packets, if at all.
    pub packets_file: Option<PathBuf>,
    /// Where to write what became of each message, if at all.
    pub messages_file: Option<PathBuf>,
}

/// One flow, as the emulator sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow<'a> {
    pub(crate) number: u32,
    pub(crate) group: usize,
    pub(crate) spec: &'a FlowSpec,
    pub(crate) start: Time,
    /// Which of the connections of its page it is.
    pub(crate) connection: u32,
}

impl Options {
    /// Runs `scenario` for `duration`, watched by tcp_probe.
    pub const fn of_scenario(scenario: Scenario, duration: Span, seed: u64) -> Self {
        Self {
            scenario,
            duration,
            seed,
            method: Method::TcpProbe,
            ip: Ip::V4,
            device: None,
            super_packets: None,
            packets_file: None,
            messages_file: None,
        }
    }

    /// Runs one bulk flow for each of `schemes` over `path` for `duration`; all begin together.
    pub fn new(path: Path, schemes: Vec<String>, duration: Span, seed: u64) -> Self {
        let mut scenario = Scenario::bulk(path, schemes);
        for flow in &mut scenario.flows {
            flow.start = Some(Span::ZERO);
        }
        Self::of_scenario(scenario, duration, seed)
    }

    /// What the hosts' devices are to be like.
    pub(crate) fn shape(&self) -> Shape {
        let super_packets = self.super_packets;
        Shape {
            super_packets: super_packets.unwrap_or_else(|| is_fast(&self.scenario)),
            ..SHAPE
        }
    }

    /// Checks what can be checked without the kernel.
    pub(crate) fn check(&self) -> Result<(), EmulatorError> {
        if self.duration == Span::ZERO {
            return Err(EmulatorError::ZeroDuration);
        }
        if self.scenario.flows.is_empty() {
            return Err(EmulatorError::NoFlows);
        }
        let unsupported = |what: String| Err(EmulatorError::Unsupported(what));
        let groups = self.scenario.flows.len();
        if groups > MAX_GROUPS {
            return unsupported(format!(
                "{groups} groups of flows, expected at most {MAX_GROUPS}"
            ));
        }
        for scheme in self.schemes() {
            QuicScheme::check(scheme).or_else(unsupported)?;
        }
        let mut common: Option<bool> = None;
        for spec in &self.scenario.flows {
            if spec.transport.has_handshake() && !spec.workload.is_page() {
                return unsupported(
                    "a flow with `handshake = true`, expected none: connections other than those of pages \
                     open before the run begins; the simulator has handshakes, by `pathcast simulate`"
                        .into(),
                );
            }
            let Transport::Tcp {
                slow_start_after_idle,
                ..
            } = &spec.transport
            else {
                continue;
            };
            if common.get_or_insert(*slow_start_after_idle) != slow_start_after_idle {
                return unsupported(
                    "flows that differ in slow_start_after_idle, expected one value: it is a setting \
                     of a host"
                        .into(),
                );
            }
        }
        largest_buffer(&self.scenario).map_err(EmulatorError::Unsupported)?;
        Ok(())
    }

    /// The congestion control of each group of TCP flows.
    pub(crate) fn schemes(&self) -> impl Iterator<Item = &str> {
        let flows = self.scenario.flows.iter();
        flows.filter_map(|spec| match &spec.transport {
            Transport::Tcp { scheme, .. } => Some(scheme.as_str()),
            Transport::Quic { .. } | Transport::Udp => None,
        })
    }

    /// Every flow, in the order of their numbers.
    pub(crate) fn flows(&self) -> Vec<Flow<'_>> {
        let flows = self.scenario.flows_with_seed(self.seed);
        (0..)
            .zip(flows)
            .map(|(number, flow)| Flow {
                number,
                group: flow.group,
                spec: flow.spec,
                start: flow.start,
                connection: flow.connection,
            })
            .collect()
    }

    /// The path, if the run consists of bulk flows over one path that begin together.
    pub(crate) fn only_path(&self) -> Option<&Path> {
        let [link] = &self.scenario.links[..] else {
            return None;
        };
        let plain = |spec: &FlowSpec| {
            let bulk = FlowSpec::bulk(Transport::by_scheme(spec.transport.scheme()));
            *spec
                == FlowSpec {
                    start: spec.start,
                    ..bulk
                }
                && spec.start == Some(Span::ZERO)
        };
        self.scenario.flows.iter().all(plain).then_some(&link.path)
    }

    /// What the sockets of both hosts have in common.
    pub(crate) fn settings(&self) -> Settings {
        let tcp = self
            .scenario
            .flows
            .iter()
            .find_map(|spec| match &spec.transport {
                Transport::Tcp {
                    slow_start_after_idle,
                    ..
                } => Some(*slow_start_after_idle),
                Transport::Quic { .. } | Transport::Udp => None,
            });
        Settings {
            buffer_bytes: self.scenario.buffer_bytes(),
            slow_start_after_idle: tcp.unwrap_or(true),
        }
    }

    /// What connections of each group begin with.
    pub(crate) fn beginnings(&self) -> impl Iterator<Item = (usize, &FlowSpec, Beginning)> {
        let groups = self.scenario.flows.iter().enumerate();
        groups.filter_map(|(group, spec)| match spec.transport {
            Transport::Tcp {
                initial_window_packets,
                ecn,
                ..
            } => Some((
                group,
                spec,
                Beginning {
                    initial_window_packets,
                    ecn,
                },
            )),
            Transport::Quic { .. } | Transport::Udp => None,
        })
    }

    /// The shortest round-trip time of a flow on an idle network.
    pub(crate) fn base_rtt(&self) -> Span {
        let rtts = self
            .scenario
            .flows
            .iter()
            .map(|spec| self.scenario.base_rtt(spec));
        rtts.min().unwrap_or(Span::ZERO)
    }

    /// The bandwidth-delay product that a flow's data meets, in bytes; `None` without a rate.
    pub(crate) fn bdp_bytes(&self, spec: &FlowSpec) -> Option<u64> {
        let links = spec
            .route
            .iter()
            .map(|&link| &self.scenario.links[link].path);
        let rates = links.filter_map(|path| match spec.heading {
            Heading::Forward => path.forward.mean_rate(),
            Heading::Reverse => path.reverse.mean_rate(),
        });
        let rate_bps = rates.map(|rate| rate.as_bps()).reduce(f64::min)?;
        Some((rate_bps * self.scenario.base_rtt(spec).as_secs() / 8.0) as u64)
    }
}
