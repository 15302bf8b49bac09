//! The state folder: a snapshot, the log of samples since, and a lock.
//!
//! ```text
//! lock            held while a service runs
//! snapshot-N      all that was known when log-N began, and somewhat later: each part says up to which batch
//! log-N           batches of samples since; written ten times a second, synced twice
//! pages/          page files by class
//! decisions.jsonl decisions and outcomes
//! ```

mod frame;
mod log;
mod recover;
mod snapshot;
mod stored;

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pathcast_decide::Sample;
use rustix::fs::FlockOperation;

use crate::error::ServiceError;
use crate::knowledge::Knowledge;
use log::Log;
pub use snapshot::VERSION as SNAPSHOT_VERSION;

/// The log is replaced when it is longer: reading it takes a second at most.
const LOG_BYTES: u64 = 48 << 20;
/// And when it is older, if there is anything in it.
const LOG_AGE: Duration = Duration::from_secs(60);
/// But not more often than this.
const LEAST_AGE: Duration = Duration::from_secs(10);
/// Samples of one batch at most: decisions wait while a part of them is taken.
pub const BATCH: usize = 4096;

/// What the metrics show of a store.
#[derive(Debug, Default)]
pub struct StoreCounters {
    /// Writes that failed: a full disk.
    pub failed: AtomicU64,
    /// Whether the last write failed.
    pub is_failing: AtomicBool,
    /// Snapshots written.
    pub snapshots: AtomicU64,
    /// Bytes written to the log.
    pub log_bytes: AtomicU64,
    /// Frames that could not be read at the start.
    pub damaged: AtomicU64,
    /// The version of a snapshot that another version wrote; such a snapshot is left out. 0: none.
    pub other_version: AtomicU32,
    /// Batches whose log was left out: the disk was too slow, or full.
    pub left_out: AtomicU64,
    /// Time that reading took at the start, microseconds.
    pub read_us: AtomicU64,
}

/// The state folder of a running service.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    log: Mutex<Log>,
    generation: AtomicU64,
    begun: Mutex<Instant>,
    is_stale: AtomicBool,
    /// For the metrics.
    pub counters: StoreCounters,
    _lock: File,
}

impl Store {
    /// Takes the folder, and reads what it holds into `knowledge`.
    ///
    /// # Errors
    /// [`ServiceError::InUse`] if another service has it, [`ServiceError::State`] if it cannot be written.
    pub fn open(folder: &Path, knowledge: &Knowledge) -> Result<Self, ServiceError> {
        let error = |error: std::io::Error| ServiceError::State(folder.into(), error.to_string());
        // addresses of clients are nobody else's business
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder
            .recursive(true)
            .create(folder.join("pages"))
            .map_err(error)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join("lock"))
            .map_err(error)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| ServiceError::InUse(folder.into()))?;
        let counters = StoreCounters::default();
        let begin = Instant::now();
        let newest = recover::read(folder, knowledge, &counters).map_err(error)?;
        #[allow(clippy::cast_possible_truncation)] // an hour at most
        counters
            .read_us
            .store(begin.elapsed().as_micros() as u64, Ordering::Relaxed);
        // a new log: the old one may end within a frame
        let generation = newest + 1;
        let log = Log::create(&log_file(folder, generation)).map_err(error)?;
        Ok(Self {
            folder: folder.into(),
            log: Mutex::new(log),
            generation: AtomicU64::new(generation),
            begun: Mutex::new(begin),
            is_stale: AtomicBool::new(true),
            counters,
            _lock: lock,
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Notes a batch; it is on disk within a second.
    pub fn append(&self, batch: u64, samples: &[Sample]) {
        if !self.log().append(&stored::batch(batch, samples)) {
            self.counters.left_out.fetch_add(1, Ordering::Relaxed);
        }
        self.is_stale.store(true, Ordering::Relaxed);
    }

    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Writes what was noted; to be called ten times a second, and with `sync` at least once.
    pub fn write(&self, sync: bool) {
        // noting must not wait for the disk
        let (bytes, file) = self.log().take();
        let written = Log::write(&file, &bytes, sync);
        match written {
            Ok(()) => {
                self.counters
                    .log_bytes
                    .fetch_add(bytes.len() as u64, Ordering::Relaxed);
                if !bytes.is_empty() {
                    self.counters.is_failing.store(false, Ordering::Relaxed);
                }
            }
            Err(_) => self.fail(),
        }
        self.log().put_back(bytes);
    }

    fn fail(&self) {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        self.counters.is_failing.store(true, Ordering::Relaxed);
    }

    /// Whether a snapshot should be written.
    pub fn is_due(&self) -> bool {
        let age = self
            .begun
            .lock()
            .map_or(Duration::ZERO, |begun| begun.elapsed());
        let is_long = self.log().written() > LOG_BYTES;
        let is_old = age > LOG_AGE && self.is_stale.load(Ordering::Relaxed);
        age > LEAST_AGE && (is_long || is_old)
    }

    /// Writes a snapshot, with a new log; the older ones are removed. A part is locked while it is copied.
    pub fn snapshot(&self, knowledge: &Knowledge) {
        if let Ok(mut begun) = self.begun.lock() {
            *begun = Instant::now();
        }
        self.is_stale.store(false, Ordering::Relaxed);
        let generation = self.generation.load(Ordering::Relaxed) + 1;
        let replaced = Log::create(&log_file(&self.folder, generation)).map(|new| {
            self.write(false);
            self.log().replace(new);
        });
        let written = replaced.and_then(|()| {
            self.generation.store(generation, Ordering::Relaxed);
            snapshot::write(&snapshot_file(&self.folder, generation), knowledge)
        });
        match written {
            Ok(()) => {
                self.counters.snapshots.fetch_add(1, Ordering::Relaxed);
                remove_before(&self.folder, generation);
            }
            Err(_) => self.fail(),
        }
    }
}

fn log_file(folder: &Path, generation: u64) -> PathBuf {
    folder.join(format!("log-{generation}"))
}

fn snapshot_file(folder: &Path, generation: u64) -> PathBuf {
    folder.join(format!("snapshot-{generation}"))
}

/// The generations of the files that begin with `kind`, ascending.
fn generations(folder: &Path, kind: &str) -> Vec<u64> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let numbers = names.filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?
            .strip_prefix(kind)?
            .strip_prefix('-')?
            .parse()
            .ok()
    });
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

fn remove_before(folder: &Path, generation: u64) {
    for (kind, file) in [
        ("log", log_file as fn(&Path, u64) -> PathBuf),
        ("snapshot", snapshot_file),
    ] {
        for old in generations(folder, kind) {
            if old < generation {
                let _ = fs::remove_file(file(folder, old));
            }
        }
    }
}
