//! Bounds for each packet of a trace.

use super::{Arrivals, Curve, MinPlusError, Tail};

/// Candidates that are looked at one by one.
const BLOCK: usize = 16;

impl Arrivals {
    /// The delay bound of each packet, seconds, at a server of this service curve that serves in order
    /// (Lübben & Fidler, equations 5 and 6): packet `n` has left for certain at the largest, over `j <=
    /// n`, of `a_j + S^-1(A_n - A_(j-1))`. Infinite where the server need never serve so much.
    ///
    /// For `n` packets and `k` segments O(n log n log k) if `S` is convex (the best `j` never goes
    /// back: divide and conquer), else by branch and bound: `j` are left out that a latency-rate curve
    /// below `S` rules out.
    ///
    /// # Errors
    /// A curve without a usable inverse.
    ///
    /// ```
    /// use pathcast_netcalc::{Arrivals, Curve};
    /// let three = Arrivals::new(&[0.0, 0.5, 3.0], &[10.0, 10.0, 10.0])?;
    /// let link = Curve::latency_rate(10.0, 1.0)?;
    /// assert_eq!(three.delay_bounds(&link)?, [2.0, 2.5, 2.0]);
    /// assert_eq!(three.backlog_bounds(&link)?, [10.0, 20.0, 10.0]);
    /// # Ok::<(), pathcast_netcalc::MinPlusError>(())
    /// ```
    pub fn delay_bounds(&self, service: &Curve) -> Result<Vec<f64>, MinPlusError> {
        let inverse = service.inverse()?;
        let (times_s, before) = (self.times_s(), self.before());
        let value =
            |n: usize, j: usize| inverse.at(before[n + 1] - before[j]) - (times_s[n] - times_s[j]);
        if service.is_convex() {
            return Ok(monotone_maxima(self.len(), value));
        }
        // S^-1(y) <= slack + y / rate
        let per_unit = inverse_rate(service, self.total());
        let slack = above_line(&inverse, per_unit, self.total())?;
        let key = |j: usize| times_s[j] - before[j] * per_unit;
        let offset = |n: usize| slack + before[n + 1] * per_unit - times_s[n];
        Ok(pruned_maxima(self.len(), key, offset, value))
    }

    /// The backlog bound at each arrival, the packet itself included, in the unit of the sizes: the
    /// largest, over `j <= n`, of `A_n - A_(j-1) - S(a_n - a_j)`. Between arrivals it is less. As fast
    /// as [`Self::delay_bounds`].
    ///
    /// # Errors
    /// As [`Self::delay_bounds`].
    pub fn backlog_bounds(&self, service: &Curve) -> Result<Vec<f64>, MinPlusError> {
        let (times_s, before) = (self.times_s(), self.before());
        let value =
            |n: usize, j: usize| before[n + 1] - before[j] - service.at(times_s[n] - times_s[j]);
        if service.is_convex() {
            return Ok(monotone_maxima(self.len(), value));
        }
        // S(t) >= rate t - slack
        let rate = match service.tail() {
            Tail::Infinite { from_s } => self.total() / from_s.max(f64::MIN_POSITIVE),
            _ => service.rate(),
        };
        let slack = below_line(service, rate, self.span_s())?;
        let key = |j: usize| rate * times_s[j] - before[j];
        let offset = |n: usize| slack + before[n + 1] - rate * times_s[n];
        Ok(pruned_maxima(self.len(), key, offset, value))
    }
}

/// Seconds for each unit of data in the long run; if there is no long-run rate, up to `total`.
fn inverse_rate(service: &Curve, total: f64) -> f64 {
    match service.tail() {
        Tail::Infinite { .. } => 0.0,
        _ if service.rate() > 0.0 => 1.0 / service.rate(),
        _ => {
            let t = service.inverse().map_or(0.0, |inverse| inverse.at(total));
            if t.is_finite() { t / total } else { 0.0 }
        }
    }
}

/// Largest of `f(x) - slope x` for `0 <= x <= until`.
fn above_line(f: &Curve, slope: f64, until: f64) -> Result<f64, MinPlusError> {
    if f.at(until) == f64::INFINITY {
        return Ok(f64::INFINITY);
    }
    let pieces = f.pieces(one_period(f, until))?;
    let ends = pieces
        .iter()
        .flat_map(|piece| [(piece.from, piece.value), (piece.to, piece.end())]);
    Ok(ends.fold(0.0, |most: f64, (x, value)| most.max(value - slope * x)))
}

/// Largest of `slope x - f(x)` for `0 <= x <= until`.
fn below_line(f: &Curve, slope: f64, until: f64) -> Result<f64, MinPlusError> {
    let pieces = f.pieces(one_period(f, until))?;
    let ends = pieces
        .iter()
        .flat_map(|piece| [(piece.from, piece.value), (piece.to, piece.end())]);
    Ok(ends.fold(0.0, |most: f64, (x, value)| most.max(slope * x - value)))
}

/// No more than the first period: the others are as far from a line of the curve's rate.
fn one_period(f: &Curve, until: f64) -> f64 {
    match f.tail() {
        Tail::Periodic {
            from_s, period_s, ..
        } => until.min(from_s + period_s),
        _ => until,
    }
}

/// For each `n` the largest `value(n, j)` over `j <= n`, where the best `j` never goes back as `n` grows.
fn monotone_maxima(count: usize, value: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    let mut found = vec![0.0; count];
    // rows [from, to), best j within [first, last]
    let mut open = vec![(0, count, 0, count - 1)];
    while let Some((from, to, first, last)) = open.pop() {
        if from >= to {
            continue;
        }
        let n = usize::midpoint(from, to);
        let (mut best, mut of) = (f64::NEG_INFINITY, first);
        for j in first..=last.min(n) {
            let this = value(n, j);
            if this > best {
                (best, of) = (this, j);
            }
        }
        found[n] = best;
        open.push((from, n, first, of));
        open.push((n + 1, to, of, last));
    }
    found
}

/// For each `n` the largest `value(n, j)` over `j <= n`, where `value(n, j) <= key(j) + offset(n)`.
fn pruned_maxima(
    count: usize,
    key: impl Fn(usize) -> f64,
    offset: impl Fn(usize) -> f64,
    value: impl Fn(usize, usize) -> f64,
) -> Vec<f64> {
    // largest keys of blocks, then of pairs of blocks, and so on: levels[0] are blocks
    let mut levels: Vec<Vec<f64>> = Vec::new();
    let blocks = (0..count).step_by(BLOCK).map(|from| {
        let to = (from + BLOCK).min(count);
        (from..to).map(&key).fold(f64::NEG_INFINITY, f64::max)
    });
    levels.push(blocks.collect());
    while levels[levels.len() - 1].len() > 1 {
        let below = &levels[levels.len() - 1];
        levels.push(
            below
                .chunks(2)
                .map(|pair| pair.iter().copied().fold(f64::NEG_INFINITY, f64::max))
                .collect(),
        );
    }
    let mut of = 0;
    let mut open: Vec<(usize, usize)> = Vec::new();
    let rows = (0..count).map(|n| {
        let (mut best, at_n) = (value(n, of), value(n, n));
        if at_n > best {
            (best, of) = (at_n, n);
        }
        let most = offset(n);
        open.push((levels.len() - 1, 0));
        while let Some((level, i)) = open.pop() {
            let from = (i << level) * BLOCK;
            if from > n || levels[level][i] + most <= best {
                continue;
            }
            if level == 0 {
                for j in from..(from + BLOCK).min(n + 1) {
                    let this = value(n, j);
                    if this > best {
                        (best, of) = (this, j);
                    }
                }
                continue;
            }
            // the better half first, on top of the stack
            let (left, right) = (2 * i, 2 * i + 1);
            let key = |i: usize| levels[level - 1].get(i).copied();
            match key(right) {
                None => open.push((level - 1, left)),
                Some(of_right) if key(left) < Some(of_right) => {
                    open.extend([(level - 1, left), (level - 1, right)]);
                }
                Some(_) => open.extend([(level - 1, right), (level - 1, left)]),
            }
        }
        best
    });
    rows.collect()
}
