//! Conditions of clients' paths, from the kernel's list of sockets.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::{Duration, SystemTime};

use pathcast_control::{Configuration, Prefix, PrefixReport};
use pathcast_probe::{SocketState, Sockets, TcpInfo};

use super::{Current, prefix_of};
use crate::hands::inside;
use crate::plan::Plan;
use crate::settings::{Connections, Settings};

/// Packets that a flow must have delivered for its rate and loss to be of the path.
const LEAST_PACKETS: u64 = 10;
/// How long a connection that was accepted before a configuration may take to show up.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Flows of the servers' ports, in all namespaces that servers have.
pub(crate) struct Paths {
    ports: Vec<u16>,
    namespaces: Vec<(Option<String>, Option<Sockets>)>,
    by_routes: bool,
    flows: HashMap<(usize, u64), Flow>,
    /// Connections that have another congestion control than they should, by what they have.
    wrong: BTreeMap<String, u64>,
}

struct Flow {
    prefix: Prefix,
    info: TcpInfo,
    /// The state at the last report.
    before: TcpInfo,
    /// The fastest delivery that the application did not hold down, since the last report, bytes a second.
    rate: Option<u64>,
    gone: bool,
}

impl Paths {
    pub(crate) fn new(settings: &Settings) -> Self {
        let mut names = vec![None];
        for pool in &settings.pools {
            if pool.namespace.is_some() && !names.contains(&pool.namespace) {
                names.push(pool.namespace.clone());
            }
        }
        Self {
            ports: settings.ports.clone(),
            namespaces: names.into_iter().map(|name| (name, None)).collect(),
            by_routes: settings.connections == Connections::Routes,
            flows: HashMap::new(),
            wrong: BTreeMap::new(),
        }
    }

    /// Looks at all sockets now.
    pub(crate) fn look(&mut self, in_force: &Current, plan: &Plan) -> io::Result<()> {
        let mut failed = None;
        for at in 0..self.namespaces.len() {
            if let Err(error) = self.look_into(at, in_force, plan) {
                failed = Some(error);
                self.namespaces[at].1 = None; // opened again at the next look
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn look_into(&mut self, at: usize, in_force: &Current, plan: &Plan) -> io::Result<()> {
        let (name, sockets) = &mut self.namespaces[at];
        if sockets.is_none() {
            *sockets = Some(inside(name.as_deref(), Sockets::open)?);
        }
        let Some(sockets) = sockets else {
            return Ok(());
        };
        let mut states = Vec::new();
        for port in &self.ports {
            states.extend(
                sockets
                    .connections(*port)?
                    .into_iter()
                    .map(|state| (state, false)),
            );
        }
        let ended = sockets.ended().into_iter();
        let ports = &self.ports;
        let ended = ended.filter(|state| ports.contains(&state.local.port()));
        states.extend(ended.map(|state| (state, true)));
        let listed = states.len();
        let sees_ends = sockets.sees_ends();
        let name = name.clone();
        let now: Vec<u64> = states.iter().map(|(state, _)| state.cookie).collect();
        for (state, gone) in states {
            self.note(at, name.as_deref(), &state, gone, in_force, plan);
        }
        if !sees_ends && listed < self.flows.len() {
            for ((space, cookie), flow) in &mut self.flows {
                flow.gone |= *space == at && !now.contains(cookie);
            }
        }
        Ok(())
    }

    fn note(
        &mut self,
        at: usize,
        namespace: Option<&str>,
        state: &SocketState,
        gone: bool,
        in_force: &Current,
        plan: &Plan,
    ) {
        let key = (at, state.cookie);
        if !self.flows.contains_key(&key) {
            let Some(prefix) = prefix_of(state.remote.ip(), &in_force.configuration) else {
                return;
            };
            let settled = in_force.since + SETTLED_AFTER <= SystemTime::now();
            // one that has lasted for long may be older than the configuration
            let fresh =
                settled && state.info.bytes_sent.is_some_and(|sent| sent < 1 << 20) && !gone;
            if let (true, Some(wrong)) = (
                fresh && self.by_routes,
                wrong_scheme(state, namespace, plan),
            ) {
                *self.wrong.entry(format!("{prefix}: {wrong}")).or_default() += 1;
            }
            let flow = Flow {
                prefix,
                info: state.info,
                before: TcpInfo::default(),
                rate: None,
                gone,
            };
            self.flows.insert(key, flow);
        }
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        flow.gone |= gone;
        // a socket that is closed by a reset (SO_LINGER of zero, as HAProxy does) ends with all its counts at zero
        if state.info.bytes_sent < flow.info.bytes_sent {
            return;
        }
        flow.info = state.info;
        if !state.info.app_limited && packets(&state.info) >= LEAST_PACKETS {
            flow.rate = flow
                .rate
                .max(state.info.delivery_rate.filter(|rate| *rate > 0));
        }
    }

    /// What was seen since the last call, by prefix; and connections that are not as they should be.
    pub(crate) fn take(
        &mut self,
        in_force: &Current,
    ) -> (BTreeMap<Prefix, PrefixReport>, Vec<String>) {
        let mut by_prefix: BTreeMap<Prefix, Vec<&Flow>> = BTreeMap::new();
        for flow in self.flows.values() {
            if flow.info.bytes_acked > flow.before.bytes_acked {
                by_prefix.entry(flow.prefix).or_default().push(flow);
            }
        }
        let reports = by_prefix
            .iter()
            .map(|(prefix, flows)| (*prefix, report(*prefix, flows)));
        let reports: BTreeMap<Prefix, PrefixReport> = reports.collect();
        self.flows.retain(|_, flow| !flow.gone);
        for flow in self.flows.values_mut() {
            flow.before = flow.info;
            flow.rate = None;
            // a prefix may have been placed since
            let bits = reported_as(flow.prefix, &in_force.configuration);
            flow.prefix = bits.unwrap_or(flow.prefix);
        }
        let wrong = std::mem::take(&mut self.wrong);
        let wrong = wrong
            .into_iter()
            .map(|(what, count)| format!("{what}, {count} connections"));
        (reports, wrong.collect())
    }
}

/// The configured prefix of a reported one's first address, if it holds all of it.
fn reported_as(prefix: Prefix, configuration: &Configuration) -> Option<Prefix> {
    let found = prefix_of(prefix.net().network(), configuration)?;
    found.net().contains(&prefix.net()).then_some(found)
}

/// What a new connection has that it should not have, from the plan.
fn wrong_scheme(state: &SocketState, namespace: Option<&str>, plan: &Plan) -> Option<String> {
    let space = plan
        .spaces
        .iter()
        .find(|space| space.namespace.as_deref() == namespace)?;
    let client = state.remote.ip().to_canonical();
    let nets = space.beginnings.iter();
    let holding = nets.filter(|(net, _)| net.is_none_or(|net| net.contains(&client)));
    let (_, beginning) =
        holding.max_by_key(|(net, _)| net.map_or(0, |net| u32::from(net.prefix_len()) + 1))?;
    let expected = beginning.congestion_control.as_deref()?;
    let has = state.scheme.as_deref()?;
    (has != expected).then(|| format!("got the congestion control {has}, expected {expected}"))
}

/// Packets sent, about.
fn packets(info: &TcpInfo) -> u64 {
    info.bytes_sent.unwrap_or(0) / u64::from(info.snd_mss.max(1))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        _ if values.is_empty() => None,
        1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// The 90 % quantile, nearest rank: flows share a path, and what most of them get is less than it carries.
fn high(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let at = (values.len() * 9).div_ceil(10).checked_sub(1)?;
    values.get(at).copied()
}

fn report(prefix: Prefix, flows: &[&Flow]) -> PrefixReport {
    let infos = || flows.iter().map(|flow| &flow.info);
    // all ones before the first sample
    let rtts = infos().filter_map(|info| info.min_rtt_us.filter(|rtt| *rtt > 0 && *rtt < u32::MAX));
    let jitters = infos().map(|info| f64::from(info.rttvar_us) / 1000.0);
    let rates = flows.iter().filter_map(|flow| flow.rate);
    // bytes of data: SYNs and FINs that are sent again say less of the path than of its end
    let (mut packets_sent, mut sent, mut again) = (0, 0, 0);
    for flow in flows {
        let more = |of: fn(&TcpInfo) -> Option<u64>| {
            let (now, before) = (of(&flow.info), of(&flow.before));
            now.unwrap_or(0).saturating_sub(before.unwrap_or(0))
        };
        packets_sent += packets(&flow.info).saturating_sub(packets(&flow.before));
        sent += more(|info| info.bytes_sent);
        again += more(|info| info.bytes_retrans);
    }
    PrefixReport {
        prefix,
        flows: flows.len() as u64,
        rtt_ms: median(rtts.map(|rtt| f64::from(rtt) / 1000.0).collect()),
        loss: (packets_sent >= LEAST_PACKETS).then(|| (again as f64 / sent as f64).min(1.0)),
        bandwidth_mbps: high(rates.map(|rate| rate as f64 * 8e-6).collect()),
        jitter_ms: median(jitters.collect()),
        completions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_medians_of_flows_and_the_loss_since_the_last_one() {
        let flow = |rtt_us, rate, sent: u64, again: u64| Flow {
            prefix: "10.1.2.0/24".parse().unwrap(),
            info: TcpInfo {
                snd_mss: 1000,
                bytes_sent: Some(sent * 1000),
                bytes_retrans: Some(again * 1000),
                min_rtt_us: Some(rtt_us),
                rttvar_us: 500,
                ..TcpInfo::default()
            },
            before: TcpInfo {
                snd_mss: 1000,
                bytes_sent: Some(100_000),
                bytes_retrans: Some(5000),
                ..TcpInfo::default()
            },
            rate,
            gone: false,
        };
        let (a, b) = (
            flow(10_000, Some(125_000), 150, 10),
            flow(30_000, None, 150, 5),
        );
        let report = report(a.prefix, &[&a, &b]);
        assert_eq!(
            (report.flows, report.rtt_ms, report.bandwidth_mbps),
            (2, Some(20.0), Some(1.0))
        );
        assert_eq!((report.loss, report.jitter_ms), (Some(0.05), Some(0.5)));
        let unknown = flow(u32::MAX, None, 105, 5);
        let report = super::report(unknown.prefix, &[&unknown]);
        assert_eq!(
            (report.rtt_ms, report.loss, report.bandwidth_mbps),
            (None, None, None)
        );
    }
}
