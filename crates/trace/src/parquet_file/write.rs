//! Writes tables.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::tables::{METADATA_KEY, Row};
use crate::error::TraceError;
use crate::output::write_beside;
use crate::record::{Metadata, PacketRecord, Trace};

/// Rows converted to columns at a time, so that memory stays bounded.
pub(super) const BATCH_ROWS: usize = 64 * 1024;

/// Writes rows to a Parquet file as they arrive, in bounded memory.
///
/// An error is kept until [`finish`](TableWriter::finish), so that the run need not check each row.
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
    /// The reason why the file cannot be written.
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
    /// The reason why the file cannot be written, now or at an earlier row.
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

/// Writes `trace` to `path`, completely or not at all.
///
/// # Errors
/// A [`TraceError`] if the file cannot be created or written (a full disk, no permission).
pub fn write_parquet(path: &Path, trace: &Trace) -> Result<(), TraceError> {
    write_rows(path, &trace.metadata, trace.records.iter().copied())
}

/// Writes a packet table to `path`, completely or not at all.
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

/// Writes rows of one of the project's tables to `path`, completely or not at all.
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

/// Writes any table to `path`, completely or not at all.
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
