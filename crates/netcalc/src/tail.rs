//! Tails of curves: common periods, crossings, and curves made from pieces in their shortest form.

use std::collections::VecDeque;

use super::pieces::{Piece, is_sliver, slice};
use super::{
    Curve, MAX_RATIO, MAX_SEGMENTS, MAX_VALUE, MinPlusError, ROUNDING, Segment, Tail, same,
};

/// The period of a curve's tail; `None` if the tail is affine and any will do.
pub(super) fn period(curve: &Curve) -> Option<f64> {
    match curve.tail {
        Tail::Periodic { period_s, .. } => Some(period_s),
        Tail::Affine | Tail::Infinite { .. } => None,
    }
}

/// The least common multiple of two curves' periods; `None` if both tails are affine.
pub(super) fn common_period(f: &Curve, g: &Curve) -> Result<Option<f64>, MinPlusError> {
    let (Some(first), Some(second)) = (period(f), period(g)) else {
        return Ok(period(f).or(period(g)));
    };
    let ratio = first / second;
    // continued fraction: the ratio is p / q
    let (mut p, mut q) = ((1.0, ratio.floor()), (0.0, 1.0));
    let mut rest = ratio - ratio.floor();
    while (ratio - p.1 / q.1).abs() > 4.0 * ROUNDING * ratio {
        let inverse = 1.0 / rest;
        let whole = inverse.floor();
        rest = inverse - whole;
        p = (p.1, whole * p.1 + p.0);
        q = (q.1, whole * q.1 + q.0);
        if !(p.1 <= MAX_RATIO && q.1 <= MAX_RATIO) {
            return Err(MinPlusError::Incommensurable { first, second });
        }
    }
    if !(p.1 <= MAX_RATIO && p.1 >= 1.0) {
        return Err(MinPlusError::Incommensurable { first, second });
    }
    Ok(Some(first * q.1))
}

/// Least and largest of `f(t) - rate t` for all `t >= from`, 0 among them if `from` is 0. Finite part
/// only.
pub(super) fn around_rate(curve: &Curve, from: f64) -> (f64, f64) {
    let rate = match curve.tail {
        Tail::Infinite { .. } => 0.0,
        _ => curve.rate(),
    };
    let until = match curve.tail {
        Tail::Affine => curve.tail_from_s().max(from) * 2.0 + 1.0,
        Tail::Periodic { period_s, .. } => curve.tail_from_s().max(from) + period_s,
        Tail::Infinite { from_s } => from_s,
    };
    let (mut least, mut most) = if from > 0.0 {
        (f64::INFINITY, f64::NEG_INFINITY)
    } else {
        (0.0, 0.0)
    };
    // one period is held once: this cannot be too many
    let pieces = curve.pieces(until).unwrap_or_default();
    for piece in slice(&pieces, from, until) {
        for (t, value) in [(piece.from, piece.value), (piece.to, piece.end())] {
            least = f64::min(least, value - rate * t);
            most = f64::max(most, value - rate * t);
        }
    }
    (least, most)
}

/// A time from which on the curve of the smaller rate, `f`, is below the other, and both are in their
/// tails.
pub(super) fn crossing(f: &Curve, g: &Curve) -> f64 {
    let both = f.tail_from_s().max(g.tail_from_s());
    let (_, most) = around_rate(f, f.tail_from_s());
    let (least, _) = around_rate(g, g.tail_from_s());
    let cross = (most - least) / (g.rate() - f.rate());
    if cross.is_finite() {
        both.max(cross)
    } else {
        both
    }
}

/// Where an affine tail that begins at `from` has certainly begun.
pub(super) fn beyond(from: f64) -> f64 {
    if from == 0.0 { 1.0 } else { from * 2.0 }
}

/// The curve of `pieces`, which begin at 0, have no gaps and reach one period into a periodic tail,
/// into an affine tail, or to where it is infinite. Cleans them and finds the shortest form.
pub(super) fn assemble(pieces: &[Piece], tail: Tail) -> Result<Curve, MinPlusError> {
    let until = match tail {
        Tail::Affine => f64::INFINITY,
        Tail::Periodic {
            from_s, period_s, ..
        } => from_s + period_s,
        Tail::Infinite { from_s } => from_s,
    };
    let curve = match tail {
        Tail::Affine | Tail::Infinite { .. } => {
            let pieces = tidy(&slice(pieces, 0.0, until), 0.0, 0.0);
            of(&pieces, tail)
        }
        Tail::Periodic {
            from_s,
            period_s,
            increment,
        } => {
            let before = tidy(&slice(pieces, 0.0, from_s), 0.0, 0.0);
            let floor = before.last().map_or(0.0, Piece::end);
            let period = tidy(&slice(pieces, from_s, until), from_s, floor);
            if period.is_empty() || is_sliver(from_s, until) {
                return Err(MinPlusError::Tail(format!(
                    "the result has a period of {period_s} s from {from_s} s on, which is lost in rounding"
                )));
            }
            periodic(before, period, from_s, period_s, increment)
        }
    };
    check(curve)
}

fn of(pieces: &[Piece], tail: Tail) -> Curve {
    let segments = pieces.iter().map(|piece| Segment {
        start_s: piece.from,
        value: piece.value,
        slope: piece.slope,
    });
    Curve {
        segments: segments.collect(),
        tail,
    }
}

/// A result within what a curve may be.
fn check(curve: Curve) -> Result<Curve, MinPlusError> {
    if curve.segments.len() > MAX_SEGMENTS {
        return Err(MinPlusError::TooMany {
            what: "segments of the result",
            got: curve.segments.len() as f64,
            most: MAX_SEGMENTS as f64,
        });
    }
    for (i, segment) in curve.segments.iter().enumerate() {
        super::checked(
            || format!("segment {i} of the result: time"),
            segment.start_s,
            MAX_VALUE,
        )?;
        super::checked(
            || format!("segment {i} of the result: value"),
            segment.value,
            MAX_VALUE,
        )?;
        super::checked(
            || format!("segment {i} of the result: slope"),
            segment.slope,
            MAX_VALUE,
        )?;
    }
    Ok(curve)
}

/// Whether `next` continues `last`: without a step, with the same slope.
fn goes_on(last: &Piece, next: &Piece) -> bool {
    same(last.slope, next.slope)
        && (last.at(next.from) - next.value).abs() <= ROUNDING * next.value.abs()
        && (last.at(next.to) - next.end()).abs() <= ROUNDING * next.end().abs()
}

/// Drops slivers, joins pieces that continue each other, and removes rounding from what must not fall.
fn tidy(pieces: &[Piece], mut from: f64, floor: f64) -> Vec<Piece> {
    let mut found: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let mut piece = *piece;
        if piece.is_sliver() {
            continue;
        }
        piece.from = from;
        from = piece.to;
        match found.last_mut() {
            // ends are compared below, so they must be finite
            Some(last) if piece.to.is_finite() && goes_on(last, &piece) => last.to = piece.to,
            Some(last)
                if same(last.slope, piece.slope)
                    && (last.end() - piece.value).abs() <= ROUNDING * piece.value.abs() =>
            {
                last.to = piece.to;
            }
            Some(last) => {
                piece.value = piece.value.max(last.end());
                found.push(piece);
            }
            None => {
                piece.value = piece.value.max(floor);
                found.push(piece);
            }
        }
    }
    found
}

/// The shortest form: affine if it is, else the least period, which begins as early as it can.
fn periodic(
    mut before: Vec<Piece>,
    mut pieces: Vec<Piece>,
    mut from: f64,
    mut period: f64,
    mut increment: f64,
) -> Curve {
    let joins = |pieces: &[Piece], period: f64, increment: f64| {
        pieces
            .first()
            .zip(pieces.last())
            .is_some_and(|(first, last)| {
                let again = first.moved(period, increment);
                same(first.slope, last.slope)
                    && (last.end() - again.value).abs() <= ROUNDING * again.value.abs()
            })
    };
    if pieces.len() == 1 && joins(&pieces, period, increment) {
        before.append(&mut pieces);
        return of(&tidy(&before, 0.0, 0.0), Tail::Affine);
    }
    // a period that begins inside a segment: begin it behind
    if pieces.len() > 1 && joins(&pieces, period, increment) {
        let first = pieces.remove(0);
        if let Some(last) = pieces.last_mut() {
            last.to = first.to + period;
        }
        from = first.to;
        before.push(first);
        before = tidy(&before, 0.0, 0.0);
    }
    // the same several times over
    let count = pieces.len();
    let fold = (2..=count).rev().find(|&k| {
        count.is_multiple_of(k) && {
            let (k, m) = (k as f64, count / k);
            let (period, increment) = (period / k, increment / k);
            (m..count).all(|i| {
                let (a, b) = (pieces[i - m].moved(period, increment), pieces[i]);
                same(a.slope, b.slope)
                    && (a.from - b.from).abs() <= 4.0 * ROUNDING * b.from
                    && (a.value - b.value).abs() <= 4.0 * ROUNDING * b.value.abs()
            })
        }
    });
    if let Some(k) = fold {
        pieces.truncate(count / k);
        (period, increment) = (period / k as f64, increment / k as f64);
        if let Some(last) = pieces.last_mut() {
            last.to = from + period;
        }
    }
    let mut pieces: VecDeque<Piece> = pieces.into();
    begin_earlier(&mut before, &mut pieces, &mut from, increment);
    before.extend(pieces);
    let tail = Tail::Periodic {
        from_s: from,
        period_s: period,
        increment,
    };
    of(&before, tail)
}

/// Moves the beginning of a periodic tail back over all that is already periodic.
fn begin_earlier(
    before: &mut Vec<Piece>,
    pieces: &mut VecDeque<Piece>,
    from: &mut f64,
    increment: f64,
) {
    // where a line before it is as long as a whole period, only rounding makes them look alike
    let mut trimmed = 0;
    while let (Some(p), Some(q)) = (before.last().copied(), pieces.back().copied())
        && trimmed <= pieces.len()
    {
        let scale = q.end().abs().max(increment);
        if !same(p.slope, q.slope) || (p.end() + increment - q.end()).abs() > ROUNDING * scale {
            break;
        }
        let width = p.width().min(q.width());
        let is_whole =
            |piece: &Piece| is_sliver(piece.from, piece.to - width) || piece.width() <= width;
        let mut front = p;
        if is_whole(&p) {
            before.pop();
            trimmed = 0;
        } else {
            trimmed += 1;
            front = p.cut(p.to - width, p.to);
            if let Some(last) = before.last_mut() {
                last.to = front.from;
            }
        }
        if is_whole(&q) {
            pieces.pop_back();
        } else if let Some(last) = pieces.back_mut() {
            last.to -= width;
        }
        *from = front.from;
        match pieces.front_mut() {
            Some(next) if goes_on(&front, next) => {
                *next = Piece {
                    to: next.to,
                    ..front
                }
            }
            _ => pieces.push_front(front),
        }
    }
}
