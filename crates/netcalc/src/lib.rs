//! Min-plus algebra on exact piecewise-linear curves: what service a system guarantees, and the delay
//! and the backlog that follow for any arrivals.
//!
//! | to do | call |
//! |---|---|
//! | make a curve | [`Curve::latency_rate`], [`Curve::token_bucket`], [`Curve::window_flow_control`], [`Curve::from_probes`], [`Curve::from_points`], ... |
//! | read it | [`Curve::at`], [`Curve::right_limit`], [`Curve::inverse`], [`Curve::rate`], [`Curve::points`] |
//! | combine curves | [`Curve::min`], [`Curve::max`], [`Curve::add`], [`Curve::minus`], [`Curve::convolve`], [`Curve::deconvolve`], [`Curve::closure`] |
//! | bounds from two curves | [`Curve::horizontal_deviation`] (delay), [`Curve::vertical_deviation`] (backlog) |
//! | bounds for a trace | [`Arrivals::delay_bounds`], [`Arrivals::backlog_bounds`], [`Arrivals::envelope`], [`Arrivals::smallest_burst`] |
//!
//! A curve is a function `f` of time, `[0, inf)` in seconds, in any unit of data that is used
//! throughout (bits, packets). It never falls, is left-continuous, and `f(0) = 0`: a burst is a jump
//! right after 0, so that a token bucket is `b + r t` for `t > 0` (Le Boudec & Thiran, *Network
//! Calculus*, 2001, chapters 1 and 3; the class F_0 there). It is made of finitely many linear segments
//! and a tail that is affine, periodic (`f(t + d) = f(t) + c`) or infinite; Bouillard & Thierry, *An
//! algorithmic toolbox for network calculus*, 2008, show that with rational numbers this class is
//! closed under the operations here. Where other numbers lead out of it, an error says so.
//!
//! Nothing is sampled: the segments of a result are computed from those of the operands, in `f64`.
//! Breakpoints closer than 1e-12 of their time are one ([`ROUNDING`]); values are right within a few
//! parts in 1e12 of the largest value that took part.

mod arrivals;
mod closure;
mod constructors;
mod convolve;
mod curve;
mod deviation;
mod pieces;
mod plain;
mod pointwise;
mod tail;
#[cfg(test)]
mod tests;
mod trace_bounds;

pub use arrivals::{Arrivals, MAX_EXACT_PACKETS};
pub use curve::{Curve, Segment, Tail};

use thiserror::Error;

/// Times nearer than this, relative to themselves, are one breakpoint.
pub const ROUNDING: f64 = 1e-12;
/// Most segments of a curve, and most packets of a trace.
pub const MAX_SEGMENTS: usize = 1 << 20;
/// Largest time, value and slope.
pub const MAX_VALUE: f64 = 1e30;
/// Largest numerator and denominator of the ratio of two periods.
pub const MAX_RATIO: f64 = 10_000.0;
/// Segments that an operation may go through before it gives up.
const MAX_WORK: usize = 1 << 22;

/// What cannot be computed, or made a curve of.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum MinPlusError {
    /// A number that is NaN, infinite, negative or beyond all use.
    #[error("{what} is {got}, expected {wanted}")]
    Number {
        /// Which.
        what: String,
        /// What was found.
        got: f64,
        /// What would do.
        wanted: String,
    },
    /// A column or a curve that falls where it must not.
    #[error("{what} {index} is {got}, expected at least {previous} as before it")]
    Falls {
        /// Which.
        what: &'static str,
        /// Where, from 0.
        index: usize,
        /// What was found.
        got: f64,
        /// What came before.
        previous: f64,
    },
    /// Nothing to make a curve of.
    #[error("{0}: expected at least one")]
    Empty(&'static str),
    /// Two columns that do not go together.
    #[error("{what}: {got} of them, expected {wanted} as there are {other}")]
    Length {
        /// Which column.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The other's length.
        wanted: usize,
        /// The other.
        other: &'static str,
    },
    /// A tail that does not fit its segments.
    #[error("tail: {0}")]
    Tail(String),
    /// More than can be held or gone through.
    #[error("{what}: {got:.3e}, expected at most {most:.3e}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many it would be.
        got: f64,
        /// The limit.
        most: f64,
    },
    /// Two periods without a common multiple that could be used.
    #[error(
        "periods of {first} and {second}: their ratio is none of integers up to {MAX_RATIO}, so \
         that the result has no period that could be used"
    )]
    Incommensurable {
        /// One.
        first: f64,
        /// The other.
        second: f64,
    },
    /// A closure that has not become periodic.
    #[error(
        "closure: not periodic up to {until_s} s and {segments} segments; the curve's cheapest windows \
         have no common period"
    )]
    NoPeriod {
        /// How far it was followed, seconds.
        until_s: f64,
        /// Segments by then.
        segments: usize,
    },
}

/// A number that must be finite, not negative and at most `most`.
fn checked(what: impl FnOnce() -> String, got: f64, most: f64) -> Result<f64, MinPlusError> {
    if got >= 0.0 && got <= most {
        return Ok(got);
    }
    Err(MinPlusError::Number {
        what: what(),
        got,
        wanted: format!("0 to {most:e}"),
    })
}

/// A number that must be finite, above 0 and at most `most`.
fn positive(what: impl FnOnce() -> String, got: f64, most: f64) -> Result<f64, MinPlusError> {
    if got > 0.0 && got <= most {
        return Ok(got);
    }
    Err(MinPlusError::Number {
        what: what(),
        got,
        wanted: format!("above 0, at most {most:e}"),
    })
}

/// Whether two numbers are equal within rounding.
fn same(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= ROUNDING * a.abs().max(b.abs())
}
