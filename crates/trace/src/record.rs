//! The trace in memory: rows, and the metadata of their run.

use std::collections::BTreeMap;

pub use pathcast_congestion::Mode;
use serde::{Deserialize, Serialize};

/// Version of the schema that this crate writes; it reads all versions up to it.
pub const SCHEMA_VERSION: u32 = 1;

/// Most rows read from one file: 2 GiB in memory.
pub(crate) const MAX_ROWS: usize = 20_000_000;

/// Rows that a file may have regardless of its size: about 100 MB in memory.
pub(crate) const FREE_ROWS: usize = 1 << 20;

/// Where a trace came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The simulator: virtual time, the project's own TCP.
    Simulator,
    /// The emulator: real time, the kernel's TCP.
    Emulator,
    /// Two hosts and a real path between them: real time, their kernels' TCP.
    Live,
    /// Watched flows of this machine's processes.
    Watch,
    /// A CSV file of cwnd over time, of unknown origin.
    Csv,
    /// `iperf3 -J`: one row per interval and stream.
    Iperf3,
    /// The kernel's tcp_probe as text.
    TcpProbe,
    /// `ss -tin`, repeated.
    Ss,
    /// A packet capture; windows are inferred.
    Pcap,
    /// The qlog of a QUIC endpoint.
    Qlog,
    /// The log of a mahimahi link: packets, no windows.
    Mahimahi,
    /// The log of a Pantheon tunnel; windows are inferred.
    Pantheon,
    /// Flent's data, with socket statistics from ss.
    Flent,
    /// A test of ndt7: TCP_INFO of its server.
    Ndt7,
}

/// The state of one TCP sender at one moment: after it processed an acknowledgment, or when the
/// tool that wrote the trace sampled it.
///
/// Values that a source does not report are `None`. Counters begin at 0 with the flow and never
/// wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Record {
    /// Seconds since the run began; never decreases within a trace.
    pub time_s: f64,
    /// Number of the flow within the run, from 0.
    pub flow: u32,
    /// Congestion window in packets of one MSS.
    pub cwnd_packets: f64,
    /// Slow-start threshold in packets. Outside recovery, tcp_probe reports max(ssthresh, 0.75
    /// cwnd).
    pub ssthresh_packets: Option<f64>,
    /// Smoothed round-trip time in seconds.
    pub srtt_s: Option<f64>,
    /// Payload bytes sent at least once.
    pub snd_nxt_bytes: Option<u64>,
    /// Payload bytes acknowledged cumulatively.
    pub snd_una_bytes: Option<u64>,
    /// The receiver's window in bytes.
    pub rwnd_bytes: Option<u64>,
    /// Packets retransmitted so far.
    pub retransmits: Option<u64>,
    /// Smallest round-trip time in seconds: the controller's if it models one, else the
    /// connection's.
    pub min_rtt_s: Option<f64>,
    /// The path's rate as the controller models it, in bit/s of payload.
    pub bandwidth_bps: Option<f64>,
    /// The rate at which the sender paces its packets, in bit/s of payload.
    pub pacing_bps: Option<f64>,
    /// The last delivery rate that the sender measured, in bit/s of payload.
    pub delivery_bps: Option<f64>,
    /// The controller's phase; `docs/reference/trace-format.md` lists the numbers.
    pub mode: Option<Mode>,
}

/// An event of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketEvent {
    /// The sender offered it to the path, for the first time or again.
    Sent = 0,
    /// It arrived at the far end.
    Delivered = 1,
    /// The queue was full, or the queue discipline dropped it.
    DroppedByQueue = 2,
    /// It was lost on the wire.
    DroppedByLoss = 3,
    /// It arrived with the mark Congestion Experienced; recorded in addition to `Delivered`.
    Marked = 4,
}

/// The direction of a packet relative to its flow. The data of a flow in reverse direction travels
/// in reverse over the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// Same direction as the flow's data.
    #[default]
    Data = 0,
    /// Opposite to the data: acknowledgments, requests.
    Back = 1,
}

/// One event of one packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketRecord {
    /// Seconds since the run began.
    pub time_s: f64,
    /// Number of the flow within the run, from 0.
    pub flow: u32,
    /// The packet's number within the flow or, for kernel packets, the number of its first payload
    /// byte. A retransmission keeps the number.
    pub seq: u64,
    /// Its size including all headers.
    pub size_bytes: u32,
    /// What happened.
    pub event: PacketEvent,
    /// From sending to arrival, for packets that arrived.
    pub one_way_delay_s: Option<f64>,
    /// The direction of the packet.
    pub direction: Direction,
}

/// One message that an application wrote and its peer read completely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MessageRecord {
    /// Number of the flow within the run, from 0.
    pub flow: u32,
    /// The direction of the message. Requests travel opposite to data.
    pub direction: Direction,
    /// Number of the message within its flow and direction, from 0.
    pub message: u64,
    /// Its size.
    pub bytes: u64,
    /// When the application wrote it. This and the following times are in seconds since the run
    /// began.
    pub written_s: f64,
    /// When its last byte entered the network for the first time.
    pub entered_s: f64,
    /// When the packet that completed it at the receiver entered the network. This is later if a
    /// packet was lost.
    pub sent_s: f64,
    /// When that packet left the network.
    pub left_s: f64,
    /// When the receiving application had read all of it.
    pub read_s: f64,
}

/// The backlog of a link at one moment, without the packet in transmission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueRecord {
    /// Seconds since the run began.
    pub time_s: f64,
    /// Number of the link within the run, from 0.
    pub link: u32,
    /// Direction of the backlog: forward, as a scenario's flows run unless they say `reverse`, or
    /// the opposite.
    pub direction: Direction,
    /// Waiting bytes.
    pub backlog_bytes: u64,
}

/// The metadata of a trace's run, stored in the Parquet file's metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metadata {
    /// Version of the schema.
    pub schema: u32,
    /// The backend or tool that produced the trace.
    pub source: Source,
    /// Congestion control of each flow, by the kernel's name (`cubic`, `reno`); empty if not known.
    #[serde(default)]
    pub schemes: Vec<String>,
    /// Payload bytes of a full packet; none if not known.
    #[serde(default)]
    pub mss_bytes: Option<u32>,
    /// The path file of the run, with all defaults written out.
    #[serde(default)]
    pub path_toml: Option<String>,
    /// The scenario file of the run, with all defaults written out. Runs of only bulk flows over
    /// one path have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario_toml: Option<String>,
    /// Seed of the path's random elements.
    #[serde(default)]
    pub seed: Option<u64>,
    /// False if the run must not be used: the emulator was late, or records were lost.
    #[serde(default = "yes")]
    pub valid: bool,
    /// Versions, kernel, machine load and other information for repeating the run.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

fn yes() -> bool {
    true
}

impl Metadata {
    /// Returns the metadata of a trace for which only the source is known.
    pub fn new(source: Source) -> Self {
        Self {
            schema: SCHEMA_VERSION,
            source,
            schemes: Vec::new(),
            mss_bytes: None,
            path_toml: None,
            scenario_toml: None,
            seed: None,
            valid: true,
            environment: BTreeMap::new(),
        }
    }
}

/// Records in time order, and the run they came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The metadata of the run.
    pub metadata: Metadata,
    /// Rows, ordered by time.
    pub records: Vec<Record>,
}

impl Trace {
    /// The rows of one flow, in order.
    pub fn flow(&self, flow: u32) -> impl Iterator<Item = &Record> {
        self.records
            .iter()
            .filter(move |record| record.flow == flow)
    }

    /// Extends counters that wrap at 2^32, such as TCP's sequence numbers.
    ///
    /// A counter wraps where it falls by more than 2^31. A counter with a value above 32 bits does
    /// not wrap and stays unchanged. Smaller falls also stay: models refuse them with an error.
    pub fn unwrap_counters(&mut self) {
        let counters: [fn(&mut Record) -> &mut Option<u64>; 2] =
            [|row| &mut row.snd_nxt_bytes, |row| &mut row.snd_una_bytes];
        for counter in counters {
            if (self.records.iter_mut())
                .any(|row| counter(row).is_some_and(|v| v > u32::MAX.into()))
            {
                continue;
            }
            // by flow: the last raw value, and the offset to add
            let mut last: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
            for row in &mut self.records {
                let flow = row.flow;
                if let Some(value) = counter(row) {
                    let (before, add) = last.entry(flow).or_insert((*value, 0));
                    if before.saturating_sub(*value) > 1 << 31 {
                        *add += 1 << 32;
                    } else if value.saturating_sub(*before) > 1 << 31 && *add > 0 {
                        // a late row from before the wrap
                        *add -= 1 << 32;
                    }
                    *before = *value;
                    *value += *add;
                }
            }
        }
    }

    /// The flows that have rows, ascending.
    pub fn flows(&self) -> Vec<u32> {
        let mut flows: Vec<u32> = self.records.iter().map(|record| record.flow).collect();
        flows.sort_unstable();
        flows.dedup();
        flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unwrapped(rows: &[(u32, u64)]) -> Vec<u64> {
        let record = |&(flow, bytes): &(u32, u64)| Record {
            flow,
            snd_nxt_bytes: Some(bytes),
            ..Record::default()
        };
        let mut trace = Trace {
            metadata: Metadata::new(Source::Csv),
            records: rows.iter().map(record).collect(),
        };
        trace.unwrap_counters();
        let counters = trace.records.iter().filter_map(|row| row.snd_nxt_bytes);
        counters.collect()
    }

    #[test]
    fn counters_go_on_past_32_bits_each_flow_by_itself() {
        const WRAP: u64 = 1 << 32;
        let rows = [
            (0, WRAP - 10),
            (1, 100),
            (0, 5),
            (0, WRAP - 2), // late, from before the wrap
            (0, 20),
            (1, 200),
            (0, WRAP - 5 - (1 << 31)),
            (0, WRAP - 5),
            (0, 7),
        ];
        let wanted = [
            WRAP - 10,
            100,
            WRAP + 5,
            WRAP - 2,
            WRAP + 20,
            200,
            WRAP + WRAP - 5 - (1 << 31),
            WRAP + WRAP - 5,
            2 * WRAP + 7,
        ];
        assert_eq!(unwrapped(&rows), wanted);
    }

    #[test]
    fn other_counters_are_left_as_they_are() {
        for rows in [
            [(0, 5_000_000_000), (0, 100), (0, 200)],
            [(0, 2_000_000_000), (0, 1_000_000_000), (0, 3_000_000_000)],
        ] {
            assert_eq!(unwrapped(&rows), rows.map(|row| row.1));
        }
    }
}
