//! uTP's LEDBAT (BEP 29, as libutp has it): the background flow of BitTorrent, and Pantheon's LEDBAT.
//!
//! With the queueing delay q, the smallest of the last three RTTs over the smallest of ten minutes, an
//! acknowledgment of a packets moves the window by
//!
//! ```text
//! cwnd += GAIN (TARGET - q) / TARGET a / cwnd                      (1)
//! ```
//!
//! so by 3000 bytes a round trip over an empty queue: RFC 6817 has one packet. What is called slow start
//! grows by one packet a round trip if that is more, and is no doubling. A loss halves the window, but at most
//! once in 100 ms, and a timeout leaves one packet. Below one packet, nothing leaves until the next timeout.
//!
//! uTP repairs losses in its own way too, see [`Repair::Utp`].
//!
//! The delay is that of round trips, where uTP has one-way delays: queueing in the reverse direction counts too.

use pathcast_base::{Span, Time};

use crate::controller::{Ack, Congestion, Controller, Repair};
use crate::queueing::QueueingDelay;
use crate::scheme::Kind;

/// The queueing delay to add when alone (CCONTROL_TARGET).
const TARGET: Span = Span::from_millis(100);
/// Bytes of payload of a full packet over Ethernet.
const PACKET_BYTES: f64 = 1452.0;
/// What a round trip may add to the window, in packets (MAX_CWND_INCREASE_BYTES_PER_RTT).
const GAIN: f64 = 3000.0 / PACKET_BYTES;
/// The largest window, in packets: the send buffer (opt_sndbuf, 1 MiB).
const LARGEST_WINDOW: f64 = 1_048_576.0 / PACKET_BYTES;
/// The smallest, in packets (MIN_WINDOW_SIZE).
const SMALLEST_WINDOW: f64 = 10.0 / PACKET_BYTES;
/// Samples in the filter of the current delay (CUR_DELAY_SIZE).
const CURRENT_FILTER: usize = 3;
/// Slow start ends at this share of the target.
const SLOW_START_SHARE: f64 = 0.9;
/// Time between two halvings at least (MAX_WINDOW_DECAY).
const HALVING_PAUSE: Span = Span::from_millis(100);

/// uTP's state.
#[derive(Clone, Debug)]
pub struct Utp {
    cwnd: f64,
    ssthresh: f64,
    slow_start: bool,
    delay: QueueingDelay<CURRENT_FILTER>,
    halved_at: Option<Time>,
}

impl Default for Utp {
    fn default() -> Self {
        Self {
            cwnd: 1.0,
            ssthresh: LARGEST_WINDOW,
            slow_start: true,
            delay: QueueingDelay::new(),
            halved_at: None,
        }
    }
}

impl Utp {
    /// A new connection's controller.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a sample; the queueing delay as a multiple of the target.
    fn queueing(&mut self, now: Time, rtt: Option<Span>) -> f64 {
        self.delay.update(now, rtt).as_secs() / TARGET.as_secs()
    }

    /// What the acknowledgment of `acked` packets makes of the window.
    fn grow(&mut self, acked: f64, queueing: f64, limited: bool) {
        // as a part of the window, which may have become smaller since they were sent
        let part = acked.min(self.cwnd) / acked.max(self.cwnd);
        let change = GAIN * (1.0 - queueing) * part; // (1)
        let change = if limited { change } else { change.min(0.0) };
        let by_delay = self.cwnd + change;
        if self.slow_start {
            let by_packets = self.cwnd + part;
            if by_packets > self.ssthresh {
                self.slow_start = false;
            } else if queueing > SLOW_START_SHARE {
                self.slow_start = false;
                self.ssthresh = self.cwnd;
            } else {
                self.cwnd = by_packets.max(by_delay);
            }
        } else {
            self.cwnd = by_delay;
        }
        self.cwnd = self.cwnd.clamp(SMALLEST_WINDOW, LARGEST_WINDOW);
    }

    fn halve(&mut self, now: Time) {
        let paused = self
            .halved_at
            .is_none_or(|at| now.since(at) >= HALVING_PAUSE);
        if paused {
            self.cwnd = (self.cwnd / 2.0).max(SMALLEST_WINDOW);
            self.ssthresh = self.cwnd;
            self.slow_start = false;
            self.halved_at = Some(now);
        }
    }
}

pub(crate) const KINDS: &[Kind] = &[Kind::plain("utp", |_| Box::new(Utp::new()))];

impl Controller for Utp {
    fn name(&self) -> &'static str {
        "utp"
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }

    fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    fn on_ack(&mut self, ack: &Ack) {
        let queueing = self.queueing(ack.now, ack.rtt);
        if ack.acked_packets > 0 {
            self.grow(ack.acked_packets as f64, queueing, ack.cwnd_limited);
        }
        if ack.lost_packets > 0 {
            self.halve(ack.now);
        }
    }

    fn on_congestion(&mut self, _: &Congestion) {
        // each acknowledgment that shows losses may halve the window: see on_ack
    }

    fn on_timeout(&mut self, _: Time) {
        self.cwnd = 1.0;
        self.slow_start = true;
    }

    fn set_window(&mut self, cwnd: f64, ssthresh: f64) {
        (self.cwnd, self.ssthresh) = (cwnd, ssthresh);
    }

    fn manages_recovery(&self) -> bool {
        true
    }

    fn repair(&self) -> Repair {
        Repair::Utp
    }

    fn in_slow_start(&self) -> bool {
        self.slow_start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bottleneck::{Bottleneck, run};
    use crate::controller::tests::ack;

    /// What a round trip's worth of acknowledgments adds to a window of 100 at a base RTT of 100 ms.
    fn step(slow_start: bool, queueing_ms: u64) -> f64 {
        let mut utp = Utp {
            cwnd: 100.0,
            slow_start,
            ..Utp::new()
        };
        utp.queueing(Time::ZERO, Some(Span::from_millis(100)));
        let rtt = Some(Span::from_millis(100 + queueing_ms));
        for _ in 0..CURRENT_FILTER {
            utp.queueing(Time::ZERO, rtt);
        }
        utp.on_ack(&Ack {
            rtt,
            ..ack(1.0, 100)
        });
        utp.cwnd() - 100.0
    }

    #[test]
    fn a_round_trip_adds_3000_bytes_over_an_empty_queue() {
        for (queueing_ms, bytes) in [(0, 3000.0), (50, 1500.0), (100, 0.0), (200, -3000.0)] {
            let moved = step(false, queueing_ms) * PACKET_BYTES;
            assert!((moved - bytes).abs() < 1e-6, "{queueing_ms} ms: {moved}");
        }
    }

    #[test]
    fn slow_start_adds_a_packet_at_least_until_the_queue_is_near_the_target() {
        for (queueing_ms, packets) in [(0, GAIN), (80, 1.0), (95, 0.0)] {
            let moved = step(true, queueing_ms);
            assert!((moved - packets).abs() < 1e-9, "{queueing_ms} ms: {moved}");
        }
    }

    #[test]
    fn losses_halve_the_window_once_in_100_ms() {
        let mut utp = Utp {
            cwnd: 64.0,
            ..Utp::new()
        };
        for (now_s, window) in [(1.0, 32.0), (1.05, 32.0), (1.1, 16.0)] {
            utp.on_ack(&Ack {
                lost_packets: 3,
                ..ack(now_s, 0)
            });
            assert_eq!(utp.cwnd(), window, "{now_s} s");
        }
        (20..200)
            .for_each(|tenths| utp.halve(Time::ZERO + Span::from_secs(f64::from(tenths) / 10.0)));
        assert_eq!(utp.cwnd() * PACKET_BYTES, 10.0);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut utp = Utp::new();
        utp.on_ack(&Ack {
            cwnd_limited: false,
            ..ack(1.0, 1)
        });
        // what is called slow start does not look
        assert_eq!(utp.cwnd(), 2.0);
        utp.slow_start = false;
        utp.on_ack(&Ack {
            cwnd_limited: false,
            ..ack(1.1, 2)
        });
        assert_eq!(utp.cwnd(), 2.0);
    }

    #[test]
    fn alone_it_queues_100_ms() {
        let path = Bottleneck::of_12mbps_60ms(10.0);
        let outcome = run(&mut Utp::new(), path, 200.0, 120.0);
        assert!(outcome.utilization > 0.999, "{outcome:?}");
        assert!((outcome.queue_packets - 100.0).abs() < 3.0, "{outcome:?}");
    }
}
