//! From what the threads of a run said to its report and its trace.

use std::collections::BTreeMap;
use std::time::Instant;

use pathcast_kernel_schemes::Schemes;
use pathcast_netns::{DeviceKind, in_user_namespace};
use pathcast_path::{Path, Span, Time};
use pathcast_probe::{FlowTotals, Observation, Stopped};
use pathcast_scenario::{ReceiveWindow, Transport};
use pathcast_trace::{
    FlowReport, MessageReport, Metadata, OneWayDelay, Record, RunReport, Source, Trace,
};
use rustix::system::uname;

use crate::applications::ApplicationsReport;
use crate::options::{Flow, Options};
use crate::pump::PumpReport;
use crate::quic::QuicOutcome;
use crate::session::FlowOutcome;
use crate::verdict::{Evidence, PACKETS_FOR_STALLS, slip_bound, stall_bound};

/// What a run left when its threads had ended.
pub(crate) struct Findings {
    /// The machine's, before the run.
    pub(crate) load_average: String,
    /// Why the thread that ends the run was not in `SCHED_FIFO`.
    pub(crate) fifo_refused: Option<String>,
    /// Settings that the kernel did not let us make.
    pub(crate) settings_refused: Vec<String>,
    /// What the packets went through.
    pub(crate) device: DeviceKind,
    /// Whether the devices carried super-packets.
    pub(crate) super_packets: bool,
    /// Packets that the devices dropped by themselves.
    pub(crate) device_drops: u64,
    /// Datagrams that sockets had no room for.
    pub(crate) socket_drops: u64,
    /// TCP packets that receivers dropped for their timestamps (PAWS).
    pub(crate) outdated: u64,
    /// `None` if the run was stopped before the flows were connected.
    pub(crate) flows: Option<FlowFindings>,
}

/// What the flows and the path between them left.
pub(crate) struct FlowFindings {
    pub(crate) measured: Measured,
    pub(crate) pump: PumpReport,
}

/// What the flows left. Times are those of the monotonic clock.
pub(crate) struct Measured {
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    /// The flows that the probe watched, which numbers them from 0.
    pub(crate) watched: Vec<usize>,
    pub(crate) probe: Stopped,
    pub(crate) applications: ApplicationsReport,
}

/// A flow that a window or a buffer limited for more than this share of the run measures that limit, not
/// the path.
const LIMITED_SHARE: f64 = 0.05;

/// The report and the trace of a run.
pub(crate) fn conclude(
    options: &Options,
    flows: &[Flow<'_>],
    schemes: &Schemes,
    mut findings: Findings,
    wall: Instant,
) -> (RunReport, Trace) {
    let mut environment = circumstances(options, schemes, &findings);
    let only_path = options.only_path();
    let schemes = flows
        .iter()
        .map(|flow| flow.spec.transport.scheme().to_string());
    let mut metadata = Metadata {
        schemes: schemes.collect(),
        path_toml: only_path.map(Path::to_toml),
        scenario_toml: only_path.is_none().then(|| options.scenario.to_toml()),
        seed: Some(options.seed),
        ..Metadata::new(Source::Emulator)
    };
    let Some(FlowFindings { measured, pump }) = findings.flows.take() else {
        let reason = "stopped before the flows were connected".to_string();
        let report = stopped_report(options, flows, reason, wall);
        (metadata.valid, metadata.environment) = (false, environment);
        let records = Vec::new();
        return (report, Trace { metadata, records });
    };

    let elapsed_s = (measured.ended_ns - measured.began_ns) as f64 * 1e-9;
    let mut observation = measured.probe.observation(measured.began_ns);
    let records = &mut observation.records;
    for record in records.iter_mut() {
        record.flow = measured.watched[record.flow as usize] as u32;
    }
    let applications = &measured.applications;
    let quic = of_quic(applications);
    records.extend(quic.records());
    records.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
    environment.extend(measuring(&observation, &pump, applications, &findings));
    environment.extend(quic.environment());
    let held_back = held_back(&measured.watched, &observation.flows, elapsed_s);
    if !held_back.is_empty() {
        environment.insert("held_back".into(), held_back.join("; "));
    }

    let evidence = Evidence {
        socket_drops: if quic.is_empty() {
            0
        } else {
            findings.socket_drops
        },
        broken: broken(applications)
            .chain(quic.unreadable())
            .chain(astray(&observation.records))
            .collect(),
        window_limited: window_limited(
            options,
            flows,
            &measured.watched,
            &observation.flows,
            elapsed_s,
        ),
        ..evidence(options, &findings, &observation, &pump)
    };
    environment.insert("data_packets_dropped".into(), evidence.drops.to_string());
    environment.insert(
        "drops_to_repair".into(),
        evidence.drops_to_repair.to_string(),
    );
    let invalid_because = evidence.invalid_because();
    metadata.valid = invalid_because.is_empty();
    let tcp = observation.flows.first().map(|flow| flow.last.snd_mss);
    metadata.mss_bytes = tcp.or(quic.payload_bytes());
    metadata.environment = environment;

    let reports = flows
        .iter()
        .zip(&applications.flows)
        .map(|(flow, outcome)| {
            let mut watched = measured.watched.iter();
            let at = watched.position(|&i| i == flow.number as usize);
            let totals = at.and_then(|at| observation.flows.get(at)); // none: it opened as the run ended
            flow_report(flow, outcome, totals, elapsed_s)
        });
    let report = RunReport {
        flows: reports.collect(),
        pages: applications.pages.clone(),
        groups: (pump.groups).reports(flows_of_tables(options)),
        packets_delivered: pump.data_delivered,
        loss_rate: (evidence.drops + pump.datagram_drops) as f64 / pump.data_offered.max(1) as f64,
        one_way_delay_ms: pump.delays.one_way_delay_ms(),
        cpu_s: pump.cpu_s + observation.cpu_s + applications.cpu_s,
        wall_s: wall.elapsed().as_secs_f64(),
        seed: options.seed,
        valid: metadata.valid,
        invalid_because,
        slip_us: Some(pump.slips.slip_us()),
    };
    let records = observation.records;
    (report, Trace { metadata, records })
}

/// How many flows each table has.
fn flows_of_tables(options: &Options) -> impl Iterator<Item = u32> {
    let tables = options.scenario.flows.iter();
    tables.map(|spec| spec.connections() as u32)
}

/// What a run ran on and over.
fn circumstances(
    options: &Options,
    schemes: &Schemes,
    findings: &Findings,
) -> BTreeMap<String, String> {
    let yes_or_no = |is: bool| if is { "yes" } else { "no" }.to_string();
    let refused = findings.settings_refused.join("; ");
    [
        ("kernel", uname().release().to_string_lossy().into_owned()),
        ("load_average", findings.load_average.trim().to_string()),
        ("pathcast", env!("CARGO_PKG_VERSION").to_string()),
        ("device", findings.device.to_string()),
        ("super_packets", yes_or_no(findings.super_packets)),
        ("rootless", yes_or_no(in_user_namespace())),
        (
            "slip_bound_us",
            bound(options).as_nanos().div_ceil(1000).to_string(),
        ),
    ]
    .into_iter()
    .chain((!refused.is_empty()).then_some(("settings_refused", refused)))
    .map(|(key, value)| (key.to_string(), value))
    .chain(origins(schemes))
    .collect()
}

/// How a run was measured, and by which means it was driven.
fn measuring(
    observation: &Observation,
    pump: &PumpReport,
    applications: &ApplicationsReport,
    findings: &Findings,
) -> impl Iterator<Item = (String, String)> {
    let fifo_refused = [
        &findings.fifo_refused,
        &pump.fifo_refused,
        &observation.fifo_refused,
        &applications.fifo_refused,
    ];
    let fifo = match fifo_refused.into_iter().flatten().next() {
        None => "yes".to_string(),
        Some(reason) => format!("no: {reason}"),
    };
    let p999_us = pump.slips.quantile_ns(0.999) as f64 * 1e-3;
    let no_tcp_probe = observation.fallback_because.clone();
    [
        ("measured_by", observation.method.to_string()),
        ("fifo", fifo),
        ("pump_cpu_s", format!("{:.3}", pump.cpu_s)),
        ("data_packets_offered", pump.data_offered.to_string()),
        ("slip_p999_us", format!("{p999_us:.1}")),
    ]
    .into_iter()
    .chain(no_tcp_probe.map(|reason| ("no_tcp_probe", reason)))
    .map(|(key, value)| (key.to_string(), value))
}

/// Where schemes are from that the kernel did not have by itself.
pub(crate) fn origins(schemes: &Schemes) -> impl Iterator<Item = (String, String)> {
    let by_bpf = schemes.by_bpf();
    let by_bpf: Vec<String> = by_bpf
        .map(|(name, kernels)| format!("{name} as {kernels}"))
        .collect();
    let modules: Vec<String> = schemes.modules().collect();
    [
        ("schemes_by_bpf", by_bpf.join("; ")),
        ("modules_loaded", modules.join("; ")),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(key, value)| (key.to_string(), value))
}

fn flow_report(
    flow: &Flow<'_>,
    outcome: &FlowOutcome,
    totals: Option<&FlowTotals>,
    elapsed_s: f64,
) -> FlowReport {
    let start_s = flow.start.as_secs();
    let completed_s = outcome.completed.map(Time::as_secs);
    let span_s = completed_s.unwrap_or(elapsed_s) - start_s;
    let workload = &flow.spec.workload;
    let (written, delivered) = outcome.messages;
    let latency_ms = outcome.latency.as_ref();
    let messages = MessageReport {
        written,
        delivered,
        latency_ms: latency_ms
            .map(|latency| latency.latency_ms())
            .unwrap_or_default(),
        delay_split_ms: None, // the thread that writes the log knows it
    };
    FlowReport {
        scheme: flow.spec.transport.scheme().to_string(),
        goodput_bps: if span_s > 0.0 {
            outcome.delivered_bytes as f64 * 8.0 / span_s
        } else {
            0.0
        },
        retransmits: match &outcome.quic {
            Some(quic) => quic.sender.resent_packets,
            None => totals.map_or(0, |totals| totals.retransmits),
        },
        workload: workload.kind().to_string(),
        start_s,
        completed_s,
        delivered_bytes: outcome.delivered_bytes,
        messages: (!workload.is_greedy()).then_some(messages),
        video: outcome.video.clone(),
    }
}

pub(crate) fn bound(options: &Options) -> Span {
    slip_bound(options.base_rtt())
}

fn stopped_report(
    options: &Options,
    flows: &[Flow<'_>],
    reason: String,
    wall: Instant,
) -> RunReport {
    let flow = |flow: &Flow<'_>| FlowReport {
        scheme: flow.spec.transport.scheme().to_string(),
        workload: flow.spec.workload.kind().to_string(),
        start_s: flow.start.as_secs(),
        ..FlowReport::default()
    };
    RunReport {
        flows: flows.iter().map(flow).collect(),
        pages: Vec::new(),
        groups: Vec::new(),
        packets_delivered: 0,
        loss_rate: 0.0,
        one_way_delay_ms: OneWayDelay::default(),
        cpu_s: 0.0,
        wall_s: wall.elapsed().as_secs_f64(),
        seed: options.seed,
        valid: false,
        invalid_because: vec![reason],
        slip_us: None,
    }
}

/// What the counters of devices, path and senders say of each other.
fn evidence(
    options: &Options,
    findings: &Findings,
    observation: &Observation,
    pump: &PumpReport,
) -> Evidence {
    let end_ns = observation.end_ns;
    let drops_until = |time_ns: u64| {
        let drops = pump
            .data_drops_ns
            .partition_point(|drop_ns| *drop_ns <= time_ns);
        drops as u64
    };
    // a drop is noticed within a round trip, or by a timeout, perhaps of the packet sent again
    let longest_us = |of: fn(&FlowTotals) -> u32| observation.flows.iter().map(of).max();
    let repair_us = 2 * u64::from(longest_us(|flow| flow.last.rto_us).unwrap_or(0))
        + 2 * u64::from(longest_us(|flow| flow.last.rtt_us).unwrap_or(0));
    let repaired_by_ns = end_ns.saturating_sub(repair_us * 1000);
    let sum = |of: &dyn Fn(&FlowTotals) -> u64| observation.flows.iter().map(of).sum::<u64>();
    Evidence {
        slip_p99: Span::from_nanos(pump.slips.quantile_ns(0.99)),
        slip_bound: bound(options),
        slip_p999: if pump.slips.count() >= PACKETS_FOR_STALLS {
            Span::from_nanos(pump.slips.quantile_ns(0.999))
        } else {
            Span::ZERO
        },
        stall_bound: stall_bound(options.base_rtt()),
        device_drops: findings.device_drops,
        outdated: findings.outdated,
        device_errors: pump.device_errors,
        records_lost: observation.records_lost,
        drops: drops_until(end_ns),
        drops_to_repair: drops_until(repaired_by_ns),
        retransmits: sum(&|flow| flow.retransmits),
        retransmits_answered: sum(&|flow| flow.retransmits_at(repaired_by_ns)),
        duplicates: sum(&|flow| flow.duplicates),
        acknowledgments_dropped: pump.other_drops,
        ..Evidence::default()
    }
}

/// What the senders over QUIC know, by the numbers of their flows.
struct OfQuic<'a>(Vec<(usize, &'a QuicOutcome)>);

fn of_quic(applications: &ApplicationsReport) -> OfQuic<'_> {
    let flows = applications.flows.iter().enumerate();
    let quic = flows.filter_map(|(flow, outcome)| Some((flow, outcome.quic.as_deref()?)));
    OfQuic(quic.collect())
}

impl OfQuic<'_> {
    const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        let of_flow = |&(flow, quic): &(usize, _)| {
            let quic: &QuicOutcome = quic;
            quic.records.iter().map(move |record| Record {
                flow: flow as u32,
                ..*record
            })
        };
        self.0.iter().flat_map(of_flow)
    }

    /// Payload of a full packet of the first flow.
    fn payload_bytes(&self) -> Option<u32> {
        let (_, quic) = self.0.first()?;
        Some(quic.sender.largest_payload_bytes as u32).filter(|bytes| *bytes > 0)
    }

    /// Flows of whose bytes too little is said, in words.
    fn unreadable(&self) -> impl Iterator<Item = String> {
        let unreadable = |&(flow, quic): &(usize, &QuicOutcome)| {
            let count = quic.sender.unreadable_packets;
            (count > 0)
                .then(|| format!("{count} packets of flow {flow} held frames that are not known"))
        };
        self.0.iter().filter_map(unreadable)
    }

    fn environment(&self) -> impl Iterator<Item = (String, String)> {
        let said = self.0.iter().map(|(flow, quic)| {
            format!("flow {flow} gave up {} packets", quic.sender.lost_packets)
        });
        let said: Vec<String> = said.collect();
        let said = (!said.is_empty()).then(|| ("quic_lost".to_string(), said.join("; ")));
        said.into_iter()
    }
}

fn broken(applications: &ApplicationsReport) -> impl Iterator<Item = String> {
    let broken = applications.broken.iter();
    broken.map(|(flow, why)| format!("the connection of flow {flow} broke: {why}"))
}

/// The largest possible window in packets: 2^30 bytes (RFC 7323, section 2.3) in packets of 536.
const MOST_PACKETS: f64 = 2_003_000.0;

/// Flows whose window became impossibly large, in words. A kernel that skips a BPF scheme when it asks for
/// the slow-start threshold uses stale data as the result. Unless the scheme corrects this at the next
/// acknowledgment, it has such a window when the recovery ends, and no longer reacts to losses.
fn astray(records: &[Record]) -> Vec<String> {
    let mut flows: BTreeMap<u32, f64> = BTreeMap::new();
    for record in records {
        if record.cwnd_packets > MOST_PACKETS {
            flows.entry(record.flow).or_insert(record.cwnd_packets);
        }
    }
    let words = |(flow, packets)| {
        format!("flow {flow}: its congestion control went astray: a window of {packets:.0} packets")
    };
    flows.into_iter().map(words).collect()
}

/// Flows that something other than the path held back, in words.
fn held_back(watched: &[usize], flows: &[FlowTotals], elapsed_s: f64) -> Vec<String> {
    let mut words = Vec::new();
    for (number, flow) in watched.iter().zip(flows) {
        for (limited_s, what) in [
            (flow.rwnd_limited_s, "the receiver's window"),
            (flow.sndbuf_limited_s, "the send buffer"),
        ] {
            if limited_s > LIMITED_SHARE * elapsed_s {
                words.push(format!("flow {number} by {what} for {limited_s:.1} s"));
            }
        }
    }
    words
}

/// Flows whose receiver's window could not hold the path's bandwidth-delay product, in words.
fn window_limited(
    options: &Options,
    specs: &[Flow<'_>],
    watched: &[usize],
    flows: &[FlowTotals],
    elapsed_s: f64,
) -> Vec<String> {
    let mut words = Vec::new();
    for (number, flow) in watched.iter().zip(flows) {
        let spec = specs[*number].spec;
        let Some(bdp_bytes) = options.bdp_bytes(spec) else {
            continue;
        };
        // a window that the scenario sets is a limit on purpose
        if let Transport::Tcp { receive_window, .. } = spec.transport
            && receive_window != ReceiveWindow::Unlimited
        {
            continue;
        }
        let Some(window) = flow.last.snd_wnd else {
            continue;
        };
        let small = u64::from(window) < bdp_bytes;
        // many flows share the path, and then a small window holds none of them back
        if small && flow.rwnd_limited_s > LIMITED_SHARE * elapsed_s {
            words.push(format!(
                "the receiver's window of {window} bytes is below the path's bandwidth-delay \
                 product of {bdp_bytes} bytes and held flow {number} back for {:.1} s; let \
                 net.ipv4.tcp_rmem be larger",
                flow.rwnd_limited_s
            ));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_none_can_be_is_told_once_for_each_flow() {
        let record = |flow, cwnd_packets, ssthresh_packets| Record {
            flow,
            cwnd_packets,
            ssthresh_packets,
            ..Record::default()
        };
        let records = [
            record(0, 30.0, None),
            record(1, 30.0, Some(668_121_792.0)), // put right before it was taken
            record(5, 668_121_792.0, Some(668_121_792.0)),
            record(5, 584_606_568.0, Some(584_606_568.0)),
        ];
        let told = astray(&records);
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("flow 5") && told[0].contains("668121792 packets"));
    }
}
