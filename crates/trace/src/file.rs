//! Files as wholes: which format it is, and never half a file.

use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::csv_reader::read_csv;
use crate::error::TraceError;
use crate::parquet_file::read_parquet;
use crate::record::Trace;

/// Reads a trace: our Parquet, or a CSV `time_s,cwnd_packets`, plain or gzipped; the file's first
/// bytes tell which.
///
/// # Errors
/// A [`TraceError`] if the file cannot be opened or read, or holds no valid trace.
pub fn read(path: &Path) -> Result<Trace, TraceError> {
    let io_error = |error: std::io::Error| TraceError::new(path, error.to_string());
    let mut magic = [0u8; 4];
    let mut file = File::open(path).map_err(io_error)?;
    if file.metadata().map_err(io_error)?.is_dir() {
        return Err(TraceError::new(
            path,
            "is a directory, expected a trace (Parquet or CSV)",
        ));
    }
    let mut filled = 0;
    while filled < magic.len() {
        match file.read(&mut magic[filled..]).map_err(io_error)? {
            0 => break,
            n => filled += n,
        }
    }
    match &magic[..filled] {
        [] => Err(TraceError::new(
            path,
            "is empty, expected a trace (Parquet or CSV)",
        )),
        b"PAR1" => read_parquet(path),
        [0x1f, 0x8b, ..] => {
            let file = File::open(path).map_err(io_error)?;
            read_csv(MultiGzDecoder::new(BufReader::new(file)), path)
        }
        _ => read_csv(BufReader::new(File::open(path).map_err(io_error)?), path),
    }
}

/// Writes a file beside its final place and renames it there once it is whole, so that nobody ever
/// sees half of it; on an error (a full disk, say) what was begun is removed.
///
/// # Errors
/// A [`TraceError`] that names `path`, with the error of `write`, or of creating or renaming.
pub fn write_beside<T>(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<T, String>,
) -> Result<T, TraceError> {
    let name = path
        .file_name()
        .ok_or_else(|| TraceError::new(path, "is no file name"))?;
    let mut part_name = name.to_os_string();
    part_name.push(format!(".{}.part", std::process::id()));
    let part: PathBuf = path.with_file_name(part_name);
    let mut file = File::create(&part)
        .map_err(|error| TraceError::new(path, format!("cannot be written: {error}")))?;
    let written = write(&mut file)
        .and_then(|value| {
            file.flush()
                .and_then(|()| file.sync_all())
                .map_err(|e| e.to_string())
                .map(|()| value)
        })
        .and_then(|value| {
            fs::rename(&part, path)
                .map_err(|e| e.to_string())
                .map(|()| value)
        });
    written.map_err(|message| {
        let _ = fs::remove_file(&part);
        TraceError::new(path, format!("cannot be written: {message}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_fails_leaves_nothing_and_spares_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.parquet");
        write_beside(&path, |file| {
            file.write_all(b"old").map_err(|e| e.to_string())
        })
        .unwrap();
        let error = write_beside(&path, |file| {
            file.write_all(b"ne").map_err(|e| e.to_string())?;
            Err::<(), _>("no space left on device".to_string())
        });
        assert!(error.unwrap_err().to_string().contains("no space left"));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
