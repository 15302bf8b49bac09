//! Samples from this host's own sockets, by the kernel's list of them (sock_diag), which needs no privilege.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crate::error::ServiceError;
use crate::ports::Ports;

/// The client at the far end of a flow; none if it is this host itself, or asks this service.
fn client(local: &str, remote: &str, service: SocketAddr) -> Option<IpAddr> {
    let (local, remote): (SocketAddr, SocketAddr) = (local.parse().ok()?, remote.parse().ok()?);
    let is_here = remote.ip().is_loopback() || remote.ip() == local.ip();
    (!is_here && local.port() != service.port()).then_some(remote.ip())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
    use std::thread::{self, JoinHandle};
    use std::time::{Duration, Instant};

    use pathcast_probe::{Fed, Keep, Method, Selection, Watch, WatchOptions};

    use super::*;
    use crate::app::{App, Shared};
    use crate::ingest::trace::Flow;
    use pathcast_web::log;

    /// Batches of records that may wait.
    const WAITING: usize = 64;
    /// A watch remembers each flow: after so many a new one begins.
    const MOST_FLOWS: u64 = 20_000;
    /// A flow without records for so long is forgotten.
    const FORGOTTEN: Duration = Duration::from_secs(60);
    const TURN: Duration = Duration::from_millis(250);
    /// A watch that ended is started anew after so long.
    const AGAIN: Duration = Duration::from_secs(5);

    /// A watch, and what it hands over.
    struct Going(Watch, Receiver<Fed>);

    fn start(ports: Ports) -> Result<Going, ServiceError> {
        let selection = Selection {
            local_port: match ports {
                Ports::All => None,
                Ports::One(port) => Some(port),
            },
            ..Selection::default()
        };
        let (feed, fed) = sync_channel(WAITING);
        let options = WatchOptions {
            method: Some(Method::SockDiag),
            keep: Keep::Feed(feed),
        };
        let watch = Watch::start(selection, options)
            .map_err(|error| ServiceError::Watch(error.to_string()))?;
        Ok(Going(watch, fed))
    }

    /// Watches until `over`, in a thread of its own.
    ///
    /// # Errors
    /// [`ServiceError::Watch`] if the kernel does not list its sockets.
    pub fn watch(
        app: &Shared,
        ports: Ports,
        service: SocketAddr,
        over: &std::sync::Arc<AtomicBool>,
    ) -> Result<JoinHandle<()>, ServiceError> {
        let first = start(ports)?;
        let (app, over) = (Shared::clone(app), std::sync::Arc::clone(over));
        thread::Builder::new()
            .name("watch".into())
            .spawn(move || run(&app, ports, service, first, &over))
            .map_err(|error| ServiceError::Watch(error.to_string()))
    }

    fn run(app: &App, ports: Ports, service: SocketAddr, first: Going, over: &AtomicBool) {
        let mut going = Some(first);
        while !over.load(Relaxed) {
            let Some(Going(watch, fed)) = going.take() else {
                thread::sleep(TURN);
                continue;
            };
            if follow(app, &watch, &fed, service, over) {
                let lost = watch.finish().map_or(0, |(report, _)| report.records_lost);
                app.metrics.watch_lost.fetch_add(lost, Relaxed);
                going = start(ports).ok();
            } else if !over.load(Relaxed) {
                let why = watch.finish().err().map(|error| error.to_string());
                log(
                    "error",
                    "the watch of sockets ended",
                    &[("why", why.into())],
                );
            }
            let again = Instant::now();
            while going.is_none() && !over.load(Relaxed) {
                thread::sleep(TURN);
                if again.elapsed() >= AGAIN {
                    going = start(ports).ok();
                    break;
                }
            }
        }
    }

    /// Takes what a watch hands over; true if it has seen so many flows that another one should begin, false if it ended.
    fn follow(
        app: &App,
        watch: &Watch,
        fed: &Receiver<Fed>,
        service: SocketAddr,
        over: &AtomicBool,
    ) -> bool {
        let begun_s = watch.began_unix_s();
        let mut flows: HashMap<u32, (Option<Flow>, Instant)> = HashMap::new();
        let mut tidied = Instant::now();
        while !over.load(Relaxed) {
            match fed.recv_timeout(TURN) {
                Ok(fed) => take(app, &mut flows, &fed, service, begun_s),
                Err(RecvTimeoutError::Timeout) if watch.is_running() => {}
                Err(_) => return false,
            }
            if tidied.elapsed() > FORGOTTEN {
                tidied = Instant::now();
                flows.retain(|_, (_, seen)| seen.elapsed() < FORGOTTEN);
            }
            if watch.progress().flows > MOST_FLOWS {
                return true;
            }
        }
        false
    }

    fn take(
        app: &App,
        flows: &mut HashMap<u32, (Option<Flow>, Instant)>,
        fed: &Fed,
        service: SocketAddr,
        begun_s: f64,
    ) {
        let now = Instant::now();
        for (number, who) in &fed.flows {
            let flow = flows.entry(*number).or_insert_with(|| {
                let client = client(&who.local, &who.remote, service);
                let scheme = who.scheme.as_deref().unwrap_or("");
                let flow = client.map(|ip| Flow::new(Ok(ip.to_string()), scheme, who.mss_bytes));
                (flow, now)
            });
            flow.1 = now;
        }
        let now_s = app.clock.now_s();
        let mut samples = Vec::new();
        for record in &fed.records {
            let Some((Some(flow), _)) = flows.get_mut(&record.flow) else {
                continue;
            };
            let Some(Ok(report)) = flow.take(record, begun_s) else {
                continue;
            };
            match report.sample(now_s, app.config.window_s) {
                Ok(sample) => samples.push(sample),
                Err(error) => app.refuse(&error),
            }
        }
        app.metrics.watched.fetch_add(samples.len() as u64, Relaxed);
        app.take(&samples);
    }
}

#[cfg(target_os = "linux")]
pub use linux::watch;

/// Watches nothing.
///
/// # Errors
/// [`ServiceError::Watch`]: the kernel's list of sockets is Linux'.
#[cfg(not(target_os = "linux"))]
pub fn watch(
    _app: &crate::app::Shared,
    _ports: Ports,
    _service: SocketAddr,
    _over: &std::sync::Arc<std::sync::atomic::AtomicBool>,
) -> Result<std::thread::JoinHandle<()>, ServiceError> {
    Err(ServiceError::Watch("this needs Linux".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_no_client_of_its_own() {
        let service = "127.0.0.1:8080".parse().unwrap();
        let of = |local, remote| client(local, remote, service).map(|ip| ip.to_string());
        assert_eq!(of("10.0.0.1:443", "192.0.2.7:5000").unwrap(), "192.0.2.7");
        assert_eq!(of("10.0.0.1:443", "10.0.0.1:5000"), None);
        assert_eq!(of("127.0.0.1:443", "127.0.0.1:5000"), None);
        assert_eq!(of("[::1]:443", "[::1]:5000"), None);
        assert_eq!(
            of("10.0.0.1:8080", "192.0.2.7:5000"),
            None,
            "it asks this service"
        );
    }
}
