//! Pacing rate and window (section 5.6).

use pathcast_base::Span;

use super::states::{PROBE_RTT_CWND_GAIN, STARTUP_GAIN, State};
use super::{Bbr3, MIN_WINDOW};
use crate::INITIAL_WINDOW;
use crate::controller::Ack;

/// PacingMarginPercent.
const PACING_MARGIN: f64 = 0.01;

impl Bbr3 {
    /// Paces the initial window by the first round-trip time (bbr_init_pacing_rate_from_rtt).
    pub(super) fn pace_by_rtt(&mut self, rtt: Span) {
        if rtt > Span::ZERO {
            self.seen_rtt = true;
            self.pacing_rate = STARTUP_GAIN * self.cwnd / rtt.as_secs();
        }
    }

    pub(super) fn set_pacing_rate(&mut self, gain: f64) {
        let rate = gain * self.bw() * (1.0 - PACING_MARGIN); // (1)
        if self.full_pipe || rate > self.pacing_rate {
            self.pacing_rate = rate.max(1e-3);
        }
    }

    pub(super) fn probe_rtt_cwnd(&self) -> f64 {
        self.bdp(PROBE_RTT_CWND_GAIN).max(MIN_WINDOW)
    }

    pub(super) fn set_cwnd(&mut self, ack: &Ack, cwnd_gain: f64) {
        let acked = ack.acked_packets as f64;
        let most = self.with_quanta(self.bdp(cwnd_gain) + self.extra_acked.max());
        if self.full_pipe {
            self.cwnd = (self.cwnd + acked).min(most);
        } else if self.cwnd < most || (ack.delivered as f64) < INITIAL_WINDOW {
            self.cwnd += acked;
        }
        self.cwnd = self.cwnd.max(MIN_WINDOW);
        if self.state == State::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        let cap = match self.state {
            State::Down | State::Refill | State::Up => self.inflight_longterm,
            State::ProbeRtt | State::Cruise => self.in_flight_with_headroom(),
            State::Startup | State::Drain => f64::INFINITY,
        };
        self.cwnd = self
            .cwnd
            .min(cap.min(self.inflight_shortterm).max(MIN_WINDOW)); // (2)
    }

    pub(super) fn save_cwnd(&mut self) {
        self.prior_cwnd = if self.in_recovery || self.state == State::ProbeRtt {
            self.prior_cwnd.max(self.cwnd)
        } else {
            self.cwnd
        };
    }

    pub(super) fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        self.in_recovery = false;
    }
}
