//! What the targets share: a limit of memory, seeds, files.

use std::alloc::System;
use std::io::Write;
use std::path::Path;

use cap::Cap;
use pathcast_trace::{Record, Trace};

/// No input may take more than this, all that is alive together. (The limit of libFuzzer itself is
/// looked at once a second, and counts only memory that was touched.)
const MAX_BYTES: usize = 512 << 20;

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, MAX_BYTES);

/// If the environment has `PATHCAST_SEEDS`, a folder, writes the seeds there and ends the process.
///
/// Seeds are made by the target that reads them, so that they are built once and stand beside it.
pub fn write_seeds(seeds: impl FnOnce() -> Vec<Vec<u8>>) {
    let Some(folder) = std::env::var_os("PATHCAST_SEEDS") else {
        return;
    };
    for (number, seed) in seeds().iter().enumerate() {
        let file = Path::new(&folder).join(format!("{number:03}"));
        std::fs::write(file, seed).expect("seeds can be written");
    }
    std::process::exit(0);
}

/// A file with this content, removed when it is dropped.
pub fn file_of(content: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file can be made");
    file.write_all(content).expect("a file can be written");
    file
}

/// What readers promise of every trace.
///
/// # Panics
/// If it does not hold.
pub fn check_trace(trace: &Trace) {
    assert!(!trace.records.is_empty());
    assert!(trace.records.is_sorted_by(|a, b| a.time_s <= b.time_s));
    for record in &trace.records {
        let Record {
            time_s,
            cwnd_packets,
            srtt_s,
            ..
        } = *record;
        assert!(time_s.is_finite() && cwnd_packets.is_finite() && cwnd_packets > 0.0);
        assert!(srtt_s.is_none_or(|srtt_s| srtt_s.is_finite() && srtt_s >= 0.0));
    }
}
