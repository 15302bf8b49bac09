//! Lists of linear pieces on a finite stretch of time: what all operations work on.

use super::{MAX_WORK, MinPlusError, ROUNDING};

/// A linear function on `(from, to]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Piece {
    pub from: f64,
    pub to: f64,
    /// Right limit at `from`.
    pub value: f64,
    pub slope: f64,
}

impl Piece {
    pub fn at(&self, t: f64) -> f64 {
        if self.slope == 0.0 {
            self.value
        } else {
            self.slope.mul_add(t - self.from, self.value)
        }
    }

    pub fn end(&self) -> f64 {
        self.at(self.to)
    }

    pub fn width(&self) -> f64 {
        self.to - self.from
    }

    /// Whether so short that it is rounding.
    pub fn is_sliver(&self) -> bool {
        is_sliver(self.from, self.to)
    }

    /// The part on `(from, to]`.
    pub fn cut(&self, from: f64, to: f64) -> Self {
        Self {
            from,
            to,
            value: self.at(from),
            slope: self.slope,
        }
    }

    pub fn moved(&self, time: f64, value: f64) -> Self {
        Self {
            from: self.from + time,
            to: self.to + time,
            value: self.value + value,
            slope: self.slope,
        }
    }
}

pub(super) fn is_sliver(from: f64, to: f64) -> bool {
    to - from <= ROUNDING * to && to < f64::INFINITY
}

/// The parts of `pieces` on `(from, to]`.
pub(super) fn slice(pieces: &[Piece], from: f64, to: f64) -> Vec<Piece> {
    let first = pieces.partition_point(|piece| piece.to <= from);
    pieces[first..]
        .iter()
        .take_while(|piece| piece.from < to)
        .map(|piece| {
            // a piece that is whole stays as it is, to the last bit
            if piece.from >= from && piece.to <= to {
                *piece
            } else {
                piece.cut(piece.from.max(from), piece.to.min(to))
            }
        })
        .filter(|piece| !piece.is_sliver())
        .collect()
}

/// Goes through two sorted lists together: calls `visit(from, to, index in a, index in b)` for each
/// stretch on which both are linear or absent. Stretches that are rounding belong to the next one.
pub(super) fn overlay(
    a: &[Piece],
    b: &[Piece],
    mut visit: impl FnMut(f64, f64, Option<usize>, Option<usize>),
) {
    let (mut i, mut j) = (0, 0);
    let start = |list: &[Piece], k: usize| list.get(k).map_or(f64::INFINITY, |piece| piece.from);
    let mut from = start(a, 0).min(start(b, 0));
    while i < a.len() || j < b.len() {
        let next = |list: &[Piece], k: usize| {
            list.get(k).map_or(f64::INFINITY, |piece| {
                if is_sliver(from, piece.from) || piece.from <= from {
                    piece.to
                } else {
                    piece.from
                }
            })
        };
        let to = next(a, i).min(next(b, j));
        if !is_sliver(from, to) {
            let here = |list: &[Piece], k: usize| {
                list.get(k)
                    .filter(|piece| piece.from <= from || is_sliver(from, piece.from))
                    .map(|_| k)
            };
            visit(from, to, here(a, i), here(b, j));
            from = to;
        }
        // pieces that end here, or would leave a sliver
        while a
            .get(i)
            .is_some_and(|piece| piece.to <= to || is_sliver(to, piece.to))
        {
            i += 1;
        }
        while b
            .get(j)
            .is_some_and(|piece| piece.to <= to || is_sliver(to, piece.to))
        {
            j += 1;
        }
    }
}

/// Which envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Lower,
    Upper,
}

/// The pointwise minimum or maximum; where only one is there, that one.
pub(super) fn envelope(a: &[Piece], b: &[Piece], side: Side) -> Vec<Piece> {
    if a.is_empty() || b.is_empty() {
        return if a.is_empty() { b.to_vec() } else { a.to_vec() };
    }
    let mut found: Vec<Piece> = Vec::with_capacity(a.len() + b.len());
    // where the last piece came from: it continues rather than being cut at each breakpoint of the other
    let mut source = None;
    let mut push = |from: f64, to: f64, which: (bool, usize)| {
        let piece = if which.0 { &a[which.1] } else { &b[which.1] };
        match found.last_mut() {
            Some(last) if source == Some(which) && last.to == from => last.to = to,
            _ => found.push(piece.cut(from, to)),
        }
        source = Some(which);
    };
    overlay(a, b, |from, to, i, j| match (i, j) {
        (Some(i), None) => push(from, to, (true, i)),
        (None, Some(j)) => push(from, to, (false, j)),
        (None, None) => {}
        (Some(i), Some(j)) => {
            let sign = if side == Side::Lower { 1.0 } else { -1.0 };
            let above = |t: f64| {
                let (a, b) = (a[i].at(t), b[j].at(t));
                if (a - b).abs() <= ROUNDING * a.abs().max(b.abs()) {
                    0.0
                } else {
                    sign * (a - b)
                }
            };
            let (first, last) = (above(from), above(to));
            if first <= 0.0 && last <= 0.0 {
                push(from, to, (true, i));
            } else if first >= 0.0 && last >= 0.0 {
                push(from, to, (false, j));
            } else {
                let cross = from + (to - from) * (first / (first - last));
                let order = if first < 0.0 {
                    [(true, i), (false, j)]
                } else {
                    [(false, j), (true, i)]
                };
                if is_sliver(from, cross) {
                    push(from, to, order[1]);
                } else if is_sliver(cross, to) {
                    push(from, to, order[0]);
                } else {
                    push(from, cross, order[0]);
                    push(cross, to, order[1]);
                }
            }
        }
    });
    found
}

/// What is left of the segments that an operation may go through.
pub(super) struct Work(usize);

impl Work {
    pub fn new() -> Self {
        Self(0)
    }

    pub fn spend(&mut self, segments: usize) -> Result<(), MinPlusError> {
        self.0 += segments;
        if self.0 > MAX_WORK {
            return Err(MinPlusError::TooMany {
                what: "segments to go through",
                got: self.0 as f64,
                most: MAX_WORK as f64,
            });
        }
        Ok(())
    }
}

/// The envelope of many lists: neighbors in size are merged, so that it takes n log n.
pub(super) struct Envelope {
    side: Side,
    stack: Vec<Vec<Piece>>,
}

impl Envelope {
    pub fn new(side: Side) -> Self {
        Self {
            side,
            stack: Vec::new(),
        }
    }

    pub fn push(&mut self, pieces: Vec<Piece>) {
        if pieces.is_empty() {
            return;
        }
        self.stack.push(pieces);
        while let [.., a, b] = self.stack.as_slice()
            && a.len() <= 2 * b.len()
        {
            self.merge();
        }
    }

    fn merge(&mut self) {
        if let (Some(b), Some(a)) = (self.stack.pop(), self.stack.pop()) {
            self.stack.push(envelope(&a, &b, self.side));
        }
    }

    pub fn finish(mut self) -> Vec<Piece> {
        while self.stack.len() > 1 {
            self.merge();
        }
        self.stack.pop().unwrap_or_default()
    }
}

/// Makes a list increasing that is so up to rounding, and fills gaps of rounding. A value above its
/// successor is lowered to it (lower envelopes).
pub(super) fn lower_to_what_follows(pieces: &mut Vec<Piece>) {
    let mut found: Vec<Piece> = Vec::with_capacity(pieces.len());
    let mut next = f64::INFINITY;
    for mut piece in pieces.drain(..).rev() {
        if let Some(after) = found.last() {
            piece.to = after.from;
        }
        if piece.value >= next {
            piece.value = next;
            piece.slope = 0.0;
        } else if piece.end() > next {
            let cross = piece.from + (next - piece.value) / piece.slope;
            if !is_sliver(cross, piece.to) {
                found.push(Piece {
                    from: cross,
                    to: piece.to,
                    value: next,
                    slope: 0.0,
                });
                piece.to = cross;
            }
        }
        next = piece.value;
        if !piece.is_sliver() {
            found.push(piece);
        } else if let Some(after) = found.last_mut() {
            after.from = piece.from;
        }
    }
    found.reverse();
    *pieces = found;
}

/// The running maximum.
pub(super) fn running_maximum(pieces: &[Piece], mut most: f64) -> Vec<Piece> {
    let mut found: Vec<Piece> = Vec::with_capacity(pieces.len());
    let flat = |from: f64, to: f64, value: f64| Piece {
        from,
        to,
        value,
        slope: 0.0,
    };
    for piece in pieces {
        if piece.value >= most && piece.slope >= 0.0 {
            found.push(*piece);
            most = piece.end();
        } else if piece.slope > 0.0 && piece.end() > most {
            let cross = piece.from + (most - piece.value) / piece.slope;
            if !is_sliver(piece.from, cross) {
                found.push(flat(piece.from, cross, most));
            }
            if !is_sliver(cross, piece.to) {
                found.push(piece.cut(cross, piece.to));
            }
            most = piece.end();
        } else {
            most = most.max(piece.value);
            found.push(flat(piece.from, piece.to, most));
        }
    }
    found
}

/// Where a list is convex (or concave) and has no jump: runs, as ranges of indices.
pub(super) fn runs(pieces: &[Piece], side: Side) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut first = 0;
    for i in 1..=pieces.len() {
        let goes_on = pieces.get(i).is_some_and(|piece| {
            let last = &pieces[i - 1];
            let bends = match side {
                Side::Lower => last.slope <= piece.slope,
                Side::Upper => last.slope >= piece.slope,
            };
            bends && (last.end() - piece.value).abs() <= ROUNDING * piece.value.abs()
        });
        if !goes_on {
            found.push(first..i);
            first = i;
        }
    }
    found
}

/// Whether two lists are the same function within rounding, in time and in value.
pub(super) fn alike(a: &[Piece], b: &[Piece], tolerance: f64) -> bool {
    below(a, b, tolerance) && below(b, a, tolerance)
}

/// Whether `a` is nowhere above `b`, within rounding in time and in value. Both increasing, on the
/// same stretch.
pub(super) fn below(a: &[Piece], b: &[Piece], tolerance: f64) -> bool {
    let (Some(last_a), Some(last_b)) = (a.last(), b.last()) else {
        return a.is_empty() && b.is_empty();
    };
    let in_time = tolerance * last_a.to.max(last_b.to);
    let in_value = tolerance * last_a.end().abs().max(last_b.end().abs());
    let left = |list: &[Piece], t: f64| -> f64 {
        let k = list.partition_point(|piece| piece.to < t);
        list.get(k).map_or_else(
            || list.last().map_or(0.0, Piece::end),
            |piece| {
                if t <= piece.from {
                    // before the first
                    f64::NEG_INFINITY
                } else {
                    piece.at(t)
                }
            },
        )
    };
    // between neighboring breakpoints of both, moved by the tolerance, both are linear
    let at_breakpoints_of_a = a.iter().all(|piece| {
        let slack = in_value + piece.slope * in_time;
        piece.end() <= left(b, piece.to + in_time) + slack
            && piece.value <= left(b, piece.from + 2.0 * in_time) + slack
    });
    at_breakpoints_of_a
        && b.iter().all(|piece| {
            let slack = in_value + 2.0 * piece.slope * in_time;
            left(a, piece.to - in_time) <= piece.end() + slack
                && left(a, piece.from - in_time) <= piece.value + slack
        })
}
