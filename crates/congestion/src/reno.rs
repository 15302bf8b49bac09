//! Reno: additive increase, multiplicative decrease (RFC 5681), counted in packets as Linux does.

use pathcast_base::Time;

use crate::INITIAL_WINDOW;
use crate::controller::{Ack, Congestion, Controller};
use crate::scheme::Kind;

/// Share of the window that remains after a loss (RFC 5681, equation 4).
const BETA: f64 = 0.5;

/// Reno's whole state. Windows are whole packets, as in Linux, which matters where they are small: from
/// 7 packets a loss leads to 3.
#[derive(Clone, Debug)]
pub struct Reno {
    cwnd: f64,
    ssthresh: f64,
    /// Packets acknowledged since the window last grew (Linux's `snd_cwnd_cnt`).
    counted: f64,
}

impl Default for Reno {
    fn default() -> Self {
        Self {
            cwnd: INITIAL_WINDOW,
            ssthresh: f64::INFINITY,
            counted: 0.0,
        }
    }
}

pub(crate) const KINDS: &[Kind] = &[Kind::plain("reno", |_| Box::new(Reno::default()))];

impl Controller for Reno {
    fn name(&self) -> &'static str {
        "reno"
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }

    fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    fn on_ack(&mut self, ack: &Ack) {
        if !ack.may_grow() {
            return;
        }
        let mut acked = ack.acked_packets as f64;
        if self.in_slow_start() {
            acked = slow_start(&mut self.cwnd, self.ssthresh, acked);
        }
        // one packet a window of acknowledgments
        let each = self.cwnd;
        additive_increase(&mut self.cwnd, &mut self.counted, each, acked);
    }

    fn on_congestion(&mut self, _event: &Congestion) {
        self.ssthresh = (self.cwnd * BETA).floor().max(2.0);
        self.cwnd = self.ssthresh;
        self.counted = 0.0;
    }

    fn on_timeout(&mut self, _now: Time) {
        self.cwnd = 1.0;
        self.counted = 0.0;
    }

    fn set_window(&mut self, cwnd: f64, ssthresh: f64) {
        (self.cwnd, self.ssthresh) = (cwnd, ssthresh);
    }
}

/// A packet for each `each` packets acknowledged (Linux's tcp_cong_avoid_ai).
pub(crate) fn additive_increase(cwnd: &mut f64, counted: &mut f64, each: f64, acked: f64) {
    if *counted >= each {
        // counted while the window was larger: to be used gently
        *counted = 0.0;
        *cwnd += 1.0;
    }
    *counted += acked;
    if *counted >= each {
        let grown = (*counted / each).floor();
        *counted -= grown * each;
        *cwnd += grown;
    }
}

/// One packet for each packet acknowledged, up to `ssthresh`; returns the acknowledged packets that
/// are left over for congestion avoidance.
pub(crate) fn slow_start(cwnd: &mut f64, ssthresh: f64, acked: f64) -> f64 {
    let grown = (*cwnd + acked).min(ssthresh.max(*cwnd));
    let left = acked - (grown - *cwnd);
    *cwnd = grown;
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::tests::{ack, loss};

    #[test]
    fn reno_doubles_in_slow_start_and_adds_one_a_round_after() {
        let mut reno = Reno::default();
        reno.on_ack(&ack(0.0, 10));
        assert_eq!(reno.cwnd(), 20.0);
        reno.on_congestion(&loss());
        assert_eq!((reno.cwnd(), reno.ssthresh()), (10.0, 10.0));
        for _ in 0..10 {
            reno.on_ack(&ack(0.1, 1));
        }
        assert!((reno.cwnd() - 11.0).abs() < 0.05, "{}", reno.cwnd());
    }

    #[test]
    fn slow_start_stops_at_the_threshold() {
        let mut cwnd = 9.0;
        assert_eq!(slow_start(&mut cwnd, 12.0, 5.0), 2.0);
        assert_eq!(cwnd, 12.0);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut reno = Reno::default();
        reno.on_ack(&Ack {
            cwnd_limited: false,
            ..ack(0.0, 10)
        });
        assert_eq!(reno.cwnd(), INITIAL_WINDOW);
    }

    #[test]
    fn a_timeout_begins_again_at_one_packet() {
        let mut reno = Reno {
            cwnd: 40.0,
            ssthresh: 30.0,
            counted: 0.0,
        };
        reno.on_congestion(&loss());
        reno.on_timeout(Time::ZERO);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (1.0, 20.0));
    }
}
