//! A bulk sender and receiver over quiche: `scheme-quiche receive|send ADDRESS:PORT [--bytes N]`, by BBRv2.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pathcast_scheme::{
    Failure, Job, PROTOCOL, SERVER_NAME, TURN, heard, listen, report_receiver, report_sender,
    say_listening, send_to, source_of, stopped, wait, with_certificate_files,
};
use quiche::{Config, Connection, ConnectionId, RecvInfo, Type};

/// No path of a few hundred milliseconds and a gigabit fills it.
const WINDOW: u64 = 64 << 20;
/// Of datagrams that a path of 1500 bytes takes.
const PAYLOAD_BYTES: usize = 1400;
/// The only stream: the first that a client opens.
const STREAM: u64 = 0;
/// How far ahead packets are made: a wake that is late must not slow the pacer down.
const AHEAD: Duration = Duration::from_millis(5);
/// The largest datagram.
const MOST_BYTES: usize = 1 << 16;

fn main() -> Result<(), Failure> {
    let job = Job::from_arguments()?;
    let stop = stopped()?;
    match job.receives {
        true => receive(job.address, &stop),
        false => send(&job, &stop),
    }
}

fn settings(controller: &str) -> Result<Config, Failure> {
    let mut config = Config::new(quiche::PROTOCOL_VERSION)?;
    config
        .set_cc_algorithm_name(controller)
        .map_err(|_| format!("controller {controller:?}; expected bbr2_gcongestion"))?;
    config.set_application_protos(&[PROTOCOL])?;
    config.verify_peer(false);
    config.enable_pacing(true);
    config.set_max_idle_timeout(10_000);
    config.set_max_send_udp_payload_size(PAYLOAD_BYTES);
    config.set_max_recv_udp_payload_size(1472);
    config.set_initial_max_data(WINDOW);
    config.set_initial_max_stream_data_bidi_local(WINDOW);
    config.set_initial_max_stream_data_bidi_remote(WINDOW);
    config.set_max_connection_window(WINDOW);
    config.set_max_stream_window(WINDOW);
    config.set_initial_max_streams_bidi(1);
    Ok(config)
}

fn random_id() -> Result<ConnectionId<'static>, Failure> {
    let mut bytes = vec![0; quiche::MAX_CONN_ID_LEN];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
    }
    Ok(ConnectionId::from_vec(bytes))
}

/// A datagram that quiche has made, and when it may leave.
struct Waiting {
    datagram: Vec<u8>,
    to: SocketAddr,
    at: Instant,
}

/// Makes what may leave soon and sends what may leave by now; returns how long the next one waits, if one does.
fn flush(
    connection: &mut Connection,
    waiting: &mut VecDeque<Waiting>,
    socket: &UdpSocket,
    stop: &AtomicBool,
) -> Result<Option<Duration>, Failure> {
    let mut buffer = [0; PAYLOAD_BYTES];
    loop {
        while let Some(next) = waiting.front()
            && next.at <= Instant::now()
        {
            send_to(socket, &next.datagram, next.to, stop)?;
            waiting.pop_front();
        }
        let made = waiting
            .back()
            .is_some_and(|last| last.at > Instant::now() + AHEAD);
        if !made {
            match connection.send(&mut buffer) {
                Ok((size, info)) => {
                    waiting.push_back(Waiting {
                        datagram: buffer[..size].to_vec(),
                        to: info.to,
                        at: info.at,
                    });
                    continue;
                }
                Err(quiche::Error::Done) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let next = waiting.front();
        return Ok(next.map(|next| next.at.saturating_duration_since(Instant::now())));
    }
}

/// One connection of the receiver.
struct Reading {
    connection: Connection,
    waiting: VecDeque<Waiting>,
}

fn receive(address: SocketAddr, stop: &AtomicBool) -> Result<(), Failure> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    let mut config = settings("cubic")?;
    with_certificate_files(|certificate, key| {
        config.load_cert_chain_from_pem_file(certificate)?;
        Ok(config.load_priv_key_from_pem_file(key)?)
    })?;
    say_listening();
    let (mut received, mut began, mut last) = (0, None, Instant::now());
    let mut connections: HashMap<SocketAddr, Reading> = HashMap::new();
    let mut datagram = vec![0; MOST_BYTES];
    let mut portion = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        let mut pause = TURN;
        for reading in connections.values_mut() {
            let next = flush(&mut reading.connection, &mut reading.waiting, &socket, stop)?;
            let timeout = reading.connection.timeout().unwrap_or(TURN);
            pause = pause.min(timeout).min(next.unwrap_or(TURN));
        }
        wait(&socket, pause)?;
        for _ in 0..256 {
            let Ok((size, from)) = socket.recv_from(&mut datagram) else {
                break;
            };
            if !connections.contains_key(&from) {
                let header =
                    quiche::Header::from_slice(&mut datagram[..size], quiche::MAX_CONN_ID_LEN);
                if !header.is_ok_and(|header| header.ty == Type::Initial) {
                    continue;
                }
                let connection = quiche::accept(&random_id()?, None, address, from, &mut config)?;
                let waiting = VecDeque::new();
                connections.insert(
                    from,
                    Reading {
                        connection,
                        waiting,
                    },
                );
            }
            let info = RecvInfo { from, to: address };
            if let Some(reading) = connections.get_mut(&from) {
                // a datagram that is none of QUIC is not for us
                let _ = reading.connection.recv(&mut datagram[..size], info);
            }
        }
        for reading in connections.values_mut() {
            let connection = &mut reading.connection;
            if connection.timeout().is_some_and(|left| left.is_zero()) {
                connection.on_timeout();
            }
            while let Ok((size, is_last)) = connection.stream_recv(STREAM, &mut portion) {
                began.get_or_insert_with(Instant::now);
                received += size as u64;
                last = Instant::now();
                if is_last {
                    // all was read: the sender may go
                    let _ = connection.stream_send(STREAM, &[1], true);
                }
            }
        }
        connections.retain(|_, reading| !reading.connection.is_closed());
    }
    report_receiver(received, last - began.unwrap_or(last));
    Ok(())
}

fn send(job: &Job, stop: &AtomicBool) -> Result<(), Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_nonblocking(true)?;
    let mut local = socket.local_addr()?;
    local.set_ip(source_of(job.address)?);
    let mut config = settings(job.controller.as_deref().unwrap_or("bbr2_gcongestion"))?;
    listen("recovery", find);
    let id = random_id()?;
    let mut connection = quiche::connect(Some(SERVER_NAME), &id, local, job.address, &mut config)?;
    let mut waiting = VecDeque::new();
    let (mut sent, mut over) = (0, false);
    let mut datagram = vec![0; MOST_BYTES];
    while !stop.load(Ordering::Relaxed) && !over {
        if connection.is_established() {
            sent += write(&mut connection, sent, job.bytes);
        }
        let next = flush(&mut connection, &mut waiting, &socket, stop)?.unwrap_or(TURN);
        let timeout = connection.timeout().unwrap_or(TURN);
        wait(&socket, next.min(timeout).min(TURN))?;
        for _ in 0..256 {
            let Ok((size, from)) = socket.recv_from(&mut datagram) else {
                break;
            };
            let info = RecvInfo { from, to: local };
            let _ = connection.recv(&mut datagram[..size], info);
        }
        if connection.timeout().is_some_and(|left| left.is_zero()) {
            connection.on_timeout();
        }
        while let Ok((_, is_last)) = connection.stream_recv(STREAM, &mut datagram) {
            over |= is_last;
        }
        if connection.is_closed() && !over {
            let why = connection.peer_error().or(connection.local_error());
            return Err(format!("the connection was lost: {why:?}").into());
        }
    }
    let (controller, line) = heard().ok_or("quiche has not said which controller is at work")?;
    let evidence = format!("quiche's log of its recovery: {line}");
    report_sender(&controller, &evidence, sent);
    let _ = connection.close(true, 0, b"");
    waiting.clear();
    flush(
        &mut connection,
        &mut waiting,
        &socket,
        &AtomicBool::new(false),
    )?;
    Ok(())
}

/// Writes as much as the connection takes; returns how much that was.
fn write(connection: &mut Connection, sent: u64, most: u64) -> u64 {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    let mut written = 0;
    loop {
        let left = match most {
            0 => u64::MAX,
            most => most - sent - written,
        };
        if left == 0 {
            return written;
        }
        let portion = &ZEROS[..left.min(ZEROS.len() as u64) as usize];
        match connection.stream_send(STREAM, portion, portion.len() as u64 == left) {
            Ok(0) | Err(_) => return written,
            Ok(size) => written += size as u64,
        }
    }
}

/// quiche's recovery logs its state, and in it that of the controller.
fn find(line: &str) -> Option<(String, String)> {
    let at = line.find("BBRv2")?;
    let shown: String = line[at..].chars().take(60).collect();
    Some(("bbr2".into(), shown))
}
