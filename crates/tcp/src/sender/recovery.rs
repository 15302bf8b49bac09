//! How a sender recovers from what was lost or marked, and takes it back if nothing was.

use pathcast_base::{Span, Time};
use pathcast_congestion::{Congestion, Signal};

use super::state::{Frto, State};
use super::{NEVER, Sender};
use crate::prr::ProportionalRateReduction;
use crate::scoreboard::Delivery;
use crate::undo::Undo;

impl Sender {
    /// Packet `seq` arrived twice: it was not lost, or its copy was not.
    pub(super) fn on_duplicate(&mut self, seq: u64, delivery: &Delivery) {
        let delivered = self.scoreboard.delivered();
        let prior_delivered = self.scoreboard.prior_delivered(delivery);
        self.reordering.on_duplicate(delivered, prior_delivered);
        if let Some(undo) = &mut self.undo {
            undo.on_duplicate(seq);
        }
    }

    /// Ends recovery if it is over, or if nothing was lost after all.
    #[inline]
    pub(super) fn leave_state(&mut self, delivery: &Delivery, prior_una: u64, echo: Time) {
        let una = self.scoreboard.una();
        let (over, undone) = match (&self.state, &self.undo) {
            // a late report may still show that the last recovery was needless
            (State::Open, undo) => (false, undo.is_some_and(|undo| undo.all_came_twice())),
            (State::Reducing { high_seq, .. }, _) => (una > *high_seq, false),
            (State::Recovery { high_seq, .. }, undo) => {
                let over = una >= *high_seq;
                // a hole that an original filled is reordering (Linux's tcp_try_undo_partial)
                let original = undo.is_some_and(|undo| undo.original_arrived(echo));
                if delivery.advanced && original && !over {
                    let fack = self.scoreboard.fack().max(una);
                    self.reordering.on_reordering(fack - prior_una);
                }
                let settled = over || self.scoreboard.retransmitted() == 0;
                let undone = undo.is_some_and(|undo| {
                    undo.all_came_twice()
                        || (delivery.advanced && settled && undo.original_arrived(echo))
                });
                (over, undone)
            }
            (State::Loss { high_seq, frto }, undo) => {
                // what was never sent again and has arrived was not lost (RFC 5682, step 3b)
                let original = delivery.lowest_original.is_some_and(|seq| seq < *high_seq);
                let undone = undo.is_some_and(|undo| {
                    undo.all_came_twice()
                        || (delivery.advanced && undo.original_arrived(echo))
                        || (*frto != Frto::Off && original)
                });
                (una >= *high_seq, undone)
            }
        };
        if undone && let Some(undo) = self.undo.take() {
            // what was sent after a recovery that is over may be lost all the same
            let whole = matches!(self.state, State::Recovery { .. }) && over;
            if !whole && !matches!(self.state, State::Open) {
                self.scoreboard.unmark_all_lost();
            }
            self.undo_reduction(&undo);
        }
        if over || (undone && !matches!(self.state, State::Open)) {
            if over && !undone && !matches!(self.state, State::Reducing { .. }) {
                self.reordering.on_recovery_end();
            }
            self.state = State::Open;
        }
        if over || undone {
            self.follow_controller();
        }
        let (_, next) = self.una_and_next();
        let has_new = self.has_new();
        self.state.probe_timeout(delivery, next, has_new);
    }

    /// The threshold that a window remembers when it is lowered for another reason than congestion
    /// (Linux's tcp_current_ssthresh).
    pub(super) fn current_ssthresh(&self) -> f64 {
        let ssthresh = self.controller.ssthresh();
        match self.state {
            State::Reducing { .. } | State::Recovery { .. } => ssthresh,
            State::Open | State::Loss { .. } => {
                ssthresh.max((self.cwnd / 2 + self.cwnd / 4) as f64)
            }
        }
    }

    /// Reports a congestion event to the controller; returns how to reduce the window to the new one, if
    /// that is left to the transport.
    pub(super) fn reduce(
        &mut self,
        now: Time,
        signal: Signal,
    ) -> Option<ProportionalRateReduction> {
        let prior_cwnd = self.cwnd as f64;
        let in_flight = self.scoreboard.in_flight();
        self.controller.on_congestion(&Congestion {
            now,
            signal,
            in_flight,
        });
        self.follow_controller();
        (!self.controller.manages_recovery())
            .then(|| ProportionalRateReduction::new(prior_cwnd, self.controller.ssthresh()))
    }

    /// A recovery was needless: the window and the threshold are what they were before it (Linux's
    /// tcp_undo_cwnd_reduction).
    fn undo_reduction(&mut self, undo: &Undo) {
        if !self.controller.manages_recovery() {
            let cwnd = self.cwnd.max(undo.prior_cwnd);
            let ssthresh = self.controller.ssthresh().max(undo.prior_ssthresh);
            self.controller.set_window(cwnd as f64, ssthresh);
        }
        self.controller.on_undo();
    }

    /// Looks for losses; returns how many packets were found lost.
    ///
    /// A packet that is lost begins a recovery unless one is on, whenever it was found: an acknowledgment
    /// that ends a recovery during which later packets were found lost begins the next one (Linux's
    /// tcp_time_to_recover). After a timeout, a copy that is lost does (FLAG_LOST_RETRANS), and what the
    /// reordering timer finds (`timer`).
    #[inline]
    pub(super) fn detect_losses(&mut self, now: Time, timer: bool) -> u64 {
        if self.repairs_as_utp() {
            return self.detect_losses_of_utp(now);
        }
        let in_recovery = matches!(self.state, State::Recovery { .. } | State::Loss { .. });
        let window = self.reordering.span(
            in_recovery,
            self.scoreboard.sacked(),
            self.rtt.min().unwrap_or(Span::ZERO),
            self.rtt.srtt().unwrap_or(Span::ZERO),
        );
        let copies = self.scoreboard.retransmitted();
        let (lost, look_again) = self.scoreboard.detect_losses(now, window);
        self.reorder_at = look_again.unwrap_or(NEVER);
        let begins = match self.state {
            State::Open | State::Reducing { .. } => self.scoreboard.lost() > 0,
            State::Loss { .. } => lost > 0 && (timer || self.scoreboard.retransmitted() < copies),
            State::Recovery { .. } => false,
        };
        if begins {
            self.enter_recovery(now);
        }
        lost
    }

    /// What a needless recovery goes back to, if that is ever found out.
    fn state_before(&self, una: u64) -> Option<Undo> {
        (!self.repairs_as_utp()).then(|| Undo::new(una, self.cwnd, self.current_ssthresh()))
    }

    pub(super) fn enter_recovery(&mut self, now: Time) {
        self.tail_probe.cancel();
        let una = self.scoreboard.una();
        let reduction = if let State::Reducing { reduction, .. } = &mut self.state {
            reduction.take() // no second reduction in one round trip
        } else {
            self.undo = self.state_before(una);
            let reduction = self.reduce(now, Signal::Loss);
            if reduction.is_some() {
                // until the caller's PRR step: room for the first retransmission
                self.cwnd = self.scoreboard.in_flight() + 1;
            }
            reduction
        };
        self.state = State::Recovery {
            high_seq: self.scoreboard.next(),
            reduction,
        };
    }

    pub(super) fn on_timeout(&mut self, now: Time) {
        if let Some(opening) = &mut self.opening {
            self.timeout_at = NEVER;
            if let Some(opening) = opening {
                opening.on_timeout();
            }
            return;
        }
        // what was reduced within this window is not reduced again, nor by a timeout on top of a timeout
        // (RFC 5681, equation 4; Linux's tcp_enter_loss)
        let una = self.scoreboard.una();
        let reduce = match self.state {
            State::Open => true,
            State::Reducing { high_seq, .. } | State::Recovery { high_seq, .. } => una >= high_seq,
            State::Loss { high_seq, .. } => una >= high_seq || self.rtt.backoff() == 0,
        };
        let in_recovery = matches!(self.state, State::Recovery { .. } | State::Loss { .. });
        let frto = match self.repairs_as_utp() || (in_recovery && self.rtt.backoff() == 0) {
            true => Frto::Off,
            false => Frto::TimedOut,
        };
        if reduce {
            self.undo = self.state_before(una);
            self.reduce(now, Signal::Loss);
        }
        self.controller.on_timeout(now);
        self.tail_probe.cancel();
        self.scoreboard.mark_lost_on_timeout(now);
        // what was spared is in flight, and one more may be (Linux's tcp_enter_loss)
        let cwnd = self.scoreboard.in_flight() + 1;
        let ssthresh = self.controller.ssthresh();
        self.controller.set_window(cwnd as f64, ssthresh);
        self.follow_controller();
        self.state = State::Loss {
            high_seq: self.scoreboard.next(),
            frto,
        };
        self.reorder_at = NEVER;
        self.rtt.back_off();
        self.timeout_at = now + self.rtt.rto();
        if self.repairs_as_utp() && self.scoreboard.outstanding() == 0 {
            self.timeout_at = NEVER; // it has opened the window
        }
    }
}
