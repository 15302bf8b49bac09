//! A TCP connection's two ends, sans-IO: segments and the time go in, segments come out.
//!
//! Everything is counted in whole packets of one MSS; packet `n` carries bytes `n * MSS` and on, and
//! only the last may be shorter. [`Sender`] recovers from loss as Linux does: SACK (RFC 2018) and
//! RACK-TLP (RFC 8985) to find losses, proportional rate reduction (RFC 6937) to get down to the new
//! window, undo of recoveries that were needless, and a retransmission timer with exponential backoff
//! (RFC 6298). It measures the delivery rate, paces if its controller asks for it, slows down after
//! idle times and reacts to ECN. [`Receiver`] delays acknowledgments as Linux does, reports duplicates
//! and advertises its window.
//!
//! A controller may ask for the repair of another transport, uTP: `sender/utp.rs`.
//!
//! Feature by feature against Linux: `docs/explanation/tcp.md`.

#![deny(clippy::disallowed_methods)] // the same run on every machine

mod handshake;
mod heard;
mod offload;
mod pacer;
mod prr;
mod rack;
mod rate;
mod receive_window;
mod receiver;
mod rtt;
mod scoreboard;
mod segment;
mod sender;
mod sent;
mod tail_probe;
#[cfg(test)]
mod testing;
mod undo;
mod window_use;

pub use handshake::Handshake;
pub use receive_window::GrowingBuffer;
pub use receiver::{Receiver, ReceiverConfig};
pub use rtt::RttEstimator;
pub use segment::{AckSegment, DataSegment, Ecn, MAX_SACK_BLOCKS, SackBlock};
pub use sender::{MAX_WINDOW_PACKETS, Sender, SenderConfig, Start};
