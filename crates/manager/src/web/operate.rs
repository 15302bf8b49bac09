//! What operators and the learner change.

use std::convert::Infallible;
use std::fs::File;
use std::io::Read;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use pathcast_control::report::check_agent;
use pathcast_control::{Model, Name, Prefix, Secret, Template, history, template};
use pathcast_web::{problem, whole};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Context, Web, answer, either};

/// Who is named in history.
const BY: &str = "an operator";
/// Versions that a revert can go back.
const FARTHEST: u64 = 100_000;

async fn read<T: DeserializeOwned>(web: &Web, body: Body) -> Result<T, Response> {
    let bytes = whole(body, &web.config.limits).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| problem(StatusCode::BAD_REQUEST, &format!("body: {error}")))
}

fn done() -> Response {
    answer(&serde_json::json!({ "ok": true }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewAgent {
    name: String,
}

/// `POST /v1/agents`: a secret for an agent, shown this once. A known agent gets a new one.
pub async fn add_agent(State(web): Context, body: Body) -> Response {
    let added = async {
        let asked: NewAgent = read(&web, body).await?;
        check_agent(&asked.name)
            .map_err(|error| problem(StatusCode::BAD_REQUEST, &error.to_string()))?;
        let mut bytes = [0; 32];
        let drawn = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
        drawn.map_err(|error| {
            problem(
                StatusCode::INTERNAL_SERVER_ERROR,
                &format!("no randomness: {error}"),
            )
        })?;
        let secret = Secret::new(bytes);
        let add = |desk: &mut crate::desk::Desk, _| -> Result<(), Infallible> {
            desk.add_agent(&asked.name, &secret);
            Ok(())
        };
        web.operate(StatusCode::CONFLICT, add).await?;
        Ok(answer(
            &serde_json::json!({ "name": asked.name, "token": secret.reveal() }),
        ))
    };
    either(added.await)
}

/// `DELETE /v1/agents/{name}`.
pub async fn remove_agent(State(web): Context, Path(name): Path<String>) -> Response {
    let remove = |desk: &mut crate::desk::Desk, _| match desk.remove_agent(&name) {
        true => Ok(()),
        false => Err("there is no such agent; /v1/agents lists them"),
    };
    either(
        web.operate(StatusCode::NOT_FOUND, remove)
            .await
            .map(|()| done()),
    )
}

/// `POST /v1/templates`: templates without a model, to be pinned.
pub async fn add_templates(State(web): Context, body: Body) -> Response {
    let added = async {
        let templates: Vec<Template> = read(&web, body).await?;
        template::by_name(&templates)
            .map_err(|error| problem(StatusCode::BAD_REQUEST, &error.to_string()))?;
        web.operate(StatusCode::CONFLICT, |desk, _| {
            desk.fleet.add_templates(&templates)
        })
        .await?;
        Ok(done())
    };
    either(added.await)
}

/// `PUT /v1/model`.
pub async fn put_model(State(web): Context, body: Body) -> Response {
    let put = async {
        let bytes = whole(body, &web.config.limits).await?;
        let model = Model::read(&bytes)
            .map_err(|error| problem(StatusCode::BAD_REQUEST, &error.to_string()))?;
        let number = web
            .operate(StatusCode::CONFLICT, |desk, now_ms| {
                desk.fleet.set_model(model, now_ms)?;
                Ok::<_, pathcast_control::OperateError>(desk.fleet.head().model_number)
            })
            .await?;
        Ok(answer(&serde_json::json!({ "model": number })))
    };
    either(put.await)
}

/// `POST /v1/trials/{id}/approve`.
pub async fn approve(State(web): Context, Path(id): Path<u64>) -> Response {
    let approve = |desk: &mut crate::desk::Desk, now_ms| desk.fleet.approve(id, BY, now_ms);
    either(
        web.operate(StatusCode::CONFLICT, approve)
            .await
            .map(|()| done()),
    )
}

/// `POST /v1/trials/{id}/revert`.
pub async fn revert_trial(State(web): Context, Path(id): Path<u64>) -> Response {
    let revert = |desk: &mut crate::desk::Desk, now_ms| desk.fleet.revert(id, BY, now_ms);
    either(
        web.operate(StatusCode::CONFLICT, revert)
            .await
            .map(|()| done()),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pin {
    prefix: Prefix,
    template: Name,
}

/// `POST /v1/pin`.
pub async fn pin(State(web): Context, body: Body) -> Response {
    let pinned = async {
        let asked: Pin = read(&web, body).await?;
        let pin =
            |desk: &mut crate::desk::Desk, _| desk.fleet.pin(asked.prefix, &asked.template, BY);
        web.operate(StatusCode::CONFLICT, pin).await?;
        Ok(done())
    };
    either(pinned.await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unpin {
    prefix: Prefix,
}

/// `POST /v1/unpin`.
pub async fn unpin(State(web): Context, body: Body) -> Response {
    let unpinned = async {
        let asked: Unpin = read(&web, body).await?;
        let unpin = |desk: &mut crate::desk::Desk, _| desk.fleet.unpin(asked.prefix, BY);
        web.operate(StatusCode::CONFLICT, unpin).await?;
        Ok(done())
    };
    either(unpinned.await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct To {
    version: u64,
}

/// `POST /v1/revert`: puts the map of an earlier version in force, and places nothing until `/v1/resume`.
pub async fn revert(State(web): Context, body: Body) -> Response {
    let reverted = async {
        let asked: To = read(&web, body).await?;
        // the history must reach the version in force: one may be on its way to the database
        for _ in 0..100 {
            let newest = *web.keeper.published.borrow();
            if asked.version >= newest || newest - asked.version > FARTHEST {
                let message = format!(
                    "version is {}, expected one below {newest}, by at most {FARTHEST}",
                    asked.version
                );
                return Err(problem(StatusCode::CONFLICT, &message));
            }
            let versions = web
                .store
                .history(asked.version, newest, FARTHEST, true)
                .await;
            let versions =
                versions.map_err(|error| problem(StatusCode::SERVICE_UNAVAILABLE, &error))?;
            if versions.len() as u64 != newest - asked.version {
                let message = format!(
                    "the history does not reach back to version {}",
                    asked.version
                );
                return Err(problem(StatusCode::CONFLICT, &message));
            }
            let changes = history::diff(versions.iter().rev());
            let undo = |desk: &mut crate::desk::Desk, now_ms| -> Result<bool, Infallible> {
                let is_newest = desk.fleet.head().version == newest;
                if is_newest {
                    desk.fleet.undo(asked.version, &changes, BY, now_ms);
                }
                Ok(is_newest)
            };
            if web.operate(StatusCode::CONFLICT, undo).await? {
                return Ok(answer(
                    &serde_json::json!({ "ok": true, "changes": changes.len() }),
                ));
            }
        }
        Err(problem(
            StatusCode::CONFLICT,
            "versions come too fast; ask again",
        ))
    };
    either(reverted.await)
}

/// `POST /v1/resume`.
pub async fn resume(State(web): Context) -> Response {
    let resume = |desk: &mut crate::desk::Desk, now_ms| -> Result<(), Infallible> {
        desk.fleet.resume(BY, now_ms);
        Ok(())
    };
    either(
        web.operate(StatusCode::CONFLICT, resume)
            .await
            .map(|()| done()),
    )
}
