//! A bulk sender and receiver over s2n-quic: `scheme-s2n [--controller cubic|bbr2] receive|send ADDRESS:PORT [--bytes N]`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pathcast_scheme::{
    Failure, Job, SERVER_NAME, certificate, client_config, report_receiver, report_sender,
    say_listening,
};
use rustls::crypto::aws_lc_rs;
use s2n_quic::client::Connect;
use s2n_quic::connection::Connection;
use s2n_quic::provider::congestion_controller::{Bbr, Cubic};
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber, events};
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::tls::rustls as tls;
use s2n_quic::{Client, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::signal::unix::{SignalKind, signal};

/// No path of a few hundred milliseconds and a gigabit fills it.
const WINDOW: u64 = 64 << 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let job = Job::from_arguments()?;
    match job.receives {
        true => receive(job.address).await,
        false => send(&job).await,
    }
}

fn limits() -> Result<Limits, Failure> {
    Ok(Limits::new()
        .with_data_window(WINDOW)?
        .with_bidirectional_local_data_window(WINDOW)?
        .with_bidirectional_remote_data_window(WINDOW)?
        .with_max_idle_timeout(Duration::from_secs(10))?)
}

async fn receive(address: SocketAddr) -> Result<(), Failure> {
    let (certificate, key) = certificate()?;
    let tls = tls::Server::builder()
        .with_certificate(certificate.as_str(), key.as_str())?
        .with_application_protocols([pathcast_scheme::PROTOCOL].into_iter())?
        .build()?;
    let mut server = Server::builder()
        .with_tls(tls)?
        .with_limits(limits()?)?
        .with_io(address)?
        .start()?;
    say_listening();
    let received = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let mut term = signal(SignalKind::terminate())?;
    loop {
        let connection = tokio::select! {
            connection = server.accept() => connection,
            _ = term.recv() => None,
        };
        let Some(connection) = connection else { break };
        let received = Arc::clone(&received);
        tokio::spawn(async move { read(connection, &received).await });
    }
    let [bytes, nanoseconds] = [&received.0, &received.1].map(|one| one.load(Ordering::Relaxed));
    report_receiver(bytes, Duration::from_nanos(nanoseconds));
    Ok(())
}

/// Reads one stream to its end, and says that it was read.
async fn read(
    mut connection: Connection,
    received: &(AtomicU64, AtomicU64),
) -> Result<(), Failure> {
    let stream = connection.accept_bidirectional_stream().await?;
    let mut stream = stream.ok_or("the sender opened no stream")?;
    let began = Instant::now();
    while let Some(portion) = stream.receive().await? {
        received
            .0
            .fetch_add(portion.len() as u64, Ordering::Relaxed);
        let nanoseconds = began.elapsed().as_nanos() as u64;
        received.1.store(nanoseconds, Ordering::Relaxed);
    }
    stream.write_all(&[1]).await?;
    stream.close().await?;
    Ok(())
}

async fn send(job: &Job) -> Result<(), Failure> {
    let heard = Heard::default();
    let tls = tls::Client::from(client_config(aws_lc_rs::default_provider())?);
    let builder = Client::builder()
        .with_tls(tls)?
        .with_limits(limits()?)?
        .with_event(heard.clone())?
        .with_io("0.0.0.0:0")?;
    let client = match job.controller.as_deref().unwrap_or("cubic") {
        "cubic" => builder
            .with_congestion_controller(Cubic::default())?
            .start()?,
        "bbr2" => builder
            .with_congestion_controller(Bbr::default())?
            .start()?,
        other => return Err(format!("controller {other:?}; expected cubic or bbr2").into()),
    };
    let mut term = signal(SignalKind::terminate())?;
    let sent = AtomicU64::new(0);
    let connecting = client.connect(Connect::new(job.address).with_server_name(SERVER_NAME));
    let mut connection = tokio::select! {
        connection = connecting => connection?,
        _ = term.recv() => return Err("stopped before it was connected".into()),
    };
    tokio::select! {
        done = write(&mut connection, job.bytes, &sent) => done?,
        _ = term.recv() => {}
    }
    let (controller, evidence) = heard.controller();
    report_sender(controller, &evidence, sent.load(Ordering::Relaxed));
    connection.close(0u32.into());
    Ok(())
}

/// Sends so many bytes, 0: without end, and waits until the receiver has them.
async fn write(connection: &mut Connection, most: u64, sent: &AtomicU64) -> Result<(), Failure> {
    let mut stream = connection.open_bidirectional_stream().await?;
    let portion = vec![0; 1 << 16];
    loop {
        let left = match most {
            0 => portion.len() as u64,
            most => most - sent.load(Ordering::Relaxed),
        };
        if left == 0 {
            break;
        }
        let size = stream.write(&portion[..left.min(1 << 16) as usize]).await?;
        sent.fetch_add(size as u64, Ordering::Relaxed);
    }
    stream.finish()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(())
}

/// Counts the events by which s2n-quic's controllers differ.
#[derive(Clone, Default)]
struct Heard(Arc<Counts>);

#[derive(Default)]
struct Counts {
    bbr_states: AtomicU64,
    delivery_rates: AtomicU64,
    /// Ends of slow start by a rule that only CUBIC has.
    cubic_exits: AtomicU64,
    windows: AtomicU64,
}

impl Heard {
    fn controller(&self) -> (&'static str, String) {
        let [states, rates, exits, windows] = [
            &self.0.bbr_states,
            &self.0.delivery_rates,
            &self.0.cubic_exits,
            &self.0.windows,
        ]
        .map(|count| count.load(Ordering::Relaxed));
        let evidence = format!(
            "events of s2n-quic: {states} changes of BBR's state, {rates} samples of the delivery rate, \
             {exits} ends of CUBIC's slow start, {windows} windows"
        );
        let controller = match (states + rates, windows) {
            (1.., _) => "bbr2",
            // it has no other controllers
            (0, 1..) => "cubic",
            (0, 0) => "unknown",
        };
        (controller, evidence)
    }
}

impl Subscriber for Heard {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) {}

    fn on_bbr_state_changed(
        &mut self,
        (): &mut (),
        _: &ConnectionMeta,
        _: &events::BbrStateChanged,
    ) {
        self.0.bbr_states.fetch_add(1, Ordering::Relaxed);
    }

    fn on_delivery_rate_sampled(
        &mut self,
        (): &mut (),
        _: &ConnectionMeta,
        _: &events::DeliveryRateSampled,
    ) {
        self.0.delivery_rates.fetch_add(1, Ordering::Relaxed);
    }

    fn on_slow_start_exited(
        &mut self,
        (): &mut (),
        _: &ConnectionMeta,
        event: &events::SlowStartExited,
    ) {
        if !matches!(event.cause, events::SlowStartExitCause::Other { .. }) {
            self.0.cubic_exits.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_recovery_metrics(
        &mut self,
        (): &mut (),
        _: &ConnectionMeta,
        _: &events::RecoveryMetrics<'_>,
    ) {
        self.0.windows.fetch_add(1, Ordering::Relaxed);
    }
}
