//! The log of decisions and outcomes: lines of JSON, noted in memory and written by another thread.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Most bytes that wait to be written.
const WAITING: usize = 32 << 20;
/// Memory that is kept for the next lines, bytes: to grow it anew each time takes milliseconds under the lock.
const SPARE: usize = 8 << 20;

/// The log.
#[derive(Debug)]
pub struct DecisionLog {
    noted: Mutex<Vec<u8>>,
    spare: Mutex<Vec<u8>>,
    file: Mutex<Option<(File, u64)>>,
    path: PathBuf,
    most_bytes: u64,
}

impl DecisionLog {
    /// A log that goes on in a file; a file beyond `most_bytes` becomes the older one.
    pub fn new(path: PathBuf, most_bytes: u64) -> Self {
        Self {
            noted: Mutex::default(),
            spare: Mutex::default(),
            file: Mutex::default(),
            path,
            most_bytes: most_bytes.max(4096),
        }
    }

    /// Notes a line; whether there was room.
    pub fn note(&self, line: &[u8]) -> bool {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = noted.len() + line.len() < WAITING;
        if has_room {
            noted.extend_from_slice(line);
            noted.push(b'\n');
        }
        has_room
    }

    /// Writes what was noted; whether the disk took it.
    pub fn write(&self) -> bool {
        let spare = {
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *spare)
        };
        let mut lines = {
            let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *noted, spare)
        };
        let written = lines.is_empty() || self.append(&lines);
        if lines.capacity() <= SPARE {
            lines.clear();
            *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = lines;
        }
        written
    }

    fn append(&self, lines: &[u8]) -> bool {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file
            .as_ref()
            .is_some_and(|(_, length)| *length > self.most_bytes)
        {
            *file = None;
            let _ = fs::rename(&self.path, self.path.with_extension("1.jsonl"));
        }
        if file.is_none() {
            let opened = OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.path);
            *file = opened.ok().map(|opened| {
                let length = opened.metadata().map_or(0, |metadata| metadata.len());
                (opened, length)
            });
        }
        match file.as_mut() {
            Some((opened, length)) => {
                *length += lines.len() as u64;
                opened.write_all(lines).is_ok()
            }
            None => false,
        }
    }
}
