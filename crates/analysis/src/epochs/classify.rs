//! Classifies each record: growth, a fall, a ripple or an excursion.

use super::detector::EpochDetector;
use super::sawtooth::{CUT, Sawtooth, slack};

/// Consecutive falling records that end an epoch; a single one is a ripple.
const MIN_DOWNS: usize = 2;
/// Most records of an excursion.
const EXCURSION_RECORDS: usize = 3;
/// Seconds over which growth is compared with the law.
const GROWTH_OVER_S: f64 = 5.0;

impl EpochDetector {
    pub(super) fn take(&mut self, t: f64, w: f64) {
        if !self.started {
            self.started = true;
            self.now = Sawtooth::begin(t, w);
            return;
        }
        self.end_slow_start(t);
        if self
            .recent
            .back()
            .is_none_or(|level| t - level.0 >= 0.2 * GROWTH_OVER_S)
        {
            self.recent.push_back((t, self.now.level));
            while self.recent.len() > 1 && t - self.recent[1].0 >= GROWTH_OVER_S {
                self.recent.pop_front();
            }
        }
        if self.before_fall.is_some() && self.undo(t, w) {
            return;
        }
        let reduced = self.now.level <= 1.05 * self.now.ssthresh + 1.0;
        if self.now.falling
            && reduced
            && self.pending.is_empty()
            && t - self.now.level_s > self.rtt_s
        {
            // recovery is over; another fall would be another loss
            self.land(t, self.now.level);
            self.now.level_s = t;
        }
        if self.now.falling {
            if w < self.now.level {
                self.pending.clear();
                self.sink(t, w);
            } else if w > self.now.level {
                if self.is_odd_rise(t, w) && self.pending.is_empty() {
                    self.pending.push((t, w));
                } else {
                    self.pending.clear();
                    self.rise(t, w);
                }
            } else {
                self.pending.clear();
            }
            return;
        }
        if self.pending.is_empty() {
            if w > self.now.level {
                if self.is_odd_rise(t, w) {
                    self.pending.push((t, w));
                } else {
                    self.rise(t, w);
                }
            } else if w < self.now.level {
                self.pending.push((t, w));
            } else {
                self.now.level_s = t;
            }
            return;
        }
        self.resolve(t, w);
    }

    /// Classifies the pending records, now that another has arrived.
    fn resolve(&mut self, t: f64, w: f64) {
        let level = self.now.level;
        let slack = slack(level);
        let (_, newest) = self.pending[self.pending.len() - 1];
        let waited_s = t - self.pending[0].0;
        let up = newest > level;
        if w >= level && w <= level + slack {
            // back at its level: a ripple or an excursion
            self.pending.clear();
            if w > newest {
                self.now.ups += 1;
            }
            self.now.level = w;
            self.now.level_s = t;
        } else if up
            && w >= newest - slack
            && (self.pending.len() >= EXCURSION_RECORDS || waited_s > self.rtt_s)
        {
            // it stays up: real growth, coarsely sampled
            let pending = std::mem::take(&mut self.pending);
            pending
                .into_iter()
                .filter(|p| p.1 > level)
                .for_each(|(t, w)| self.rise(t, w));
            if w > self.now.level {
                self.rise(t, w);
            }
        } else if up {
            if w < level {
                self.pending.clear();
                self.pending.push((t, w));
            } else if self.pending.len() >= EXCURSION_RECORDS || waited_s > self.rtt_s {
                self.pending.clear();
                self.rise(t, w);
            } else {
                self.pending.push((t, w));
            }
        } else if w > level {
            // one falling record, then a large rise: both are excursions, or growth continues
            self.pending.clear();
            if self.is_odd_rise(t, w) {
                self.pending.push((t, w));
            } else {
                self.rise(t, w);
            }
        } else if w < newest && self.pending.len() + 1 >= MIN_DOWNS {
            let (first_s, first) = self.pending[0];
            self.pending.clear();
            self.fall(first_s, first);
            if w < self.now.level {
                self.sink(t, w);
            }
        } else if newest < CUT * level {
            // one deep cut, then growth
            self.pending.clear();
            self.fall(t, newest);
            if w > newest {
                self.rise(t, w);
            }
        } else if waited_s > self.rtt_s {
            // a small step down that stays: neither loss nor ripple; continue from here
            self.pending.clear();
            self.now.level = w;
            self.now.level_s = t;
        } else {
            self.pending[0] = (self.pending[0].0, w);
        }
    }

    fn is_odd_rise(&self, t: f64, w: f64) -> bool {
        let s = &self.now;
        let recovering = s
            .last_loss_s
            .is_some_and(|loss| t - loss < 2.5 * self.rtt_s);
        // recovery may end with a jump, but not above the window at the loss
        let lost_at = s.ssthresh / self.cc.beta();
        let limit = if recovering {
            lost_at.max(s.level)
        } else {
            s.level
        };
        !s.slow_start && w > limit + slack(limit)
    }
}
