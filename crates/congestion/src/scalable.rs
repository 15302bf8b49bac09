//! Scalable TCP (Kelly 2003): multiplicative increase, so that the time to win a lost window back
//! does not depend on the window.
//!
//! ```text
//! cwnd += a for each packet acknowledged, a = 0.01     (Kelly 2003, section 3)
//! cwnd -= b cwnd on loss, b = 1/8
//! ```
//!
//! It takes ln(1/(1 - b)) / ln(1 + a) = 13.4 round trips to recover from a loss. Below 100 packets
//! Linux grows by 1/cwnd for each packet instead, as Reno does.

use pathcast_base::Time;

use crate::INITIAL_WINDOW;
use crate::controller::{Ack, Congestion, Controller};
use crate::reno::slow_start;
use crate::scheme::Kind;

/// 1/a (Linux's TCP_SCALABLE_AI_CNT).
const ACKS_PER_INCREASE: f64 = 100.0;
/// b (Linux's TCP_SCALABLE_MD_SCALE, a shift by 3).
const DECREASE: f64 = 1.0 / 8.0;

/// Scalable TCP's state.
#[derive(Clone, Debug)]
pub struct Scalable {
    cwnd: f64,
    ssthresh: f64,
}

impl Default for Scalable {
    fn default() -> Self {
        Self {
            cwnd: INITIAL_WINDOW,
            ssthresh: f64::INFINITY,
        }
    }
}

pub(crate) const KINDS: &[Kind] = &[Kind::plain("scalable", |_| Box::new(Scalable::default()))];

impl Controller for Scalable {
    fn name(&self) -> &'static str {
        "scalable"
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
        self.cwnd += acked / self.cwnd.min(ACKS_PER_INCREASE);
    }

    fn on_congestion(&mut self, _event: &Congestion) {
        // in whole packets, as in Linux: below 8 packets a loss takes none
        let cwnd = self.cwnd.floor();
        self.ssthresh = (cwnd - (cwnd * DECREASE).floor()).max(2.0);
        self.cwnd = self.ssthresh;
    }

    fn on_timeout(&mut self, _now: Time) {
        self.cwnd = 1.0;
    }

    fn set_window(&mut self, cwnd: f64, ssthresh: f64) {
        (self.cwnd, self.ssthresh) = (cwnd, ssthresh);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::tests::{ack, loss};

    /// Round trips until the window is back where it was when it lost.
    fn rounds_to_recover(window: f64) -> u32 {
        let mut scalable = Scalable {
            cwnd: window,
            ssthresh: window,
        };
        scalable.on_congestion(&loss());
        let mut rounds = 0;
        while scalable.cwnd() < window {
            for _ in 0..scalable.cwnd() as u64 {
                scalable.on_ack(&ack(0.0, 1));
            }
            rounds += 1;
        }
        rounds
    }

    #[test]
    fn recovery_takes_14_round_trips_whatever_the_window() {
        // 13.4, rounded up
        for window in [200.0, 2_000.0, 20_000.0] {
            assert_eq!(rounds_to_recover(window), 14, "{window}");
        }
    }

    #[test]
    fn small_windows_grow_as_reno_does() {
        let mut scalable = Scalable {
            cwnd: 20.0,
            ssthresh: 20.0,
        };
        for _ in 0..20 {
            scalable.on_ack(&ack(0.0, 1));
        }
        assert!((scalable.cwnd() - 21.0).abs() < 0.05, "{}", scalable.cwnd());
    }

    #[test]
    fn a_loss_takes_an_eighth() {
        let mut scalable = Scalable {
            cwnd: 800.0,
            ssthresh: 100.0,
        };
        scalable.on_congestion(&loss());
        assert_eq!((scalable.cwnd(), scalable.ssthresh()), (700.0, 700.0));
    }

    #[test]
    fn a_loss_takes_whole_packets() {
        for (before, after) in [(15.9, 14.0), (10.5, 9.0), (7.9, 7.0), (1.5, 2.0)] {
            let mut scalable = Scalable {
                cwnd: before,
                ssthresh: before,
            };
            scalable.on_congestion(&loss());
            assert_eq!(scalable.ssthresh(), after, "{before}");
        }
    }
}
