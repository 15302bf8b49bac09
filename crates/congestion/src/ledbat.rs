//! LEDBAT (RFC 6817) and LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus): a background flow that adds a
//! fixed queueing delay when alone and makes room for everyone else.
//!
//! With the queueing delay q, the smallest of the last four RTTs over the smallest of ten minutes,
//! LEDBAT moves the window for each packet acknowledged by
//!
//! ```text
//! cwnd += GAIN (TARGET - q) / TARGET / cwnd                        (1)  RFC 6817, section 2.4.2
//! ```
//!
//! and LEDBAT++, where GAIN is smaller on short paths, by a share 1/cwnd of
//!
//! ```text
//! q < TARGET: GAIN                                                 (2)  section 4.2
//! q > TARGET: max(GAIN - cwnd (q / TARGET - 1), -cwnd / 2)         (3)  section 4.3
//! GAIN = 1 / min(16, ceil(2 TARGET / base RTT))                    (4)  section 4.2
//! ```
//!
//! LEDBAT++ also drops to two packets now and then for two round trips (section 4.4), so that flows
//! that share a queue see the path empty and do not take each other's delay for the base.
//!
//! Both measure round trips, so queueing in the reverse direction counts too. LEDBAT++ does so by design;
//! LEDBAT specifies one-way delays, which need synchronized clocks. The window grows only while it is used,
//! instead of RFC 6817's bound of a packet over the flight size.

use pathcast_base::{Span, Time};

use crate::controller::{Ack, Congestion, Controller};
use crate::queueing::QueueingDelay;
use crate::reno::slow_start;
use crate::scheme::Kind;

/// Samples in the filter of the current delay (RFC 6817: CURRENT_FILTER).
const CURRENT_FILTER: usize = 4;
/// First and smallest window in packets (RFC 6817: INIT_CWND, MIN_CWND).
const MIN_WINDOW: f64 = 2.0;
/// LEDBAT++ leaves its first slow start at this share of the target (section 4.2).
const SLOW_START_SHARE: f64 = 0.75;
/// Round trips that a slowdown of LEDBAT++ lasts, and that the first one waits (section 4.4).
const SLOWDOWN_ROUNDS: u64 = 2;
/// A slowdown may cost a tenth: the time to the next is nine times its own (section 4.4).
const SLOWDOWN_PAUSE: u64 = 9;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedbatConfig {
    /// The queueing delay to add when alone.
    pub target: Span,
    /// LEDBAT++'s gain, decrease and slowdowns.
    pub plus_plus: bool,
}

impl LedbatConfig {
    /// RFC 6817, with the largest target that it allows.
    pub const fn rfc6817() -> Self {
        Self {
            target: Span::from_millis(100),
            plus_plus: false,
        }
    }

    /// LEDBAT++, with the target of its draft.
    pub const fn plus_plus() -> Self {
        Self {
            target: Span::from_millis(60),
            plus_plus: true,
        }
    }
}

/// Where a flow is between its slowdowns.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The first slow start.
    Start,
    /// Equations 1 to 3; LEDBAT++ slows down at `slowdown_at`.
    Steady { slowdown_at: Time },
    /// Two packets, since `began` and until `until`.
    Slowdown { began: Time, until: Time },
    /// Slow start back to the window before the slowdown.
    RampUp { began: Time },
}

/// LEDBAT's state.
#[derive(Clone, Debug)]
pub struct Ledbat {
    config: LedbatConfig,
    cwnd: f64,
    ssthresh: f64,
    phase: Phase,
    delay: QueueingDelay<CURRENT_FILTER>,
}

impl Ledbat {
    /// A new connection's controller.
    pub fn new(config: LedbatConfig) -> Self {
        Self {
            config,
            cwnd: MIN_WINDOW,
            ssthresh: f64::INFINITY,
            phase: Phase::Start,
            delay: QueueingDelay::new(),
        }
    }

    /// Takes a sample; the queueing delay as a multiple of the target.
    fn queueing(&mut self, now: Time, rtt: Option<Span>) -> f64 {
        self.delay.update(now, rtt).as_secs() / self.config.target.as_secs()
    }

    fn gain(&self) -> f64 {
        let Some(base) = self.delay.base().filter(|_| self.config.plus_plus) else {
            return 1.0;
        };
        let base_s = base.as_secs().max(1e-9);
        1.0 / (2.0 * self.config.target.as_secs() / base_s)
            .ceil()
            .clamp(1.0, 16.0) // (4)
    }

    fn steady(&mut self, now: Time, pause: Span) {
        self.phase = Phase::Steady {
            slowdown_at: if self.config.plus_plus {
                now + pause
            } else {
                Time::MAX
            },
        };
    }
}

pub(crate) const KINDS: &[Kind] = &[
    Kind::plain("ledbat", |_| Box::new(Ledbat::new(LedbatConfig::rfc6817()))),
    Kind::plain("ledbat++", |_| {
        Box::new(Ledbat::new(LedbatConfig::plus_plus()))
    }),
];

impl Controller for Ledbat {
    fn name(&self) -> &'static str {
        if self.config.plus_plus {
            "ledbat++"
        } else {
            "ledbat"
        }
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }

    fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    fn on_ack(&mut self, ack: &Ack) {
        let queueing = self.queueing(ack.now, ack.rtt);
        let gain = self.gain();
        let acked = ack.acked_packets as f64;
        match self.phase {
            Phase::Start | Phase::RampUp { .. } => {
                if ack.cwnd_limited {
                    slow_start(&mut self.cwnd, self.ssthresh, gain * acked);
                }
                let reached = self.cwnd >= self.ssthresh;
                match self.phase {
                    Phase::RampUp { began } if reached => {
                        let lasted = ack.now.since(began);
                        self.steady(ack.now, lasted.mul_div(SLOWDOWN_PAUSE, 1));
                    }
                    Phase::Start if reached || queueing > SLOW_START_SHARE => {
                        self.ssthresh = self.cwnd;
                        self.steady(ack.now, ack.srtt.mul_div(SLOWDOWN_ROUNDS, 1));
                    }
                    _ => {}
                }
            }
            Phase::Slowdown { began, until } => {
                if ack.now >= until {
                    self.phase = Phase::RampUp { began };
                }
            }
            Phase::Steady { slowdown_at } if ack.now >= slowdown_at => {
                self.ssthresh = self.cwnd;
                self.cwnd = MIN_WINDOW;
                self.phase = Phase::Slowdown {
                    began: ack.now,
                    until: ack.now + ack.srtt.mul_div(SLOWDOWN_ROUNDS, 1),
                };
            }
            Phase::Steady { .. } => {
                let per_round = if !self.config.plus_plus {
                    gain * (1.0 - queueing) // (1)
                } else if queueing <= 1.0 {
                    gain // (2)
                } else {
                    (gain - self.cwnd * (queueing - 1.0)).max(-self.cwnd / 2.0) // (3)
                };
                if per_round < 0.0 || ack.cwnd_limited {
                    self.cwnd = (self.cwnd + per_round * acked / self.cwnd).max(MIN_WINDOW);
                }
            }
        }
    }

    fn on_congestion(&mut self, event: &Congestion) {
        // RFC 6817, section 2.4.2: halve
        self.cwnd = (self.cwnd / 2.0).max(MIN_WINDOW);
        self.ssthresh = self.cwnd;
        match self.phase {
            Phase::Start => self.steady(event.now, Span::from_millis(1000)),
            Phase::RampUp { began } | Phase::Slowdown { began, .. } => {
                let lasted = event.now.since(began);
                self.steady(event.now, lasted.mul_div(SLOWDOWN_PAUSE, 1));
            }
            Phase::Steady { .. } => {}
        }
    }

    fn on_timeout(&mut self, now: Time) {
        self.cwnd = 1.0;
        self.phase = Phase::RampUp { began: now };
    }

    fn set_window(&mut self, cwnd: f64, ssthresh: f64) {
        (self.cwnd, self.ssthresh) = (cwnd, ssthresh);
    }

    fn in_slow_start(&self) -> bool {
        matches!(self.phase, Phase::Start | Phase::RampUp { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bottleneck::{Bottleneck, Outcome, run};
    use crate::controller::tests::{ack, loss};

    /// What a round trip's worth of acknowledgments adds to a window of 100 at a base RTT of 100 ms.
    fn step(config: LedbatConfig, queueing_ms: u64) -> f64 {
        let mut ledbat = Ledbat::new(config);
        ledbat.queueing(Time::ZERO, Some(Span::from_millis(100)));
        ledbat.cwnd = 100.0;
        ledbat.phase = Phase::Steady {
            slowdown_at: Time::MAX,
        };
        let rtt = Some(Span::from_millis(100 + queueing_ms));
        for _ in 0..CURRENT_FILTER {
            ledbat.queueing(Time::ZERO, rtt);
        }
        ledbat.on_ack(&Ack {
            rtt,
            ..ack(1.0, 100)
        });
        ledbat.cwnd() - 100.0
    }

    #[test]
    fn ledbat_moves_in_proportion_to_the_distance_from_100_ms() {
        for (queueing_ms, packets) in [(0, 1.0), (50, 0.5), (100, 0.0), (200, -1.0)] {
            let moved = step(LedbatConfig::rfc6817(), queueing_ms);
            assert!((moved - packets).abs() < 1e-9, "{queueing_ms} ms: {moved}");
        }
    }

    #[test]
    fn ledbat_plus_plus_grows_by_its_gain_and_falls_in_proportion_to_the_window() {
        // 2 * 60 / 100, rounded up: a gain of a half
        let plus_plus = LedbatConfig::plus_plus();
        for (queueing_ms, packets) in [(0, 0.5), (59, 0.5), (66, 0.5 - 10.0), (300, -50.0)] {
            let moved = step(plus_plus, queueing_ms);
            assert!((moved - packets).abs() < 1e-6, "{queueing_ms} ms: {moved}");
        }
    }

    #[test]
    fn the_gain_is_a_sixteenth_at_least() {
        let mut ledbat = Ledbat::new(LedbatConfig::plus_plus());
        for (rtt_ms, gain) in [(200, 1.0), (60, 0.5), (30, 0.25), (1, 1.0 / 16.0)] {
            ledbat.queueing(Time::ZERO, Some(Span::from_millis(rtt_ms)));
            assert_eq!(ledbat.gain(), gain, "{rtt_ms}");
        }
    }

    #[test]
    fn a_loss_halves_the_window() {
        let mut ledbat = Ledbat::new(LedbatConfig::rfc6817());
        ledbat.cwnd = 50.0;
        ledbat.on_congestion(&loss());
        assert_eq!(ledbat.cwnd(), 25.0);
    }

    fn deep_buffer(config: LedbatConfig, duration_s: f64) -> Outcome {
        let path = Bottleneck::of_12mbps_60ms(10.0);
        run(
            &mut Ledbat::new(config),
            path,
            duration_s,
            duration_s - 80.0,
        )
    }

    #[test]
    fn ledbat_queues_100_ms() {
        // 100 packets at 1000 packets a second, come near with a time constant of 100 round trips
        let outcome = deep_buffer(LedbatConfig::rfc6817(), 200.0);
        assert!(outcome.utilization > 0.999, "{outcome:?}");
        assert!((outcome.queue_packets - 100.0).abs() < 3.0, "{outcome:?}");
    }

    #[test]
    fn ledbat_plus_plus_queues_60_ms_between_slowdowns_that_cost_a_tenth() {
        let outcome = deep_buffer(LedbatConfig::plus_plus(), 120.0);
        assert!((0.9..1.0).contains(&outcome.utilization), "{outcome:?}");
        assert!((40.0..62.0).contains(&outcome.queue_packets), "{outcome:?}");
    }
}
