//! The configuration of a sender.

use crate::handshake::Handshake;

/// The largest window that TCP can say, 2^30 bytes (RFC 7323, section 2.3), in packets of 1448 bytes.
pub const MAX_WINDOW_PACKETS: u64 = (1 << 30) / 1448;

/// What a sender has to send, and how.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// Packets to send, to which [`Sender::supply`](super::Sender::supply) may add; none: no end of them.
    pub packets: Option<u64>,
    /// Payload of a full packet: how many leave together depends on it.
    pub mss_bytes: u32,
    /// Bytes by which the last packet is shorter than an MSS.
    pub last_short_by_bytes: u16,
    /// The most that the receiver takes, in packets, whatever it says.
    pub receive_window_packets: u64,
    /// The most that it takes before it says more; none: as much as ever.
    pub first_receive_window_packets: Option<u32>,
    /// The first window in packets; none: the controller's, which is 10 (RFC 6928). For controllers
    /// that leave recovery to the transport.
    pub initial_window_packets: Option<u32>,
    /// Whether a flow that sent nothing for longer than its RTO begins again with a smaller window
    /// (RFC 2861; Linux's tcp_slow_start_after_idle, on by default).
    pub slow_start_after_idle: bool,
    /// Whether routers may mark packets instead of dropping them (RFC 3168). Both ends are taken to
    /// agree. Linux by default: only if the peer asks for it.
    pub ecn: bool,
    /// Whether the connection is open when the sender begins, and by which handshake.
    pub start: Start,
}

/// How a sender's connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It is open, and nothing is known about the path.
    Open,
    /// It is open after this handshake.
    After(Handshake),
    /// The sender opens it as soon as it has something to send.
    Opens,
    /// The other end opens it: see [`Sender::on_open`](super::Sender::on_open).
    Accepts,
}

impl Default for SenderConfig {
    /// A bulk flow that the receiver limits no more than TCP itself does.
    fn default() -> Self {
        Self {
            packets: None,
            mss_bytes: 1448,
            last_short_by_bytes: 0,
            receive_window_packets: MAX_WINDOW_PACKETS,
            first_receive_window_packets: None,
            initial_window_packets: None,
            slow_start_after_idle: true,
            ecn: false,
            start: Start::Open,
        }
    }
}
