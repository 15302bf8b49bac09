//! What is to be run, and whether it can be.

use std::net::{IpAddr, Ipv4Addr};

use pathcast_netns::route::Beginning;
use pathcast_netns::{Settings, Shape};
use pathcast_path::{End, Path, Time};
use pathcast_scenario::{
    DEFAULT_MSS_BYTES, Flow, FlowSpec, Heading, ReceiveWindow, Scenario, Transport,
};
use serde::{Deserialize, Serialize};

/// The largest packet in the tunnel: with all that goes around it, a datagram of 1480 bytes over IPv6.
pub(crate) const MTU: u32 = 1400;

/// What the two hosts' devices are like.
pub(crate) const SHAPE: Shape = Shape {
    mtu: MTU,
    super_packets: false,
    prefix_v4: 16,
    prefix_v6: 64,
};

/// The port of the server's control connection.
pub(crate) const CONTROL_PORT: u16 = 5000;
/// Where a flow's receiver listens.
pub(crate) const FLOW_PORT: u16 = 5001;
/// The sender of flow number n connects from this port plus n.
pub(crate) const FIRST_FLOW_PORT: u16 = 20_000;

/// The receiver of flow number n of programs listens on this port plus n.
pub(crate) const FIRST_PROGRAM_PORT: u16 = 30_000;
/// Most flows of programs in a run.
pub(crate) const MOST_PROGRAM_FLOWS: u16 = 64;

/// Most flows of a run.
pub(crate) const MOST_FLOWS: usize = 1000;

/// The client is the near end of the flows' routes, the server the far end.
pub(crate) const CLIENT: End = End::Near;
pub(crate) const SERVER: End = End::Far;

/// The address of a host in the tunnel.
pub(crate) const fn address(host: End) -> IpAddr {
    IpAddr::V4(match host {
        CLIENT => Ipv4Addr::new(10, 77, 0, 1),
        SERVER => Ipv4Addr::new(10, 77, 128, 1),
    })
}

/// What the client asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// A scenario over one link without limits, which stands for the real path.
    pub(crate) scenario: String,
    pub(crate) duration_s: f64,
    pub(crate) seed: u64,
    /// What the server's program is asked to run in place of the scenario's flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) programs: Option<String>,
}

/// The link that stands for the real path.
pub(crate) const LINK: &str = "delay = '0 ms'\n";

/// Bulk flows of these schemes, or, with `workload`, flows with that workload.
///
/// # Errors
/// The text is not a workload.
pub fn scenario_of(
    schemes: &[String],
    heading: Heading,
    workload: Option<&str>,
) -> Result<Scenario, String> {
    let path = Path::parse(LINK, "live").expect("a path without limits");
    let mut scenario = Scenario::bulk(path, schemes.iter().cloned());
    for flow in &mut scenario.flows {
        flow.heading = heading;
    }
    if let Some(text) = workload {
        scenario.set_workload(text)?;
        if scenario.flows.iter().any(|flow| flow.workload.is_page()) {
            return Err(
                "live flows cannot carry a page; the simulator can, by `pathcast simulate`".into(),
            );
        }
    }
    Ok(scenario)
}

/// Removes the links of a scenario, because the real path replaces them.
pub(crate) fn over_real_path(scenario: &Scenario) -> Scenario {
    let path = Path::parse(LINK, "live").expect("a path without limits");
    let mut over = Scenario::bulk(path, ["cubic"]);
    over.name.clone_from(&scenario.name);
    over.duration = scenario.duration;
    over.flows.clone_from(&scenario.flows);
    for flow in &mut over.flows {
        flow.route = vec![0];
    }
    over
}

/// What of a scenario cannot be run between two hosts.
///
/// # Errors
/// It, in words.
pub(crate) fn check(scenario: &Scenario) -> Result<(), String> {
    let [_] = &scenario.links[..] else {
        return Err(format!(
            "got {} links, expected one: the real path takes its place",
            scenario.links.len()
        ));
    };
    let flows: u64 = scenario
        .flows
        .iter()
        .map(|flow| u64::from(flow.count))
        .sum();
    if flows == 0 || flows > MOST_FLOWS as u64 {
        return Err(format!("got {flows} flows, expected 1 to {MOST_FLOWS}"));
    }
    for flow in &scenario.flows {
        match &flow.transport {
            Transport::Udp => return Err("got a flow of udp, expected tcp".into()),
            Transport::Quic { scheme, .. } => {
                return Err(format!(
                    "got a flow of {}, expected one of TCP: QUIC runs in the emulator, by `pathcast \
                     emulate`",
                    scheme.name()
                ));
            }
            Transport::Tcp {
                handshake: true, ..
            } => return Err(HANDSHAKE.into()),
            Transport::Tcp {
                receive_window: ReceiveWindow::Auto { .. },
                ..
            } => return Err(AUTO.into()),
            Transport::Tcp { mss_bytes, .. } if *mss_bytes != DEFAULT_MSS_BYTES => {
                return Err(format!(
                    "got a flow with an mss of {mss_bytes} B, expected none: a real path has its own"
                ));
            }
            Transport::Tcp { .. } => {}
        }
        if flow.delay.as_nanos() > 0 {
            return Err("got a delay of a flow's own, which a real path has not".into());
        }
        if common(flow) != common(&scenario.flows[0]) {
            return Err(
                "got flows that differ in slow_start_after_idle, initial_window or ecn, expected \
                 the same: they are settings of the host"
                    .into(),
            );
        }
    }
    Ok(())
}

/// What the hosts' TCP is like.
pub(crate) fn settings(scenario: Option<&Scenario>) -> Settings {
    /// Windows for 10 Gbit/s over 50 ms.
    const BUFFER_BYTES: u64 = 64 << 20;
    /// What all flows of a run may keep in the kernel, each way.
    const BUFFER_BYTES_IN_ALL: u64 = 1 << 30;
    let flows = scenario.map_or(1, |scenario| {
        let counts = scenario.flows.iter().map(|flow| u64::from(flow.count));
        counts.sum::<u64>().max(1)
    });
    let (slow_start_after_idle, _) = scenario
        .and_then(|scenario| scenario.flows.first())
        .map_or((true, Beginning::default()), common);
    Settings {
        buffer_bytes: BUFFER_BYTES.min(BUFFER_BYTES_IN_ALL / flows),
        slow_start_after_idle,
    }
}

const HANDSHAKE: &str = "got a flow with `handshake = true`, expected none: connections open before the run begins; the \
                         simulator has handshakes, by `pathcast simulate`";

const AUTO: &str = "got a flow with an automatic `receive_window`, expected none or a size: live gives sockets buffers of \
                    its own; the emulator leaves them to the kernel, by `pathcast emulate`";

/// What connections begin with.
pub(crate) fn beginning(scenario: &Scenario) -> Beginning {
    let common = scenario.flows.first().map(common).unwrap_or_default();
    common.1
}

/// What all flows of a host have in common: whether idle ones begin again, and how all begin.
fn common(flow: &FlowSpec) -> (bool, Beginning) {
    match flow.transport {
        Transport::Tcp {
            slow_start_after_idle,
            initial_window_packets,
            ecn,
            ..
        } => (
            slow_start_after_idle,
            Beginning {
                initial_window_packets,
                ecn,
            },
        ),
        Transport::Quic { .. } | Transport::Udp => (true, Beginning::default()),
    }
}

/// One flow, as one of the hosts sees it.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) number: u32,
    pub(crate) spec: FlowSpec,
    pub(crate) start: Time,
    /// Whether its data comes from here.
    pub(crate) sends: bool,
}

impl Task {
    /// Whether this host's application is the one that acts: that sends, or that asks.
    pub(crate) fn acts(&self) -> bool {
        self.sends != self.spec.workload.asks()
    }

    pub(crate) fn scheme(&self) -> &str {
        self.spec.transport.scheme()
    }

    /// The most that this host takes, in bytes, if it receives and there is such a limit.
    pub(crate) fn receive_window(&self) -> Option<u64> {
        match self.spec.transport {
            Transport::Tcp { receive_window, .. } if !self.sends => receive_window.fixed_bytes(),
            _ => None,
        }
    }
}

/// All flows of a scenario as `side` sees them.
pub(crate) fn tasks(scenario: &Scenario, seed: u64, side: End) -> Vec<Task> {
    let flows = scenario.flows_with_seed(seed);
    (0..)
        .zip(flows)
        .map(|(number, Flow { spec, start, .. })| Task {
            number,
            spec: FlowSpec {
                count: 1,
                ..spec.clone()
            },
            start,
            sends: End::source_of(spec.heading) == side,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_sends_what_the_other_receives_and_whoever_asks_acts() {
        for (workload, sender_acts) in [
            (None, true),
            (
                Some("{ kind = 'request-response', request = '1 kB', response = '9 kB' }"),
                false,
            ),
        ] {
            let schemes = ["cubic".to_string(), "reno".to_string()];
            let scenario = scenario_of(&schemes, Heading::Reverse, workload).unwrap();
            assert_eq!(check(&scenario), Ok(()));
            let read = Scenario::parse(&scenario.to_toml(), "plan").unwrap();
            assert_eq!(read.flows, scenario.flows);
            let (client, server) = (tasks(&read, 1, CLIENT), tasks(&read, 1, SERVER));
            for (here, there) in client.iter().zip(&server) {
                assert_eq!((here.number, here.start), (there.number, there.start));
                assert!(!here.sends && there.sends);
                assert_eq!((here.acts(), there.acts()), (!sender_acts, sender_acts));
            }
        }
    }

    #[test]
    fn what_a_real_path_cannot_do_is_told() {
        for (flow, told) in [
            (
                "scheme = 'udp'\nworkload = { kind = 'constant-rate', rate = '1 Mbit/s' }",
                "udp",
            ),
            (
                "scheme = 'cubic'\n[[flows]]\nscheme = 'cubic'\ninitial_window = 20",
                "initial_window",
            ),
            ("scheme = 'quic-bbr3'", "quic-bbr3"),
            ("scheme = 'cubic'\nreceive_window = 'auto'", "automatic"),
            ("scheme = 'cubic'\ndelay = '3 ms'", "delay"),
            ("scheme = 'cubic'\ncount = 2000", "2000 flows"),
        ] {
            let text = format!("[links.real]\ndelay = '0 ms'\n[[flows]]\n{flow}\n");
            let scenario = Scenario::parse(&text, "plan");
            let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
            let error = check(&over_real_path(&scenario)).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }
}
