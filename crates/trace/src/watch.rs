//! The summary of a watch, as `pathcast watch --json` prints it.

use serde::Serialize;

/// What was observed of this machine's flows. A flow is a socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WatchReport {
    /// The flows in the order of discovery; a flow's number is its position.
    pub flows: Vec<WatchedFlow>,
    /// How records were taken: `tcp_probe`, `sock_diag`, `tcp_info` or `opt_stats`.
    pub method: String,
    /// Why tcp_probe was not used, if it was tried first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_because: Option<String>,
    /// Duration of the watch in seconds.
    pub duration_s: f64,
    /// Rows of the trace.
    pub records: u64,
    /// Records that the kernel discarded because they came faster than they were read.
    pub records_lost: u64,
    /// Flows with matching ports and addresses that are in another network namespace, or ended
    /// before their sockets could be queried.
    pub flows_elsewhere: u64,
    /// Flows beyond the number that one watch can hold.
    pub flows_left_out: u64,
    /// Processor time of the watch in seconds.
    pub cpu_s: f64,
}

/// One watched flow. Counters start when the flow is first seen; for a flow that began during the
/// watch, at its beginning.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WatchedFlow {
    /// Local address and port.
    pub local: String,
    /// Remote address and port.
    pub remote: String,
    /// Congestion control, by the kernel's name; none if not known.
    pub scheme: Option<String>,
    /// The process that held the socket at the time of the lookup; none if not known.
    pub pid: Option<u32>,
    /// The name of that process.
    pub process: Option<String>,
    /// The kernel's socket cookie, unique on the machine.
    pub cookie: u64,
    /// When it was first seen, in seconds since the watch began.
    pub first_s: f64,
    /// When one of its values last changed.
    pub last_s: f64,
    /// Whether it ended during the watch.
    pub ended: bool,
    /// Its rows in the trace.
    pub records: u64,
    /// Payload bytes that the far end acknowledged.
    pub acked_bytes: u64,
    /// Payload bytes received from the far end; none if not known.
    pub received_bytes: Option<u64>,
    /// Payload bits acknowledged per second, between the first and the last row with such a count.
    /// None with fewer than two rows.
    pub goodput_bps: Option<f64>,
    /// Retransmitted packets; none if not known.
    pub retransmits: Option<u64>,
    /// The smallest smoothed round-trip time, in milliseconds.
    pub srtt_min_ms: Option<f64>,
    /// The smoothed round-trip time at which the median byte was acknowledged.
    pub srtt_median_ms: Option<f64>,
    /// The congestion window at which the median byte was acknowledged, in packets.
    pub cwnd_median_packets: Option<f64>,
    /// Payload bytes of a full packet; none if not known.
    pub mss_bytes: Option<u32>,
}
