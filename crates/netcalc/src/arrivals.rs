//! A traffic trace: packets with times and sizes.

use super::{Curve, MAX_SEGMENTS, MAX_VALUE, MinPlusError, Segment, Tail, checked, positive};

/// Most packets of which all pairs are compared.
pub const MAX_EXACT_PACKETS: usize = 8192;
/// Pairs that wait until the envelope is made anew.
const CHUNK: usize = 1 << 16;

/// Packets in order of arrival; `A(t)` is the size of all that arrived before `t` (left-continuous).
#[derive(Debug, Clone, PartialEq)]
pub struct Arrivals {
    times_s: Vec<f64>,
    /// `before[j]`: size of all packets before packet `j`; one more than packets.
    before: Vec<f64>,
}

impl Arrivals {
    /// `n` packets: times of arrival in seconds, not falling, and sizes above 0, in the unit of the
    /// service curves.
    ///
    /// # Errors
    /// No packets or more than [`MAX_SEGMENTS`], columns of different lengths, a time that is negative
    /// or falls, a size that is not above 0, a number out of range.
    pub fn new(times_s: &[f64], sizes: &[f64]) -> Result<Self, MinPlusError> {
        if times_s.is_empty() {
            return Err(MinPlusError::Empty("packets"));
        }
        if times_s.len() != sizes.len() {
            return Err(MinPlusError::Length {
                what: "sizes",
                got: sizes.len(),
                wanted: times_s.len(),
                other: "times_s",
            });
        }
        if times_s.len() > MAX_SEGMENTS {
            return Err(MinPlusError::TooMany {
                what: "packets",
                got: times_s.len() as f64,
                most: MAX_SEGMENTS as f64,
            });
        }
        let mut before = Vec::with_capacity(sizes.len() + 1);
        let (mut all, mut previous) = (0.0, 0.0);
        before.push(all);
        for (index, (&time_s, &size)) in times_s.iter().zip(sizes).enumerate() {
            checked(|| format!("times_s[{index}]"), time_s, MAX_VALUE)?;
            positive(|| format!("sizes[{index}]"), size, MAX_VALUE)?;
            if time_s < previous {
                return Err(MinPlusError::Falls {
                    what: "times_s",
                    index,
                    got: time_s,
                    previous,
                });
            }
            previous = time_s;
            all += size;
            before.push(all);
        }
        checked(|| "size of all packets".into(), all, MAX_VALUE)?;
        Ok(Self {
            times_s: times_s.to_vec(),
            before,
        })
    }

    /// When each packet arrives, seconds.
    pub fn times_s(&self) -> &[f64] {
        &self.times_s
    }

    /// Size of all packets before packet `j`, `j` from 0 to their number.
    pub(super) fn before(&self) -> &[f64] {
        &self.before
    }

    /// Packets.
    pub fn len(&self) -> usize {
        self.times_s.len()
    }

    /// Never: a trace has packets.
    pub fn is_empty(&self) -> bool {
        self.times_s.is_empty()
    }

    /// Size of all packets.
    pub fn total(&self) -> f64 {
        self.before[self.len()]
    }

    /// From the first arrival to the last, seconds.
    pub fn span_s(&self) -> f64 {
        self.times_s[self.len() - 1] - self.times_s[0]
    }

    /// `A(t)` as a curve, with time counted from 0.
    ///
    /// # Errors
    /// Times nearer to each other than rounding, in a trace that begins late.
    pub fn cumulative(&self) -> Result<Curve, MinPlusError> {
        let steps = self
            .times_s
            .iter()
            .copied()
            .zip(self.before[1..].iter().copied());
        staircase(steps)
    }

    /// The empirical envelope `E(t) = sup over tau of A(tau + t) - A(tau)`: most data in any window of
    /// length `t`, from all pairs of packets (Wrege et al. 1996). The least arrival curve of the trace;
    /// beyond its span it is flat.
    ///
    /// # Errors
    /// More than [`MAX_EXACT_PACKETS`] packets: [`Self::envelope_at`] takes any number.
    pub fn envelope(&self) -> Result<Curve, MinPlusError> {
        let n = self.len();
        if n > MAX_EXACT_PACKETS {
            return Err(MinPlusError::TooMany {
                what: "packets for an envelope from all pairs (choose lengths of windows)",
                got: n as f64,
                most: MAX_EXACT_PACKETS as f64,
            });
        }
        // steps: spans that rise, with data that rises
        let mut steps: Vec<(f64, f64)> = Vec::new();
        let mut fresh: Vec<(f64, f64)> = Vec::new();
        for more in 0..n {
            for j in 0..n - more {
                let span_s = self.times_s[j + more] - self.times_s[j];
                let data = self.before[j + more + 1] - self.before[j];
                let known = steps.partition_point(|step| step.0 <= span_s);
                if known == 0 || steps[known - 1].1 < data {
                    fresh.push((span_s, data));
                }
            }
            if fresh.len() > CHUNK || more + 1 == n || more < 8 {
                steps.append(&mut fresh);
                steps.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
                let mut most = 0.0;
                steps.retain(|step| {
                    let is_more = step.1 > most;
                    most = step.1.max(most);
                    is_more
                });
            }
        }
        staircase(steps.into_iter())
    }

    /// An upper bound of the envelope from chosen lengths of windows, exact at each: `E(t)` is that of
    /// the next longer window, and beyond the longest, `d`, `E(t + d) = E(t) + E(d)` if the trace is
    /// longer than it.
    ///
    /// # Errors
    /// No windows, one that is not above 0 or not longer than the one before.
    pub fn envelope_at(&self, windows_s: &[f64]) -> Result<Curve, MinPlusError> {
        if windows_s.is_empty() {
            return Err(MinPlusError::Empty("windows_s"));
        }
        let mut segments: Vec<Segment> = Vec::with_capacity(windows_s.len() + 1);
        let mut from = 0.0;
        for (index, &window_s) in windows_s.iter().enumerate() {
            positive(|| format!("windows_s[{index}]"), window_s, MAX_VALUE)?;
            if window_s <= from {
                return Err(MinPlusError::Falls {
                    what: "windows_s",
                    index,
                    got: window_s,
                    previous: from,
                });
            }
            segments.push(Segment {
                start_s: from,
                value: self.most_in(window_s),
                slope: 0.0,
            });
            from = window_s;
        }
        let increment = segments[segments.len() - 1].value;
        if self.span_s() <= from {
            return Curve::from_segments(&segments, Tail::Affine);
        }
        Curve::from_segments(
            &segments,
            Tail::Periodic {
                from_s: 0.0,
                period_s: from,
                increment,
            },
        )
    }

    /// Most data whose first and last packet are at most `window_s` apart.
    fn most_in(&self, window_s: f64) -> f64 {
        let (mut first, mut most) = (0, 0.0);
        for last in 0..self.len() {
            while self.times_s[last] - self.times_s[first] > window_s {
                first += 1;
            }
            most = f64::max(most, self.before[last + 1] - self.before[first]);
        }
        most
    }

    /// The least `b` for which a token bucket of `rate` lets the trace pass: `A(t) - A(s) <= b + rate
    /// (t - s)`.
    ///
    /// # Errors
    /// `rate` is not 0 to [`MAX_VALUE`].
    pub fn smallest_burst(&self, rate: f64) -> Result<f64, MinPlusError> {
        checked(|| "rate".into(), rate, MAX_VALUE)?;
        // the fill of a bucket that leaks at the rate: no large numbers are subtracted
        let (mut burst, mut fill, mut last_s) = (0.0_f64, 0.0_f64, self.times_s[0]);
        for (j, &time_s) in self.times_s.iter().enumerate() {
            fill =
                (fill - rate * (time_s - last_s)).max(0.0) + (self.before[j + 1] - self.before[j]);
            burst = burst.max(fill);
            last_s = time_s;
        }
        Ok(burst)
    }
}

/// Flat steps `(start, value)`, the first of which may begin late; steps of one start count once, the
/// last.
fn staircase(steps: impl Iterator<Item = (f64, f64)>) -> Result<Curve, MinPlusError> {
    let mut segments = vec![Segment {
        start_s: 0.0,
        value: 0.0,
        slope: 0.0,
    }];
    for (start_s, value) in steps {
        let last = segments.len() - 1;
        if super::pieces::is_sliver(segments[last].start_s, start_s) || start_s == 0.0 {
            segments[last].value = value;
        } else {
            segments.push(Segment {
                start_s,
                value,
                slope: 0.0,
            });
        }
    }
    Curve::from_segments(&segments, Tail::Affine)
}
