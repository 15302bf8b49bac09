//! Loss epochs and losses, found from the window alone.
//!
//! A congestion-avoidance epoch is a growth that ends when the window falls. Three things in real
//! traces are no loss and must not end an epoch:
//! - *ripples*: the window steps down by a packet and up again;
//! - *excursions*: one to three records far away (a window moderated or borrowed for an instant),
//!   then back where it was;
//! - *undone losses*: the kernel finds a retransmission spurious and restores the window.
//!
//! And the fall itself may take a round trip, packet by packet (rate halving, PRR), with ripples
//! on the way: the epochs between them are epochs of the sawtooth, but one loss event.

use std::collections::VecDeque;

use serde::Serialize;

use crate::sent_again::{EVENT_RTTS, Rise, SentAgain};
use crate::series::Series;
use pathcast_window_law::{Cc, Epoch as WindowEpoch, fast_convergence};

/// Upward steps that make a growth an epoch. Fewer are ripples of recovery.
const MIN_UPS: u32 = 3;
/// Consecutive falling records that end an epoch: one alone is a ripple.
const MIN_DOWNS: usize = 2;
/// A fall to less than this part in one record ends an epoch at once (simulators cut instantly).
/// Half way between no decrease and CUBIC's, in logarithms: sqrt(0.7) = 0.84, rounded up.
const CUT: f64 = 0.87;
/// A fall that stays above this part of the window was no decrease by the CC, so no loss.
const LOSS_DEPTH: f64 = 0.92;
/// Records that an excursion may last.
const EXCURSION_RECORDS: usize = 3;

/// The least jump up that may restore a window: growth comes in steps of one or two packets.
const JUMP_PACKETS: f64 = 3.0;

/// Epochs and losses that are never forgotten.
const KEEP: usize = 8;
/// Seconds over which growth is compared with the law.
const GROWTH_OVER_S: f64 = 5.0;
/// Most by which growth may exceed the law and be believed.
const GROWTH_MAX: f64 = 1.5;

/// A window stands still while it stays this near where it was: packets, part of the window.
const HELD_SLACK_PACKETS: f64 = 2.0;
const HELD_SLACK_PART: f64 = 0.005;
/// It is held if by now the law wants this many packets more, plus this part of the window.
const HELD_PACKETS: f64 = 5.0;
const HELD_PART: f64 = 0.01;
/// Standstills that last longer are learned from, seconds: CUBIC rests so long at its plateau.
const HELD_SCALE_S: f64 = 3.0;

/// An idle sender begins anew: after this long without a record, seconds, and in round trips, ...
const IDLE_S: f64 = 0.9;
const IDLE_RTTS: f64 = 3.0;
/// ... with less than this part of the window, which no decrease leaves, ...
const IDLE_PART: f64 = 0.45;
/// ... but, unlike after a timeout, not with less than the restart window (RFC 6928; Linux halves
/// towards it for each timeout that passed).
const RESTART_PACKETS: f64 = 10.0;

/// One growth of the window and the fall that ends it (the paper's TDP).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Epoch {
    /// When the growth began, seconds.
    pub start_s: f64,
    /// Window there, packets.
    pub start_cwnd: f64,
    /// The last record before the fall, seconds.
    pub end_s: f64,
    /// Window there, packets: where the loss was met.
    pub end_cwnd: f64,
}

/// One loss event: the window fell as the CC makes it fall, and was not restored.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Loss {
    /// The last record before the fall, seconds.
    pub time_s: f64,
    /// Window there, packets.
    pub cwnd_packets: f64,
}

/// What the sender is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Doubling each RTT.
    SlowStart,
    /// Growing by the CC's law.
    Avoidance,
    /// Falling, or less than a round trip after a fall.
    Recovery,
}

/// The state that a forecast is conditioned on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FlowState {
    /// What the sender is doing.
    pub phase: Phase,
    /// The window, excursions removed, packets.
    pub cwnd_packets: f64,
    /// Start of the current avoidance epoch, seconds.
    pub epoch_start_s: f64,
    /// Window there, packets.
    pub epoch_start_packets: f64,
    /// CUBIC's `Wmax` (after fast convergence), packets.
    pub w_max_packets: f64,
    /// Time of the last loss, seconds; `None` before the first.
    pub last_loss_s: Option<f64>,
    /// Where slow start ends, packets; infinite before the first loss.
    pub ssthresh_packets: f64,
    /// Recent growth over the growth that the law wants, while the window grows.
    pub growth: f64,
    /// How long the window has stood still although the law wants it to grow: the application or
    /// the receive window holds the sender back. 0 when it does not.
    pub held_s: f64,
    /// Even odds that the window is let go within this time, seconds; 0 when it is not held.
    pub release_in_s: f64,
}

/// Finds epochs and losses record by record, so that a live service can use it.
///
/// Memory grows with the epochs found; [`EpochDetector::forget_before`] bounds it.
#[derive(Debug, Clone)]
pub struct EpochDetector {
    cc: Cc,
    rtt_s: f64,
    epochs: Vec<Epoch>,
    losses: Vec<Loss>,
    started: bool,
    pending: Vec<(f64, f64)>,
    now: Sawtooth,
    /// State before the fall, should it be undone.
    before_fall: Option<BeforeFall>,
    /// Levels about a fifth of GROWTH_OVER_S apart, oldest first.
    recent: VecDeque<(f64, f64)>,
    standstill: Standstill,
    /// Time of the last record, and the newest sequence number.
    last: Option<(f64, Option<f64>)>,
    lost_in_slow_start: bool,
    /// What was sent again, where the records count it: losses are its rises.
    sent_again: Option<SentAgain>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sawtooth {
    level: f64,
    level_s: f64,
    falling: bool,
    ups: u32,
    start_s: f64,
    start: f64,
    /// Deepest point of the current or last fall.
    low: f64,
    avoidance_s: f64,
    avoidance: f64,
    w_max: f64,
    ssthresh: f64,
    slow_start: bool,
    /// Window about one RTT ago, to see slow start end.
    probe_s: f64,
    probe: f64,
    last_loss_s: Option<f64>,
    /// The last fall was a loss that is not yet known to be deep enough.
    unconfirmed: bool,
}

#[derive(Debug, Clone)]
struct BeforeFall {
    state: Sawtooth,
    epochs: usize,
    losses: usize,
    low: f64,
}

impl Sawtooth {
    /// Slow start from the first window, of which nothing else is known.
    fn begin(t: f64, w: f64) -> Self {
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

    /// The growth up to here.
    fn epoch(&self) -> Epoch {
        Epoch {
            start_s: self.start_s,
            start_cwnd: self.start,
            end_s: self.level_s,
            end_cwnd: self.level,
        }
    }

    /// What a loss at the window of `before` makes of the law's state.
    fn reduce(&mut self, before: &Self, cc: Cc) {
        self.last_loss_s = Some(before.level_s);
        self.w_max = fast_convergence(before.level, before.w_max);
        self.ssthresh = before.level * cc.beta();
        self.slow_start = false;
    }
}

impl EpochDetector {
    /// A detector for one flow; `rtt_s` > 0 need not be exact.
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

    /// A better round-trip time, seconds.
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

    /// Drops epochs and losses that ended before `time_s`, but for the newest few.
    pub fn forget_before(&mut self, time_s: f64) {
        // while a loss may still be withdrawn, positions in both lists are remembered
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

    /// How long the window has stood still, if by now the law would have moved it.
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

    /// The window that the flow is held at, or was held at again and again; else infinite.
    pub fn ceiling_packets(&self, now_s: f64) -> f64 {
        if self.state(now_s).held_s > 0.0 {
            return self.now.level;
        }
        self.standstill.usual(self.now.level)
    }

    fn growth(&self, now_s: f64) -> f64 {
        let s = &self.now;
        // the oldest of the recent levels that belongs to this epoch
        let Some(&(then_s, then)) = self.recent.iter().find(|level| level.0 >= s.avoidance_s)
        else {
            return 1.0;
        };
        let epoch = WindowEpoch::new(self.cc, s.avoidance.max(1.0), s.w_max, self.rtt_s);
        let law = epoch.window_packets(now_s - s.avoidance_s)
            - epoch.window_packets(then_s - s.avoidance_s);
        // one packet of each kind assumed: short spans say little
        ((s.level - then + 1.0) / (law + 1.0)).clamp(0.0, GROWTH_MAX)
    }

    /// Whether the newest loss ended a slow start.
    pub fn lost_in_slow_start(&self) -> bool {
        self.lost_in_slow_start
    }

    /// Takes the next record, with the next sequence number in packets if it is known. True if the
    /// sender was idle and begins anew, which is no loss.
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
        // with a fall under way already, this record is not the first after the pause
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

    /// Takes the counter of packets sent again of the record that [`EpochDetector::observe`] takes next. From the first
    /// call on, falls of the window are losses only where something was sent again.
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
            // the window showed it meanwhile
            Rise::Unseen if newest_s > since_s => return,
            Rise::Unseen | Rise::Event => {}
        }
        // lost at the window before the fall, if that came first
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
                // the window fell for this loss, before it was counted
                if state.ups >= MIN_UPS || self.now.low < CUT * level {
                    self.epochs.push(state.epoch());
                }
                self.lost_in_slow_start = state.slow_start;
                self.now.reduce(&state, self.cc);
            }
        }
    }

    /// Whether losses at this time are those that records count.
    fn is_counted(&self, time_s: f64) -> bool {
        (self.sent_again).is_some_and(|counter| counter.is_known(time_s))
    }

    /// Slow start from the restart window up to three quarters of the window before (RFC 5681,
    /// section 4.1; RFC 7661 and Linux for the threshold).
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
            // the law's clock stood meanwhile
            self.now.avoidance_s += held_s;
        }
    }

    fn take(&mut self, t: f64, w: f64) {
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
            // recovery is over; should the window fall again, that is another loss
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

    /// Decides what the pending records were, now that another has come.
    fn resolve(&mut self, t: f64, w: f64) {
        let level = self.now.level;
        let slack = slack(level);
        let (_, newest) = self.pending[self.pending.len() - 1];
        let waited_s = t - self.pending[0].0;
        let up = newest > level;
        if w >= level && w <= level + slack {
            // back where it was: a ripple or an excursion
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
            // it stays up there: real growth, coarsely sampled
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
            // a fall of one record, then far up: both are excursions, or growth goes on
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
            // one deep cut and growth from there
            self.pending.clear();
            self.fall(t, newest);
            if w > newest {
                self.rise(t, w);
            }
        } else if waited_s > self.rtt_s {
            // a small step down that stays: neither loss nor ripple, go on from here
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
        // recovery may end with a jump, but not above the window that was lost at
        let lost_at = s.ssthresh / self.cc.beta();
        let limit = if recovering {
            lost_at.max(s.level)
        } else {
            s.level
        };
        !s.slow_start && w > limit + slack(limit)
    }

    fn rise(&mut self, t: f64, w: f64) {
        let s = &mut self.now;
        if s.falling {
            self.land(t, w);
        }
        let s = &mut self.now;
        let recovering = s
            .last_loss_s
            .is_some_and(|loss| t - loss < 2.5 * self.rtt_s);
        if recovering && !s.slow_start && (w > s.level + 1.0 || w <= s.ssthresh) {
            // recovery ends: the window jumps to ssthresh, or PRR sends it back up to there, and
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

    /// The fall is over: the window grows again, or rests for a round trip.
    fn land(&mut self, t: f64, w: f64) {
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
                // those that were counted are before it
                self.losses.truncate(before.losses);
                let b = before.state;
                (s.w_max, s.ssthresh, s.last_loss_s) = (b.w_max, b.ssthresh, b.last_loss_s);
                (s.avoidance_s, s.avoidance) = (b.avoidance_s, b.avoidance);
            }
        }
        // far below what the CC decreases to: a timeout, so slow start up to there
        s.slow_start = s.low < 0.6 * s.ssthresh && s.ssthresh.is_finite();
        (s.probe_s, s.probe) = (t, s.low);
    }

    fn sink(&mut self, t: f64, w: f64) {
        let s = &mut self.now;
        s.level = w;
        s.level_s = t;
        s.low = s.low.min(w);
        if let Some(before) = &mut self.before_fall {
            before.low = before.low.min(w);
        }
    }

    fn fall(&mut self, t: f64, w: f64) {
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
            // for another reason than a loss: the application, or what a window was inferred from
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

    /// Withdraws the last loss if the window is back; true if the record is dealt with.
    fn undo(&mut self, t: f64, w: f64) -> bool {
        let Some(before) = &self.before_fall else {
            return false;
        };
        let peak = before.state.level;
        let since_s = t - before.state.level_s;
        // restored by a jump, after at most a timeout (1 s, RFC 6298), or too soon for any CC to regrow
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

    /// Slow start has ended (HyStart, ssthresh) when a round trip no longer grows the window by a quarter.
    fn end_slow_start(&mut self, t: f64) {
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

/// How long windows stand still. Times until release are taken as Pareto distributed from
/// [`HELD_SCALE_S`] on (exponent: Hill 1975): what has been held for long will be held for long.
#[derive(Debug, Clone, Default)]
struct Standstill {
    since_s: f64,
    level: f64,
    released: f64,
    exposure: f64,
    /// Levels of the last two standstills.
    levels: [f64; 2],
}

impl Standstill {
    fn ends_at(&self, level: f64) -> bool {
        (level - self.level).abs() > HELD_SLACK_PACKETS.max(HELD_SLACK_PART * self.level)
    }

    /// Goes on from a new level; true if the window has just been let go.
    fn follow(&mut self, t: f64, level: f64, held_s: f64, lost: bool) -> bool {
        if held_s > HELD_SCALE_S {
            self.released += f64::from(u8::from(!lost));
            self.exposure += (held_s / HELD_SCALE_S).ln();
            self.levels = [self.levels[1], self.level];
        }
        (self.since_s, self.level) = (t, level);
        held_s > 0.0 && !lost
    }

    /// Median of the time that is left.
    fn release_in_s(&self, held_s: f64) -> f64 {
        if held_s <= 0.0 {
            return 0.0;
        }
        let held_s = held_s.max(HELD_SCALE_S);
        // posterior mean of the exponent after one release in one e-fold was assumed
        let exposure = self.exposure + (held_s / HELD_SCALE_S).ln();
        let exponent = ((self.released + 1.0) / (exposure + 1.0)).clamp(0.25, 4.0);
        held_s * ((1.0 / exponent).exp2() - 1.0)
    }

    fn usual(&self, level: f64) -> f64 {
        let [before, last] = self.levels;
        let same = (before - last).abs() <= HELD_SLACK_PACKETS.max(HELD_SLACK_PART * last);
        if last > 0.0 && same && level <= last + slack(last) {
            last.max(level)
        } else {
            f64::INFINITY
        }
    }
}

/// What a series was cut into.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Detection {
    /// Ended epochs, oldest first.
    pub epochs: Vec<Epoch>,
    /// Loss events, oldest first.
    pub losses: Vec<Loss>,
}

/// Epochs and losses of a whole series.
///
/// ```
/// use pathcast_analysis::{Series, find_epochs};
/// use pathcast_window_law::Cc;
/// // Reno from 10 to 20 packets, again and again, one packet per 0.1 s
/// let time: Vec<f64> = (0..110).map(|i| f64::from(i) * 0.1).collect();
/// let cwnd = (0..110).map(|i| f64::from(10 + i % 11)).collect();
/// let found = find_epochs(&Series::new(time, cwnd)?, Cc::Reno, 0.1);
/// assert_eq!(found.losses.len(), 9);
/// assert_eq!(found.epochs[0].end_cwnd, 20.0);
/// # Ok::<(), pathcast_analysis::SeriesError>(())
/// ```
pub fn find_epochs(series: &Series, cc: Cc, rtt_s: f64) -> Detection {
    let mut detector = EpochDetector::new(cc, rtt_s);
    for (i, (&t, &w)) in series
        .time_s()
        .iter()
        .zip(series.cwnd_packets())
        .enumerate()
    {
        if let Some(sent_again) = series.retransmits_at(i) {
            detector.count(t, sent_again);
        }
        detector.observe(t, w, series.snd_nxt_at(i));
    }
    Detection {
        epochs: detector.epochs,
        losses: detector.losses,
    }
}

impl FlowState {
    /// The avoidance epoch that the state is in, for the window law.
    pub fn epoch(&self, cc: Cc, rtt_s: f64) -> WindowEpoch {
        WindowEpoch::new(
            cc,
            self.epoch_start_packets.max(1.0),
            self.w_max_packets,
            rtt_s,
        )
    }
}

/// How far above its level a window may be and still count as having come back.
fn slack(level: f64) -> f64 {
    (0.02 * level).max(3.0)
}
