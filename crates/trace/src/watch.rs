//! The summary of a watch, as `pathcast watch --json` prints it.

use serde::Serialize;

/// What was seen of the flows of this machine. A flow is a socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WatchReport {
    /// In the order in which they were found; their numbers are their places.
    pub flows: Vec<WatchedFlow>,
    /// How the records were taken: `tcp_probe`, `sock_diag`, `tcp_info` or `opt_stats`.
    pub method: String,
    /// Why it was not tcp_probe, if that was tried first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_because: Option<String>,
    /// How long the watch lasted, in seconds.
    pub duration_s: f64,
    /// Rows of the trace.
    pub records: u64,
    /// Records that the kernel could not hand over, because they came faster than they were read.
    pub records_lost: u64,
    /// Flows with the right ports and addresses that are in another network namespace, or had
    /// ended before they could be asked for.
    pub flows_elsewhere: u64,
    /// Flows beyond the number that one watch can hold.
    pub flows_left_out: u64,
    /// Processor time of the watch in seconds.
    pub cpu_s: f64,
}

/// One flow that was watched. Counters count from when it was first seen; of a flow that began during
/// the watch, from its beginning.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WatchedFlow {
    /// Address and port at this end.
    pub local: String,
    /// Address and port at the far end.
    pub remote: String,
    /// Congestion control, by the kernel's name; none if not known.
    pub scheme: Option<String>,
    /// The process that held the socket when it was looked for; none if not known.
    pub pid: Option<u32>,
    /// What that process calls itself.
    pub process: Option<String>,
    /// The kernel's number of the socket, unique on the machine.
    pub cookie: u64,
    /// When it was first seen, in seconds of the watch.
    pub first_s: f64,
    /// When something of it last changed.
    pub last_s: f64,
    /// Whether it ended during the watch.
    pub ended: bool,
    /// Its rows in the trace.
    pub records: u64,
    /// Payload bytes acknowledged by the far end.
    pub acked_bytes: u64,
    /// Payload bytes received from the far end; none if not known.
    pub received_bytes: Option<u64>,
    /// Payload bits acknowledged a second, between the first and the last row that tell of any; none
    /// with less than two.
    pub goodput_bps: Option<f64>,
    /// Packets sent again; none if not known.
    pub retransmits: Option<u64>,
    /// The least smoothed round-trip time, in milliseconds.
    pub srtt_min_ms: Option<f64>,
    /// The smoothed round-trip time at which the median byte was acknowledged.
    pub srtt_median_ms: Option<f64>,
    /// The congestion window at which the median byte was acknowledged, in packets.
    pub cwnd_median_packets: Option<f64>,
    /// Payload bytes of a full packet; none if not known.
    pub mss_bytes: Option<u32>,
}
