//! When the path changes, what was learned of it before misleads.

use super::forecaster::{Forecaster, SILENCE_S};
use super::notes::Note;
use super::types::Observation;
use crate::types::SAMPLE_S;
use pathcast_analysis::change::{ChangeKind, ChangeRecord};
use pathcast_analysis::rtt::RttSource;

/// Losses that all before a change of the loss rate count as: enough for a curve, soon outweighed.
const LOSSES_KEPT: f64 = 3.0;
/// What experts' errors of before count after a change.
const ERRORS_KEPT: f64 = 0.6;

/// Seconds after a change in which everything is fitted anew each second.
const REFITS_AFTER: u32 = 10;

impl Forecaster {
    /// Takes the next record, with the losses found in it, and drops the past if the path changed.
    pub(super) fn follow_changes(&mut self, record: &Observation, losses: u32) {
        let gap_s = self.last.map_or(0.0, |last| record.time_s - last.time_s);
        if gap_s > SILENCE_S {
            self.changes_of_path.restart();
            return;
        }
        let packets = match (self.last, record.snd_nxt_packets) {
            (Some(last), Some(snd_nxt)) => snd_nxt - last.snd_nxt_packets.unwrap_or(snd_nxt),
            // they come with the next record that knows
            (
                Some(Observation {
                    snd_nxt_packets: Some(_),
                    ..
                }),
                None,
            ) => 0.0,
            (Some(_), None) => self.last_level * gap_s / self.rtt_s,
            (None, _) => 0.0,
        };
        let change = self.changes_of_path.observe(&ChangeRecord {
            time_s: record.time_s,
            cwnd_packets: self.detector.level_packets(),
            packets,
            losses,
            srtt_s: record.srtt_s,
        });
        let Some(change) = change else {
            return;
        };
        self.notes.add(Note::PathChanged);
        match change.kind {
            ChangeKind::Rtt => {
                self.least_srtt_s = record.srtt_s.unwrap_or(f64::INFINITY);
                if self.rtt_source == RttSource::Srtt {
                    self.rtt_s = change.after;
                    self.detector.set_rtt_s(change.after);
                }
            }
            ChangeKind::LossRate => self.hazard.step_to(change.after, LOSSES_KEPT),
        }
        self.forget_samples_before(change.at_s);
        for horizon in &mut self.horizons {
            horizon.pool.forget(ERRORS_KEPT);
        }
        self.refit_until = self.ticks + REFITS_AFTER;
    }

    /// Keeps the samples of the seconds since then, the newest at least.
    fn forget_samples_before(&mut self, time_s: f64) {
        let newest_s = self.start_s + f64::from(self.ticks) * SAMPLE_S;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, at least 1
        let kept = ((newest_s - time_s) / SAMPLE_S).floor().max(1.0) as usize;
        let forgotten = self.samples.len().saturating_sub(kept);
        self.samples.drain(..forgotten);
        self.sample_windows.drain(..forgotten);
        let kept = u32::try_from(self.samples.len()).unwrap_or(u32::MAX);
        self.sum_of_all = (self.samples.iter().sum(), kept);
    }
}
