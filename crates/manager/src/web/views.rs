//! What operators see.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pathcast_control::{Entry, Fleet, Mode, Name, Prefix, history};
use pathcast_web::{Family, memory_bytes, problem};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Context, answer, either};

/// Most prefixes or versions of one answer.
const MOST: usize = 1000;
/// Versions that a diff spans at most.
const WIDEST: u64 = 10_000;
/// An agent that has not reported for this long counts as lost, milliseconds.
const LOST_MS: u64 = 60_000;

/// The state of a prefix, as a word.
fn state(fleet: &Fleet, prefix: Prefix, entry: &Entry) -> &'static str {
    if fleet.head().pins.contains_key(&prefix) {
        return "pinned";
    }
    match entry.mode {
        _ if fleet.is_held_out(prefix) => "hold_out",
        Mode::Observed => "observed",
        Mode::Trial => "trial",
        Mode::Placed => "placed",
        Mode::RolledBack { .. } => "rolled_back",
    }
}

fn prefix_view(fleet: &Fleet, prefix: Prefix, entry: &Entry) -> Value {
    let (reports, flows) = entry.observed.totals();
    let default = Name::default_template();
    let in_force = fleet.map().get(&prefix);
    json!({
        "prefix": prefix,
        "state": state(fleet, prefix, entry),
        "template": in_force.unwrap_or(&default),
        "target": entry.target,
        "conditions": entry.observed.medians(),
        "reports": reports,
        "flows": flows,
        "loads": { "default": entry.loads()[0], "templates": entry.loads()[1] },
        "gain": entry.gain(),
        "mode": entry.mode,
    })
}

/// Which prefixes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// An address: the longest known prefix that holds it.
    client: Option<IpAddr>,
    state: Option<String>,
    template: Option<Name>,
    /// Number of prefixes to skip.
    #[serde(default)]
    after: usize,
    limit: Option<usize>,
}

/// `GET /v1/prefixes`.
pub async fn prefixes(
    State(web): Context,
    which: Result<Query<Which>, QueryRejection>,
) -> Response {
    let found = which.map_err(|error| problem(StatusCode::BAD_REQUEST, &error.body_text()));
    either(found.and_then(|Query(which)| {
        let desk = web.shared.desk();
        let fleet = &desk.fleet;
        if let Some(client) = which.client {
            let found = fleet.longest(client);
            let missing = || {
                problem(
                    StatusCode::NOT_FOUND,
                    &format!("no known prefix holds {client}"),
                )
            };
            let (prefix, entry) = found.ok_or_else(missing)?;
            return Ok(answer(
                &json!({ "prefixes": [prefix_view(fleet, prefix, entry)] }),
            ));
        }
        let default = Name::default_template();
        let is_meant = |prefix: &Prefix, entry: &Entry| {
            let template = fleet.map().get(prefix).unwrap_or(&default);
            which
                .state
                .as_ref()
                .is_none_or(|word| word == state(fleet, *prefix, entry))
                && which.template.as_ref().is_none_or(|name| name == template)
        };
        let limit = which.limit.unwrap_or(100).min(MOST);
        let mut found = (fleet.entries().iter().enumerate().skip(which.after))
            .filter(|(_, (prefix, entry))| is_meant(prefix, entry));
        let all: Vec<_> = found.by_ref().take(limit).collect();
        let next = found.next().and(all.last()).map(|(number, _)| number + 1);
        let views: Vec<Value> = all
            .iter()
            .map(|(_, (prefix, entry))| prefix_view(fleet, *prefix, entry))
            .collect();
        // pins of prefixes that no agent has reported
        let unknown = fleet
            .head()
            .pins
            .iter()
            .filter(|(prefix, _)| fleet.entry(**prefix).is_none());
        let pins: BTreeMap<_, _> = unknown.take(MOST).collect();
        Ok(answer(
            &json!({ "prefixes": views, "next": next, "unreported_pins": pins }),
        ))
    }))
}

/// `GET /v1/trials`.
pub async fn trials(State(web): Context) -> Response {
    let desk = web.shared.desk();
    let settings = desk.fleet.settings();
    let view = |trial: &pathcast_control::Trial| {
        json!({
            "id": trial.id,
            "template": trial.template,
            "model": trial.model,
            "stage": trial.stage,
            "since_ms": trial.since_ms,
            "reason": trial.reason,
            "prefixes": trial.prefixes(),
            "waiting": desk.fleet.waiting(&trial.template),
            "loads": { "control": trial.loads[0], "treatment": trial.loads[1] },
            "gain": trial.gain(settings),
            "loss": trial.loss(settings),
        })
    };
    let all: Vec<Value> = desk
        .fleet
        .trials()
        .values()
        .rev()
        .take(MOST)
        .map(view)
        .collect();
    answer(&json!({ "trials": all }))
}

/// `GET /v1/templates`.
pub async fn templates(State(web): Context) -> Response {
    let desk = web.shared.desk();
    let mut in_force: BTreeMap<&Name, usize> = BTreeMap::new();
    for name in desk.fleet.map().values() {
        *in_force.entry(name).or_default() += 1;
    }
    let view = |template: &pathcast_control::Template| {
        let prefixes = in_force.get(&template.name).copied().unwrap_or(0);
        json!({ "name": template.name, "knobs": template.knobs, "prefixes": prefixes })
    };
    let all: Vec<Value> = desk.fleet.head().templates.iter().map(view).collect();
    answer(&json!({ "templates": all }))
}

/// `GET /v1/model`.
pub async fn model(State(web): Context) -> Response {
    let desk = web.shared.desk();
    match &desk.fleet.head().model {
        Some(model) => answer(model),
        None => problem(
            StatusCode::NOT_FOUND,
            "there is no model; PUT /v1/model sets one",
        ),
    }
}

/// `GET /v1/agents`.
pub async fn agents(State(web): Context) -> Response {
    let desk = web.shared.desk();
    let now_ms = crate::desk::now_ms();
    let view = |agent: &pathcast_control::Agent| {
        json!({
            "name": agent.name,
            "seen_ms": agent.seen_ms,
            "is_lost": now_ms.saturating_sub(agent.seen_ms) > LOST_MS,
            "reports": agent.reports,
            "applied": agent.applied,
        })
    };
    let all: Vec<Value> = desk.agents().map(view).collect();
    answer(&json!({ "agents": all }))
}

/// Which versions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Versions {
    /// Only those below.
    before: Option<u64>,
    limit: Option<u64>,
    /// Those of slots of trials too.
    #[serde(default)]
    slots: bool,
}

/// `GET /v1/history`: the newest first, with at most 1000 changes each.
pub async fn history(
    State(web): Context,
    asked: Result<Query<Versions>, QueryRejection>,
) -> Response {
    let found = async {
        let Query(asked) =
            asked.map_err(|error| problem(StatusCode::BAD_REQUEST, &error.body_text()))?;
        let until = asked
            .before
            .map_or(u64::MAX, |before| before.saturating_sub(1));
        let limit = asked.limit.unwrap_or(50).min(MOST as u64);
        let versions = web.store.history(0, until, limit, asked.slots).await;
        let mut versions =
            versions.map_err(|error| problem(StatusCode::SERVICE_UNAVAILABLE, &error))?;
        let views: Vec<Value> = versions
            .iter_mut()
            .map(|one| {
                let count = one.changes.len();
                one.changes.truncate(MOST);
                json!({ "version": one.version, "made_at_ms": one.made_at_ms, "cause": one.cause,
                    "reasons": one.reasons, "changes": one.changes, "change_count": count })
            })
            .collect();
        Ok(answer(&json!({ "versions": views })))
    };
    either(found.await)
}

/// Between which versions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Between {
    from: u64,
    to: u64,
}

/// `GET /v1/diff`.
pub async fn diff(State(web): Context, asked: Result<Query<Between>, QueryRejection>) -> Response {
    let found = async {
        let Query(Between { from, to }) =
            asked.map_err(|error| problem(StatusCode::BAD_REQUEST, &error.body_text()))?;
        let newest = *web.keeper.published.borrow();
        if from > to || to > newest || to - from > WIDEST {
            let message = format!(
                "from is {from}, to is {to}; expected from <= to <= {newest}, by at most {WIDEST}"
            );
            return Err(problem(StatusCode::BAD_REQUEST, &message));
        }
        let versions = web.store.history(from, to, WIDEST, true).await;
        let versions =
            versions.map_err(|error| problem(StatusCode::SERVICE_UNAVAILABLE, &error))?;
        Ok(answer(
            &json!({ "changes": history::diff(versions.iter().rev()) }),
        ))
    };
    either(found.await)
}

/// `GET /v1/status`.
pub async fn status(State(web): Context) -> Response {
    let desk = web.shared.desk();
    let fleet = &desk.fleet;
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for (prefix, entry) in fleet.entries() {
        *states.entry(state(fleet, *prefix, entry)).or_default() += 1;
    }
    // those that no agent has reported too
    states.insert("pinned", fleet.head().pins.len());
    answer(&json!({
        "program": env!("CARGO_PKG_VERSION"),
        "time_ms": crate::desk::now_ms(),
        "version": *web.keeper.published.borrow(),
        "model": fleet.head().model_number,
        "is_frozen": fleet.head().is_frozen,
        "prefixes": fleet.len(),
        "states": states,
        "map": fleet.map().len(),
        "agents": desk.agents().count(),
        "rolled_back": fleet.alarms,
        "hold_out_gain": fleet.hold_out_gain(),
        "memory_bytes": memory_bytes(),
        "is_state_failing": web.keeper.is_failing.load(Relaxed),
    }))
}

/// `GET /readyz`: 503 while the database fails.
pub async fn ready(State(web): Context) -> Response {
    match web.keeper.is_failing.load(Relaxed) || *web.stopping.borrow() {
        true => problem(
            StatusCode::SERVICE_UNAVAILABLE,
            "the state cannot be written, or the manager stops",
        ),
        false => "ready\n".into_response(),
    }
}

/// `GET /metrics`.
pub async fn metrics(State(web): Context) -> Response {
    let families = {
        let desk = web.shared.desk();
        let now_ms = crate::desk::now_ms();
        let lost = desk
            .agents()
            .filter(|agent| now_ms.saturating_sub(agent.seen_ms) > LOST_MS)
            .count();
        let one = |value: f64| vec![(String::new(), value)];
        let gain = desk.fleet.hold_out_gain();
        let mut all = vec![
            Family::gauge(
                "manager_prefixes",
                "Prefixes known.",
                one(desk.fleet.len() as f64),
            ),
            Family::gauge(
                "manager_map",
                "Prefixes with a template of their own.",
                one(desk.fleet.map().len() as f64),
            ),
            Family::gauge(
                "manager_version",
                "Version of the configuration.",
                one(desk.fleet.head().version as f64),
            ),
            Family::gauge(
                "manager_agents",
                "Agents.",
                one(desk.agents().count() as f64),
            ),
            Family::gauge(
                "manager_agents_lost",
                "Agents without a report for 60 s.",
                one(lost as f64),
            ),
            Family::counter(
                "manager_rolled_back_total",
                "Prefixes rolled back by guards.",
                one(desk.fleet.alarms as f64),
            ),
            Family::counter(
                "manager_prefixes_refused_total",
                "Reports of prefixes beyond the limit.",
                one(desk.fleet.beyond_limit as f64),
            ),
        ];
        if let Some(gain) = gain {
            let help =
                "Completion time of placed prefixes over that of the hold-out group, less 1.";
            all.push(Family::gauge("manager_hold_out_gain", help, one(gain.mean)));
        }
        all
    };
    let mut response = web.metrics.text(&families).into_response();
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
