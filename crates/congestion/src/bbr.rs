//! BBR, version 1 (Cardwell, Cheng, Gunn, Hassas Yeganeh and Jacobson 2016;
//! draft-cardwell-iccrg-bbr-congestion-control-00), as Linux has it.
//!
//! BBR keeps a model of the path, the largest delivery rate of the last ten round trips and the
//! smallest RTT of the last ten seconds, and sends at that rate with little more in flight than
//! their product:
//!
//! ```text
//! pacing rate = 0.99 pacing_gain BtlBw                                   (1)
//! cwnd        = cwnd_gain BtlBw RTprop + 3 quanta + extra_acked          (2)
//! ```
//!
//! The gains change with the mode. Startup doubles the rate each round trip until it stops growing,
//! Drain empties the queue that this made, ProbeBW goes round a cycle of eight phases of one RTprop
//! (more, less, then as much as the path delivers), and ProbeRTT sends four packets for 200 ms if the
//! smallest RTT has not been seen again for ten seconds.
//!
//! Losses do not change the model. In the first round trip of a recovery, a packet is sent for each one
//! delivered; afterwards the window is restored. Heavy and even loss is attributed to a policer
//! (`policer.rs`).
//!
//! Where this differs from Linux: the RTT of a delayed acknowledgment is not distinguished from others.

#[cfg(test)]
mod tests;

use pathcast_base::{Span, Time};

use crate::INITIAL_WINDOW;
use crate::controller::{Ack, Belief, Congestion, Controller, LossState, Mode, RateSample};
use crate::policer::Policer;
use crate::random::SplitMix64;
use crate::scheme::Kind;
use crate::window_filter::RoundMax;

/// 2/ln 2: the smallest gain that doubles the rate each round trip (Linux's bbr_high_gain).
const HIGH_GAIN: f64 = 2885.0 / 1000.0;
/// Undoes in one round trip what Startup queued (bbr_drain_gain).
const DRAIN_GAIN: f64 = 1.0 / HIGH_GAIN;
/// ProbeBW's window in BDPs, for acknowledgments that are late or come in lumps (bbr_cwnd_gain).
const CWND_GAIN: f64 = 2.0;
/// ProbeBW's phases (bbr_pacing_gain): probe, drain what the probe queued, cruise.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Round trips that the largest rate is remembered (bbr_bw_rtts); it may be that old and counts.
const BW_ROUNDS: usize = CYCLE.len() + 2;
/// How long the smallest RTT holds (bbr_min_rtt_win_sec).
const MIN_RTT_WINDOW: Span = Span::from_millis(10_000);
/// How long ProbeRTT keeps to its window (bbr_probe_rtt_mode_ms).
const PROBE_RTT: Span = Span::from_millis(200);
/// The smallest window, and ProbeRTT's (bbr_cwnd_min_target).
const MIN_WINDOW: f64 = 4.0;
/// Growth below this says that the path may be full (bbr_full_bw_thresh),
const FULL_BW_GROWTH: f64 = 1.25;
/// and so many rounds of it that it is (bbr_full_bw_cnt).
const FULL_BW_ROUNDS: u32 = 3;
/// Pacing stays this much below the model's rate, lest a queue build up (bbr_pacing_margin_percent).
const PACING_MARGIN: f64 = 0.01;
/// Round trips in each half of the window of `extra_acked` (bbr_extra_acked_win_rtts).
const EXTRA_ACKED_ROUNDS: u32 = 5;
/// Cap on `extra_acked`, as time at the model's rate (bbr_extra_acked_max_us).
const EXTRA_ACKED_MAX: Span = Span::from_millis(100);

/// What BBR is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BbrMode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// BBR's state.
#[derive(Clone, Debug)]
pub struct Bbr {
    mode: BbrMode,
    cwnd: f64,
    ssthresh: f64,
    pacing_rate: f64,
    pacing_gain: f64,
    cwnd_gain: f64,
    /// The window before recovery or ProbeRTT.
    prior_cwnd: f64,
    seen_rtt: bool,

    round: u64,
    round_starts: bool,
    /// The round trip ends with a packet sent when this many had been delivered.
    next_round_delivered: u64,
    max_bw: RoundMax<{ BW_ROUNDS + 1 }>,
    /// The numbers of delivered packets between which [`BbrMode::ProbeRtt`] limited the window. Samples of
    /// packets sent meanwhile do not measure the path's rate.
    limited: (u64, u64),

    full_bw: f64,
    full_bw_rounds: u32,
    full_pipe: bool,

    min_rtt: Option<Span>,
    min_rtt_at: Time,
    probe_rtt_done_at: Option<Time>,
    probe_rtt_round_done: bool,
    idle_restart: bool,

    phase: usize,
    phase_at: Time,
    random: SplitMix64,

    /// The transport's state as of the last acknowledgment (Linux's `prev_ca_state`).
    state: LossState,
    /// One packet out for each delivered, in the first round trip of a recovery.
    packet_conservation: bool,

    extra_acked: [f64; 2],
    extra_acked_rounds: u32,
    extra_acked_slot: usize,
    epoch_at: Time,
    epoch_acked: f64,

    policer: Policer,
}

impl Bbr {
    /// A new connection's controller; `seed` goes into the choice of the phase that ProbeBW begins
    /// with.
    pub fn new(seed: u64) -> Self {
        Self {
            mode: BbrMode::Startup,
            cwnd: INITIAL_WINDOW,
            ssthresh: f64::INFINITY,
            // without an RTT yet, Linux takes 1 ms
            pacing_rate: HIGH_GAIN * INITIAL_WINDOW / 1e-3,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            prior_cwnd: 0.0,
            seen_rtt: false,
            round: 0,
            round_starts: false,
            next_round_delivered: 0,
            max_bw: RoundMax::new(),
            limited: (u64::MAX, 0),
            full_bw: 0.0,
            full_bw_rounds: 0,
            full_pipe: false,
            min_rtt: None,
            min_rtt_at: Time::ZERO,
            probe_rtt_done_at: None,
            probe_rtt_round_done: false,
            idle_restart: false,
            phase: 0,
            phase_at: Time::ZERO,
            random: SplitMix64::new(seed),
            state: LossState::Open,
            packet_conservation: false,
            extra_acked: [0.0; 2],
            extra_acked_rounds: 0,
            extra_acked_slot: 0,
            epoch_at: Time::ZERO,
            epoch_acked: 0.0,
            policer: Policer::default(),
        }
    }

    /// The model's rate in packets a second.
    fn bw(&self) -> f64 {
        self.policer.rate().unwrap_or(self.max_bw.max())
    }

    /// Paces the initial window by the first round-trip time (bbr_init_pacing_rate_from_rtt).
    fn pace_by_rtt(&mut self, rtt: Span) {
        if rtt > Span::ZERO {
            self.seen_rtt = true;
            self.pacing_rate = HIGH_GAIN * self.cwnd / rtt.as_secs();
        }
    }

    /// `gain` times the bandwidth-delay product, in packets.
    fn bdp(&self, bw: f64, gain: f64) -> f64 {
        self.min_rtt.map_or(INITIAL_WINDOW, |min_rtt| {
            (bw * min_rtt.as_secs() * gain).ceil()
        })
    }

    /// Room for what the hosts hold while they send and receive in quanta (bbr_quantization_budget).
    fn with_quanta(&self, packets: f64) -> f64 {
        let even = ((packets + 3.0 * quantum(self.pacing_rate)) / 2.0).ceil() * 2.0;
        let probing = self.mode == BbrMode::ProbeBw && self.phase == 0;
        even + if probing { 2.0 } else { 0.0 }
    }

    /// Packets in flight at which the path holds `gain` BDPs.
    fn target_in_flight(&self, bw: f64, gain: f64) -> f64 {
        self.with_quanta(self.bdp(bw, gain))
    }

    /// Packets in the network when the next burst leaves, of which `in_flight` are there now
    /// (bbr_packets_in_net_at_edt).
    fn in_flight_at_departure(&self, ack: &Ack, in_flight: u64) -> f64 {
        let until =
            Span::from_nanos((ack.departs_at.as_nanos()).saturating_sub(ack.now.as_nanos()));
        let delivered = (self.bw() * until.as_secs()).floor();
        let burst = if self.pacing_gain > 1.0 {
            quantum(self.pacing_rate)
        } else {
            0.0
        };
        (in_flight as f64 + burst - delivered).max(0.0)
    }

    /// Whether a packet was sent while the window of [`BbrMode::ProbeRtt`] held the flow back.
    fn limits(&self, prior_delivered: u64) -> bool {
        (self.limited.0..=self.limited.1).contains(&prior_delivered)
    }

    fn update_round_and_bw(&mut self, ack: &Ack, rate: &RateSample) {
        self.round_starts = rate.prior_delivered >= self.next_round_delivered;
        if self.round_starts {
            self.next_round_delivered = ack.delivered;
            self.round += 1;
            self.packet_conservation = false;
        }
        let restart =
            self.policer
                .on_ack(ack, rate, self.round_starts, self.mode == BbrMode::ProbeBw);
        if restart {
            self.enter_probe_bw(ack.now);
        }
        if let Some(bw) = rate.packets_per_s()
            && (!rate.app_limited || bw >= self.max_bw.max())
        {
            self.max_bw.update(self.round, bw);
        }
    }

    /// The packets acknowledged together beyond what the model's rate accounts for: links that send in
    /// bursts (bbr_update_ack_aggregation).
    fn update_extra_acked(&mut self, ack: &Ack) {
        if self.round_starts {
            self.extra_acked_rounds += 1;
            if self.extra_acked_rounds >= EXTRA_ACKED_ROUNDS {
                self.extra_acked_rounds = 0;
                self.extra_acked_slot ^= 1;
                self.extra_acked[self.extra_acked_slot] = 0.0;
            }
        }
        let mut expected = self.bw() * ack.now.since(self.epoch_at).as_secs();
        if self.epoch_acked <= expected {
            self.epoch_acked = 0.0;
            self.epoch_at = ack.now;
            expected = 0.0;
        }
        self.epoch_acked += ack.acked_packets as f64;
        let extra = (self.epoch_acked - expected).min(self.cwnd);
        let slot = &mut self.extra_acked[self.extra_acked_slot];
        *slot = slot.max(extra);
    }

    fn enter_probe_bw(&mut self, now: Time) {
        self.mode = BbrMode::ProbeBw;
        self.random.stir(now);
        // any phase but that which drains what no probe has queued
        self.phase = CYCLE.len() - 1 - self.random.below(CYCLE.len() as u64 - 1) as usize;
        self.next_phase(now);
    }

    fn next_phase(&mut self, now: Time) {
        self.phase = (self.phase + 1) % CYCLE.len();
        self.phase_at = now;
    }

    fn update_phase(&mut self, ack: &Ack) {
        if self.mode != BbrMode::ProbeBw {
            return;
        }
        let min_rtt = self.min_rtt.unwrap_or(Span::ZERO);
        let whole = ack.now.since(self.phase_at) > min_rtt;
        let in_flight = self.in_flight_at_departure(ack, ack.prior_in_flight);
        let bw = self.max_bw.max();
        let over = match CYCLE[self.phase] {
            _ if self.policer.rate().is_some() => whole,
            // probe until the probe is in flight, or was too much
            gain if gain > 1.0 => {
                whole && (ack.lost_packets > 0 || in_flight >= self.target_in_flight(bw, gain))
            }
            // drain until drained
            gain if gain < 1.0 => whole || in_flight <= self.target_in_flight(bw, 1.0),
            _ => whole,
        };
        if over {
            self.next_phase(ack.now);
        }
    }

    fn check_full_pipe(&mut self, rate: &RateSample) {
        if self.full_pipe || !self.round_starts || rate.app_limited {
            return;
        }
        if self.max_bw.max() >= self.full_bw * FULL_BW_GROWTH {
            self.full_bw = self.max_bw.max();
            self.full_bw_rounds = 0;
        } else {
            self.full_bw_rounds += 1;
            self.full_pipe = self.full_bw_rounds >= FULL_BW_ROUNDS;
        }
    }

    fn check_drain(&mut self, ack: &Ack) {
        if self.mode == BbrMode::Startup && self.full_pipe {
            self.mode = BbrMode::Drain;
            self.ssthresh = self.target_in_flight(self.max_bw.max(), 1.0);
        }
        if self.mode == BbrMode::Drain
            && self.in_flight_at_departure(ack, ack.in_flight)
                <= self.target_in_flight(self.max_bw.max(), 1.0)
        {
            self.enter_probe_bw(ack.now);
        }
    }

    fn update_min_rtt(&mut self, ack: &Ack) {
        let expired = self.min_rtt.is_some() && ack.now > self.min_rtt_at + MIN_RTT_WINDOW;
        if let Some(rtt) = ack.rtt
            && (expired || self.min_rtt.is_none_or(|min_rtt| rtt < min_rtt))
        {
            self.min_rtt = Some(rtt);
            self.min_rtt_at = ack.now;
        }
        if expired && !self.idle_restart && self.mode != BbrMode::ProbeRtt {
            self.save_cwnd();
            self.mode = BbrMode::ProbeRtt;
            self.probe_rtt_done_at = None;
        }
        if self.mode == BbrMode::ProbeRtt {
            // four packets in flight do not measure the path's rate
            if ack.delivered > self.limited.1 {
                self.limited.0 = ack.delivered;
            }
            self.limited.1 = ack.delivered + ack.in_flight.max(1);
            if self.probe_rtt_done_at.is_some() {
                self.probe_rtt_round_done |= self.round_starts;
                if self.probe_rtt_round_done {
                    self.check_probe_rtt_done(ack.now);
                }
            } else if ack.in_flight as f64 <= MIN_WINDOW {
                self.probe_rtt_done_at = Some(ack.now + PROBE_RTT);
                self.probe_rtt_round_done = false;
                self.next_round_delivered = ack.delivered;
            }
        }
        self.idle_restart = false;
    }

    fn check_probe_rtt_done(&mut self, now: Time) {
        if self.probe_rtt_done_at.is_some_and(|at| now > at) {
            self.min_rtt_at = now;
            self.cwnd = self.cwnd.max(self.prior_cwnd);
            if self.full_pipe {
                self.enter_probe_bw(now);
            } else {
                self.mode = BbrMode::Startup;
            }
        }
    }

    fn update_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            BbrMode::Startup => (HIGH_GAIN, HIGH_GAIN),
            BbrMode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            BbrMode::ProbeBw if self.policer.rate().is_some() => (1.0, CWND_GAIN),
            BbrMode::ProbeBw => (CYCLE[self.phase], CWND_GAIN),
            BbrMode::ProbeRtt => (1.0, 1.0),
        };
    }

    fn set_pacing_rate(&mut self, gain: f64) {
        let rate = self.bw() * gain * (1.0 - PACING_MARGIN); // (1)
        if self.full_pipe || rate > self.pacing_rate {
            self.pacing_rate = rate.max(1e-3);
        }
    }

    fn set_cwnd(&mut self, ack: &Ack) {
        let acked = ack.acked_packets as f64;
        if acked > 0.0 && !self.modulate_for_recovery(ack) {
            let mut target = self.bdp(self.bw(), self.cwnd_gain);
            if self.full_pipe {
                let most = self.bw() * EXTRA_ACKED_MAX.as_secs();
                target += self.extra_acked[0]
                    .max(self.extra_acked[1])
                    .min(most)
                    .ceil();
            }
            let target = self.with_quanta(target); // (2)
            if self.full_pipe {
                self.cwnd = (self.cwnd + acked).min(target);
            } else if self.cwnd < target || (ack.delivered as f64) < INITIAL_WINDOW {
                self.cwnd += acked;
            }
            self.cwnd = self.cwnd.max(MIN_WINDOW);
        }
        if self.mode == BbrMode::ProbeRtt {
            self.cwnd = self.cwnd.min(MIN_WINDOW);
        }
    }

    /// Recovery's part of the window; whether that is all for this acknowledgment
    /// (bbr_set_cwnd_to_recover_or_restore).
    ///
    /// A recovery that begins with the acknowledgment that ends another is one long recovery here: the
    /// window is not restored, and no new round trip of packet conservation begins.
    fn modulate_for_recovery(&mut self, ack: &Ack) -> bool {
        let room = (ack.in_flight + ack.acked_packets) as f64;
        self.cwnd = (self.cwnd - ack.lost_packets as f64).max(1.0);
        let before = std::mem::replace(&mut self.state, ack.state);
        if ack.state == LossState::Recovery && before != LossState::Recovery {
            self.packet_conservation = true;
            self.next_round_delivered = ack.delivered;
            self.cwnd = room;
        } else if before != LossState::Open && ack.state == LossState::Open {
            self.cwnd = self.cwnd.max(self.prior_cwnd);
            self.packet_conservation = false;
        }
        if self.packet_conservation {
            self.cwnd = self.cwnd.max(room);
        }
        self.packet_conservation
    }

    fn save_cwnd(&mut self) {
        self.prior_cwnd = if self.state != LossState::Open || self.mode == BbrMode::ProbeRtt {
            self.prior_cwnd.max(self.cwnd)
        } else {
            self.cwnd
        };
    }
}

/// Packets that a Linux host sends together at this rate, a millisecond's worth (bbr_tso_segs_goal);
/// 1.2 Mbit/s and 64 KiB are taken in packets of 1,448 bytes.
pub(crate) fn quantum(pacing_rate: f64) -> f64 {
    const SLOW: f64 = 1.2e6 / 8.0 / 1448.0;
    let least = if pacing_rate < SLOW { 1.0 } else { 2.0 };
    (pacing_rate / 1024.0).floor().clamp(least, 44.0)
}

pub(crate) const KINDS: &[Kind] = &[Kind::plain("bbr", |seed| Box::new(Bbr::new(seed)))];

impl Controller for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
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
        self.round_starts = false;
        let rate = ack.rate.map(|rate| RateSample {
            app_limited: rate.app_limited || self.limits(rate.prior_delivered),
            ..rate
        });
        if let Some(rate) = &rate {
            self.update_round_and_bw(ack, rate);
            self.update_extra_acked(ack);
        }
        self.update_phase(ack);
        if let Some(rate) = &rate {
            self.check_full_pipe(rate);
        }
        self.check_drain(ack);
        self.update_min_rtt(ack);
        self.update_gains();
        self.set_pacing_rate(self.pacing_gain);
        self.set_cwnd(ack);
    }

    fn on_congestion(&mut self, _event: &Congestion) {
        self.save_cwnd();
    }

    fn on_timeout(&mut self, _now: Time) {
        self.state = LossState::Loss;
        self.full_bw = 0.0;
        self.policer.on_timeout(self.mode == BbrMode::ProbeBw);
        self.cwnd = 1.0;
    }

    fn set_window(&mut self, cwnd: f64, _ssthresh: f64) {
        self.cwnd = cwnd;
    }

    fn on_undo(&mut self) {
        // spurious losses must not end Startup or be taken for a policer (bbr_undo_cwnd)
        self.full_bw = 0.0;
        self.full_bw_rounds = 0;
        self.policer.on_undo();
    }

    fn on_idle_restart(&mut self, now: Time, _idle: Span) {
        self.idle_restart = true;
        self.epoch_at = now;
        self.epoch_acked = 0.0;
        match self.mode {
            // back to a full pipe without a queue
            BbrMode::ProbeBw => self.set_pacing_rate(1.0),
            BbrMode::ProbeRtt => self.check_probe_rtt_done(now),
            BbrMode::Startup | BbrMode::Drain => {}
        }
    }

    fn belief(&self) -> Belief {
        let mode = match (self.mode, self.phase) {
            (BbrMode::Startup, _) => Mode::SlowStart,
            (BbrMode::Drain, _) => Mode::Drain,
            (BbrMode::ProbeRtt, _) => Mode::ProbeRtt,
            (BbrMode::ProbeBw, 0) => Mode::Up,
            (BbrMode::ProbeBw, 1) => Mode::Down,
            (BbrMode::ProbeBw, _) => Mode::Cruise,
        };
        Belief {
            mode,
            bandwidth: Some(self.bw()).filter(|bw| *bw > 0.0),
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
        self.mode == BbrMode::Startup
    }
}
