//! What everything else is counted in: time on a run's clock and spans of it, rates, sizes and
//! probabilities with the text forms that files use, seeds of what is drawn; and, by the feature
//! `clock`, the clocks of the machine. Knows no other crate of ours.
//!
//! ```
//! use pathcast_base::{Span, Time};
//!
//! let rtt: Span = "30 ms".parse()?;
//! assert_eq!((Time::ZERO + rtt).as_nanos(), 30_000_000);
//! # Ok::<(), pathcast_base::UnitError>(())
//! ```

#![deny(clippy::disallowed_methods)] // the same run on every machine

#[cfg(feature = "clock")]
pub mod clock;
pub mod seed;
mod units;

pub use units::{Bandwidth, Probability, Size, Span, Time, UnitError, parse_in_units, split_unit};
