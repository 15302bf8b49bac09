//! Connects flows over the links, each with its congestion control.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pathcast_kernel_schemes::Schemes;
use pathcast_netns::{Host, limit_receive_window, set_receive_buffer, set_tcp_option};
use pathcast_path::End;
use pathcast_scenario::{
    DEFAULT_MSS_BYTES, FlowSpec, Heading, ReceiveWindow, Transport, UNSENT_BYTES,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, acceptfrom_with, bind, connect, getsockname, listen,
    socket_with, sockopt,
};

use crate::addresses::Ip;
use crate::error::EmulatorError;
use crate::options::Flow;

/// Long enough for five lost SYNs in a row.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(40);

/// What may wait in a socket for datagrams, so that a burst is dropped by the path or not at all.
const DATAGRAM_BUFFER_BYTES: usize = 16 << 20;

/// Both ends of a flow.
pub(crate) struct Connection {
    /// Of a page, its server has it from when it accepts the connection.
    sender: OnceLock<OwnedFd>,
    pub(crate) receiver: OwnedFd,
    /// The ports at the near and the far end.
    pub(crate) ports: [u16; 2],
    /// Where the browser connects to, if this is a connection of a page.
    pub(crate) server: Option<SocketAddr>,
}

impl Connection {
    /// The socket that the data of a flow other than a page's is written into.
    pub(crate) fn sender(&self) -> &OwnedFd {
        let sender = self.sender.get();
        sender.expect("flows other than pages connect before the run begins")
    }

    /// The socket of a side, if there is one yet.
    pub(crate) fn socket(&self, side: usize) -> Option<BorrowedFd<'_>> {
        match side {
            0 => self.sender.get().map(OwnedFd::as_fd),
            _ => Some(self.receiver.as_fd()),
        }
    }

    /// The sockets that there are, each with its side.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let socket = move |side| Some((side, self.socket(side)?));
        [0, 1].into_iter().filter_map(socket)
    }

    /// The page's server has accepted the connection.
    pub(crate) fn accept(&self, socket: OwnedFd) -> Result<BorrowedFd<'_>, Errno> {
        reset_on_close(socket.as_fd())?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        Ok(self.sender.get_or_init(|| socket).as_fd())
    }
}

/// What connects the hosts.
pub(crate) struct Connected {
    /// One for each flow.
    pub(crate) connections: Vec<Connection>,
    /// Of each group of flows that loads pages: its first flow, and the socket that its servers accept
    /// connections from.
    pub(crate) servers: Vec<(usize, OwnedFd)>,
}

/// Sockets that are ready to connect.
pub(crate) struct Sockets<'a> {
    flows: &'a [Flow<'a>],
    schemes: &'a Schemes,
    ip: Ip,
    port: u16,
    /// At the near and the far end.
    listeners: [OwnedFd; 2],
    /// None for the connections of pages, which their servers accept later.
    senders: Vec<Option<OwnedFd>>,
    /// The receivers of datagram flows, which need no accepting listener, and those of pages, which connect.
    receivers: Vec<Option<OwnedFd>>,
    servers: Vec<(usize, OwnedFd)>,
}

impl<'a> Sockets<'a> {
    /// Listeners at both ends and a socket for each flow where its data comes from.
    pub(crate) fn open(
        near: &Host,
        far: &Host,
        flows: &'a [Flow<'a>],
        schemes: &'a Schemes,
        ip: Ip,
    ) -> Result<Self, EmulatorError> {
        let port = next_port();
        let anywhere = SocketAddr::new(ip.any(), port);
        let listen_at = |host: &Host| inside(host, || listener(ip, anywhere, flows.len(), None));
        let listeners = [listen_at(near)?, listen_at(far)?];
        let host_at = |end: End| match end {
            End::Near => near,
            End::Far => far,
        };
        let (mut senders, mut receivers, mut servers) = (Vec::new(), Vec::new(), Vec::new());
        // a thread for each change of namespace, not for each flow
        for group in flows.chunk_by(|a, b| a.group == b.group) {
            let (from, spec) = (End::source_of(group[0].spec.heading), group[0].spec);
            let open_at = |end: End| {
                let open = |flow: &Flow<'_>| sender(ip, flow, schemes, end).map(Some);
                let open = || group.iter().map(open).collect::<Result<Vec<_>, _>>();
                inside(host_at(end), open)
            };
            if opens_later(spec) {
                let address = server(ip, &group[0], port);
                let scheme = schemes.kernel_name(spec.transport.scheme());
                let listen = || listener(ip, address, group.len(), Some(scheme));
                servers.push((senders.len(), inside(host_at(from), listen)?));
                senders.extend(group.iter().map(|_| None));
                receivers.extend(open_at(from.opposite())?);
                continue;
            }
            senders.extend(open_at(from)?);
            receivers.extend(inside(host_at(from.opposite()), || {
                let open = |flow: &Flow<'_>| match flow.spec.transport {
                    Transport::Tcp { .. } => Ok(None),
                    Transport::Quic { .. } | Transport::Udp => {
                        datagram_socket(ip, flow, from.opposite()).map(Some)
                    }
                };
                group.iter().map(open).collect::<Result<Vec<_>, _>>()
            })?);
        }
        Ok(Self {
            flows,
            schemes,
            ip,
            port,
            listeners,
            senders,
            receivers,
            servers,
        })
    }

    /// Connects all flows but the connections of pages; `None` if `stopped` while they are at it.
    pub(crate) fn connect(
        mut self,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Option<Connected>, EmulatorError> {
        let begin = Instant::now();
        let mut expected = 0;
        for ((flow, socket), receiver) in self.flows.iter().zip(&self.senders).zip(&self.receivers)
        {
            let Some(socket) = socket else { continue };
            if let Some(receiver) = receiver {
                connect(socket, &local(receiver)?).map_err(failed)?;
                connect(receiver, &local(socket)?).map_err(failed)?;
                continue;
            }
            expected += 1;
            let to = End::source_of(flow.spec.heading).opposite();
            let address = SocketAddr::new(self.ip.address(flow.group, to), self.port);
            match connect(socket, &address) {
                Ok(()) | Err(Errno::INPROGRESS) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        let mut accepted: Vec<(SocketAddr, OwnedFd)> = Vec::new();
        while accepted.len() < expected {
            if stopped() {
                return Ok(None);
            }
            let mut any = false;
            for listener in &self.listeners {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                match acceptfrom_with(listener, flags) {
                    Ok((socket, Some(peer))) => {
                        reset_on_close(socket.as_fd()).map_err(failed)?;
                        accepted.push((SocketAddr::try_from(peer).map_err(failed)?, socket));
                        any = true;
                    }
                    Ok((_, None)) => return Err(failed(Errno::NOTCONN)),
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(errno) => return Err(failed(errno)),
                }
            }
            if !any {
                if begin.elapsed() > CONNECT_WITHIN {
                    return Err(EmulatorError::NoConnection {
                        connected: accepted.len(),
                        flows: expected,
                        waited_s: begin.elapsed().as_secs_f64(),
                    });
                }
                sleep(Duration::from_millis(1));
            }
        }
        let mut connections = Vec::with_capacity(self.flows.len());
        for ((flow, sender), receiver) in self
            .flows
            .iter()
            .zip(self.senders)
            .zip(self.receivers.drain(..))
        {
            let receiver = match (receiver, &sender) {
                (Some(receiver), _) => receiver,
                (None, Some(sender)) => accepted_from(local(sender)?, &mut accepted)?,
                (None, None) => return Err(failed(Errno::NOTCONN)),
            };
            if let Transport::Tcp { scheme, .. } = &flow.spec.transport
                && flow.spec.workload.asks()
            {
                // requests have the congestion control of their responses, not the system's default
                set_scheme(receiver.as_fd(), self.schemes.kernel_name(scheme))?;
                sockopt::set_tcp_nodelay(&receiver, true).map_err(failed)?;
            }
            if let Transport::Tcp {
                receive_window: ReceiveWindow::Fixed { bytes },
                ..
            } = flow.spec.transport
            {
                limit_receive_window(receiver.as_fd(), bytes)
                    .map_err(|error| EmulatorError::from_io("setting the receive window", error))?;
            }
            let server = opens_later(flow.spec).then(|| server(self.ip, flow, self.port));
            let from = sender.as_ref().map(local).transpose()?.or(server);
            let mut ports = [from.map_or(0, |from| from.port()), local(&receiver)?.port()];
            if flow.spec.heading == Heading::Reverse {
                ports.reverse();
            }
            connections.push(Connection {
                sender: sender.map_or_else(OnceLock::new, OnceLock::from),
                receiver,
                ports,
                server,
            });
        }
        Ok(Some(Connected {
            connections,
            servers: self.servers,
        }))
    }
}

/// Whether its connections of TCP open when the browser needs them. Those of QUIC have sockets from the beginning.
fn opens_later(spec: &FlowSpec) -> bool {
    spec.workload.is_page() && spec.transport.is_tcp()
}

/// The accepted socket whose peer is `from`: they may have been accepted in another order than they were opened.
fn accepted_from(
    from: SocketAddr,
    accepted: &mut Vec<(SocketAddr, OwnedFd)>,
) -> Result<OwnedFd, EmulatorError> {
    let at = accepted.iter().position(|(peer, _)| *peer == from);
    let (_, socket) = accepted.swap_remove(at.ok_or_else(|| failed(Errno::NOTCONN))?);
    Ok(socket)
}

/// Where the servers of the page of `flow` listen, in a run whose other flows have `port`.
fn server(ip: Ip, flow: &Flow<'_>, port: u16) -> SocketAddr {
    let end = End::source_of(flow.spec.heading);
    SocketAddr::new(ip.address(flow.group, end), servers_port(port))
}

fn failed(errno: Errno) -> EmulatorError {
    EmulatorError::from_io("connecting over the path", errno)
}

pub(crate) fn local(socket: &OwnedFd) -> Result<SocketAddr, EmulatorError> {
    getsockname(socket)
        .and_then(SocketAddr::try_from)
        .map_err(failed)
}

/// Does `work` in the namespace of `host`.
fn inside<T: Send>(
    host: &Host,
    work: impl FnOnce() -> Result<T, EmulatorError> + Send,
) -> Result<T, EmulatorError> {
    host.namespace
        .run(work)
        .map_err(|error| EmulatorError::from_io("entering a network namespace", error))?
}

/// A listener; what it accepts has the congestion control `scheme`, if there is one.
fn listener(
    ip: Ip,
    address: SocketAddr,
    flows: usize,
    scheme: Option<&str>,
) -> Result<OwnedFd, EmulatorError> {
    let listening = |errno| EmulatorError::from_io(format!("listening on {address}"), errno);
    let listener = tcp_socket(ip).map_err(listening)?;
    if let Some(scheme) = scheme {
        set_scheme(listener.as_fd(), scheme)?;
    }
    bind(&listener, &address).map_err(listening)?;
    listen(&listener, flows.clamp(1, 4096) as i32).map_err(listening)?;
    Ok(listener)
}

/// The socket by which a flow connects, at `end`: the one that its data is written into, or a browser's.
fn sender(ip: Ip, flow: &Flow<'_>, schemes: &Schemes, end: End) -> Result<OwnedFd, EmulatorError> {
    let Transport::Tcp { scheme, .. } = &flow.spec.transport else {
        return datagram_socket(ip, flow, end);
    };
    let opening = |errno| EmulatorError::from_io("opening a TCP socket", errno);
    let socket = tcp_socket(ip).map_err(opening)?;
    bind(&socket, &SocketAddr::new(ip.address(flow.group, end), 0)).map_err(opening)?;
    set_scheme(socket.as_fd(), schemes.kernel_name(scheme))?;
    let mss_bytes = flow.spec.transport.mss_bytes();
    if mss_bytes != DEFAULT_MSS_BYTES {
        // the kernel counts the timestamps in; both ends keep to the smaller of what they say
        set_tcp_option(socket.as_fd(), libc::TCP_MAXSEG, mss_bytes as i32 + 12)
            .map_err(|error| EmulatorError::from_io("setting the MSS", error))?;
    }
    let unsent_bytes = match flow.spec.workload.is_greedy() && !flow.spec.is_endless() {
        true => Some(u64::from(UNSENT_BYTES)),
        false => flow.spec.workload.unsent_bytes(),
    };
    if let Some(unsent_bytes) = unsent_bytes {
        let unsent_bytes = i32::try_from(unsent_bytes).unwrap_or(i32::MAX);
        set_tcp_option(socket.as_fd(), libc::TCP_NOTSENT_LOWAT, unsent_bytes)
            .map_err(|error| EmulatorError::from_io("opening a TCP socket", error))?;
    }
    if !flow.spec.workload.is_greedy() {
        // each write leaves when it is made, as in the simulator
        sockopt::set_tcp_nodelay(&socket, true).map_err(opening)?;
    }
    Ok(socket)
}

fn datagram_socket(ip: Ip, flow: &Flow<'_>, end: End) -> Result<OwnedFd, EmulatorError> {
    let open = || -> io::Result<OwnedFd> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family(ip), SocketType::DGRAM, flags, None)?;
        bind(&socket, &SocketAddr::new(ip.address(flow.group, end), 0))?;
        set_receive_buffer(socket.as_fd(), DATAGRAM_BUFFER_BYTES)?;
        Ok(socket)
    };
    open().map_err(|error| EmulatorError::from_io("opening a UDP socket", error))
}

const fn family(ip: Ip) -> AddressFamily {
    match ip {
        Ip::V4 => AddressFamily::INET,
        Ip::V6 => AddressFamily::INET6,
    }
}

fn tcp_socket(ip: Ip) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family(ip), SocketType::STREAM, flags, None)?;
    reset_on_close(socket.as_fd())?;
    Ok(socket)
}

/// Makes closing drop what is unsent and end the connection immediately. Otherwise the kernel would
/// continue to send for minutes after the process has ended, and keep the namespace.
fn reset_on_close(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    sockopt::set_socket_linger(socket, Some(Duration::ZERO))
}

/// Sets the socket's congestion control, by the kernel's name, and makes sure that it took.
fn set_scheme(socket: BorrowedFd<'_>, scheme: &str) -> Result<(), EmulatorError> {
    let refused = |why: io::Error| {
        EmulatorError::from_io(format!("setting the congestion control {scheme:?}"), why)
    };
    sockopt::set_tcp_congestion(socket, scheme).map_err(|errno| refused(errno.into()))?;
    match sockopt::tcp_congestion(socket).map_err(|errno| refused(errno.into()))? {
        name if name == scheme => Ok(()),
        other => Err(refused(io::Error::other(format!(
            "the socket has {other:?} instead"
        )))),
    }
}

/// A port of our own if possible: each namespace has all ports, but tcp_probe sees the packets of
/// all namespaces, and passes over another port more cheaply than over another socket.
fn next_port() -> u16 {
    static RUNS: AtomicU16 = AtomicU16::new(0);
    const FIRST: u32 = 10_000;
    let run = u32::from(RUNS.fetch_add(1, Ordering::Relaxed));
    let ports = u32::from(PORTS);
    (FIRST + std::process::id().wrapping_mul(61).wrapping_add(run) % ports) as u16
}

/// As many ports are for runs, and as many for the servers of their pages: all below the range of the senders' ports.
const PORTS: u16 = 10_000;

/// The port of the servers of pages in a run whose other flows have `port`.
const fn servers_port(port: u16) -> u16 {
    port + PORTS
}
