//! The life of the service: it starts, runs beside its housekeeping, and stops in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use pathcast_web::{Stop, bind, listen, log, raise_descriptors, wait_for_stop};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch as signal_of;

use crate::app::{App, Shared};
use crate::config::Config;
use crate::error::ServiceError;
use crate::store::SNAPSHOT_VERSION;
use crate::watch::watch;
use crate::web::{Web, router};

/// What waits for the disk is written so often, and synced each fifth time.
const WRITE_EVERY: Duration = Duration::from_millis(100);
const SYNC_EACH: u32 = 5;

/// Serves until `stop`; SIGTERM and SIGINT stop it too if `signals`. Calls `started` with the address once requests may
/// come.
///
/// # Errors
/// [`ServiceError`] if the configuration is invalid, the state is in use, or the address cannot be listened on.
pub fn serve(
    config: Config,
    stop: &Stop,
    signals: bool,
    started: impl FnOnce(SocketAddr),
) -> Result<(), ServiceError> {
    let begin = Instant::now();
    raise_descriptors();
    let runtime = runtime(&config)?;
    let address = config.listen;
    let (app, warnings) = App::open(config)?;
    let app: Shared = Arc::new(app);
    for warning in warnings {
        log("warning", "a page was left out", &[("why", warning.into())]);
    }
    warn_of_other_version(&app);
    let web = Arc::new(Web::new(Arc::clone(&app))?);
    let failed = |error: std::io::Error| ServiceError::Listen(address, error.to_string());
    let listener = {
        let _inside = runtime.enter();
        bind(address).map_err(failed)?
    };
    let address = listener.local_addr().map_err(failed)?;
    let (stopper, stopped) = signal_of::channel(false);
    let over = Arc::new(AtomicBool::new(false));
    let watcher = match app.config.watch {
        Some(ports) => Some(watch(&app, ports, address, &over)?),
        None => None,
    };
    let keepers = [
        keeper("writer", &app, &over, write),
        keeper("snapshots", &app, &over, write_snapshots),
    ];
    runtime.spawn(wait_for_stop(stop.clone(), signals, stopper));
    app.is_ready.store(true, Relaxed);
    let (prefixes, _, _) = app.knowledge.totals();
    log(
        "info",
        "started",
        &[
            ("listen", address.to_string().into()),
            ("prefixes", prefixes.into()),
            ("seconds", begin.elapsed().as_secs_f64().into()),
        ],
    );
    started(address);
    let mut ending = stopped.clone();
    let served = runtime.block_on(async {
        let ready = Arc::clone(&app);
        tokio::spawn(async move {
            let _ = ending.wait_for(|stop| *stop).await;
            ready.is_ready.store(false, Relaxed);
        });
        let config = &app.config;
        let shared = (&config.limits, &config.access);
        let connections = Arc::clone(&app.metrics.connections);
        Ok(listen(listener, router(&web), shared, connections, stopped).await?)
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    over.store(true, Relaxed);
    for keeper in keepers.into_iter().flatten().chain(watcher) {
        let _ = keeper.join();
    }
    app.write(true);
    if let Some(store) = &app.store {
        store.snapshot(&app.knowledge);
    }
    log(
        "info",
        "stopped",
        &[("seconds", begin.elapsed().as_secs_f64().into())],
    );
    served
}

/// Says that a snapshot was left out because of its version.
fn warn_of_other_version(app: &App) {
    let Some(store) = &app.store else { return };
    let version = store.counters.other_version.load(Relaxed);
    if version != 0 {
        log(
            "warning",
            "the snapshot is of another version of pathcast and was left out, the log of samples was read",
            &[
                ("folder", store.folder().display().to_string().into()),
                ("version", version.into()),
                ("expected", SNAPSHOT_VERSION.into()),
            ],
        );
    }
}

fn runtime(config: &Config) -> Result<Runtime, ServiceError> {
    let mut builder = Builder::new_multi_thread();
    if config.threads > 0 {
        builder.worker_threads(config.threads);
    }
    let built = builder.max_blocking_threads(4).enable_all().build();
    built.map_err(|error| ServiceError::Config(format!("no thread starts: {error}")))
}

/// A thread that does something again and again until all is over.
fn keeper(
    name: &str,
    app: &Shared,
    over: &Arc<AtomicBool>,
    work: fn(&App, &AtomicBool),
) -> Option<thread::JoinHandle<()>> {
    let (app, over) = (Arc::clone(app), Arc::clone(over));
    let started = thread::Builder::new()
        .name(name.into())
        .spawn(move || work(&app, &over));
    started.ok()
}

fn write(app: &App, over: &AtomicBool) {
    let mut round = 0_u32;
    while !over.load(Relaxed) {
        thread::sleep(WRITE_EVERY);
        round = round.wrapping_add(1);
        app.clock.check();
        app.write(round.is_multiple_of(SYNC_EACH));
    }
}

fn write_snapshots(app: &App, over: &AtomicBool) {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 10);
    let Some(store) = &app.store else { return };
    let mut was_failing = false;
    while !over.load(Relaxed) {
        thread::sleep(WRITE_EVERY);
        if store.is_due() {
            store.snapshot(&app.knowledge);
        }
        let is_failing = store.counters.is_failing.load(Relaxed);
        if is_failing != was_failing {
            was_failing = is_failing;
            let folder = store.folder().display().to_string();
            let (level, event) = match is_failing {
                true => (
                    "error",
                    "the state cannot be written, samples are kept in memory alone",
                ),
                false => ("info", "the state is written again"),
            };
            log(level, event, &[("folder", folder.into())]);
        }
    }
}
