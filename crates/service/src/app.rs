//! The service without its sockets: what requests read and change.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use pathcast_decide::decision::transfer;
use pathcast_decide::{Kind, Networks, Outcome, Sample};
use pathcast_scenario::Protocol;
use pathcast_window_law::Cc;
use serde::Serialize;

use crate::clock::Clock;
use crate::config::Config;
use crate::decision_log::DecisionLog;
use crate::error::ServiceError;
use crate::knowledge::Knowledge;
use crate::metrics::Metrics;
use crate::pages::Pages;
use crate::store::{BATCH, Store};

/// Transfers whose times are kept.
const TRANSFERS: NonZeroUsize = NonZeroUsize::new(100_000).unwrap();
/// Parts of them, each with a lock.
const TRANSFER_PARTS: usize = 16;
/// Decisions that the page shows.
const RECENT: usize = 50;
/// They are as far apart at least, seconds.
const RECENT_EACH_S: f64 = 0.02;

/// All that requests read and change.
pub struct App {
    /// The configuration.
    pub config: Config,
    /// The time.
    pub clock: Clock,
    /// What is known.
    pub knowledge: Knowledge,
    /// The pages.
    pub pages: Pages,
    /// The state folder.
    pub store: Option<Store>,
    /// The counters.
    pub metrics: Metrics,
    /// Whether requests may come.
    pub is_ready: AtomicBool,
    /// Protocols that the servers offer.
    pub protocols: Vec<Protocol>,
    /// The window law of the servers.
    pub cc: Cc,
    decision_log: Option<DecisionLog>,
    /// Number of the last batch; held while it is taken.
    batch: Mutex<u64>,
    decision: AtomicU64,
    transfers: [Mutex<LruCache<transfer::Key, [f64; 5]>>; TRANSFER_PARTS],
    recent: Mutex<(f64, VecDeque<Vec<u8>>)>,
}

/// A line of the log about an outcome.
#[derive(Serialize)]
struct OutcomeLine<'a> {
    outcome: String,
    kind: &'a str,
    prefix: String,
    time_s: f64,
    truth: f64,
    held: bool,
    error: f64,
}

impl App {
    /// Reads the state, and what the configuration names.
    ///
    /// # Errors
    /// [`ServiceError`] if a file is invalid, or the state folder is in use.
    pub fn open(config: Config) -> Result<(Self, Vec<String>), ServiceError> {
        config.check()?;
        let networks = match &config.networks {
            Some(file) => {
                let wrong =
                    |error: String| ServiceError::Config(format!("{}: {error}", file.display()));
                let text =
                    std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
                Networks::parse(&text).map_err(|error| wrong(error.to_string()))?
            }
            None => Networks::default(),
        };
        let protocols = (config.protocols.iter()).map(|name| {
            let parsed = name.parse::<Protocol>();
            parsed.map_err(|error| ServiceError::Config(format!("protocols: {error}")))
        });
        let protocols = protocols.collect::<Result<Vec<_>, _>>()?;
        let cc = match Cc::of(&config.scheme) {
            Cc::Other => Cc::Cubic,
            cc => cc,
        };
        let knowledge = Knowledge::new(config.prefixes, config.window_s, networks);
        let store = (config.state.as_ref()).map(|folder| Store::open(folder, &knowledge));
        let store = store.transpose()?;
        let (pages, warnings) = Pages::open(store.as_ref().map(|one| one.folder().join("pages")));
        let decision_log = (store.as_ref())
            .filter(|_| config.decision_log.enabled)
            .map(|store| {
                DecisionLog::new(
                    store.folder().join("decisions.jsonl"),
                    config.decision_log.bytes,
                )
            });
        let batch = Mutex::new(knowledge.last_batch());
        let clock = Clock::default();
        // numbers of decisions differ between runs of the service
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // seconds
        let decision = AtomicU64::new((clock.now_s() as u64) << 28);
        let app = Self {
            config,
            clock,
            knowledge,
            pages,
            store,
            metrics: Metrics::default(),
            is_ready: AtomicBool::new(false),
            protocols,
            cc,
            decision_log,
            batch,
            decision,
            transfers: std::array::from_fn(|_| {
                Mutex::new(LruCache::new(
                    NonZeroUsize::new(TRANSFERS.get() / TRANSFER_PARTS)
                        .unwrap_or(NonZeroUsize::MIN),
                ))
            }),
            recent: Mutex::default(),
        };
        Ok((app, warnings))
    }

    /// Whether requests may come.
    pub fn ready(&self) -> bool {
        self.is_ready.load(Relaxed)
    }

    /// The number of a new decision.
    pub fn next_decision(&self) -> u64 {
        self.decision.fetch_add(1, Relaxed)
    }

    /// Takes samples: notes them for the disk, and learns from them.
    pub fn take(&self, samples: &[Sample]) {
        for samples in samples.chunks(BATCH) {
            let mut batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
            *batch += 1;
            self.knowledge.update(*batch, samples, |sample, outcome| {
                self.log_outcome(&sample.client.prefix.to_string(), sample.time_s, outcome);
            });
            // afterwards: what an old log holds is in all parts that a snapshot takes then
            if let Some(store) = &self.store {
                store.append(*batch, samples);
            }
        }
        self.metrics
            .samples
            .fetch_add(samples.len() as u64, Relaxed);
    }

    /// Logs a decision: the line of its answer.
    pub fn log_decision(&self, line: &[u8], now_s: f64) {
        if let Some(log) = &self.decision_log
            && !log.note(line)
        {
            self.metrics.unlogged.fetch_add(1, Relaxed);
        }
        // the page shows some, nobody needs all
        if let Ok(mut recent) = self.recent.try_lock()
            && now_s - recent.0 > RECENT_EACH_S
        {
            recent.0 = now_s;
            if recent.1.len() == RECENT {
                recent.1.pop_front();
            }
            recent.1.push_back(line.to_vec());
        }
    }

    /// Logs an outcome.
    pub fn log_outcome(&self, prefix: &str, time_s: f64, outcome: &Outcome) {
        let Some(log) = &self.decision_log else {
            return;
        };
        let line = OutcomeLine {
            outcome: format!("{:016x}", outcome.id),
            kind: outcome.kind.name(),
            prefix: prefix.into(),
            time_s,
            truth: outcome.truth,
            held: outcome.held,
            error: outcome.error,
        };
        if !log.note(&serde_json::to_vec(&line).unwrap_or_default()) {
            self.metrics.unlogged.fetch_add(1, Relaxed);
        }
    }

    /// Some of the last decisions, as JSON each.
    pub fn recent(&self) -> VecDeque<Vec<u8>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.1.clone()
    }

    /// Writes what waits for the disk; with `sync`, so that it survives the machine.
    pub fn write(&self, sync: bool) {
        if let Some(store) = &self.store {
            store.write(sync);
        }
        if let Some(log) = &self.decision_log
            && !log.write()
        {
            self.metrics.unlogged.fetch_add(1, Relaxed);
        }
    }

    /// The times of a transfer with losses, in round trips, computed once for all that share its key.
    pub fn times_with_losses(
        &self,
        key: transfer::Key,
        compute: impl FnOnce() -> Option<[f64; 5]>,
    ) -> Option<[f64; 5]> {
        let part = usize::from(
            key.iter()
                .fold(0_u16, |sum, one| sum.wrapping_mul(31) ^ one),
        );
        let part = &self.transfers[part % TRANSFER_PARTS];
        let kept = part
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .copied();
        if kept.is_some() {
            self.metrics.cached.fetch_add(1, Relaxed);
            return kept;
        }
        self.metrics.computed.fetch_add(1, Relaxed);
        let times = compute()?;
        part.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .put(key, times);
        Some(times)
    }

    /// How long a kind of decision holds, if samples show what happened.
    pub fn until_s(kind: Kind, now_s: f64, horizon_s: f64) -> Option<f64> {
        matches!(kind, Kind::Throughput | Kind::Bitrate).then_some(now_s + horizon_s)
    }
}

/// The state that all parts of the service share.
pub type Shared = Arc<App>;
