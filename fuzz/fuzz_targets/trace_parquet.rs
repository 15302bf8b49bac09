//! Traces as Parquet: read or refused; what is read comes back when it is written.
//!
//! The first byte says whether the rest is the whole file (even), or a file without its magic
//! numbers, with the length of the footer as two bytes in front (odd): so that what was cut or
//! grown is still a file with a footer.
#![no_main]

use std::fs::File;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use pathcast_fuzz::{check_trace, file_of, write_seeds};
use pathcast_trace::{Metadata, Record, Row, Source, TableWriter, Trace, read_parquet};

fuzz_target!(init: write_seeds(seeds), |input: &[u8]| run(input));

const MAGIC: &[u8] = b"PAR1";

fn run(input: &[u8]) {
    let file = match input {
        [kind, file @ ..] if kind % 2 == 0 => file_of(file),
        [_, low, high, body @ ..] => {
            let footer = u32::from(u16::from_le_bytes([*low, *high]));
            file_of(&[MAGIC, body, &footer.to_le_bytes(), MAGIC].concat())
        }
        _ => return,
    };
    if let Ok(trace) = read_parquet(file.path()) {
        check_trace(&trace);
        let (file, mut handle) = (file_of(b""), None);
        let handle = handle.insert(File::create(file.path()).expect("a file can be made"));
        let mut writer = TableWriter::new(handle).expect("a table can be begun");
        trace.records.iter().for_each(|record| writer.push(*record));
        writer
            .finish(&trace.metadata)
            .expect("a table can be written");
        let again = read_parquet(file.path()).expect("our own file");
        assert_eq!(bits(&again), bits(&trace));
        assert_eq!(again.metadata, trace.metadata);
    }
}

/// Rows, such that NaN is equal to itself.
fn bits(trace: &Trace) -> Vec<String> {
    trace
        .records
        .iter()
        .map(|record| format!("{record:?}"))
        .collect()
}

fn seeds() -> Vec<Vec<u8>> {
    let trace = |rows: usize| {
        let mut metadata = Metadata::new(Source::Simulator);
        metadata.schemes = vec!["cubic".into()];
        metadata.seed = Some(7);
        metadata.environment.insert("kernel".into(), "6.1".into());
        let records = (0..rows).map(|i| Record {
            time_s: i as f64 * 0.01,
            flow: (i % 2) as u32,
            cwnd_packets: 10.5 + i as f64,
            ssthresh_packets: (i % 5 == 0).then_some(20.0),
            srtt_s: (i % 3 == 0).then_some(0.04),
            snd_nxt_bytes: (i % 2 == 0).then_some(i as u64 * 1448),
            ..Record::default()
        });
        Trace {
            records: records.collect(),
            metadata,
        }
    };
    let plain = || {
        WriterProperties::builder()
            .set_statistics_enabled(EnabledStatistics::None)
            .set_dictionary_enabled(false)
    };
    let every_kind = [
        WriterProperties::builder().set_compression(Compression::SNAPPY),
        plain(),
        plain().set_encoding(Encoding::BYTE_STREAM_SPLIT),
        plain().set_writer_version(WriterVersion::PARQUET_2_0),
        plain()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(2)),
        plain()
            .set_data_page_row_count_limit(2)
            .set_write_batch_size(1),
    ];
    let mut seeds = Vec::new();
    for (number, properties) in every_kind.into_iter().enumerate() {
        let file = whole_file(&trace(1 + 4 * number), properties.build());
        seeds.push([b"0", &file[..]].concat());
        let (body, end) = file[4..].split_at(file.len() - 12);
        seeds.push([b"1", &end[..2], body].concat());
    }
    seeds
}

fn whole_file(trace: &Trace, properties: WriterProperties) -> Vec<u8> {
    let schema = Arc::new(Record::schema());
    let mut writer = ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), Some(properties))
        .expect("a table can be begun");
    let columns = Record::columns(&trace.records);
    let batch = arrow_array::RecordBatch::try_new(schema, columns).expect("columns fit");
    writer.write(&batch).expect("to memory");
    let json = serde_json::to_string(&trace.metadata).expect("plain data");
    writer.append_key_value_metadata(KeyValue::new("pathcast".to_string(), json));
    writer.into_inner().expect("to memory")
}
