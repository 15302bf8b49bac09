//! BBR, version 3 (draft-ietf-ccwg-bbr-04): version 1's model, bounded by what losses say.
//!
//! Beside the rate and the RTT the model has two volumes and a second rate:
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
//! Where this differs from the draft: the transport reports losses by number and not packet by
//! packet, so that the volume at which losses crossed the threshold is taken from the packet whose
//! acknowledgment showed them, and runs of lost packets are counted as acknowledgments that showed
//! losses (which Linux does too). ECN, which the draft leaves out and Linux has off unless the path is
//! known for shallow marks, is not there. Packets are paced one by one.

use pathcast_path::{Span, Time};

use crate::INITIAL_WINDOW;
use crate::bbr::quantum;
use crate::controller::{Ack, Belief, Congestion, Controller, Mode, RateSample};
use crate::random::SplitMix64;
use crate::window_filter::RoundMax;

/// 4 ln 2 (StartupPacingGain, section 5.6.1).
const STARTUP_GAIN: f64 = 2.77;
/// DrainPacingGain (section 5.3.2; the table of section 5.6.1 has 0.5).
const DRAIN_GAIN: f64 = 0.35;
/// Gains of ProbeBW's phases (section 5.6.1).
const DOWN_GAIN: f64 = 0.90;
const UP_GAIN: f64 = 1.25;
/// DefaultCwndGain, and that of UP.
const CWND_GAIN: f64 = 2.0;
const UP_CWND_GAIN: f64 = 2.25;
/// ProbeRTTCwndGain.
const PROBE_RTT_CWND_GAIN: f64 = 0.5;
/// MinPipeCwnd.
const MIN_WINDOW: f64 = 4.0;
/// Loss above this share of what was in flight is too much (LossThresh).
const LOSS_THRESHOLD: f64 = 0.02;
/// Lower bounds fall to this share at most in a round trip (Beta).
const BETA: f64 = 0.7;
/// Share of `inflight_longterm` left to others (Headroom).
const HEADROOM: f64 = 0.15;
/// Losses in a round trip that end Startup (BBRStartupFullLossCnt).
const STARTUP_LOSSES: u32 = 6;
/// Growth below this, for so many rounds, says that the path is full (section 5.3.1.2).
const FULL_BW_GROWTH: f64 = 1.25;
const FULL_BW_ROUNDS: u32 = 3;
/// PacingMarginPercent.
const PACING_MARGIN: f64 = 0.01;
/// MinRTTFilterLen, ProbeRTTInterval, ProbeRTTDuration.
const MIN_RTT_WINDOW: Span = Span::from_millis(10_000);
const PROBE_RTT_INTERVAL: Span = Span::from_millis(5_000);
const PROBE_RTT: Span = Span::from_millis(200);
/// BBRExtraAckedFilterLen.
const EXTRA_ACKED_ROUNDS: usize = 10;
/// Round trips between probes at most (section 5.3.3.5.2).
const RENO_ROUNDS: f64 = 63.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    const fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// Whether losses are the price of a probe (BBRIsProbingBW).
    const fn is_accelerating(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    const fn gains(self) -> (f64, f64) {
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
enum AckPhase {
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

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
    /// Samples of packets sent before this many were delivered are no measure (ProbeRTT).
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

    fn bw(&self) -> f64 {
        self.max_bw.max().min(self.bw_shortterm)
    }

    fn bdp(&self, gain: f64) -> f64 {
        self.min_rtt.map_or(INITIAL_WINDOW, |min_rtt| {
            gain * self.bw() * min_rtt.as_secs()
        })
    }

    /// BBRQuantizationBudget: the offload budget as a floor.
    fn with_quanta(&self, packets: f64) -> f64 {
        let floor = packets.max(3.0 * quantum(self.pacing_rate)).max(MIN_WINDOW);
        floor + if self.state == State::Up { 2.0 } else { 0.0 }
    }

    /// BBRTargetInflight: the BDP, unless congestion cut the window below it.
    fn target_in_flight(&self) -> f64 {
        self.bdp(1.0).min(self.cwnd)
    }

    fn in_flight_with_headroom(&self) -> f64 {
        let headroom = (HEADROOM * self.inflight_longterm).max(1.0);
        if self.inflight_longterm.is_finite() {
            (self.inflight_longterm - headroom).max(MIN_WINDOW)
        } else {
            f64::INFINITY
        }
    }

    fn start_round(&mut self, delivered: u64) {
        self.next_round_delivered = delivered;
    }

    // --- section 5.5: the model ---

    fn update_latest_delivery(&mut self, ack: &Ack, rate: &RateSample, bw: f64) {
        self.bw_latest = self.bw_latest.max(bw);
        self.inflight_latest = self.inflight_latest.max(rate.delivered_packets as f64);
        self.loss_round_starts = rate.prior_delivered >= self.loss_round_delivered;
        if self.loss_round_starts {
            self.loss_round_delivered = ack.delivered;
        }
    }

    fn update_round(&mut self, ack: &Ack, rate: &RateSample) {
        self.round_starts = rate.prior_delivered >= self.next_round_delivered;
        if self.round_starts {
            self.start_round(ack.delivered);
            self.round += 1;
            self.rounds_since_probe += 1;
        }
    }

    /// BBRUpdateCongestionSignals: once a round trip that lost, follow what was delivered.
    fn update_congestion_signals(&mut self, bw: f64, limited: bool) {
        if bw > 0.0 && (bw >= self.max_bw.max() || !limited) {
            self.max_bw.update(self.cycle, bw);
        }
        if !self.loss_round_starts {
            return;
        }
        if self.loss_in_round && !self.state.is_accelerating() {
            if self.bw_shortterm.is_infinite() {
                self.bw_shortterm = self.max_bw.max();
            }
            if self.inflight_shortterm.is_infinite() {
                self.inflight_shortterm = self.cwnd;
            }
            self.bw_shortterm = self.bw_latest.max(BETA * self.bw_shortterm);
            self.inflight_shortterm = self.inflight_latest.max(BETA * self.inflight_shortterm);
        }
        self.loss_in_round = false;
    }

    fn reset_short_term_model(&mut self) {
        self.bw_shortterm = f64::INFINITY;
        self.inflight_shortterm = f64::INFINITY;
    }

    fn note_losses(&mut self, ack: &Ack) {
        if ack.lost_packets == 0 {
            return;
        }
        if !self.loss_in_round {
            self.loss_round_delivered = ack.delivered;
        }
        self.loss_in_round = true;
        self.loss_events += 1;
    }

    fn update_extra_acked(&mut self, ack: &Ack) {
        let mut expected = self.bw() * ack.now.since(self.epoch_at).as_secs();
        if self.epoch_acked <= expected {
            self.epoch_acked = 0.0;
            self.epoch_at = ack.now;
            expected = 0.0;
        }
        self.epoch_acked += ack.acked_packets as f64;
        let extra = (self.epoch_acked - expected).min(self.cwnd);
        if self.round_starts && !self.full_pipe {
            self.extra_acked = RoundMax::new(); // Startup remembers one round trip only
        }
        self.extra_acked.update(self.round, extra);
    }

    fn is_inflight_too_high(rate: &RateSample) -> bool {
        rate.lost_packets as f64 > rate.sent_in_flight as f64 * LOSS_THRESHOLD
    }

    fn handle_inflight_too_high(&mut self, ack: &Ack, rate: &RateSample) {
        self.probe_samples = false; // react once a probe
        if !rate.app_limited {
            self.inflight_longterm =
                (rate.sent_in_flight as f64).max(self.target_in_flight() * BETA);
        }
        if self.state == State::Up {
            self.start_down(ack.now);
        }
    }

    /// BBRAdaptLongTermModel.
    fn adapt_long_term_model(&mut self, ack: &Ack, rate: &RateSample, limited: bool) {
        if self.round_starts {
            match self.ack_phase {
                AckPhase::ProbeStarting => self.ack_phase = AckPhase::ProbeFeedback,
                AckPhase::ProbeStopping => {
                    // the last samples of the probe are in; once a cycle
                    self.probe_samples = false;
                    self.ack_phase = AckPhase::Refilling;
                    if self.state.is_probe_bw() && !limited {
                        self.cycle += 1;
                        self.max_bw.update(self.cycle, 0.0);
                    }
                }
                AckPhase::Refilling | AckPhase::ProbeFeedback => {}
            }
        }
        if Self::is_inflight_too_high(rate) {
            if self.probe_samples && ack.lost_packets > 0 {
                self.handle_inflight_too_high(ack, rate);
            }
            return;
        }
        if self.inflight_longterm.is_infinite() {
            return;
        }
        self.inflight_longterm = self.inflight_longterm.max(rate.sent_in_flight as f64);
        if self.state == State::Up {
            self.probe_inflight_upward(ack);
        }
    }

    /// BBRProbeInflightLongtermUpward: 1, 2, 4, ... packets more in each round trip.
    fn probe_inflight_upward(&mut self, ack: &Ack) {
        if !ack.cwnd_limited || self.cwnd < self.inflight_longterm {
            return;
        }
        self.up_acks += ack.acked_packets as f64;
        if self.up_acks >= self.up_acks_per_packet {
            let packets = (self.up_acks / self.up_acks_per_packet).floor();
            self.up_acks -= packets * self.up_acks_per_packet;
            self.inflight_longterm += packets;
        }
        if self.round_starts {
            self.raise_slope();
        }
    }

    fn raise_slope(&mut self) {
        let growth = f64::from(1u32 << self.up_rounds);
        self.up_rounds = (self.up_rounds + 1).min(30);
        self.up_acks_per_packet = (self.cwnd / growth).max(1.0);
    }

    // --- section 5.3: the state machine ---

    fn reset_full_bw(&mut self) {
        self.full_bw = 0.0;
        self.full_bw_rounds = 0;
        self.full_bw_now = false;
    }

    fn check_full_bw(&mut self, bw: f64, limited: bool) {
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
    fn check_startup(&mut self, ack: &Ack, rate: &RateSample) {
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

    fn start_down(&mut self, now: Time) {
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

    fn start_refill(&mut self, ack: &Ack) {
        self.reset_short_term_model();
        self.up_rounds = 0;
        self.up_acks = 0.0;
        self.ack_phase = AckPhase::Refilling;
        self.start_round(ack.delivered);
        self.state = State::Refill;
    }

    fn start_up(&mut self, ack: &Ack, bw: f64) {
        self.probe_samples = true;
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round(ack.delivered);
        self.reset_full_bw();
        self.full_bw = bw;
        self.state = State::Up;
        self.raise_slope();
    }

    fn is_time_to_probe(&self, now: Time) -> bool {
        let reno_rounds = self.target_in_flight().min(RENO_ROUNDS);
        now > self.phase_at + self.probe_wait || f64::from(self.rounds_since_probe) >= reno_rounds
    }

    fn update_phase(&mut self, ack: &Ack, rate: &RateSample, bw: f64, limited: bool) {
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

    /// Paces the initial window by the first round-trip time (bbr_init_pacing_rate_from_rtt).
    fn pace_by_rtt(&mut self, rtt: Span) {
        if rtt > Span::ZERO {
            self.seen_rtt = true;
            self.pacing_rate = STARTUP_GAIN * self.cwnd / rtt.as_secs();
        }
    }

    fn update_min_rtt(&mut self, ack: &Ack) {
        self.probe_rtt_expired =
            self.probe_rtt_min.is_some() && ack.now > self.probe_rtt_min_at + PROBE_RTT_INTERVAL;
        if let Some(rtt) = ack.rtt
            && (self.probe_rtt_expired || self.probe_rtt_min.is_none_or(|least| rtt < least))
        {
            self.probe_rtt_min = Some(rtt);
            self.probe_rtt_min_at = ack.now;
        }
        let expired = ack.now > self.min_rtt_at + MIN_RTT_WINDOW;
        if let Some(least) = self.probe_rtt_min
            && (expired || self.min_rtt.is_none_or(|min_rtt| least < min_rtt))
        {
            self.min_rtt = Some(least);
            self.min_rtt_at = self.probe_rtt_min_at;
        }
    }

    fn check_probe_rtt(&mut self, ack: &Ack) {
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

    fn check_probe_rtt_done(&mut self, now: Time) {
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

    // --- section 5.6: rate and window ---

    fn set_pacing_rate(&mut self, gain: f64) {
        let rate = gain * self.bw() * (1.0 - PACING_MARGIN); // (1)
        if self.full_pipe || rate > self.pacing_rate {
            self.pacing_rate = rate.max(1e-3);
        }
    }

    fn probe_rtt_cwnd(&self) -> f64 {
        self.bdp(PROBE_RTT_CWND_GAIN).max(MIN_WINDOW)
    }

    fn set_cwnd(&mut self, ack: &Ack, cwnd_gain: f64) {
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

    fn save_cwnd(&mut self) {
        self.prior_cwnd = if self.in_recovery || self.state == State::ProbeRtt {
            self.prior_cwnd.max(self.cwnd)
        } else {
            self.cwnd
        };
    }

    fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        self.in_recovery = false;
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bottleneck::{Bottleneck, run, run_and_look};
    use crate::controller::tests::ack;

    fn in_probe_bw() -> Bbr3 {
        let mut bbr = Bbr3::new(1);
        bbr.full_pipe = true;
        bbr.seen_rtt = true;
        bbr.min_rtt = Some(Span::from_millis(100));
        bbr.max_bw.update(0, 1000.0);
        bbr.cwnd = 200.0;
        bbr.state = State::Cruise;
        bbr
    }

    fn sample(sent_in_flight: u64, lost_packets: u64) -> RateSample {
        RateSample {
            delivered_packets: 50,
            interval: Span::from_millis(100),
            prior_delivered: 10,
            sent_in_flight,
            lost_packets,
            app_limited: false,
        }
    }

    #[test]
    fn loss_is_too_much_above_two_percent_of_what_was_in_flight() {
        assert!(!Bbr3::is_inflight_too_high(&sample(100, 2)));
        assert!(Bbr3::is_inflight_too_high(&sample(100, 3)));
    }

    #[test]
    fn a_probe_that_loses_too_much_sets_the_long_term_bound_and_goes_down() {
        let mut bbr = in_probe_bw();
        bbr.start_up(&ack(0.0, 1), 1000.0);
        let lossy = Ack {
            lost_packets: 5,
            ..ack(0.1, 1)
        };
        bbr.adapt_long_term_model(&lossy, &sample(120, 5), false);
        assert_eq!((bbr.state, bbr.inflight_longterm), (State::Down, 120.0));
        // and cruising leaves 15 % of it free
        assert_eq!(bbr.in_flight_with_headroom(), 102.0);
    }

    #[test]
    fn losses_while_cruising_bound_rate_and_volume_by_what_was_delivered() {
        let mut bbr = in_probe_bw();
        bbr.loss_in_round = true;
        bbr.loss_round_starts = true;
        (bbr.bw_latest, bbr.inflight_latest) = (900.0, 80.0);
        bbr.update_congestion_signals(0.0, false);
        assert_eq!(bbr.bw_shortterm, 900.0);
        assert_eq!(bbr.inflight_shortterm, 0.7 * 200.0);
        assert_eq!(bbr.bw(), 900.0);
        bbr.start_refill(&ack(0.0, 1));
        assert_eq!(bbr.bw(), 1000.0);
    }

    #[test]
    fn the_bound_grows_by_one_two_four_packets_a_round() {
        let mut bbr = in_probe_bw();
        bbr.inflight_longterm = 100.0;
        bbr.cwnd = 100.0;
        bbr.start_up(&ack(0.0, 1), 1000.0);
        let mut grown = Vec::new();
        for _ in 0..3 {
            let before = bbr.inflight_longterm;
            for i in 0..100 {
                bbr.round_starts = i == 99;
                bbr.cwnd = bbr.inflight_longterm;
                bbr.probe_inflight_upward(&ack(0.1, 1));
            }
            grown.push(bbr.inflight_longterm - before);
        }
        assert!((grown[0] - 1.0).abs() <= 1.0, "{grown:?}");
        assert!((grown[1] - 2.0).abs() <= 1.0, "{grown:?}");
        assert!((grown[2] - 4.0).abs() <= 1.0, "{grown:?}");
    }

    #[test]
    fn idle_ends_probe_rtt_once_its_time_is_over() {
        let mut bbr = in_probe_bw();
        (bbr.prior_cwnd, bbr.cwnd, bbr.state) = (200.0, 50.0, State::ProbeRtt);
        let at = |s| Time::ZERO + Span::from_secs(s);
        bbr.probe_rtt_done_at = Some(at(1.0));
        bbr.on_idle_restart(at(0.9), Span::from_millis(300));
        assert_eq!((bbr.state, bbr.cwnd), (State::ProbeRtt, 50.0));
        bbr.on_idle_restart(at(1.1), Span::from_millis(300));
        assert_eq!((bbr.state, bbr.cwnd), (State::Cruise, 200.0));
    }

    #[test]
    fn startup_forgets_what_came_at_once_a_round_trip_ago() {
        let extra_after_two_rounds = |full_pipe| {
            let mut bbr = in_probe_bw();
            bbr.full_pipe = full_pipe;
            bbr.update_extra_acked(&ack(0.0, 40)); // far more than 1000 packets a second
            (bbr.round, bbr.round_starts) = (1, true);
            bbr.update_extra_acked(&ack(10.0, 1));
            bbr.extra_acked.max()
        };
        assert_eq!(extra_after_two_rounds(true), 40.0);
        assert_eq!(extra_after_two_rounds(false), 1.0);
    }

    #[test]
    fn probes_come_after_two_to_three_seconds_or_63_rounds() {
        let mut bbr = in_probe_bw();
        bbr.start_down(Time::ZERO + Span::from_secs(1.0));
        let wait_s = bbr.probe_wait.as_secs();
        assert!((2.0..3.0).contains(&wait_s));
        let at = |s| Time::ZERO + Span::from_secs(s);
        assert!(!bbr.is_time_to_probe(at(1.0 + wait_s)));
        assert!(bbr.is_time_to_probe(at(1.01 + wait_s)));
        bbr.rounds_since_probe = 63;
        assert!(bbr.is_time_to_probe(at(1.0)));
    }

    #[test]
    fn heavy_loss_ends_startup_before_the_rate_stops_growing() {
        let left_s = |buffer_packets| {
            let path = Bottleneck {
                buffer_packets,
                ..Bottleneck::of_12mbps_60ms(1.0)
            };
            let mut left = None;
            run_and_look(&mut Bbr3::new(1), path, 5.0, 0.0, |ack, controller| {
                if !controller.in_slow_start() {
                    left.get_or_insert(ack.now.as_secs());
                }
            });
            left.unwrap()
        };
        let (shallow, deep) = (left_s(5.0), left_s(500.0));
        assert!(shallow < deep, "{shallow} {deep}");
    }

    #[test]
    fn half_the_bdp_for_200_ms_every_five_seconds() {
        let path = Bottleneck::of_12mbps_60ms(4.0);
        let mut bbr = Bbr3::new(1);
        let mut small: Vec<(f64, f64)> = Vec::new();
        run_and_look(&mut bbr, path, 22.0, 0.0, |ack, controller| {
            if ack.now.as_secs() > 2.0 && controller.cwnd() < 50.0 {
                small.push((ack.now.as_secs(), controller.cwnd()));
            }
        });
        let began: Vec<f64> = std::iter::once(small[0].0)
            .chain(
                small
                    .windows(2)
                    .filter(|w| w[1].0 - w[0].0 > 1.0)
                    .map(|w| w[1].0),
            )
            .collect();
        assert!((3..=4).contains(&began.len()), "{began:?}");
        for gap in began.windows(2) {
            assert!((5.0..5.7).contains(&(gap[1] - gap[0])), "{began:?}");
        }
        let least = small.iter().map(|s| s.1).fold(f64::INFINITY, f64::min);
        assert!((least - 30.0).abs() < 3.0, "{least}");
    }

    #[test]
    fn the_link_is_full_with_about_one_bdp_in_flight() {
        let path = Bottleneck::of_12mbps_60ms(4.0);
        let outcome = run(&mut Bbr3::new(1), path, 60.0, 10.0);
        assert!(outcome.utilisation > 0.96, "{outcome:?}");
        assert!((55.0..75.0).contains(&outcome.in_flight), "{outcome:?}");
        assert_eq!(outcome.loss, 0.0);
    }

    #[test]
    fn a_shallow_buffer_loses_less_than_with_version_1() {
        let path = Bottleneck::of_12mbps_60ms(0.1);
        let v1 = run(&mut crate::Bbr::new(1), path, 60.0, 10.0);
        let v3 = run(&mut Bbr3::new(1), path, 60.0, 10.0);
        assert!(v3.loss < v1.loss / 2.0, "{v1:?} {v3:?}");
        assert!(v3.utilisation > 0.85, "{v3:?}");
    }

    #[test]
    fn one_percent_of_loss_is_tolerated() {
        let path = Bottleneck {
            loss: 0.01,
            ..Bottleneck::of_12mbps_60ms(1.0)
        };
        let outcome = run(&mut Bbr3::new(1), path, 60.0, 10.0);
        assert!(outcome.utilisation > 0.8, "{outcome:?}");
    }
}
