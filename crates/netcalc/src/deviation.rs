//! Distances between curves: backlog and delay.

use super::pieces::Piece;
use super::tail::{assemble, beyond, common_period, crossing};
use super::{Curve, MinPlusError, Tail, same};

impl Curve {
    /// `sup over t of f(t) - g(t)`, at least 0: the backlog bound of arrivals below `f` at a server of
    /// service curve `g` (Le Boudec & Thiran, theorem 1.4.1). Infinite if `f` is faster in the long
    /// run.
    ///
    /// # Errors
    /// The same rates and periods without a common multiple, or too many segments.
    pub fn vertical_deviation(&self, other: &Self) -> Result<f64, MinPlusError> {
        let until = match (self.tail, other.tail) {
            (Tail::Infinite { from_s: own }, Tail::Infinite { from_s }) => {
                if own < from_s && !same(own, from_s) {
                    return Ok(f64::INFINITY);
                }
                from_s
            }
            (Tail::Infinite { .. }, _) => return Ok(f64::INFINITY),
            (_, Tail::Infinite { from_s }) => from_s,
            _ if same(self.rate(), other.rate()) => {
                let both = self.tail_from_s().max(other.tail_from_s());
                beyond(both) + common_period(self, other)?.unwrap_or(0.0)
            }
            _ if self.rate() > other.rate() => return Ok(f64::INFINITY),
            _ => beyond(crossing(self, other)),
        };
        let differences = self.less(other, until)?;
        let ends = differences
            .iter()
            .flat_map(|piece| [piece.value, piece.end()]);
        Ok(ends.fold(0.0, f64::max))
    }

    /// `sup over t of inf { d >= 0: f(t) <= g(t + d) }`: the delay bound, in seconds, of arrivals below
    /// `f` at a server of service curve `g` that serves in order (Le Boudec & Thiran, theorem 1.4.2).
    /// Infinite if `f` is faster in the long run, or outgrows `g`.
    ///
    /// It is the vertical deviation of the inverses.
    ///
    /// # Errors
    /// As [`Self::vertical_deviation`].
    ///
    /// ```
    /// use pathcast_netcalc::Curve;
    /// let arrivals = Curve::token_bucket(2e6, 100e3)?;
    /// let service = Curve::latency_rate(10e6, 0.05)?;
    /// assert_eq!(arrivals.horizontal_deviation(&service)?, 0.05 + 100e3 / 10e6);
    /// assert!((arrivals.vertical_deviation(&service)? - (100e3 + 2e6 * 0.05)).abs() < 1e-6);
    /// # Ok::<(), pathcast_netcalc::MinPlusError>(())
    /// ```
    pub fn horizontal_deviation(&self, other: &Self) -> Result<f64, MinPlusError> {
        other.inverse()?.vertical_deviation(&self.inverse()?)
    }

    /// The lower pseudo-inverse `inf { t: f(t) >= y }` as a curve, with seconds for data and data for
    /// seconds. Plateaus become jumps and jumps plateaus; the inverse of the inverse is the curve
    /// itself. Infinite above what `f` ever reaches.
    ///
    /// # Errors
    /// A slope so small or so large that its inverse is out of range.
    pub fn inverse(&self) -> Result<Self, MinPlusError> {
        // of a period, the second: what comes before the first need not fit to it
        let until = match self.tail {
            Tail::Affine => f64::INFINITY,
            Tail::Infinite { from_s } => from_s,
            Tail::Periodic {
                from_s, period_s, ..
            } => from_s + 2.0 * period_s,
        };
        let mut found: Vec<Piece> = Vec::with_capacity(self.segments.len() + 2);
        let mut level = 0.0;
        let jump = |level: f64, to: f64, t: f64| Piece {
            from: level,
            to,
            value: t,
            slope: 0.0,
        };
        for piece in self.pieces(until)? {
            if piece.value > level {
                found.push(jump(level, piece.value, piece.from));
                level = piece.value;
            }
            if piece.slope > 0.0 {
                let to = if piece.to.is_finite() {
                    piece.end()
                } else {
                    beyond(piece.value)
                };
                found.push(Piece {
                    from: level,
                    to,
                    value: piece.from,
                    slope: 1.0 / piece.slope,
                });
                level = to;
            }
        }
        match self.tail {
            Tail::Affine if self.rate() > 0.0 => assemble(&found, Tail::Affine),
            Tail::Affine => assemble(&found, Tail::Infinite { from_s: level }),
            Tail::Infinite { from_s } => {
                found.push(jump(level, beyond(level), from_s));
                assemble(&found, Tail::Affine)
            }
            Tail::Periodic {
                period_s,
                increment,
                ..
            } => assemble(
                &found,
                Tail::Periodic {
                    from_s: level - increment,
                    period_s: increment,
                    increment: period_s,
                },
            ),
        }
    }
}
