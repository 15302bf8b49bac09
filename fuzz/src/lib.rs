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

/// The TOML files of a folder of the project, in order, without their comments, which teach nothing.
pub fn toml_files(folder: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(folder);
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the project has the folder")
        .map(|entry| entry.expect("a folder can be listed").path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| {
            let text = std::fs::read_to_string(file).expect("these files are text");
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(|line| format!("{line}\n")).collect()
        })
        .collect()
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
