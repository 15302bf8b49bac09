//! PCC Vivace (Dong, Meng, Zarchy, Arslan, Gilad, Godfrey and Schapira 2018): learn the rate online.
//!
//! Time is cut into monitor intervals of a round trip each. An interval sent at rate x (in Mbit/s)
//! has the utility
//!
//! ```text
//! u(x) = x^0.9 - 900 x dRTT/dT - 11.35 x L                          (1)  section 4.1
//! ```
//!
//! with the slope of the RTT over the interval and the share L of its packets that were lost. After
//! a slow start that doubles the rate until the utility falls, two intervals at (1 + e) r and
//! (1 - e) r, in random order, give the gradient, and the rate takes a step along it:
//!
//! ```text
//! gamma = (u(r (1 + e)) - u(r (1 - e))) / (2 e r)                   (2)  section 4.2
//! dr    = m theta gamma, |dr| <= omega r                            (3)
//! ```
//!
//! m, the confidence amplifier, grows with the number of steps in one direction; omega, the change
//! boundary, grows while it limits the steps.
//!
//! The result of an interval is known a round trip after it was sent; until then the rate is r. A packet
//! belongs to the interval in which it was sent, which follows from its RTT; lost packets count for the
//! interval of the acknowledgment that showed the loss. The paper leaves open how to use a window beside
//! the rate; this one is two round trips' worth and does not bind.

use pathcast_base::{Span, Time};

use crate::INITIAL_WINDOW;
use crate::controller::{Ack, Congestion, Controller};
use crate::random::SplitMix64;
use crate::scheme::Kind;

/// Exponent of the rate (section 4.1).
const T: f64 = 0.9;
/// Weight of the RTT's slope (section 4.1; 0 is Vivace-loss).
const B: f64 = 900.0;
/// Weight of loss: up to 5 % of random loss is borne (section 4.1).
const C: f64 = 11.35;
/// Slopes smaller than this are noise (section 5).
const SLOPE_FLOOR: f64 = 0.01;
/// e, how far to probe (section 4.2).
const PROBE: f64 = 0.05;
/// theta_0, the conversion factor from utility gradient to rate (section 5).
const THETA: f64 = 1.0;
/// omega_0 and its increment (section 4.2).
const OMEGA: (f64, f64) = (0.05, 0.1);
/// Slowest rate in packets a round trip, as in the authors' implementation.
const MIN_PACKETS_PER_ROUND: f64 = 2.0;
/// Mbit in a packet of 1,448 bytes: the utility is not free of units.
const MBIT: f64 = 1448.0 * 8.0 / 1e6;
/// Fewest packets in an interval.
const MIN_PACKETS: f64 = 10.0;

/// The utility of sending at `mbps`, at an RTT that changes by `slope` seconds a second and with the
/// share `loss` of packets lost: equation 1.
pub fn utility(mbps: f64, slope: f64, loss: f64) -> f64 {
    let slope = if slope.abs() < SLOPE_FLOOR {
        0.0
    } else {
        slope
    };
    libm::pow(mbps, T) - B * mbps * slope - C * mbps * loss
}

/// What an interval is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Slow start.
    Double,
    /// A probe above the rate, or below.
    Above,
    Below,
    /// Nothing: results are awaited.
    Wait,
}

/// One monitor interval: what was sent in it, and the result.
#[derive(Clone, Copy, Debug)]
struct Interval {
    purpose: Purpose,
    mbps: f64,
    began: Time,
    ended: Time,
    acked: f64,
    lost: f64,
    /// Sums for the regression of RTT on the time of sending, in seconds since the start.
    n: f64,
    t: f64,
    rtt: f64,
    tt: f64,
    t_rtt: f64,
}

impl Interval {
    fn new(purpose: Purpose, mbps: f64, began: Time, length: Span) -> Self {
        Self {
            purpose,
            mbps,
            began,
            ended: began + length,
            acked: 0.0,
            lost: 0.0,
            n: 0.0,
            t: 0.0,
            rtt: 0.0,
            tt: 0.0,
            t_rtt: 0.0,
        }
    }

    fn sample(&mut self, sent: Time, rtt: Span) {
        let (t, rtt) = (sent.since(self.began).as_secs(), rtt.as_secs());
        self.n += 1.0;
        self.t += t;
        self.rtt += rtt;
        self.tt += t * t;
        self.t_rtt += t * rtt;
    }

    /// Least-squares slope of the RTT.
    fn slope(&self) -> f64 {
        let spread = self.n * self.tt - self.t * self.t;
        if self.n < 2.0 || spread <= 1e-12 {
            return 0.0;
        }
        (self.n * self.t_rtt - self.t * self.rtt) / spread
    }

    fn utility(&self) -> f64 {
        // an interval of which nothing arrived is lost
        let loss = if self.acked > 0.0 {
            self.lost / (self.acked + self.lost)
        } else {
            1.0
        };
        utility(self.mbps, self.slope(), loss)
    }
}

/// Intervals whose results may be outstanding; slow start has the most.
const PENDING: usize = 8;

/// Vivace's state.
#[derive(Clone, Debug)]
pub struct Vivace {
    /// r, in Mbit/s; none before the first RTT.
    mbps: Option<f64>,
    slow_start: bool,
    /// The utility of the last slow-start interval, and its rate.
    last: Option<(f64, f64)>,
    intervals: [Option<Interval>; PENDING],
    /// The interval that is being sent.
    current: usize,
    srtt: Span,
    above: Option<f64>,
    below: Option<f64>,
    probe_mbps: f64,
    /// The probe that is still to be sent.
    second: Option<Purpose>,
    /// Steps in one direction, signed.
    steps: i32,
    /// k: how often in a row the boundary held a step back.
    boundary: u32,
    random: SplitMix64,
}

impl Vivace {
    /// A new connection's controller; `seed` goes into the order of probes.
    pub fn new(seed: u64) -> Self {
        Self {
            mbps: None,
            slow_start: true,
            last: None,
            intervals: [None; PENDING],
            current: 0,
            srtt: Span::ZERO,
            above: None,
            below: None,
            probe_mbps: 0.0,
            second: None,
            steps: 0,
            boundary: 0,
            random: SplitMix64::new(seed),
        }
    }

    fn sending_mbps(&self) -> Option<f64> {
        let mbps = self.mbps?;
        Some(self.intervals[self.current].map_or(mbps, |interval| interval.mbps))
    }

    fn least_mbps(&self) -> f64 {
        MIN_PACKETS_PER_ROUND * MBIT / self.srtt.as_secs().max(1e-3)
    }

    /// Begins the interval that follows.
    fn begin(&mut self, now: Time) {
        let r = self.mbps.expect("an RTT is known");
        let (purpose, mbps) = if self.slow_start {
            let sent = self.intervals[self.current].map_or(r, |interval| 2.0 * interval.mbps);
            (Purpose::Double, sent)
        } else if let Some(second) = self.second.take() {
            (second, self.probed(second))
        } else if self.awaits_probes() {
            (Purpose::Wait, r)
        } else {
            self.random.stir(now);
            self.probe_mbps = r;
            (self.above, self.below) = (None, None);
            let (first, second) = if self.random.uniform() < 0.5 {
                (Purpose::Above, Purpose::Below)
            } else {
                (Purpose::Below, Purpose::Above)
            };
            self.second = Some(second);
            (first, self.probed(first))
        };
        let enough = Span::from_secs(MIN_PACKETS * MBIT / mbps);
        self.current = (self.current + 1) % PENDING;
        self.intervals[self.current] =
            Some(Interval::new(purpose, mbps, now, self.srtt.max(enough)));
    }

    fn awaits_probes(&self) -> bool {
        self.intervals
            .iter()
            .flatten()
            .any(|interval| matches!(interval.purpose, Purpose::Above | Purpose::Below))
    }

    fn probed(&self, purpose: Purpose) -> f64 {
        match purpose {
            Purpose::Above => self.probe_mbps * (1.0 + PROBE),
            _ => self.probe_mbps * (1.0 - PROBE),
        }
    }

    /// Takes the result of an interval.
    fn learn(&mut self, interval: &Interval) {
        let utility = interval.utility();
        match interval.purpose {
            Purpose::Double if self.slow_start => match self.last {
                Some((last, mbps)) if utility < last => {
                    self.slow_start = false;
                    self.mbps = Some(mbps);
                }
                _ => {
                    self.last = Some((utility, interval.mbps));
                    self.mbps = Some(interval.mbps);
                }
            },
            Purpose::Double | Purpose::Wait => {}
            Purpose::Above => self.above = Some(utility),
            Purpose::Below => self.below = Some(utility),
        }
        if let (Some(above), Some(below)) = (self.above, self.below) {
            (self.above, self.below) = (None, None);
            self.step(above, below);
        }
    }

    /// One step along the gradient.
    fn step(&mut self, above: f64, below: f64) {
        let r = self.probe_mbps;
        let gradient = (above - below) / (2.0 * PROBE * r); // (2)
        let sign = if gradient < 0.0 { -1 } else { 1 };
        if self.steps.signum() == sign {
            self.steps += sign;
        } else {
            self.steps = sign;
            self.boundary = 0;
        }
        let tau = f64::from(self.steps.abs());
        let amplifier = if tau <= 3.0 { tau } else { 2.0 * tau - 3.0 };
        let mut change = amplifier * THETA * gradient; // (3)
        let bound = |k: u32| (OMEGA.0 + f64::from(k) * OMEGA.1) * r;
        if change.abs() > bound(self.boundary) {
            change = bound(self.boundary) * f64::from(sign);
            self.boundary += 1;
        } else {
            // the smallest k that lets this change pass
            let over = (change.abs() / r - OMEGA.0) / OMEGA.1;
            self.boundary = over.ceil().max(0.0) as u32;
        }
        self.mbps = Some((r + change).max(self.least_mbps()));
    }
}

pub(crate) const KINDS: &[Kind] = &[Kind::plain("vivace", |seed| Box::new(Vivace::new(seed)))];

impl Controller for Vivace {
    fn name(&self) -> &'static str {
        "vivace"
    }

    fn cwnd(&self) -> f64 {
        self.sending_mbps().map_or(INITIAL_WINDOW, |mbps| {
            (2.0 * mbps / MBIT * self.srtt.as_secs()).max(INITIAL_WINDOW)
        })
    }

    fn ssthresh(&self) -> f64 {
        f64::INFINITY
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.srtt = ack.srtt;
        if self.srtt == Span::ZERO {
            return;
        }
        if self.mbps.is_none() {
            // the first window, spread over a round trip
            self.mbps = Some(INITIAL_WINDOW * MBIT / self.srtt.as_secs());
            self.begin(ack.now);
        }
        let sent = Time::from_nanos(
            (ack.now.as_nanos()).saturating_sub(ack.rtt.unwrap_or(ack.srtt).as_nanos()),
        );
        // oldest first: from the one after the current round to the current
        for i in 1..=PENDING {
            let at = (self.current + i) % PENDING;
            let Some(mut interval) = self.intervals[at] else {
                continue;
            };
            if sent >= interval.ended && at != self.current {
                self.intervals[at] = None;
                self.learn(&interval);
            } else if sent >= interval.began && sent < interval.ended {
                interval.acked += ack.acked_packets as f64;
                interval.lost += ack.lost_packets as f64;
                if let Some(rtt) = ack.rtt {
                    interval.sample(sent, rtt);
                }
                self.intervals[at] = Some(interval);
            }
        }
        let current = self.intervals[self.current].as_mut();
        let over = current.is_none_or(|interval| {
            // slow start left, or results in: no need to wait any longer
            let stale = match interval.purpose {
                Purpose::Double => !self.slow_start,
                _ => false,
            };
            if stale {
                interval.ended = ack.now;
            }
            ack.now >= interval.ended
        });
        if over {
            self.begin(ack.now);
        }
    }

    fn on_congestion(&mut self, _event: &Congestion) {}

    fn on_timeout(&mut self, now: Time) {
        if let Some(mbps) = self.mbps {
            self.slow_start = false;
            self.mbps = Some((mbps / 2.0).max(self.least_mbps()));
            self.intervals = [None; PENDING];
            (self.above, self.below, self.second) = (None, None, None);
            self.begin(now);
        }
    }

    // its window follows from its rate
    fn set_window(&mut self, _cwnd: f64, _ssthresh: f64) {}

    fn manages_recovery(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Option<f64> {
        Some(self.sending_mbps()? / MBIT)
    }

    fn in_slow_start(&self) -> bool {
        self.slow_start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bottleneck::{Bottleneck, run};

    #[test]
    fn the_utility_is_that_of_the_paper() {
        assert!((utility(10.0, 0.0, 0.0) - 7.943_282).abs() < 1e-6);
        // 5 % of loss costs as much as the rate brings, at 9.6 Mbit/s
        assert!((utility(10.0, 0.0, 0.05) - (7.943_282 - 5.675)).abs() < 1e-6);
        assert!((utility(10.0, 0.02, 0.0) - (7.943_282 - 180.0)).abs() < 1e-6);
        // noise does not count
        assert_eq!(utility(10.0, 0.009, 0.0), utility(10.0, 0.0, 0.0));
    }

    #[test]
    fn a_regression_finds_the_slope() {
        let mut interval = Interval::new(Purpose::Wait, 1.0, Time::ZERO, Span::from_millis(100));
        for i in 0..50u64 {
            // 3 ms more RTT for each 100 ms
            let sent = Time::ZERO + Span::from_millis(2 * i);
            interval.sample(sent, Span::from_nanos(60_000_000 + 60_000 * i));
        }
        assert!(
            (interval.slope() - 0.03).abs() < 1e-9,
            "{}",
            interval.slope()
        );
    }

    fn at(mbps: f64) -> Vivace {
        Vivace {
            mbps: Some(mbps),
            probe_mbps: mbps,
            srtt: Span::from_millis(100),
            ..Vivace::new(1)
        }
    }

    #[test]
    fn a_step_is_the_gradient_times_the_amplifier() {
        let mut vivace = at(100.0);
        // a gradient of 0.5: (5 - 0) / (2 * 0.05 * 100)
        let mut rates = Vec::new();
        for _ in 0..5 {
            vivace.probe_mbps = 100.0;
            vivace.step(5.0, 0.0);
            rates.push(vivace.mbps.unwrap() - 100.0);
        }
        // m is 1, 2, 3, 5, 7
        for (rate, expected) in rates.iter().zip([0.5, 1.0, 1.5, 2.5, 3.5]) {
            assert!((rate - expected).abs() < 1e-9, "{rates:?}");
        }
        vivace.probe_mbps = 100.0;
        vivace.step(0.0, 5.0);
        assert!((vivace.mbps.unwrap() - 99.5).abs() < 1e-9);
    }

    #[test]
    fn a_step_is_at_most_5_percent_and_10_more_each_time() {
        let mut vivace = at(100.0);
        let mut rates = Vec::new();
        for _ in 0..3 {
            vivace.probe_mbps = 100.0;
            vivace.step(1e6, 0.0);
            rates.push(vivace.mbps.unwrap());
        }
        for (rate, expected) in rates.iter().zip([105.0, 115.0, 125.0]) {
            assert!((rate - expected).abs() < 1e-9, "{rates:?}");
        }
    }

    #[test]
    fn the_link_is_well_used_with_a_small_queue() {
        let path = Bottleneck::of_12mbps_60ms(2.0);
        let outcome = run(&mut Vivace::new(1), path, 120.0, 30.0);
        assert!(outcome.utilization > 0.85, "{outcome:?}");
        assert!(outcome.queue_packets < 40.0, "{outcome:?}");
        assert!(outcome.loss < 0.01, "{outcome:?}");
    }

    #[test]
    fn random_loss_below_5_percent_is_borne() {
        let path = Bottleneck {
            loss: 0.01,
            ..Bottleneck::of_12mbps_60ms(2.0)
        };
        let outcome = run(&mut Vivace::new(1), path, 120.0, 30.0);
        assert!(outcome.utilization > 0.75, "{outcome:?}");
    }
}
