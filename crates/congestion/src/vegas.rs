//! Vegas (Brakmo and Peterson 1995): keep between two and four packets of one's own in the queue.
//!
//! Once a round trip, with the smallest RTT of that round trip,
//!
//! ```text
//! diff = cwnd (RTT - BaseRTT) / BaseRTT      packets queued     (1)
//! diff < alpha: cwnd += 1;   diff > beta: cwnd -= 1             (2)
//! ```
//!
//! As Linux has it: (1) divides by BaseRTT where the paper divides by RTT and counts whole packets, slow
//! start doubles every round trip and not every other one, and losses halve the window as Reno's do.
//! `crates/kernel-schemes/bpf/vegas.bpf.c` is the same for the kernel.

use pathcast_base::{Span, Time};

use crate::INITIAL_WINDOW;
use crate::controller::{Ack, Belief, Congestion, Controller};
use crate::reno::slow_start;
use crate::scheme::Kind;

/// Fewer packets queued: grow (Linux's alpha).
const ALPHA: f64 = 2.0;
/// More packets queued: shrink (Linux's beta).
const BETA: f64 = 4.0;
/// More packets queued: leave slow start (Linux's gamma).
const GAMMA: f64 = 1.0;
/// With no more RTT samples than this a round trip says nothing, and Reno's rule holds (Linux).
const FEW_SAMPLES: u32 = 2;

/// Vegas' state.
#[derive(Clone, Debug)]
pub struct Vegas {
    cwnd: f64,
    ssthresh: f64,
    base_rtt: Option<Span>,
    round_min_rtt: Option<Span>,
    samples: u32,
    /// Whether the round trip began after the last recovery, so that its RTTs can be trusted.
    whole_round: bool,
}

impl Default for Vegas {
    fn default() -> Self {
        Self {
            cwnd: INITIAL_WINDOW,
            ssthresh: f64::INFINITY,
            base_rtt: None,
            round_min_rtt: None,
            samples: 0,
            whole_round: true,
        }
    }
}

impl Vegas {
    /// The decision at the end of a round trip; whether it was Vegas' own.
    fn decide(&mut self) -> bool {
        let (Some(base), Some(rtt)) = (self.base_rtt, self.round_min_rtt) else {
            return false;
        };
        if self.samples <= FEW_SAMPLES || !self.whole_round {
            return false;
        }
        let stretch = rtt.as_secs() / base.as_secs().max(1e-9);
        // packets of one burst wait for each other: in slow start, parts of packets would say too much
        let cwnd = self.cwnd.floor();
        let queued = (cwnd * (stretch - 1.0)).floor(); // (1)
        if self.in_slow_start() {
            if queued <= GAMMA {
                return false;
            }
            // to what the path would hold without a queue, and one more
            self.cwnd = self.cwnd.min((cwnd / stretch).floor() + 1.0);
            self.ssthresh = self.ssthresh.min(self.cwnd - 1.0);
        } else if queued > BETA {
            self.cwnd -= 1.0; // (2)
            self.ssthresh = self.ssthresh.min(self.cwnd - 1.0);
        } else if queued < ALPHA {
            self.cwnd += 1.0; // (2)
        }
        self.cwnd = self.cwnd.max(2.0);
        self.ssthresh = self.ssthresh.max(2.0);
        true
    }

    fn begin_round(&mut self) {
        self.round_min_rtt = None;
        self.samples = 0;
        self.whole_round = true;
    }
}

pub(crate) const KINDS: &[Kind] = &[Kind::plain("vegas", |_| Box::new(Vegas::default()))];

impl Controller for Vegas {
    fn name(&self) -> &'static str {
        "vegas"
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }

    fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    fn belief(&self) -> Belief {
        Belief {
            min_rtt: self.base_rtt,
            ..Belief::of_window(self.in_slow_start())
        }
    }

    fn on_ack(&mut self, ack: &Ack) {
        if let Some(rtt) = ack.rtt {
            self.base_rtt = Some(self.base_rtt.map_or(rtt, |base| base.min(rtt)));
            self.round_min_rtt = Some(self.round_min_rtt.map_or(rtt, |least| least.min(rtt)));
            self.samples += 1;
        }
        let mut decided = false;
        let reno = !self.whole_round || self.samples <= FEW_SAMPLES;
        if ack.round_ends {
            decided = self.decide();
            self.begin_round();
        }
        if decided || !ack.may_grow() {
            return;
        }
        let mut acked = ack.acked_packets as f64;
        if self.in_slow_start() {
            acked = slow_start(&mut self.cwnd, self.ssthresh, acked);
        }
        if ack.round_ends && reno {
            self.cwnd += acked / self.cwnd;
        }
    }

    fn on_congestion(&mut self, _event: &Congestion) {
        self.ssthresh = (self.cwnd / 2.0).floor().max(2.0);
        self.cwnd = self.ssthresh;
        self.whole_round = false;
    }

    fn on_timeout(&mut self, _now: Time) {
        self.cwnd = 1.0;
    }

    fn set_window(&mut self, cwnd: f64, ssthresh: f64) {
        (self.cwnd, self.ssthresh) = (cwnd, ssthresh);
    }

    fn on_idle_restart(&mut self, _now: Time, _idle: Span) {
        // the path may have changed meanwhile (Linux: vegas_init on CA_EVENT_TX_START)
        self.base_rtt = None;
        self.begin_round();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bottleneck::{Bottleneck, run};
    use crate::controller::tests::{ack, loss};

    /// The window after a round trip at window 100, base RTT 100 ms, with `queued` packets waiting.
    fn after_round(queued: f64) -> f64 {
        let mut vegas = Vegas {
            cwnd: 100.0,
            ssthresh: 50.0,
            base_rtt: Some(Span::from_millis(100)),
            ..Vegas::default()
        };
        let rtt = Some(Span::from_secs(0.1 * (1.0 + queued / 100.0)));
        for _ in 0..50 {
            vegas.on_ack(&Ack { rtt, ..ack(0.0, 2) });
        }
        vegas.on_ack(&Ack {
            rtt,
            round_ends: true,
            ..ack(0.1, 2)
        });
        vegas.cwnd()
    }

    #[test]
    fn the_window_holds_between_two_and_four_whole_packets_queued() {
        assert_eq!(after_round(1.0), 101.0);
        assert_eq!(after_round(1.9), 101.0);
        assert_eq!(after_round(2.1), 100.0);
        assert_eq!(after_round(4.9), 100.0);
        assert_eq!(after_round(5.1), 99.0);
        assert_eq!(after_round(50.0), 99.0);
    }

    #[test]
    fn a_queue_of_more_than_one_packet_ends_slow_start() {
        let mut vegas = Vegas {
            cwnd: 100.0,
            base_rtt: Some(Span::from_millis(100)),
            ..Vegas::default()
        };
        let rtt = Some(Span::from_millis(125));
        for round_ends in [false, false, true] {
            vegas.on_ack(&Ack {
                rtt,
                round_ends,
                cwnd_limited: false,
                ..ack(0.0, 2)
            });
        }
        // 100 / 1.25 and one more
        assert_eq!((vegas.cwnd(), vegas.ssthresh()), (81.0, 80.0));
        assert!(!vegas.in_slow_start());
    }

    #[test]
    fn a_loss_halves_the_window() {
        let mut vegas = Vegas {
            cwnd: 80.0,
            ..Vegas::default()
        };
        vegas.on_congestion(&loss());
        assert_eq!((vegas.cwnd(), vegas.ssthresh()), (40.0, 40.0));
        vegas.cwnd = 9.5;
        vegas.on_congestion(&loss());
        assert_eq!((vegas.cwnd(), vegas.ssthresh()), (4.0, 4.0)); // whole packets
    }

    #[test]
    fn two_to_four_packets_are_queued_and_the_link_is_full() {
        let path = Bottleneck::of_12mbps_60ms(1.0);
        let outcome = run(&mut Vegas::default(), path, 60.0, 20.0);
        assert!(outcome.utilization > 0.995, "{outcome:?}");
        assert!((1.0..5.0).contains(&outcome.queue_packets), "{outcome:?}");
        assert_eq!(outcome.loss, 0.0);
    }
}
