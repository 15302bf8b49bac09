//! The sub-additive closure.

use super::convolve::convolve_into;
use super::pieces::{Envelope, Piece, Side, Work, alike, envelope, lower_to_what_follows, slice};
use super::tail::assemble;
use super::{Curve, MAX_SEGMENTS, MinPlusError, ROUNDING, Tail};

/// Pieces are the same if they differ by less, relative to the largest.
const TOLERANCE: f64 = 1e-11;
/// Squarings until nothing changes: more parts than 2 to this there cannot be.
const MOST_SQUARINGS: usize = 64;
/// Stretches of time that are followed in search of a period.
const MOST_STRETCHES: usize = 4096;

impl Curve {
    /// `min over n of f (x) ... (x) f`, n times: the largest sub-additive curve below `f` (Le Boudec &
    /// Thiran, section 3.1).
    ///
    /// Of two parts beyond `T + d`, tail's beginning and period, one can give whole periods to the
    /// other; so the closure is that of `f` up to there, convolved with `f`. The former's cheapest part
    /// `t0`, where `f(t) / t` is least, becomes its period: once it repeats over a stretch as long as
    /// the longest part that it repeats without end.
    ///
    /// # Errors
    /// No period is found (cheapest parts without a common multiple), or too many segments.
    ///
    /// ```
    /// use pathcast_netcalc::Curve;
    /// let a_window_each_round_trip = Curve::delay(0.1)?.raised(500e3)?;
    /// let steps = Curve::steps(500e3, 5e6, true)?;
    /// assert!(a_window_each_round_trip.closure()?.is_same_as(&steps)?);
    /// # Ok::<(), pathcast_netcalc::MinPlusError>(())
    /// ```
    pub fn closure(&self) -> Result<Self, MinPlusError> {
        if self.is_concave() {
            return Ok(self.clone());
        }
        let Some(first) = self.segments.first().copied() else {
            return Ok(self.clone());
        };
        if first.value > 0.0 {
            return self.of_parts();
        }
        // without a burst many short parts cost what the first slope says
        let line = Self::constant_rate(first.slope)?;
        let (cheapest, _) = self.cheapest()?;
        if cheapest >= first.slope * (1.0 - ROUNDING) {
            return Ok(line);
        }
        self.min(&line)?.of_parts()
    }

    /// Longest part that is needed more than once.
    fn longest_part(&self) -> f64 {
        let from = self.tail_from_s();
        match self.tail {
            Tail::Infinite { .. } => from,
            Tail::Affine => super::tail::beyond(from),
            Tail::Periodic { period_s, .. } => from + period_s,
        }
    }

    /// Least `f(t) / t` up to the longest part or in the long run, and the first time of it.
    fn cheapest(&self) -> Result<(f64, f64), MinPlusError> {
        let pieces = self.pieces(self.longest_part())?;
        let (rate, t) = cheapest(&pieces);
        Ok((rate.min(self.rate()), t))
    }

    fn of_parts(&self) -> Result<Self, MinPlusError> {
        if self.is_concave() {
            return Ok(self.clone());
        }
        let longest = self.longest_part();
        let parts = self.pieces(longest)?;
        let closed = close(&parts, longest)?;
        match self.tail {
            Tail::Infinite { .. } => Ok(closed),
            Tail::Affine | Tail::Periodic { .. } => closed.convolve(self),
        }
    }
}

fn cheapest(pieces: &[Piece]) -> (f64, f64) {
    let mut found = (f64::INFINITY, 0.0);
    for piece in pieces {
        let rate = piece.end() / piece.to;
        if rate < found.0 * (1.0 - ROUNDING) {
            found = (rate, piece.to);
        }
    }
    found
}

/// Closure of a curve that is infinite after `longest`.
fn close(parts: &[Piece], longest: f64) -> Result<Curve, MinPlusError> {
    let (rate, period_s) = cheapest(parts);
    let increment = rate * period_s;
    let mut until = 2.0 * longest;
    let mut now = parts.to_vec();
    let mut work = Work::new();
    for _ in 0..MOST_SQUARINGS {
        let next = squared(&now, until, &mut work)?;
        let is_fixed =
            now.last().is_some_and(|last| last.to >= until) && alike(&now, &next, TOLERANCE);
        now = next;
        if is_fixed {
            break;
        }
    }
    for _ in 0..MOST_STRETCHES {
        let from_s = until - period_s - longest;
        let earlier = slice(&now, from_s, until - period_s);
        let later: Vec<Piece> = slice(&now, from_s + period_s, until)
            .iter()
            .map(|piece| piece.moved(-period_s, -increment))
            .collect();
        if alike(&earlier, &later, TOLERANCE) {
            let tail = Tail::Periodic {
                from_s,
                period_s,
                increment,
            };
            return assemble(&now, tail);
        }
        if now.len() > MAX_SEGMENTS {
            break;
        }
        // each sum of parts up to here splits into two that are known
        until = 2.0 * until - longest;
        now = squared(&now, until, &mut work)?;
    }
    Err(MinPlusError::NoPeriod {
        until_s: until,
        segments: now.len(),
    })
}

/// `f (x) f` and `f`, on `(0, until]`.
fn squared(pieces: &[Piece], until: f64, work: &mut Work) -> Result<Vec<Piece>, MinPlusError> {
    let mut both = Envelope::new(Side::Lower);
    convolve_into(&mut both, pieces, pieces, until, work)?;
    let mut found = envelope(pieces, &both.finish(), Side::Lower);
    found = slice(&found, 0.0, until);
    lower_to_what_follows(&mut found);
    Ok(found)
}
