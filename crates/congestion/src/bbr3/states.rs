//! The state machine (section 5.3): Startup, Drain, ProbeBW's phases and ProbeRTT.

use pathcast_base::{Span, Time};

use super::Bbr3;
use crate::controller::{Ack, RateSample};

/// 4 ln 2 (StartupPacingGain, section 5.6.1).
pub(super) const STARTUP_GAIN: f64 = 2.77;
/// DrainPacingGain (section 5.3.2; the table of section 5.6.1 has 0.5).
const DRAIN_GAIN: f64 = 0.35;
/// Gains of ProbeBW's phases (section 5.6.1).
const DOWN_GAIN: f64 = 0.90;
const UP_GAIN: f64 = 1.25;
/// DefaultCwndGain, and that of UP.
const CWND_GAIN: f64 = 2.0;
const UP_CWND_GAIN: f64 = 2.25;
/// ProbeRTTCwndGain.
pub(super) const PROBE_RTT_CWND_GAIN: f64 = 0.5;
/// Losses in a round trip that end Startup (BBRStartupFullLossCnt).
const STARTUP_LOSSES: u32 = 6;
/// If growth stays below this for `FULL_BW_ROUNDS` rounds, the path is full (section 5.3.1.2).
const FULL_BW_GROWTH: f64 = 1.25;
const FULL_BW_ROUNDS: u32 = 3;
/// ProbeRTTDuration.
const PROBE_RTT: Span = Span::from_millis(200);
/// Round trips between probes at most (section 5.3.3.5.2).
const RENO_ROUNDS: f64 = 63.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    pub(super) const fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// Whether losses are the price of a probe (BBRIsProbingBW).
    pub(super) const fn is_accelerating(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    pub(super) const fn gains(self) -> (f64, f64) {
        match self {
            Self::Startup => (STARTUP_GAIN, CWND_GAIN),
            Self::Drain => (DRAIN_GAIN, CWND_GAIN),
            Self::Down => (DOWN_GAIN, CWND_GAIN),
            Self::Cruise | Self::Refill => (1.0, CWND_GAIN),
            Self::Up => (UP_GAIN, UP_CWND_GAIN),
            Self::ProbeRtt => (1.0, PROBE_RTT_CWND_GAIN),
        }
    }
}

/// Which part of a probe the acknowledgments are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckPhase {
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

impl Bbr3 {
    fn reset_full_bw(&mut self) {
        self.full_bw = 0.0;
        self.full_bw_rounds = 0;
        self.full_bw_now = false;
    }

    pub(super) fn check_full_bw(&mut self, bw: f64, limited: bool) {
        if self.full_bw_now || !self.round_starts || limited {
            return;
        }
        if bw >= self.full_bw * FULL_BW_GROWTH {
            self.reset_full_bw();
            self.full_bw = bw;
            return;
        }
        self.full_bw_rounds += 1;
        self.full_bw_now = self.full_bw_rounds >= FULL_BW_ROUNDS;
        self.full_pipe |= self.full_bw_now;
    }

    /// Whether Startup is over, by its rate or by its losses (section 5.3.1.3).
    pub(super) fn check_startup(&mut self, ack: &Ack, rate: &RateSample) {
        if self.state != State::Startup {
            return;
        }
        if self.loss_round_starts {
            let lossy = self.loss_events >= STARTUP_LOSSES && Self::is_inflight_too_high(rate);
            if lossy && ack.in_recovery() && self.in_recovery {
                self.full_pipe = true;
                self.inflight_longterm = self.bdp(1.0).max(self.inflight_latest);
            }
            self.loss_events = 0;
        }
        if self.full_pipe {
            self.state = State::Drain;
            self.ssthresh = self.with_quanta(self.bdp(1.0));
        }
    }

    pub(super) fn start_down(&mut self, now: Time) {
        self.loss_in_round = false;
        self.bw_latest = 0.0;
        self.inflight_latest = 0.0;
        self.up_acks_per_packet = f64::INFINITY;
        // BBRPickProbeWait: 2 to 3 s, or 62 to 63 round trips
        self.random.stir(now);
        self.rounds_since_probe = self.random.below(2) as u32;
        self.probe_wait = Span::from_secs(2.0 + self.random.uniform());
        self.phase_at = now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round(self.delivered);
        self.state = State::Down;
    }

    pub(super) fn start_refill(&mut self, ack: &Ack) {
        self.reset_short_term_model();
        self.up_rounds = 0;
        self.up_acks = 0.0;
        self.ack_phase = AckPhase::Refilling;
        self.start_round(ack.delivered);
        self.state = State::Refill;
    }

    pub(super) fn start_up(&mut self, ack: &Ack, bw: f64) {
        self.probe_samples = true;
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round(ack.delivered);
        self.reset_full_bw();
        self.full_bw = bw;
        self.state = State::Up;
        self.raise_slope();
    }

    pub(super) fn is_time_to_probe(&self, now: Time) -> bool {
        let reno_rounds = self.target_in_flight().min(RENO_ROUNDS);
        now > self.phase_at + self.probe_wait || f64::from(self.rounds_since_probe) >= reno_rounds
    }

    pub(super) fn update_phase(&mut self, ack: &Ack, rate: &RateSample, bw: f64, limited: bool) {
        if !self.full_pipe {
            return;
        }
        self.adapt_long_term_model(ack, rate, limited);
        let in_flight = ack.in_flight as f64;
        match self.state {
            State::Down | State::Cruise if self.is_time_to_probe(ack.now) => self.start_refill(ack),
            State::Down => {
                let bdp = self.with_quanta(self.max_bw.max() / self.bw().max(1e-9) * self.bdp(1.0));
                if in_flight <= self.in_flight_with_headroom() && in_flight <= bdp {
                    self.state = State::Cruise;
                }
            }
            State::Refill if self.round_starts => self.start_up(ack, bw),
            State::Up => {
                if ack.cwnd_limited && self.cwnd >= self.inflight_longterm {
                    // the bound holds the rate back, and not the path
                    self.reset_full_bw();
                    self.full_bw = bw;
                } else if self.full_bw_now {
                    self.start_down(ack.now);
                }
            }
            _ => {}
        }
    }

    pub(super) fn check_probe_rtt(&mut self, ack: &Ack) {
        if self.state != State::ProbeRtt && self.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd();
            self.state = State::ProbeRtt;
            self.probe_rtt_done_at = None;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round(ack.delivered);
        }
        if self.state == State::ProbeRtt {
            self.limited_until = ack.delivered + ack.in_flight.max(1);
            if self.probe_rtt_done_at.is_some() {
                self.probe_rtt_round_done |= self.round_starts;
                if self.probe_rtt_round_done {
                    self.check_probe_rtt_done(ack.now);
                }
            } else if ack.in_flight as f64 <= self.probe_rtt_cwnd() {
                self.probe_rtt_done_at = Some(ack.now + PROBE_RTT);
                self.probe_rtt_round_done = false;
                self.start_round(ack.delivered);
            }
        }
        self.idle_restart = false;
    }

    pub(super) fn check_probe_rtt_done(&mut self, now: Time) {
        if self.probe_rtt_done_at.is_some_and(|at| now > at) {
            self.probe_rtt_min_at = now;
            self.cwnd = self.cwnd.max(self.prior_cwnd);
            self.reset_short_term_model();
            if self.full_pipe {
                self.start_down(now);
                self.state = State::Cruise;
            } else {
                self.state = State::Startup;
            }
        }
    }
}
