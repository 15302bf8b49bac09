//! Linux's traffic control (tc(8)): netem for delay and loss, tbf for the rate, queues of their own.
//!
//! netem comes before the queue, so packets that it loses occupy no place in the queue.

mod qdisc;
mod quantity;
mod read;
mod write;

pub use read::{CommandLines, read};
pub use write::write;
