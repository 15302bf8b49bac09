//! The sending end: what to send now, and what each acknowledgment changes.

use pathcast_congestion::{Ack, Congestion, Controller, Signal};
use pathcast_path::{Span, Time};

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
    /// Losses found by RACK; ends when all before `high_seq` is acknowledged.
    Recovery {
        high_seq: u64,
        reduction: ProportionalRateReduction,
        cwnd: u64,
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
        Self {
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

    /// The window that holds now, in whole packets: that of the recovery while there is one.
    #[inline]
    pub fn cwnd(&self) -> u64 {
        match self.state {
            State::Recovery { cwnd, .. } => cwnd,
            _ => self.controller.cwnd() as u64,
        }
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

    /// The next packet to send at `now`, if there is one and the windows allow it. Call until `None`.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time) -> Option<DataSegment> {
        if self.scoreboard.in_flight() >= self.cwnd() {
            self.limited.0 = true;
            return None;
        }
        let segment = if let Some(seq) = self.scoreboard.retransmit(now) {
            self.retransmits += 1;
            DataSegment {
                seq,
                retransmission: true,
            }
        } else {
            let next = self.scoreboard.next();
            let outstanding = next - self.scoreboard.una();
            if self.config.packets == Some(next)
                || outstanding >= self.config.receive_window_packets
            {
                return None;
            }
            DataSegment {
                seq: self.scoreboard.send_new(now),
                retransmission: false,
            }
        };
        if let State::Recovery { reduction, .. } = &mut self.state {
            reduction.on_send();
        }
        if self.timeout_at.is_none() {
            self.timeout_at = Some(now + self.rtt.rto());
        }
        Some(segment)
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
        }
        let lost = self.detect_losses(now);
        match &mut self.state {
            State::Recovery {
                reduction, cwnd, ..
            } => {
                let progress = delivery.advanced && lost == 0;
                *cwnd = reduction
                    .cwnd(delivery.delivered, self.scoreboard.in_flight(), progress)
                    .max(1);
            }
            State::Open | State::Loss { .. } if delivery.delivered > 0 => {
                self.controller.on_ack(&Ack {
                    now,
                    acked_packets: delivery.delivered,
                    lost_packets: lost,
                    marked_packets: 0,
                    rtt: delivery.rtt,
                    srtt: self.rtt.srtt().unwrap_or(Span::ZERO),
                    in_flight: self.scoreboard.in_flight(),
                    prior_in_flight,
                    delivered: 0,
                    rate: None,
                    in_recovery: false,
                    min_rtt: self.rtt.min().unwrap_or(Span::ZERO),
                    round_ends,
                    cwnd_limited: self.limited.0 || self.limited.1,
                });
            }
            State::Open | State::Loss { .. } => {}
        }
    }

    /// Looks for losses and enters recovery if there are any; returns how many.
    fn detect_losses(&mut self, now: Time) -> u64 {
        let in_recovery = !matches!(self.state, State::Open);
        let (lost, look_again) = self
            .scoreboard
            .detect_losses(now, in_recovery, self.rtt.min());
        self.reorder_at = look_again;
        if lost > 0 && matches!(self.state, State::Open) {
            let prior_cwnd = self.controller.cwnd();
            let in_flight = self.scoreboard.in_flight();
            self.controller.on_congestion(&Congestion {
                now,
                signal: Signal::Loss,
                in_flight,
            });
            let reduction = ProportionalRateReduction::new(prior_cwnd, self.controller.ssthresh());
            // until the caller's PRR step: room for the first retransmission
            let cwnd = self.scoreboard.in_flight() + 1;
            self.state = State::Recovery {
                high_seq: self.scoreboard.next(),
                reduction,
                cwnd,
            };
        }
        lost
    }

    /// When `on_timer` wants to be called next, if at all.
    #[inline]
    pub fn next_timer(&self) -> Option<Time> {
        match (self.timeout_at, self.reorder_at) {
            (Some(timeout), Some(reorder)) => Some(timeout.min(reorder)),
            (timeout, reorder) => timeout.or(reorder),
        }
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
        }
    }
}

#[cfg(test)]
mod tests {
    use pathcast_congestion::Scheme;

    use super::*;
    use crate::receiver::Receiver;

    /// A wire of 50 ms each way on which `lost(seq, copy)` decides what arrives.
    struct Wire<F> {
        sender: Sender,
        receiver: Receiver,
        lost: F,
        copies: std::collections::BTreeMap<u64, u32>,
        data: std::collections::VecDeque<(Time, u64)>,
        acks: std::collections::VecDeque<(Time, AckSegment)>,
        now: Time,
    }

    impl<F: FnMut(u64, u32) -> bool> Wire<F> {
        fn new(packets: u64, lost: F) -> Self {
            let config = SenderConfig {
                packets: Some(packets),
                ..SenderConfig::default()
            };
            Self {
                sender: Sender::new(config, Scheme::Reno.controller()),
                receiver: Receiver::default(),
                lost,
                copies: Default::default(),
                data: Default::default(),
                acks: Default::default(),
                now: Time::ZERO,
            }
        }

        /// Runs until all is acknowledged; returns the seconds it took.
        fn run(&mut self) -> f64 {
            let delay = Span::from_millis(50);
            while !self.sender.is_done() {
                while let Some(DataSegment { seq, .. }) = self.sender.poll_transmit(self.now) {
                    let copy = self.copies.entry(seq).or_default();
                    if !(self.lost)(seq, *copy) {
                        self.data.push_back((self.now + delay, seq));
                    }
                    *copy += 1;
                }
                let times = [
                    self.data.front().map(|d| d.0),
                    self.acks.front().map(|a| a.0),
                    self.receiver.next_timer(),
                    self.sender.next_timer(),
                ];
                self.now = times
                    .into_iter()
                    .flatten()
                    .min()
                    .expect("something is under way");
                assert!(self.now.as_secs() < 1000.0, "no progress");
                if let Some((_, seq)) = self.data.pop_front_if(|d| d.0 <= self.now)
                    && let Some(ack) = self.receiver.on_data(self.now, seq)
                {
                    self.acks.push_back((self.now + delay, ack));
                } else if let Some((_, ack)) = self.acks.pop_front_if(|a| a.0 <= self.now) {
                    self.sender.on_ack(self.now, &ack);
                } else if let Some(ack) = self.receiver.on_timer(self.now) {
                    self.acks.push_back((self.now + delay, ack));
                } else {
                    self.sender.on_timer(self.now);
                }
            }
            assert_eq!(self.sender.in_flight(), 0);
            assert_eq!(self.receiver.delivered(), self.sender.una_and_next().0);
            self.now.as_secs()
        }
    }

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
