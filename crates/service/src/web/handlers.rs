//! What answers each path.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use pathcast_web::{json, problem, whole};
use serde::Deserialize;
use tokio::sync::oneshot;

use super::body::{self, Kind};
use super::{Context, Web};
use crate::answers::{
    AnswerError, BitrateQuestion, HttpQuestion, ThroughputQuestion, TransferQuestion,
};
use crate::cmsd::CmsdQuestion;
use crate::ingest::Intake;
use crate::pages::is_class;

/// A question's parameters, or what is wrong with them.
type Parameters<T> = Result<Query<T>, QueryRejection>;

fn answered(answer: Result<Vec<u8>, AnswerError>) -> Response {
    match answer {
        Ok(body) => json(StatusCode::OK, body),
        Err(error) => {
            let status = match error {
                AnswerError::Unknown(_) | AnswerError::NoPage(_) => StatusCode::NOT_FOUND,
                _ => StatusCode::BAD_REQUEST,
            };
            problem(status, &error.to_string())
        }
    }
}

fn asked<T>(parameters: Parameters<T>) -> Result<T, Response> {
    match parameters {
        Ok(Query(question)) => Ok(question),
        Err(error) => Err(problem(StatusCode::BAD_REQUEST, &error.body_text())),
    }
}

/// `GET /v1/throughput`.
pub async fn throughput(State(web): Context, question: Parameters<ThroughputQuestion>) -> Response {
    match asked(question) {
        Ok(question) => answered(web.app.throughput(&question)),
        Err(wrong) => wrong,
    }
}

/// `GET /v1/bitrate`.
pub async fn bitrate(State(web): Context, question: Parameters<BitrateQuestion>) -> Response {
    match asked(question) {
        Ok(question) => answered(web.app.bitrate(&question)),
        Err(wrong) => wrong,
    }
}

/// `GET /v1/cmsd`: the answer has the header that a server adds to its own; without one if nothing is known, since
/// servers take other codes for failures.
pub async fn cmsd(State(web): Context, question: Parameters<CmsdQuestion>) -> Response {
    let answer = match asked(question) {
        Ok(question) => web.app.cmsd(question),
        Err(wrong) => return wrong,
    };
    let (body, header) = match answer {
        Err(AnswerError::Unknown(_)) => return StatusCode::NO_CONTENT.into_response(),
        Err(error) => return answered(Err(error)),
        Ok(answer) => answer,
    };
    let mut response = json(StatusCode::OK, body);
    if let Ok(value) = header.parse() {
        response.headers_mut().insert("cmsd-dynamic", value);
    }
    response
}

/// `GET /v1/transfer`.
pub async fn transfer(State(web): Context, question: Parameters<TransferQuestion>) -> Response {
    match asked(question) {
        Ok(question) => answered(web.app.transfer(&question)),
        Err(wrong) => wrong,
    }
}

/// `GET /v1/http`.
pub async fn http(State(web): Context, question: Parameters<HttpQuestion>) -> Response {
    let question = match asked(question) {
        Ok(question) => question,
        Err(wrong) => return wrong,
    };
    answered(web.app.http(&question).map(|(answer, refinement)| {
        if let Some(refinement) = refinement {
            let app = Arc::clone(&web.app);
            // if too many wait, the next question about such a path asks again
            web.refinement.send(move || app.refine(&refinement));
        }
        answer
    }))
}

/// Does something that takes long on a thread for that.
async fn apart<T: Send + 'static>(
    web: &Arc<Web>,
    work: impl FnOnce(&Web) -> T + Send + 'static,
) -> Result<T, Response> {
    let (sender, receiver) = oneshot::channel();
    let shared = Arc::clone(&web.app);
    let owner = Arc::clone(web);
    let sent = web.intake.send(move || {
        let _ = sender.send(work(&owner));
    });
    if !sent {
        shared.metrics.busy.fetch_add(1, Relaxed);
        let message = "too many batches wait; send this one again later";
        let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, message);
        let after = axum::http::HeaderValue::from_static("1");
        response
            .headers_mut()
            .insert(axum::http::header::RETRY_AFTER, after);
        return Err(response);
    }
    receiver.await.map_err(|_| {
        problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the request could not be worked on",
        )
    })
}

/// The response to lines that were taken one by one: an error if none was.
fn taken(intake: &Intake) -> Response {
    let status = match (intake.accepted, intake.refused) {
        (0, 1..) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    };
    json(status, serde_json::to_vec(intake).unwrap_or_default())
}

/// Parameters of `/v1/samples`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleOptions {
    client: Option<String>,
    begun_s: Option<f64>,
}

/// `POST /v1/samples`.
pub async fn samples(
    State(web): Context,
    options: Parameters<SampleOptions>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let work = async {
        let options = asked(options)?;
        let kind = body::kind(&headers)?;
        if kind == Kind::Lines && (options.client.is_some() || options.begun_s.is_some()) {
            let message = "client and begun_s are for traces; each line of JSON has its own";
            return Err(problem(StatusCode::BAD_REQUEST, message));
        }
        let packing = body::packing(&headers)?;
        let limits = &web.app.config.limits;
        let body = whole(body, limits).await?;
        let most = limits.unpacked_bytes;
        apart(&web, move |web| {
            let unpacked = packing.unpack(&body, most).map_err(|(message, is_large)| {
                let status = match is_large {
                    true => StatusCode::PAYLOAD_TOO_LARGE,
                    false => StatusCode::BAD_REQUEST,
                };
                problem(status, &message)
            })?;
            match kind {
                Kind::Lines => Ok(taken(&web.app.take_lines(&unpacked))),
                Kind::Parquet => {
                    let taken_in =
                        web.app
                            .take_trace(&unpacked, options.client.as_deref(), options.begun_s);
                    let intake =
                        taken_in.map_err(|error| problem(StatusCode::BAD_REQUEST, &error))?;
                    Ok(taken(&intake))
                }
            }
        })
        .await?
    };
    work.await.unwrap_or_else(|wrong| wrong)
}

/// `POST /v1/outcomes`.
pub async fn outcomes(State(web): Context, headers: HeaderMap, body: Body) -> Response {
    let work = async {
        if body::kind(&headers)? != Kind::Lines {
            let message = "outcomes are lines of JSON, expected application/x-ndjson";
            return Err(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let body = whole(body, &web.app.config.limits).await?;
        apart(&web, move |web| taken(&web.app.take_outcomes(&body))).await
    };
    work.await.unwrap_or_else(|wrong| wrong)
}

/// `PUT /v1/pages/CLASS`.
pub async fn put_page(
    State(web): Context,
    Path(class): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let work = async {
        if !is_class(&class) {
            let message = "the class is no plain name, expected up to 64 letters, digits, - _ .";
            return Err(problem(StatusCode::BAD_REQUEST, message));
        }
        let packing = body::packing(&headers)?;
        let limits = &web.app.config.limits;
        let most = limits.unpacked_bytes;
        let body = whole(body, limits).await?;
        apart(&web, move |web| {
            let read = packing.unpack(&body, most).map_err(|(message, _)| message);
            match read.and_then(|content| web.app.pages.put(&class, &content)) {
                Ok(warnings) => {
                    let text = serde_json::json!({ "class": class, "warnings": warnings });
                    json(StatusCode::OK, text.to_string().into_bytes())
                }
                Err(message) => problem(StatusCode::BAD_REQUEST, &message),
            }
        })
        .await
    };
    work.await.unwrap_or_else(|wrong| wrong)
}

/// `DELETE /v1/pages/CLASS`.
pub async fn remove_page(State(web): Context, Path(class): Path<String>) -> Response {
    match is_class(&class) && web.app.pages.remove(&class) {
        true => StatusCode::NO_CONTENT.into_response(),
        false => problem(StatusCode::NOT_FOUND, "no page of this class"),
    }
}

/// `GET /v1/pages`.
pub async fn pages(State(web): Context) -> Response {
    let pages = web.app.pages.list().into_iter().map(|(class, resources, bytes)| {
        serde_json::json!({ "class": class, "resources": resources, "bytes": bytes })
    });
    let pages: Vec<_> = pages.collect();
    json(
        StatusCode::OK,
        serde_json::json!({ "pages": pages })
            .to_string()
            .into_bytes(),
    )
}

/// `GET /readyz`.
pub async fn ready(State(web): Context) -> Response {
    match web.app.ready() {
        true => "ready\n".into_response(),
        false => problem(
            StatusCode::SERVICE_UNAVAILABLE,
            "the service starts, or stops",
        ),
    }
}
