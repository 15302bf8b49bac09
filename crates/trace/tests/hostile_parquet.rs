//! Parquet files with hostile lengths: whatever their bytes, they are read or refused, in little
//! memory.

use std::fs;
use std::path::Path;
use std::process::Command;

use pathcast_trace::{Metadata, Record, Source, Trace, read_parquet, write_parquet};

/// Set in the process that is limited to [`MOST_KIB`].
const BOUNDED: &str = "PATHCAST_TEST_BOUNDED_MEMORY";
/// Address space limit; allocations that are never touched count too.
const MOST_KIB: u32 = 1 << 20;

fn trace(rows: usize, step_s: f64) -> Trace {
    let records = (0..rows).map(|row| Record {
        time_s: row as f64 * step_s,
        flow: (row % 2) as u32,
        cwnd_packets: 10.0,
        srtt_s: (row % 3 == 0).then_some(0.04),
        snd_nxt_bytes: (row % 2 == 0).then_some(row as u64 * 1448),
        ..Record::default()
    });
    Trace {
        metadata: Metadata::new(Source::Simulator),
        records: records.collect(),
    }
}

/// Reads `bytes`, and checks that no panic escapes and that the result is plausible.
fn check(path: &Path, bytes: &[u8]) -> bool {
    fs::write(path, bytes).unwrap();
    match read_parquet(path) {
        Ok(read) => {
            assert!(read.records.len() <= 1 << 20);
            assert!(read.records.is_sorted_by(|a, b| a.time_s <= b.time_s));
            assert!(read.records.iter().all(|r| r.cwnd_packets > 0.0));
            true
        }
        Err(error) => {
            assert!(!error.message.is_empty());
            false
        }
    }
}

#[test]
fn whatever_a_byte_says_the_file_is_read_or_refused_in_little_memory() {
    if std::env::var_os(BOUNDED).is_none() {
        let limited = format!("ulimit -v {MOST_KIB} && exec \"$0\" \"$@\"");
        let name = "whatever_a_byte_says_the_file_is_read_or_refused_in_little_memory";
        let outcome = Command::new("sh")
            .args(["-c", &limited])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(BOUNDED, "1")
            .env("RUST_BACKTRACE", "0")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&outcome.stderr);
        assert!(outcome.status.success(), "{said}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    write_parquet(&path, &trace(20, 0.01)).unwrap();
    let file = fs::read(&path).unwrap();
    assert!(check(&path, &file));
    let (mut read, mut refused) = (0, 0);
    let mut count = |right: bool| *(if right { &mut read } else { &mut refused }) += 1;
    // replace each third byte: lengths of one byte, types, the length of the footer
    for at in (0..file.len()).step_by(3) {
        for value in [0xff, file[at] ^ 0x10] {
            let mut bytes = file.clone();
            bytes[at] = value;
            count(check(&path, &bytes));
        }
    }
    // replace a number by one of many bytes, in the footer and before it
    let end = file.len() - 8;
    let footer = u32::from_le_bytes(file[end..end + 4].try_into().unwrap()) as usize;
    let huge: [&[u8]; 4] = [
        &[0xff, 0xff, 0xff, 0xff, 0x07], // 2^31 - 1
        &[0xfe, 0xff, 0xff, 0xff, 0x0f], // the same, signed
        &[0xff, 0xff, 0xff, 0xff, 0x0f], // 2^32 - 1
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], // 2^64 - 1
    ];
    for at in 4..end {
        let number = huge[at % huge.len()];
        let mut bytes = file.clone();
        bytes.splice(at..=at, number.iter().copied());
        if at >= end - footer {
            let longer = (footer + number.len() - 1) as u32;
            let place = bytes.len() - 8;
            bytes[place..place + 4].copy_from_slice(&longer.to_le_bytes());
        }
        count(check(&path, &bytes));
    }
    for length in (0..file.len()).step_by(29) {
        assert!(!check(&path, &file[..length]), "{length} bytes");
    }
    // damage in statistics and texts has no effect; most other damage does
    assert!(
        refused > 500 && read > 100,
        "{read} read, {refused} refused"
    );
}

#[test]
fn a_small_file_of_more_rows_than_it_can_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let mut many = trace(1_200_000, 0.0);
    for record in &mut many.records {
        (record.snd_nxt_bytes, record.srtt_s, record.flow) = (None, None, 0);
    }
    write_parquet(&path, &many).unwrap();
    drop(many);
    assert!(fs::metadata(&path).unwrap().len() < 1 << 20);
    let error = read_parquet(&path).unwrap_err();
    assert_eq!(error.message, "has 1200000 rows, expected at most 1048576");
}
