//! The sending end: what to send now, and what each acknowledgment changes.

use pathcast_congestion::{Ack, Congestion, Controller, Signal};
use pathcast_path::{Span, Time};

use crate::pacer::Pacer;
use crate::prr::ProportionalRateReduction;
use crate::rtt::RttEstimator;
use crate::scoreboard::Scoreboard;
use crate::segment::{AckSegment, DataSegment};

/// What a sender has to send, and how much the receiver takes.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// Packets to send in all; none: for ever.
    pub packets: Option<u64>,
    /// The receiver's window in packets.
    pub receive_window_packets: u64,
}

impl Default for SenderConfig {
    /// A bulk flow that the receiver does not limit.
    fn default() -> Self {
        Self {
            packets: None,
            receive_window_packets: u64::MAX,
        }
    }
}

/// Loss recovery's states, by Linux's names.
#[derive(Clone, Debug)]
enum State {
    /// Nothing lost that is known of (Open and Disorder).
    Open,
    /// Losses found by RACK; ends when all before `high_seq` is acknowledged. The window is that of
    /// the reduction, if the controller leaves it to that.
    Recovery {
        high_seq: u64,
        reduction: Option<ProportionalRateReduction>,
    },
    /// The retransmission timer expired; ends likewise.
    Loss { high_seq: u64 },
}

/// A TCP sender with its congestion controller.
pub struct Sender {
    config: SenderConfig,
    controller: Box<dyn Controller>,
    scoreboard: Scoreboard,
    rtt: RttEstimator,
    state: State,
    /// The window that holds now.
    cwnd: u64,
    pacer: Pacer,
    /// There is something to send, and it must wait until then.
    paced_until: Option<Time>,
    /// Packets found lost since the controller last heard of any.
    lost: u64,
    /// The round trip ends when this packet is acknowledged.
    round_end: u64,
    /// Whether the window held the sender back in this round trip and in the last.
    limited: (bool, bool),
    timeout_at: Option<Time>,
    reorder_at: Option<Time>,
    retransmits: u64,
}

impl Sender {
    /// A sender that is connected and has sent nothing.
    pub fn new(config: SenderConfig, controller: Box<dyn Controller>) -> Self {
        let mut pacer = Pacer::default();
        pacer.set_rate(controller.pacing_rate());
        Self {
            cwnd: controller.cwnd() as u64,
            pacer,
            paced_until: None,
            lost: 0,
            config,
            controller,
            scoreboard: Scoreboard::default(),
            rtt: RttEstimator::default(),
            state: State::Open,
            round_end: 0,
            limited: (false, false),
            timeout_at: None,
            reorder_at: None,
            retransmits: 0,
        }
    }

    /// The window that holds now, in whole packets: that of the recovery while there is one, unless
    /// the controller manages recovery.
    #[inline]
    pub const fn cwnd(&self) -> u64 {
        self.cwnd
    }

    /// The controller.
    pub fn controller(&self) -> &dyn Controller {
        self.controller.as_ref()
    }

    /// Round-trip times.
    pub const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The first packet not acknowledged and the next new one.
    pub fn una_and_next(&self) -> (u64, u64) {
        (self.scoreboard.una(), self.scoreboard.next())
    }

    /// Packets sent again.
    pub const fn retransmits(&self) -> u64 {
        self.retransmits
    }

    /// Packets on their way, as far as is known.
    pub fn in_flight(&self) -> u64 {
        self.scoreboard.in_flight()
    }

    /// Whether everything was sent and acknowledged; never so for a bulk flow.
    pub fn is_done(&self) -> bool {
        self.config.packets == Some(self.scoreboard.una())
    }

    /// The next packet to send at `now`, if there is one and the windows and the pace allow it. Call
    /// until `None`.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time) -> Option<DataSegment> {
        self.paced_until = None;
        if self.scoreboard.in_flight() >= self.cwnd {
            self.limited.0 = true;
            return None;
        }
        let retransmission = self.scoreboard.waiting() > 0;
        if !retransmission {
            let next = self.scoreboard.next();
            if self.config.packets == Some(next) {
                self.scoreboard.on_app_limited();
                return None;
            }
            if next - self.scoreboard.una() >= self.config.receive_window_packets {
                return None;
            }
        }
        if let Some(at) = self.pacer.blocked_until(now) {
            self.paced_until = Some(at);
            return None;
        }
        let seq = if retransmission {
            self.retransmits += 1;
            self.scoreboard.retransmit(now).expect("one waits")
        } else {
            self.scoreboard.send_new(now)
        };
        self.pacer.on_send(now);
        if let State::Recovery {
            reduction: Some(reduction),
            ..
        } = &mut self.state
        {
            reduction.on_send();
        }
        if self.timeout_at.is_none() {
            self.timeout_at = Some(now + self.rtt.rto());
        }
        Some(DataSegment {
            seq,
            retransmission,
        })
    }

    /// Takes an acknowledgment that arrived at `now`.
    pub fn on_ack(&mut self, now: Time, segment: &AckSegment) {
        let prior_in_flight = self.scoreboard.in_flight();
        let delivery = self.scoreboard.on_ack(now, segment, self.rtt.min());
        if let Some(rtt) = delivery.rtt {
            self.rtt.on_sample(rtt);
        }
        if delivery.advanced {
            let outstanding = self.scoreboard.next() > self.scoreboard.una();
            self.timeout_at = outstanding.then(|| now + self.rtt.rto());
        }
        let round_ends = self.scoreboard.una() > self.round_end;
        if round_ends {
            self.round_end = self.scoreboard.next();
            self.limited = (false, self.limited.0);
        }
        let una = self.scoreboard.una();
        if let State::Recovery { high_seq, .. } | State::Loss { high_seq } = self.state
            && una >= high_seq
        {
            self.state = State::Open;
            self.controller.on_recovery_end(now);
        }
        self.detect_losses(now);
        let lost = std::mem::take(&mut self.lost);
        if let State::Recovery {
            reduction: Some(reduction),
            ..
        } = &mut self.state
        {
            let progress = delivery.advanced && lost == 0;
            self.cwnd = reduction
                .cwnd(delivery.delivered, self.scoreboard.in_flight(), progress)
                .max(1);
            return;
        }
        let manages = self.controller.manages_recovery();
        if delivery.delivered > 0 || (manages && lost > 0) {
            let min_rtt = self.rtt.min().unwrap_or(Span::ZERO);
            self.controller.on_ack(&Ack {
                now,
                acked_packets: delivery.delivered,
                lost_packets: lost,
                marked_packets: 0,
                rtt: delivery.rtt,
                srtt: self.rtt.srtt().unwrap_or(Span::ZERO),
                min_rtt,
                in_flight: self.scoreboard.in_flight(),
                prior_in_flight,
                delivered: self.scoreboard.delivered(),
                rate: self.scoreboard.rate_sample(now, &delivery, min_rtt),
                round_ends,
                cwnd_limited: self.limited.0 || self.limited.1,
                in_recovery: manages && !matches!(self.state, State::Open),
            });
        }
        self.follow_controller();
    }

    /// Takes over the controller's window and pace.
    #[inline]
    fn follow_controller(&mut self) {
        self.cwnd = self.controller.cwnd() as u64;
        self.pacer.set_rate(self.controller.pacing_rate());
    }

    /// Looks for losses and enters recovery if there are any.
    fn detect_losses(&mut self, now: Time) {
        let in_recovery = !matches!(self.state, State::Open);
        let (lost, look_again) = self
            .scoreboard
            .detect_losses(now, in_recovery, self.rtt.min());
        self.reorder_at = look_again;
        self.lost += lost;
        if lost > 0 && !in_recovery {
            let prior_cwnd = self.controller.cwnd();
            let in_flight = self.scoreboard.in_flight();
            self.controller.on_congestion(&Congestion {
                now,
                signal: Signal::Loss,
                in_flight,
            });
            self.follow_controller();
            let reduction = (!self.controller.manages_recovery()).then(|| {
                // until the caller's PRR step: room for the first retransmission
                self.cwnd = in_flight + 1;
                ProportionalRateReduction::new(prior_cwnd, self.controller.ssthresh())
            });
            self.state = State::Recovery {
                high_seq: self.scoreboard.next(),
                reduction,
            };
        }
    }

    /// When `on_timer` and then `poll_transmit` want to be called next, if at all.
    #[inline]
    pub fn next_timer(&self) -> Option<Time> {
        [self.timeout_at, self.reorder_at, self.paced_until]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due at `now`; then call `poll_transmit`.
    pub fn on_timer(&mut self, now: Time) {
        if self.reorder_at.is_some_and(|at| at <= now) {
            self.reorder_at = None;
            self.detect_losses(now);
        }
        if self.timeout_at.is_some_and(|at| at <= now) {
            // a timeout on top of a timeout lowers ssthresh no further (RFC 5681, equation 4)
            if !matches!(self.state, State::Loss { .. }) || self.rtt.backoff() == 0 {
                self.controller.on_timeout(now);
            }
            self.scoreboard.mark_all_lost();
            self.state = State::Loss {
                high_seq: self.scoreboard.next(),
            };
            self.reorder_at = None;
            self.rtt.back_off();
            self.timeout_at = Some(now + self.rtt.rto());
            self.follow_controller();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Report, Spy, Wire};

    #[test]
    fn slow_start_doubles_the_window_each_round_trip() {
        // 10 + 20 + 40 + 80 = 150 packets in four round trips of 100 ms
        let took_s = Wire::new(150, |_, _| false).run();
        assert!((0.4..0.45).contains(&took_s), "{took_s}");
    }

    #[test]
    fn one_loss_costs_one_retransmission_and_halves_the_window() {
        let mut wire = Wire::new(300, |seq, copy| seq == 40 && copy == 0);
        wire.run();
        assert_eq!(wire.sender.retransmits(), 1);
        let ssthresh = wire.sender.controller().ssthresh();
        assert!((20.0..45.0).contains(&ssthresh), "{ssthresh}");
    }

    #[test]
    fn many_losses_in_one_window_are_one_congestion_event() {
        let mut one = Wire::new(300, |seq, copy| seq == 40 && copy == 0);
        let mut many = Wire::new(300, |seq, copy| {
            (40..60).contains(&seq) && seq % 3 == 1 && copy == 0
        });
        one.run();
        many.run();
        assert_eq!(many.sender.retransmits(), 7);
        assert!(many.sender.controller().ssthresh() >= one.sender.controller().ssthresh() * 0.8);
    }

    #[test]
    fn a_lost_retransmission_is_found_without_a_timeout() {
        let once_s = Wire::new(400, |seq, copy| seq == 40 && copy == 0).run();
        let mut wire = Wire::new(400, |seq, copy| seq == 40 && copy < 2);
        let twice_s = wire.run();
        assert_eq!(wire.sender.retransmits(), 2);
        assert_eq!(wire.sender.rtt().backoff(), 0);
        assert!(
            twice_s <= once_s + 0.2,
            "{twice_s}, {once_s} with the first copy lost only"
        );
    }

    #[test]
    fn a_lost_tail_needs_the_timeout() {
        let mut wire = Wire::new(20, |seq, copy| seq >= 18 && copy == 0);
        let took_s = wire.run();
        assert_eq!(wire.sender.retransmits(), 2);
        assert!(took_s > 0.4, "{took_s}");
    }

    #[test]
    fn timeouts_back_off() {
        let mut wire = Wire::new(1, |_, copy| copy < 4);
        let took_s = wire.run();
        // 1 + 2 + 4 + 8 s, then a round trip
        assert!((15.0..15.2).contains(&took_s), "{took_s}");
    }

    #[test]
    fn the_window_is_delivered_once_a_round_trip() {
        let spy = Spy {
            cwnd: 20.0,
            ..Spy::default()
        };
        Wire::with(400, Box::new(spy.clone()), |_, _| false).run();
        let Report { acks, .. } = spy.read();
        assert_eq!(acks.last().unwrap().delivered, 400);
        // after the first round trip, which starts from nothing
        for ack in &acks[20..] {
            let rate = ack.rate.unwrap().packets_per_s().unwrap();
            assert!((190.0..=210.0).contains(&rate), "{rate}");
            assert_eq!(ack.in_flight + ack.acked_packets, ack.prior_in_flight);
        }
        let limited = acks.iter().filter(|ack| ack.rate.unwrap().app_limited);
        assert_eq!(
            limited.count(),
            0,
            "the last window was sent with all its data there"
        );
    }

    #[test]
    fn a_controller_that_manages_recovery_sees_every_ack_and_keeps_its_window() {
        let spy = |manages_recovery| Spy {
            cwnd: 20.0,
            manages_recovery,
            ..Spy::default()
        };
        let lost = |seq, copy| seq == 100 && copy == 0;
        let (managing, leaving) = (spy(true), spy(false));
        let mut wire = Wire::with(300, Box::new(managing.clone()), lost);
        wire.run();
        Wire::with(300, Box::new(leaving.clone()), lost).run();
        let (managing, leaving) = (managing.read(), leaving.read());
        assert!(managing.acks.iter().any(|ack| ack.in_recovery));
        assert!(leaving.acks.iter().all(|ack| !ack.in_recovery));
        for report in [&managing, &leaving] {
            assert_eq!((report.congestion.len(), report.recoveries_ended), (1, 1));
        }
        let told: u64 = managing.acks.iter().map(|ack| ack.acked_packets).sum();
        assert_eq!(told, 300);
        let told: u64 = managing.acks.iter().map(|ack| ack.lost_packets).sum();
        assert_eq!(told, 1);
        // no less is on its way during recovery than the controller wants
        assert!(
            managing
                .acks
                .iter()
                .skip(30)
                .all(|ack| ack.prior_in_flight >= 15 || ack.delivered > 280)
        );
    }

    #[test]
    fn packets_leave_at_the_pace_that_the_controller_sets() {
        let spy = Spy {
            cwnd: 1000.0,
            pacing_rate: Some(100.0),
            ..Spy::default()
        };
        let mut wire = Wire::with(100, Box::new(spy.clone()), |_, _| false);
        wire.run();
        for (i, (at, _)) in wire.sent.iter().enumerate() {
            assert_eq!(at.as_nanos(), i as u64 / 2 * 20_000_000); // two each 20 ms
        }
        let acks = spy.read().acks;
        let rate = acks[45].rate.unwrap().packets_per_s().unwrap();
        assert!((90.0..=110.0).contains(&rate), "{rate}");
    }

    #[test]
    fn a_sender_without_data_says_so_in_its_samples() {
        let spy = Spy {
            cwnd: 50.0,
            pacing_rate: Some(10_000.0),
            ..Spy::default()
        };
        let mut wire = Wire::with(60, Box::new(spy.clone()), |seq, copy| {
            seq == 58 && copy == 0
        });
        wire.run();
        let acks = spy.read().acks;
        assert!(!acks[0].rate.unwrap().app_limited);
        // sent again when nothing else was left to send
        assert!(acks.last().unwrap().rate.unwrap().app_limited);
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_lost_everything_arrives(seed in proptest::prelude::any::<u64>(), p in 0.0..0.4f64) {
            let mut state = seed | 1;
            let mut wire = Wire::new(200, |_, _| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) as f64 / (1u64 << 53) as f64 <= p
            });
            wire.run();
        }
    }
}
