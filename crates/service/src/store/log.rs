//! The log of samples: noted in memory, written by another thread.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::frame;

/// Most bytes that wait to be written: the disk is too slow then.
const WAITING: usize = 64 << 20;

/// A file, and how much of it is whole.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    length: u64,
    written: Arc<AtomicU64>,
    is_broken: bool,
}

/// The log.
#[derive(Debug)]
pub struct Log {
    noted: Vec<u8>,
    /// Memory to note the next in.
    spare: Vec<u8>,
    file: Arc<Mutex<LogFile>>,
    /// Bytes in the file. Its lock is held while the disk syncs, which takes long.
    written: Arc<AtomicU64>,
}

impl Log {
    /// A new file.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(path)?;
        let written = Arc::<AtomicU64>::default();
        Ok(Self {
            noted: Vec::new(),
            spare: Vec::new(),
            file: Arc::new(Mutex::new(LogFile {
                file,
                length: 0,
                written: Arc::clone(&written),
                is_broken: false,
            })),
            written,
        })
    }

    /// Goes on with the file of another log.
    pub fn replace(&mut self, new: Self) {
        self.file = new.file;
        self.written = new.written;
    }

    /// Notes a frame; whether there was room.
    pub fn append(&mut self, content: &[u8]) -> bool {
        let has_room = self.noted.len() + content.len() < WAITING;
        if has_room {
            frame::append(&mut self.noted, |buffer| buffer.extend(content));
        }
        has_room
    }

    /// What was noted, to be written to the file.
    pub fn take(&mut self) -> (Vec<u8>, Arc<Mutex<LogFile>>) {
        let spare = std::mem::take(&mut self.spare);
        (
            std::mem::replace(&mut self.noted, spare),
            Arc::clone(&self.file),
        )
    }

    /// Memory that [`Log::take`] has taken.
    pub fn put_back(&mut self, mut memory: Vec<u8>) {
        if memory.capacity() <= 4 << 20 {
            memory.clear();
            self.spare = memory;
        }
    }

    /// Bytes in the file.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Writes frames. A write that fails leaves no part of a frame.
    ///
    /// # Errors
    /// If the disk is full, or fails; what was to be written is lost.
    pub fn write(file: &Mutex<LogFile>, bytes: &[u8], sync: bool) -> io::Result<()> {
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_broken {
            file.repair()?;
        }
        if !bytes.is_empty() {
            if let Err(error) = file.file.write_all(bytes) {
                file.is_broken = true;
                let _ = file.repair();
                return Err(error);
            }
            file.length += bytes.len() as u64;
            file.written.store(file.length, Ordering::Relaxed);
        }
        if sync { file.file.sync_data() } else { Ok(()) }
    }
}

impl LogFile {
    fn repair(&mut self) -> io::Result<()> {
        use std::io::Seek;
        self.file.set_len(self.length)?;
        self.file.seek(io::SeekFrom::Start(self.length))?;
        self.is_broken = false;
        Ok(())
    }
}
