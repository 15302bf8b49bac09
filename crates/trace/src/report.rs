//! The summary of a run, as `pathcast simulate --json` and `pathcast emulate --json` print it.

use serde::Serialize;

/// What a run did, over its whole duration, slow start included.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// One entry a flow, in the order of their numbers.
    pub flows: Vec<FlowReport>,
    /// Data packets that arrived at the far end of the path.
    pub packets_delivered: u64,
    /// Data packets dropped on the way, by the queue or by loss, over those sent.
    pub loss_rate: f64,
    /// From the sender's device to the receiver's: queue, link and delay.
    pub one_way_delay_ms: OneWayDelay,
    /// Processor time of the run, all threads, in seconds.
    pub cpu_s: f64,
    /// Time that the run took on the wall, in seconds.
    pub wall_s: f64,
    /// Seed of the path's random elements.
    pub seed: u64,
    /// False if the run must not be used; `invalid_because` says why.
    pub valid: bool,
    /// Why the run is not valid; empty if it is.
    pub invalid_because: Vec<String>,
    /// How late the emulator let packets go; the simulator is never late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slip_us: Option<Slip>,
}

/// One flow of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowReport {
    /// Congestion control, by the kernel's name; `udp` for a flow without.
    pub scheme: String,
    /// Payload bits delivered in order to the receiving application, a second from the flow's start
    /// to its completion, or to the end of the run.
    pub goodput_bps: f64,
    /// Packets sent again.
    pub retransmits: u64,
    /// What the application sends: `bulk`, `transfer` and so on.
    pub workload: String,
    /// When the flow began, in seconds of the run.
    pub start_s: f64,
    /// When all that it ever writes had arrived, in seconds of the run; none if that did not happen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_s: Option<f64>,
    /// Payload bytes delivered to the receiving application.
    pub delivered_bytes: u64,
    /// The messages of an application that writes in messages; none for bulk flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessageReport>,
}

/// What became of the messages that an application wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MessageReport {
    /// Messages written: transfers, probes, requests.
    pub written: u64,
    /// Messages that arrived whole; requests that were answered.
    pub delivered: u64,
    /// From writing a message to its arrival as a whole, of those that arrived; of a request to that
    /// of its answer.
    pub latency_ms: Latency,
    /// Where those over TCP spent their time, if that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_split_ms: Option<DelaySplit>,
}

/// Where messages spent their time, from being written to being read: the three parts of each message
/// add up to that. Of requests, that of their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DelaySplit {
    /// From being written until the packet that completed it at the far end entered the network:
    /// waiting for the window and, if a packet was lost, for its repair.
    pub sender_stack: Latency,
    /// That packet's time in the network.
    pub network: Latency,
    /// From then until it was read: waiting for what was written before it, and for the application.
    pub receiver_stack: Latency,
    /// Messages whose last byte waited before it first entered the network, over all: for longer than
    /// the bound on the emulator's slip.
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

/// How late packets left the emulator, in microseconds after they were due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Slip {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The worst packet.
    pub max: f64,
}
