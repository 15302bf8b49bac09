//! Converts one flow's records to packets and losses at a window.

use serde::Serialize;

use super::OnlineCurve;
use crate::epochs::EpochDetector;
use crate::rtt::ASSUMED_RTT_S;
use crate::series::MAX_CWND_PACKETS;
use pathcast_window_law::Cc;

/// One record of a flow, as a probe provides it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FlowRecord {
    /// Seconds. An earlier time than the newest counts as the newest.
    pub time_s: f64,
    /// Window, packets.
    pub cwnd_packets: f64,
    /// Next sequence number, packets, cumulative. Without it, packets are window over round trip.
    pub snd_nxt_packets: Option<f64>,
    /// Smoothed round-trip time, seconds.
    pub srtt_s: Option<f64>,
    /// Current number of parallel connections, including this one.
    pub npc: u32,
}

/// The packets and losses that a record added.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Fed {
    /// Packets sent since the previous record.
    pub packets: f64,
    /// Loss events found with this record; negative if one was withdrawn.
    pub losses: i32,
}

/// Converts the records of one flow to input of an [`OnlineCurve`]. It takes O(1) a record and some
/// hundred bytes.
///
/// Losses are found from the window, as in [`crate::epochs`]. Records with invalid numbers or
/// windows are ignored.
///
/// ```
/// use pathcast_window_law::Cc;
/// use pathcast_analysis::online_curve::{CurveFeed, FlowRecord, OnlineCurve};
/// let mut curve = OnlineCurve::new(100.0)?;
/// let mut feed = CurveFeed::new(Cc::Reno, Some(0.1));
/// for i in 0..110 {
///     // ten packets up to twenty, again and again
///     let record = FlowRecord {
///         time_s: f64::from(i) * 0.1,
///         cwnd_packets: f64::from(10 + i % 11),
///         snd_nxt_packets: None,
///         srtt_s: None,
///         npc: 1,
///     };
///     feed.observe(&record, &mut curve);
/// }
/// assert_eq!(curve.basis(1).map(|basis| basis.losses), Some(9));
/// # Ok::<(), pathcast_analysis::online_curve::CurveError>(())
/// ```
#[derive(Debug, Clone)]
pub struct CurveFeed {
    detector: EpochDetector,
    rtt_s: f64,
    rtt_given: bool,
    /// With the newest known sequence number.
    last: Option<FlowRecord>,
    /// When the round-trip time was last known, seconds.
    srtt_at_s: Option<f64>,
    last_level: f64,
    /// Counted losses that may still be withdrawn, oldest first: time, window, npc.
    counted: [Option<(f64, f64, u32)>; 4],
    forget_s: f64,
}

impl CurveFeed {
    /// A feed for one flow. `rtt_s` > 0 defaults to the records' srtt, or to 0.1 s.
    pub fn new(cc: Cc, rtt_s: Option<f64>) -> Self {
        let known = rtt_s.filter(|rtt_s| rtt_s.is_finite() && *rtt_s > 0.0);
        let rtt_s = known.unwrap_or(ASSUMED_RTT_S);
        Self {
            detector: EpochDetector::new(cc, rtt_s),
            rtt_s,
            rtt_given: known.is_some(),
            last: None,
            srtt_at_s: None,
            last_level: 0.0,
            counted: [None; 4],
            forget_s: f64::NEG_INFINITY,
        }
    }

    /// Takes the retransmission counter of the record that [`CurveFeed::observe`] takes next. From
    /// then on, the counter determines the losses.
    pub fn count(&mut self, time_s: f64, sent_again: f64) {
        self.detector.count(time_s, sent_again);
    }

    /// Takes the next record and adds its evidence to the path's curve.
    pub fn observe(&mut self, record: &FlowRecord, curve: &mut OnlineCurve) -> Fed {
        let usable = record.time_s.is_finite()
            && record.cwnd_packets > 0.0
            && record.cwnd_packets <= MAX_CWND_PACKETS;
        if !usable {
            return Fed::default();
        }
        let mut now = *record;
        let gap_s = match self.last {
            Some(last) => {
                now.time_s = now.time_s.max(last.time_s);
                now.time_s - last.time_s
            }
            None => 0.0,
        };
        if let Some(srtt_s) = now.srtt_s.filter(|s| s.is_finite() && *s > 0.0)
            && !self.rtt_given
        {
            // as in the forecaster: a slow average of the kernel's faster one
            let keep = (self.srtt_at_s).map_or(0.0, |at_s| (-(now.time_s - at_s) / 5.0).exp());
            self.srtt_at_s = Some(now.time_s);
            self.rtt_s = keep * self.rtt_s + (1.0 - keep) * srtt_s;
            self.detector.set_rtt_s(self.rtt_s);
        }
        self.detector
            .observe(now.time_s, now.cwnd_packets, now.snd_nxt_packets);
        let mut fed = Fed::default();
        if let Some(last) = self.last {
            // a record is written when an acknowledgment arrives, before the sender reacts to it:
            // packets since the previous record were sent at this record's window; without sequence
            // numbers, the previous window held
            let (level, packets) = match (last.snd_nxt_packets, now.snd_nxt_packets) {
                (Some(before), Some(after)) if after.is_finite() => {
                    (self.detector.level_packets(), (after - before).max(0.0))
                }
                // they are counted with the next record that has a sequence number
                (Some(before), _) => {
                    now.snd_nxt_packets = Some(before);
                    (self.last_level, 0.0)
                }
                _ => (self.last_level, self.last_level * gap_s / self.rtt_s),
            };
            fed.packets = packets;
            curve.sent(now.time_s, level, last.npc, packets);
        }
        fed.losses = self.count_losses(now.npc, curve);
        self.last_level = self.detector.level_packets();
        if now.time_s - self.forget_s > 10.0 {
            // epochs are not needed here, and this keeps their lists short
            self.detector.forget_before(now.time_s);
            self.forget_s = now.time_s;
        }
        self.last = Some(now);
        fed
    }

    /// Synchronizes the curve's losses with the detector's, which may withdraw the newest.
    fn count_losses(&mut self, npc: u32, curve: &mut OnlineCurve) -> i32 {
        let newest = self.detector.losses().last().copied();
        let newest_s = newest.map_or(f64::NEG_INFINITY, |loss| loss.time_s);
        let mut change = 0;
        while let [.., Some((time_s, cwnd_packets, npc))] = self.counted
            && time_s > newest_s
        {
            curve.not_lost(time_s, cwnd_packets, npc);
            self.counted.rotate_right(1);
            self.counted[0] = None;
            change -= 1;
        }
        let counted_s = self.counted[3].map_or(f64::NEG_INFINITY, |loss| loss.0);
        if let Some(loss) = newest
            && loss.time_s > counted_s
        {
            curve.lost(loss.time_s, loss.cwnd_packets, npc);
            self.counted.rotate_left(1);
            self.counted[3] = Some((loss.time_s, loss.cwnd_packets, npc));
            change += 1;
        }
        change
    }

    /// The current round-trip time, seconds.
    pub fn rtt_s(&self) -> f64 {
        self.rtt_s
    }
}
