//! How long a window that the application or the receiver holds stands still.

use super::sawtooth::slack;

/// A window stands still while it stays this near where it was: packets, part of the window.
const HELD_SLACK_PACKETS: f64 = 2.0;
const HELD_SLACK_PART: f64 = 0.005;
/// Standstills that last longer are learned from, seconds: CUBIC rests so long at its plateau.
const HELD_SCALE_S: f64 = 3.0;

/// How long windows stand still. Times until release are taken as Pareto distributed from
/// [`HELD_SCALE_S`] on (exponent: Hill 1975): what has been held for long will be held for long.
#[derive(Debug, Clone, Default)]
pub(super) struct Standstill {
    pub(super) since_s: f64,
    pub(super) level: f64,
    released: f64,
    exposure: f64,
    /// Levels of the last two standstills.
    levels: [f64; 2],
}

impl Standstill {
    pub(super) fn ends_at(&self, level: f64) -> bool {
        (level - self.level).abs() > HELD_SLACK_PACKETS.max(HELD_SLACK_PART * self.level)
    }

    /// Goes on from a new level; true if the window has just been let go.
    pub(super) fn follow(&mut self, t: f64, level: f64, held_s: f64, lost: bool) -> bool {
        if held_s > HELD_SCALE_S {
            self.released += f64::from(u8::from(!lost));
            self.exposure += (held_s / HELD_SCALE_S).ln();
            self.levels = [self.levels[1], self.level];
        }
        (self.since_s, self.level) = (t, level);
        held_s > 0.0 && !lost
    }

    /// Median of the time that is left.
    pub(super) fn release_in_s(&self, held_s: f64) -> f64 {
        if held_s <= 0.0 {
            return 0.0;
        }
        let held_s = held_s.max(HELD_SCALE_S);
        // posterior mean of the exponent after one release in one e-fold was assumed
        let exposure = self.exposure + (held_s / HELD_SCALE_S).ln();
        let exponent = ((self.released + 1.0) / (exposure + 1.0)).clamp(0.25, 4.0);
        held_s * ((1.0 / exponent).exp2() - 1.0)
    }

    pub(super) fn usual(&self, level: f64) -> f64 {
        let [before, last] = self.levels;
        let same = (before - last).abs() <= HELD_SLACK_PACKETS.max(HELD_SLACK_PART * last);
        if last > 0.0 && same && level <= last + slack(last) {
            last.max(level)
        } else {
            f64::INFINITY
        }
    }
}
