//! How long a window stands still while the application or the receiver limits it.

use super::sawtooth::slack;

/// A window stands still while it stays this close to its level: in packets, and as a share of the
/// window.
const HELD_SLACK_PACKETS: f64 = 2.0;
const HELD_SLACK_PART: f64 = 0.005;
/// Only longer standstills are learned from, seconds: CUBIC rests this long at its plateau.
const HELD_SCALE_S: f64 = 3.0;

/// Statistics of standstills. Times until release follow a Pareto distribution from
/// [`HELD_SCALE_S`] on (exponent: Hill 1975): the longer a window was held, the longer it will be
/// held.
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

    /// Continues from a new level. Returns true if the window was just released.
    pub(super) fn follow(&mut self, t: f64, level: f64, held_s: f64, lost: bool) -> bool {
        if held_s > HELD_SCALE_S {
            self.released += f64::from(u8::from(!lost));
            self.exposure += (held_s / HELD_SCALE_S).ln();
            self.levels = [self.levels[1], self.level];
        }
        (self.since_s, self.level) = (t, level);
        held_s > 0.0 && !lost
    }

    /// Median of the remaining time.
    pub(super) fn release_in_s(&self, held_s: f64) -> f64 {
        if held_s <= 0.0 {
            return 0.0;
        }
        let held_s = held_s.max(HELD_SCALE_S);
        // posterior mean of the exponent, with a prior of one release in one e-fold
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
