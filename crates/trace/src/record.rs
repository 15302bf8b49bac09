//! The trace in memory: rows and what is known of the run they came from.

use std::collections::BTreeMap;

pub use pathcast_congestion::Mode;
use serde::{Deserialize, Serialize};

/// Version of the schema that this crate writes; it reads all versions up to it.
pub const SCHEMA_VERSION: u32 = 1;

/// Rows that are read of one file: 2 GiB in memory.
pub(crate) const MAX_ROWS: usize = 20_000_000;

/// Rows that a file may have however few bytes it takes: about 100 MB in memory.
pub(crate) const FREE_ROWS: usize = 1 << 20;

/// Where a trace came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The simulator: virtual time, our own TCP.
    Simulator,
    /// The emulator: real time, the kernel's TCP.
    Emulator,
    /// Two hosts and a real path between them: real time, their kernels' TCP.
    Live,
    /// Flows of this machine's processes, watched.
    Watch,
    /// A CSV file of cwnd over time; where it came from is not known.
    Csv,
    /// `iperf3 -J`: one row an interval and stream.
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
    /// Flent's data, with what ss said of sockets.
    Flent,
    /// A test of ndt7: TCP_INFO of its server.
    Ndt7,
}

/// The state of one TCP sender at one moment: after it processed an acknowledgment, or whenever
/// the tool that wrote the trace looked.
///
/// What a source cannot tell is `None`. Counters begin at 0 with the flow and never wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Record {
    /// Seconds since the run began; never decreases within a trace.
    pub time_s: f64,
    /// Which of the run's flows, from 0.
    pub flow: u32,
    /// Congestion window in packets of one MSS.
    pub cwnd_packets: f64,
    /// Slow-start threshold in packets. tcp_probe reports max(ssthresh, 0.75 cwnd) outside recovery.
    pub ssthresh_packets: Option<f64>,
    /// Smoothed round-trip time in seconds.
    pub srtt_s: Option<f64>,
    /// Payload bytes sent at least once.
    pub snd_nxt_bytes: Option<u64>,
    /// Payload bytes acknowledged cumulatively.
    pub snd_una_bytes: Option<u64>,
    /// The receiver's window in bytes.
    pub rwnd_bytes: Option<u64>,
    /// Packets sent again so far.
    pub retransmits: Option<u64>,
    /// Smallest round-trip time in seconds: the controller's if it models one, else the connection's.
    pub min_rtt_s: Option<f64>,
    /// The path's rate as the controller models it, in bit/s of payload.
    pub bandwidth_bps: Option<f64>,
    /// The rate at which the sender paces its packets, in bit/s of payload.
    pub pacing_bps: Option<f64>,
    /// The last delivery rate that the sender measured, in bit/s of payload.
    pub delivery_bps: Option<f64>,
    /// What the controller is doing; `docs/reference/trace-format.md` lists the numbers.
    pub mode: Option<Mode>,
}

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketEvent {
    /// It was offered to the path, for the first time or again.
    Sent = 0,
    /// It arrived at the far end.
    Delivered = 1,
    /// It found the queue full, or the queue discipline dropped it.
    DroppedByQueue = 2,
    /// It was lost on the wire.
    DroppedByLoss = 3,
    /// It arrived with a mark, congestion experienced: beside `Delivered`.
    Marked = 4,
}

/// Which way a packet went, seen from its flow: with the data of a flow that heads in reverse it goes in
/// reverse over the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// As the flow's data.
    #[default]
    Data = 0,
    /// Against it: acknowledgments, requests.
    Back = 1,
}

/// One event of one packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketRecord {
    /// Seconds since the run began.
    pub time_s: f64,
    /// Which of the run's flows, from 0.
    pub flow: u32,
    /// The packet's number within the flow, or, of the kernel's packets, the number of its first
    /// payload byte; the same when it is sent again.
    pub seq: u64,
    /// Its size with all headers.
    pub size_bytes: u32,
    /// What happened.
    pub event: PacketEvent,
    /// From sending to arrival, for packets that arrived.
    pub one_way_delay_s: Option<f64>,
    /// Which way it went.
    pub direction: Direction,
}

/// One message that an application wrote and another one read whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MessageRecord {
    /// Which of the run's flows, from 0.
    pub flow: u32,
    /// Which way it went; against the data go requests.
    pub direction: Direction,
    /// Its number among those of its flow and direction, from 0.
    pub message: u64,
    /// Its size.
    pub bytes: u64,
    /// When the application wrote it, in seconds of the run, as all that follows.
    pub written_s: f64,
    /// When its last byte entered the network for the first time.
    pub entered_s: f64,
    /// When the packet that completed it at the far end entered the network: later, if one was lost.
    pub sent_s: f64,
    /// When that packet left the network.
    pub left_s: f64,
    /// When the application at the far end had read all of it.
    pub read_s: f64,
}

/// What waited for a link at one moment, the packet in transmission not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueRecord {
    /// Seconds since the run began.
    pub time_s: f64,
    /// Which of the run's links, from 0.
    pub link: u32,
    /// Which way: as a scenario's flows go unless they say `reverse`, or against it.
    pub direction: Direction,
    /// Bytes that wait.
    pub backlog_bytes: u64,
}

/// What is known of the run that a trace came from; kept in the Parquet file's metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metadata {
    /// Version of the schema.
    pub schema: u32,
    /// Which world the run was in.
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
    /// The scenario file of a run of more than bulk flows over one path, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario_toml: Option<String>,
    /// Seed of the path's random elements.
    #[serde(default)]
    pub seed: Option<u64>,
    /// False if the run must not be used: the emulator slipped, or records were lost.
    #[serde(default = "yes")]
    pub valid: bool,
    /// Versions, kernel, machine load and whatever else helps to repeat the run.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

fn yes() -> bool {
    true
}

impl Metadata {
    /// Metadata of a trace of which only its source is known.
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

/// Records in the order of their times, and the run they came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// What is known of the run.
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

    /// Lets counters that wrap at 2^32, as TCP's sequence numbers do, go on counting.
    ///
    /// A counter wraps where it falls by more than 2^31; one that has a value of more than 32 bits is no
    /// such counter and is left as it is. Falls by less are left as well: models refuse them by name.
    pub fn unwrap_counters(&mut self) {
        let counters: [fn(&mut Record) -> &mut Option<u64>; 2] =
            [|row| &mut row.snd_nxt_bytes, |row| &mut row.snd_una_bytes];
        for counter in counters {
            if (self.records.iter_mut())
                .any(|row| counter(row).is_some_and(|v| v > u32::MAX.into()))
            {
                continue;
            }
            // by flow: the last value as it stood, and what to add
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
