//! Curves from numbers that others wrote: checked, then in their shortest form.

use serde::Deserialize;

use super::pieces::{Piece, is_sliver};
use super::{
    Curve, MAX_SEGMENTS, MAX_VALUE, MinPlusError, ROUNDING, Segment, Tail, checked, positive, tail,
};

/// A curve as it stands in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plain {
    segments: Vec<Segment>,
    tail: Tail,
}

impl TryFrom<Plain> for Curve {
    type Error = MinPlusError;

    fn try_from(plain: Plain) -> Result<Self, MinPlusError> {
        Self::from_segments(&plain.segments, plain.tail)
    }
}

/// What falls by less than this, relative to the curve's largest value, is rounding.
const DIP: f64 = 1e-9;

impl Curve {
    /// The curve of these segments and this tail.
    ///
    /// # Errors
    /// The first segment does not begin at 0, starts do not rise, a value falls or is out of range
    /// ([`MAX_VALUE`]), there are more than [`MAX_SEGMENTS`], or the tail does not fit: a period that
    /// begins at no segment's start, is shorter than its segments, or falls from one to the next.
    pub fn from_segments(segments: &[Segment], tail: Tail) -> Result<Self, MinPlusError> {
        if segments.len() > MAX_SEGMENTS {
            return Err(MinPlusError::TooMany {
                what: "segments",
                got: segments.len() as f64,
                most: MAX_SEGMENTS as f64,
            });
        }
        let mut previous: Option<Segment> = None;
        for (i, segment) in segments.iter().enumerate() {
            checked(
                || format!("segment {i}: start_s"),
                segment.start_s,
                MAX_VALUE,
            )?;
            checked(|| format!("segment {i}: value"), segment.value, MAX_VALUE)?;
            checked(|| format!("segment {i}: slope"), segment.slope, MAX_VALUE)?;
            let wanted = previous.map_or(0.0, |last| last.start_s);
            let falls = |what, got, previous| MinPlusError::Falls {
                what,
                index: i,
                got,
                previous,
            };
            if i == 0 && segment.start_s != 0.0 {
                return Err(MinPlusError::Number {
                    what: "segment 0: start_s".into(),
                    got: segment.start_s,
                    wanted: "0".into(),
                });
            }
            if i > 0 && is_sliver(wanted, segment.start_s) {
                return Err(falls("start_s of segment", segment.start_s, wanted));
            }
            if let Some(last) = previous {
                let end = last.value + last.slope * (segment.start_s - last.start_s);
                if segment.value < end - DIP * end {
                    return Err(falls("value of segment", segment.value, end));
                }
            }
            previous = Some(*segment);
        }
        let until = end_of(segments, tail)?;
        if let (
            Tail::Periodic {
                from_s, increment, ..
            },
            Some(last),
        ) = (tail, previous)
        {
            let end = last.value + last.slope * (until - last.start_s);
            let first = segments.iter().find(|segment| segment.start_s >= from_s);
            let again = first.map_or(0.0, |first| first.value) + increment;
            if again < end - DIP * end {
                return Err(MinPlusError::Tail(format!(
                    "the period ends at {end} and the next begins at {again}, expected no fall"
                )));
            }
        }
        let ends = segments
            .iter()
            .skip(1)
            .map(|next| next.start_s)
            .chain([until]);
        let pieces: Vec<Piece> = segments
            .iter()
            .zip(ends)
            .map(|(segment, to)| Piece {
                from: segment.start_s,
                to,
                value: segment.value,
                slope: segment.slope,
            })
            .collect();
        tail::assemble(&pieces, tail)
    }
}

/// Where the last segment ends; the tail checked against the segments.
fn end_of(segments: &[Segment], tail: Tail) -> Result<f64, MinPlusError> {
    let last = segments.last().map(|last| last.start_s);
    match (tail, last) {
        (Tail::Infinite { from_s: 0.0 }, None) => Ok(0.0),
        (_, None) => Err(MinPlusError::Empty("segments")),
        (Tail::Affine, Some(last)) => Ok(tail::beyond(last)),
        (Tail::Infinite { from_s }, Some(last)) => {
            checked(|| "tail: from_s".into(), from_s, MAX_VALUE)?;
            if is_sliver(last, from_s) {
                return Err(MinPlusError::Tail(format!(
                    "from_s is {from_s}, expected more than the last segment's start, {last}"
                )));
            }
            Ok(from_s)
        }
        (
            Tail::Periodic {
                from_s,
                period_s,
                increment,
            },
            Some(last),
        ) => {
            checked(|| "tail: from_s".into(), from_s, MAX_VALUE)?;
            positive(|| "tail: period_s".into(), period_s, MAX_VALUE)?;
            checked(|| "tail: increment".into(), increment, MAX_VALUE)?;
            if !segments.iter().any(|segment| segment.start_s == from_s) {
                return Err(MinPlusError::Tail(format!(
                    "from_s is {from_s}, expected the start of a segment"
                )));
            }
            let until = from_s + period_s;
            if is_sliver(last, until) {
                return Err(MinPlusError::Tail(format!(
                    "the period ends at {until}, expected after the last segment's start, {last}"
                )));
            }
            if period_s <= ROUNDING * from_s {
                return Err(MinPlusError::Tail(format!(
                    "period_s is {period_s}, expected more than rounding of from_s, {from_s}"
                )));
            }
            Ok(until)
        }
    }
}
