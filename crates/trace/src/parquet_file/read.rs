//! Reads traces, and refuses what is damaged.

use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{Array, Float64Array, RecordBatch, UInt64Array};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ParquetMetaData;

use super::tables::{METADATA_KEY, Row};
use crate::error::TraceError;
use crate::pages;
use crate::quiet_panics;
use crate::record::{FREE_ROWS, Metadata, Mode, Record, SCHEMA_VERSION, Trace};

/// Columns of a trace that a file may lack.
const LATER_COLUMNS: [&str; 5] = [
    "min_rtt_s",
    "bandwidth_bps",
    "pacing_bps",
    "delivery_bps",
    "mode",
];

/// Reads a trace that [`write_parquet`](super::write_parquet) wrote.
///
/// # Errors
/// A [`TraceError`] if the file is not Parquet, lacks a column or the metadata, or has a newer
/// schema. Also for no rows or too many, a value that is not finite, or times out of order.
pub fn read_parquet(path: &Path) -> Result<Trace, TraceError> {
    let file = File::open(path).map_err(|error| TraceError::new(path, error.to_string()))?;
    read_opened(path, &file)
}

/// Reads a trace from an opened file; `path` names it in errors.
pub(crate) fn read_opened(path: &Path, file: &File) -> Result<Trace, TraceError> {
    // the Parquet library panics on damaged pages; to the caller that is invalid input
    quiet_panics::catch(|| read_columns(path, file))
        .unwrap_or_else(|panic| Err(TraceError::new(path, format!("is damaged: {panic}"))))
}

fn read_columns(path: &Path, file: &File) -> Result<Trace, TraceError> {
    let error = |message: String| TraceError::new(path, message);
    let length = file.metadata().map_err(|e| error(e.to_string()))?.len();
    pages::check_footer(file, length).map_err(error)?;
    let file = file.try_clone().map_err(|e| error(e.to_string()))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(
        file.try_clone().map_err(|e| error(e.to_string()))?,
    )
    .map_err(|e| error(format!("is no readable Parquet file: {e}")))?;
    check_ranges(&file, builder.metadata(), length).map_err(error)?;
    let metadata = metadata(&builder).map_err(error)?;
    for wanted in Record::schema().fields() {
        match builder.schema().field_with_name(wanted.name()) {
            Ok(got) if got.data_type() == wanted.data_type() => {}
            Ok(got) => {
                let message = format!("is {}, expected {}", got.data_type(), wanted.data_type());
                return Err(error(format!("column {}: {message}", wanted.name())));
            }
            // traces from before these columns existed lack them
            Err(_) if LATER_COLUMNS.contains(&wanted.name().as_str()) => {}
            Err(_) => return Err(error(format!("lacks the column {}", wanted.name()))),
        }
    }
    let mut records = Vec::new();
    for batch in builder.build().map_err(|e| error(e.to_string()))? {
        let batch = batch.map_err(|e| error(format!("after row {}: {e}", records.len())))?;
        if batch.column_by_name("flow").expect("checked").null_count() > 0 {
            let message = format!(
                "after row {}: column flow has none, expected one",
                records.len()
            );
            return Err(error(message));
        }
        append(&batch, &mut records);
    }
    check(path, &records)?;
    Ok(Trace { metadata, records })
}

/// Refuses files that would make the Parquet library panic or allocate too much. These have
/// negative or far offsets, too many rows, or pages that claim impossible unpacked sizes.
fn check_ranges(file: &File, metadata: &ParquetMetaData, file_length: u64) -> Result<(), String> {
    let mut rows = 0u64;
    for group in metadata.row_groups() {
        rows = u64::try_from(group.num_rows())
            .ok()
            .and_then(|more| rows.checked_add(more))
            .ok_or("is damaged: a negative number of rows")?;
        for column in group.columns() {
            let start = column
                .dictionary_page_offset()
                .unwrap_or_else(|| column.data_page_offset());
            let range = u64::try_from(start)
                .ok()
                .zip(u64::try_from(column.compressed_size()).ok())
                .filter(|(start, size)| {
                    let end = start.checked_add(*size);
                    end.is_some_and(|end| end <= file_length)
                });
            let Some((start, size_bytes)) = range else {
                return Err("is damaged: a column lies outside the file".to_string());
            };
            pages::check(file, start, size_bytes)?;
        }
    }
    // each row takes more than a byte, because its time differs from the previous row's
    let most = file_length.max(FREE_ROWS as u64);
    if rows > most {
        return Err(format!("has {rows} rows, expected at most {most}"));
    }
    Ok(())
}

fn metadata(builder: &ParquetRecordBatchReaderBuilder<File>) -> Result<Metadata, String> {
    let pairs = builder.metadata().file_metadata().key_value_metadata();
    let json = pairs
        .and_then(|pairs| pairs.iter().find(|pair| pair.key == METADATA_KEY))
        .and_then(|pair| pair.value.as_deref())
        .ok_or("has no pathcast metadata: it is no trace of ours")?;
    let metadata: Metadata =
        serde_json::from_str(json).map_err(|e| format!("metadata cannot be read: {e}"))?;
    if metadata.schema > SCHEMA_VERSION {
        return Err(format!(
            "has schema version {}, this pathcast reads up to {SCHEMA_VERSION}",
            metadata.schema
        ));
    }
    Ok(metadata)
}

/// Adds the rows of `batch`, whose columns are already checked.
fn append(batch: &RecordBatch, records: &mut Vec<Record>) {
    let column = |name: &str| batch.column_by_name(name).expect("checked");
    let floats = |name: &str| column(name).as_primitive::<Float64Type>().clone();
    let counts = |name: &str| column(name).as_primitive::<UInt64Type>().clone();
    let flows = column("flow").as_primitive::<UInt32Type>().clone();
    let (time, cwnd) = (floats("time_s"), floats("cwnd_packets"));
    let (ssthresh, srtt) = (floats("ssthresh_packets"), floats("srtt_s"));
    let (snd_nxt, snd_una) = (counts("snd_nxt_bytes"), counts("snd_una_bytes"));
    let (rwnd, retransmits) = (counts("rwnd_bytes"), counts("retransmits"));
    let later = |name: &str| {
        let column = batch.column_by_name(name)?;
        Some(column.as_primitive::<Float64Type>().clone())
    };
    let (min_rtt, bandwidth) = (later("min_rtt_s"), later("bandwidth_bps"));
    let (pacing, delivery) = (later("pacing_bps"), later("delivery_bps"));
    let mode = (batch.column_by_name("mode")).map(|column| column.as_primitive::<UInt8Type>());
    // a null in a required column reads as NaN, which `check` refuses
    let float = |array: &Float64Array, i: usize| array.is_valid(i).then(|| array.value(i));
    let count = |array: &UInt64Array, i: usize| array.is_valid(i).then(|| array.value(i));
    records.extend((0..batch.num_rows()).map(|i| {
        Record {
            time_s: float(&time, i).unwrap_or(f64::NAN),
            flow: flows.value(i),
            cwnd_packets: float(&cwnd, i).unwrap_or(f64::NAN),
            ssthresh_packets: float(&ssthresh, i),
            srtt_s: float(&srtt, i),
            snd_nxt_bytes: count(&snd_nxt, i),
            snd_una_bytes: count(&snd_una, i),
            rwnd_bytes: count(&rwnd, i),
            retransmits: count(&retransmits, i),
            min_rtt_s: min_rtt.as_ref().and_then(|array| float(array, i)),
            bandwidth_bps: bandwidth.as_ref().and_then(|array| float(array, i)),
            pacing_bps: pacing.as_ref().and_then(|array| float(array, i)),
            delivery_bps: delivery.as_ref().and_then(|array| float(array, i)),
            mode: mode
                .filter(|array| array.is_valid(i))
                .and_then(|array| Mode::from_number(array.value(i))),
        }
    }));
}

fn check(path: &Path, records: &[Record]) -> Result<(), TraceError> {
    if records.is_empty() {
        return Err(TraceError::new(path, "has no rows"));
    }
    let mut last_s = f64::NEG_INFINITY;
    for (row, record) in (1u64..).zip(records) {
        let wrong = |column: &str, got: f64, wanted: &str| {
            Err(TraceError::at(
                path,
                row,
                column,
                format!("got {got}, expected {wanted}"),
            ))
        };
        if !record.time_s.is_finite() {
            return wrong("time_s", record.time_s, "a finite number");
        }
        if record.time_s < last_s {
            let wanted = format!("at least {last_s}: rows must be sorted by time");
            return wrong("time_s", record.time_s, &wanted);
        }
        if !(record.cwnd_packets.is_finite() && record.cwnd_packets > 0.0) {
            return wrong(
                "cwnd_packets",
                record.cwnd_packets,
                "a window greater than 0",
            );
        }
        if let Some(srtt_s) = record.srtt_s
            && !(srtt_s.is_finite() && srtt_s >= 0.0)
        {
            return wrong("srtt_s", srtt_s, "a time of at least 0");
        }
        last_s = record.time_s;
    }
    Ok(())
}
