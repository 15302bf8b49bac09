//! Queues before the link, one file each.

mod droptail;

pub use droptail::DropTail;
