//! Applies configurations of servers by client prefix, and reports what is in force.
//!
//! [`space`](crate::space()) lists what can be configured on this machine, and by which experiment that is known.

mod ip;
mod space;

pub use space::{Knob, Place, space};
