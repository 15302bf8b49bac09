//! Sockets that come under watch while a probe runs.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::net::sockopt::socket_cookie;

use crate::method::Method;
use crate::opt_stats::OptStats;
use crate::sock_diag::SocketId;
use crate::source::{Source, opt_stats};
use crate::watched::{Watched, id_of};

/// Brings sockets under the watch of a [`Probe`](crate::Probe) that runs.
#[derive(Clone)]
pub struct Joining {
    method: Method,
    joins: Sender<Joined>,
}

impl Joining {
    pub(crate) fn new(method: Method) -> (Self, Receiver<Joined>) {
        let (joins, joined) = channel();
        (Self { method, joins }, joined)
    }

    /// Watches `socket` from now on. Its flow number follows those of the sockets that the probe watches already.
    ///
    /// tcp_probe needs to know its local port from the beginning:
    /// [`Options::joining_port`](crate::Options::joining_port).
    ///
    /// # Errors
    /// The socket is not a connected TCP socket.
    pub fn watch(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let mut watched = Watched::of(socket)?;
        let cookie = socket_cookie(socket)?;
        let joined = Joined {
            id: id_of(socket, cookie)?,
            queue: match self.method {
                Method::OptStats => Some(opt_stats(&mut watched)?),
                Method::TcpProbe | Method::TcpInfo | Method::SockDiag => None,
            },
            watched,
            cookie,
        };
        // a probe that has ended watches nothing
        let _ = self.joins.send(joined);
        Ok(())
    }
}

/// A socket on its way under watch, by all of its names.
pub(crate) struct Joined {
    watched: Watched,
    cookie: u64,
    id: SocketId,
    queue: Option<OptStats>,
}

impl Joined {
    /// Its records come from `source` from now on.
    pub(crate) fn join(self, source: &mut Source) -> Watched {
        match source {
            Source::TcpProbe(tcp_probe) => tcp_probe.join(self.cookie),
            Source::TcpInfo => {}
            Source::SockDiag(_, ids) => ids.push(self.id),
            Source::OptStats(queues) => queues.extend(self.queue),
        }
        self.watched
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use pathcast_base::clock::monotonic_ns;

    use crate::{Method, Options, Probe};

    #[test]
    fn a_socket_that_joins_is_seen_from_its_first_byte_on() {
        for method in [Method::TcpInfo, Method::OptStats, Method::TcpProbe] {
            const BYTES: usize = 1_000_000;
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let options = Options {
                method,
                joining_port: Some(address.port()),
                ..Options::default()
            };
            let probe = Probe::attach(&[], &options).unwrap();
            let origin_ns = monotonic_ns();
            let mut receiver = TcpStream::connect(address).unwrap();
            let (mut sender, _) = listener.accept().unwrap();
            probe.joining().watch(sender.as_fd()).unwrap();
            let writer = std::thread::spawn(move || {
                sender.write_all(&vec![1; BYTES]).unwrap();
                sender
            });
            receiver.read_exact(&mut vec![0; BYTES]).unwrap();
            let sender = writer.join().unwrap();
            while crate::TcpInfo::of(sender.as_fd())
                .unwrap()
                .bytes_acked
                .is_none_or(|acked| acked < BYTES as u64)
            {
                std::thread::yield_now();
            }
            let seen = probe.finish(origin_ns);
            assert_eq!((seen.flows.len(), seen.records_lost), (1, 0));
            assert!(!seen.records.is_empty(), "{method:?}");
            let last = seen.records.last().unwrap();
            assert!(last.flow == 0 && last.snd_una_bytes <= Some(BYTES as u64));
            assert!(last.snd_nxt_bytes == Some(BYTES as u64), "{last:?}");
        }
    }
}
