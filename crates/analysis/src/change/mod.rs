//! When a path changes: steps of its round-trip time and of its loss rate, found as records come in
//! (paper, section 4.1: failures, rerouting, traffic of others; section 5.2's changing path).
//!
//! Both detectors weigh "the path has changed at a moment" against "it has not" and report once the
//! odds are [`SURE`]; before any evidence one change in [`CHANGES_EVERY_S`] is expected. O(1) a record,
//! below 2 KB.

mod loss;
mod rtt;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use serde::Serialize;

use loss::LossSteps;
use rtt::RttSteps;

/// How sure a detector must be before it reports.
pub const SURE: f64 = 0.99;
/// How often a path is expected to change before anything is known of it, seconds. With it there was no
/// false report in 120,000 s of drawn flows on steady paths; where losses came in bunches of seconds
/// that lose fifty times as much, one in some 600 to 1400 s (the tests).
pub const CHANGES_EVERY_S: f64 = 1000.0;

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The round-trip time without queues, seconds.
    Rtt,
    /// Loss events per packet.
    LossRate,
}

/// A change of the path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Change {
    /// What changed.
    pub kind: ChangeKind,
    /// When it is believed to have happened, seconds.
    pub at_s: f64,
    /// When that was known well enough, seconds.
    pub detected_s: f64,
    /// Before it: seconds, or loss events per packet.
    pub before: f64,
    /// After it.
    pub after: f64,
    /// How sure that is, at least [`SURE`].
    pub probability: f64,
}

/// What a record says of the path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangeRecord {
    /// Seconds. A time before the newest counts as that.
    pub time_s: f64,
    /// Window, packets.
    pub cwnd_packets: f64,
    /// Packets sent since the record before.
    pub packets: f64,
    /// Loss events found with this record ([`crate::online_curve::Fed`] counts them).
    pub losses: u32,
    /// Smoothed round-trip time, seconds, if it is known.
    pub srtt_s: Option<f64>,
}

/// Detects changes of one path from one flow's records.
///
/// ```
/// use pathcast_analysis::change::{ChangeDetector, ChangeKind, ChangeRecord};
/// let mut detector = ChangeDetector::default();
/// let mut found = None;
/// for i in 0..600 {
///     let time_s = f64::from(i) * 0.1;
///     let srtt_s = if time_s < 40.0 { 0.1 } else { 0.2 };
///     let record = ChangeRecord {
///         time_s,
///         cwnd_packets: 100.0,
///         packets: 100.0,
///         losses: 0,
///         srtt_s: Some(srtt_s),
///     };
///     found = found.or(detector.observe(&record));
/// }
/// let change = found.expect("the round-trip time doubled");
/// assert_eq!(change.kind, ChangeKind::Rtt);
/// assert!((change.at_s - 40.0).abs() < 1.0 && change.detected_s < 44.0);
/// ```
#[derive(Debug, Clone, Default)]
pub struct ChangeDetector {
    rtt: RttSteps,
    loss: LossSteps,
    last_s: Option<f64>,
    /// Changes not yet told: two may come with the same record.
    waiting: VecDeque<Change>,
}

impl ChangeDetector {
    /// Takes the next record; a change, if one is known by now. Of two that come with the same record
    /// the second is given with the next. Numbers that are not finite are left out.
    pub fn observe(&mut self, record: &ChangeRecord) -> Option<Change> {
        let usable = record.time_s.is_finite() && record.cwnd_packets > 0.0;
        if !usable {
            return self.waiting.pop_front();
        }
        let time_s = self
            .last_s
            .map_or(record.time_s, |last_s| last_s.max(record.time_s));
        self.last_s = Some(time_s);
        let rtt = record
            .srtt_s
            .filter(|srtt_s| srtt_s.is_finite() && *srtt_s > 0.0)
            .and_then(|srtt_s| self.rtt.observe(time_s, srtt_s, record.cwnd_packets));
        let packets = if record.packets.is_finite() {
            record.packets.max(0.0)
        } else {
            0.0
        };
        let loss = self.loss.observe(time_s, packets, record.losses);
        self.waiting.extend(rtt.into_iter().chain(loss));
        self.waiting.pop_front()
    }

    /// Forgets the flow: after the clock was set, or when the record comes from another path.
    pub fn restart(&mut self) {
        *self = Self::default();
    }
}

/// Odds in logarithms as a probability.
fn probability(ln_odds: f64) -> f64 {
    1.0 / (1.0 + (-ln_odds).exp())
}
