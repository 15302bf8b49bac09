//! Congestion controllers, one file each, behind one trait.
//!
//! A [`Controller`] turns acknowledgments and congestion events into a congestion window and, for
//! some, a pacing rate. It knows neither sequence numbers nor retransmissions: the transport (crate
//! `tcp`, or any other) finds losses, reports them to the controller once for each round trip in which it
//! found some, and decides how to get from the old window down to the new one, unless the controller
//! manages recovery itself.
//!
//! [`Scheme`] names all controllers. To add one, write a file with its `KINDS`, and a line in `controllers!`.
//! A program that embeds this crate adds its own by [`Scheme::register`].

#![deny(clippy::disallowed_methods)] // the same run on every machine

mod controller;
mod hystart;
mod hystart_plus_plus;
mod policer;
mod queueing;
mod random;
mod scheme;
mod window_filter;

#[cfg(test)]
mod bottleneck;

/// Declares the modules of controllers, whose `KINDS` are the registry of schemes.
macro_rules! controllers {
    ($($module:ident)*) => {
        $(mod $module;)*
        const KINDS: &[&[scheme::Kind]] = &[$($module::KINDS),*];
    };
}

// in the order in which errors list their schemes
controllers! {
    cubic
    reno
    bbr
    bbr3
    vegas
    scalable
    copa
    vivace
    ledbat
    utp
    fixed
}

pub use bbr::Bbr;
pub use bbr3::Bbr3;
pub use controller::{
    Ack, Belief, Congestion, Controller, LossState, Mode, RateSample, Repair, Signal,
};
pub use copa::Copa;
pub use cubic::{Cubic, CubicConfig, SlowStartExit};
pub use fixed::FixedWindow;
pub use hystart::HyStart;
pub use hystart_plus_plus::HyStartPlusPlus;
pub use ledbat::{Ledbat, LedbatConfig};
pub use reno::Reno;
pub use scalable::Scalable;
pub use scheme::{Factory, NameTaken, Scheme, SchemeError};
pub use utp::Utp;
pub use vegas::Vegas;
pub use vivace::{Vivace, utility};

/// Window of a new connection, in packets (RFC 6928; Linux's TCP_INIT_CWND).
pub const INITIAL_WINDOW: f64 = 10.0;
