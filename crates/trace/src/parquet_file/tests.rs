use proptest::prelude::*;

use parquet::file::metadata::{
    ColumnChunkMetaDataBuilder, ParquetMetaDataReader, ParquetMetaDataWriter,
    RowGroupMetaDataBuilder,
};

use std::fs::File;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt8Array, UInt32Array};
use arrow_schema::Schema;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;

use super::tables::METADATA_KEY;
use super::write::BATCH_ROWS;
use super::{Row, read_parquet, write_parquet};
use crate::record::{Metadata, Mode, Record, Source, Trace};

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

/// The error of reading a file of three rows, extended by `more` and a footer with another group of
/// rows and another first column.
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
    let rows = |rows| error_of_footer(&[], |group| group.set_num_rows(rows), |column, _| column);
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
    // 2^31 - 1 entries in 8 bytes, which would allocate 16 GiB
    let page = [
        0x15, 0x04, 0x15, 0x10, 0x15, 0x10, 0x4c, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x15, 0x00,
        0x00, 0x00, 1, 2, 3, 4, 5, 6, 7, 8,
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
    // 14 lists of two billion booleans each, in a field that footers do not have
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
