//! The detector, which works record by record.

use std::collections::VecDeque;

use super::sawtooth::{BeforeFall, CUT, MIN_UPS, Sawtooth};
use super::standstill::Standstill;
use super::types::{Epoch, Loss};
use crate::sent_again::{EVENT_RTTS, Rise, SentAgain};
use pathcast_window_law::Cc;

/// The newest epochs and losses are never forgotten.
const KEEP: usize = 8;
/// An idle sender restarts: after this long without a record, in seconds and in round trips, ...
const IDLE_S: f64 = 0.9;
const IDLE_RTTS: f64 = 3.0;
/// ... with less than this share of the window, which no decrease reaches, ...
const IDLE_PART: f64 = 0.45;
/// ... but not below the restart window, unlike after a timeout (RFC 6928; Linux halves towards it
/// for each timeout that passed).
const RESTART_PACKETS: f64 = 10.0;

/// Finds epochs and losses record by record, for use in live services.
///
/// Memory grows with the epochs found; [`EpochDetector::forget_before`] bounds it.
#[derive(Debug, Clone)]
pub struct EpochDetector {
    pub(super) cc: Cc,
    pub(super) rtt_s: f64,
    pub(super) epochs: Vec<Epoch>,
    pub(super) losses: Vec<Loss>,
    pub(super) started: bool,
    pub(super) pending: Vec<(f64, f64)>,
    pub(super) now: Sawtooth,
    /// State before the fall, to restore if the fall is undone.
    pub(super) before_fall: Option<BeforeFall>,
    /// Levels about a fifth of GROWTH_OVER_S apart, oldest first.
    pub(super) recent: VecDeque<(f64, f64)>,
    pub(super) standstill: Standstill,
    /// Time of the last record, and the newest sequence number.
    last: Option<(f64, Option<f64>)>,
    pub(super) lost_in_slow_start: bool,
    /// The retransmission counter, if the records have one: losses are its rises.
    pub(super) sent_again: Option<SentAgain>,
}

impl EpochDetector {
    /// A detector for one flow; `rtt_s` > 0 may be approximate.
    pub fn new(cc: Cc, rtt_s: f64) -> Self {
        Self {
            cc,
            rtt_s,
            epochs: Vec::new(),
            losses: Vec::new(),
            started: false,
            pending: Vec::new(),
            now: Sawtooth::default(),
            before_fall: None,
            recent: VecDeque::new(),
            standstill: Standstill::default(),
            last: None,
            lost_in_slow_start: false,
            sent_again: None,
        }
    }

    /// Sets a better round-trip time, seconds.
    pub fn set_rtt_s(&mut self, rtt_s: f64) {
        self.rtt_s = rtt_s;
    }

    /// Ended epochs, oldest first. The newest may be withdrawn when a loss proves spurious.
    pub fn epochs(&self) -> &[Epoch] {
        &self.epochs
    }

    /// Loss events, oldest first. The newest may be withdrawn when it proves spurious.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Drops epochs and losses that ended before `time_s`, except for the newest few.
    pub fn forget_before(&mut self, time_s: f64) {
        // positions in both lists are remembered while a loss may still be withdrawn
        if self.before_fall.is_none() {
            let old = self.epochs.partition_point(|epoch| epoch.end_s < time_s);
            self.epochs
                .drain(..old.min(self.epochs.len().saturating_sub(KEEP)));
            let old = self.losses.partition_point(|loss| loss.time_s < time_s);
            self.losses
                .drain(..old.min(self.losses.len().saturating_sub(KEEP)));
        }
    }

    /// The window, excursions removed, packets.
    pub fn level_packets(&self) -> f64 {
        self.now.level
    }

    /// Time of the last loss, seconds; `None` before the first.
    pub fn last_loss_s(&self) -> Option<f64> {
        self.now.last_loss_s
    }

    /// Whether the newest loss ended a slow start.
    pub fn lost_in_slow_start(&self) -> bool {
        self.lost_in_slow_start
    }

    /// Takes the next record, with the next sequence number in packets if known. Returns true if
    /// the sender was idle and restarts, which is not a loss.
    pub fn observe(
        &mut self,
        time_s: f64,
        cwnd_packets: f64,
        snd_nxt_packets: Option<f64>,
    ) -> bool {
        let newest = snd_nxt_packets.or(self.last.and_then(|last| last.1));
        let last = self.last.replace((time_s, newest));
        let level = self.now.level;
        let idle = last.is_some_and(|(last_s, before)| {
            let quiet = match (before, snd_nxt_packets) {
                (Some(before), Some(after)) => after - before <= level,
                _ => true,
            };
            quiet && time_s - last_s > IDLE_S.max(IDLE_RTTS * self.rtt_s)
        });
        // during a fall, this record is not the first after the pause
        let restarts = idle
            && self.pending.is_empty()
            && cwnd_packets < IDLE_PART * level
            && cwnd_packets >= RESTART_PACKETS.min(level);
        if restarts {
            self.begin_anew(time_s, cwnd_packets);
        } else {
            self.push(time_s, cwnd_packets);
        }
        restarts
    }

    /// Takes the retransmission counter of the record that [`EpochDetector::observe`] takes next.
    /// After the first call, falls of the window are losses only with retransmissions.
    pub fn count(&mut self, time_s: f64, sent_again: f64) {
        let Some(counter) = &mut self.sent_again else {
            self.sent_again = Some(SentAgain::new(time_s, sent_again));
            return;
        };
        let since_s = counter.known_s();
        let rise = counter.observe(time_s, sent_again, self.rtt_s);
        let newest_s = self.losses.last().map_or(f64::NEG_INFINITY, |l| l.time_s);
        match rise {
            Rise::None => return,
            // the window already showed the loss
            Rise::Unseen if newest_s > since_s => return,
            Rise::Unseen | Rise::Event => {}
        }
        // the loss happened at the window before the fall, if the fall came first
        let event_s = EVENT_RTTS * self.rtt_s;
        let fallen = (self.before_fall.as_ref())
            .filter(|before| before.state.level_s > newest_s)
            .filter(|before| self.now.falling || time_s - before.state.level_s < event_s)
            .map(|before| (before.state.level_s, before.state.level));
        let (level_s, level) = fallen.unwrap_or((self.now.level_s, self.now.level));
        self.losses.push(Loss {
            time_s: if level_s > newest_s { level_s } else { time_s },
            cwnd_packets: level,
        });
        self.lost_in_slow_start = self.now.slow_start;
        if let Some(before) = &mut self.before_fall {
            before.losses = self.losses.len();
            let state = before.state;
            if fallen.is_some() && self.now.last_loss_s.is_none_or(|loss| loss < level_s) {
                // the window fell for this loss before the counter rose
                if state.ups >= MIN_UPS || self.now.low < CUT * level {
                    self.epochs.push(state.epoch());
                }
                self.lost_in_slow_start = state.slow_start;
                self.now.reduce(&state, self.cc);
            }
        }
    }

    /// Whether losses at this time are determined by the counter.
    pub(super) fn is_counted(&self, time_s: f64) -> bool {
        (self.sent_again).is_some_and(|counter| counter.is_known(time_s))
    }

    /// Begins slow start from the restart window up to three quarters of the previous window. See
    /// RFC 5681, section 4.1; for the threshold RFC 7661 and Linux.
    fn begin_anew(&mut self, t: f64, w: f64) {
        self.pending.clear();
        self.before_fall = None;
        self.recent.clear();
        let ssthresh = if self.now.ssthresh.is_finite() {
            self.now.ssthresh.max(0.75 * self.now.level)
        } else {
            f64::INFINITY
        };
        self.now = Sawtooth {
            w_max: self.now.w_max,
            ssthresh,
            last_loss_s: self.now.last_loss_s,
            ..Sawtooth::begin(t, w)
        };
        (self.standstill.since_s, self.standstill.level) = (t, w);
    }

    /// Takes the next record.
    pub fn push(&mut self, time_s: f64, cwnd_packets: f64) {
        let (before, losses) = (self.now, self.losses.len());
        self.take(time_s, cwnd_packets);
        let level = self.now.level;
        if !self.standstill.ends_at(level) {
            return;
        }
        let held_s = if before.avoidance > 0.0 {
            let after = std::mem::replace(&mut self.now, before);
            let held_s = self.state(time_s).held_s;
            self.now = after;
            held_s
        } else {
            0.0
        };
        let lost = self.losses.len() > losses || self.now.falling;
        let released = (self.standstill).follow(time_s, level, held_s, lost);
        if released {
            // the law's clock stood still meanwhile
            self.now.avoidance_s += held_s;
        }
    }
}
