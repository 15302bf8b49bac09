//! The flow's current state.

use super::detector::EpochDetector;
use super::types::{FlowState, Phase};
use pathcast_window_law::Epoch as WindowEpoch;

/// Largest accepted ratio of growth to the law.
const GROWTH_MAX: f64 = 1.5;
/// A window is held if the law would have grown it by this many packets plus this share of it.
const HELD_PACKETS: f64 = 5.0;
const HELD_PART: f64 = 0.01;

impl EpochDetector {
    /// The flow's state at `now_s`, at or after the last record.
    pub fn state(&self, now_s: f64) -> FlowState {
        let s = &self.now;
        let just_lost = s.last_loss_s.is_some_and(|t| now_s - t < self.rtt_s);
        let phase = if s.slow_start {
            Phase::SlowStart
        } else if just_lost || s.falling && now_s - s.level_s < 2.0 * self.rtt_s {
            Phase::Recovery
        } else {
            Phase::Avoidance
        };
        let held_s = match phase {
            Phase::Avoidance => self.held_s(now_s),
            _ => 0.0,
        };
        FlowState {
            phase,
            cwnd_packets: s.level,
            epoch_start_s: s.avoidance_s,
            epoch_start_packets: s.avoidance,
            w_max_packets: s.w_max,
            last_loss_s: s.last_loss_s,
            ssthresh_packets: s.ssthresh,
            growth: self.growth(now_s),
            held_s,
            release_in_s: self.standstill.release_in_s(held_s),
        }
    }

    /// How long the window has stood still, if the law would have moved it by now.
    fn held_s(&self, now_s: f64) -> f64 {
        let s = &self.now;
        let since_s = self.standstill.since_s.max(s.avoidance_s);
        let epoch = WindowEpoch::new(self.cc, s.avoidance.max(1.0), s.w_max, self.rtt_s);
        let law = epoch.window_packets(now_s - s.avoidance_s)
            - epoch.window_packets(since_s - s.avoidance_s);
        if law > HELD_PACKETS + HELD_PART * s.level {
            now_s - since_s
        } else {
            0.0
        }
    }

    /// The window at which the flow is held or was held repeatedly; else infinite.
    pub fn ceiling_packets(&self, now_s: f64) -> f64 {
        if self.state(now_s).held_s > 0.0 {
            return self.now.level;
        }
        self.standstill.usual(self.now.level)
    }

    fn growth(&self, now_s: f64) -> f64 {
        let s = &self.now;
        // the oldest recent level that belongs to this epoch
        let Some(&(then_s, then)) = self.recent.iter().find(|level| level.0 >= s.avoidance_s)
        else {
            return 1.0;
        };
        let epoch = WindowEpoch::new(self.cc, s.avoidance.max(1.0), s.w_max, self.rtt_s);
        let law = epoch.window_packets(now_s - s.avoidance_s)
            - epoch.window_packets(then_s - s.avoidance_s);
        // one pseudo-packet on each side, because short spans are uncertain
        ((s.level - then + 1.0) / (law + 1.0)).clamp(0.0, GROWTH_MAX)
    }
}
