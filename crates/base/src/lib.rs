//! Quantities that all other crates use: time on a run's clock, spans, rates, sizes and probabilities, with
//! the text forms that files use, and seeds of random elements. The feature `clock` adds the machine's
//! clocks. This crate depends on no other crate of the workspace.
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
