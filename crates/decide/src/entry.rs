//! What is known of one client prefix.

use serde::{Deserialize, Serialize};

use crate::curve::Counts;
use crate::halves;
use crate::rate::Rates;
use crate::sample::Sample;
use crate::score::{Kind, Outcome, Score, WAITING, Waiting};

/// Round-trip times kept, half a second apart at least.
const RTTS: usize = 16;
const RTT_STEP_S: f64 = 0.5;
/// A sample of a prefix counts for its groups once in so many seconds, so that no client outweighs the others.
const SHARE_S: f64 = 5.0;

/// What an entry takes at most, in bytes of memory.
pub const ENTRY_BYTES: usize = 8 << 10;

/// Round-trip times: the last ones, and the least of the sliding window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rtts {
    last: [f32; RTTS],
    count: u8,
    next: u8,
    at_s: f64,
    half: i64,
    least: [f32; 2],
}

impl Default for Rtts {
    fn default() -> Self {
        Self {
            last: [0.0; RTTS],
            count: 0,
            next: 0,
            at_s: f64::NEG_INFINITY,
            half: 0,
            least: [f32::INFINITY; 2],
        }
    }
}

impl Rtts {
    #[allow(clippy::cast_possible_truncation)] // seven digits are more than a time has
    fn update(&mut self, now_s: f64, half_s: f64, rtt_s: Option<f64>, min_rtt_s: Option<f64>) {
        let (ahead, place) = halves::go_on(&mut self.half, now_s, half_s);
        if ahead > 0 {
            let before = if ahead == 1 {
                self.least[0]
            } else {
                f32::INFINITY
            };
            self.least = [f32::INFINITY, before];
        }
        for one in [rtt_s, min_rtt_s].into_iter().flatten() {
            self.least[place] = self.least[place].min(one as f32);
        }
        let Some(rtt_s) = rtt_s else { return };
        if (now_s - self.at_s).abs() < RTT_STEP_S {
            return;
        }
        self.at_s = now_s;
        self.last[usize::from(self.next)] = rtt_s as f32;
        self.next = (self.next + 1) % RTTS as u8;
        self.count = (self.count + 1).min(RTTS as u8);
    }

    /// The median of the last ones, or else the least.
    pub fn median_s(&self) -> Option<f64> {
        let count = usize::from(self.count).min(RTTS);
        if count == 0 {
            return self.least_s();
        }
        let mut last = self.last;
        let last = &mut last[..count];
        last.sort_unstable_by(f32::total_cmp);
        Some(f64::from(last[count / 2]))
    }

    /// The least of the sliding window.
    pub fn least_s(&self) -> Option<f64> {
        let least = self.least[0].min(self.least[1]);
        least.is_finite().then(|| f64::from(least))
    }
}

/// What is known of one prefix.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its rates.
    pub rates: Rates,
    /// Its round-trip times.
    pub rtts: Rtts,
    /// Its losses by window.
    pub counts: Counts,
    /// How decisions fared, by kind.
    pub scores: [Score; Kind::ALL.len()],
    /// Samples in all.
    pub samples: u64,
    /// When the newest was taken.
    pub newest_s: f64,
    shared_s: Option<f64>,
    #[serde(skip)]
    waiting: Vec<Waiting>,
}

impl Entry {
    /// Bytes of memory that it has, at most [`ENTRY_BYTES`].
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.rates.heap_bytes()
            + self.counts.heap_bytes()
            + self.waiting.capacity() * size_of::<Waiting>()
    }

    /// Takes a sample; half the sliding window is `half_s` long. Calls `scored` with each decision whose outcome is
    /// known now. Returns whether the sample counts for the prefix's groups.
    pub fn update(
        &mut self,
        sample: &Sample,
        half_s: f64,
        mut scored: impl FnMut(Outcome),
    ) -> bool {
        let now_s = sample.time_s;
        self.samples += 1;
        // an old sample may come late; a clock that was set back stays back
        if now_s > self.newest_s || now_s < self.newest_s - half_s {
            self.newest_s = now_s;
        }
        if let Some(rate_bps) = sample.rate_bps {
            self.take(now_s, sample.client.number, rate_bps, &mut scored);
            self.rates.update(now_s, rate_bps, sample.duration_s);
        }
        if sample.rtt_s.is_some() || sample.min_rtt_s.is_some() {
            self.rtts
                .update(now_s, half_s, sample.rtt_s, sample.min_rtt_s);
        }
        if let Some(sent) = &sample.sent {
            self.counts.update(now_s, half_s, sent);
        }
        let is_due = self
            .shared_s
            .is_none_or(|at_s| (now_s - at_s).abs() >= SHARE_S);
        if is_due {
            self.shared_s = Some(now_s);
        }
        is_due
    }

    fn take(&mut self, now_s: f64, client: u32, rate: f64, scored: &mut impl FnMut(Outcome)) {
        if self.waiting.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain_mut(|one| {
            let outcome = match one.client == client {
                true => one.take(now_s, rate),
                false => None,
            };
            match outcome {
                Some(outcome) => {
                    scored(self.score(outcome));
                    false
                }
                None => !one.is_over(now_s),
            }
        });
        self.waiting = waiting;
    }

    /// Takes the outcome of a decision.
    pub fn score(&mut self, outcome: Outcome) -> Outcome {
        self.scores[outcome.kind.number()].add(&outcome);
        if outcome.kind == Kind::Throughput {
            let [low, _, high] = outcome.band;
            self.rates.score(low, high, outcome.truth);
        }
        outcome
    }

    /// Notes a decision, to be scored. Of many at a time some are left out: whether it will be scored.
    pub fn wait(&mut self, decision: Waiting, now_s: f64) -> bool {
        if self.waiting.len() >= WAITING {
            self.waiting.retain(|one| !one.is_over(now_s));
        }
        let has_room = self.waiting.len() < WAITING;
        if has_room {
            self.waiting.push(decision);
        }
        has_room
    }

    /// The decision with this number, if it waits.
    pub fn waits(&mut self, id: u64) -> Option<Waiting> {
        let at = self.waiting.iter().position(|one| one.id == id)?;
        Some(self.waiting.swap_remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Client, Sent};

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let client = Client::parse("192.0.2.7").unwrap();
        let mut entry = Entry::default();
        for number in 0..40_000_u32 {
            let time_s = 0.3 * f64::from(number);
            let sample = Sample {
                client,
                time_s,
                rate_bps: Some(1e6 * f64::from(1 + number % 17)),
                duration_s: None,
                rtt_s: Some(0.05),
                min_rtt_s: Some(0.04),
                sent: Some(Sent {
                    cwnd_packets: f64::from(1 + number * 7919 % 50_000),
                    npc: (number % 7) as u8,
                    packets: 100.0,
                    losses: 1.0,
                }),
            };
            entry.update(&sample, 300.0, |_| ());
            let decision = Waiting {
                id: number.into(),
                kind: Kind::Http,
                client: client.number,
                made_s: time_s,
                until_s: None,
                band: [1.0; 3],
                bound: None,
                seen: (0.0, 0),
            };
            entry.wait(decision, time_s);
        }
        assert!(entry.bytes() <= ENTRY_BYTES, "{}", entry.bytes());
        assert!(entry.bytes() > ENTRY_BYTES / 2, "{}", entry.bytes());
    }
}
