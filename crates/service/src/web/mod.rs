//! The service's HTTP interface.

mod body;
mod curves;
mod handlers;
mod prefixes;
mod status;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use pathcast_web::{Gate, Reason, json, page, problem};

use crate::app::Shared;
use crate::error::ServiceError;
use crate::metrics::ENDPOINTS;
use crate::workers::Workers;

/// The page that a browser shows; it has no other files.
const PAGE: &str = include_str!("page.html");
/// The interface in OpenAPI.
const OPENAPI: &str = include_str!("openapi.json");

/// What all requests share.
pub struct Web {
    /// The service.
    pub app: Shared,
    gate: Gate,
    /// Threads for samples and pages.
    intake: Workers,
    /// A thread for better answers.
    refinement: Workers,
}

impl Web {
    /// Reads the tokens, and starts the threads.
    ///
    /// # Errors
    /// [`ServiceError::Config`] if the tokens are invalid, or no thread starts.
    pub fn new(app: Shared) -> Result<Self, ServiceError> {
        let config = &app.config;
        let gate = Gate::new(&config.access, &config.limits, config.listen)?;
        let failed =
            |error: std::io::Error| ServiceError::Config(format!("no thread starts: {error}"));
        Ok(Self {
            gate,
            intake: Workers::start("intake", 2, 64).map_err(failed)?,
            refinement: Workers::start("refinement", 1, 1024).map_err(failed)?,
            app,
        })
    }

    /// Whether a request may be answered.
    fn admit(&self, request: &Request) -> Result<(), Response> {
        let path = request.uri().path();
        let is_open = matches!(path, "/" | "/openapi.json" | "/healthz" | "/readyz");
        let admitted = self.gate.admit(request, is_open);
        admitted.map_err(|(reason, response)| {
            let metrics = &self.app.metrics;
            match reason {
                Reason::Site => {}
                Reason::Token | Reason::Role => drop(metrics.unauthorized.fetch_add(1, Relaxed)),
                Reason::Rate => drop(metrics.limited.fetch_add(1, Relaxed)),
            }
            response
        })
    }
}

/// What all handlers get.
type Context = State<Arc<Web>>;

/// All paths.
pub fn router(web: &Arc<Web>) -> Router {
    Router::new()
        .route("/v1/http", get(handlers::http))
        .route("/v1/bitrate", get(handlers::bitrate))
        .route("/v1/cmsd", get(handlers::cmsd))
        .route("/v1/throughput", get(handlers::throughput))
        .route("/v1/transfer", get(handlers::transfer))
        .route("/v1/samples", post(handlers::samples))
        .route("/v1/outcomes", post(handlers::outcomes))
        .route("/v1/pages", get(handlers::pages))
        .route(
            "/v1/pages/{class}",
            put(handlers::put_page).delete(handlers::remove_page),
        )
        .route("/v1/status", get(status::status))
        .route("/v1/prefix", get(status::prefix))
        .route("/v1/prefixes", get(prefixes::prefixes))
        .route("/v1/curves", get(curves::curves))
        .route("/metrics", get(status::metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(handlers::ready))
        .route("/openapi.json", get(|| async { json_text(OPENAPI) }))
        .route("/", get(|| async { page(PAGE) }))
        .fallback(|| async {
            problem(
                StatusCode::NOT_FOUND,
                "no such path; /openapi.json lists them",
            )
        })
        .method_not_allowed_fallback(|| async {
            problem(
                StatusCode::METHOD_NOT_ALLOWED,
                "no such method here; /openapi.json lists them",
            )
        })
        .layer(middleware::from_fn_with_state(Arc::clone(web), around))
        .with_state(Arc::clone(web))
}

/// What surrounds each request.
async fn around(State(web): Context, request: Request, next: Next) -> Response {
    let begin = Instant::now();
    let endpoint = endpoint(request.uri().path());
    let response = match web.admit(&request) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused,
    };
    web.app
        .metrics
        .respond(endpoint, response.status().as_u16(), begin.elapsed());
    response
}

/// The place of a path in [`ENDPOINTS`].
fn endpoint(path: &str) -> usize {
    let name = path
        .strip_prefix("/v1/")
        .unwrap_or(path.trim_start_matches('/'));
    let name = name.split('/').next().unwrap_or("");
    let found = ENDPOINTS.iter().position(|endpoint| *endpoint == name);
    found.unwrap_or(ENDPOINTS.len() - 1)
}

fn json_text(text: &'static str) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
