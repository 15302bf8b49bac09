//! A curve: segments, a tail, and how to read them.

use serde::{Deserialize, Serialize};

use super::pieces::Piece;
use super::{MAX_SEGMENTS, MinPlusError, ROUNDING};

/// A linear function from `start_s` (not included) to the next segment's start (included).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// Where it begins, seconds.
    pub start_s: f64,
    /// Right limit of the curve there, units of data.
    pub value: f64,
    /// Units of data per second.
    pub slope: f64,
}

/// How a curve continues.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum Tail {
    /// The last segment continues without end.
    Affine,
    /// `f(t + period_s) = f(t) + increment` for all `t > from_s`.
    Periodic {
        /// Start of a segment, seconds.
        from_s: f64,
        /// Seconds.
        period_s: f64,
        /// Units of data.
        increment: f64,
    },
    /// Infinite for all `t > from_s`.
    Infinite {
        /// Seconds.
        from_s: f64,
    },
}

/// A wide-sense increasing, left-continuous function of time with `f(0) = 0`; see the
/// [module](super).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "super::plain::Plain")]
pub struct Curve {
    pub(super) segments: Vec<Segment>,
    pub(super) tail: Tail,
}

impl Curve {
    /// The segments, the first of which begins at 0; the tail's period is among them once. Empty if the
    /// curve is infinite from 0 on.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// How the curve continues after them.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// Where the tail begins, seconds.
    pub fn tail_from_s(&self) -> f64 {
        match self.tail {
            Tail::Affine => self.segments.last().map_or(0.0, |last| last.start_s),
            Tail::Periodic { from_s, .. } | Tail::Infinite { from_s } => from_s,
        }
    }

    /// The long-term rate, `lim f(t) / t`; infinite if the curve is.
    pub fn rate(&self) -> f64 {
        match self.tail {
            Tail::Affine => self.segments.last().map_or(0.0, |last| last.slope),
            Tail::Periodic {
                period_s,
                increment,
                ..
            } => increment / period_s,
            Tail::Infinite { .. } => f64::INFINITY,
        }
    }

    /// `f(t)`, at a jump the value before it; 0 for `t <= 0`. Times within [`ROUNDING`] of a breakpoint
    /// count as it.
    ///
    /// ```
    /// use pathcast_netcalc::Curve;
    /// let steps = Curve::window_flow_control(f64::INFINITY, 0.05, 0.1, 500e3)?;
    /// assert_eq!(steps.at(0.05), 0.0);
    /// assert_eq!(steps.right_limit(0.05), 500e3);
    /// assert_eq!(steps.at(1000.06), 10_001.0 * 500e3);
    /// # Ok::<(), pathcast_netcalc::MinPlusError>(())
    /// ```
    pub fn at(&self, t: f64) -> f64 {
        if t.is_nan() || t <= 0.0 {
            return if t.is_nan() { t } else { 0.0 };
        }
        let look = t * (1.0 - ROUNDING);
        if let Tail::Infinite { from_s } = self.tail
            && look > from_s
        {
            return f64::INFINITY;
        }
        if t.is_infinite() {
            return if self.rate() > 0.0 {
                f64::INFINITY
            } else {
                self.segments.last().map_or(0.0, |last| last.value)
            };
        }
        let (periods, shift, more) = self.fold(look);
        let (t, look) = (t - periods, look - periods);
        let i = self
            .segments
            .partition_point(|segment| segment.start_s < look);
        self.line(i.max(1) - 1, t, shift).min(more)
    }

    /// The right limit `f(t+)`, at a jump the value after it; at 0 the burst.
    pub fn right_limit(&self, t: f64) -> f64 {
        if t.is_nan() {
            return t;
        }
        let t = t.max(0.0);
        let look = t * (1.0 + ROUNDING);
        if let Tail::Infinite { from_s } = self.tail
            && look >= from_s
        {
            return f64::INFINITY;
        }
        if t.is_infinite() {
            return self.at(t);
        }
        let (periods, shift, _) = self.fold(look);
        let (t, look) = (t - periods, look - periods);
        let i = self
            .segments
            .partition_point(|segment| segment.start_s <= look);
        let i = i.max(1) - 1;
        self.line(i, t.max(self.segments[i].start_s), shift)
    }

    /// Whole periods before `t`, seconds; their data; what the period that holds `t` may reach at most.
    fn fold(&self, t: f64) -> (f64, f64, f64) {
        let Tail::Periodic {
            from_s,
            period_s,
            increment,
        } = self.tail
        else {
            return (0.0, 0.0, f64::INFINITY);
        };
        if t <= from_s + period_s {
            return (0.0, 0.0, f64::INFINITY);
        }
        let mut k = ((t - from_s) / period_s).floor();
        // (from, from + period] is one period; rounding must not lead out of it
        if t - k * period_s <= from_s {
            k -= 1.0;
        }
        let i = self
            .segments
            .partition_point(|segment| segment.start_s < from_s);
        let next = self.segments[i].value + (k + 1.0) * increment;
        (k * period_s, k * increment, next)
    }

    /// Value of segment `i` at `t`, at most where the next one begins.
    fn line(&self, i: usize, t: f64, shift: f64) -> f64 {
        let segment = self.segments[i];
        let value = if segment.slope == 0.0 {
            segment.value
        } else {
            (t - segment.start_s)
                .max(0.0)
                .mul_add(segment.slope, segment.value)
        };
        let next = self
            .segments
            .get(i + 1)
            .map_or(f64::INFINITY, |next| next.value);
        value.min(next) + shift
    }

    /// The finite part on `(0, until]` as pieces.
    pub(super) fn pieces(&self, until: f64) -> Result<Vec<Piece>, MinPlusError> {
        let mut found = Vec::new();
        let mut push = |segment: &Segment, to: f64, time: f64, value: f64| {
            let piece = Piece {
                from: segment.start_s + time,
                to: (to + time).min(until),
                value: segment.value + value,
                slope: segment.slope,
            };
            if piece.from < until && !piece.is_sliver() {
                found.push(piece);
            }
        };
        let ends = |segments: &[Segment], last: f64| -> Vec<(Segment, f64)> {
            let to = segments.iter().skip(1).map(|next| next.start_s);
            segments.iter().copied().zip(to.chain([last])).collect()
        };
        match self.tail {
            Tail::Affine => {
                for (segment, to) in ends(&self.segments, f64::INFINITY) {
                    push(&segment, to, 0.0, 0.0);
                }
            }
            Tail::Infinite { from_s } => {
                for (segment, to) in ends(&self.segments, from_s) {
                    push(&segment, to, 0.0, 0.0);
                }
            }
            Tail::Periodic {
                from_s,
                period_s,
                increment,
            } => {
                let all = ends(&self.segments, from_s + period_s);
                let first = all.partition_point(|(segment, _)| segment.start_s < from_s);
                let periods = ((until - from_s) / period_s).ceil().max(0.0);
                let many = periods * (all.len() - first) as f64;
                if many > MAX_SEGMENTS as f64 {
                    return Err(MinPlusError::TooMany {
                        what: "segments of a periodic curve until the operation's end",
                        got: many,
                        most: MAX_SEGMENTS as f64,
                    });
                }
                for (segment, to) in &all[..first] {
                    push(segment, *to, 0.0, 0.0);
                }
                let mut k = 0.0;
                while k < periods {
                    for (segment, to) in &all[first..] {
                        push(segment, *to, k * period_s, k * increment);
                    }
                    k += 1.0;
                }
            }
        }
        Ok(found)
    }

    /// The curve as points `(time_s, value)` to draw lines between, up to `until_s`; a jump is two
    /// points.
    ///
    /// # Errors
    /// Too many periods until then.
    pub fn points(&self, until_s: f64) -> Result<Vec<(f64, f64)>, MinPlusError> {
        super::checked(|| "until_s".into(), until_s, super::MAX_VALUE)?;
        let mut found = vec![(0.0, 0.0)];
        for piece in self.pieces(until_s)? {
            if found.last() != Some(&(piece.from, piece.value)) {
                found.push((piece.from, piece.value));
            }
            found.push((piece.to, piece.end()));
        }
        Ok(found)
    }

    /// Whether it is convex on `[0, inf)`, a convex curve may become infinite; so is each latency-rate
    /// curve.
    pub fn is_convex(&self) -> bool {
        let pieces = self.unlike_periodic();
        pieces.is_some_and(|pieces| {
            pieces.first().is_none_or(|first| first.value == 0.0)
                && super::pieces::runs(&pieces, super::pieces::Side::Lower).len() <= 1
        })
    }

    /// Whether it is concave for `t > 0`, a jump right after 0 allowed; so is each token bucket.
    pub fn is_concave(&self) -> bool {
        let pieces = self.unlike_periodic();
        pieces.is_some_and(|pieces| {
            (!matches!(self.tail, Tail::Infinite { .. }) || self.segments.is_empty())
                && super::pieces::runs(&pieces, super::pieces::Side::Upper).len() <= 1
        })
    }

    /// All segments as pieces, unless the tail is periodic.
    fn unlike_periodic(&self) -> Option<Vec<Piece>> {
        match self.tail {
            Tail::Periodic { .. } => None,
            Tail::Affine | Tail::Infinite { .. } => self.pieces(f64::MAX).ok(),
        }
    }

    /// Whether the curve is nowhere above another, within rounding (1e-9 of time and value).
    ///
    /// # Errors
    /// Their tails cannot be compared: periods without common multiple.
    pub fn is_at_most(&self, other: &Self) -> Result<bool, MinPlusError> {
        let tolerance = 1e-9;
        if let (_, Tail::Infinite { from_s }) = (self.tail, other.tail) {
            if let Tail::Infinite { from_s: own } = self.tail
                && own < from_s - tolerance * from_s
            {
                return Ok(false);
            }
            let (a, b) = (self.pieces(from_s)?, other.pieces(from_s)?);
            return Ok(super::pieces::below(&a, &b, tolerance));
        }
        if matches!(self.tail, Tail::Infinite { .. }) {
            return Ok(false);
        }
        let (own, others) = (self.rate(), other.rate());
        if own > others + tolerance * others {
            return Ok(false);
        }
        let until = if super::same(own, others) {
            let period = super::tail::common_period(self, other)?.unwrap_or(0.0);
            self.tail_from_s().max(other.tail_from_s()) + 2.0 * period
        } else {
            super::tail::crossing(self, other)
        };
        // an affine tail needs some of it to be seen
        let until = if until == 0.0 { 1.0 } else { until * 2.0 };
        let (a, b) = (self.pieces(until)?, other.pieces(until)?);
        Ok(super::pieces::below(&a, &b, tolerance))
    }

    /// Whether two curves are equal within rounding (1e-9 of time and value).
    ///
    /// # Errors
    /// As [`Self::is_at_most`].
    pub fn is_same_as(&self, other: &Self) -> Result<bool, MinPlusError> {
        Ok(self.is_at_most(other)? && other.is_at_most(self)?)
    }
}
