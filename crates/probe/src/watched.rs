//! A socket of this process under watch, and what was seen of it in all.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{getpeername, getsockname};

use crate::sample::Retransmits;
use crate::sock_diag::SocketId;
use crate::tcp_info::TcpInfo;

/// What was seen of one flow in all, since it was first watched.
#[derive(Clone, Debug)]
pub struct FlowTotals {
    /// The socket's state when it was first watched.
    pub first: TcpInfo,
    /// The socket's state at the end.
    pub last: TcpInfo,
    /// Packets sent again.
    pub retransmits: u64,
    /// Packets that the receiver said it had got twice.
    pub duplicates: u64,
    /// Time in which the receiver's window held the sender back, in seconds.
    pub rwnd_limited_s: f64,
    /// Time in which the send buffer was too small, in seconds.
    pub sndbuf_limited_s: f64,
    history: Retransmits,
}

impl FlowTotals {
    /// Packets sent again up to `time_ns` of the monotonic clock, to within 10 ms.
    pub fn retransmits_at(&self, time_ns: u64) -> u64 {
        self.history.at(time_ns)
    }
}

/// A flow under watch.
pub(crate) struct Watched {
    pub(crate) socket: OwnedFd,
    pub(crate) first: TcpInfo,
    last: TcpInfo,
    pub(crate) retransmits: Retransmits,
}

impl Watched {
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let socket = socket.try_clone_to_owned()?;
        let first = TcpInfo::of(socket.as_fd())?;
        Ok(Self {
            socket,
            first,
            last: first,
            retransmits: Retransmits::default(),
        })
    }

    /// Notes the flow's state; whether it has changed.
    pub(crate) fn look(&mut self, info: TcpInfo, time_ns: u64) -> bool {
        let retransmits = info.total_retrans.wrapping_sub(self.first.total_retrans);
        self.retransmits.note(time_ns, retransmits.into());
        let row = |info: &TcpInfo| {
            let bytes = (info.bytes_sent, info.bytes_acked, info.total_retrans);
            (
                info.snd_cwnd,
                info.snd_ssthresh,
                info.rtt_us,
                info.snd_wnd,
                bytes,
            )
        };
        let changed = row(&info) != row(&self.last);
        self.last = info.with_mss_in_use(Some(&self.last));
        changed
    }

    pub(crate) fn totals(self) -> FlowTotals {
        let Self {
            first,
            last,
            retransmits,
            ..
        } = self;
        let seconds = |now: Option<u64>, then: Option<u64>| {
            now.unwrap_or(0).saturating_sub(then.unwrap_or(0)) as f64 * 1e-6
        };
        FlowTotals {
            first,
            last,
            retransmits: retransmits.at(u64::MAX),
            duplicates: last
                .dsack_dups
                .unwrap_or(0)
                .wrapping_sub(first.dsack_dups.unwrap_or(0))
                .into(),
            rwnd_limited_s: seconds(last.rwnd_limited_us, first.rwnd_limited_us),
            sndbuf_limited_s: seconds(last.sndbuf_limited_us, first.sndbuf_limited_us),
            history: retransmits,
        }
    }
}

pub(crate) fn id_of(socket: BorrowedFd<'_>, cookie: u64) -> io::Result<SocketId> {
    let local = SocketAddr::try_from(getsockname(socket)?)?;
    let peer = getpeername(socket)?.ok_or(io::ErrorKind::NotConnected)?;
    Ok(SocketId::new(local, peer.try_into()?, cookie))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_mss_is_that_of_the_data_that_was_acknowledged() {
        let info = |acked_bytes, snd_mss| TcpInfo {
            bytes_acked: Some(acked_bytes),
            snd_mss,
            ..TcpInfo::at_the_beginning()
        };
        let first = info(0, 536);
        let mut watched = Watched {
            socket: TcpListener::bind("127.0.0.1:0").unwrap().into(),
            first,
            last: first,
            retransmits: Retransmits::default(),
        };
        // larger once the path is known, and 36 bytes after its device has disappeared
        let looks = [(1448, 1448), (4344, 1448), (4344, 36), (4344, 36)];
        for (time_ns, (acked_bytes, snd_mss)) in (1..).zip(looks) {
            watched.look(info(acked_bytes, snd_mss), time_ns);
        }
        assert_eq!(watched.totals().last.snd_mss, 1448);
    }
}
