//! The service's HTTP interface.

mod body;
mod curves;
mod handlers;
mod prefixes;
mod status;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use pathcast_web::access::{self, Asker, Rates, Role, Tokens};
use pathcast_web::{Peer, json, page, problem};

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
    tokens: Option<Tokens>,
    /// Only names of this machine lead here.
    is_local: bool,
    rates: Rates,
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
        let access = &app.config.access;
        let tokens = access.tokens.as_deref().map(Tokens::read).transpose()?;
        let failed =
            |error: std::io::Error| ServiceError::Config(format!("no thread starts: {error}"));
        Ok(Self {
            is_local: app.config.listen.ip().is_loopback() && tokens.is_none(),
            rates: Rates::new(app.config.limits.requests_per_s),
            intake: Workers::start("intake", 2, 64).map_err(failed)?,
            refinement: Workers::start("refinement", 1, 1024).map_err(failed)?,
            tokens,
            app,
        })
    }

    /// Whether a request may be answered, and by whom it is asked.
    fn admit(&self, request: &Request) -> Result<(), Response> {
        let path = request.uri().path();
        let header = |name: header::HeaderName| {
            request
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        if self.is_local {
            let host = request.uri().host().or_else(|| header(header::HOST));
            if !host.is_some_and(access::is_local) {
                let message = "the header Host names another machine, expected localhost";
                return Err(problem(StatusCode::FORBIDDEN, message));
            }
        }
        let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
        let mut asker = Asker::Address(peer.unwrap_or(IpAddr::from([0, 0, 0, 0])));
        let is_open = matches!(path, "/" | "/openapi.json" | "/healthz" | "/readyz");
        if let Some(tokens) = self.tokens.as_ref().filter(|_| !is_open) {
            let Some((role, known)) =
                header(header::AUTHORIZATION).and_then(|one| tokens.role(one))
            else {
                self.app.metrics.unauthorized.fetch_add(1, Relaxed);
                let message = "no valid token, expected Authorization: Bearer TOKEN";
                let mut response = problem(StatusCode::UNAUTHORIZED, message);
                let scheme = HeaderValue::from_static("Bearer");
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, scheme);
                return Err(response);
            };
            let is_question = matches!(*request.method(), Method::GET | Method::HEAD);
            if role == Role::Read && !is_question {
                self.app.metrics.unauthorized.fetch_add(1, Relaxed);
                let message = "the token may only ask; expected one with write";
                return Err(problem(StatusCode::FORBIDDEN, message));
            }
            asker = known;
        }
        if !self.rates.allow(asker) {
            self.app.metrics.limited.fetch_add(1, Relaxed);
            let message = "too many requests; limits.requests_per_s has the rate";
            let mut response = problem(StatusCode::TOO_MANY_REQUESTS, message);
            let after = HeaderValue::from_static("1");
            response.headers_mut().insert(header::RETRY_AFTER, after);
            return Err(response);
        }
        Ok(())
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
