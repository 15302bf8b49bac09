//! Linux's traffic control (tc(8)): netem for delay and loss, tbf for the rate, queues of their own.
//!
//! netem stands before the queue, so that losses there take no place in it.

mod qdisc;
mod quantity;
mod read;
mod write;

pub use read::{CommandLines, read};
pub use write::write;
