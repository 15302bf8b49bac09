//! The sockets of one network namespace, for who looks at them now and then.

use std::io;
use std::net::SocketAddr;

use crate::sock_diag::{Destroyed, Diag, Socket};
use crate::tcp_info::TcpInfo;

/// One TCP socket.
#[derive(Clone, Debug, PartialEq)]
pub struct SocketState {
    /// Unique on the machine.
    pub cookie: u64,
    /// Address and port at this end.
    pub local: SocketAddr,
    /// Address and port at the far end; IPv4 over an IPv6 socket is a mapped address.
    pub remote: SocketAddr,
    /// What the kernel reports about it.
    pub info: TcpInfo,
    /// Its congestion control.
    pub scheme: Option<String>,
}

/// Lists the TCP sockets of one network namespace, and those that end.
pub struct Sockets {
    diag: Diag,
    /// None without the right to receive the ends of sockets (`CAP_NET_ADMIN`).
    destroyed: Option<Destroyed>,
}

impl Sockets {
    /// Looks into the namespace of the calling thread; later calls may come from any other.
    ///
    /// # Errors
    /// The kernel has no sock_diag.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            diag: Diag::open()?,
            destroyed: Destroyed::open().ok(),
        })
    }

    /// Whether the last state of sockets that ended between two looks is reported.
    pub const fn sees_ends(&self) -> bool {
        self.destroyed.is_some()
    }

    /// All connections now with this port at this end; 0 is any.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn connections(&mut self, local_port: u16) -> io::Result<Vec<SocketState>> {
        let mut found = Vec::new();
        self.diag.connections((local_port, 0), &mut |socket| {
            found.extend(state(socket));
        })?;
        Ok(found)
    }

    /// The last states of the sockets that ended since the last call; nothing without the right to them.
    pub fn ended(&mut self) -> Vec<SocketState> {
        let mut found = Vec::new();
        if let Some(destroyed) = &mut self.destroyed {
            destroyed.drain(|socket| found.extend(state(socket)));
        }
        found
    }
}

fn state(socket: Socket) -> Option<SocketState> {
    Some(SocketState {
        cookie: socket.id.cookie,
        local: socket.id.local,
        remote: socket.id.remote,
        info: socket.info?,
        scheme: socket.scheme,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_is_listed_by_the_port_of_its_own_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (_accepted, _) = listener.accept().unwrap();
        let listed = Sockets::open().unwrap().connections(port).unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(listed[0].remote, stream.local_addr().unwrap());
        assert!(listed[0].info.rttvar_us > 0 && listed[0].scheme.is_some());
    }
}
