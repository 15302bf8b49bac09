//! Counters of the manager.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use pathcast_web::{Connections, Family, memory_bytes};

/// All counters.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Connections.
    pub connections: Arc<Connections>,
    /// Reports taken.
    pub reports: AtomicU64,
    /// Configurations sent, and their bytes: whole ones, and what changed alone.
    sent: [[AtomicU64; 2]; 2],
    /// Writes that failed.
    pub failed: AtomicU64,
    /// Requests beyond the rate.
    pub limited: AtomicU64,
    refused: Mutex<BTreeMap<&'static str, u64>>,
    versions: Mutex<BTreeMap<String, u64>>,
}

impl Metrics {
    /// Counts a refused report or request by its reason.
    pub fn refuse(&self, reason: &'static str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        *refused.entry(reason).or_default() += 1;
    }

    /// Counts a version by its cause.
    pub fn version(&self, cause: &str) {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        *versions.entry(cause.into()).or_default() += 1;
    }

    /// Counts a configuration that was sent.
    pub fn send(&self, is_delta: bool, bytes: usize) {
        let [count, sum] = &self.sent[usize::from(is_delta)];
        count.fetch_add(1, Relaxed);
        sum.fetch_add(bytes as u64, Relaxed);
    }

    /// All of it; `more` are gauges and counters that others keep.
    pub fn text(&self, more: &[Family]) -> String {
        let one = |count: &AtomicU64| vec![(String::new(), count.load(Relaxed) as f64)];
        let labeled = |label: &str, count: &BTreeMap<String, u64>| {
            count
                .iter()
                .map(|(name, count)| (format!("{label}=\"{name}\""), *count as f64))
                .collect()
        };
        let refused = self
            .refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let refused = refused
            .into_iter()
            .map(|(reason, count)| (reason.to_string(), count))
            .collect();
        let versions = self
            .versions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let sent = |which: usize| {
            let of = |(kind, counts): (&str, &[AtomicU64; 2])| {
                (
                    format!("kind=\"{kind}\""),
                    counts[which].load(Relaxed) as f64,
                )
            };
            ["whole", "delta"]
                .into_iter()
                .zip(&self.sent)
                .map(of)
                .collect()
        };
        let mut families = vec![
            Family::counter(
                "manager_configurations_total",
                "Configurations sent: whole ones, and what changed alone.",
                sent(0),
            ),
            Family::counter(
                "manager_configuration_bytes_total",
                "Bytes of configurations sent.",
                sent(1),
            ),
            Family::counter(
                "manager_reports_total",
                "Reports taken.",
                one(&self.reports),
            ),
            Family::counter(
                "manager_refused_total",
                "Requests refused, by reason.",
                labeled("reason", &refused),
            ),
            Family::counter(
                "manager_versions_total",
                "Versions since the start, by cause.",
                labeled("cause", &versions),
            ),
            Family::counter(
                "manager_state_failed_total",
                "Writes that the database refused.",
                one(&self.failed),
            ),
            Family::counter(
                "manager_limited_total",
                "Requests beyond the rate limit.",
                one(&self.limited),
            ),
            Family::gauge(
                "manager_connections",
                "Open connections.",
                one(&self.connections.open),
            ),
        ];
        if let Some(bytes) = memory_bytes() {
            families.push(Family::gauge(
                "manager_memory_bytes",
                "Memory of the process.",
                vec![(String::new(), bytes)],
            ));
        }
        let mut text = String::new();
        families
            .iter()
            .chain(more)
            .for_each(|family| family.write(&mut text));
        text
    }
}
