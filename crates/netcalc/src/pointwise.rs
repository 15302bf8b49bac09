//! Operations at each time on its own.

use super::pieces::{Piece, Side, envelope, overlay, running_maximum, slice};
use super::tail::{assemble, beyond, common_period, crossing};
use super::{Curve, MAX_VALUE, MinPlusError, Segment, Tail, checked, positive, same};

impl Curve {
    /// The smaller of the two at each time.
    ///
    /// # Errors
    /// Both have the same rate and periods without a common multiple, or the result is too large.
    pub fn min(&self, other: &Self) -> Result<Self, MinPlusError> {
        self.pick(other, Side::Lower)
    }

    /// The larger of the two at each time.
    ///
    /// # Errors
    /// As [`Self::min`].
    pub fn max(&self, other: &Self) -> Result<Self, MinPlusError> {
        self.pick(other, Side::Upper)
    }

    fn pick(&self, other: &Self, side: Side) -> Result<Self, MinPlusError> {
        let (until, tail) = match (self.tail, other.tail) {
            (Tail::Infinite { from_s: a }, Tail::Infinite { from_s: b }) => {
                let from_s = if side == Side::Lower {
                    a.max(b)
                } else {
                    a.min(b)
                };
                (from_s, Tail::Infinite { from_s })
            }
            (Tail::Infinite { from_s }, _) | (_, Tail::Infinite { from_s })
                if side == Side::Upper =>
            {
                (from_s, Tail::Infinite { from_s })
            }
            (Tail::Infinite { from_s }, _) => other.tail_after(from_s),
            (_, Tail::Infinite { from_s }) => self.tail_after(from_s),
            _ if same(self.rate(), other.rate()) => {
                let from = self.tail_from_s().max(other.tail_from_s());
                tail_with(
                    from,
                    common_period(self, other)?,
                    self.rate().min(other.rate()),
                )
            }
            _ => {
                let (low, high) = if self.rate() < other.rate() {
                    (self, other)
                } else {
                    (other, self)
                };
                let winner = if side == Side::Lower { low } else { high };
                winner.tail_after(crossing(low, high))
            }
        };
        let pieces = envelope(&self.pieces(until)?, &other.pieces(until)?, side);
        assemble(&slice(&pieces, 0.0, until), tail)
    }

    /// This curve's tail as one that begins no earlier than `from`; and until when pieces are needed
    /// for it.
    pub(super) fn tail_after(&self, from: f64) -> (f64, Tail) {
        let from = from.max(self.tail_from_s());
        match self.tail {
            Tail::Affine => (beyond(from), Tail::Affine),
            Tail::Infinite { from_s } => (from_s, self.tail),
            Tail::Periodic {
                period_s,
                increment,
                ..
            } => (
                from + period_s,
                Tail::Periodic {
                    from_s: from,
                    period_s,
                    increment,
                },
            ),
        }
    }

    /// The sum. Of two flows with these arrival curves, an arrival curve of both together.
    ///
    /// # Errors
    /// Periods without a common multiple, or the result is too large.
    pub fn add(&self, other: &Self) -> Result<Self, MinPlusError> {
        let (until, tail) = match (self.tail, other.tail) {
            (Tail::Infinite { .. }, _) | (_, Tail::Infinite { .. }) => {
                let ends = [self, other].map(|curve| match curve.tail {
                    Tail::Infinite { from_s } => from_s,
                    _ => f64::INFINITY,
                });
                let from_s = ends[0].min(ends[1]);
                (from_s, Tail::Infinite { from_s })
            }
            _ => {
                let from = self.tail_from_s().max(other.tail_from_s());
                tail_with(
                    from,
                    common_period(self, other)?,
                    self.rate() + other.rate(),
                )
            }
        };
        let (a, b) = (self.pieces(until)?, other.pieces(until)?);
        let mut found = Vec::with_capacity(a.len() + b.len());
        overlay(&a, &b, |from, to, i, j| {
            if let (Some(i), Some(j)) = (i, j) {
                found.push(combine(&a[i], &b[j], from, to, 1.0));
            }
        });
        assemble(&found, tail)
    }

    /// What `other` leaves of this: the running maximum of `[f - g]+`. Of a link's service curve and
    /// the arrival curve of flows that go first, the service curve of what is left (Le Boudec & Thiran,
    /// theorem 6.2.1).
    ///
    /// # Errors
    /// Both are infinite from some time on, periods without a common multiple, or the result is too
    /// large.
    pub fn minus(&self, other: &Self) -> Result<Self, MinPlusError> {
        if let Tail::Infinite { from_s } = other.tail {
            if let Tail::Infinite { .. } = self.tail {
                return Err(MinPlusError::Tail(
                    "both curves are infinite, expected a finite one to take away".into(),
                ));
            }
            // nothing is left from then on
            let found = running_maximum(&self.less(other, from_s)?, 0.0);
            let most = found.last().map_or(0.0, Piece::end);
            return with_plateau(found, from_s, most);
        }
        if let Tail::Infinite { from_s } = self.tail {
            let found = running_maximum(&self.less(other, from_s)?, 0.0);
            return assemble(&found, self.tail);
        }
        let from = self.tail_from_s().max(other.tail_from_s());
        let (own, others) = (self.rate(), other.rate());
        if own < others && !same(own, others) {
            let until = beyond(crossing(self, other));
            let found = running_maximum(&self.less(other, until)?, 0.0);
            let most = found.last().map_or(0.0, Piece::end);
            return with_plateau(found, until, most);
        }
        let Some(period) = common_period(self, other)? else {
            // affine, rising or level: above all before where it rises to it
            let first = running_maximum(&self.less(other, beyond(from))?, 0.0);
            let most = first.last().map_or(0.0, Piece::end);
            let now = self.right_limit(beyond(from)) - other.right_limit(beyond(from));
            if same(own, others) {
                return with_plateau(first, beyond(from), most);
            }
            let until = beyond(beyond(from) + (most - now).max(0.0) / (own - others));
            let found = running_maximum(&self.less(other, until)?, 0.0);
            return assemble(&found, Tail::Affine);
        };
        let first = running_maximum(&self.less(other, from + period)?, 0.0);
        let most = first.last().map_or(0.0, Piece::end);
        if same(own, others) {
            return with_plateau(first, from + period, most);
        }
        let increment = period * (own - others);
        // periodic once the newest maximum is of the period before, not of the beginning
        let of_period = slice(&self.less(other, from + period)?, from, from + period);
        let best = of_period
            .iter()
            .flat_map(|piece| [piece.value, piece.end()])
            .fold(f64::NEG_INFINITY, f64::max);
        let periods = ((most - best) / increment).ceil() + 2.0;
        let from_s = from + periods * period;
        let found = running_maximum(&self.less(other, from_s + period)?, 0.0);
        let tail = Tail::Periodic {
            from_s,
            period_s: period,
            increment,
        };
        assemble(&found, tail)
    }

    /// `f - g` on `(0, until]`.
    pub(super) fn less(&self, other: &Self, until: f64) -> Result<Vec<Piece>, MinPlusError> {
        let (a, b) = (self.pieces(until)?, other.pieces(until)?);
        let mut found = Vec::with_capacity(a.len() + b.len());
        overlay(&a, &b, |from, to, i, j| {
            if let (Some(i), Some(j)) = (i, j) {
                found.push(combine(&a[i], &b[j], from, to, -1.0));
            }
        });
        Ok(found)
    }

    /// `f(t) + value` for `t > 0`: a burst more.
    ///
    /// # Errors
    /// `value` is not 0 to [`MAX_VALUE`].
    pub fn raised(&self, value: f64) -> Result<Self, MinPlusError> {
        checked(|| "value".into(), value, MAX_VALUE)?;
        self.mapped(self.tail, |segment| Segment {
            value: segment.value + value,
            ..segment
        })
    }

    /// `f(t - delay_s)`, 0 before: the convolution with [`Curve::delay`].
    ///
    /// # Errors
    /// `delay_s` is not 0 to [`MAX_VALUE`].
    pub fn later(&self, delay_s: f64) -> Result<Self, MinPlusError> {
        checked(|| "delay_s".into(), delay_s, MAX_VALUE)?;
        if delay_s == 0.0 {
            return Ok(self.clone());
        }
        let tail = match self.tail {
            Tail::Affine => Tail::Affine,
            Tail::Infinite { from_s } => Tail::Infinite {
                from_s: from_s + delay_s,
            },
            Tail::Periodic {
                from_s,
                period_s,
                increment,
            } => Tail::Periodic {
                from_s: from_s + delay_s,
                period_s,
                increment,
            },
        };
        let mut moved = self.mapped(tail, |segment| Segment {
            start_s: segment.start_s + delay_s,
            ..segment
        })?;
        moved.segments.insert(
            0,
            Segment {
                start_s: 0.0,
                value: 0.0,
                slope: 0.0,
            },
        );
        Self::from_segments(&moved.segments, moved.tail)
    }

    /// `factor f(t)`.
    ///
    /// # Errors
    /// `factor` is not above 0, or what comes out is out of range.
    pub fn scaled(&self, factor: f64) -> Result<Self, MinPlusError> {
        positive(|| "factor".into(), factor, MAX_VALUE)?;
        let tail = match self.tail {
            Tail::Periodic {
                from_s,
                period_s,
                increment,
            } => Tail::Periodic {
                from_s,
                period_s,
                increment: increment * factor,
            },
            tail => tail,
        };
        self.mapped(tail, |segment| Segment {
            start_s: segment.start_s,
            value: segment.value * factor,
            slope: segment.slope * factor,
        })
    }

    fn mapped(&self, tail: Tail, map: impl Fn(Segment) -> Segment) -> Result<Self, MinPlusError> {
        let segments: Vec<Segment> = self.segments.iter().copied().map(map).collect();
        for (i, segment) in segments.iter().enumerate() {
            checked(
                || format!("segment {i} of the result: time"),
                segment.start_s,
                MAX_VALUE,
            )?;
            checked(
                || format!("segment {i} of the result: value"),
                segment.value,
                MAX_VALUE,
            )?;
            checked(
                || format!("segment {i} of the result: slope"),
                segment.slope,
                MAX_VALUE,
            )?;
        }
        Ok(Self { segments, tail })
    }
}

/// `a + sign b` on a stretch where both are linear.
fn combine(a: &Piece, b: &Piece, from: f64, to: f64, sign: f64) -> Piece {
    Piece {
        from,
        to,
        value: a.at(from) + sign * b.at(from),
        slope: a.slope + sign * b.slope,
    }
}

/// A tail from `from` on of this rate, and until when pieces are needed for it.
pub(super) fn tail_with(from: f64, period: Option<f64>, rate: f64) -> (f64, Tail) {
    match period {
        None => (beyond(from), Tail::Affine),
        Some(period_s) => (
            from + period_s,
            Tail::Periodic {
                from_s: from,
                period_s,
                increment: period_s * rate,
            },
        ),
    }
}

/// What has reached its maximum and stays there.
fn with_plateau(mut pieces: Vec<Piece>, from: f64, value: f64) -> Result<Curve, MinPlusError> {
    pieces.push(Piece {
        from,
        to: beyond(from),
        value,
        slope: 0.0,
    });
    assemble(&pieces, Tail::Affine)
}
