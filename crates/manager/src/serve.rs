//! The life of the manager: it starts, runs beside its keeper, and stops in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pathcast_web::{Stop, bind, listen, log, raise_descriptors, wait_for_stop};
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::config::Config;
use crate::desk::{Desk, Shared};
use crate::error::ManagerError;
use crate::keeper::Keeper;
use crate::metrics::Metrics;
use crate::store::Store;
use crate::web::{Web, router};

/// Serves until `stop`; SIGTERM and SIGINT stop it too if `signals`. Calls `started` with the address once requests may
/// come. With PostgreSQL, waits while another manager has the database.
///
/// # Errors
/// [`ManagerError`] if the configuration is invalid, the state is in use, or the address cannot be listened on.
pub fn serve(
    config: Config,
    stop: &Stop,
    signals: bool,
    started: impl FnOnce(SocketAddr),
) -> Result<(), ManagerError> {
    raise_descriptors();
    let runtime = Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| ManagerError::Config(format!("no thread starts: {error}")))?;
    let served = runtime.block_on(run(config, stop, signals, started));
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

async fn run(
    config: Config,
    stop: &Stop,
    signals: bool,
    started: impl FnOnce(SocketAddr),
) -> Result<(), ManagerError> {
    let begin = Instant::now();
    let (stopper, stopped) = watch::channel(false);
    tokio::spawn(wait_for_stop(stop.clone(), signals, stopper));
    let waits = stopped.clone();
    let store = Store::open(&config.state, || {
        log("info", "waiting: another manager has the state", &[]);
        !*waits.borrow()
    });
    let store = Arc::new(store.await?);
    let stored = store.load().await?;
    let desk = Desk::new(config.guardrails.clone(), stored);
    let keeper = Arc::new(Keeper::new(desk.fleet.configuration()));
    let metrics = Arc::new(Metrics::default());
    let prefixes = desk.fleet.len();
    let shared = Arc::new(Shared::new(desk));
    let address = config.listen;
    let failed = |error: std::io::Error| ManagerError::Listen(address, error.to_string());
    let listener = bind(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let connections = Arc::clone(&metrics.connections);
    let (limits, access) = (config.limits.clone(), config.access.clone());
    let web = Arc::new(Web::new(
        config,
        Arc::clone(&shared),
        Arc::clone(&keeper),
        Arc::clone(&store),
        Arc::clone(&metrics),
    )?);
    // the keeper ends after the last request, and writes what that changed
    let (end, ended) = watch::channel(false);
    let halt = stop.clone();
    let keeping = {
        let (shared, keeper, store) =
            (Arc::clone(&shared), Arc::clone(&keeper), Arc::clone(&store));
        tokio::spawn(async move { keeper.run(&shared, &store, &metrics, ended, &halt).await })
    };
    let seconds = begin.elapsed().as_secs_f64();
    let more = [
        ("listen", address.to_string().into()),
        ("prefixes", prefixes.into()),
        ("seconds", seconds.into()),
    ];
    log("info", "started", &more);
    started(address);
    let waiting = web.stopping(stopped.clone());
    tokio::spawn(waiting);
    let served = listen(
        listener,
        router(&web),
        (&limits, &access),
        connections,
        stopped,
    )
    .await;
    let _ = end.send(true);
    let _ = keeping.await;
    log(
        "info",
        "stopped",
        &[("seconds", begin.elapsed().as_secs_f64().into())],
    );
    Ok(served?)
}
