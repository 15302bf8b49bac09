//! What the service knows of itself: for the page, and for Prometheus.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pathcast_decide::curve::Counts;
use pathcast_decide::path_state::LEVELS;
use pathcast_decide::{Client, Entry, Kind};
use pathcast_web::{Family, memory_bytes, problem};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Context;
use crate::app::App;
use crate::knowledge::PARTS;

/// Prefixes that are named as the worst.
const WORST: usize = 20;
/// Outcomes that a prefix has before it is judged.
const LEAST_OUTCOMES: u32 = 10;
/// Horizons of the page's forecasts, seconds.
const HORIZONS_S: [f64; 4] = [1.0, 4.0, 10.0, 30.0];

/// A prefix, and how its decisions fared.
#[derive(Debug, Clone, Serialize)]
struct Judged {
    prefix: String,
    kind: &'static str,
    outcomes: u32,
    coverage: f64,
    error: f64,
}

/// The prefixes whose decisions fared worst: the fewest held.
fn worst(app: &App) -> Vec<Judged> {
    let mut judged: Vec<Judged> = Vec::new();
    for number in 0..PARTS {
        app.knowledge.store_part(number, |_, table| {
            for (prefix, entry) in table.iter() {
                for kind in Kind::ALL {
                    let score = &entry.scores[kind.number()];
                    let (Some(coverage), Some(error)) = (score.coverage(), score.error()) else {
                        continue;
                    };
                    if score.count >= LEAST_OUTCOMES {
                        judged.push(Judged {
                            prefix: prefix.to_string(),
                            kind: kind.name(),
                            outcomes: score.count,
                            coverage,
                            error,
                        });
                    }
                }
            }
        });
        // no more than are shown stay
        if judged.len() > 50 * WORST {
            shorten(&mut judged);
        }
    }
    shorten(&mut judged);
    judged
}

fn shorten(judged: &mut Vec<Judged>) {
    judged.sort_by(|a, b| {
        a.coverage
            .total_cmp(&b.coverage)
            .then(b.error.total_cmp(&a.error))
    });
    judged.truncate(WORST);
}

/// `GET /v1/status`.
pub async fn status(State(web): Context) -> Response {
    let app = Arc::clone(&web.app);
    apart(move || {
        let (prefixes, evicted, totals) = app.knowledge.totals();
        let kinds = Kind::ALL.iter().zip(totals).map(|(kind, total)| {
            let count = total.count as f64;
            let part = |sum: f64| (total.count > 0).then(|| sum / count);
            json!({
                "kind": kind.name(),
                "decisions": app.metrics.decisions[kind.number()].iter().map(|one| one.load(Relaxed)).sum::<u64>(),
                "outcomes": total.count,
                "coverage": part(total.held as f64),
                "error": part(total.error).map(f64::exp_m1),
            })
        });
        let kinds: Vec<Value> = kinds.collect();
        let recent: Vec<Value> = (app.recent().iter().rev())
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        json!({
            "time_s": app.clock.now_s(),
            "version": env!("CARGO_PKG_VERSION"),
            "window_s": app.config.window_s,
            "prefixes": prefixes,
            "evicted": evicted,
            "samples": app.metrics.samples.load(Relaxed),
            "memory_bytes": memory_bytes(),
            "pages": app.pages.list().into_iter().map(|page| page.0).collect::<Vec<_>>(),
            "kinds": kinds,
            "worst": worst(&app),
            "recent": recent,
            "disk_failing": app.store.as_ref().is_some_and(|store| store.counters.is_failing.load(Relaxed)),
        })
    })
    .await
}

/// Computes a value off the threads that answer decisions.
async fn apart(compute: impl FnOnce() -> Value + Send + 'static) -> Response {
    match tokio::task::spawn_blocking(compute).await {
        Ok(value) => super::json(StatusCode::OK, value.to_string().into_bytes()),
        Err(_) => problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the status cannot be computed",
        ),
    }
}

/// Parameters of `/v1/prefix`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixQuestion {
    client: String,
}

/// `GET /v1/prefix`.
pub async fn prefix(
    State(web): Context,
    question: Result<Query<PrefixQuestion>, QueryRejection>,
) -> Response {
    let client = match question {
        Ok(Query(question)) => Client::parse(&question.client),
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error.body_text()),
    };
    let client = match client {
        Ok(client) => client,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let app = Arc::clone(&web.app);
    let found = app.knowledge.entry(client.prefix, Entry::clone);
    let Some(entry) = found else {
        let message = format!("nothing is known of {}", client.prefix);
        return problem(StatusCode::NOT_FOUND, &message);
    };
    apart(move || {
        let now_s = app.clock.now_s();
        let forecasts = HORIZONS_S.iter().map(|&horizon_s| {
            let rate = entry.rates.forecast(now_s, horizon_s);
            let quantiles = rate.map(|rate| LEVELS.map(|level| rate.quantile_bps(level)));
            json!({ "horizon_s": horizon_s, "quantiles_bps": quantiles })
        });
        let scores = Kind::ALL.iter().map(|kind| {
            let score = &entry.scores[kind.number()];
            json!({
                "kind": kind.name(),
                "outcomes": score.count,
                "coverage": score.coverage(),
                "error": score.error(),
            })
        });
        json!({
            "prefix": client.prefix.to_string(),
            "samples": entry.samples,
            "age_s": (now_s - entry.newest_s).max(0.0),
            "rtt_s": entry.rtts.median_s(),
            "least_rtt_s": entry.rtts.least_s(),
            "packets": entry.counts.totals().0,
            "losses": entry.counts.totals().1,
            "curves": curves(&entry.counts),
            "forecasts": forecasts.collect::<Vec<_>>(),
            "scores": scores.collect::<Vec<_>>(),
        })
    })
    .await
}

/// p(cwnd) with its bounds, by number of connections.
fn curves(counts: &Counts) -> Vec<Value> {
    let points = counts.points().unwrap_or_default();
    let curve = points.into_iter().map(|(npc, points)| {
        let points = points.into_iter().filter_map(|(cwnd, _)| {
            #[allow(clippy::cast_possible_truncation)] // at most 255
            counts.at(cwnd, npc as u32)
        });
        json!({ "npc": npc, "points": points.collect::<Vec<_>>() })
    });
    curve.collect()
}

/// `GET /metrics`.
pub async fn metrics(State(web): Context) -> Response {
    let app = Arc::clone(&web.app);
    let text = tokio::task::spawn_blocking(move || app.metrics.text(&families(&app))).await;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        Err(_) => problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the metrics cannot be computed",
        ),
    }
}

/// Metrics that others than [`crate::metrics::Metrics`] keep.
fn families(app: &App) -> Vec<Family> {
    let (prefixes, evicted, totals) = app.knowledge.totals();
    let one = |value: f64| vec![(String::new(), value)];
    let by_kind = |value: &dyn Fn(usize) -> f64| -> Vec<(String, f64)> {
        let labels = Kind::ALL
            .iter()
            .map(|kind| format!("kind=\"{}\"", kind.name()));
        labels.zip((0..Kind::ALL.len()).map(value)).collect()
    };
    let worst = worst(app);
    let of_worst = |value: &dyn Fn(&Judged) -> f64| -> Vec<(String, f64)> {
        let label = |one: &Judged| format!("prefix=\"{}\",kind=\"{}\"", one.prefix, one.kind);
        worst.iter().map(|one| (label(one), value(one))).collect()
    };
    let mut families = vec![
        Family::gauge(
            "prefixes",
            "Client prefixes that are kept.",
            one(prefixes as f64),
        ),
        Family::counter(
            "prefixes_evicted_total",
            "Prefixes that made room.",
            one(evicted as f64),
        ),
        Family::counter(
            "outcomes_total",
            "Decisions whose outcome is known.",
            by_kind(&|kind| totals[kind].count as f64),
        ),
        Family::counter(
            "outcomes_held_total",
            "Decisions that held: the truth was in the band of 90 %, or the segment came in time.",
            by_kind(&|kind| totals[kind].held as f64),
        ),
        Family::counter(
            "outcome_error_total",
            "Sum of the logarithms by which medians were off.",
            by_kind(&|kind| totals[kind].error),
        ),
        Family::gauge(
            "prefix_coverage",
            "Part of the decisions that held, of the prefixes with the least.",
            of_worst(&|one| one.coverage),
        ),
        Family::gauge(
            "prefix_error",
            "How far medians were off, of the same prefixes.",
            of_worst(&|one| one.error),
        ),
        Family::counter(
            "clock_jumps_total",
            "How often the machine's clock was set anew.",
            one(app.clock.jumps() as f64),
        ),
        Family::gauge(
            "ready",
            "Whether requests may come.",
            one(f64::from(u8::from(app.ready()))),
        ),
    ];
    if let Some(bytes) = memory_bytes() {
        families.push(Family::gauge(
            "memory_bytes",
            "Memory of the process.",
            one(bytes),
        ));
    }
    families.extend(of_store(app));
    families
}

/// Metrics of the state folder.
fn of_store(app: &App) -> Vec<Family> {
    let one = |value: f64| vec![(String::new(), value)];
    let Some(store) = &app.store else {
        return Vec::new();
    };
    let counters = &store.counters;
    let failing = f64::from(u8::from(counters.is_failing.load(Relaxed)));
    let count = |value: &std::sync::atomic::AtomicU64| one(value.load(Relaxed) as f64);
    vec![
        Family::gauge(
            "state_failing",
            "Whether the last write of the state failed: a full disk.",
            one(failing),
        ),
        Family::counter(
            "state_failed_total",
            "Writes of the state that failed.",
            count(&counters.failed),
        ),
        Family::counter(
            "state_left_out_total",
            "Batches that the log of samples lacks.",
            count(&counters.left_out),
        ),
        Family::counter(
            "state_snapshots_total",
            "Snapshots that were written.",
            count(&counters.snapshots),
        ),
        Family::counter(
            "state_log_bytes_total",
            "Bytes written to the log of samples.",
            count(&counters.log_bytes),
        ),
        Family::gauge(
            "state_damaged",
            "Frames that could not be read at the start.",
            count(&counters.damaged),
        ),
        Family::gauge(
            "state_read_seconds",
            "Time that reading the state took at the start.",
            one(counters.read_us.load(Relaxed) as f64 / 1e6),
        ),
    ]
}
