//! A bulk sender and receiver over noq: `scheme-noq [--controller cubic|reno|bbr3] receive|send ADDRESS:PORT [--bytes N]`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use noq::congestion::{Bbr3Config, CubicConfig, NewRenoConfig};
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{ClientConfig, Connection, Endpoint, PathId, ServerConfig, TransportConfig, VarInt};
use pathcast_scheme::{
    Failure, Job, PROTOCOL, SERVER_NAME, certificate, client_config, report_receiver,
    report_sender, say_listening,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::signal::unix::{SignalKind, signal};

/// No path of a few hundred milliseconds and a gigabit fills it.
const WINDOW: u32 = 64 << 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let job = Job::from_arguments()?;
    match job.receives {
        true => receive(job.address).await,
        false => send(&job).await,
    }
}

fn transport(controller: &str) -> Result<Arc<TransportConfig>, Failure> {
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOW.into())
        .send_window(WINDOW.into());
    match controller {
        "cubic" => transport.congestion_controller_factory(Arc::new(CubicConfig::default())),
        "reno" => transport.congestion_controller_factory(Arc::new(NewRenoConfig::default())),
        "bbr3" => transport.congestion_controller_factory(Arc::new(Bbr3Config::default())),
        other => return Err(format!("controller {other:?}; expected cubic, reno or bbr3").into()),
    };
    Ok(Arc::new(transport))
}

async fn receive(address: SocketAddr) -> Result<(), Failure> {
    let (certificate, key) = certificate()?;
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(transport("cubic")?);
    let endpoint = Endpoint::server(config, address)?;
    say_listening();
    let received = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let mut term = signal(SignalKind::terminate())?;
    loop {
        let incoming = tokio::select! {
            incoming = endpoint.accept() => incoming,
            _ = term.recv() => None,
        };
        let Some(incoming) = incoming else { break };
        let received = Arc::clone(&received);
        tokio::spawn(async move {
            let connection = incoming.await?;
            read(&connection, &received).await
        });
    }
    let [bytes, nanoseconds] = [&received.0, &received.1].map(|one| one.load(Ordering::Relaxed));
    report_receiver(bytes, Duration::from_nanos(nanoseconds));
    Ok(())
}

/// Reads one stream to its end, and says that it was read.
///
/// Bytes are read as they come: noq 1.4 closes a connection that holds more than 1,024 pieces of a stream behind a loss,
/// even where they follow one another.
async fn read(connection: &Connection, received: &(AtomicU64, AtomicU64)) -> Result<(), Failure> {
    let (mut answer, stream) = connection.accept_bi().await?;
    let mut stream = stream.into_unordered();
    let began = Instant::now();
    while let Some(chunk) = stream.read_chunk(1 << 18).await? {
        received
            .0
            .fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
        let nanoseconds = began.elapsed().as_nanos() as u64;
        received.1.store(nanoseconds, Ordering::Relaxed);
    }
    answer.write_all(&[1]).await?;
    answer.finish()?;
    connection.closed().await;
    Ok(())
}

async fn send(job: &Job) -> Result<(), Failure> {
    let controller = job.controller.as_deref().unwrap_or("cubic");
    let tls = client_config(ring::default_provider())?;
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(transport(controller)?);
    let endpoint = Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into())?;
    endpoint.set_default_client_config(config);
    let mut term = signal(SignalKind::terminate())?;
    let sent = AtomicU64::new(0);
    let connecting = endpoint.connect(job.address, SERVER_NAME)?;
    let connection = tokio::select! {
        connection = connecting => connection?,
        _ = term.recv() => return Err("stopped before it was connected".into()),
    };
    tokio::select! {
        done = write(&connection, job.bytes, &sent) => done?,
        _ = term.recv() => {}
    }
    let state = connection.congestion_state(PathId::ZERO);
    let state = state.ok_or("the connection has no path")?;
    // its type, as it names itself
    let text = format!("{state:?}");
    let kind = text.split([' ', '{', '(']).next().unwrap_or_default();
    let name = match kind {
        "NewReno" => "reno".to_string(),
        other => other.to_lowercase(),
    };
    let evidence = format!(
        "Connection::congestion_state is a {kind} with a window of {} bytes",
        state.window()
    );
    report_sender(&name, &evidence, sent.load(Ordering::Relaxed));
    connection.close(VarInt::from_u32(0), b"");
    // the close leaves; the other end need not answer
    let _ = tokio::time::timeout(Duration::from_millis(50), endpoint.wait_all_draining()).await;
    Ok(())
}

/// Sends so many bytes, 0: without end, and waits until the receiver has them.
async fn write(connection: &Connection, most: u64, sent: &AtomicU64) -> Result<(), Failure> {
    let (mut stream, mut answer) = connection.open_bi().await?;
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
        // else the first packets wait until the whole window is filled, for some 40 ms
        tokio::task::yield_now().await;
    }
    stream.finish()?;
    answer.read_to_end(16).await?;
    Ok(())
}
