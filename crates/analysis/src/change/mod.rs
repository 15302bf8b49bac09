//! Detects when a path changes: steps of its round-trip time and of its loss rate, found online.
//! The causes are failures, rerouting and cross traffic (paper, section 4.1; the changing path of
//! section 5.2).
//!
//! Both detectors weigh "the path has changed at a moment" against "it has not", and report a
//! change at a probability of [`SURE`]. The prior is one change in [`CHANGES_EVERY_S`]. They take
//! O(1) a record, and less than 2 KB.

mod loss;
mod rtt;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use serde::Serialize;

use loss::LossSteps;
use rtt::RttSteps;

/// The probability at which a detector reports a change.
pub const SURE: f64 = 0.99;
/// Expected time between path changes before any evidence, seconds. With this value the tests had
/// no false report in 120,000 s of simulated flows on steady paths. With losses in bursts of
/// seconds at fifty times the rate, they had one in about 600 to 1400 s.
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
    /// Estimated time of the change, seconds.
    pub at_s: f64,
    /// When the change was detected, seconds.
    pub detected_s: f64,
    /// The value before it: seconds, or loss events per packet.
    pub before: f64,
    /// The value after it.
    pub after: f64,
    /// Probability of the change, at least [`SURE`].
    pub probability: f64,
}

/// One record's evidence about the path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangeRecord {
    /// Seconds. An earlier time than the newest counts as the newest.
    pub time_s: f64,
    /// Window, packets.
    pub cwnd_packets: f64,
    /// Packets sent since the previous record.
    pub packets: f64,
    /// Loss events found with this record ([`crate::online_curve::Fed`] counts them).
    pub losses: u32,
    /// Smoothed round-trip time, seconds, if known.
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
    /// Changes not yet returned: two may come with the same record.
    waiting: VecDeque<Change>,
}

impl ChangeDetector {
    /// Takes the next record and returns a change if one is detected. If one record reveals two
    /// changes, the second is returned with the next record. Records with non-finite numbers are
    /// ignored.
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

    /// Resets the detector, after the clock was set or when records come from another path.
    pub fn restart(&mut self) {
        *self = Self::default();
    }
}

/// Converts log-odds to a probability.
fn probability(ln_odds: f64) -> f64 {
    1.0 / (1.0 + (-ln_odds).exp())
}
