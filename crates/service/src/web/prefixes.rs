//! The prefixes that have samples, for programs that configure servers by prefix.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use pathcast_analysis::clusters::Prefix;
use pathcast_decide::Client;
use serde::{Deserialize, Serialize};

use super::{Context, problem};
use crate::app::App;
use crate::knowledge::{PARTS, part_of};

/// Most prefixes of one answer.
const MOST: usize = 100_000;

/// Parameters of `/v1/prefixes`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixesQuestion {
    seen_s: Option<f64>,
    #[serde(default = "ten_thousand")]
    limit: usize,
    after: Option<String>,
}

fn ten_thousand() -> usize {
    10_000
}

/// One page of the list.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Listed {
    prefixes: Vec<Seen>,
    /// The last of them, if there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Seen {
    prefix: String,
    age_s: f64,
    samples: u64,
}

/// `GET /v1/prefixes`.
pub async fn prefixes(
    State(web): Context,
    question: Result<Query<PrefixesQuestion>, QueryRejection>,
) -> Response {
    let question = match question {
        Ok(Query(question)) => question,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error.body_text()),
    };
    let after = question.after.as_deref().map(Client::parse).transpose();
    let after = match after {
        Ok(after) => after.map(|client| client.prefix),
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let seen_s = question.seen_s.unwrap_or(web.app.config.window_s);
    if !(seen_s > 0.0 && (1..=MOST).contains(&question.limit)) {
        let message = format!(
            "seen_s is {seen_s} and limit is {}, expected more than 0, and 1 to {MOST}",
            question.limit
        );
        return problem(StatusCode::BAD_REQUEST, &message);
    }
    let app = Arc::clone(&web.app);
    let listed = tokio::task::spawn_blocking(move || list(&app, seen_s, question.limit, after));
    match listed.await {
        Ok(listed) => super::json(
            StatusCode::OK,
            serde_json::to_vec(&listed).unwrap_or_default(),
        ),
        Err(_) => problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the prefixes cannot be listed",
        ),
    }
}

/// Prefixes with a sample in the last `seen_s`, part by part, and in order within each part.
fn list(app: &App, seen_s: f64, limit: usize, after: Option<Prefix>) -> Listed {
    let now_s = app.clock.now_s();
    let mut listed = Listed::default();
    for number in after.map_or(0, part_of)..PARTS {
        let mut found = Vec::new();
        app.knowledge.store_part(number, |_, table| {
            for (prefix, entry) in table.iter() {
                let age_s = (now_s - entry.newest_s).max(0.0);
                let is_next = after.is_none_or(|after| prefix > after || part_of(after) != number);
                if is_next && age_s <= seen_s {
                    found.push((prefix, age_s, entry.samples));
                }
            }
        });
        found.sort_unstable_by_key(|one| one.0);
        for (prefix, age_s, samples) in found {
            if listed.prefixes.len() == limit {
                listed.next = listed.prefixes.last().map(|one| one.prefix.clone());
                return listed;
            }
            listed.prefixes.push(Seen {
                prefix: prefix.to_string(),
                age_s,
                samples,
            });
        }
    }
    listed
}
