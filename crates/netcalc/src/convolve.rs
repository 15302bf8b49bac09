//! Convolution and deconvolution.

use super::pieces::{
    Envelope, Piece, Side, Work, lower_to_what_follows, running_maximum, runs, slice,
};
use super::pointwise::tail_with;
use super::tail::{around_rate, assemble, common_period};
use super::{Curve, MinPlusError, Tail, same};

impl Curve {
    /// `(f (x) g)(t) = inf over 0 <= s <= t of f(t - s) + g(s)`: the service curve of two systems one
    /// after the other, or what leaves a server for certain (Le Boudec & Thiran, section 3.1).
    ///
    /// Two concave curves give the smaller of both, two convex ones their segments by slope; else each
    /// convex stretch of the one is combined with each of the other. Where rates differ, the result has
    /// the tail of the slower curve; where they are the same, the common period (Bouillard & Thierry
    /// 2008; the beginnings of tails are shorter here, since all curves are 0 at 0).
    ///
    /// # Errors
    /// The same rates and periods without a common multiple, or too many segments.
    ///
    /// ```
    /// use pathcast_netcalc::Curve;
    /// let (a, b) = (Curve::latency_rate(10.0, 1.0)?, Curve::latency_rate(6.0, 2.0)?);
    /// assert_eq!(a.convolve(&b)?, Curve::latency_rate(6.0, 3.0)?);
    /// # Ok::<(), pathcast_netcalc::MinPlusError>(())
    /// ```
    pub fn convolve(&self, other: &Self) -> Result<Self, MinPlusError> {
        if self.is_concave() && other.is_concave() {
            return self.min(other);
        }
        let (until, tail, own, others) = match (self.tail, other.tail) {
            (Tail::Infinite { from_s: a }, Tail::Infinite { from_s: b }) => {
                let from_s = a + b;
                (from_s, Tail::Infinite { from_s }, a, b)
            }
            _ if same(self.rate(), other.rate()) => {
                let period = common_period(self, other)?;
                let from = self.tail_from_s() + other.tail_from_s() + period.unwrap_or(0.0);
                let (until, tail) = tail_with(from, period, self.rate().min(other.rate()));
                (until, tail, until, until)
            }
            _ if self.rate() > other.rate() => return other.convolve(self),
            _ => {
                // what lies further back than `back` in the faster curve is never the smallest
                let back = match other.tail {
                    Tail::Infinite { from_s } => from_s,
                    _ => back(self, other),
                };
                let (until, tail) = self.tail_after(self.tail_from_s() + back);
                // rounding of `back` must not hide what is just before it
                (until, tail, until, (back * 1.000_001).min(until))
            }
        };
        let (f, g) = (self.pieces(own)?, other.pieces(others)?);
        let mut envelope = Envelope::new(Side::Lower);
        envelope.push(slice(&f, 0.0, until));
        envelope.push(slice(&g, 0.0, until));
        convolve_into(&mut envelope, &f, &g, until, &mut Work::new())?;
        let mut pieces = envelope.finish();
        lower_to_what_follows(&mut pieces);
        assemble(&pieces, tail)
    }

    /// `(f (/) g)(t) = sup over u >= 0 of f(t + u) - g(u)` for `t > 0`: what can leave a server of
    /// service curve `g` that `f` enters (Le Boudec & Thiran, theorem 1.4.3). Infinite
    /// ([`Curve::delay`] of 0) if `f` is faster than `g` in the long run. Its value at 0, which a curve
    /// does not hold, is [`Self::vertical_deviation`].
    ///
    /// # Errors
    /// As [`Self::convolve`].
    ///
    /// ```
    /// use pathcast_netcalc::Curve;
    /// let arrivals = Curve::token_bucket(2.0, 5.0)?;
    /// let output = arrivals.deconvolve(&Curve::latency_rate(3.0, 4.0)?)?;
    /// assert_eq!(output, Curve::token_bucket(2.0, 5.0 + 2.0 * 4.0)?);
    /// # Ok::<(), pathcast_netcalc::MinPlusError>(())
    /// ```
    pub fn deconvolve(&self, other: &Self) -> Result<Self, MinPlusError> {
        let infinite = || Self::delay(0.0);
        // how far u goes
        let ahead = match (self.tail, other.tail) {
            (Tail::Infinite { from_s: own }, Tail::Infinite { from_s }) => {
                if own <= from_s {
                    return infinite();
                }
                from_s
            }
            (Tail::Infinite { .. }, _) => return infinite(),
            (_, Tail::Infinite { from_s }) => from_s,
            _ if same(self.rate(), other.rate()) => {
                let both = self.tail_from_s().max(other.tail_from_s());
                super::tail::beyond(both) + common_period(self, other)?.unwrap_or(0.0)
            }
            _ if self.rate() > other.rate() => return infinite(),
            _ => back(self, other),
        };
        let (until, tail) = match self.tail {
            Tail::Infinite { from_s } => {
                let from_s = from_s - ahead;
                (from_s, Tail::Infinite { from_s })
            }
            _ => self.tail_after(0.0),
        };
        let (f, g) = (self.pieces(until + ahead)?, other.pieces(ahead)?);
        let (over, under) = (runs(&f, Side::Upper), runs(&g, Side::Lower));
        let mut envelope = Envelope::new(Side::Upper);
        envelope.push(slice(&f, 0.0, until));
        let mut work = Work::new();
        for run in &over {
            let f = &f[run.clone()];
            for run in &under {
                let g = &g[run.clone()];
                work.spend(f.len() + g.len())?;
                envelope.push(slide(f, g, until));
            }
        }
        // rounding only: the supremum of increasing functions increases
        let pieces = running_maximum(&envelope.finish(), 0.0);
        assemble(&pieces, tail)
    }
}

/// How far back in `g` the smallest of `f(t - s) + g(s)` (the largest of `f(t + s) - g(s)`) can be,
/// where `f` is slower: beyond it `g(s)` is larger than any growth of `f` in `s`.
fn back(f: &Curve, g: &Curve) -> f64 {
    let ((least, most), (floor, _)) = (around_rate(f, 0.0), around_rate(g, 0.0));
    (most - least - floor) / (g.rate() - f.rate())
}

/// Adds all combinations of convex stretches to an envelope; those with the zero at 0 not.
pub(super) fn convolve_into(
    envelope: &mut Envelope,
    f: &[Piece],
    g: &[Piece],
    until: f64,
    work: &mut Work,
) -> Result<(), MinPlusError> {
    let (of_f, of_g) = (runs(f, Side::Lower), runs(g, Side::Lower));
    for run in of_f {
        let f = &f[run];
        for run in &of_g {
            let g = &g[run.clone()];
            if f[0].from + g[0].from >= until {
                break;
            }
            work.spend(f.len() + g.len())?;
            envelope.push(by_slope(f, g, until));
        }
    }
    Ok(())
}

/// Convolution of two convex stretches: the segments of both, the flattest first.
fn by_slope(f: &[Piece], g: &[Piece], until: f64) -> Vec<Piece> {
    let mut found = Vec::with_capacity(f.len() + g.len());
    let (mut i, mut j) = (0, 0);
    // from where both have got to, not from the piece before: no rounding adds up
    let reached = |list: &[Piece], k: usize| {
        if k == 0 {
            (list[0].from, list[0].value)
        } else {
            (list[k - 1].to, list[k - 1].end())
        }
    };
    let (mut of_f, mut of_g) = (reached(f, 0), reached(g, 0));
    while (i < f.len() || j < g.len()) && of_f.0 + of_g.0 < until {
        let (from, value) = (of_f.0 + of_g.0, of_f.1 + of_g.1);
        let slope = if j >= g.len() || (i < f.len() && f[i].slope <= g[j].slope) {
            i += 1;
            of_f = reached(f, i);
            f[i - 1].slope
        } else {
            j += 1;
            of_g = reached(g, j);
            g[j - 1].slope
        };
        let piece = Piece {
            from,
            to: (of_f.0 + of_g.0).min(until),
            value,
            slope,
        };
        if !piece.is_sliver() {
            found.push(piece);
        }
    }
    found
}

/// `t - u`, and 0 where that is only what rounding leaves of it: beside 0 no width is small, so that a
/// stretch that ends there would be a step of its own.
fn apart(t: f64, u: f64) -> f64 {
    if same(t, u) { 0.0 } else { t - u }
}

/// Deconvolution of a concave stretch and a convex one, for `0 < t <= until`: from the end of `g` to
/// its beginning, the steepest first.
fn slide(f: &[Piece], g: &[Piece], until: f64) -> Vec<Piece> {
    let (Some(last_f), Some(last_g)) = (f.last(), g.last()) else {
        return Vec::new();
    };
    // t from f's beginning less g's end to f's end less g's beginning
    let (first, last) = (apart(f[0].from, last_g.to), apart(last_f.to, g[0].from));
    if last <= 0.0 || first >= until {
        return Vec::new();
    }
    let mut found = Vec::with_capacity(f.len() + g.len());
    let (mut i, mut j) = (0, g.len());
    let of_f = |i: usize| {
        if i == 0 {
            (f[0].from, f[0].value)
        } else {
            (f[i - 1].to, f[i - 1].end())
        }
    };
    let of_g = |j: usize| {
        if j == g.len() {
            (last_g.to, last_g.end())
        } else {
            (g[j].from, g[j].value)
        }
    };
    while i < f.len() || j > 0 {
        let ((t, above), (u, below)) = (of_f(i), of_g(j));
        let from = apart(t, u);
        if from >= until {
            break;
        }
        let slope = if j == 0 || (i < f.len() && f[i].slope >= g[j - 1].slope) {
            i += 1;
            f[i - 1].slope
        } else {
            j -= 1;
            g[j].slope
        };
        let to = apart(of_f(i).0, of_g(j).0);
        let piece = Piece {
            from,
            to,
            value: above - below,
            slope,
        };
        let (begin, end) = (from.max(0.0), to.min(until));
        if end > begin && !super::pieces::is_sliver(begin, end) {
            found.push(piece.cut(begin, end));
        }
    }
    found
}
