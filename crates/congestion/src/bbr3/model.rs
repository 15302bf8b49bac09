//! The model of the path (section 5.5): rate, round-trip time, volumes.

use pathcast_base::Span;

use super::states::{AckPhase, State};
use super::{Bbr3, MIN_WINDOW};
use crate::INITIAL_WINDOW;
use crate::bbr::quantum;
use crate::controller::{Ack, RateSample};
use crate::window_filter::RoundMax;

/// Loss above this share of what was in flight is too much (LossThresh).
const LOSS_THRESHOLD: f64 = 0.02;
/// Lower bounds fall to this share at most in a round trip (Beta).
const BETA: f64 = 0.7;
/// Share of `inflight_longterm` left to others (Headroom).
const HEADROOM: f64 = 0.15;
/// MinRTTFilterLen, ProbeRTTInterval.
const MIN_RTT_WINDOW: Span = Span::from_millis(10_000);
const PROBE_RTT_INTERVAL: Span = Span::from_millis(5_000);

impl Bbr3 {
    pub(super) fn bw(&self) -> f64 {
        self.max_bw.max().min(self.bw_shortterm)
    }

    pub(super) fn bdp(&self, gain: f64) -> f64 {
        self.min_rtt.map_or(INITIAL_WINDOW, |min_rtt| {
            gain * self.bw() * min_rtt.as_secs()
        })
    }

    /// BBRQuantizationBudget: the offload budget as a floor.
    pub(super) fn with_quanta(&self, packets: f64) -> f64 {
        let floor = packets.max(3.0 * quantum(self.pacing_rate)).max(MIN_WINDOW);
        floor + if self.state == State::Up { 2.0 } else { 0.0 }
    }

    /// BBRTargetInflight: the BDP, unless congestion cut the window below it.
    pub(super) fn target_in_flight(&self) -> f64 {
        self.bdp(1.0).min(self.cwnd)
    }

    pub(super) fn in_flight_with_headroom(&self) -> f64 {
        let headroom = (HEADROOM * self.inflight_longterm).max(1.0);
        if self.inflight_longterm.is_finite() {
            (self.inflight_longterm - headroom).max(MIN_WINDOW)
        } else {
            f64::INFINITY
        }
    }

    pub(super) fn start_round(&mut self, delivered: u64) {
        self.next_round_delivered = delivered;
    }

    pub(super) fn update_latest_delivery(&mut self, ack: &Ack, rate: &RateSample, bw: f64) {
        self.bw_latest = self.bw_latest.max(bw);
        self.inflight_latest = self.inflight_latest.max(rate.delivered_packets as f64);
        self.loss_round_starts = rate.prior_delivered >= self.loss_round_delivered;
        if self.loss_round_starts {
            self.loss_round_delivered = ack.delivered;
        }
    }

    pub(super) fn update_round(&mut self, ack: &Ack, rate: &RateSample) {
        self.round_starts = rate.prior_delivered >= self.next_round_delivered;
        if self.round_starts {
            self.start_round(ack.delivered);
            self.round += 1;
            self.rounds_since_probe += 1;
        }
    }

    /// BBRUpdateCongestionSignals: once a round trip that lost, follow what was delivered.
    pub(super) fn update_congestion_signals(&mut self, bw: f64, limited: bool) {
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

    pub(super) fn reset_short_term_model(&mut self) {
        self.bw_shortterm = f64::INFINITY;
        self.inflight_shortterm = f64::INFINITY;
    }

    pub(super) fn note_losses(&mut self, ack: &Ack) {
        if ack.lost_packets == 0 {
            return;
        }
        if !self.loss_in_round {
            self.loss_round_delivered = ack.delivered;
        }
        self.loss_in_round = true;
        self.loss_events += 1;
    }

    pub(super) fn update_extra_acked(&mut self, ack: &Ack) {
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

    pub(super) fn is_inflight_too_high(rate: &RateSample) -> bool {
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
    pub(super) fn adapt_long_term_model(&mut self, ack: &Ack, rate: &RateSample, limited: bool) {
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
    pub(super) fn probe_inflight_upward(&mut self, ack: &Ack) {
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

    pub(super) fn raise_slope(&mut self) {
        let growth = f64::from(1u32 << self.up_rounds);
        self.up_rounds = (self.up_rounds + 1).min(30);
        self.up_acks_per_packet = (self.cwnd / growth).max(1.0);
    }

    pub(super) fn update_min_rtt(&mut self, ack: &Ack) {
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
}
