//! The life of the service: it starts, runs beside its housekeeping, and stops in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch as signal_of;

use crate::app::{App, Shared};
use crate::config::Config;
use crate::error::ServiceError;
use crate::log::log;
use crate::store::SNAPSHOT_VERSION;
use crate::watch::watch;
use crate::web::{Web, listen};

/// What waits for the disk is written so often, and synced each fifth time.
const WRITE_EVERY: Duration = Duration::from_millis(100);
const SYNC_EACH: u32 = 5;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// What stops a service from another thread, or from a signal's handler.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks the service to stop.
    pub fn stop(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether it was asked to.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Relaxed)
    }
}

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
        listen(listener, web, stopped).await
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

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // a service that starts anew need not wait for its former connections
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Each connection is a descriptor: as many as are allowed.
fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

async fn wait_for_stop(stop: Stop, signals: bool, stopper: signal_of::Sender<bool>) {
    let signal = async {
        use tokio::signal::unix::{SignalKind, signal};
        let (Ok(mut terminate), Ok(mut interrupt)) = (
            signal(SignalKind::terminate()),
            signal(SignalKind::interrupt()),
        ) else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let asked = async {
        while !stop.is_stopped() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    if signals {
        tokio::select! {
            () = signal => {}
            () = asked => {}
        }
    } else {
        asked.await;
    }
    let _ = stopper.send(true);
    // the receivers may come later
    std::future::pending::<()>().await;
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
