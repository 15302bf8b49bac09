//! Movements of the sawtooth: up, down, out of slow start, and back after a spurious loss.

use super::detector::EpochDetector;
use super::sawtooth::{BeforeFall, CUT, MIN_UPS, slack};
use super::types::Loss;
use crate::sent_again::EVENT_RTTS;

/// A fall that stays above this share of the window is not a decrease by the CC, so not a loss.
const LOSS_DEPTH: f64 = 0.92;
/// The smallest jump up that may restore a window: growth comes in steps of one or two packets.
const JUMP_PACKETS: f64 = 3.0;

impl EpochDetector {
    pub(super) fn rise(&mut self, t: f64, w: f64) {
        let s = &mut self.now;
        if s.falling {
            self.land(t, w);
        }
        let s = &mut self.now;
        let recovering = s
            .last_loss_s
            .is_some_and(|loss| t - loss < 2.5 * self.rtt_s);
        if recovering && !s.slow_start && (w > s.level + 1.0 || w <= s.ssthresh) {
            // recovery ends: the window jumps to ssthresh, or PRR grows it back to there, and
            // avoidance starts
            (s.avoidance_s, s.avoidance) = (t, w);
        }
        if s.slow_start && s.ssthresh.is_finite() && w >= s.ssthresh {
            s.slow_start = false;
            (s.avoidance_s, s.avoidance) = (t, w);
        }
        s.ups += 1;
        s.level = w;
        s.level_s = t;
    }

    /// Ends a fall: the window grows again, or stays level for a round trip.
    pub(super) fn land(&mut self, t: f64, w: f64) {
        let s = &mut self.now;
        s.falling = false;
        s.ups = 0;
        // a jump ends recovery: growth starts above it
        (s.start_s, s.start) = if w > s.level + 1.0 {
            (t, w)
        } else {
            (s.level_s, s.level)
        };
        (s.avoidance_s, s.avoidance) = (t, s.level);
        if s.unconfirmed {
            s.unconfirmed = false;
            if let Some(before) = &self.before_fall
                && s.low > LOSS_DEPTH * before.state.level
            {
                // losses that the counter reported come before it
                self.losses.truncate(before.losses);
                let b = before.state;
                (s.w_max, s.ssthresh, s.last_loss_s) = (b.w_max, b.ssthresh, b.last_loss_s);
                (s.avoidance_s, s.avoidance) = (b.avoidance_s, b.avoidance);
            }
        }
        // far below the CC's decrease: a timeout, so slow start up to ssthresh
        s.slow_start = s.low < 0.6 * s.ssthresh && s.ssthresh.is_finite();
        (s.probe_s, s.probe) = (t, s.low);
    }

    pub(super) fn sink(&mut self, t: f64, w: f64) {
        let s = &mut self.now;
        s.level = w;
        s.level_s = t;
        s.low = s.low.min(w);
        if let Some(before) = &mut self.before_fall {
            before.low = before.low.min(w);
        }
    }

    pub(super) fn fall(&mut self, t: f64, w: f64) {
        let s = self.now;
        let event_s = EVENT_RTTS * self.rtt_s;
        let same_event = s.last_loss_s.is_some_and(|loss| s.level_s - loss < event_s);
        if !(same_event && self.before_fall.is_some()) {
            self.before_fall = Some(BeforeFall {
                state: s,
                epochs: self.epochs.len(),
                losses: self.losses.len(),
                low: w,
            });
        }
        let counted = self.is_counted(t);
        let sent_again = (self.sent_again).is_some_and(|c| c.rose_since(s.level_s - event_s));
        if counted && !same_event && !sent_again {
            // not because of a loss: the application, or how a window was inferred
            let n = &mut self.now;
            (n.falling, n.unconfirmed, n.ups) = (true, false, 0);
            (n.level_s, n.level, n.low) = (t, w, w);
            (n.avoidance_s, n.avoidance) = (t, w);
            return;
        }
        if s.ups >= MIN_UPS || (!same_event && w < CUT * s.level) {
            self.epochs.push(s.epoch());
        }
        let n = &mut self.now;
        if !same_event {
            if !counted {
                self.losses.push(Loss {
                    time_s: s.level_s,
                    cwnd_packets: s.level,
                });
            }
            self.lost_in_slow_start = s.slow_start;
            n.reduce(&s, self.cc);
            n.unconfirmed = true;
            n.low = w;
        }
        n.falling = true;
        (n.avoidance_s, n.avoidance) = (t, n.ssthresh);
        n.ups = 0;
        n.level = w;
        n.level_s = t;
        n.low = n.low.min(w);
    }

    /// Withdraws the last loss if the window is restored. Returns true if the record is handled.
    pub(super) fn undo(&mut self, t: f64, w: f64) -> bool {
        let Some(before) = &self.before_fall else {
            return false;
        };
        let peak = before.state.level;
        let since_s = t - before.state.level_s;
        // restored by a jump within a timeout (1 s, RFC 6298), or too soon for any CC to grow back
        let jumped = w - self.now.level >= (0.5 * (peak - before.low)).max(JUMP_PACKETS);
        let window_s = if jumped {
            (4.0 * self.rtt_s).max(1.0)
        } else {
            2.0 * self.rtt_s
        };
        if since_s > (4.0 * self.rtt_s).max(1.0) {
            self.before_fall = None;
            return false;
        }
        let deep = before.low < LOSS_DEPTH * peak;
        if !deep || w < 0.97 * peak || w < self.now.level || since_s > window_s {
            return false;
        }
        if w > peak + slack(peak) {
            return false;
        }
        self.epochs.truncate(before.epochs);
        self.losses.truncate(before.losses);
        self.now = before.state;
        self.now.level = w;
        self.now.level_s = t;
        self.before_fall = None;
        self.pending.clear();
        true
    }

    /// Ends slow start (HyStart, ssthresh) when a round trip grows the window by less than a
    /// quarter.
    pub(super) fn end_slow_start(&mut self, t: f64) {
        let s = &mut self.now;
        if !s.slow_start || s.falling || t - s.probe_s < 1.5 * self.rtt_s {
            return;
        }
        if s.level < 1.25 * s.probe && t - s.start_s > 3.0 * self.rtt_s {
            s.slow_start = false;
            (s.avoidance_s, s.avoidance) = (s.level_s, s.level);
            s.w_max = s.w_max.max(s.level);
        }
        (s.probe_s, s.probe) = (t, s.level);
    }
}
