//! How a service begins and ends: its socket, its descriptors, and what stops it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

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

/// Listens on an address; inside a runtime.
///
/// # Errors
/// The system's.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
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
pub fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Waits until it is asked to stop, or for SIGTERM and SIGINT if `signals`, and says so to `stopper`.
pub async fn wait_for_stop(stop: Stop, signals: bool, stopper: watch::Sender<bool>) {
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
