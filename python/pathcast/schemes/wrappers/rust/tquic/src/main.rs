//! A bulk sender and receiver over tquic: `scheme-tquic [--controller copa|bbr3|...] receive|send ADDRESS:PORT [--bytes N]`.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use pathcast_scheme::{
    Failure, Job, PROTOCOL, SERVER_NAME, TURN, heard, listen, report_receiver, report_sender,
    say_listening, send_to, source_of, stopped, wait, with_certificate_files,
};
use tquic::{
    Config, Connection, Endpoint, PacketInfo, PacketSendHandler, TlsConfig, TransportHandler,
};

/// No path of a few hundred milliseconds and a gigabit fills it.
const WINDOW: u64 = 64 << 20;
/// Of datagrams that a path of 1500 bytes takes.
const PAYLOAD_BYTES: usize = 1400;
/// How much Copa weighs delay against throughput: the paper's default (Copa, NSDI 2018, section 2.2); tquic's own
/// is 0.04.
const COPA_DELTA: f64 = 0.5;

fn main() -> Result<(), Failure> {
    let job = Job::from_arguments()?;
    let stop = stopped()?;
    let socket = match job.receives {
        true => UdpSocket::bind(job.address)?,
        false => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
    };
    socket.set_nonblocking(true)?;
    let mut local = socket.local_addr()?;
    let mut config = settings(job.controller.as_deref().unwrap_or("copa"))?;
    config.set_tls_config(match job.receives {
        true => with_certificate_files(|certificate, key| {
            let protocols = vec![PROTOCOL.to_vec()];
            Ok(TlsConfig::new_server_config(
                certificate,
                key,
                protocols,
                false,
            )?)
        })?,
        false => TlsConfig::new_client_config(vec![PROTOCOL.to_vec()], false)?,
    });
    let state = Rc::new(RefCell::new(State::new(job.bytes)));
    let output = Rc::new(Output {
        socket: socket.try_clone()?,
        stop: Arc::clone(&stop),
    });
    let handler = Box::new(Handler(Rc::clone(&state)));
    let mut endpoint = Endpoint::new(Box::new(config), job.receives, handler, output);
    if job.receives {
        say_listening();
    } else {
        listen("recovery", find);
        local.set_ip(source_of(job.address)?);
        endpoint.connect(local, job.address, Some(SERVER_NAME), None, None, None)?;
    }
    turn(&mut endpoint, &socket, local, &state, &stop)?;
    let state = state.borrow();
    if job.receives {
        report_receiver(state.received, state.last - state.began);
        return Ok(());
    }
    if let Some(why) = &state.failed {
        return Err(why.clone().into());
    }
    let (controller, line) = heard().ok_or("tquic has not said which controller is at work")?;
    let copa = format!("; delta {COPA_DELTA} for slow start and steady state");
    let more = if controller == "copa" {
        copa
    } else {
        String::new()
    };
    let evidence = format!("tquic's log of its recovery: {line}{more}");
    report_sender(&controller, &evidence, state.sent);
    Ok(())
}

/// Moves packets until SIGTERM, or until all was acknowledged.
fn turn(
    endpoint: &mut Endpoint,
    socket: &UdpSocket,
    local: SocketAddr,
    state: &RefCell<State>,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let mut datagram = vec![0; 1 << 16];
    loop {
        endpoint.process_connections()?;
        let over = stop.load(Ordering::Relaxed) || state.borrow().over;
        if over {
            endpoint.close(false);
            return Ok(endpoint.process_connections()?);
        }
        wait(socket, endpoint.timeout().unwrap_or(TURN).min(TURN))?;
        // many datagrams, but not so many that timers wait
        for _ in 0..256 {
            let Ok((size, from)) = socket.recv_from(&mut datagram) else {
                break;
            };
            let info = PacketInfo {
                src: from,
                dst: local,
                time: Instant::now(),
            };
            // a datagram that is none of QUIC is not for us
            let _ = endpoint.recv(&mut datagram[..size], &info);
        }
        endpoint.on_timeout(Instant::now());
    }
}

fn settings(controller: &str) -> Result<Config, Failure> {
    let mut config = Config::new()?;
    let algorithm = controller
        .parse()
        .map_err(|_| format!("controller {controller:?}; expected copa, bbr3, bbr or cubic"))?;
    config.set_congestion_control_algorithm(algorithm);
    config.set_copa_slow_start_delta(COPA_DELTA);
    config.set_copa_steady_delta(COPA_DELTA);
    config.set_send_udp_payload_size(PAYLOAD_BYTES);
    config.set_recv_udp_payload_size(1472);
    config.set_max_idle_timeout(10_000);
    config.set_initial_max_data(WINDOW);
    config.set_max_connection_window(WINDOW);
    config.set_initial_max_stream_data_bidi_remote(WINDOW);
    config.set_initial_max_stream_data_bidi_local(WINDOW);
    config.set_max_stream_window(WINDOW);
    Ok(config)
}

/// What both roles count.
struct State {
    most: u64,
    sent: u64,
    received: u64,
    began: Instant,
    last: Instant,
    over: bool,
    failed: Option<String>,
}

impl State {
    fn new(most: u64) -> Self {
        let now = Instant::now();
        Self {
            most,
            sent: 0,
            received: 0,
            began: now,
            last: now,
            over: false,
            failed: None,
        }
    }
}

struct Handler(Rc<RefCell<State>>);

impl Handler {
    /// Writes as much as the connection takes.
    fn write(&self, connection: &mut Connection, stream: u64) {
        let mut state = self.0.borrow_mut();
        let zeros = Bytes::from_static(&[0; 1 << 16]);
        loop {
            let left = match state.most {
                0 => u64::MAX,
                most => most - state.sent,
            };
            let portion = zeros.slice(..left.min(1 << 16) as usize);
            let last = portion.len() as u64 == left;
            match connection.stream_write(stream, portion, last) {
                Ok(size) => {
                    state.sent += size as u64;
                    if state.most > 0 && state.sent == state.most {
                        let _ = connection.stream_want_write(stream, false);
                        return;
                    }
                }
                Err(_) => {
                    let _ = connection.stream_want_write(stream, true);
                    return;
                }
            }
        }
    }
}

impl TransportHandler for Handler {
    fn on_conn_created(&mut self, _: &mut Connection) {}

    fn on_conn_established(&mut self, connection: &mut Connection) {
        if connection.is_server() {
            return;
        }
        match connection.stream_bidi_new(0, false) {
            Ok(stream) => self.write(connection, stream),
            Err(error) => self.0.borrow_mut().failed = Some(error.to_string()),
        }
    }

    fn on_conn_closed(&mut self, connection: &mut Connection) {
        if connection.is_server() {
            return;
        }
        let mut state = self.0.borrow_mut();
        if !state.over {
            let why = connection.local_error().or(connection.peer_error());
            state.failed = Some(format!("the connection was lost: {why:?}"));
            state.over = true;
        }
    }

    fn on_stream_created(&mut self, _: &mut Connection, _: u64) {}

    fn on_stream_readable(&mut self, connection: &mut Connection, stream: u64) {
        let mut portion = [0; 1 << 16];
        let mut state = self.0.borrow_mut();
        while let Ok((size, last)) = connection.stream_read(stream, &mut portion) {
            if state.received == 0 {
                state.began = Instant::now();
            }
            state.received += size as u64;
            state.last = Instant::now();
            match (last, connection.is_server()) {
                (true, true) => {
                    // all was read: the sender may go
                    let _ = connection.stream_write(stream, Bytes::from_static(&[1]), true);
                    return;
                }
                (true, false) => {
                    state.over = true;
                    return;
                }
                (false, _) => {}
            }
        }
    }

    fn on_stream_writable(&mut self, connection: &mut Connection, stream: u64) {
        if !connection.is_server() {
            self.write(connection, stream);
        }
    }

    fn on_stream_closed(&mut self, _: &mut Connection, _: u64) {}

    fn on_new_token(&mut self, _: &mut Connection, _: Vec<u8>) {}
}

struct Output {
    socket: UdpSocket,
    stop: Arc<AtomicBool>,
}

impl PacketSendHandler for Output {
    fn on_packets_send(&self, packets: &[(Vec<u8>, PacketInfo)]) -> tquic::Result<usize> {
        for (datagram, info) in packets {
            send_to(&self.socket, datagram, info.dst, &self.stop)
                .map_err(|error| tquic::Error::IoError(error.to_string()))?;
        }
        Ok(packets.len())
    }
}

/// In a line of tquic's recovery, the controller's name is before the event's.
fn find(line: &str) -> Option<(String, String)> {
    let (before, _) = line.split_once(" BEGIN_ACK")?;
    let name = before.split(' ').next_back()?;
    let controller = match name {
        "BBRv3" => "bbr3".to_string(),
        other => other.to_lowercase(),
    };
    Some((controller, format!("{name} BEGIN_ACK")))
}
