//! The trace as Parquet: one row a record, the metadata as JSON under the key `pathcast`.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, Float64Array, RecordBatch, UInt8Array, UInt32Array, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use parquet::file::properties::WriterProperties;

use crate::error::TraceError;
use crate::output::write_beside;
use crate::pages;
use crate::quiet_panics;
use crate::record::{
    FREE_ROWS, MessageRecord, Metadata, Mode, PacketRecord, QueueRecord, Record, SCHEMA_VERSION,
    Trace,
};

/// Key of the JSON metadata in the Parquet footer.
const METADATA_KEY: &str = "pathcast";
/// Rows turned into columns at a time, so that memory stays bounded.
const BATCH_ROWS: usize = 64 * 1024;

/// Columns of a trace that a file may lack.
const LATER_COLUMNS: [&str; 5] = [
    "min_rtt_s",
    "bandwidth_bps",
    "pacing_bps",
    "delivery_bps",
    "mode",
];

/// A row of one of the project's tables.
pub trait Row: Sized {
    /// The table's columns.
    fn schema() -> Schema;
    /// Rows as columns, in the schema's order.
    fn columns(rows: &[Self]) -> Vec<ArrayRef>;
}

/// The columns of `rows` by the types that the tables have.
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

/// Writes rows to a Parquet file as they come, in bounded memory.
///
/// An error is kept until [`finish`](TableWriter::finish): the run that feeds the writer need not
/// look at each row's fate.
pub struct TableWriter<'a, R> {
    writer: ArrowWriter<&'a mut File>,
    schema: Arc<Schema>,
    rows: Vec<R>,
    failed: Option<String>,
}

impl<'a, R: Row> TableWriter<'a, R> {
    /// Begins a table in `file`.
    ///
    /// # Errors
    /// Says why the file cannot be written.
    pub fn new(file: &'a mut File) -> Result<Self, String> {
        let schema = Arc::new(R::schema());
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(16 * BATCH_ROWS))
            .build();
        let writer = ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            writer,
            schema,
            rows: Vec::with_capacity(BATCH_ROWS),
            failed: None,
        })
    }

    /// Adds a row.
    #[inline]
    pub fn push(&mut self, row: R) {
        self.rows.push(row);
        if self.rows.len() == BATCH_ROWS {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.failed.is_none() {
            let written = RecordBatch::try_new(Arc::clone(&self.schema), R::columns(&self.rows))
                .map_err(|error| error.to_string())
                .and_then(|batch| self.writer.write(&batch).map_err(|error| error.to_string()));
            self.failed = written.err();
        }
        self.rows.clear();
    }

    /// Ends the table; `metadata` goes into the footer.
    ///
    /// # Errors
    /// Says why the file cannot be written, now or at an earlier row.
    pub fn finish(mut self, metadata: &Metadata) -> Result<(), String> {
        if !self.rows.is_empty() {
            self.flush();
        }
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let json = serde_json::to_string(metadata).expect("metadata is plain data");
        self.writer
            .append_key_value_metadata(KeyValue::new(METADATA_KEY.to_string(), json));
        self.writer.close().map_err(|error| error.to_string())?;
        Ok(())
    }
}

/// Writes `trace` to `path`, whole or not at all.
///
/// # Errors
/// A [`TraceError`] if the file cannot be created or written (a full disk, no permission).
pub fn write_parquet(path: &Path, trace: &Trace) -> Result<(), TraceError> {
    write_rows(path, &trace.metadata, trace.records.iter().copied())
}

/// Writes a packet table to `path`, whole or not at all.
///
/// # Errors
/// A [`TraceError`] if the file cannot be created or written.
pub fn write_packets(
    path: &Path,
    metadata: &Metadata,
    records: &[PacketRecord],
) -> Result<(), TraceError> {
    write_rows(path, metadata, records.iter().copied())
}

/// Writes rows of one of the project's tables to `path`, whole or not at all.
///
/// # Errors
/// A [`TraceError`] if the file cannot be created or written.
pub fn write_rows<R: Row>(
    path: &Path,
    metadata: &Metadata,
    rows: impl IntoIterator<Item = R>,
) -> Result<(), TraceError> {
    write_beside(path, |file| {
        let mut writer = TableWriter::new(file)?;
        rows.into_iter().for_each(|row| writer.push(row));
        writer.finish(metadata)
    })
}

/// Writes any table to `path`, whole or not at all.
///
/// # Errors
/// A [`TraceError`] if the file cannot be created or written.
pub fn write_batch(path: &Path, batch: &RecordBatch) -> Result<(), TraceError> {
    write_beside(path, |file| {
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .build();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties))
            .map_err(|error| error.to_string())?;
        writer.write(batch).map_err(|error| error.to_string())?;
        writer
            .close()
            .map(|_| ())
            .map_err(|error| error.to_string())
    })
}

/// Reads a trace that [`write_parquet`] wrote.
///
/// # Errors
/// A [`TraceError`] if the file is no Parquet, lacks a column or the metadata, has a newer schema,
/// no rows or too many, a value that is not finite, or times out of order.
pub fn read_parquet(path: &Path) -> Result<Trace, TraceError> {
    let file = File::open(path).map_err(|error| TraceError::new(path, error.to_string()))?;
    read_opened(path, &file)
}

/// Reads a trace out of a file that was opened; `path` names it in errors.
pub(crate) fn read_opened(path: &Path, file: &File) -> Result<Trace, TraceError> {
    // the Parquet library asserts what damaged pages can break; to our caller that is bad input
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
            // traces from before there were these columns lack them
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

/// Refuses what the Parquet library would panic at or allocate for: negative or far offsets, more
/// rows than are read, pages that claim to unpack to more than they can.
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
    // each of ours takes more than a byte, for its time differs from that of the row before
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

/// Adds the rows of `batch`, whose columns were checked.
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
    // a null in a column that must have none reads as NaN, which `check` refuses
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use parquet::file::metadata::{
        ColumnChunkMetaDataBuilder, ParquetMetaDataReader, ParquetMetaDataWriter,
        RowGroupMetaDataBuilder,
    };

    use super::*;
    use crate::record::Source;

    fn trace(rows: usize) -> Trace {
        let mut metadata = Metadata::new(Source::Simulator);
        metadata.schemes = vec!["cubic".into(), "reno".into()];
        metadata.environment.insert("kernel".into(), "6.1".into());
        let records = (0..rows)
            .map(|i| Record {
                time_s: i as f64 * 0.01,
                flow: (i % 2) as u32,
                cwnd_packets: 10.5 + i as f64,
                srtt_s: (i % 3 == 0).then_some(0.04),
                snd_nxt_bytes: (i % 2 == 0).then_some(i as u64 * 1448),
                bandwidth_bps: (i % 5 == 0).then_some(i as f64),
                mode: Mode::from_number((i % 9) as u8),
                ..Record::default()
            })
            .collect();
        Trace { metadata, records }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let written = trace(BATCH_ROWS + 5);
        write_parquet(&path, &written).unwrap();
        assert_eq!(crate::read(&path).unwrap(), written);
    }

    #[test]
    fn a_file_may_lack_columns_that_came_later_and_have_numbers_of_later_modes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let write = |columns: &[usize], batch: RecordBatch| {
            let batch = batch.project(columns).unwrap();
            let mut writer =
                ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
            writer.write(&batch).unwrap();
            let json = serde_json::to_string(&trace(1).metadata).unwrap();
            writer.append_key_value_metadata(KeyValue::new(METADATA_KEY.to_string(), json));
            writer.close().unwrap();
            read_parquet(&path)
        };
        let written = trace(6).records;
        let whole =
            RecordBatch::try_new(Arc::new(Record::schema()), Record::columns(&written)).unwrap();
        let early = write(&[0, 1, 2, 3, 4, 5, 6, 7, 8], whole.clone()).unwrap();
        let row = early.records[5];
        assert_eq!(
            (row.cwnd_packets, row.bandwidth_bps, row.mode),
            (15.5, None, None)
        );
        let error = write(&[0, 1, 3, 4, 5, 6, 7, 8], whole.clone()).unwrap_err();
        assert_eq!(error.message, "lacks the column cwnd_packets");
        let mut columns = whole.columns().to_vec();
        columns[13] = Arc::new(UInt8Array::from(vec![200; 6]));
        let later = RecordBatch::try_new(Arc::new(Record::schema()), columns).unwrap();
        let later = write(&(0..14).collect::<Vec<_>>(), later).unwrap();
        assert!(later.records.iter().all(|row| row.mode.is_none()));
    }

    #[test]
    fn bad_values_are_refused_with_their_row() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let spoil = |change: fn(&mut Record)| {
            let mut spoilt = trace(5);
            change(&mut spoilt.records[3]);
            write_parquet(&path, &spoilt).unwrap();
            let error = read_parquet(&path).unwrap_err();
            error
                .to_string()
                .rsplit_once("t.parquet")
                .unwrap()
                .1
                .to_string()
        };
        assert_eq!(
            spoil(|r| r.time_s = 0.0),
            ":4: time_s: got 0, expected at least 0.02: rows must be sorted by time"
        );
        assert_eq!(
            spoil(|r| r.cwnd_packets = f64::NAN),
            ":4: cwnd_packets: got NaN, expected a window greater than 0"
        );
        write_parquet(&path, &trace(0)).unwrap();
        assert!(
            read_parquet(&path)
                .unwrap_err()
                .to_string()
                .ends_with("has no rows")
        );
    }

    /// The error of reading a file of three rows, to which `more` was added, and then a footer with
    /// another group of rows and another first column.
    fn error_of_footer(
        more: &[u8],
        group: impl FnOnce(RowGroupMetaDataBuilder) -> RowGroupMetaDataBuilder,
        column: impl FnOnce(ColumnChunkMetaDataBuilder, i64) -> ColumnChunkMetaDataBuilder,
    ) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        write_parquet(&path, &trace(3)).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let metadata = ParquetMetaDataReader::new()
            .parse_and_finish(&File::open(&path).unwrap())
            .unwrap();
        let old = metadata.row_group(0).clone();
        let mut columns = old.columns().to_vec();
        let first = columns[0].clone().into_builder();
        columns[0] = column(first, bytes.len() as i64).build().unwrap();
        let new = group(old.into_builder()).set_column_metadata(columns);
        let metadata = metadata
            .into_builder()
            .set_row_groups(vec![new.build().unwrap()]);
        bytes.extend(more);
        ParquetMetaDataWriter::new(&mut bytes, &metadata.build())
            .finish()
            .unwrap();
        std::fs::write(&path, &bytes).unwrap();
        read_parquet(&path).unwrap_err().message
    }

    #[test]
    fn rows_beyond_all_bounds_are_refused_before_they_are_read() {
        let rows =
            |rows| error_of_footer(&[], |group| group.set_num_rows(rows), |column, _| column);
        assert_eq!(
            rows(1 << 40),
            "has 1099511627776 rows, expected at most 1048576"
        );
        assert_eq!(rows(-1), "is damaged: a negative number of rows");
    }

    #[test]
    fn a_page_that_cannot_unpack_to_what_it_claims_is_refused() {
        // a dictionary of 2 GiB less one, in a byte
        let page = [
            0x15, 0x04, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x15, 0x02, 0x00, 0x00,
        ];
        let error = error_of_footer(
            &page,
            |group| group,
            |column, at| {
                column
                    .set_dictionary_page_offset(Some(at))
                    .set_total_compressed_size(page.len() as i64)
            },
        );
        assert_eq!(error, "is damaged: the header of a page makes no sense");
    }

    #[test]
    fn a_dictionary_that_claims_more_entries_than_its_bytes_can_be_is_refused() {
        // 2^31 - 1 entries in 8 bytes, for which 16 GiB would be made room
        let page = [
            0x15, 0x04, 0x15, 0x10, 0x15, 0x10, 0x4c, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x15,
            0x00, 0x00, 0x00, 1, 2, 3, 4, 5, 6, 7, 8,
        ];
        let error = error_of_footer(
            &page,
            |group| group,
            |column, at| {
                column
                    .set_dictionary_page_offset(Some(at))
                    .set_total_compressed_size(page.len() as i64)
            },
        );
        assert_eq!(error, "is damaged: the header of a page makes no sense");
    }

    #[test]
    fn a_footer_of_endless_lists_is_refused_at_once() {
        // 14 lists of two billion booleans each, in a field that no footer has
        let mut footer = vec![0xf9, 0xe9];
        footer.extend([0xf1, 0xff, 0xff, 0xff, 0xff, 0x07].repeat(14));
        footer.push(0);
        let length = (footer.len() as u32).to_le_bytes();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        std::fs::write(&path, [b"PAR1", &footer[..], &length, b"PAR1"].concat()).unwrap();
        let error = read_parquet(&path).unwrap_err();
        assert_eq!(
            error.message,
            "is no readable Parquet file: its footer makes no sense"
        );
    }

    #[test]
    fn a_row_of_no_flow_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let fields = Record::schema()
            .fields()
            .iter()
            .map(|field| field.as_ref().clone().with_nullable(true))
            .collect::<Vec<_>>();
        let mut columns = Record::columns(&trace(2).records);
        columns[1] = Arc::new(UInt32Array::from(vec![Some(0), None]));
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        let mut writer =
            ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        let json = serde_json::to_string(&trace(2).metadata).unwrap();
        writer.append_key_value_metadata(KeyValue::new(METADATA_KEY.to_string(), json));
        writer.close().unwrap();
        let error = read_parquet(&path).unwrap_err();
        assert_eq!(
            error.message,
            "after row 0: column flow has none, expected one"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_damaged_file_is_refused_or_read_but_never_a_panic(at in 0..100usize, byte in any::<u8>()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("t.parquet");
            write_parquet(&path, &trace(20)).unwrap();
            let mut bytes = std::fs::read(&path).unwrap();
            let at = at * bytes.len() / 100;
            bytes[at] ^= byte;
            std::fs::write(&path, &bytes).unwrap();
            let _ = crate::read(&path);
            std::fs::write(&path, &bytes[..at]).unwrap();
            prop_assert!(crate::read(&path).is_err());
        }
    }
}
