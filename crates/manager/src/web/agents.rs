//! What agents ask and send.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pathcast_control::delta::CONTENT_TYPE as DELTA;
use pathcast_control::{Refusal, Report, SIGNATURE_HEADER, Secret};
use pathcast_web::{problem, text, whole};
use serde::Deserialize;

use super::{Context, Web, answer, either};

/// Longest that a request for a newer configuration waits, seconds.
const LONGEST_S: f64 = 30.0;

impl Web {
    /// The agent that asks, by its own secret.
    fn agent(&self, headers: &HeaderMap) -> Result<(String, Secret), Response> {
        let known = text(headers, header::AUTHORIZATION);
        let known = known.and_then(|header| self.shared.desk().agent_of(header));
        known.ok_or_else(|| self.unauthorized())
    }
}

/// `POST /v1/reports`: taken once it is in the database.
pub async fn report(State(web): Context, headers: HeaderMap, body: Body) -> Response {
    either(take(&web, &headers, body).await)
}

async fn take(web: &Web, headers: &HeaderMap, body: Body) -> Result<Response, Response> {
    let (name, secret) = web.agent(headers)?;
    let bytes = whole(body, &web.config.limits).await?;
    let signature = text(headers, HeaderName::from_static(SIGNATURE_HEADER)).unwrap_or_default();
    if let Err(error) = secret.verify(&bytes, signature) {
        web.metrics.refuse("signature");
        return Err(problem(StatusCode::UNAUTHORIZED, &error.to_string()));
    }
    let report = Report::read(&bytes).map_err(|error| {
        web.metrics.refuse("body");
        problem(StatusCode::BAD_REQUEST, &error.to_string())
    })?;
    let batch = {
        let mut desk = web.shared.desk();
        desk.report(&name, &report).map_err(|refusal| {
            web.metrics.refuse(match refusal {
                Refusal::Agent => "agent",
                Refusal::Time => "time",
                Refusal::Boot => "boot",
                Refusal::Sequence => "sequence",
            });
            let status = if refusal == Refusal::Agent {
                StatusCode::FORBIDDEN
            } else {
                StatusCode::CONFLICT
            };
            problem(status, &refusal.to_string())
        })?;
        desk.batch
    };
    web.kept(batch).await?;
    web.metrics.reports.fetch_add(1, Relaxed);
    let version = *web.keeper.published.borrow();
    Ok(answer(&serde_json::json!({ "version": version })))
}

/// Parameters of a request for the configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    agent: String,
    #[serde(default)]
    have: u64,
    /// Of the version that it has, if the agent takes what changed alone.
    digest: Option<String>,
    #[serde(default)]
    wait: f64,
}

/// `GET /v1/configuration`: 304 if the agent has the newest.
pub async fn configuration(
    State(web): Context,
    headers: HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response {
    either(give(&web, &headers, asked).await)
}

async fn give(
    web: &Web,
    headers: &HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Response> {
    let (name, secret) = web.agent(headers)?;
    let Query(asked) =
        asked.map_err(|error| problem(StatusCode::BAD_REQUEST, &error.body_text()))?;
    if asked.agent != name {
        web.metrics.refuse("agent");
        return Err(problem(StatusCode::FORBIDDEN, &Refusal::Agent.to_string()));
    }
    if !(0.0..=LONGEST_S).contains(&asked.wait) {
        let message = format!("wait is {}, expected 0 to {LONGEST_S} seconds", asked.wait);
        return Err(problem(StatusCode::BAD_REQUEST, &message));
    }
    let mut published = web.keeper.published.subscribe();
    let mut stopping = web.stopping.subscribe();
    let is_other = |version: &u64| *version != asked.have;
    tokio::select! {
        _ = published.wait_for(is_other) => {}
        () = tokio::time::sleep(Duration::from_secs_f64(asked.wait)) => {}
        _ = stopping.wait_for(|stop| *stop) => {}
    }
    if !is_other(&web.keeper.published.borrow()) {
        return Ok(StatusCode::NOT_MODIFIED.into_response());
    }
    let body = web.keeper.body(asked.have, asked.digest.as_deref());
    web.metrics.send(body.is_delta, body.text.len());
    let signature = secret.sign(&body.text);
    let mut response = body.text.to_vec().into_response();
    let fields = response.headers_mut();
    let kind = match body.is_delta {
        true => DELTA,
        false => "application/json",
    };
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Ok(value) = HeaderValue::from_str(&signature) {
        fields.insert(HeaderName::from_static(SIGNATURE_HEADER), value);
    }
    Ok(response)
}
