//! The summary of a run, as `pathcast simulate --json` and `pathcast emulate --json` print it.

use pathcast_video::SessionReport;
use serde::Serialize;

/// The results of a run over its whole duration, slow start included.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// One entry per flow, ordered by flow number.
    pub flows: Vec<FlowReport>,
    /// Pages that were loaded, in the order of their flows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<PageReport>,
    /// What became of the data packets of each table of flows, in their order; empty if there is one
    /// table, or more than [`Groups::MOST`](crate::Groups::MOST).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupReport>,
    /// Data packets that arrived at the far end of the path.
    pub packets_delivered: u64,
    /// Share of data packets that the queue or random loss dropped.
    pub loss_rate: f64,
    /// From the sender's device to the receiver's: queue, link and delay.
    pub one_way_delay_ms: OneWayDelay,
    /// Processor time of the run in seconds, over all threads.
    pub cpu_s: f64,
    /// Wall-clock time of the run in seconds.
    pub wall_s: f64,
    /// Seed of the path's random elements.
    pub seed: u64,
    /// False if the run must not be used; `invalid_because` says why.
    pub valid: bool,
    /// Why the run is not valid; empty if it is.
    pub invalid_because: Vec<String>,
    /// How late the emulator forwarded packets; the simulator is never late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slip_us: Option<Slip>,
}

impl RunReport {
    /// The table that flow number `flow` is of; where tables are not counted apart, the whole run.
    pub fn group_of(&self, flow: u32) -> GroupReport {
        let mut after = 0;
        let found = self.groups.iter().find(|group| {
            after += group.flows;
            flow < after
        });
        found.copied().unwrap_or(GroupReport {
            flows: self.flows.len() as u32,
            packets_delivered: self.packets_delivered,
            loss_rate: self.loss_rate,
            one_way_delay_ms: self.one_way_delay_ms,
        })
    }
}

/// The data packets of one table of flows, `[[flows]]` in a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GroupReport {
    /// How many flows it has.
    pub flows: u32,
    /// Data packets that arrived at the far end of their route.
    pub packets_delivered: u64,
    /// Share of data packets that were dropped.
    pub loss_rate: f64,
    /// As in the run's report.
    pub one_way_delay_ms: OneWayDelay,
}

/// One flow of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowReport {
    /// Congestion control, by the kernel's name; `udp` for a flow without congestion control.
    pub scheme: String,
    /// Payload bits per second delivered in order to the receiving application. Counted from the
    /// flow's start to its completion, or to the end of the run.
    pub goodput_bps: f64,
    /// Retransmitted packets.
    pub retransmits: u64,
    /// What the application sends: `bulk`, `transfer` and so on.
    pub workload: String,
    /// When the flow began, in seconds since the run began.
    pub start_s: f64,
    /// When all of its data had arrived, in seconds since the run began; none if that did not
    /// happen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_s: Option<f64>,
    /// Payload bytes delivered to the receiving application.
    pub delivered_bytes: u64,
    /// The messages of an application that writes messages; none for bulk flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessageReport>,
    /// The session of an adaptive video.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video: Option<SessionReport>,
}

/// One load of a page.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PageReport {
    /// The page's name.
    pub name: String,
    /// `http/1.1`, `h2` or `h3`.
    pub protocol: String,
    /// The flow of its first connection; those of the others follow.
    pub first_flow: u32,
    /// Connections that were opened.
    pub connections: u32,
    /// When the load began, in seconds since the run began.
    pub start_s: f64,
    /// From then to the first byte of the first resource; none if it did not come.
    pub first_byte_ms: Option<f64>,
    /// From the beginning to the load event; none if the run ended before.
    pub load_ms: Option<f64>,
    /// In the page's order.
    pub resources: Vec<ResourceReport>,
}

impl PageReport {
    /// Adds the next resource: its id; when it was wanted, asked for, began to come and had come, in milliseconds since
    /// the load began; the flow that it came over.
    pub fn push(&mut self, id: &str, steps_ms: [Option<f64>; 4], flow: Option<u32>) {
        let [wanted_ms, asked_ms, first_byte_ms, finished_ms] = steps_ms;
        if self.resources.is_empty() {
            self.first_byte_ms = first_byte_ms;
        }
        self.resources.push(ResourceReport {
            id: id.to_string(),
            wanted_ms,
            asked_ms,
            first_byte_ms,
            finished_ms,
            flow,
        });
    }
}

/// When the browser fetched a resource, step by step, in milliseconds since the load began; none: it did not.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ResourceReport {
    /// Its id in the page.
    pub id: String,
    /// The browser wanted it.
    pub wanted_ms: Option<f64>,
    /// The request was written.
    pub asked_ms: Option<f64>,
    /// The first bytes of the response came.
    pub first_byte_ms: Option<f64>,
    /// The last ones came.
    pub finished_ms: Option<f64>,
    /// The flow that it came over.
    pub flow: Option<u32>,
}

/// The fate of the messages that an application wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MessageReport {
    /// Messages written: transfers, probes, requests.
    pub written: u64,
    /// Messages that arrived completely; of requests, those that were answered.
    pub delivered: u64,
    /// From writing a message to its complete arrival, for those that arrived. For a request, to
    /// the arrival of its response.
    pub latency_ms: Latency,
    /// Where messages over TCP spent their time, if measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_split_ms: Option<DelaySplit>,
}

/// Where messages spent their time from write to read. The three parts of each message add up to
/// the whole. For requests, this describes the responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DelaySplit {
    /// From the write until the packet that completed the message entered the network: waiting for
    /// the window and, after a loss, for the repair.
    pub sender_stack: Latency,
    /// That packet's time in the network.
    pub network: Latency,
    /// From then until the read: waiting for earlier data, and for the application.
    pub receiver_stack: Latency,
    /// Share of messages whose last byte waited before it first entered the network. Waiting counts
    /// if it exceeds the emulator's slip bound.
    pub buffered_fraction: f64,
}

/// How long messages took, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// One-way delay of the data packets that arrived, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OneWayDelay {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
}

/// How late packets left the emulator, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Slip {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The worst packet.
    pub max: f64,
}
