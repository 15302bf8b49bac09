//! Connections: accepted, limited, and ended in order.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use crate::config::{Access, Limits};
use crate::error::WebError;
use crate::tls;

/// Longest time of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// After an error of accepting: there are no descriptors left, or the network fails.
const PAUSE: Duration = Duration::from_millis(50);
/// Requests that run at a time on one connection of HTTP/2.
const STREAMS: u32 = 250;
/// Largest header of a request.
const HEADER_BYTES: usize = 32 << 10;

/// The address of a connection's other end.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// Counts of connections.
#[derive(Debug, Default)]
pub struct Connections {
    /// Open now.
    pub open: AtomicU64,
    /// Since the beginning.
    pub accepted: AtomicU64,
    /// Closed because too many were open.
    pub refused: AtomicU64,
}

/// What connections share.
struct Shared {
    router: Router,
    builder: Builder<TokioExecutor>,
    tls: Option<TlsAcceptor>,
    connections: Arc<Connections>,
}

/// Accepts connections until `stop` says so, then ends those that are open.
///
/// # Errors
/// [`WebError`] if the certificate is invalid.
pub async fn listen(
    listener: TcpListener,
    router: Router,
    (limits, access): (&Limits, &Access),
    connections: Arc<Connections>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), WebError> {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let shared = Arc::new(Shared {
        router,
        builder: builder(limits.header_timeout_s),
        tls: tls::acceptor(access)?,
        connections,
    });
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let counts = &shared.connections;
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            counts.refused.fetch_add(1, Relaxed);
            continue;
        };
        counts.accepted.fetch_add(1, Relaxed);
        counts.open.fetch_add(1, Relaxed);
        let (shared, watcher) = (Arc::clone(&shared), graceful.watcher());
        tokio::spawn(async move {
            shared.serve(stream, peer.ip(), permit, watcher).await;
            shared.connections.open.fetch_sub(1, Relaxed);
        });
    }
    drop(listener);
    let most = Duration::from_secs_f64(limits.stop_timeout_s);
    let _ = tokio::time::timeout(most, graceful.shutdown()).await;
    Ok(())
}

fn builder(header_timeout_s: f64) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    let timeout = Duration::from_secs_f64(header_timeout_s);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(timeout)
        .max_buf_size(HEADER_BYTES)
        .pipeline_flush(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_BYTES as u32)
        .keep_alive_interval(timeout)
        .keep_alive_timeout(HANDSHAKE);
    builder
}

impl Shared {
    /// Serves one connection to its end; the permit is held until then.
    async fn serve(
        &self,
        stream: TcpStream,
        peer: IpAddr,
        _permit: OwnedSemaphorePermit,
        watcher: Watcher,
    ) {
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.serve_http(stream, peer, watcher).await,
            Some(tls) => {
                let shaken = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await;
                if let Ok(Ok(stream)) = shaken {
                    self.serve_http(stream, peer, watcher).await;
                }
            }
        }
    }

    async fn serve_http(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: IpAddr,
        watcher: Watcher,
    ) {
        let router = &self.router;
        let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            let mut router = router.clone();
            async move { Service::call(&mut router, request.map(Body::new)).await }
        });
        let connection = self.builder.serve_connection(TokioIo::new(stream), service);
        // a client that breaks off is no error of the service
        let _ = watcher.watch(connection.into_owned()).await;
    }
}
