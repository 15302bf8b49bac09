//! What both hosts saw, put together on one clock.

use std::collections::BTreeMap;
use std::time::Instant;

use pathcast_path::End;
use pathcast_scenario::Scenario;
use pathcast_trace::{
    FlowReport, MessageRecord, MessageReport, Metadata, PacketRecord, Record, RunReport, Source,
    Trace,
};
use serde::Serialize;

use crate::client::RunOptions;
use crate::clock::{Clock, Sample};
use crate::control::Results;
use crate::endpoints::Arrival;
use crate::log::{Rows, histogram, merge};
use crate::messages::split;
use crate::plan::{CLIENT, SERVER, Task};
use crate::tunnel::TunnelReport;

/// What one host saw.
pub(crate) struct Share {
    pub(crate) results: Results,
    pub(crate) rows: Rows,
    /// Times count from `begin_ns`.
    pub(crate) records: Vec<Record>,
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) environment: BTreeMap<String, String>,
    /// When the run began, by its clock.
    pub(crate) begin_ns: u64,
}

/// What both hosts saw.
pub(crate) struct Findings {
    /// By the client's clock.
    pub(crate) begin_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) samples: Vec<Sample>,
    pub(crate) client: Share,
    pub(crate) server: Share,
}

/// The report of a run between two hosts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveReport {
    /// As of any run.
    #[serde(flatten)]
    pub run: RunReport,
    /// The server's clock against the client's, on which all one-way delays rest.
    pub clock: Clock,
    /// What the other host is: kernel, load, version.
    pub server: BTreeMap<String, String>,
    /// Share of the data packets that arrived which did so after one that was sent later (RFC 4737).
    pub reordered_rate: f64,
    /// What was missing that helps, on either host.
    pub refused: Vec<String>,
}

/// Times of the run, in seconds, by the clocks of both hosts.
#[derive(Clone, Copy)]
struct Timeline {
    clock: Clock,
    begin_ns: u64,
    /// What the server's clock showed when the run began.
    server_begin_ns: i128,
}

impl Timeline {
    fn new(clock: Clock, begin_ns: u64) -> Self {
        Self {
            clock,
            begin_ns,
            server_begin_ns: i128::from(begin_ns) + (clock.offset_s * 1e9).round() as i128,
        }
    }

    fn seconds(&self, side: End, at_ns: u64) -> f64 {
        match side {
            CLIENT => (i128::from(at_ns) - i128::from(self.begin_ns)) as f64 * 1e-9,
            SERVER => {
                let since_s = (i128::from(at_ns) - self.server_begin_ns) as f64 * 1e-9;
                // offset_at(t) grows by the drift
                since_s - (self.clock.offset_at(since_s) - self.clock.offset_s)
            }
        }
    }

    /// When a write was made, and when it had arrived.
    fn of_arrival(&self, tasks: &[Task], arrival: &Arrival) -> (f64, f64) {
        let task = tasks.get(arrival.flow as usize);
        let (from, to) = match task.is_some_and(|task| task.sends) {
            true => (CLIENT, SERVER),
            false => (SERVER, CLIENT),
        };
        (
            self.seconds(from, arrival.written_ns),
            self.seconds(to, arrival.arrived_ns),
        )
    }
}

/// What a run leaves behind.
pub(crate) struct Conclusion {
    pub(crate) report: LiveReport,
    pub(crate) trace: Trace,
    pub(crate) packets: Vec<PacketRecord>,
    pub(crate) messages: Vec<MessageRecord>,
}

/// The report, the trace, every packet and every message of a run.
pub(crate) fn conclude(
    options: &RunOptions,
    scenario: &Scenario,
    findings: Findings,
    tunnel: &TunnelReport,
    wall: Instant,
) -> Conclusion {
    let Findings {
        begin_ns,
        ended_ns,
        samples,
        client,
        server,
    } = findings;
    let clock = Clock::estimate(&samples, begin_ns);
    let elapsed_s = ended_ns.saturating_sub(begin_ns) as f64 * 1e-9;
    let invalid_because = doubts(clock.as_ref(), &client, &server);
    let clock = clock.unwrap_or_default();
    let time = Timeline::new(clock, begin_ns);
    let of = |side| move |at_ns| time.seconds(side, at_ns);
    let (to, from) = (of(CLIENT), of(SERVER));
    let forward = merge(
        &client.rows.sent,
        &server.rows.received,
        to,
        from,
        elapsed_s,
    );
    let reverse = merge(
        &server.rows.sent,
        &client.rows.received,
        from,
        to,
        elapsed_s,
    );

    let tasks = options.tasks(scenario);
    let passages = forward.passages.iter().chain(&reverse.passages);
    let arrivals = client.arrivals.iter().chain(&server.arrivals);
    let times = |arrival: &Arrival| time.of_arrival(&tasks, arrival);
    let (messages, mut splits) = split(&tasks, passages, arrivals, times);
    let flows = tasks.iter().map(|task| {
        let (here, there) = match task.sends {
            true => ((CLIENT, &client), (SERVER, &server)),
            false => ((SERVER, &server), (CLIENT, &client)),
        };
        let mut report = flow_report(task, here, there, &time, elapsed_s);
        if let Some(messages) = &mut report.messages {
            messages.delay_split_ms = splits.remove(&task.number);
        }
        report
    });
    let (sent, delivered) = (
        forward.data.0 + reverse.data.0,
        forward.data.1 + reverse.data.1,
    );
    let overtaken = forward.overtaken + reverse.overtaken;
    let delays = [forward.delays, reverse.delays].concat();
    let run = RunReport {
        flows: flows.collect(),
        pages: Vec::new(),
        groups: Vec::new(),
        packets_delivered: delivered,
        loss_rate: sent.saturating_sub(delivered) as f64 / sent.max(1) as f64,
        one_way_delay_ms: histogram(&delays).one_way_delay_ms(),
        cpu_s: client.results.cpu_s + tunnel.cpu_s,
        wall_s: wall.elapsed().as_secs_f64(),
        seed: options.seed,
        valid: invalid_because.is_empty(),
        invalid_because,
        slip_us: None,
    };
    let mut packets = forward.records;
    packets.extend(reverse.records);
    packets.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
    let metadata = metadata(
        options,
        scenario,
        &run,
        &clock,
        [&client, &server],
        tunnel.strange,
    );
    let report = LiveReport {
        run,
        clock,
        server: server.environment.clone(),
        reordered_rate: overtaken as f64 / (delays.len() as f64).max(1.0),
        refused: refused(tunnel, &client, &server),
    };
    let records = records(client, server, &time, tasks.len());
    Conclusion {
        report,
        trace: Trace { metadata, records },
        packets,
        messages,
    }
}

/// Why the run cannot be trusted.
fn doubts(clock: Option<&Clock>, client: &Share, server: &Share) -> Vec<String> {
    let mut doubts = Vec::new();
    for (who, share) in [("client", client), ("server", server)] {
        let because = share.results.invalid_because.iter();
        doubts.extend(because.map(|why| format!("{who}: {why}")));
    }
    match clock {
        None => doubts.push("the server did not tell the time: no delay is known".into()),
        Some(clock) if !clock.is_even() => doubts.push(format!(
            "the hosts' clocks do not drift evenly, or the path has changed: offsets lie {:.0} us off a line",
            clock.jitter_s * 1e6
        )),
        Some(_) => {}
    }
    doubts
}

/// What was missing that helps.
fn refused(tunnel: &TunnelReport, client: &Share, server: &Share) -> Vec<String> {
    let mut refused: Vec<String> = Vec::new();
    let no_fifo = tunnel.fifo_refused.iter();
    refused.extend(no_fifo.map(|why| format!("client: no real-time priority: {why}")));
    for (who, share) in [("client", client), ("server", server)] {
        let reasons = share.results.refused.iter();
        refused.extend(reasons.map(|why| format!("{who}: {why}")));
    }
    refused.dedup();
    refused
}

/// The flow's data goes from `here` to `there`.
fn flow_report(
    task: &Task,
    (here_side, here): (End, &Share),
    (there_side, there): (End, &Share),
    time: &Timeline,
    elapsed_s: f64,
) -> FlowReport {
    let flow = task.number as usize;
    let endpoint = |share: &Share| {
        share
            .results
            .endpoints
            .get(flow)
            .copied()
            .unwrap_or_default()
    };
    let (source, sink) = (endpoint(here), endpoint(there));
    let asks = task.spec.workload.asks();
    let start_s = task.start.as_secs();
    let completed_s = sink.ended_ns.map(|at_ns| time.seconds(there_side, at_ns));
    let span_s = completed_s.unwrap_or(elapsed_s) - start_s;
    // who asks notes its answers by its own clock
    let written_by = if asks { there_side } else { here_side };
    let latencies: Vec<f64> = there
        .arrivals
        .iter()
        .filter(|arrival| arrival.flow == task.number)
        .map(|arrival| {
            time.seconds(there_side, arrival.arrived_ns)
                - time.seconds(written_by, arrival.written_ns)
        })
        .collect();
    let messages = MessageReport {
        written: if asks { sink.written } else { source.written },
        delivered: latencies.len() as u64,
        latency_ms: histogram(&latencies).latency_ms(),
        delay_split_ms: None, // packets know it
    };
    FlowReport {
        scheme: task.scheme().to_string(),
        goodput_bps: match span_s > 0.0 {
            true => sink.arrived_bytes as f64 * 8.0 / span_s,
            false => 0.0,
        },
        retransmits: here
            .results
            .senders
            .get(&task.number)
            .map_or(0, |sender| sender.retransmits),
        workload: task.spec.workload.kind().to_string(),
        start_s,
        completed_s,
        delivered_bytes: sink.arrived_bytes,
        messages: (!task.spec.workload.is_greedy()).then_some(messages),
        video: None, // the client knows it
    }
}

fn metadata(
    options: &RunOptions,
    scenario: &Scenario,
    run: &RunReport,
    clock: &Clock,
    [client, server]: [&Share; 2],
    strange: u64,
) -> Metadata {
    let began_ns = client.begin_ns;
    let mut environment = client.environment.clone();
    for (key, value) in &server.environment {
        // limit the length, whatever the other host sends
        let value: String = value.chars().take(200).collect();
        if key.len() < 40 && environment.len() < 40 {
            environment.insert(format!("server_{key}"), value);
        }
    }
    let (host, port) = &options.server;
    for (key, value) in [
        ("server", format!("{host} port {port}")),
        ("measured_by", client.results.measured_by.clone()),
        (
            "server_measured_by",
            server.results.measured_by.chars().take(20).collect(),
        ),
        ("began_ns", began_ns.to_string()),
        ("clock_offset_s", format!("{:.9}", clock.offset_s)),
        ("clock_error_s", format!("{:.9}", clock.error_s)),
        ("clock_jitter_s", format!("{:.9}", clock.jitter_s)),
        ("clock_drift_ppm", format!("{:.3}", clock.drift_ppm)),
        ("strange_datagrams", strange.to_string()),
    ] {
        environment.insert(key.into(), value);
    }
    let mut senders = client
        .results
        .senders
        .values()
        .chain(server.results.senders.values());
    Metadata {
        schemes: run.flows.iter().map(|flow| flow.scheme.clone()).collect(),
        scenario_toml: Some(scenario.to_toml()),
        seed: Some(options.seed),
        mss_bytes: senders.next().map(|sender| sender.mss_bytes),
        valid: run.valid,
        environment,
        ..Metadata::new(Source::Live)
    }
}

/// The rows of both hosts' senders, in the order of their times.
fn records(client: Share, server: Share, time: &Timeline, flows: usize) -> Vec<Record> {
    let server_begin_s = time.seconds(SERVER, server.begin_ns);
    let mut records = client.records;
    records.extend(server.records.into_iter().map(|record| Record {
        time_s: record.time_s + server_begin_s,
        ..record
    }));
    records.retain(|record| (record.flow as usize) < flows);
    records.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
    records
}
