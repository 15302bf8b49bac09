//! A network path, described once (a TOML file) and run anywhere.
//!
//! [`Path`] is the description; [`Path::channels`] makes one [`Channel`] for each direction out of
//! it. A channel is pure: it takes the time and packets, and hands packets back when they are due.
//! It owns no clock, so that the simulator (virtual time) and the emulator (real time) run the very
//! same code.
//!
//! ```
//! use pathcast_path::{Path, Time};
//!
//! let path = Path::parse("rate = '12 Mbit/s'\ndelay = '30 ms'\nqueue = '1 BDP'\n", "example.toml")?;
//! let (mut forward, _reverse) = path.channels::<u64, u64>(1);
//! forward.enqueue(Time::ZERO, 1500, 7).unwrap();
//! let due = forward.next_event().unwrap();
//! assert_eq!(due.as_nanos(), 31_000_000); // 1 ms on the link, 30 ms on the wire
//! assert_eq!(forward.dequeue(due), Some((due, 7)));
//! # Ok::<(), pathcast_path::PathError>(())
//! ```

#![deny(clippy::disallowed_methods)] // the same run on every machine

mod aggregation;
mod channel;
pub mod delay;
mod fast;
mod file;
pub mod foreign;
mod heading;
pub mod link;
pub mod loss;
mod packet;
mod path;
mod policer;
pub mod queue;
pub mod reader;
mod staged;
mod writer;

pub use pathcast_base::{Bandwidth, Probability, Size, Span, Time, UnitError, seed};

pub use aggregation::{AggregationSpec, Aggregator};
pub use channel::Channel;
pub use file::Defaults;
pub use heading::{End, Heading};
pub use packet::{Arrival, Counters, DropReason, Dropped, Drops, PacketInfo, Queued};
pub use path::{Change, Direction, Path};
pub use policer::{Policer, PolicerSpec};
pub use queue::QueueLimit;
pub use reader::{Loader, PathError};
