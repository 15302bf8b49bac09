//! Two network namespaces, a server's and a client's, and connections between them.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use pathcast_netns::Namespace;
use pathcast_probe::TcpInfo;
use rustix::thread::gettid;

use crate::ip;

const SERVER: &str = "10.77.0.1";
const CLIENT: &str = "10.77.0.2";
/// The clients' prefix.
pub(super) const PREFIX: &str = "10.77.0.0/24";
const DEVICE: &str = "path0";
const PATIENCE: Duration = Duration::from_secs(5);

/// Two namespaces that go when this is dropped.
pub(super) struct Rig {
    server: Namespace,
    client: Namespace,
}

impl Rig {
    pub(super) fn new() -> io::Result<Self> {
        let (server, client) = (Namespace::create()?, Namespace::create()?);
        client.run(|| -> io::Result<()> {
            // the kernel takes a namespace by the number of a thread in it
            let there = gettid().as_raw_nonzero().to_string();
            server.run(|| {
                let pair = ["type", "veth", "peer", "name", DEVICE, "netns", &there];
                ip::run(&[&["ip", "link", "add", DEVICE][..], &pair].concat(), None)
            })??;
            Ok(())
        })??;
        for (host, address) in [(&server, SERVER), (&client, CLIENT)] {
            let address = format!("{address}/24");
            host.run(|| -> io::Result<()> {
                ip::run(&["ip", "address", "add", &address, "dev", DEVICE], None)?;
                ip::run(&["ip", "link", "set", DEVICE, "up"], None)?;
                // else a connection begins with what the last one learned
                write_sysctl("tcp_no_metrics_save", "1")
            })??;
        }
        Ok(Self { server, client })
    }

    /// Runs a command on the server's side.
    pub(super) fn command(&self, arguments: &[&str]) -> io::Result<String> {
        self.server.run(|| ip::run(arguments, None))?
    }

    /// Gives the route to the clients these attributes; none: the kernel's defaults.
    pub(super) fn route(&self, attributes: &[&str]) -> io::Result<()> {
        let route = ["ip", "route", "replace", PREFIX, "dev", DEVICE];
        let same = ["proto", "kernel", "scope", "link", "src", SERVER];
        self.command(&[&route[..], &same, attributes].concat())
            .map(drop)
    }

    /// Sets a sysctl of TCP on the server's side.
    pub(super) fn sysctl(&self, name: &str, value: &str) -> io::Result<()> {
        self.server.run(|| write_sysctl(name, value))?
    }

    /// A sysctl of TCP on the server's side.
    pub(super) fn sysctl_value(&self, name: &str) -> io::Result<String> {
        let read = || fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"));
        Ok(self.server.run(read)??.trim().to_string())
    }

    /// A counter of the server's kernel, such as `TCPAutoCorking`.
    pub(super) fn counter(&self, name: &str) -> io::Result<u64> {
        let text = self
            .server
            .run(|| fs::read_to_string("/proc/thread-self/net/netstat"))??;
        let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
        let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
        let at = names.split_whitespace().position(|one| one == name);
        at.and_then(|at| values.split_whitespace().nth(at)?.parse().ok())
            .ok_or_else(|| io::Error::other(format!("the kernel does not count {name}")))
    }

    /// A new connection: the server's socket, and the client's.
    pub(super) fn connect(&self) -> io::Result<Connection> {
        let listener = self.server.run(|| TcpListener::bind((SERVER, 0)))??;
        let port = listener.local_addr()?.port();
        let client = self.client.run(|| TcpStream::connect((SERVER, port)))??;
        let (server, _) = listener.accept()?;
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.set_write_timeout(Some(PATIENCE))?;
        }
        Ok(Connection { server, client })
    }
}

/// Two ends of a connection.
pub(super) struct Connection {
    pub(super) server: TcpStream,
    pub(super) client: TcpStream,
}

impl Connection {
    pub(super) fn info(&self) -> io::Result<TcpInfo> {
        TcpInfo::of(self.server.as_fd())
    }

    /// The server sends `bytes` in writes of `piece`, and the client reads them all.
    pub(super) fn send(&self, bytes: usize, piece: usize) -> io::Result<()> {
        carry(&self.server, &self.client, bytes, piece)
    }

    /// The client sends `bytes`, and the server reads them all.
    pub(super) fn receive(&self, bytes: usize) -> io::Result<()> {
        carry(&self.client, &self.server, bytes, 1 << 16)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // this end gone first; nothing depends on it
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

fn carry(from: &TcpStream, to: &TcpStream, bytes: usize, piece: usize) -> io::Result<()> {
    thread::scope(|scope| {
        let reader = scope.spawn(|| -> io::Result<()> {
            let (mut left, mut buffer, mut to) = (bytes, vec![0; 1 << 16], to);
            while left > 0 {
                let most = left.min(buffer.len());
                match to.read(&mut buffer[..most])? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    size => left -= size,
                }
            }
            Ok(())
        });
        let (data, mut left, mut from) = (vec![b'x'; piece], bytes, from);
        while left > 0 {
            let size = left.min(piece);
            from.write_all(&data[..size])?;
            left -= size;
        }
        reader
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn write_sysctl(name: &str, value: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/net/ipv4/{name}"), value)
}
