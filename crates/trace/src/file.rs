//! Files as wholes: which format it is, and never half a file.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::TraceError;
use crate::import::{ReadOptions, read_with};
use crate::record::Trace;

/// Reads a trace in any format that is known, told by content; what there is to say of how it was
/// read, [`read_with`] tells.
///
/// # Errors
/// A [`TraceError`] if the file cannot be opened or read, or holds no valid trace.
pub fn read(path: &Path) -> Result<Trace, TraceError> {
    read_with(path, &ReadOptions::default()).map(|imported| imported.trace)
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
