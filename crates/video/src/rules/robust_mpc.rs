//! A rule that plans for one rate: all sequences of the next segments' versions, by what they give the viewer.

use super::{LONGEST_S, Seen};

/// Segments that are planned.
const AHEAD: usize = 5;

/// What plans are worth at one rate.
struct Plan<'a> {
    seen: &'a Seen<'a>,
    /// How long each version of the next segments takes, in seconds: those of one segment after those of another.
    took_s: Vec<f64>,
    /// In Mbit/s.
    bitrates: &'a [f64],
    /// What a second of stall costs, in Mbit/s.
    stall: f64,
}

impl<'a> Plan<'a> {
    fn new(seen: &'a Seen<'a>, bitrates: &'a [f64], rate_bps: f64, stall: f64) -> Self {
        let took_s = seen.ahead(AHEAD).flat_map(|segment| {
            let versions = 0..bitrates.len();
            versions
                .map(move |version| (seen.ladder.bits(version, segment) / rate_bps).min(LONGEST_S))
        });
        Self {
            seen,
            took_s: took_s.collect(),
            bitrates,
            stall,
        }
    }

    /// What a version of the segment at the beginning of `took_s` is worth, and the buffer after it.
    #[inline]
    fn step(&self, took_s: &[f64], version: usize, last: usize, buffer_s: f64) -> (f64, f64) {
        let took_s = took_s[version];
        let change = (self.bitrates[version] - self.bitrates[last]).abs();
        let worth = self.bitrates[version] - change - self.stall * (took_s - buffer_s).max(0.0);
        (worth, self.seen.there_s(buffer_s, took_s))
    }

    /// The most that the segments of `took_s` are worth.
    fn best(&self, took_s: &[f64], last: usize, buffer_s: f64) -> f64 {
        if took_s.is_empty() {
            return 0.0;
        }
        let rest = &took_s[self.bitrates.len()..];
        let worth = (0..self.bitrates.len()).map(|version| {
            let (worth, buffer_s) = self.step(took_s, version, last, buffer_s);
            worth + self.best(rest, version, buffer_s)
        });
        worth.fold(f64::NEG_INFINITY, f64::max)
    }

    /// What it is worth to take `version` next, and the best after it.
    fn first(&self, version: usize) -> f64 {
        let last = self.seen.last.unwrap_or(version);
        let (worth, buffer_s) = self.step(&self.took_s, version, last, self.seen.buffer_s);
        worth + self.best(&self.took_s[self.bitrates.len()..], version, buffer_s)
    }
}

/// See [`Rule::RobustMpc`](super::Rule::RobustMpc).
#[derive(Clone, Debug, Default)]
pub(crate) struct RobustMpc {
    /// The last five rates, and relative errors of what was expected of them, the newest last.
    rates_bps: Vec<f64>,
    errors: Vec<f64>,
    expected_bps: Option<f64>,
}

/// Rates and errors that count.
const WINDOW: usize = 5;

fn keep(values: &mut Vec<f64>, value: f64) {
    if values.len() == WINDOW {
        values.remove(0);
    }
    values.push(value);
}

impl RobustMpc {
    pub(super) fn choose(&mut self, seen: &Seen<'_>) -> usize {
        if self.rates_bps.is_empty() {
            return 0;
        }
        let over: f64 = self.rates_bps.iter().map(|rate| 1.0 / rate).sum();
        let mean_bps = self.rates_bps.len() as f64 / over;
        self.expected_bps = Some(mean_bps);
        let worst = self.errors.iter().copied().fold(0.0, f64::max);
        let bitrates = seen.bitrates();
        let highest = bitrates[bitrates.len() - 1];
        let plan = Plan::new(seen, &bitrates, mean_bps / (1.0 + worst), highest);
        seen.most(|version| plan.first(version))
    }

    pub(super) fn learn(&mut self, seconds: f64, bits: f64) {
        let rate_bps = bits / seconds;
        if let Some(expected) = self.expected_bps {
            keep(&mut self.errors, (expected - rate_bps).abs() / rate_bps);
        }
        keep(&mut self.rates_bps, rate_bps);
    }
}
