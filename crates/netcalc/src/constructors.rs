//! Curves to begin with.

use super::pieces::is_sliver;
use super::{
    Curve, MAX_SEGMENTS, MAX_VALUE, MinPlusError, ROUNDING, Segment, Tail, checked, positive,
};

fn segment(start_s: f64, value: f64, slope: f64) -> Segment {
    Segment {
        start_s,
        value,
        slope,
    }
}

impl Curve {
    /// `f = 0`: no service at all.
    pub fn zero() -> Self {
        Self {
            segments: vec![segment(0.0, 0.0, 0.0)],
            tail: Tail::Affine,
        }
    }

    /// A link of constant rate, `rate t`; `rate` in units of data per second.
    ///
    /// # Errors
    /// `rate` is not 0 to [`MAX_VALUE`].
    pub fn constant_rate(rate: f64) -> Result<Self, MinPlusError> {
        Self::latency_rate(rate, 0.0)
    }

    /// `rate [t - latency_s]+`, the service curve of most schedulers (Le Boudec & Thiran, section 1.3).
    ///
    /// # Errors
    /// `rate` is not 0 to [`MAX_VALUE`], `latency_s` not 0 to [`MAX_VALUE`].
    pub fn latency_rate(rate: f64, latency_s: f64) -> Result<Self, MinPlusError> {
        checked(|| "rate".into(), rate, MAX_VALUE)?;
        checked(|| "latency_s".into(), latency_s, MAX_VALUE)?;
        if rate == 0.0 {
            return Ok(Self::zero());
        }
        let mut segments = Vec::new();
        if latency_s > 0.0 {
            segments.push(segment(0.0, 0.0, 0.0));
        }
        segments.push(segment(latency_s, 0.0, rate));
        Ok(Self {
            segments,
            tail: Tail::Affine,
        })
    }

    /// A constant delay: 0 until `delay_s`, infinite after. `f (x)` this is `f` later by `delay_s`; of
    /// a delay of 0, `f` itself.
    ///
    /// # Errors
    /// `delay_s` is not 0 to [`MAX_VALUE`].
    pub fn delay(delay_s: f64) -> Result<Self, MinPlusError> {
        checked(|| "delay_s".into(), delay_s, MAX_VALUE)?;
        let mut segments = Vec::new();
        if delay_s > 0.0 {
            segments.push(segment(0.0, 0.0, 0.0));
        }
        Ok(Self {
            segments,
            tail: Tail::Infinite { from_s: delay_s },
        })
    }

    /// `burst + rate t` for `t > 0`: arrivals that a token bucket lets pass.
    ///
    /// # Errors
    /// `rate` or `burst` is not 0 to [`MAX_VALUE`].
    pub fn token_bucket(rate: f64, burst: f64) -> Result<Self, MinPlusError> {
        checked(|| "rate".into(), rate, MAX_VALUE)?;
        checked(|| "burst".into(), burst, MAX_VALUE)?;
        Ok(Self {
            segments: vec![segment(0.0, burst, rate)],
            tail: Tail::Affine,
        })
    }

    /// Linear between points `(time_s, value)`, from `(0, 0)` to the first, with `rate` after the last.
    /// Two points of one time are a jump.
    ///
    /// # Errors
    /// No points, more than [`MAX_SEGMENTS`], a number out of range, a time or a value that falls,
    /// three points of one time.
    ///
    /// ```
    /// use pathcast_netcalc::Curve;
    /// let curve = Curve::from_points(&[(1.0, 0.0), (1.0, 5.0), (2.0, 9.0)], 3.0)?;
    /// assert_eq!([curve.at(1.0), curve.at(1.5), curve.at(4.0)], [0.0, 7.0, 15.0]);
    /// # Ok::<(), pathcast_netcalc::MinPlusError>(())
    /// ```
    pub fn from_points(points: &[(f64, f64)], rate: f64) -> Result<Self, MinPlusError> {
        if points.is_empty() {
            return Err(MinPlusError::Empty("points"));
        }
        if points.len() > MAX_SEGMENTS {
            return Err(MinPlusError::TooMany {
                what: "points",
                got: points.len() as f64,
                most: MAX_SEGMENTS as f64,
            });
        }
        checked(|| "rate".into(), rate, MAX_VALUE)?;
        let (mut from, mut value) = (0.0, 0.0);
        let mut segments: Vec<Segment> = Vec::with_capacity(points.len() + 1);
        for (index, &(t, v)) in points.iter().enumerate() {
            checked(|| format!("point {index}: time"), t, MAX_VALUE)?;
            checked(|| format!("point {index}: value"), v, MAX_VALUE)?;
            let falls = |what, got, previous| MinPlusError::Falls {
                what,
                index,
                got,
                previous,
            };
            if t < from {
                return Err(falls("time of point", t, from));
            }
            if v < value {
                return Err(falls("value of point", v, value));
            }
            if t > from {
                let slope = (v - value) / (t - from);
                checked(|| format!("slope to point {index}"), slope, MAX_VALUE)?;
                segments.push(segment(from, value, slope));
            }
            (from, value) = (t, v);
        }
        segments.push(segment(from, value, rate));
        Self::from_segments(&segments, Tail::Affine)
    }

    /// Packets of `size` in place of a fluid of `rate`: the k-th is there, whole, right after `k size /
    /// rate` (right after `(k - 1) size / rate` if `early`, the arrivals of a paced sender).
    ///
    /// # Errors
    /// `size` or `rate` is not above 0, or out of range.
    pub fn steps(size: f64, rate: f64, early: bool) -> Result<Self, MinPlusError> {
        positive(|| "size".into(), size, MAX_VALUE)?;
        positive(|| "rate".into(), rate, MAX_VALUE)?;
        let period_s = positive(|| "size / rate".into(), size / rate, MAX_VALUE)?;
        let value = if early { size } else { 0.0 };
        Ok(Self {
            segments: vec![segment(0.0, value, 0.0)],
            tail: Tail::Periodic {
                from_s: 0.0,
                period_s,
                increment: size,
            },
        })
    }

    /// Flow control by a static window over a network that is a latency-rate server: `min over n >= 0
    /// of n window + rate [t - latency_s - n rtt_s]+` (Agrawal et al. 1999; Lübben & Fidler, section
    /// III-A). If `window >= rate rtt_s` that is the network's own curve; else steps of `window`, one a
    /// round trip. `rate` may be infinite.
    ///
    /// # Errors
    /// `rate` or `window` is not above 0, `latency_s` is not 0 to `rtt_s`, or one is out of range.
    ///
    /// ```
    /// use pathcast_netcalc::Curve;
    /// let half = Curve::window_flow_control(10e6, 0.05, 0.1, 500e3)?;
    /// assert_eq!(half.rate(), 5e6);
    /// assert_eq!([half.at(0.1), half.at(0.15), half.at(0.2)], [500e3, 500e3, 1e6]);
    /// assert_eq!(Curve::window_flow_control(10e6, 0.05, 0.1, 1e6)?, Curve::latency_rate(10e6, 0.05)?);
    /// # Ok::<(), pathcast_netcalc::MinPlusError>(())
    /// ```
    pub fn window_flow_control(
        rate: f64,
        latency_s: f64,
        rtt_s: f64,
        window: f64,
    ) -> Result<Self, MinPlusError> {
        if rate != f64::INFINITY {
            positive(|| "rate".into(), rate, MAX_VALUE)?;
        }
        positive(|| "window".into(), window, MAX_VALUE)?;
        checked(|| "latency_s".into(), latency_s, MAX_VALUE)?;
        positive(|| "rtt_s".into(), rtt_s, MAX_VALUE)?;
        if latency_s > rtt_s {
            return Err(MinPlusError::Number {
                what: "latency_s".into(),
                got: latency_s,
                wanted: format!("at most rtt_s, {rtt_s}"),
            });
        }
        if window >= rate * rtt_s * (1.0 - ROUNDING) {
            return Self::latency_rate(rate, latency_s);
        }
        let mut segments = Vec::new();
        if latency_s > 0.0 {
            segments.push(segment(0.0, 0.0, 0.0));
        }
        if rate < f64::INFINITY {
            segments.push(segment(latency_s, 0.0, rate));
            segments.push(segment(latency_s + window / rate, window, 0.0));
        } else {
            segments.push(segment(latency_s, window, 0.0));
        }
        Self::from_segments(
            &segments,
            Tail::Periodic {
                from_s: latency_s,
                period_s: rtt_s,
                increment: window,
            },
        )
    }

    /// Flow control by a static window over any network: `network (x) closure(network (x) delay +
    /// window)`, with the reverse delay in seconds (Lübben & Fidler, equations 2 and 3 solved;
    /// Chang 2000).
    ///
    /// # Errors
    /// `window` is not above 0, `back_s` not 0 to [`MAX_VALUE`]; or as [`Self::closure`] and
    /// [`Self::convolve`].
    pub fn windowed(network: &Self, back_s: f64, window: f64) -> Result<Self, MinPlusError> {
        positive(|| "window".into(), window, MAX_VALUE)?;
        let around = network.later(back_s)?.raised(window)?;
        network.convolve(&around.closure()?)
    }

    /// Service that probes at constant rates prove: `max over r of r [t - d(r)]+`, where `delays_s[i]`
    /// is a quantile of the steady-state delay at `rates[i]` (Lübben & Fidler, equation 7). It holds except
    /// with the sum of the probabilities that the quantiles are exceeded.
    ///
    /// # Errors
    /// No rates, columns of different lengths, a number out of range.
    ///
    /// ```
    /// use pathcast_netcalc::Curve;
    /// let curve = Curve::from_probes(&[2e6, 4e6], &[0.03, 0.05])?;
    /// assert!((curve.at(0.05) - 2e6 * 0.02).abs() < 1e-6);
    /// assert_eq!(curve.rate(), 4e6);
    /// # Ok::<(), pathcast_netcalc::MinPlusError>(())
    /// ```
    pub fn from_probes(rates: &[f64], delays_s: &[f64]) -> Result<Self, MinPlusError> {
        let backlogs = probes(rates, delays_s, ("delays_s", MAX_VALUE))?;
        Self::from_backlogs(
            rates,
            &backlogs
                .map(|(rate, delay_s)| rate * delay_s)
                .collect::<Vec<_>>(),
        )
    }

    /// As [`Self::from_probes`], from quantiles of the backlog: `max over r of [r t - b(r)]+`.
    ///
    /// # Errors
    /// As [`Self::from_probes`].
    pub fn from_backlogs(rates: &[f64], backlogs: &[f64]) -> Result<Self, MinPlusError> {
        let mut lines: Vec<(f64, f64)> =
            probes(rates, backlogs, ("backlogs", MAX_VALUE))?.collect();
        lines.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        // upper envelope of the lines r t - b and 0: (slope, backlog, where it begins to be the largest)
        let mut hull = vec![(0.0, 0.0, 0.0)];
        for (rate, backlog) in lines {
            if rate == 0.0 {
                continue;
            }
            while let Some(&(slope, most, from)) = hull.last() {
                let cross = if rate > slope {
                    (backlog - most) / (rate - slope)
                } else {
                    // the same rate: the smaller backlog comes last
                    f64::NEG_INFINITY
                };
                if cross > from && !is_sliver(from, cross) {
                    checked(|| "time of a probe's share".into(), cross, MAX_VALUE)?;
                    hull.push((rate, backlog, cross));
                    break;
                }
                hull.pop();
                if hull.is_empty() {
                    hull.push((rate, backlog, 0.0));
                    break;
                }
            }
        }
        let segments: Vec<Segment> = hull
            .into_iter()
            .map(|(slope, backlog, from)| segment(from, (slope * from - backlog).max(0.0), slope))
            .collect();
        Self::from_segments(&segments, Tail::Affine)
    }
}

/// Two columns of probes, checked.
fn probes<'a>(
    rates: &'a [f64],
    quantiles: &'a [f64],
    (what, most): (&'static str, f64),
) -> Result<impl Iterator<Item = (f64, f64)> + 'a, MinPlusError> {
    if rates.is_empty() {
        return Err(MinPlusError::Empty("rates"));
    }
    if rates.len() != quantiles.len() {
        return Err(MinPlusError::Length {
            what,
            got: quantiles.len(),
            wanted: rates.len(),
            other: "rates",
        });
    }
    if rates.len() > MAX_SEGMENTS {
        return Err(MinPlusError::TooMany {
            what: "rates",
            got: rates.len() as f64,
            most: MAX_SEGMENTS as f64,
        });
    }
    for (i, (&rate, &quantile)) in rates.iter().zip(quantiles).enumerate() {
        checked(|| format!("rates[{i}]"), rate, MAX_VALUE)?;
        checked(|| format!("{what}[{i}]"), quantile, most)?;
    }
    Ok(rates.iter().copied().zip(quantiles.iter().copied()))
}
