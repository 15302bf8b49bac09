//! A TCP connection's two ends, sans-IO: segments and the time go in, segments come out.
//!
//! Everything is counted in whole packets of one MSS; packet `n` carries bytes `n * MSS` and on.
//! [`Sender`] recovers from loss as Linux does: SACK (RFC 2018), RACK (RFC 8985) to find losses,
//! proportional rate reduction (RFC 6937) to get down to the new window, and a retransmission timer
//! with exponential backoff (RFC 6298). It measures the delivery rate, and paces if its controller
//! asks for it. [`Receiver`] acknowledges every second packet.
//!
//! Where Linux does more: no tail loss probe, no undo of spurious recoveries, no ECN.

mod pacer;
mod prr;
mod rate;
mod receiver;
mod rtt;
mod scoreboard;
mod segment;
mod sender;
mod sent;
#[cfg(test)]
mod testing;

pub use receiver::Receiver;
pub use rtt::RttEstimator;
pub use segment::{AckSegment, DataSegment, MAX_SACK_BLOCKS, SackBlock};
pub use sender::{Sender, SenderConfig};
