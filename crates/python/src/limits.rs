//! What limits the flows of a trace.

use pathcast_analysis::limits::{LimitOptions, LimitRecord, LimitTracker};
use pathcast_trace::Record;
use pyo3::prelude::*;

use crate::trace::Trace;

/// Payload of a full packet where a trace does not say it.
const MSS_BYTES: u32 = 1448;

fn limit_record(row: &Record, mss_bytes: f64) -> LimitRecord {
    let packets = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / mss_bytes);
    LimitRecord {
        time_s: row.time_s,
        cwnd_packets: row.cwnd_packets,
        srtt_s: row.srtt_s,
        min_rtt_s: row.min_rtt_s,
        snd_nxt_packets: packets(row.snd_nxt_bytes),
        snd_una_packets: packets(row.snd_una_bytes),
        rwnd_packets: packets(row.rwnd_bytes),
        retransmits: row.retransmits.map(|count| count as f64),
    }
}

/// What limits one flow of a trace, by its records up to `until_s`; JSON, `null` if it has too few.
#[pyfunction]
#[pyo3(signature = (trace, flow, is_paced, until_s=f64::INFINITY))]
pub fn limits(py: Python<'_>, trace: &Trace, flow: u32, is_paced: bool, until_s: f64) -> String {
    py.detach(|| {
        let mss_bytes = f64::from(trace.0.metadata.mss_bytes.unwrap_or(MSS_BYTES));
        let mut tracker = LimitTracker::new(LimitOptions { is_paced });
        for row in trace.0.flow(flow).take_while(|row| row.time_s <= until_s) {
            tracker.observe(&limit_record(row, mss_bytes));
        }
        serde_json::to_string(&tracker.limits()).expect("plain data")
    })
}
