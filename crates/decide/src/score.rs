//! Decisions that wait for what happens, and how they fared.

use serde::{Deserialize, Serialize};

/// What is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The version of HTTP for a page.
    Http,
    /// The bitrate of a video segment.
    Bitrate,
    /// The mean rate over the next seconds.
    Throughput,
    /// The time of a transfer.
    Transfer,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Http, Self::Bitrate, Self::Throughput, Self::Transfer];

    /// Its name in answers and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Bitrate => "bitrate",
            Self::Throughput => "throughput",
            Self::Transfer => "transfer",
        }
    }

    /// Its place in [`Kind::ALL`].
    pub const fn number(self) -> usize {
        self as usize
    }
}

/// Most decisions of one prefix that wait.
pub const WAITING: usize = 8;
/// After the end of what was forecast, rates may come in for so many seconds.
const GRACE_S: f64 = 2.0;
/// A decision whose outcome is reported waits for so long, seconds.
const REPORTED_S: f64 = 600.0;
/// Weight that older outcomes keep with each new one.
const KEEP: f32 = 0.98;

/// A decision that waits for its outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// The decision's number.
    pub id: u64,
    /// What was decided.
    pub kind: Kind,
    /// Of the client's address.
    pub client: u32,
    /// When it was made, and until when it holds.
    pub made_s: f64,
    /// The end of the horizon; for outcomes that are reported, none.
    pub until_s: Option<f64>,
    /// What was forecast: 5 %, median and 95 % of a rate in bit/s or of a time in seconds.
    pub band: [f64; 3],
    /// For a bitrate: the rate that must be reached, bit/s.
    pub bound: Option<f64>,
    /// Sum and number of the rates seen since.
    pub seen: (f64, u32),
}

/// How a decision fared.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The decision's number.
    pub id: u64,
    /// What was decided.
    pub kind: Kind,
    /// What happened: a rate in bit/s, or a time in seconds.
    pub truth: f64,
    /// Whether the decision held: the truth was in the band of 90 %; of a bitrate, the segment came in time.
    pub held: bool,
    /// The logarithm of truth over median.
    pub error: f64,
    /// What was forecast.
    pub band: [f64; 3],
    /// From the decision to the end of its horizon, seconds.
    pub horizon_s: f64,
}

impl Waiting {
    /// Whether no outcome is to be expected any more.
    pub fn is_over(&self, now_s: f64) -> bool {
        let end_s = self
            .until_s
            .map_or(self.made_s + REPORTED_S, |end_s| end_s + GRACE_S);
        now_s > end_s || now_s < self.made_s - GRACE_S
    }

    /// Takes a rate of the client; the outcome once the horizon has passed.
    pub fn take(&mut self, time_s: f64, rate_bps: f64) -> Option<Outcome> {
        let until_s = self.until_s?;
        if time_s <= self.made_s {
            return None;
        }
        if time_s <= until_s {
            self.seen = (self.seen.0 + rate_bps, self.seen.1 + 1);
        }
        if time_s < until_s || self.seen.1 == 0 {
            return None;
        }
        Some(self.outcome(self.seen.0 / f64::from(self.seen.1)))
    }

    /// The outcome with what happened.
    pub fn outcome(&self, truth: f64) -> Outcome {
        let held = match self.bound {
            Some(bound) => truth >= bound,
            None => (self.band[0]..=self.band[2]).contains(&truth),
        };
        let floor = |value: f64| value.max(1e-6);
        Outcome {
            id: self.id,
            kind: self.kind,
            truth,
            held,
            error: (floor(truth) / floor(self.band[1])).ln(),
            band: self.band,
            horizon_s: self.until_s.map_or(0.0, |until_s| until_s - self.made_s),
        }
    }
}

/// How decisions of one kind fared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Outcomes in all.
    pub count: u32,
    held: f32,
    error: f32,
    weight: f32,
}

impl Score {
    /// Takes an outcome.
    pub fn add(&mut self, outcome: &Outcome) {
        #[allow(clippy::cast_possible_truncation)] // limited
        let error = outcome.error.abs().min(10.0) as f32;
        self.count = self.count.saturating_add(1);
        self.held = KEEP * self.held + f32::from(u8::from(outcome.held));
        self.error = KEEP * self.error + error;
        self.weight = KEEP * self.weight + 1.0;
    }

    /// The part of decisions that held, the last ones counting most.
    pub fn coverage(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| f64::from(self.held / self.weight))
    }

    /// The mean of how far the median was off, as a part of it.
    pub fn error(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| f64::from(self.error / self.weight).exp_m1())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(bound: Option<f64>) -> Waiting {
        Waiting {
            id: 1,
            kind: Kind::Throughput,
            client: 0,
            made_s: 10.0,
            until_s: Some(14.0),
            band: [1.0, 2.0, 4.0],
            bound,
            seen: (0.0, 0),
        }
    }

    #[test]
    fn the_mean_of_the_rates_until_the_horizon_is_the_truth() {
        let mut one = waiting(None);
        assert_eq!(one.take(10.0, 100.0), None, "it was there before");
        assert_eq!(one.take(11.0, 2.0), None);
        assert_eq!(one.take(13.0, 3.0), None);
        let outcome = one.take(14.5, 100.0).unwrap();
        assert_eq!((outcome.truth, outcome.held), (2.5, true));
        let mut score = Score::default();
        score.add(&outcome);
        assert_eq!(score.coverage(), Some(1.0));
        assert!((score.error().unwrap() - 0.25).abs() < 1e-6);
    }

    #[test]
    fn a_bitrate_holds_if_its_rate_is_reached() {
        assert!(!waiting(Some(3.0)).outcome(2.9).held);
        assert!(waiting(Some(3.0)).outcome(3.1).held);
    }

    #[test]
    fn nobody_waits_without_end() {
        let one = waiting(None);
        assert!(!one.is_over(15.0));
        assert!(one.is_over(17.0));
        assert!(one.is_over(5.0), "the clock was set back");
    }
}
