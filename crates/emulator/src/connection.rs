//! Connects flows over the path, each with its congestion control.

use std::fs;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, acceptfrom_with, bind, connect, getsockname, listen,
    socket_with, sockopt,
};

use crate::error::EmulatorError;
use crate::host::Host;

/// Long enough for five lost SYNs in a row.
const CONNECT_WITHIN: Duration = Duration::from_secs(40);

/// The two ends of each flow, in the order of their schemes.
pub(crate) struct Connections {
    pub(crate) senders: Vec<OwnedFd>,
    pub(crate) receivers: Vec<OwnedFd>,
}

/// Sockets that are ready to connect.
pub(crate) struct Sockets {
    listener: OwnedFd,
    address: SocketAddrV4,
    senders: Vec<OwnedFd>,
}

impl Sockets {
    /// A listener at `receiver` and one socket at `sender` for each scheme.
    pub(crate) fn open(
        sender: &Host,
        receiver: &Host,
        schemes: &[String],
    ) -> Result<Self, EmulatorError> {
        let address = SocketAddrV4::new(receiver.address, next_port());
        let entering =
            |error: std::io::Error| EmulatorError::from_io("entering a network namespace", error);
        let listener = receiver
            .namespace
            .run(|| -> Result<OwnedFd, Errno> {
                let listener = tcp_socket()?;
                bind(&listener, &address)?;
                listen(&listener, schemes.len().clamp(1, 4096) as i32)?;
                Ok(listener)
            })
            .map_err(entering)?
            .map_err(|errno| EmulatorError::from_io(format!("listening on {address}"), errno))?;
        let senders = sender
            .namespace
            .run(|| {
                let open = |scheme: &String| -> Result<OwnedFd, EmulatorError> {
                    let socket = tcp_socket()
                        .map_err(|errno| EmulatorError::from_io("opening a TCP socket", errno))?;
                    set_scheme(socket.as_fd(), scheme)?;
                    Ok(socket)
                };
                schemes
                    .iter()
                    .map(open)
                    .collect::<Result<Vec<OwnedFd>, EmulatorError>>()
            })
            .map_err(entering)??;
        Ok(Self {
            listener,
            address,
            senders,
        })
    }

    /// Connects all flows; `None` if `stopped` while they are at it.
    pub(crate) fn connect(
        self,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Option<Connections>, EmulatorError> {
        let failed = |errno: Errno| EmulatorError::from_io("connecting over the path", errno);
        let begin = Instant::now();
        for socket in &self.senders {
            match connect(socket, &self.address) {
                Ok(()) | Err(Errno::INPROGRESS) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        let mut accepted: Vec<(SocketAddr, OwnedFd)> = Vec::new();
        while accepted.len() < self.senders.len() {
            if stopped() {
                return Ok(None);
            }
            match acceptfrom_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((socket, Some(peer))) => {
                    reset_on_close(socket.as_fd()).map_err(failed)?;
                    accepted.push((SocketAddr::try_from(peer).map_err(failed)?, socket));
                }
                Ok((_, None)) => return Err(failed(Errno::NOTCONN)),
                Err(Errno::AGAIN | Errno::INTR) if begin.elapsed() < CONNECT_WITHIN => {
                    sleep(Duration::from_millis(1));
                }
                Err(Errno::AGAIN | Errno::INTR) => {
                    return Err(EmulatorError::NoConnection {
                        connected: accepted.len(),
                        flows: self.senders.len(),
                        waited_s: begin.elapsed().as_secs_f64(),
                    });
                }
                Err(errno) => return Err(failed(errno)),
            }
        }
        // they may have been accepted in another order than they were opened
        let mut receivers = Vec::with_capacity(accepted.len());
        for socket in &self.senders {
            let local = getsockname(socket)
                .and_then(SocketAddr::try_from)
                .map_err(failed)?;
            let at = accepted.iter().position(|(peer, _)| *peer == local);
            let at = at.ok_or_else(|| failed(Errno::NOTCONN))?;
            receivers.push(accepted.swap_remove(at).1);
        }
        Ok(Some(Connections {
            senders: self.senders,
            receivers,
        }))
    }
}

fn tcp_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    reset_on_close(socket.as_fd())?;
    Ok(socket)
}

/// Closing drops what is unsent and ends the connection at once. Else the kernel would go on
/// sending for minutes after the process is gone, and keep the namespace for it.
fn reset_on_close(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    sockopt::set_socket_linger(socket, Some(Duration::ZERO))
}

/// Sets the socket's congestion control and makes sure that it took.
fn set_scheme(socket: BorrowedFd<'_>, scheme: &str) -> Result<(), EmulatorError> {
    let set = sockopt::set_tcp_congestion(socket, scheme);
    if set == Err(Errno::PERM) {
        let doing = format!("setting the congestion control {scheme:?}");
        return Err(EmulatorError::from_io(doing, Errno::PERM));
    }
    match sockopt::tcp_congestion(socket) {
        Ok(name) if set.is_ok() && name == scheme => Ok(()),
        _ => Err(EmulatorError::UnknownScheme {
            scheme: scheme.to_string(),
            available: available_schemes(),
        }),
    }
}

/// The congestion controls that this kernel has loaded.
pub(crate) fn available_schemes() -> Vec<String> {
    let names = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let mut names: Vec<String> = names
        .unwrap_or_default()
        .split_whitespace()
        .map(String::from)
        .collect();
    names.sort_unstable();
    names
}

/// A port of our own if possible: each namespace has all ports, but tcp_probe sees the packets of
/// all namespaces, and passes over another port more cheaply than over another socket.
fn next_port() -> u16 {
    static RUNS: AtomicU16 = AtomicU16::new(0);
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000; // below the range of the senders' ports
    let run = u32::from(RUNS.fetch_add(1, Ordering::Relaxed));
    (FIRST + std::process::id().wrapping_mul(61).wrapping_add(run) % COUNT) as u16
}
