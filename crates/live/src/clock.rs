//! How the clocks of two hosts differ.

use serde::{Deserialize, Serialize};

/// When a question left, arrived, and its answer left and arrived: by the client's, the server's, the
/// server's and the client's clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) asked: u64,
    pub(crate) heard: u64,
    pub(crate) answered: u64,
    pub(crate) learned: u64,
}

/// The oldest question whose answer is accepted.
const OLDEST_NS: u64 = 10_000_000_000;

impl Sample {
    /// What an answer says that came at `learned_ns` by this host's clock; none if it answers nothing that was
    /// asked in the last seconds.
    pub(crate) fn of_answer(times: &[u8; 24], learned_ns: u64) -> Option<Self> {
        let word =
            |at: usize| u64::from_le_bytes(times[at..at + 8].try_into().expect("eight bytes"));
        let asked = word(0);
        let age_ns = learned_ns.checked_sub(asked)?;
        (age_ns <= OLDEST_NS).then_some(Self {
            asked,
            heard: word(8),
            answered: word(16),
            learned: learned_ns,
        })
    }

    /// The round-trip time in the network.
    pub(crate) const fn rtt_ns(&self) -> u64 {
        let away = self.learned.saturating_sub(self.asked);
        away.saturating_sub(self.answered.saturating_sub(self.heard))
    }

    /// The server's clock less the client's, if both ways took the same time  (RFC 5905, section 8).
    fn offset_ns(&self) -> f64 {
        let difference = |server: u64, client: u64| server.wrapping_sub(client) as i64 as f64;
        (difference(self.heard, self.asked) + difference(self.answered, self.learned)) / 2.0
    }
}

/// The server's clock against the client's, over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// The server's clock less the client's when the run began, in seconds.
    pub offset_s: f64,
    /// By how much the server's clock runs faster, in parts per million; 0 if it cannot be estimated.
    pub drift_ppm: f64,
    /// By how much the offset can be wrong at most, whatever the path is like: half the shortest round
    /// trip, in seconds. One-way delays of one direction are too long and those of the other too short
    /// by the same.
    pub error_s: f64,
    /// By how much it is uncertain if the idle path takes the same time both ways, in seconds: the
    /// standard deviation of the shortest round trips about the line.
    pub jitter_s: f64,
    /// The shortest round trip, in seconds.
    pub least_rtt_s: f64,
    /// Questions that were answered.
    pub samples: u32,
}

impl Clock {
    /// Whether the clocks stayed on the line, so that one-way delays can be computed. The round trips that
    /// count differ by no more than this, and so do their offsets, if the clocks drift evenly and the path
    /// stays the same.
    pub(crate) fn is_even(&self) -> bool {
        self.jitter_s * 1e9 <= spare_ns(self.least_rtt_s * 1e9)
    }
}

fn spare_ns(least_ns: f64) -> f64 {
    SPARE_NS.max(SPARE_SHARE * least_ns)
}

/// Round trips longer than the shortest by more than this say little about the offset.
const SPARE_NS: f64 = 50_000.0;
const SPARE_SHARE: f64 = 0.02;
/// The shortest time from which a drift is estimated.
const SHORTEST_SPAN_NS: f64 = 5e9;
/// No crystal is so bad.
const MOST_DRIFT: f64 = 500e-6;

impl Clock {
    /// The line through the offsets of the shortest round trips, as it stands at `origin_ns` of the
    /// client's clock; none without a sample.
    pub(crate) fn estimate(samples: &[Sample], origin_ns: u64) -> Option<Self> {
        let least_ns = samples.iter().map(Sample::rtt_ns).min()? as f64;
        let most_ns = least_ns + spare_ns(least_ns);
        let short: Vec<(f64, f64)> = samples
            .iter()
            .filter(|sample| sample.rtt_ns() as f64 <= most_ns)
            .map(|sample| {
                let middle = sample.asked / 2 + sample.learned / 2;
                (
                    middle.wrapping_sub(origin_ns) as i64 as f64,
                    sample.offset_ns(),
                )
            })
            .collect();
        let mean = |of: &dyn Fn(&(f64, f64)) -> f64| {
            short.iter().map(of).sum::<f64>() / short.len() as f64
        };
        // offsets can be years: what is summed up is their difference from the first
        let base = short[0].1;
        let (at, offset) = (mean(&|p| p.0), mean(&|p| p.1 - base));
        let variance = mean(&|p| (p.0 - at).powi(2));
        let covariance = mean(&|p| (p.0 - at) * (p.1 - base - offset));
        let first = short.iter().map(|p| p.0).fold(f64::INFINITY, f64::min);
        let last = short.iter().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max);
        let drift = match last - first >= SHORTEST_SPAN_NS && variance > 0.0 {
            true => (covariance / variance).clamp(-MOST_DRIFT, MOST_DRIFT),
            false => 0.0,
        };
        let residual = |p: &(f64, f64)| (p.1 - base - offset - drift * (p.0 - at)).powi(2);
        Some(Self {
            offset_s: (base + offset - drift * at) * 1e-9,
            drift_ppm: drift * 1e6,
            error_s: least_ns / 2.0 * 1e-9,
            jitter_s: mean(&residual).sqrt() * 1e-9,
            least_rtt_s: least_ns * 1e-9,
            samples: samples.len() as u32,
        })
    }

    /// What the server's clock shows, `since_s` seconds after the run began, less what the client's
    /// does.
    pub(crate) fn offset_at(&self, since_s: f64) -> f64 {
        self.offset_s + self.drift_ppm * 1e-6 * since_s
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A question asked at `at`, over a path of these delays, to a server whose clock shows `offset`
    /// more and `drift` more a second.
    fn sample(at: f64, out: f64, back: f64, offset: f64, drift: f64) -> Sample {
        let base = 1e12;
        let server = |time: f64| base + time + offset + drift * time;
        Sample {
            asked: (base + at) as u64,
            heard: server(at + out) as u64,
            answered: server(at + out + 20_000.0) as u64,
            learned: (base + at + out + 20_000.0 + back) as u64,
        }
    }

    #[test]
    fn offset_and_drift_are_found_through_queues() {
        let samples: Vec<Sample> = (0..600)
            .map(|i| {
                let queue = f64::from(i * 7919 % 100) * 1e6; // up to 100 ms, now and then none
                let (out, back) = (20e6 + queue, 20e6);
                sample(f64::from(i) * 1e8, out, back, -3e9, 40e-6)
            })
            .collect();
        let clock = Clock::estimate(&samples, 1_000_000_000_000).unwrap();
        assert!((clock.offset_s + 3.0).abs() < 20e-6, "{clock:?}");
        assert!((clock.drift_ppm - 40.0).abs() < 1.0, "{clock:?}");
        assert!(
            (clock.error_s - 0.02).abs() < 1e-4 && clock.jitter_s < 20e-6,
            "{clock:?}"
        );
        assert!((clock.offset_at(50.0) - (-3.0 + 50.0 * 40e-6)).abs() < 50e-6);
    }

    #[test]
    fn a_clock_that_does_not_drift_evenly_is_told() {
        let samples = |bend: f64| -> Vec<Sample> {
            let at = |i: i32| f64::from(i) * 1e8;
            // from the middle on the server's clock runs faster
            let offset = |i: i32| bend * (at(i) - 30e9).max(0.0);
            (0..600)
                .map(|i| sample(at(i), 20e6, 20e6, offset(i), 40e-6))
                .collect()
        };
        for (bend, even) in [(0.0, true), (1e-6, true), (500e-6, false)] {
            let clock = Clock::estimate(&samples(bend), 1_000_000_000_000).unwrap();
            assert_eq!(clock.is_even(), even, "{bend}: {clock:?}");
        }
    }

    #[test]
    fn an_answer_to_nothing_that_was_asked_is_no_sample() {
        let answer = |asked: u64| {
            let mut times = [0; 24];
            times[..8].copy_from_slice(&asked.to_le_bytes());
            Sample::of_answer(&times, 100_000_000_000)
        };
        assert_eq!(answer(99_000_000_000).unwrap().rtt_ns(), 1_000_000_000);
        // a round trip of 100 s would put the beginning of the run off by 200 s, and one of centuries overflow
        for asked in [0, 89_999_999_999, 100_000_000_001, u64::MAX] {
            assert_eq!(answer(asked), None, "{asked}");
        }
    }

    #[test]
    fn without_an_answer_nothing_is_known() {
        assert_eq!(Clock::estimate(&[], 0), None);
    }

    proptest! {
        #[test]
        fn the_error_is_never_more_than_it_says(
            out in 0.0..1e8f64, back in 0.0..1e8f64, offset in -1e11..1e11f64,
            queues in proptest::collection::vec((0.0..1e8f64, 0.0..1e8f64), 1..50),
        ) {
            let queues = queues.iter().enumerate();
            let samples: Vec<Sample> = queues
                .map(|(i, (there, here))| sample(i as f64 * 1e7, out + there, back + here, offset, 0.0))
                .collect();
            let clock = Clock::estimate(&samples, 0).unwrap();
            // of the shortest round trips, those kept are longer by at most this
            let spare_s = (SPARE_NS + SPARE_SHARE * 1e9 * clock.least_rtt_s) * 1e-9;
            prop_assert!((clock.offset_s - offset * 1e-9).abs() <= clock.error_s + spare_s + 1e-6);
        }

        #[test]
        fn hostile_answers_are_only_wrong(
            times in proptest::collection::vec(proptest::array::uniform4(proptest::num::u64::ANY), 1..9),
        ) {
            let samples: Vec<Sample> = times
                .iter()
                .map(|&[asked, heard, answered, learned]| Sample { asked, heard, answered, learned })
                .collect();
            let clock = Clock::estimate(&samples, 5).unwrap();
            prop_assert!(clock.offset_s.is_finite() && clock.error_s.is_finite());
        }
    }
}
