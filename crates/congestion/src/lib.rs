//! Congestion controllers, one file each, behind one trait.
//!
//! A [`Controller`] turns acknowledgments and congestion events into a congestion window. It knows
//! neither sequence numbers nor retransmissions: the transport (crate `tcp`, or any other) finds
//! losses, tells the controller once for each round trip in which it found some, and decides how to
//! get from the old window down to the new one.

mod controller;
mod cubic;
mod hystart;
mod reno;
mod scheme;

pub use controller::{Ack, Congestion, Controller, RateSample, Signal};
pub use cubic::{Cubic, CubicConfig};
pub use hystart::HyStart;
pub use reno::Reno;
pub use scheme::{Scheme, SchemeError};

/// Window of a new connection, in packets (RFC 6928; Linux's TCP_INIT_CWND).
pub const INITIAL_WINDOW: f64 = 10.0;
