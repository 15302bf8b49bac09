//! `TCP_INFO`: what the kernel reports about a socket.

use std::io;
use std::os::fd::BorrowedFd;

use crate::netlink::{u32_at, u64_at};
use crate::sys;

/// The fields of `struct tcp_info` that we use. What an older kernel lacks is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Retransmission timeout, with its back-off, in microseconds.
    pub rto_us: u32,
    /// Payload bytes of a full segment.
    pub snd_mss: u32,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: u32,
    /// Mean deviation of the round-trip time in microseconds.
    pub rttvar_us: u32,
    /// Slow-start threshold in packets, as the sender holds it.
    pub snd_ssthresh: u32,
    /// Congestion window in packets.
    pub snd_cwnd: u32,
    /// Packets sent again.
    pub total_retrans: u32,
    /// Bytes acknowledged, the SYN among them.
    pub bytes_acked: Option<u64>,
    /// Payload bytes received.
    pub bytes_received: Option<u64>,
    /// Time with data to send, in microseconds.
    pub busy_time_us: Option<u64>,
    /// Of that, time in which the receiver's window held the sender back.
    pub rwnd_limited_us: Option<u64>,
    /// Of that, time in which the send buffer was too small.
    pub sndbuf_limited_us: Option<u64>,
    /// Payload bytes sent, those sent again included.
    pub bytes_sent: Option<u64>,
    /// Payload bytes sent again.
    pub bytes_retrans: Option<u64>,
    /// Packets that the receiver said it had got twice.
    pub dsack_dups: Option<u32>,
    /// The receiver's window in bytes.
    pub snd_wnd: Option<u32>,
    /// Rate at which packets are paced, in bytes a second; all ones if they are not.
    pub pacing_rate: Option<u64>,
    /// Smallest round-trip time in microseconds; all ones before the first.
    pub min_rtt_us: Option<u32>,
    /// Last delivery rate in bytes a second.
    pub delivery_rate: Option<u64>,
    /// Whether the application, and not the path, held that rate down.
    pub app_limited: bool,
}

impl TcpInfo {
    /// Asks for the state of `socket`.
    ///
    /// # Errors
    /// What the kernel says: not a TCP socket.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut bytes = [0; 512];
        let length = sys::tcp_info(socket, &mut bytes)?;
        Self::parse(&bytes[..length])
            .ok_or_else(|| io::Error::other(format!("TCP_INFO has {length} bytes, expected 104")))
    }

    /// Payload bytes sent at least once.
    pub(crate) fn new_bytes(&self) -> Option<u64> {
        Some(self.bytes_sent?.saturating_sub(self.bytes_retrans?))
    }

    /// This state with the MSS of the time when data was last acknowledged; `before` is the state before.
    ///
    /// If a path disappears while data is outstanding, Linux lowers the MSS to a few bytes, with which nothing
    /// was ever delivered. Kernels before 4.6 do not count acknowledged bytes: theirs stays as it is.
    pub(crate) fn with_mss_in_use(self, before: Option<&Self>) -> Self {
        let unchanged = before
            .filter(|before| self.bytes_acked.is_some() && before.bytes_acked == self.bytes_acked);
        Self {
            snd_mss: unchanged.map_or(self.snd_mss, |before| before.snd_mss),
            ..self
        }
    }

    /// The state of a flow that has not sent or received anything.
    pub(crate) fn at_the_beginning() -> Self {
        Self {
            bytes_acked: Some(0),
            bytes_received: Some(0),
            busy_time_us: Some(0),
            rwnd_limited_us: Some(0),
            sndbuf_limited_us: Some(0),
            bytes_sent: Some(0),
            bytes_retrans: Some(0),
            dsack_dups: Some(0),
            ..Self::default()
        }
    }

    /// Reads `struct tcp_info`; the offsets are part of the kernel's interface and never change.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let u32_at = |at| u32_at(bytes, at);
        let u64_at = |at| u64_at(bytes, at);
        Some(Self {
            rto_us: u32_at(8)?,
            snd_mss: u32_at(16)?,
            rtt_us: u32_at(68)?,
            rttvar_us: u32_at(72)?,
            snd_ssthresh: u32_at(76)?,
            snd_cwnd: u32_at(80)?,
            total_retrans: u32_at(100)?,
            bytes_acked: u64_at(120),
            bytes_received: u64_at(128),
            busy_time_us: u64_at(168),
            rwnd_limited_us: u64_at(176),
            sndbuf_limited_us: u64_at(184),
            bytes_sent: u64_at(200),
            bytes_retrans: u64_at(208),
            dsack_dups: u32_at(216),
            snd_wnd: u32_at(228),
            pacing_rate: u64_at(104),
            min_rtt_us: u32_at(148),
            delivery_rate: u64_at(160),
            // the lowest bit of tcpi_delivery_rate_app_limited and its neighbors
            app_limited: bytes.get(7).is_some_and(|flags| flags & 1 != 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_fresh_connection_has_sent_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = TcpInfo::of(stream.as_fd()).unwrap();
        assert!(
            info.snd_cwnd >= 1 && info.snd_mss > 0 && info.rtt_us > 0,
            "{info:?}"
        );
        assert_eq!((info.total_retrans, info.bytes_sent), (0, Some(0)));
    }

    #[test]
    fn what_an_old_kernel_lacks_is_none() {
        let info = TcpInfo::parse(&[1; 104]).unwrap();
        assert_eq!((info.bytes_acked, info.snd_wnd), (None, None));
        assert_eq!(TcpInfo::parse(&[1; 103]), None);
    }

    #[test]
    fn a_file_has_no_tcp_info() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(TcpInfo::of(file.as_fd()).is_err());
    }
}
