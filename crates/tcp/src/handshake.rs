//! The three-way handshake (RFC 9293, section 3.5), with Linux's timers and what it leaves behind.
//!
//! The opening end sends a SYN, the other end answers with a SYN/ACK, and the opening end acknowledges
//! that, at the latest with its first data. Each end takes its first RTT sample from it.

use pathcast_base::{Span, Time};

/// First timeout of a SYN and of a SYN/ACK (RFC 6298, section 2.1; Linux's TCP_TIMEOUT_INIT).
const FIRST_TIMEOUT: Span = Span::from_millis(1000);
/// SYNs sent again at intervals of the first timeout before it doubles (net.ipv4.tcp_syn_linear_timeouts).
const LINEAR_TIMEOUTS: u32 = 4;
/// SYNs sent again before the opening end gives up (net.ipv4.tcp_syn_retries and the linear ones).
const MAX_SYN_RETRIES: u32 = 6 + LINEAR_TIMEOUTS;
/// SYN/ACKs sent again before the accepting end forgets the SYN (net.ipv4.tcp_synack_retries).
const MAX_SYN_ACK_RETRIES: u32 = 5;

/// What a handshake says about the path and its own losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Its round-trip time; none if a repeated SYN/ACK made it ambiguous.
    pub rtt: Option<Span>,
    /// Whether it starts the window at one packet: more than one timeout expired, and none too early
    /// (RFC 5681, section 3.1; Linux's tcp_init_transfer).
    pub is_lossy: bool,
}

impl Handshake {
    /// One without losses and with this round-trip time.
    pub const fn of_rtt(rtt: Span) -> Self {
        Self {
            rtt: Some(rtt),
            is_lossy: false,
        }
    }
}

/// The end that opens a connection, until it is open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opening {
    first_sent_at: Option<Time>,
    retries: u32,
    due: bool,
}

impl Opening {
    /// Whether a SYN leaves at `now`, and when it is due again if no answer comes.
    pub fn poll(&mut self, now: Time) -> Option<Option<Time>> {
        if self.first_sent_at.is_some() && !self.due {
            return None;
        }
        self.first_sent_at.get_or_insert(now);
        self.due = false;
        let doublings = self.retries.saturating_sub(LINEAR_TIMEOUTS);
        let wait = FIRST_TIMEOUT.mul_div(1 << doublings, 1);
        Some((self.retries < MAX_SYN_RETRIES).then(|| now + wait))
    }

    /// SYNs sent again, the one that is due among them.
    pub const fn retries(&self) -> u32 {
        self.retries
    }

    /// The timeout of the SYN expired.
    pub const fn on_timeout(&mut self) {
        self.retries += 1;
        self.due = true;
    }

    /// The SYN/ACK arrived at `now`, for the SYN sent at `echo`.
    pub fn on_syn_ack(&self, now: Time, echo: Time) -> Handshake {
        Handshake {
            rtt: Some(now.since(echo)),
            is_lossy: self.retries > 1 && self.first_sent_at != Some(echo),
        }
    }
}

/// The end that accepts a connection, until it is open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accepting {
    syn_sent_at: Time,
    answered_at: Time,
    timeouts: u32,
    answers: u32,
}

impl Accepting {
    /// A SYN arrived at `now` that was sent at `sent_at`: a SYN/ACK leaves. Returns when it is due again.
    pub fn on_syn(&mut self, now: Time, sent_at: Time) -> Time {
        if self.answers == 0 {
            (self.syn_sent_at, self.answered_at) = (sent_at, now);
        }
        self.answers += 1;
        self.timer(now)
    }

    /// The timeout of the SYN/ACK expired. Returns when the next expires; none: the SYN is forgotten.
    pub fn on_timeout(&mut self, now: Time) -> Option<Time> {
        self.timeouts += 1;
        if self.timeouts > MAX_SYN_ACK_RETRIES {
            *self = Self::default();
            return None;
        }
        self.answers += 1;
        Some(self.timer(now))
    }

    fn timer(&self, now: Time) -> Time {
        now + FIRST_TIMEOUT.mul_div(1 << self.timeouts, 1)
    }

    /// When the SYN was sent that the next SYN/ACK answers.
    pub const fn echo(&self) -> Time {
        self.syn_sent_at
    }

    /// Whether a SYN was answered.
    pub const fn has_answered(&self) -> bool {
        self.answers > 0
    }

    /// The opening end's acknowledgment, or its first data, arrived at `now`.
    pub fn on_open(&self, now: Time) -> Handshake {
        Handshake {
            rtt: (self.answers == 1).then(|| now.since(self.answered_at)),
            is_lossy: self.timeouts > 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use pathcast_congestion::Scheme;

    use super::*;
    use crate::receiver::{Receiver, ReceiverConfig};
    use crate::sender::{SenderConfig, Start};
    use crate::testing::Wire;

    /// 30 packets over a connection that opens first, `lost(copy)` of the packets numbered 0: SYNs, the
    /// acknowledgment of the SYN/ACK, the first packet.
    fn opened(lost: impl Fn(u32) -> bool) -> (Wire<impl FnMut(u64, u32) -> bool>, f64) {
        let config = SenderConfig {
            packets: Some(30),
            start: Start::Opens,
            ..SenderConfig::default()
        };
        let lost = move |seq, copy| seq == 0 && lost(copy);
        let mut wire = Wire::configured(config, Scheme::named("reno").controller(0), lost);
        wire.receiver = Receiver::new(ReceiverConfig {
            accepts: true,
            ..ReceiverConfig::default()
        });
        let took_s = wire.run();
        (wire, took_s)
    }

    #[test]
    fn a_handshake_takes_a_round_trip_and_measures_it() {
        let open_s = Wire::new(30, |_, _| false).run();
        let (wire, took_s) = opened(|_| false);
        assert!((took_s - open_s - 0.1).abs() < 1e-9, "{took_s}, {open_s}");
        let handshake = Handshake::of_rtt(Span::from_millis(100));
        assert_eq!(wire.receiver.handshake(), Some(handshake));
        assert_eq!(wire.sender.rtt().min(), handshake.rtt);
        // SYN, acknowledgment and the first window, each once
        let sent: Vec<u64> = wire.sent.iter().take(4).map(|(_, seq)| *seq).collect();
        assert_eq!(sent, [0, 0, 0, 1]);
    }

    #[test]
    fn data_opens_a_connection_whose_last_acknowledgment_is_lost() {
        let (_, whole_s) = opened(|_| false);
        let (wire, took_s) = opened(|copy| copy == 1);
        assert!((took_s - whole_s).abs() < 1e-9, "{took_s}, {whole_s}");
        assert_eq!(wire.sender.retransmits(), 0);
    }

    #[test]
    fn lost_syns_cost_a_second_each_and_two_of_them_the_window() {
        let (_, whole_s) = opened(|_| false);
        let (_, one_s) = opened(|copy| copy == 0);
        assert!((one_s - whole_s - 1.0).abs() < 1e-9, "{one_s}, {whole_s}");
        let (wire, two_s) = opened(|copy| copy < 2);
        // 1, 2, 4 and 8 packets go before 10 would have: three round trips more
        assert!(
            (0.2..0.35).contains(&(two_s - whole_s - 2.0)),
            "{two_s}, {whole_s}"
        );
        let first_window = wire
            .sent
            .iter()
            .filter(|(at, _)| (2.05..2.15).contains(&at.as_secs()));
        assert_eq!(first_window.count(), 2); // the acknowledgment and one packet
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn a_syn_without_answer_leaves_again_after_1_2_3_4_5_7_seconds() {
        let mut opening = Opening::default();
        let (mut now, mut seconds) = (at(500), Vec::new());
        while let Some(timer) = opening.poll(now) {
            assert_eq!(opening.poll(now), None);
            let Some(timer) = timer else { break };
            now = timer;
            seconds.push((now.since(at(500))).as_secs());
            opening.on_timeout();
        }
        assert_eq!(seconds, [1., 2., 3., 4., 5., 7., 11., 19., 35., 67.]);
    }

    #[test]
    fn two_timeouts_of_a_syn_start_the_window_at_one_packet() {
        let mut opening = Opening::default();
        opening.poll(at(0));
        opening.on_timeout();
        opening.poll(at(1000));
        assert!(!opening.on_syn_ack(at(1100), at(1000)).is_lossy);
        opening.on_timeout();
        opening.poll(at(2000));
        let handshake = opening.on_syn_ack(at(2100), at(2000));
        assert_eq!(handshake.rtt, Some(Span::from_millis(100)));
        assert!(handshake.is_lossy);
        // the answer to the first SYN: both timeouts were too early
        assert!(!opening.on_syn_ack(at(2100), at(0)).is_lossy);
    }

    #[test]
    fn a_syn_ack_without_answer_leaves_again_five_times() {
        let mut accepting = Accepting::default();
        let mut timer = Some(accepting.on_syn(at(0), at(0)));
        let mut seconds = Vec::new();
        while let Some(now) = timer {
            timer = accepting.on_timeout(now);
            if timer.is_some() {
                seconds.push(now.as_secs());
            }
        }
        assert_eq!(seconds, [1., 3., 7., 15., 31.]);
        assert!(!accepting.has_answered());
    }

    #[test]
    fn an_ambiguous_round_trip_is_no_sample() {
        let mut accepting = Accepting::default();
        accepting.on_syn(at(30), at(0));
        assert_eq!(
            accepting.on_open(at(90)),
            Handshake::of_rtt(Span::from_millis(60))
        );
        accepting.on_syn(at(1030), at(1000));
        assert_eq!(accepting.on_open(at(1090)).rtt, None);
    }
}
