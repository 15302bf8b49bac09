//! Writes what changed, again and again, and then lets agents see it: what an agent gets is in the database.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pathcast_control::Configuration;
use pathcast_web::{Stop, log};
use tokio::sync::{Notify, watch};

use crate::desk::Shared;
use crate::metrics::Metrics;
use crate::publisher::{Body, Publisher};
use crate::store::{Store, WriteError};

/// Changes of this time are written together.
const GATHER: Duration = Duration::from_millis(20);
/// Trials go on so often without any report.
const STEP: Duration = Duration::from_secs(1);
/// Pause after the database failed.
const PAUSE: Duration = Duration::from_secs(1);

/// What the keeper shares with requests.
pub struct Keeper {
    /// Called when something changed.
    pub changed: Notify,
    /// Number of the last batch that is written.
    pub written: watch::Sender<u64>,
    /// Version of the configuration in force.
    pub published: watch::Sender<u64>,
    publisher: Mutex<Publisher>,
    /// Whether the database fails.
    pub is_failing: AtomicBool,
}

impl Keeper {
    /// A keeper that has written nothing.
    pub fn new(configuration: Configuration) -> Self {
        Self {
            changed: Notify::new(),
            written: watch::Sender::new(0),
            published: watch::Sender::new(configuration.version),
            publisher: Mutex::new(Publisher::new(configuration)),
            is_failing: AtomicBool::new(false),
        }
    }

    fn publisher<T>(&self, of: impl FnOnce(&mut Publisher) -> T) -> T {
        // a large configuration takes long: other tasks of this thread go on elsewhere
        tokio::task::block_in_place(|| {
            of(&mut self
                .publisher
                .lock()
                .unwrap_or_else(PoisonError::into_inner))
        })
    }

    /// What an agent gets that has a version, with its digest if it takes what changed alone.
    pub fn body(&self, have: u64, digest: Option<&str>) -> Body {
        self.publisher(|publisher| publisher.body(have, digest))
    }

    /// Waits until a batch is written; false if that takes longer than ten seconds.
    pub async fn wait_for(&self, batch: u64) -> bool {
        self.changed.notify_one();
        let mut written = self.written.subscribe();
        let wait = written.wait_for(|written| *written >= batch);
        matches!(
            tokio::time::timeout(Duration::from_secs(10), wait).await,
            Ok(Ok(_))
        )
    }

    /// Writes until `stop` says so, and once more then. Calls `halt` if another manager has taken the database.
    pub async fn run(
        &self,
        shared: &Shared,
        store: &Store,
        metrics: &Metrics,
        mut stop: watch::Receiver<bool>,
        halt: &Stop,
    ) {
        loop {
            let is_over = tokio::select! {
                () = self.changed.notified() => false,
                () = tokio::time::sleep(STEP) => false,
                _ = stop.wait_for(|stop| *stop) => true,
            };
            if !is_over {
                tokio::time::sleep(GATHER).await;
            }
            let (number, batch) = shared.desk().batch();
            loop {
                let written = if batch.is_empty() {
                    Ok(())
                } else {
                    store.write(&batch).await
                };
                let why = match written {
                    Ok(()) => break,
                    Err(WriteError::Taken) => {
                        log(
                            "error",
                            "another manager has taken the state: this one stops",
                            &[],
                        );
                        self.is_failing.store(true, Relaxed);
                        halt.stop();
                        return;
                    }
                    Err(WriteError::Failed(why)) => why,
                };
                metrics.failed.fetch_add(1, Relaxed);
                if !self.is_failing.swap(true, Relaxed) {
                    log(
                        "error",
                        "the state cannot be written; agents keep what they have",
                        &[("why", why.into())],
                    );
                }
                if is_over || *stop.borrow() {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
            if self.is_failing.swap(false, Relaxed) {
                log("info", "the state is written again", &[]);
            }
            if let Some(version) = &batch.version {
                let cause = format!("{:?}", version.cause).to_lowercase();
                metrics.version(&cause);
                let why = version.reasons.join("; ");
                let more = [
                    ("version", version.version.into()),
                    ("changes", version.changes.len().into()),
                    ("cause", cause.into()),
                    ("why", why.into()),
                ];
                log("info", "a new version", &more);
            }
            if let (Some(version), Some(head)) = (&batch.version, &batch.head) {
                self.publisher(|publisher| publisher.publish(version, &head.templates));
                self.published.send_replace(version.version);
            }
            self.written.send_replace(number);
            if is_over {
                return;
            }
        }
    }
}
