//! The manager's HTTP interface.

mod agents;
mod operate;
mod views;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{delete, get, post};
use pathcast_web::{Gate, Reason, json, page, problem, unauthorized};
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
    gate: Gate,
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
        Ok(Self {
            gate: Gate::new(&config.access, &config.limits, config.listen)?,
            stopping: watch::Sender::new(false),
            config,
            shared,
            keeper,
            store,
            metrics,
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
        let path = request.uri().path();
        // agents have their own secrets
        let is_open = matches!(
            path,
            "/" | "/healthz" | "/readyz" | "/v1/reports" | "/v1/configuration"
        );
        let admitted = self.gate.same_site(request);
        let admitted = admitted.and_then(|()| self.gate.admit(request, is_open));
        admitted.map_err(|(reason, response)| {
            match reason {
                Reason::Site => {}
                Reason::Token => self.metrics.refuse("token"),
                Reason::Role => self.metrics.refuse("role"),
                Reason::Rate => drop(self.metrics.limited.fetch_add(1, Relaxed)),
            }
            response
        })
    }

    fn unauthorized(&self) -> Response {
        self.metrics.refuse("token");
        unauthorized()
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
