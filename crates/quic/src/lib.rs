//! QUIC (RFC 9000, 9001, 9002) without I/O: one end of one connection with one stream each way, or with a stream for
//! each request and its response, over noq-proto's state machines.
//!
//! An [`Endpoint`] takes datagrams and the time, and returns datagrams; the caller transports them. It also
//! reports what QUIC hides from an observer of packets: which bytes of the stream each packet held
//! ([`Endpoint::take_packets`]), identified by the packet's *seal*, and what the sender knew when
//! acknowledgments arrived ([`Endpoint::sender`]).
//!
//! A [`Pair`] is both ends in one process, in virtual time: connected before time 0, or apart until they are needed.
//!
//! Each datagram is a packet: there is no segmentation offload, and no MTU discovery.

mod conversation;
mod endpoint;
mod exchanges;
mod frames;
mod identity;
mod ledger;
mod pair;
mod ranges;
mod seal;
mod sessions;

use thiserror::Error;

pub use conversation::Conversation;
pub use endpoint::{Endpoint, Settings};
pub use identity::Identity;
pub use ledger::{Packet, Sender};
pub use pair::Pair;
pub use ranges::Frontier;
pub use seal::{SEAL_BYTES, seal_of};

/// A congestion controller of noq-proto.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// CUBIC (RFC 9438).
    Cubic,
    /// NewReno (RFC 9002, section 7).
    NewReno,
    /// BBR version 3 (draft-ietf-ccwg-bbr).
    Bbr3,
}

/// Why an endpoint cannot be made, or has ended.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum QuicError {
    /// The certificate or the settings are not as they must be.
    #[error("setting up QUIC: {0}")]
    Setup(String),
    /// The connection came to an end.
    #[error("the QUIC connection ended: {0}")]
    Lost(String),
}

#[cfg(test)]
mod tests;
