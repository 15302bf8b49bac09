//! The loss curves of all prefixes, part by part: what several services know is merged from these.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::{Context, problem};
use crate::app::App;
use crate::knowledge::PARTS;

/// Parameters of `/v1/curves`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurvesQuestion {
    part: usize,
}

/// One part of all prefixes.
#[derive(Debug, Serialize)]
struct Part {
    part: usize,
    parts: usize,
    rows: Vec<Row>,
}

/// Packets and losses of one prefix at one window.
#[derive(Debug, Serialize)]
struct Row {
    prefix: String,
    npc: u8,
    cwnd_packets: f64,
    packets: f64,
    losses: f64,
    newest_s: f64,
}

/// `GET /v1/curves`.
pub async fn curves(
    State(web): Context,
    question: Result<Query<CurvesQuestion>, QueryRejection>,
) -> Response {
    let part = match question {
        Ok(Query(question)) if question.part < PARTS => question.part,
        Ok(Query(question)) => {
            let message = format!("part is {}, expected 0 to {}", question.part, PARTS - 1);
            return problem(StatusCode::BAD_REQUEST, &message);
        }
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error.body_text()),
    };
    let app = Arc::clone(&web.app);
    let made = tokio::task::spawn_blocking(move || serde_json::to_vec(&part_of(&app, part))).await;
    match made {
        Ok(Ok(body)) => super::json(StatusCode::OK, body),
        _ => problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the curves cannot be read",
        ),
    }
}

fn part_of(app: &App, part: usize) -> Part {
    let mut rows = Vec::new();
    app.knowledge.store_part(part, |_, table| {
        for (prefix, entry) in table.iter() {
            let of_prefix = entry
                .counts
                .rows()
                .map(|(npc, cwnd_packets, packets, losses)| Row {
                    prefix: prefix.to_string(),
                    npc,
                    cwnd_packets,
                    packets,
                    losses,
                    newest_s: entry.newest_s,
                });
            rows.extend(of_prefix);
        }
    });
    Part {
        part,
        parts: PARTS,
        rows,
    }
}
