//! Rules that plan: all sequences of the next segments' versions, by what they give the viewer.

use pathcast_rates::RateForecaster;

use super::Seen;
use super::throughput::{forecaster, observe};
use crate::ladder::Ladder;

/// Segments that are planned.
const AHEAD: usize = 5;
/// A download is taken to last this at most, in seconds.
const LONGEST_S: f64 = 100.0;

/// What plans are worth at one rate.
struct Plan<'a> {
    seen: &'a Seen<'a>,
    /// How long each version of the next segments takes, in seconds: those of one segment after those of another.
    took_s: Vec<f64>,
    /// In Mbit/s.
    bitrates: &'a [f64],
    /// What a second of stall costs, in Mbit/s.
    stall: f64,
    /// What the first second in the buffer is worth at the end of the plan, in Mbit/s; each further one is worth less, and
    /// one above a full buffer nothing.
    left: f64,
}

impl<'a> Plan<'a> {
    fn new(seen: &'a Seen<'a>, bitrates: &'a [f64], rate_bps: f64, stall: f64, left: f64) -> Self {
        let ahead = AHEAD.min(seen.ladder.count() - seen.segment);
        let took_s = (seen.segment..seen.segment + ahead).flat_map(|segment| {
            let versions = 0..bitrates.len();
            versions
                .map(move |version| (seen.ladder.bits(version, segment) / rate_bps).min(LONGEST_S))
        });
        Self {
            seen,
            took_s: took_s.collect(),
            bitrates,
            stall,
            left,
        }
    }

    /// The buffer that is full.
    fn full_s(&self) -> f64 {
        self.seen.options.buffer_s.max(self.seen.ladder.segment_s())
    }

    /// What a version of the segment at the beginning of `took_s` is worth, and the buffer after it.
    #[inline]
    fn step(&self, took_s: &[f64], version: usize, last: usize, buffer_s: f64) -> (f64, f64) {
        let took_s = took_s[version];
        let change = (self.bitrates[version] - self.bitrates[last]).abs();
        let worth = self.bitrates[version] - change - self.stall * (took_s - buffer_s).max(0.0);
        let after_s = (buffer_s - took_s).max(0.0) + self.seen.ladder.segment_s();
        (worth, after_s.min(self.full_s()))
    }

    /// The most that the segments of `took_s` are worth.
    fn best(&self, took_s: &[f64], last: usize, buffer_s: f64) -> f64 {
        if took_s.is_empty() {
            return self.left * buffer_s * (1.0 - buffer_s / (2.0 * self.full_s()));
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

/// Bitrates in Mbit/s.
fn bitrates(seen: &Seen<'_>) -> Vec<f64> {
    seen.ladder
        .bitrates_bps()
        .iter()
        .map(|one| one / 1e6)
        .collect()
}

/// The version that is worth most.
fn most(seen: &Seen<'_>, worth: impl Fn(usize) -> f64) -> usize {
    let versions = 0..seen.ladder.bitrates_bps().len();
    let worth = versions.map(|version| (version, worth(version)));
    worth
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map_or(0, |(version, _)| version)
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
        let bitrates = bitrates(seen);
        let highest = bitrates[bitrates.len() - 1];
        let plan = Plan::new(seen, &bitrates, mean_bps / (1.0 + worst), highest, 0.0);
        most(seen, |version| plan.first(version))
    }

    pub(super) fn learn(&mut self, seconds: f64, bits: f64) {
        let rate_bps = bits / seconds;
        if let Some(expected) = self.expected_bps {
            keep(&mut self.errors, (expected - rate_bps).abs() / rate_bps);
        }
        keep(&mut self.rates_bps, rate_bps);
    }
}

/// See [`Rule::Mpc`](super::Rule::Mpc). The rate is a quantile of the forecast in each of several cases, equally likely; after
/// the next segment the plan may know which.
#[derive(Clone, Debug)]
pub(crate) struct Mpc {
    risk: f64,
    rates: RateForecaster,
}

/// Cases.
const CASES: usize = 7;

impl Mpc {
    pub(super) fn new(risk: f64, ladder: &Ladder) -> Self {
        Self {
            risk,
            rates: forecaster(ladder),
        }
    }

    pub(super) fn choose(&self, seen: &Seen<'_>) -> usize {
        let Some(rate) = self.rates.forecast() else {
            return 0;
        };
        let bitrates = bitrates(seen);
        let stall = self.risk * bitrates[bitrates.len() - 1];
        // a second of video that is there saves as much as the path carries in it, and may be spent on one segment; who
        // fears stalls less keeps less
        let left = self.risk.min(1.0) * rate.point_bps() / 1e6 / seen.ladder.segment_s();
        let plans: Vec<Plan<'_>> = (0..CASES)
            .map(|case| {
                let rate_bps = rate.quantile_bps((case as f64 + 0.5) / CASES as f64);
                Plan::new(seen, &bitrates, rate_bps, stall, left)
            })
            .collect();
        most(seen, |version| {
            plans.iter().map(|plan| plan.first(version)).sum()
        })
    }

    pub(super) fn learn(&mut self, seconds: f64, bits: f64) {
        observe(&mut self.rates, seconds, bits);
    }
}
