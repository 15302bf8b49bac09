//! Counters, in Prometheus' text format.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use pathcast_decide::Kind;
use pathcast_decide::path_state::BasisKind;
use pathcast_web::{Connections, Family};

/// Upper bounds of the latencies' classes, seconds.
const BOUNDS_S: [f64; 10] = [5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 5e-3, 2e-2, 0.1, 1.0];
/// Endpoints that are counted apart.
pub const ENDPOINTS: [&str; 12] = [
    "http",
    "bitrate",
    "cmsd",
    "throughput",
    "transfer",
    "samples",
    "outcomes",
    "pages",
    "prefixes",
    "status",
    "metrics",
    "other",
];
/// Why samples are refused.
pub const REASONS: [&str; 5] = ["json", "client", "future", "late", "value"];
/// Classes of status codes.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Latencies of one endpoint.
#[derive(Debug, Default)]
struct Latencies {
    classes: [AtomicU64; BOUNDS_S.len() + 1],
    sum_us: AtomicU64,
}

/// All counters.
#[derive(Debug, Default)]
pub struct Metrics {
    latencies: [Latencies; ENDPOINTS.len()],
    responses: [[AtomicU64; CLASSES.len()]; ENDPOINTS.len()],
    /// Samples that were taken.
    pub samples: AtomicU64,
    /// Samples from this host's sockets, and records that came too fast for them.
    pub watched: AtomicU64,
    /// See `watched`.
    pub watch_lost: AtomicU64,
    /// Samples that were refused, by reason.
    pub refused: [AtomicU64; REASONS.len()],
    /// Decisions by kind and basis.
    pub decisions: [[AtomicU64; 5]; Kind::ALL.len()],
    /// Decisions that nothing was known for.
    pub unknown: AtomicU64,
    /// Answers that were computed, and those that were taken from a cache.
    pub computed: AtomicU64,
    /// See `computed`.
    pub cached: AtomicU64,
    /// Lines that the log of decisions left out.
    pub unlogged: AtomicU64,
    /// Connections.
    pub connections: Arc<Connections>,
    /// Requests refused: no valid token, and too many.
    pub unauthorized: AtomicU64,
    /// See `unauthorized`.
    pub limited: AtomicU64,
    /// Batches refused because too many waited.
    pub busy: AtomicU64,
}

impl Metrics {
    /// Counts a response.
    pub fn respond(&self, endpoint: usize, status: u16, took: Duration) {
        let took_s = took.as_secs_f64();
        let class = BOUNDS_S.partition_point(|bound| *bound < took_s);
        let latencies = &self.latencies[endpoint];
        latencies.classes[class].fetch_add(1, Relaxed);
        #[allow(clippy::cast_possible_truncation)] // days
        latencies.sum_us.fetch_add(took.as_micros() as u64, Relaxed);
        let status = usize::from(status / 100).clamp(1, 5) - 1;
        self.responses[endpoint][status].fetch_add(1, Relaxed);
    }

    /// Counts a decision.
    pub fn decide(&self, kind: Kind, basis: BasisKind) {
        self.decisions[kind.number()][basis as usize].fetch_add(1, Relaxed);
    }

    /// All of it; `more` are gauges and counters that others keep: name, help, type, samples with their labels.
    pub fn text(&self, more: &[Family]) -> String {
        let mut text = String::with_capacity(16 << 10);
        self.write_requests(&mut text);
        let refused = (REASONS.iter().zip(&self.refused))
            .map(|(reason, count)| (format!("reason=\"{reason}\""), count.load(Relaxed) as f64));
        let one = |count: &AtomicU64| vec![(String::new(), count.load(Relaxed) as f64)];
        let families = [
            Family::counter(
                "samples_total",
                "Samples that were taken.",
                one(&self.samples),
            ),
            Family::counter(
                "samples_refused_total",
                "Samples that were refused.",
                refused.collect(),
            ),
            Family::counter(
                "watched_samples_total",
                "Samples from this host's sockets.",
                one(&self.watched),
            ),
            Family::counter(
                "watch_records_lost_total",
                "Records of sockets that came too fast.",
                one(&self.watch_lost),
            ),
            Family::counter("decisions_total", "Decisions.", self.decided()),
            Family::counter(
                "decisions_unknown_total",
                "Questions about clients without any basis.",
                one(&self.unknown),
            ),
            Family::counter(
                "answers_computed_total",
                "Answers by models, not from a cache.",
                one(&self.computed),
            ),
            Family::counter(
                "answers_cached_total",
                "Answers from a cache.",
                one(&self.cached),
            ),
            Family::counter(
                "decision_log_dropped_total",
                "Lines that the log of decisions lacks.",
                one(&self.unlogged),
            ),
            Family::gauge(
                "connections",
                "Open connections.",
                one(&self.connections.open),
            ),
            Family::counter(
                "connections_accepted_total",
                "Connections.",
                one(&self.connections.accepted),
            ),
            Family::counter(
                "connections_refused_total",
                "Connections beyond the limit.",
                one(&self.connections.refused),
            ),
            Family::counter(
                "requests_unauthorized_total",
                "Requests without a valid token.",
                one(&self.unauthorized),
            ),
            Family::counter(
                "requests_limited_total",
                "Requests beyond the rate limit.",
                one(&self.limited),
            ),
            Family::counter(
                "batches_busy_total",
                "Batches refused because too many waited.",
                one(&self.busy),
            ),
        ];
        for family in families.iter().chain(more) {
            family.write(&mut text);
        }
        text
    }

    /// Decisions by kind and basis.
    fn decided(&self) -> Vec<(String, f64)> {
        let kinds = [
            BasisKind::Prefix,
            BasisKind::WiderPrefix,
            BasisKind::Network,
            BasisKind::Region,
            BasisKind::All,
        ];
        let names = ["prefix", "wider_prefix", "network", "region", "all"];
        let decisions = Kind::ALL.iter().flat_map(|kind| {
            kinds.iter().map(move |basis| {
                let count = self.decisions[kind.number()][*basis as usize].load(Relaxed);
                let labels = format!(
                    "kind=\"{}\",basis=\"{}\"",
                    kind.name(),
                    names[*basis as usize]
                );
                (labels, count as f64)
            })
        });
        decisions.collect()
    }

    fn write_requests(&self, text: &mut String) {
        let mut responses = Vec::new();
        for (endpoint, classes) in ENDPOINTS.iter().zip(&self.responses) {
            for (class, count) in CLASSES.iter().zip(classes) {
                let count = count.load(Relaxed);
                if count > 0 {
                    responses.push((
                        format!("endpoint=\"{endpoint}\",class=\"{class}\""),
                        count as f64,
                    ));
                }
            }
        }
        Family::counter("responses_total", "Responses.", responses).write(text);
        let name = "pathcast_response_seconds";
        let _ = writeln!(
            text,
            "# HELP {name} Time from a request's header to its response."
        );
        let _ = writeln!(text, "# TYPE {name} histogram");
        for (endpoint, latencies) in ENDPOINTS.iter().zip(&self.latencies) {
            let mut sum = 0;
            for (class, count) in latencies.classes.iter().enumerate() {
                sum += count.load(Relaxed);
                let bound = BOUNDS_S.get(class).map_or("+Inf".into(), f64::to_string);
                let _ = writeln!(
                    text,
                    "{name}_bucket{{endpoint=\"{endpoint}\",le=\"{bound}\"}} {sum}"
                );
            }
            let seconds = latencies.sum_us.load(Relaxed) as f64 / 1e6;
            let _ = writeln!(text, "{name}_sum{{endpoint=\"{endpoint}\"}} {seconds}");
            let _ = writeln!(text, "{name}_count{{endpoint=\"{endpoint}\"}} {sum}");
        }
    }
}
