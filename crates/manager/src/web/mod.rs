//! The manager's HTTP interface.

mod agents;
mod operate;
mod views;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{delete, get, post};
use pathcast_web::access::{Asker, Rates, Role, Tokens, is_local};
use pathcast_web::{Peer, json, page, problem};
use serde::Serialize;
use tokio::sync::watch;

use crate::config::Config;
use crate::desk::{Desk, Shared};
use crate::error::ManagerError;
use crate::keeper::Keeper;
use crate::metrics::Metrics;
use crate::store::Store;

/// The page that a browser shows; it has no other files.
const PAGE: &str = include_str!("page.html");

/// What all requests share.
pub struct Web {
    config: Config,
    shared: Arc<Shared>,
    keeper: Arc<Keeper>,
    store: Arc<Store>,
    metrics: Arc<Metrics>,
    tokens: Option<Tokens>,
    /// Only names of this machine lead here.
    is_local: bool,
    rates: Rates,
    /// Whether the manager stops: requests that wait end then.
    stopping: watch::Sender<bool>,
}

/// What all handlers get.
type Context = State<Arc<Web>>;

impl Web {
    /// Reads the tokens of operators.
    ///
    /// # Errors
    /// [`ManagerError::Config`] if they are invalid.
    pub fn new(
        config: Config,
        shared: Arc<Shared>,
        keeper: Arc<Keeper>,
        store: Arc<Store>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, ManagerError> {
        let tokens = config
            .access
            .tokens
            .as_deref()
            .map(Tokens::read)
            .transpose()?;
        Ok(Self {
            is_local: config.listen.ip().is_loopback() && tokens.is_none(),
            rates: Rates::new(config.limits.requests_per_s),
            stopping: watch::Sender::new(false),
            config,
            shared,
            keeper,
            store,
            metrics,
            tokens,
        })
    }

    /// Ends requests that wait, once the manager stops.
    pub fn stopping(
        self: &Arc<Self>,
        mut stopped: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + use<> {
        let web = Arc::clone(self);
        async move {
            let _ = stopped.wait_for(|stop| *stop).await;
            web.stopping.send_replace(true);
        }
    }

    /// Whether a request may be answered.
    fn admit(&self, request: &Request) -> Result<(), Response> {
        let headers = request.headers();
        let host = request
            .uri()
            .host()
            .or_else(|| text(headers, header::HOST.as_str()));
        if self.is_local && !host.is_some_and(is_local) {
            let message = "the header Host names another machine, expected localhost";
            return Err(problem(StatusCode::FORBIDDEN, message));
        }
        // a page of another site may send, but cannot hide where it is from
        let is_change = !matches!(*request.method(), Method::GET | Method::HEAD);
        let origin =
            text(headers, header::ORIGIN.as_str()).and_then(|origin| origin.split_once("://"));
        if is_change
            && origin.is_some_and(|(_, origin)| {
                Some(origin) != text(headers, header::HOST.as_str()).or(host)
            })
        {
            let message = "the header Origin names another site, expected this one";
            return Err(problem(StatusCode::FORBIDDEN, message));
        }
        let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
        let mut asker = Asker::Address(peer.unwrap_or(IpAddr::from([0, 0, 0, 0])));
        let path = request.uri().path();
        // agents have their own secrets
        let is_open = matches!(
            path,
            "/" | "/healthz" | "/readyz" | "/v1/reports" | "/v1/configuration"
        );
        if let Some(tokens) = self.tokens.as_ref().filter(|_| !is_open) {
            let known =
                text(headers, header::AUTHORIZATION.as_str()).and_then(|one| tokens.role(one));
            let Some((role, known)) = known else {
                return Err(self.unauthorized());
            };
            if role == Role::Read && is_change {
                self.metrics.refuse("role");
                let message = "the token may only read; expected one with write";
                return Err(problem(StatusCode::FORBIDDEN, message));
            }
            asker = known;
        }
        if !self.rates.allow(asker) {
            self.metrics.limited.fetch_add(1, Relaxed);
            let message = "too many requests; limits.requests_per_s has the rate";
            let mut response = problem(StatusCode::TOO_MANY_REQUESTS, message);
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            return Err(response);
        }
        Ok(())
    }

    fn unauthorized(&self) -> Response {
        self.metrics.refuse("token");
        let mut response = problem(
            StatusCode::UNAUTHORIZED,
            "no valid token, expected Authorization: Bearer TOKEN",
        );
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        response
    }

    /// Waits until what was changed is in the database.
    async fn kept(&self, batch: u64) -> Result<(), Response> {
        if self.keeper.wait_for(batch).await {
            return Ok(());
        }
        let message = "the state cannot be written; the change is kept in memory, and written once that works";
        Err(problem(StatusCode::SERVICE_UNAVAILABLE, message))
    }

    /// Changes something as an operator, and waits until it is in the database.
    async fn operate<T, E: ToString>(
        &self,
        status: StatusCode,
        change: impl FnOnce(&mut Desk, u64) -> Result<T, E>,
    ) -> Result<T, Response> {
        let (changed, batch) = {
            let mut desk = self.shared.desk();
            let now_ms = desk.now_ms();
            let changed =
                change(&mut desk, now_ms).map_err(|error| problem(status, &error.to_string()))?;
            desk.operated();
            (changed, desk.batch)
        };
        self.kept(batch).await?;
        Ok(changed)
    }
}

/// A header's text.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// An answer of JSON.
fn answer(value: &impl Serialize) -> Response {
    json(
        StatusCode::OK,
        serde_json::to_vec(value).expect("keys are texts"),
    )
}

/// A response, whether it is an answer or a refusal.
fn either(result: Result<Response, Response>) -> Response {
    result.unwrap_or_else(|refused| refused)
}

/// All paths.
pub fn router(web: &Arc<Web>) -> Router {
    Router::new()
        .route("/v1/reports", post(agents::report))
        .route("/v1/configuration", get(agents::configuration))
        .route("/v1/agents", get(views::agents).post(operate::add_agent))
        .route("/v1/agents/{name}", delete(operate::remove_agent))
        .route(
            "/v1/templates",
            get(views::templates).post(operate::add_templates),
        )
        .route("/v1/model", get(views::model).put(operate::put_model))
        .route("/v1/prefixes", get(views::prefixes))
        .route("/v1/trials", get(views::trials))
        .route("/v1/trials/{id}/approve", post(operate::approve))
        .route("/v1/trials/{id}/revert", post(operate::revert_trial))
        .route("/v1/pin", post(operate::pin))
        .route("/v1/unpin", post(operate::unpin))
        .route("/v1/history", get(views::history))
        .route("/v1/diff", get(views::diff))
        .route("/v1/revert", post(operate::revert))
        .route("/v1/resume", post(operate::resume))
        .route("/v1/status", get(views::status))
        .route("/metrics", get(views::metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(views::ready))
        .route("/", get(|| async { page(PAGE) }))
        .fallback(|| async {
            problem(
                StatusCode::NOT_FOUND,
                "no such path; docs/reference/manager.md lists them",
            )
        })
        .method_not_allowed_fallback(|| async {
            problem(StatusCode::METHOD_NOT_ALLOWED, "no such method here")
        })
        .layer(middleware::from_fn_with_state(Arc::clone(web), around))
        .with_state(Arc::clone(web))
}

/// What surrounds each request.
async fn around(State(web): Context, request: Request, next: Next) -> Response {
    match web.admit(&request) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused,
    }
}
