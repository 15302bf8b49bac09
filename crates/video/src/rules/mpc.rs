//! A rule that plans for all rates that a forecast thinks possible, by stochastic dynamic programming.
//!
//! What a session is worth from a segment on depends on the buffer, the last version and the rate's level. From the last
//! planned segment backwards, a table has it for each of them: the best version's bitrate, less what a change of bitrate and
//! the expected stall cost, and what is expected afterwards. After each segment the plan knows how long it took, and only that.

use pathcast_rates::{Rate, RateForecaster};

use super::throughput::{forecaster, observe};
use super::{LONGEST_S, Progress, Seen};
use crate::ladder::Ladder;

/// Segments that are planned.
const AHEAD: usize = 12;
/// Cases of the rate over a segment, equally likely.
const CASES: usize = 7;
/// The rate's level moves by this part of how far the rate was off.
const FOLLOW: f64 = 0.1;
/// Levels of the rate in the table: so many below the present one and above it, this far apart in logarithms.
const BELOW: usize = 5;
const ABOVE: usize = 3;
const APART: f64 = 0.4;
/// Buffers in the table are half a segment apart, if they are no more than this.
const MOST_BUFFERS: usize = 61;
/// A download that runs is looked at so often, in seconds.
const LOOK_S: f64 = 0.5;
/// So much of the rate is on its way when a download is given up, in seconds.
const ON_ITS_WAY_S: f64 = 0.2;
/// No case's rate is below this part of the level.
const LEAST_PART: f64 = 1e-4;

/// See [`Rule::Mpc`](super::Rule::Mpc).
#[derive(Clone, Debug)]
pub(crate) struct Mpc {
    risk: f64,
    rates: RateForecaster,
    running: Option<Running>,
}

/// A download as far as it was looked at, and what is forecast with it.
#[derive(Clone, Debug)]
struct Running {
    rates: RateForecaster,
    seconds: f64,
    bits: f64,
}

impl Mpc {
    pub(super) fn new(risk: f64, ladder: &Ladder) -> Self {
        Self {
            risk,
            rates: forecaster(ladder),
            running: None,
        }
    }

    pub(super) fn choose(&self, seen: &Seen<'_>) -> usize {
        let Some(rate) = self.rates.forecast() else {
            return 0;
        };
        let plan = Plan::new(seen, &rate, self.risk);
        let after = plan.after_the_next();
        seen.most(|version| plan.next(version, seen.ladder.bits(version, seen.segment), &after))
    }

    /// The version that is worth more than to wait for the rest of a download.
    pub(super) fn instead(&mut self, seen: &Seen<'_>, progress: &Progress) -> Option<usize> {
        let running = self.running.get_or_insert_with(|| Running {
            rates: self.rates.clone(),
            seconds: 0.0,
            bits: 0.0,
        });
        let seconds = progress.asked_s - running.seconds;
        if seconds < LOOK_S {
            return None;
        }
        observe(&mut running.rates, seconds, progress.came - running.bits);
        (running.seconds, running.bits) = (progress.asked_s, progress.came);
        let rate = running.rates.forecast()?;
        let plan = Plan::new(seen, &rate, self.risk);
        let left = progress.left();
        if plan.longest_s(left) <= seen.buffer_s {
            return None;
        }
        let after = plan.after_the_next();
        let waits = plan.next(progress.version, left, &after);
        // what is on its way comes before another version
        let on_its_way = left.min(ON_ITS_WAY_S * plan.level_bps);
        let worth = |version: usize| {
            let bits = on_its_way + seen.ladder.bits(version, seen.segment);
            plan.next(version, bits, &after)
        };
        let lower = (0..progress.version).map(|version| (version, worth(version)));
        let best = lower.max_by(|a, b| a.1.total_cmp(&b.1))?;
        (best.1 > waits).then_some(best.0)
    }

    pub(super) fn learn(&mut self, seconds: f64, bits: f64) {
        let Some(running) = self.running.take() else {
            return observe(&mut self.rates, seconds, bits);
        };
        self.rates = running.rates;
        observe(
            &mut self.rates,
            seconds - running.seconds,
            bits - running.bits,
        );
    }
}

/// What a session is worth from a segment on: by level, then by last version, then by buffer.
type Table = Vec<f64>;

/// A version of a segment that is fetched at some level of the rate.
struct Fetch {
    version: usize,
    cases: [Case; CASES],
}

/// How long it takes, and the place of the next level below it in a table, and how far beyond it.
struct Case {
    took_s: f64,
    level: usize,
    of_level: f64,
}

struct Plan<'a> {
    seen: &'a Seen<'a>,
    /// In Mbit/s.
    bitrates: Vec<f64>,
    /// What a second of stall costs, in Mbit/s.
    stall: f64,
    /// What the first second in the buffer is worth at the end of the plan, in Mbit/s, at the present level.
    left: f64,
    /// The rate's level now, in bit/s, and how far the rate over a segment is from it in each case, in logarithms.
    level_bps: f64,
    errors: [f64; CASES],
    /// The buffer that is full, and buffers in the table.
    full_s: f64,
    buffers: usize,
}

impl<'a> Plan<'a> {
    fn new(seen: &'a Seen<'a>, rate: &Rate, risk: f64) -> Self {
        let bitrates = seen.bitrates();
        let segment_s = seen.ladder.segment_s();
        let full_s = seen.full_s();
        let level_bps = rate.point_bps();
        let error = |case: usize| {
            let rate_bps = rate.quantile_bps((case as f64 + 0.5) / CASES as f64);
            libm::log((rate_bps / level_bps).max(LEAST_PART))
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // above 0, and cut off
        let buffers = (2.0 * full_s / segment_s).ceil() as usize + 1;
        Self {
            seen,
            stall: risk * bitrates[bitrates.len() - 1],
            // a second of video that is there saves as much as the path carries in it, and may be spent on one segment; who
            // fears stalls less keeps less
            left: risk.min(1.0) * level_bps / 1e6 / segment_s,
            bitrates,
            level_bps,
            errors: std::array::from_fn(error),
            full_s,
            buffers: buffers.min(MOST_BUFFERS),
        }
    }

    /// What the session is worth after the next segment.
    fn after_the_next(&self) -> Table {
        let mut after = self.at_the_end();
        for segment in self.seen.ahead(AHEAD).skip(1).rev() {
            after = self.before(segment, &after);
        }
        after
    }

    /// What it is worth to have the next segment in a version of which so many bits are to come.
    fn next(&self, version: usize, bits: f64, after: &Table) -> f64 {
        let worth = self.worth(&self.fetch(version, bits, 0.0), self.seen.buffer_s, after);
        worth - self.change(self.seen.last.unwrap_or(version), version)
    }

    /// How long so many bits take in the worst case.
    fn longest_s(&self, bits: f64) -> f64 {
        let took_s = self
            .errors
            .map(|error| self.took_s(bits, error, FOLLOW * error));
        took_s.into_iter().fold(0.0, f64::max)
    }

    fn place(&self, level: usize, version: usize, buffer: usize) -> usize {
        (level * self.bitrates.len() + version) * self.buffers + buffer
    }

    /// A table of what `worth` says of each level (in logarithms from the present one) and last version by buffer.
    fn table<W: Fn(f64) -> f64>(&self, worth: impl Fn(f64, usize) -> W) -> Table {
        let apart_s = self.full_s / (self.buffers - 1) as f64;
        let mut table = Vec::with_capacity(self.place(BELOW + ABOVE + 1, 0, 0));
        for level in 0..=BELOW + ABOVE {
            let level = APART * (level as f64 - BELOW as f64);
            for version in 0..self.bitrates.len() {
                let worth = worth(level, version);
                table.extend((0..self.buffers).map(|buffer| worth(buffer as f64 * apart_s)));
            }
        }
        table
    }

    /// After the last planned segment, a second in the buffer is worth less the more there are, and one above a full buffer
    /// nothing.
    fn at_the_end(&self) -> Table {
        self.table(|level, _| {
            let left = self.left * libm::exp(level);
            move |buffer_s| left * buffer_s * (1.0 - buffer_s / (2.0 * self.full_s))
        })
    }

    /// What the session is worth from `segment` on, by what it is worth after it.
    fn before(&self, segment: usize, after: &Table) -> Table {
        let chosen = self.table(|level, version| {
            let bits = self.seen.ladder.bits(version, segment);
            let fetch = self.fetch(version, bits, level);
            move |buffer_s| self.worth(&fetch, buffer_s, after)
        });
        let versions = self.bitrates.len();
        let mut best = vec![f64::NEG_INFINITY; chosen.len()];
        for level in 0..=BELOW + ABOVE {
            for last in 0..versions {
                for version in 0..versions {
                    let change = self.change(last, version);
                    let (to, from) = (self.place(level, last, 0), self.place(level, version, 0));
                    let chosen = &chosen[from..from + self.buffers];
                    for (best, chosen) in best[to..to + self.buffers].iter_mut().zip(chosen) {
                        *best = best.max(chosen - change);
                    }
                }
            }
        }
        best
    }

    /// What a change of the bitrate costs.
    fn change(&self, last: usize, version: usize) -> f64 {
        (self.bitrates[version] - self.bitrates[last]).abs()
    }

    /// How so many bits of a version are fetched at a level.
    fn fetch(&self, version: usize, bits: f64, level: f64) -> Fetch {
        let cases = self.errors.map(|error| {
            let next = level + FOLLOW * error;
            let took_s = self.took_s(bits, level + error, next);
            let (level, of_level) = between(next / APART + BELOW as f64, BELOW + ABOVE);
            Case {
                took_s,
                level,
                of_level,
            }
        });
        Fetch { version, cases }
    }

    /// What it is worth to fetch it with so much in the buffer, and what comes after it.
    fn worth(&self, fetch: &Fetch, buffer_s: f64, after: &Table) -> f64 {
        let last = self.buffers - 1;
        let worth = fetch.cases.iter().map(|case| {
            let stalled_s = (case.took_s - buffer_s).max(0.0);
            let there_s = self.seen.there_s(buffer_s, case.took_s);
            let (buffer, of_buffer) = between(there_s / self.full_s * last as f64, last);
            let at = |level: usize| {
                let place = self.place(level, fetch.version, buffer);
                after[place] + of_buffer * (after[place + 1] - after[place])
            };
            let (low, high) = (at(case.level), at(case.level + 1));
            low + case.of_level * (high - low) - self.stall * stalled_s
        });
        self.bitrates[fetch.version] + worth.sum::<f64>() / CASES as f64
    }

    /// How long a download takes at a rate that is forecast for the duration of a segment; after it, the rate is at its next
    /// level.
    fn took_s(&self, bits: f64, rate: f64, next: f64) -> f64 {
        let span_s = self.seen.ladder.segment_s();
        let rate_bps = self.level_bps * libm::exp(rate);
        let whole_s = bits / rate_bps;
        if whole_s <= span_s {
            return whole_s;
        }
        let left = bits - span_s * rate_bps;
        (span_s + left / (self.level_bps * libm::exp(next))).min(LONGEST_S)
    }
}

/// The place below `x` in a table from 0 to `last`, and how far beyond it `x` is.
fn between(x: f64, last: usize) -> (usize, f64) {
    let x = x.clamp(0.0, last as f64);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and `last`
    let place = (x as usize).min(last - 1);
    (place, x - place as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::player::PlayerOptions;

    /// The most that the segments from `segment` to `end` are worth at a known rate, by all sequences.
    fn best(plan: &Plan<'_>, segment: usize, end: usize, last: usize, buffer_s: f64) -> f64 {
        if segment == end {
            return plan.left * buffer_s * (1.0 - buffer_s / (2.0 * plan.full_s));
        }
        let worth = |version: usize| {
            let took_s = plan.seen.ladder.bits(version, segment) / plan.level_bps;
            let there_s = ((buffer_s - took_s).max(0.0) + 4.0).min(plan.full_s);
            plan.bitrates[version]
                - plan.change(last, version)
                - plan.stall * (took_s - buffer_s).max(0.0)
                + best(plan, segment + 1, end, version, there_s)
        };
        (0..plan.bitrates.len())
            .map(worth)
            .fold(f64::NEG_INFINITY, f64::max)
    }

    #[test]
    fn where_the_rate_is_known_the_table_has_the_best_of_all_sequences() {
        // versions take 2, 4 and 8 s, and one segment twice as long: buffers are whole places of the table
        let mut sizes = [1_000_000, 2_000_000, 4_000_000].map(|bytes| vec![bytes; 6]);
        sizes.iter_mut().for_each(|sizes| sizes[3] *= 2);
        let ladder = Ladder::constant(4.0, 6, vec![2e6, 4e6, 8e6]).unwrap();
        let ladder = ladder.with_sizes(sizes.to_vec()).unwrap();
        let options = PlayerOptions::default();
        for (buffer_s, last) in [(4.0, 0), (10.0, 2), (22.0, 1), (30.0, 2)] {
            let seen = Seen {
                ladder: &ladder,
                options: &options,
                segment: 1,
                buffer_s,
                last: Some(last),
            };
            let mut rates = forecaster(&ladder);
            observe(&mut rates, 10.0, 40e6);
            let mut plan = Plan::new(&seen, &rates.forecast().unwrap(), 1.0);
            (plan.level_bps, plan.errors) = (4e6, [0.0; CASES]);
            let mut after = plan.at_the_end();
            for segment in [4, 3, 2] {
                after = plan.before(segment, &after);
            }
            let found = (0..3)
                .map(|version| plan.next(version, ladder.bits(version, 1), &after))
                .fold(f64::NEG_INFINITY, f64::max);
            let known = best(&plan, 1, 5, last, buffer_s);
            assert!((found - known).abs() < 1e-9, "{buffer_s}: {found} {known}");
        }
    }

    #[test]
    fn a_rate_that_may_fall_is_worth_what_its_cases_are_on_average() {
        let ladder = Ladder::constant(4.0, 6, vec![2e6, 4e6]).unwrap();
        let options = PlayerOptions::default();
        let seen = Seen {
            ladder: &ladder,
            options: &options,
            segment: 0,
            buffer_s: 4.0,
            last: None,
        };
        let mut rates = forecaster(&ladder);
        observe(&mut rates, 10.0, 40e6);
        let mut plan = Plan::new(&seen, &rates.forecast().unwrap(), 1.0);
        // in one case of seven a quarter of it comes in 4 s, and the rest at 4 Mbit/s less what the level falls
        plan.level_bps = 4e6;
        plan.errors = [0.0; CASES];
        plan.errors[0] = libm::log(0.25);
        let nothing = plan.table(|_, _| |_| 0.0);
        let slow_s = 4.0 + 12e6 / (4e6 * libm::pow(0.25, FOLLOW));
        let expected = 4.0 - plan.stall * (slow_s - 4.0) / 7.0;
        let found = plan.worth(&plan.fetch(1, 16e6, 0.0), 4.0, &nothing);
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }
}
