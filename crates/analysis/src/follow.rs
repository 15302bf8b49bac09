//! Follows one path online: its loss curve and its changes, from the records of all its flows.

use serde::Serialize;

use crate::change::{Change, ChangeDetector, ChangeRecord};
use crate::online_curve::{CurveError, CurveFeed, FlowRecord, OnlineCurve};
use crate::rtt::guess_cc;
use crate::series::Series;
use pathcast_window_law::Cc;

/// A change, and the flow that revealed it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FlowChange {
    /// The flow's number.
    pub flow: usize,
    /// The change.
    #[serde(flatten)]
    pub change: Change,
}

/// Follows one path: a curve shared by its flows, and a change detector for each flow.
///
/// After a detected change, the curve forgets everything before it.
#[derive(Debug, Clone)]
pub struct Follower {
    /// p(cwnd, npc) of the sliding window.
    pub curve: OnlineCurve,
    flows: Vec<(CurveFeed, ChangeDetector)>,
}

impl Follower {
    /// A follower without flows, whose curve covers the last `window_s` seconds.
    ///
    /// # Errors
    /// [`CurveError::BadWindow`] if `window_s` is not a positive time.
    pub fn new(window_s: f64) -> Result<Self, CurveError> {
        Ok(Self {
            curve: OnlineCurve::new(window_s)?,
            flows: vec![],
        })
    }

    /// Adds a flow with its congestion control and, if known, its round-trip time in seconds.
    /// Returns the flow's number, from 0.
    pub fn add_flow(&mut self, cc: Cc, rtt_s: Option<f64>) -> usize {
        self.flows
            .push((CurveFeed::new(cc, rtt_s), ChangeDetector::default()));
        self.flows.len() - 1
    }

    /// Takes the retransmission counter of the record that [`Follower::observe`] takes next.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn count(&mut self, flow: usize, time_s: f64, sent_again: f64) {
        self.flows[flow].0.count(time_s, sent_again);
    }

    /// Takes the next record of a flow, numbered by [`Follower::add_flow`], and returns a change if
    /// one is detected.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn observe(&mut self, flow: usize, record: &FlowRecord) -> Option<FlowChange> {
        let (feed, detector) = &mut self.flows[flow];
        let fed = feed.observe(record, &mut self.curve);
        let change = detector.observe(&ChangeRecord {
            time_s: record.time_s,
            cwnd_packets: record.cwnd_packets,
            packets: fed.packets,
            losses: u32::try_from(fed.losses).unwrap_or(0),
            srtt_s: record.srtt_s,
        })?;
        self.curve.forget_before(change.at_s);
        Some(FlowChange { flow, change })
    }
}

/// Follows flows that ran in parallel on one path, with their records in time order. Without a
/// congestion control, it is inferred from each flow's window.
///
/// # Errors
/// [`CurveError::BadWindow`] if `window_s` is not a positive time.
pub fn follow(
    flows: &[Series],
    cc: Option<Cc>,
    rtt_s: Option<f64>,
    window_s: f64,
) -> Result<(Follower, Vec<FlowChange>), CurveError> {
    let mut follower = Follower::new(window_s)?;
    for series in flows {
        follower.add_flow(cc.unwrap_or_else(|| guess_cc(series)), rtt_s);
    }
    let npc = u32::try_from(flows.len()).unwrap_or(u32::MAX);
    let mut next = vec![0; flows.len()];
    let mut changes = vec![];
    while let Some(flow) = (0..flows.len())
        .filter(|&flow| next[flow] < flows[flow].len())
        .min_by(|&a, &b| {
            let at = |flow: usize| flows[flow].time_s()[next[flow]];
            at(a).total_cmp(&at(b))
        })
    {
        let (series, i) = (&flows[flow], next[flow]);
        next[flow] += 1;
        let record = FlowRecord {
            time_s: series.time_s()[i],
            cwnd_packets: series.cwnd_packets()[i],
            snd_nxt_packets: series.snd_nxt_at(i),
            srtt_s: series.srtt_at(i),
            npc,
        };
        if let Some(sent_again) = series.retransmits_at(i) {
            follower.count(flow, record.time_s, sent_again);
        }
        changes.extend(follower.observe(flow, &record));
    }
    Ok((follower, changes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::ChangeKind;

    /// Reno from half of a limit up to it, repeatedly, 0.1 s a packet until `change_s`, 0.2 after.
    fn flow(wall: f64, change_s: f64, until_s: f64) -> Series {
        let (mut time_s, mut cwnd, mut srtt) = (vec![], vec![], vec![]);
        let (mut now_s, mut w) = (0.0, wall / 2.0);
        while now_s < until_s {
            let rtt_s = if now_s < change_s { 0.1 } else { 0.2 };
            time_s.push(now_s);
            cwnd.push(w);
            srtt.push(rtt_s);
            now_s += rtt_s;
            w = if w >= wall { wall / 2.0 } else { w + 1.0 };
        }
        let series = Series::new(time_s, cwnd).unwrap();
        series.with_srtt(srtt).unwrap()
    }

    #[test]
    fn flows_share_a_curve_and_a_change_empties_it() {
        let flows = [flow(40.0, 90.0, 100.0), flow(60.0, 90.0, 100.0)];
        let (follower, changes) = follow(&flows, Some(Cc::Reno), None, 100.0).unwrap();
        let rtt: Vec<_> = (changes.iter())
            .filter(|change| change.change.kind == ChangeKind::Rtt)
            .collect();
        assert_eq!(rtt.len(), 2, "{changes:?}");
        assert_ne!(rtt[0].flow, rtt[1].flow);
        let after = follower.curve.basis(2).unwrap();
        // two flows of 30 and 45 packets per 0.2 s for ten seconds, plus a tenth of the sliding
        // window
        assert!((2000.0..5000.0).contains(&after.packets), "{after:?}");
    }
}
