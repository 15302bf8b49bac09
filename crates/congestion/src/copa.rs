//! Copa (Arun and Balakrishnan 2018): send at a rate that is the inverse of the queueing delay.
//!
//! With d_q the queueing delay (the smallest RTT of the last half srtt over the smallest of ten
//! seconds), the target rate in packets a second is
//!
//! ```text
//! lambda_t = 1 / (delta d_q)                                           (1)  section 2
//! lambda   = cwnd / RTTstanding                                        (2)
//! cwnd    += v / (delta cwnd) if lambda <= lambda_t, else -= the same, for each packet   (3)
//! ```
//!
//! so that a flow that is alone keeps about 1/delta packets queued, and n flows with delta = 1/2 an
//! average of 2 n and a bit. The velocity v doubles each round trip once the window has moved one way
//! for three, and is 1 again when it turns.
//!
//! Copa's own oscillation empties the queue every five round trips. If that does not show, someone
//! else fills the queue, and Copa competes: 1/delta grows by 1 each round trip and is halved on loss
//! (section 2.2). Otherwise losses do not matter. Packets are paced at twice the window's rate
//! (section 2.3).

use pathcast_base::{Span, Time};

use crate::INITIAL_WINDOW;
use crate::controller::{Ack, Congestion, Controller};
use crate::scheme::Kind;
use crate::window_filter::TimeMin;

/// The default mode's delta (section 2).
const DEFAULT_DELTA: f64 = 0.5;
/// How long the smallest RTT is remembered (section 2.1).
const MIN_RTT_WINDOW: Span = Span::from_millis(10_000);
/// Round trips in one direction before the velocity doubles (section 2.1).
const STEADY_ROUNDS: u32 = 3;
/// Round trips within which the queue must have been nearly empty (section 2.2),
const EMPTY_ROUNDS: u64 = 5;
/// which is a delay below this share of the largest,
const NEARLY_EMPTY: f64 = 0.1;
/// of as many round trips.
const MAX_ROUNDS: usize = 4;
/// Smallest window in packets.
const MIN_WINDOW: f64 = 2.0;

/// Which way the window moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// Copa's state.
#[derive(Clone, Debug)]
pub struct Copa {
    cwnd: f64,
    slow_start: bool,
    /// The window when slow start ended.
    ssthresh: f64,
    min_rtt: TimeMin,
    standing_rtt: TimeMin,
    standing: Span,

    velocity: f64,
    direction: Direction,
    steady_rounds: u32,
    /// The window a round trip ago.
    round_cwnd: f64,

    /// Largest RTT of each of the last round trips.
    max_rtts: [Span; MAX_ROUNDS],
    round: u64,
    empty_round: u64,
    /// 1/delta while competing.
    competing: Option<f64>,
    lost_in_round: bool,
}

impl Default for Copa {
    fn default() -> Self {
        Self {
            cwnd: INITIAL_WINDOW,
            slow_start: true,
            ssthresh: f64::INFINITY,
            min_rtt: TimeMin::new(),
            standing_rtt: TimeMin::new(),
            standing: Span::ZERO,
            velocity: 1.0,
            direction: Direction::Up,
            steady_rounds: 0,
            round_cwnd: INITIAL_WINDOW,
            max_rtts: [Span::ZERO; MAX_ROUNDS],
            round: 0,
            empty_round: 0,
            competing: None,
            lost_in_round: false,
        }
    }
}

impl Copa {
    fn delta(&self) -> f64 {
        self.competing.map_or(DEFAULT_DELTA, f64::recip)
    }

    /// Whether the window is to grow.
    fn is_below_target(&self) -> bool {
        let queueing_s = (self.standing - self.min_rtt.min()).as_secs();
        // (1) and (2): cwnd / standing <= 1 / (delta d_q)
        self.cwnd * self.delta() * queueing_s <= self.standing.as_secs()
    }

    fn end_round(&mut self) {
        let moved = if self.cwnd > self.round_cwnd {
            Direction::Up
        } else {
            Direction::Down
        };
        if moved == self.direction {
            self.steady_rounds += 1;
            if self.steady_rounds >= STEADY_ROUNDS {
                self.velocity *= 2.0;
            }
        } else {
            self.velocity = 1.0;
            self.steady_rounds = 0;
        }
        self.direction = moved;
        self.round_cwnd = self.cwnd;

        self.round += 1;
        self.max_rtts[(self.round % MAX_ROUNDS as u64) as usize] = Span::ZERO;
        // section 2.2
        let sharing = self.round - self.empty_round > EMPTY_ROUNDS;
        self.competing = match self.competing {
            Some(inverse) if sharing && self.lost_in_round => {
                Some((inverse / 2.0).max(1.0 / DEFAULT_DELTA))
            }
            Some(inverse) if sharing => Some(inverse + 1.0),
            None if sharing => Some(1.0 / DEFAULT_DELTA),
            _ => None,
        };
        self.lost_in_round = false;
    }

    fn note_rtt(&mut self, ack: &Ack) {
        let Some(rtt) = ack.rtt else { return };
        let least = self.min_rtt.update(ack.now, rtt, MIN_RTT_WINDOW);
        let half = ack.srtt.mul_div(1, 2);
        self.standing = self.standing_rtt.update(ack.now, rtt, half);
        let slot = &mut self.max_rtts[(self.round % MAX_ROUNDS as u64) as usize];
        *slot = rtt.max(*slot);
        let largest = self.max_rtts.iter().copied().max().unwrap_or(rtt);
        let nearly_empty = (largest - least).as_secs() * NEARLY_EMPTY;
        if (self.standing - least).as_secs() <= nearly_empty {
            self.empty_round = self.round;
        }
    }
}

pub(crate) const KINDS: &[Kind] = &[Kind::plain("copa", |_| Box::new(Copa::default()))];

impl Controller for Copa {
    fn name(&self) -> &'static str {
        "copa"
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }

    fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.lost_in_round |= ack.lost_packets > 0;
        self.note_rtt(ack);
        if self.standing == Span::ZERO {
            return;
        }
        if ack.round_ends && !self.slow_start {
            self.end_round();
        }
        let acked = ack.acked_packets as f64;
        let below = self.is_below_target();
        if self.slow_start {
            if below {
                if ack.cwnd_limited {
                    self.cwnd += acked;
                }
                return;
            }
            self.slow_start = false;
            self.ssthresh = self.cwnd;
            self.round_cwnd = self.cwnd;
            self.empty_round = self.round;
        }
        if below && self.direction == Direction::Down || !below && self.direction == Direction::Up {
            // it turns: no momentum the wrong way
            self.velocity = 1.0;
        }
        let step = self.velocity * acked / (self.delta() * self.cwnd); // (3)
        // no more than doubling in a round trip
        let step = step.min(acked);
        if !below {
            self.cwnd = (self.cwnd - step).max(MIN_WINDOW);
        } else if ack.cwnd_limited {
            self.cwnd += step;
        }
    }

    fn on_congestion(&mut self, _event: &Congestion) {
        self.lost_in_round = true;
    }

    fn on_timeout(&mut self, _now: Time) {
        self.cwnd = MIN_WINDOW;
        self.velocity = 1.0;
        self.slow_start = true;
    }

    fn set_window(&mut self, cwnd: f64, _ssthresh: f64) {
        self.cwnd = cwnd.max(MIN_WINDOW);
    }

    fn manages_recovery(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Option<f64> {
        (self.standing > Span::ZERO).then(|| 2.0 * self.cwnd / self.standing.as_secs())
    }

    fn in_slow_start(&self) -> bool {
        self.slow_start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bottleneck::{Bottleneck, run};
    use crate::controller::tests::{ack, loss};

    /// A flow past slow start with a base RTT of 100 ms and `queueing_ms` on top.
    fn with_queueing(cwnd: f64, queueing_ms: u64) -> Copa {
        let mut copa = Copa {
            cwnd,
            slow_start: false,
            ..Copa::default()
        };
        copa.min_rtt
            .update(Time::ZERO, Span::from_millis(100), MIN_RTT_WINDOW);
        copa.standing = Span::from_millis(100 + queueing_ms);
        copa
    }

    #[test]
    fn the_target_rate_is_the_inverse_of_delta_times_the_queueing_delay() {
        // 1 / (0.5 * 10 ms) = 200 packets a second: 22 packets at a standing RTT of 110 ms
        assert!(with_queueing(21.9, 10).is_below_target());
        assert!(!with_queueing(22.1, 10).is_below_target());
        // twice the delay, half the rate: 12 packets at 120 ms
        assert!(with_queueing(11.9, 20).is_below_target());
        assert!(!with_queueing(12.1, 20).is_below_target());
    }

    #[test]
    fn the_window_moves_by_velocity_over_delta_packets_a_round_trip() {
        let mut copa = with_queueing(50.0, 0);
        for _ in 0..50 {
            copa.on_ack(&Ack {
                rtt: None,
                ..ack(0.0, 1)
            });
        }
        assert!((copa.cwnd() - 52.0).abs() < 0.05, "{}", copa.cwnd());
    }

    #[test]
    fn the_velocity_doubles_after_three_rounds_one_way_and_falls_back_on_a_turn() {
        let mut copa = with_queueing(50.0, 0);
        let mut velocities = Vec::new();
        for _ in 0..5 {
            copa.cwnd += 1.0;
            copa.end_round();
            velocities.push(copa.velocity);
        }
        assert_eq!(velocities, [1.0, 1.0, 2.0, 4.0, 8.0]);
        copa.cwnd -= 1.0;
        copa.end_round();
        assert_eq!(copa.velocity, 1.0);
    }

    #[test]
    fn a_queue_that_never_empties_is_someone_elses_and_loss_halves_the_claim() {
        let mut copa = with_queueing(50.0, 50);
        let mut claims = Vec::new();
        for _ in 0..9 {
            copa.end_round();
            claims.push(copa.competing);
        }
        assert_eq!(claims[4], None);
        assert_eq!(claims[5..], [Some(2.0), Some(3.0), Some(4.0), Some(5.0)]);
        copa.on_congestion(&loss());
        copa.end_round();
        assert_eq!(copa.competing, Some(2.5));
        copa.empty_round = copa.round;
        copa.end_round();
        assert_eq!(copa.competing, None);
    }

    #[test]
    fn the_queue_is_small_and_the_link_full() {
        let path = Bottleneck::of_12mbps_60ms(2.0);
        let mut copa = Copa::default();
        // a queue of less than eight packets in the mean leaves no room for competing in between
        let outcome = run(&mut copa, path, 60.0, 10.0);
        assert_eq!(copa.competing, None);
        assert!(outcome.utilization > 0.96, "{outcome:?}");
        assert!((1.0..8.0).contains(&outcome.queue_packets), "{outcome:?}");
        assert_eq!(outcome.loss, 0.0);
    }

    #[test]
    fn random_loss_costs_nothing() {
        let path = Bottleneck {
            loss: 0.01,
            ..Bottleneck::of_12mbps_60ms(2.0)
        };
        let outcome = run(&mut Copa::default(), path, 60.0, 10.0);
        assert!(outcome.utilization > 0.9, "{outcome:?}");
    }
}
