//! A file that is opened once and can be read from its beginning repeatedly.
//!
//! A pipe gives its bytes only once. What was read of it is kept in an unnamed temporary file, for
//! recognizing the format and for readers that need two passes.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::input::Input;
use super::{Format, Imported, Packets, PerfRow, ReadOptions};
use super::{format_of, packets_of_input, pantheon_perf, read_input};
use crate::error::TraceError;

/// A pipe is kept only up to this size.
const MAX_STREAM_BYTES: u64 = 16 << 30;

/// A file or pipe of some format, opened once. Every method reads it from its beginning.
///
/// `-` is the standard input. Open a pipe only once and use that `TraceFile` for everything: a
/// second one finds the pipe empty.
///
/// ```no_run
/// use pathcast_trace::{ReadOptions, TraceFile};
///
/// let file = TraceFile::open("-".as_ref())?;
/// println!("{}", file.format()?);
/// let trace = file.read(&ReadOptions::default())?.trace;
/// # Ok::<(), pathcast_trace::TraceError>(())
/// ```
pub struct TraceFile {
    path: PathBuf,
    content: Content,
}

enum Content {
    File(File),
    Stream(Mutex<Spool>),
}

impl TraceFile {
    /// Opens a file, a pipe, or with `-` the standard input.
    ///
    /// # Errors
    /// A [`TraceError`] if the file does not exist, may not be read, or is a directory.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let error = |error: io::Error| TraceError::new(path, error.to_string());
        if path.as_os_str() == "-" {
            let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(error)?;
            return Self::stream(Path::new("stdin"), File::from(stdin));
        }
        let file = File::open(path).map_err(error)?;
        let metadata = file.metadata().map_err(error)?;
        if metadata.is_dir() {
            let message = "is a directory, expected a trace";
            return Err(TraceError::new(path, message));
        }
        // kernel files such as tracefs' trace_pipe have size 0 and can be read only once
        if metadata.is_file() && metadata.len() > 0 {
            let content = Content::File(file);
            let path = path.to_path_buf();
            return Ok(Self { path, content });
        }
        Self::stream(path, file)
    }

    fn stream(path: &Path, source: File) -> Result<Self, TraceError> {
        let kept = tempfile::tempfile().map_err(|error| {
            let message = format!(
                "is a pipe, and what it gives cannot be kept in a temporary file: {error}; set \
                 TMPDIR, or write it to a file first"
            );
            TraceError::new(path, message)
        })?;
        let spool = Spool {
            source,
            kept,
            kept_bytes: 0,
            ended: false,
        };
        Ok(Self {
            path: path.to_path_buf(),
            content: Content::Stream(Mutex::new(spool)),
        })
    }

    /// Returns the format, recognized by content.
    ///
    /// # Errors
    /// A [`TraceError`] that lists the known formats if the file matches none, or if the file
    /// cannot be read.
    pub fn format(&self) -> Result<Format, TraceError> {
        format_of(self.input())
    }

    /// Reads the trace.
    ///
    /// # Errors
    /// As [`read_with`](super::read_with).
    pub fn read(&self, options: &ReadOptions) -> Result<Imported, TraceError> {
        read_input(self.input(), options)
    }

    /// Reads the packets.
    ///
    /// # Errors
    /// As [`read_packets`](super::read_packets).
    pub fn packets(&self, options: &ReadOptions) -> Result<Packets, TraceError> {
        packets_of_input(self.input(), options)
    }

    /// Reads the rows of a `pantheon_perf.json`, with warnings.
    ///
    /// # Errors
    /// As [`read_pantheon_perf`](super::read_pantheon_perf).
    pub fn pantheon_perf(
        &self,
        options: &ReadOptions,
    ) -> Result<(Vec<PerfRow>, Vec<String>), TraceError> {
        pantheon_perf::read(self.input(), options)
    }

    pub(super) fn input(&self) -> Input<'_> {
        Input::opened(&self.path, self)
    }

    /// The length of the file; a pipe is read to its end.
    pub(super) fn length(&self) -> io::Result<u64> {
        match &self.content {
            Content::File(file) => Ok(file.metadata()?.len()),
            Content::Stream(spool) => {
                let mut spool = spool.lock().unwrap_or_else(PoisonError::into_inner);
                let mut buffer = vec![0; 1 << 16];
                while !spool.ended {
                    let at = spool.kept_bytes;
                    spool.read_at(&mut buffer, at)?;
                }
                Ok(spool.kept_bytes)
            }
        }
    }

    /// The whole content as a separate file. Of a pipe, everything up to its end.
    pub(super) fn whole(&self) -> io::Result<File> {
        self.length()?;
        match &self.content {
            Content::File(file) => file.try_clone(),
            Content::Stream(spool) => {
                let spool = spool.lock().unwrap_or_else(PoisonError::into_inner);
                spool.kept.try_clone()
            }
        }
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        match &self.content {
            Content::File(file) => file.read_at(buffer, at),
            Content::Stream(spool) => {
                let mut spool = spool.lock().unwrap_or_else(PoisonError::into_inner);
                spool.read_at(buffer, at)
            }
        }
    }
}

/// What a pipe has given, and its remaining input.
struct Spool {
    source: File,
    kept: File,
    kept_bytes: u64,
    ended: bool,
}

impl Spool {
    fn read_at(&mut self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let kept = self.kept_bytes.saturating_sub(at).min(buffer.len() as u64);
        if kept > 0 {
            return self.kept.read_at(&mut buffer[..kept as usize], at);
        }
        if self.ended || buffer.is_empty() {
            return Ok(0);
        }
        if self.kept_bytes >= MAX_STREAM_BYTES {
            let message = format!(
                "the pipe gave more than {MAX_STREAM_BYTES} bytes; write it to a file first"
            );
            return Err(io::Error::other(message));
        }
        let count = match self.source.read(buffer) {
            // only the user interrupts; treat that as the end of reading
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                return Err(io::Error::other("interrupted"));
            }
            outcome => outcome?,
        };
        self.ended = count == 0;
        let write = self.kept.write_all_at(&buffer[..count], self.kept_bytes);
        write.map_err(|error| {
            let message = format!(
                "the pipe gave more than a temporary file can keep: {error}; set TMPDIR, or write \
                 it to a file first"
            );
            io::Error::other(message)
        })?;
        self.kept_bytes += count as u64;
        Ok(count)
    }
}

/// Reads a [`TraceFile`] from its beginning.
pub(super) struct FromStart<'a> {
    file: &'a TraceFile,
    at: u64,
}

impl<'a> FromStart<'a> {
    pub fn new(file: &'a TraceFile) -> Self {
        Self { file, at: 0 }
    }
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A named pipe into which a thread writes `content`, at first a few bytes at a time.
    fn pipe_of(content: Vec<u8>) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let name = path.clone();
        std::thread::spawn(move || {
            let mut pipe = File::options().write(true).open(name).unwrap();
            let (start, rest) = content.split_at(content.len().min(3));
            for byte in start {
                pipe.write_all(&[*byte]).unwrap();
            }
            let _ = pipe.write_all(rest); // a reader that refuses it closes it
        });
        (folder, path)
    }

    fn log() -> Vec<u8> {
        let mut text = String::from("# init timestamp: 1.000\n");
        for ms in 0..9000 {
            text += &format!("{ms}.000 + 1500 1\n{ms}.500 - 1500 0.500 1\n");
        }
        text.into_bytes()
    }

    #[test]
    fn a_pipe_is_read_from_its_beginning_as_often_as_needed() {
        let (_folder, path) = pipe_of(log());
        let pipe = TraceFile::open(&path).unwrap();
        assert_eq!(pipe.format().unwrap(), Format::PantheonLog);
        let options = ReadOptions::default();
        let packets = pipe.packets(&options).unwrap();
        assert_eq!(packets.records.len(), 18_000);
        // this reader needs two passes
        let trace = pipe.read(&options).unwrap().trace;
        assert_eq!(trace.records.len(), 8999); // the last acknowledgment comes after the end
    }

    #[test]
    fn a_pipe_of_gzip_whose_first_byte_comes_alone_is_unpacked() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&log()).unwrap();
        let (_folder, path) = pipe_of(packed.finish().unwrap());
        let imported = super::super::read_with(&path, &ReadOptions::default()).unwrap();
        assert_eq!(imported.trace.records.len(), 8999);
    }

    #[test]
    fn a_pipe_of_parquet_is_read() {
        let record = crate::record::Record {
            cwnd_packets: 10.0,
            ..Default::default()
        };
        let trace = crate::record::Trace {
            metadata: crate::record::Metadata::new(crate::record::Source::Live),
            records: vec![record],
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.parquet");
        crate::write_parquet(&file, &trace).unwrap();
        let (_folder, path) = pipe_of(std::fs::read(file).unwrap());
        assert_eq!(crate::read(&path).unwrap(), trace);
    }
}
