//! The kernel's list of TCP sockets, by netlink (sock_diag(7)): no rights needed for those of one's
//! own network namespace.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

use crate::netlink::{
    Message, NLM_F_DUMP, NLMSG_DONE, attributes, messages, request, u32_at, u64_at,
};
use crate::tcp_info::TcpInfo;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_CGROUP_ID: u16 = 21;
/// What a request asks for in addition to addresses: `struct tcp_info`, and the congestion control's name.
const EXTENSIONS: u8 = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1);
/// `struct inet_diag_msg`.
const MESSAGE_BYTES: usize = 72;

/// States of linux/tcp_states.h in which a connection is or was one.
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;
/// Established, or closing: FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING.
const CONNECTED: u32 = 1 << ESTABLISHED | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;

/// Groups 1 and 3, TCP sockets over IPv4 and IPv6 that are destroyed, as bits.
const DESTROYED: u32 = 1 << 0 | 1 << 2;

/// The kernel answers immediately; this limit is for a kernel that never does.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The kernel puts at most 32 kB into one piece of a long answer.
const BUFFER_BYTES: usize = 64 << 10;

/// What names one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketId {
    /// As it was opened: one over IPv6 may carry IPv4, with mapped addresses.
    pub(crate) over_ipv6: bool,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// The interface that it is bound to, or 0.
    interface: u32,
    /// Unique on the machine.
    pub(crate) cookie: u64,
}

impl SocketId {
    pub(crate) fn new(local: SocketAddr, remote: SocketAddr, cookie: u64) -> Self {
        Self {
            over_ipv6: local.is_ipv6(),
            local,
            remote,
            interface: match local {
                SocketAddr::V6(address) => address.scope_id(),
                SocketAddr::V4(_) => 0,
            },
            cookie,
        }
    }

    /// `struct inet_diag_sockid`
    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.local.port().to_be_bytes());
        to.extend(self.remote.port().to_be_bytes());
        for address in [self.local.ip(), self.remote.ip()] {
            let mut bytes = [0; 16];
            match address {
                IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
                IpAddr::V6(address) => bytes = address.octets(),
            }
            to.extend(bytes);
        }
        to.extend(self.interface.to_ne_bytes());
        to.extend((self.cookie as u32).to_ne_bytes());
        to.extend(((self.cookie >> 32) as u32).to_ne_bytes());
    }

    fn read(family: u8, bytes: &[u8]) -> Option<Self> {
        let over_ipv6 = match i32::from(family) {
            libc::AF_INET => false,
            libc::AF_INET6 => true,
            _ => return None,
        };
        let port = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
            Some(match over_ipv6 {
                true => Ipv6Addr::from(octets).into(),
                false => Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).into(),
            })
        };
        Some(Self {
            over_ipv6,
            local: SocketAddr::new(address(4)?, port(0)?),
            remote: SocketAddr::new(address(20)?, port(2)?),
            interface: u32_at(bytes, 36)?,
            cookie: u64::from(u32_at(bytes, 40)?) | u64::from(u32_at(bytes, 44)?) << 32,
        })
    }
}

/// What the kernel says of one socket.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Socket {
    pub(crate) id: SocketId,
    /// Of its file; 0 before it is accepted, or after it was closed.
    pub(crate) inode: u32,
    /// None if the connection has ended.
    pub(crate) info: Option<TcpInfo>,
    pub(crate) scheme: Option<String>,
    pub(crate) cgroup: Option<u64>,
}

impl Socket {
    /// Reads `struct inet_diag_msg` and its attributes; none if it is too short or not of a TCP socket.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let id = SocketId::read(*body.first()?, body.get(4..52)?)?;
        let mut socket = Self {
            id,
            inode: u32_at(body, 68)?,
            info: None,
            scheme: None,
            cgroup: None,
        };
        for (name, value) in attributes(body.get(MESSAGE_BYTES..)?) {
            match name {
                INET_DIAG_INFO => socket.info = TcpInfo::parse(value),
                INET_DIAG_CONG => {
                    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
                    socket.scheme = String::from_utf8(text.to_vec()).ok();
                }
                INET_DIAG_CGROUP_ID => socket.cgroup = u64_at(value, 0),
                _ => {}
            }
        }
        Some(socket)
    }
}

/// Asks for sockets of one network namespace.
pub(crate) struct Diag {
    socket: OwnedFd,
    number: u32,
    buffer: Vec<u8>,
}

impl Diag {
    /// Asks in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel has no sock_diag.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = open(SocketFlags::CLOEXEC)?;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_WITHIN))?;
        Ok(Self {
            socket,
            number: 0,
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    /// The socket of this name; none if it is gone, or in another namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn socket(&mut self, id: &SocketId) -> io::Result<Option<Socket>> {
        let body = body_of_request(id.over_ipv6, EXTENSIONS, u32::MAX, id);
        self.ask(0, &body)?;
        let mut found = None;
        let answered = self.answers(&mut |message| match message.error() {
            None => {
                found = Socket::read(message.body);
                Ok(true)
            }
            Some(0) => Ok(true),
            Some(code) => match Errno::from_raw_os_error(-code) {
                Errno::NOENT | Errno::STALE => Ok(true),
                errno => Err(errno.into()),
            },
        });
        answered.map(|()| found)
    }

    /// All connections with these ports; 0 is any.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn connections(
        &mut self,
        (local, remote): (u16, u16),
        take: &mut dyn FnMut(Socket),
    ) -> io::Result<()> {
        self.dump(EXTENSIONS, CONNECTED, (local, remote), take)
    }

    /// All sockets that listen.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn listeners(&mut self, take: &mut dyn FnMut(Socket)) -> io::Result<()> {
        self.dump(0, 1 << LISTEN, (0, 0), take)
    }

    fn dump(
        &mut self,
        extensions: u8,
        states: u32,
        (local, remote): (u16, u16),
        take: &mut dyn FnMut(Socket),
    ) -> io::Result<()> {
        for over_ipv6 in [false, true] {
            let any = |port| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
            let id = SocketId::new(any(local), any(remote), u64::MAX);
            let body = body_of_request(over_ipv6, extensions, states, &id);
            self.ask(NLM_F_DUMP, &body)?;
            self.answers(&mut |message| match (message.kind, message.error()) {
                (NLMSG_DONE, _) | (_, Some(0)) => Ok(true),
                // a kernel without IPv6
                (_, Some(code)) if over_ipv6 && -code == libc::ENOENT => Ok(true),
                (_, Some(code)) => Err(io::Error::from_raw_os_error(-code)),
                (_, None) => {
                    if let Some(socket) = Socket::read(message.body) {
                        take(socket);
                    }
                    Ok(false)
                }
            })?;
        }
        Ok(())
    }

    fn ask(&mut self, flags: u16, body: &[u8]) -> io::Result<()> {
        self.number = self.number.wrapping_add(1);
        let message = request(SOCK_DIAG_BY_FAMILY, flags, self.number, body);
        send(&self.socket, &message, SendFlags::empty())?;
        Ok(())
    }

    /// Hands each message of the answer to `take`, until that says that it was the last.
    fn answers(
        &mut self,
        take: &mut dyn FnMut(&Message<'_>) -> io::Result<bool>,
    ) -> io::Result<()> {
        loop {
            let (_, size) = match recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC) {
                Err(Errno::INTR) => continue,
                got => got?,
            };
            let bytes = self.buffer.get(..size).ok_or_else(|| {
                io::Error::other(format!(
                    "sock_diag: got {size} bytes at once, expected at most {BUFFER_BYTES}"
                ))
            })?;
            for message in messages(bytes) {
                // ignore answers to a request that was abandoned
                if message.number == self.number && take(&message)? {
                    return Ok(());
                }
            }
        }
    }
}

fn open(flags: SocketFlags) -> io::Result<OwnedFd> {
    let (netlink, raw) = (AddressFamily::NETLINK, SocketType::RAW);
    Ok(socket_with(netlink, raw, flags, Some(SOCK_DIAG))?)
}

/// `struct inet_diag_req_v2`
fn body_of_request(over_ipv6: bool, extensions: u8, states: u32, id: &SocketId) -> Vec<u8> {
    let family = if over_ipv6 {
        libc::AF_INET6
    } else {
        libc::AF_INET
    };
    let mut body = Vec::with_capacity(56);
    body.extend([family as u8, libc::IPPROTO_TCP as u8, extensions, 0]);
    body.extend(states.to_ne_bytes());
    id.write(&mut body);
    body
}

/// Reports sockets as the kernel destroys them, with their last state.
pub(crate) struct Destroyed {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// What did not fit into the socket's buffer.
    overruns: u64,
}

impl Destroyed {
    /// Listens in the calling thread's namespace.
    ///
    /// # Errors
    /// What the kernel says: `EPERM` where only root may listen.
    pub(crate) fn open() -> io::Result<Self> {
        const QUEUE_BYTES: usize = 4 << 20;
        let socket = open(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        // without the right to more than the usual limit, that limit
        if sockopt::set_socket_recv_buffer_size_force(&socket, QUEUE_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, QUEUE_BYTES)?;
        }
        bind(&socket, &SocketAddrNetlink::new(0, DESTROYED))?;
        Ok(Self {
            socket,
            buffer: vec![0; BUFFER_BYTES],
            overruns: 0,
        })
    }

    /// Hands over what was destroyed since the last call.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(Socket)) {
        loop {
            match recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC) {
                Ok((_, size)) => {
                    let bytes = self.buffer.get(..size).unwrap_or_default();
                    messages(bytes)
                        .filter(|message| message.kind == SOCK_DIAG_BY_FAMILY)
                        .filter_map(|message| Socket::read(message.body))
                        .for_each(&mut take);
                }
                Err(Errno::NOBUFS) => self.overruns += 1,
                Err(Errno::INTR) => {}
                Err(_) => return, // nothing more, for now
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::*;
    use rustix::net::sockopt::socket_cookie;

    use super::*;

    fn pair(address: &str) -> (TcpListener, TcpStream, SocketId) {
        let listener = TcpListener::bind(address).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (local, remote) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        let id = SocketId::new(local, remote, socket_cookie(&stream).unwrap());
        (listener, stream, id)
    }

    #[test]
    fn a_socket_is_found_by_its_name_and_in_the_list() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (_listener, stream, id) = pair(address);
            let mut diag = Diag::open().unwrap();
            let found = diag.socket(&id).unwrap().unwrap();
            assert_eq!(found.id, id);
            assert!(found.info.unwrap().snd_cwnd > 0);
            assert!(!found.scheme.unwrap().is_empty());
            let mut listed = Vec::new();
            let ports = (id.local.port(), id.remote.port());
            diag.connections(ports, &mut |socket| listed.push(socket.id))
                .unwrap();
            assert_eq!(listed, [id]);
            let other = SocketId {
                cookie: id.cookie + 1_000_000,
                ..id
            };
            assert_eq!(diag.socket(&other).unwrap(), None);
            drop(stream);
        }
    }

    /// Answers of Linux 6.18 about loopback connections that had sent 3000 bytes.
    #[cfg(target_endian = "little")]
    #[test]
    fn captured_answers_are_read_and_cut_ones_never_past_their_end() {
        for (bytes, local, remote, cookie) in [
            (
                &include_bytes!("captured/sock_diag_ipv4.bin")[..],
                "127.0.0.1:37844",
                "127.0.0.1:34507",
                3062,
            ),
            (
                &include_bytes!("captured/sock_diag_ipv6.bin")[..],
                "[::1]:34176",
                "[::1]:41573",
                3064,
            ),
        ] {
            let message = messages(bytes).next().unwrap();
            assert_eq!((message.kind, message.number), (SOCK_DIAG_BY_FAMILY, 7));
            let socket = Socket::read(message.body).unwrap();
            assert_eq!(socket.id.local, local.parse().unwrap());
            assert_eq!(socket.id.remote, remote.parse().unwrap());
            assert_eq!(
                (socket.id.cookie, socket.scheme.as_deref()),
                (cookie, Some("reno"))
            );
            assert!(socket.inode > 0 && socket.cgroup.is_some());
            let info = socket.info.unwrap();
            assert_eq!((info.snd_cwnd, info.snd_mss), (10, 50_176));
            // the SYN counts
            assert_eq!(
                (info.bytes_acked, info.new_bytes()),
                (Some(3001), Some(3000))
            );
            for size in 0..message.body.len() {
                let cut = Socket::read(&message.body[..size]);
                assert!(size >= MESSAGE_BYTES || cut.is_none(), "{size}");
            }
            for size in 0..bytes.len() {
                assert_eq!(messages(&bytes[..size]).count(), 0, "{size}");
            }
        }
    }

    #[test]
    fn listeners_are_listed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut ports = Vec::new();
        let take = &mut |socket: Socket| ports.push(socket.id.local.port());
        Diag::open().unwrap().listeners(take).unwrap();
        assert!(ports.contains(&port), "{port} of {ports:?}");
    }

    #[test]
    fn the_end_of_a_socket_is_told_with_its_last_state() {
        let mut destroyed = match Destroyed::open() {
            Ok(destroyed) => destroyed,
            Err(error) => return println!("not tested: {error}"),
        };
        let (listener, stream, id) = pair("127.0.0.1:0");
        let (accepted, _) = listener.accept().unwrap();
        drop(stream);
        drop(accepted);
        let mut ends = Vec::new();
        for _ in 0..200 {
            destroyed.drain(|socket| ends.push(socket));
            if ends.iter().any(|end| end.id.cookie == id.cookie) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let end = ends.iter().find(|end| end.id.cookie == id.cookie);
        let end = end.expect("the end of the socket");
        assert_eq!((end.id.local, end.id.remote), (id.local, id.remote));
        assert_eq!(end.info.unwrap().total_retrans, 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_socket_or_none(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Socket::read(&bytes);
        }
    }
}
