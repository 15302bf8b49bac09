//! How much a path carries next, from samples of what it carried: downloads of a player, seconds of a flow. Numbers in,
//! plain structs out: no I/O, no clock, no threads, no randomness.
//!
//! [`RateForecaster`] takes samples of one path and gives the distribution of the mean rate over a horizon. It knows no
//! senders: where a window law or a loss curve is known, `pathcast-forecast` has more to go by. [`Horizons`] does so for any
//! horizon, in some kilobytes, for tables of many paths. Two parts:
//!
//! - *experts*: the last sample, exponentially weighted means of several memories, a harmonic mean. They are pooled in
//!   logarithms by how far off each was lately (Vovk's aggregating forecaster with a loss that fades).
//! - *spread*: quantiles of the pool's own errors, in units of how much the rate varies at the moment (conformal
//!   prediction), with those of other paths until there are enough. A rate that stops is 0 with the probability that it
//!   lately did.

#![forbid(unsafe_code)]

mod experts;
mod forecaster;
mod horizons;
mod recent;
mod spread;

pub use experts::Mean;
pub use forecaster::{BadTime, Rate, RateForecaster};
pub use horizons::{HorizonRate, Horizons};
