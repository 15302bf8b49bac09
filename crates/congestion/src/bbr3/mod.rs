//! BBR, version 3 (draft-ietf-ccwg-bbr-04): version 1's model, bounded by losses.
//!
//! In addition to the rate and the RTT, the model has two volumes and a second rate:
//!
//! ```text
//! bw  = min(max_bw, bw_shortterm)
//! pacing rate = 0.99 pacing_gain bw                                           (1)
//! cwnd = min(cwnd_gain bw min_rtt + extra_acked, inflight_longterm, inflight_shortterm)   (2)
//! ```
//!
//! `inflight_longterm` (`inflight_hi` in Linux) is the volume at which probing lost more than 2 % of a
//! round trip; `bw_shortterm` and `inflight_shortterm` (`bw_lo`, `inflight_lo`) follow what was
//! delivered after losses at other times, and are forgotten at each probe. ProbeBW goes from DOWN
//! (drain, leave room) to CRUISE, and after two to three seconds, or as many round trips as Reno would
//! need, to REFILL and UP, where it probes for more. ProbeRTT comes every five seconds and halves the
//! window only.
//!
//! Where this differs from the draft: the transport reports how many packets were lost, not which. So the
//! volume at which losses crossed the threshold is that of the packet whose acknowledgment showed them, and
//! a run of losses is an acknowledgment that showed losses (as in Linux). There is no ECN: the draft leaves
//! it out, and Linux uses it only on paths known for shallow marks. Packets are paced one by one.

mod model;
mod states;
mod window;

#[cfg(test)]
mod tests;

use pathcast_base::{Span, Time};

use self::states::{AckPhase, STARTUP_GAIN, State};
use crate::INITIAL_WINDOW;
use crate::controller::{Ack, Belief, Congestion, Controller, Mode};
use crate::random::SplitMix64;
use crate::scheme::Kind;
use crate::window_filter::RoundMax;

/// MinPipeCwnd.
const MIN_WINDOW: f64 = 4.0;
/// BBRExtraAckedFilterLen.
const EXTRA_ACKED_ROUNDS: usize = 10;

/// BBR's state.
#[derive(Clone, Debug)]
pub struct Bbr3 {
    state: State,
    cwnd: f64,
    ssthresh: f64,
    prior_cwnd: f64,
    pacing_rate: f64,
    seen_rtt: bool,
    in_recovery: bool,

    round: u64,
    round_starts: bool,
    next_round_delivered: u64,
    /// Largest rate of this probing cycle and of the one before.
    max_bw: RoundMax<2>,
    cycle: u64,
    /// Ignores samples of packets sent before this many were delivered (ProbeRTT).
    limited_until: u64,

    full_bw: f64,
    full_bw_rounds: u32,
    full_bw_now: bool,
    full_pipe: bool,

    min_rtt: Option<Span>,
    min_rtt_at: Time,
    probe_rtt_min: Option<Span>,
    probe_rtt_min_at: Time,
    probe_rtt_expired: bool,
    probe_rtt_done_at: Option<Time>,
    probe_rtt_round_done: bool,
    idle_restart: bool,

    phase_at: Time,
    ack_phase: AckPhase,
    probe_wait: Span,
    rounds_since_probe: u32,
    probe_samples: bool,
    up_rounds: u32,
    up_acks: f64,
    up_acks_per_packet: f64,
    random: SplitMix64,

    inflight_longterm: f64,
    bw_shortterm: f64,
    inflight_shortterm: f64,
    bw_latest: f64,
    inflight_latest: f64,
    loss_round_delivered: u64,
    loss_round_starts: bool,
    loss_in_round: bool,
    loss_events: u32,

    extra_acked: RoundMax<EXTRA_ACKED_ROUNDS>,
    epoch_at: Time,
    epoch_acked: f64,
    /// Packets delivered so far.
    delivered: u64,
}

impl Bbr3 {
    /// A new connection's controller; `seed` goes into the times between probes.
    pub fn new(seed: u64) -> Self {
        Self {
            state: State::Startup,
            cwnd: INITIAL_WINDOW,
            ssthresh: f64::INFINITY,
            prior_cwnd: 0.0,
            pacing_rate: STARTUP_GAIN * INITIAL_WINDOW / 1e-3, // BBRInitPacingRate: 1 ms
            seen_rtt: false,
            in_recovery: false,
            round: 0,
            round_starts: false,
            next_round_delivered: 0,
            max_bw: RoundMax::new(),
            cycle: 0,
            limited_until: 0,
            full_bw: 0.0,
            full_bw_rounds: 0,
            full_bw_now: false,
            full_pipe: false,
            min_rtt: None,
            min_rtt_at: Time::ZERO,
            probe_rtt_min: None,
            probe_rtt_min_at: Time::ZERO,
            probe_rtt_expired: false,
            probe_rtt_done_at: None,
            probe_rtt_round_done: false,
            idle_restart: false,
            phase_at: Time::ZERO,
            ack_phase: AckPhase::ProbeStopping,
            probe_wait: Span::ZERO,
            rounds_since_probe: 0,
            probe_samples: false,
            up_rounds: 0,
            up_acks: 0.0,
            up_acks_per_packet: f64::INFINITY,
            random: SplitMix64::new(seed),
            inflight_longterm: f64::INFINITY,
            bw_shortterm: f64::INFINITY,
            inflight_shortterm: f64::INFINITY,
            bw_latest: 0.0,
            inflight_latest: 0.0,
            loss_round_delivered: 0,
            loss_round_starts: false,
            loss_in_round: false,
            loss_events: 0,
            extra_acked: RoundMax::new(),
            epoch_at: Time::ZERO,
            epoch_acked: 0.0,
            delivered: 0,
        }
    }
}

pub(crate) const KINDS: &[Kind] = &[Kind::plain("bbr3", |seed| Box::new(Bbr3::new(seed)))];

impl Controller for Bbr3 {
    fn name(&self) -> &'static str {
        "bbr3"
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }

    fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    fn on_open(&mut self, now: Time, rtt: Span) {
        self.pace_by_rtt(rtt);
        (self.min_rtt, self.min_rtt_at) = (Some(rtt), now);
    }

    fn on_ack(&mut self, ack: &Ack) {
        if !self.seen_rtt {
            self.pace_by_rtt(ack.srtt);
        }
        self.delivered = ack.delivered;
        self.note_losses(ack);
        self.round_starts = false;
        self.loss_round_starts = false;
        if let Some(rate) = &ack.rate {
            let bw = rate.packets_per_s().unwrap_or(0.0);
            let limited = rate.app_limited || rate.prior_delivered < self.limited_until;
            self.update_latest_delivery(ack, rate, bw);
            self.update_round(ack, rate);
            self.update_congestion_signals(bw, limited);
            self.update_extra_acked(ack);
            self.check_full_bw(bw, limited);
            self.check_startup(ack, rate);
            if self.state == State::Drain && ack.in_flight as f64 <= self.with_quanta(self.bdp(1.0))
            {
                self.start_down(ack.now);
            }
            self.update_phase(ack, rate, bw, limited);
        }
        self.update_min_rtt(ack);
        self.check_probe_rtt(ack);
        if self.loss_round_starts
            && let Some(rate) = &ack.rate
        {
            // BBRAdvanceLatestDeliverySignals
            self.bw_latest = rate.packets_per_s().unwrap_or(0.0);
            self.inflight_latest = rate.delivered_packets as f64;
        }
        if self.in_recovery && !ack.in_recovery() {
            self.restore_cwnd();
        }
        self.in_recovery = ack.in_recovery();
        let (pacing_gain, cwnd_gain) = self.state.gains();
        self.set_pacing_rate(pacing_gain);
        self.set_cwnd(ack, cwnd_gain);
    }

    fn on_congestion(&mut self, _event: &Congestion) {
        self.save_cwnd();
    }

    fn on_timeout(&mut self, _now: Time) {
        self.in_recovery = true;
        self.cwnd = 1.0;
    }

    fn set_window(&mut self, cwnd: f64, _ssthresh: f64) {
        self.cwnd = cwnd;
    }

    fn on_idle_restart(&mut self, now: Time, _idle: Span) {
        self.idle_restart = true;
        self.epoch_at = now;
        self.epoch_acked = 0.0;
        if self.state.is_probe_bw() {
            self.set_pacing_rate(1.0);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(now); // there was nothing in flight (section 5.4.1)
        }
    }

    fn belief(&self) -> Belief {
        let mode = match self.state {
            State::Startup => Mode::SlowStart,
            State::Drain => Mode::Drain,
            State::ProbeRtt => Mode::ProbeRtt,
            State::Down => Mode::Down,
            State::Cruise => Mode::Cruise,
            State::Refill => Mode::Refill,
            State::Up => Mode::Up,
        };
        Belief {
            mode,
            bandwidth: Some(self.bw()).filter(|bw| *bw > 0.0 && bw.is_finite()),
            min_rtt: self.min_rtt,
        }
    }

    fn manages_recovery(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Option<f64> {
        Some(self.pacing_rate)
    }

    fn in_slow_start(&self) -> bool {
        self.state == State::Startup
    }
}
