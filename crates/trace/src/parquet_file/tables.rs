//! The columns of the project's tables, and the key of their metadata.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, UInt8Array, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema};

use crate::record::{MessageRecord, PacketRecord, QueueRecord, Record};

/// Key of the JSON metadata in the Parquet footer.
pub(super) const METADATA_KEY: &str = "pathcast";

/// A row of one of the project's tables.
pub trait Row: Sized {
    /// The table's columns.
    fn schema() -> Schema;
    /// Converts rows to columns, in the schema's order.
    fn columns(rows: &[Self]) -> Vec<ArrayRef>;
}

/// Converts one column of `rows` to the type of the tables.
fn floats<R>(rows: &[R], of: impl Fn(&R) -> Option<f64>) -> ArrayRef {
    Arc::new(rows.iter().map(of).collect::<Float64Array>())
}

fn counts<R>(rows: &[R], of: impl Fn(&R) -> Option<u64>) -> ArrayRef {
    Arc::new(rows.iter().map(of).collect::<UInt64Array>())
}

fn numbers<R>(rows: &[R], of: impl Fn(&R) -> u32) -> ArrayRef {
    let numbers = rows.iter().map(|row| Some(of(row)));
    Arc::new(numbers.collect::<UInt32Array>())
}

fn codes<R>(rows: &[R], of: impl Fn(&R) -> Option<u8>) -> ArrayRef {
    Arc::new(rows.iter().map(of).collect::<UInt8Array>())
}

impl Row for Record {
    fn schema() -> Schema {
        use DataType::{Float64, UInt8, UInt32, UInt64};
        Schema::new(vec![
            Field::new("time_s", Float64, false),
            Field::new("flow", UInt32, false),
            Field::new("cwnd_packets", Float64, false),
            Field::new("ssthresh_packets", Float64, true),
            Field::new("srtt_s", Float64, true),
            Field::new("snd_nxt_bytes", UInt64, true),
            Field::new("snd_una_bytes", UInt64, true),
            Field::new("rwnd_bytes", UInt64, true),
            Field::new("retransmits", UInt64, true),
            Field::new("min_rtt_s", Float64, true),
            Field::new("bandwidth_bps", Float64, true),
            Field::new("pacing_bps", Float64, true),
            Field::new("delivery_bps", Float64, true),
            Field::new("mode", UInt8, true),
        ])
    }

    fn columns(rows: &[Self]) -> Vec<ArrayRef> {
        vec![
            floats(rows, |r| Some(r.time_s)),
            numbers(rows, |r| r.flow),
            floats(rows, |r| Some(r.cwnd_packets)),
            floats(rows, |r| r.ssthresh_packets),
            floats(rows, |r| r.srtt_s),
            counts(rows, |r| r.snd_nxt_bytes),
            counts(rows, |r| r.snd_una_bytes),
            counts(rows, |r| r.rwnd_bytes),
            counts(rows, |r| r.retransmits),
            floats(rows, |r| r.min_rtt_s),
            floats(rows, |r| r.bandwidth_bps),
            floats(rows, |r| r.pacing_bps),
            floats(rows, |r| r.delivery_bps),
            codes(rows, |r| r.mode.map(|mode| mode as u8)),
        ]
    }
}

impl Row for PacketRecord {
    fn schema() -> Schema {
        use DataType::{Float64, UInt8, UInt32, UInt64};
        Schema::new(vec![
            Field::new("time_s", Float64, false),
            Field::new("flow", UInt32, false),
            Field::new("seq", UInt64, false),
            Field::new("size_bytes", UInt32, false),
            Field::new("event", UInt8, false),
            Field::new("one_way_delay_s", Float64, true),
            Field::new("direction", UInt8, false),
        ])
    }

    fn columns(rows: &[Self]) -> Vec<ArrayRef> {
        vec![
            floats(rows, |r| Some(r.time_s)),
            numbers(rows, |r| r.flow),
            counts(rows, |r| Some(r.seq)),
            numbers(rows, |r| r.size_bytes),
            codes(rows, |r| Some(r.event as u8)),
            floats(rows, |r| r.one_way_delay_s),
            codes(rows, |r| Some(r.direction as u8)),
        ]
    }
}

impl Row for QueueRecord {
    fn schema() -> Schema {
        use DataType::{Float64, UInt8, UInt32, UInt64};
        Schema::new(vec![
            Field::new("time_s", Float64, false),
            Field::new("link", UInt32, false),
            Field::new("direction", UInt8, false),
            Field::new("backlog_bytes", UInt64, false),
        ])
    }

    fn columns(rows: &[Self]) -> Vec<ArrayRef> {
        vec![
            floats(rows, |r| Some(r.time_s)),
            numbers(rows, |r| r.link),
            codes(rows, |r| Some(r.direction as u8)),
            counts(rows, |r| Some(r.backlog_bytes)),
        ]
    }
}

impl Row for MessageRecord {
    fn schema() -> Schema {
        use DataType::{Float64, UInt8, UInt32, UInt64};
        Schema::new(vec![
            Field::new("flow", UInt32, false),
            Field::new("direction", UInt8, false),
            Field::new("message", UInt64, false),
            Field::new("bytes", UInt64, false),
            Field::new("written_s", Float64, false),
            Field::new("entered_s", Float64, false),
            Field::new("sent_s", Float64, false),
            Field::new("left_s", Float64, false),
            Field::new("read_s", Float64, false),
        ])
    }

    fn columns(rows: &[Self]) -> Vec<ArrayRef> {
        vec![
            numbers(rows, |r| r.flow),
            codes(rows, |r| Some(r.direction as u8)),
            counts(rows, |r| Some(r.message)),
            counts(rows, |r| Some(r.bytes)),
            floats(rows, |r| Some(r.written_s)),
            floats(rows, |r| Some(r.entered_s)),
            floats(rows, |r| Some(r.sent_s)),
            floats(rows, |r| Some(r.left_s)),
            floats(rows, |r| Some(r.read_s)),
        ]
    }
}
