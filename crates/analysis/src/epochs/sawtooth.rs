//! The sawtooth of the window: its current state, and its state before the last fall.

use super::types::Epoch;
use pathcast_window_law::{Cc, fast_convergence};

/// Upward steps that make a growth an epoch; fewer are ripples of recovery.
pub(super) const MIN_UPS: u32 = 3;
/// A fall below this share in one record ends an epoch immediately (simulators cut instantly). It
/// is half way between no decrease and CUBIC's, in logarithms: sqrt(0.7) = 0.84, rounded up.
pub(super) const CUT: f64 = 0.87;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sawtooth {
    pub(super) level: f64,
    pub(super) level_s: f64,
    pub(super) falling: bool,
    pub(super) ups: u32,
    pub(super) start_s: f64,
    pub(super) start: f64,
    /// Deepest point of the current or last fall.
    pub(super) low: f64,
    pub(super) avoidance_s: f64,
    pub(super) avoidance: f64,
    pub(super) w_max: f64,
    pub(super) ssthresh: f64,
    pub(super) slow_start: bool,
    /// Window about one RTT ago, to detect the end of slow start.
    pub(super) probe_s: f64,
    pub(super) probe: f64,
    pub(super) last_loss_s: Option<f64>,
    /// Whether the last fall counts as a loss but may still prove too shallow.
    pub(super) unconfirmed: bool,
}

#[derive(Debug, Clone)]
pub(super) struct BeforeFall {
    pub(super) state: Sawtooth,
    pub(super) epochs: usize,
    pub(super) losses: usize,
    pub(super) low: f64,
}

impl Sawtooth {
    /// Slow start from the first window.
    pub(super) fn begin(t: f64, w: f64) -> Self {
        Self {
            level: w,
            level_s: t,
            start_s: t,
            start: w,
            low: w,
            avoidance_s: t,
            avoidance: w,
            ssthresh: f64::INFINITY,
            slow_start: true,
            probe_s: t,
            probe: w,
            ..Self::default()
        }
    }

    /// The growth so far.
    pub(super) fn epoch(&self) -> Epoch {
        Epoch {
            start_s: self.start_s,
            start_cwnd: self.start,
            end_s: self.level_s,
            end_cwnd: self.level,
        }
    }

    /// Updates the law's state for a loss at the window of `before`.
    pub(super) fn reduce(&mut self, before: &Self, cc: Cc) {
        self.last_loss_s = Some(before.level_s);
        self.w_max = fast_convergence(before.level, before.w_max);
        self.ssthresh = before.level * cc.beta();
        self.slow_start = false;
    }
}

/// How far above its level a window may be and still count as restored.
pub(super) fn slack(level: f64) -> f64 {
    (0.02 * level).max(3.0)
}
