//! CUBIC (RFC 9438): the window grows as a cubic function of the time since the last loss.
//!
//! After a loss at W_max the window falls to 0.7 W_max, climbs fast, flattens as it comes near W_max
//! again, and then probes beyond it ever faster:
//!
//! ```text
//! W(t) = C (t - K)^3 + W_max          K = cbrt((W_max - cwnd_epoch) / C)
//! ```
//!
//! Where that is slower than what Reno would do (short RTTs, small windows), the window follows
//! `W_est`, Reno's window with CUBIC's smaller decrease: the Reno-friendly region.
//!
//! [`CubicConfig::linux`] differs from the RFC where Linux does: `W_est` keeps its small slope past
//! the last maximum, and slow start ends by HyStart. HyStart++ (RFC 9406) is there by choice.

use pathcast_base::{Span, Time};
use pathcast_window_law::{CUBIC_BETA, RENO_FRIENDLY_SLOPE, cubic_beyond, cubic_k_s};

use crate::INITIAL_WINDOW;
use crate::controller::{Ack, Congestion, Controller};
use crate::hystart::HyStart;
use crate::hystart_plus_plus::HyStartPlusPlus;
use crate::reno::{additive_increase, slow_start};
use crate::scheme::Kind;

/// Share of the window that remains after a loss where windows are whole packets (Linux's `beta`, 717 of
/// BICTCP_BETA_SCALE): exact in binary.
const LINUX_BETA: f64 = 717.0 / 1024.0;
/// Linux counts time in ticks (HZ is 250 on most servers): it takes the cubic function once a tick at most,
const TICK_NS: u64 = 1_000_000_000 / 250;
/// and keeps its slope for so many ticks while the window is the same (HZ/32).
const SAME_WINDOW_TICKS: u64 = 250 / 32;
/// At most this share is added in a round trip (Linux: one packet for each two acknowledged).
const MAX_GROWTH: f64 = 0.5;

/// What ends slow start before it overflows the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowStartExit {
    /// Nothing does.
    Loss,
    /// HyStart, as in Linux.
    HyStart,
    /// HyStart++ (RFC 9406), in the first slow start only, as it says.
    HyStartPlusPlus,
}

/// Where implementations of CUBIC differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CubicConfig {
    /// How slow start ends.
    pub slow_start_exit: SlowStartExit,
    /// Let `W_est` grow by a whole packet a round trip once it has passed the window before the last
    /// loss (RFC 9438, section 4.3); Linux does not.
    pub reno_slope_past_last_max: bool,
    /// Count windows in whole packets, which matters where they are small: from 7 packets a loss
    /// leads to 4. The RFC counts bytes.
    pub whole_packets: bool,
}

impl CubicConfig {
    /// As in the RFC, which does not specify how to leave slow start.
    pub const fn rfc9438() -> Self {
        Self {
            slow_start_exit: SlowStartExit::Loss,
            reno_slope_past_last_max: true,
            whole_packets: false,
        }
    }

    /// As Linux does.
    pub const fn linux() -> Self {
        Self {
            slow_start_exit: SlowStartExit::HyStart,
            reno_slope_past_last_max: false,
            whole_packets: true,
        }
    }

    /// As in Linux, but with HyStart++ instead of HyStart.
    pub const fn hystart_plus_plus() -> Self {
        Self {
            slow_start_exit: SlowStartExit::HyStartPlusPlus,
            ..Self::linux()
        }
    }
}

/// The current congestion-avoidance epoch: the time since the last loss.
#[derive(Clone, Debug)]
struct Epoch {
    start: Time,
    /// Seconds from the start to the plateau.
    k_s: f64,
    /// Window at the plateau.
    origin: f64,
    /// What Reno would have, `W_est`.
    reno_window: f64,
    /// Packets acknowledged since it last grew, where it is whole.
    reno_counted: f64,
    /// Where windows are whole: packets to be acknowledged for one more, before W_est has its say, and after;
    /// the tick in which that was found, and for which window.
    cubic_each: f64,
    each: f64,
    looked: Option<(u64, f64)>,
}

impl Epoch {
    /// How far beyond the plateau the window is to be, one round trip from an acknowledgment (RFC 9438, section
    /// 4.2).
    fn beyond(&self, ack: &Ack) -> f64 {
        let t_s = ack.now.since(self.start).as_secs() + ack.min_rtt.as_secs();
        cubic_beyond(t_s - self.k_s)
    }
}

/// CUBIC's state.
#[derive(Clone, Debug)]
#[repr(C)] // what each acknowledgment needs comes first: it then shares a cache line
pub struct Cubic {
    config: CubicConfig,
    cwnd: f64,
    ssthresh: f64,
    /// Packets acknowledged since the window last grew, where it is whole.
    counted: f64,
    epoch: Option<Epoch>,
    /// Where the window was at the last loss, lowered by fast convergence; 0 before any.
    w_max: f64,
    /// The window just before the last loss.
    cwnd_prior: f64,
    hystart: HyStart,
    hystart_plus_plus: HyStartPlusPlus,
}

impl Cubic {
    /// A new connection's controller.
    pub fn new(config: CubicConfig) -> Self {
        Self {
            config,
            cwnd: INITIAL_WINDOW,
            ssthresh: f64::INFINITY,
            w_max: 0.0,
            cwnd_prior: 0.0,
            epoch: None,
            counted: 0.0,
            hystart: HyStart::default(),
            hystart_plus_plus: HyStartPlusPlus::default(),
        }
    }

    /// Slow start's part of an acknowledgment; returns the packets left for congestion avoidance.
    fn slow_start(&mut self, ack: &Ack) -> f64 {
        let acked = ack.acked_packets as f64;
        if self.config.slow_start_exit == SlowStartExit::HyStartPlusPlus
            && self.ssthresh == f64::INFINITY
        {
            match self.hystart_plus_plus.growth(ack) {
                Some(growth) => self.cwnd += growth,
                None => self.ssthresh = self.cwnd,
            }
            return 0.0;
        }
        slow_start(&mut self.cwnd, self.ssthresh, acked)
    }

    fn begin_epoch(&self, now: Time) -> Epoch {
        let (k_s, origin) = if self.cwnd < self.w_max {
            (cubic_k_s(self.w_max, self.cwnd), self.w_max)
        } else {
            (0.0, self.cwnd)
        };
        Epoch {
            start: now,
            k_s,
            origin,
            reno_window: self.cwnd,
            reno_counted: 0.0,
            cubic_each: 0.0,
            each: 0.0,
            looked: None,
        }
    }

    fn avoid_congestion(&mut self, ack: &Ack, acked: f64) {
        if self.epoch.is_none() {
            self.epoch = Some(self.begin_epoch(ack.now));
        }
        if self.config.whole_packets {
            return self.grow_in_whole_packets(ack, acked);
        }
        let epoch = self.epoch.as_mut().expect("begun above");
        let target = epoch.origin + epoch.beyond(ack);
        let mut growth = ((target - self.cwnd) / self.cwnd).max(0.01 / self.cwnd);

        // RFC 9438, equation 4
        let slope = if self.config.reno_slope_past_last_max && epoch.reno_window >= self.cwnd_prior
        {
            1.0
        } else {
            RENO_FRIENDLY_SLOPE
        };
        epoch.reno_window += slope * acked / self.cwnd;
        if epoch.reno_window > self.cwnd {
            growth = growth.max((epoch.reno_window - self.cwnd) / self.cwnd);
        }
        self.cwnd += acked * growth.min(MAX_GROWTH);
    }

    /// The same as Linux counts it, a packet for so many that are acknowledged, with the target in whole packets.
    /// At windows of five packets that is a tenth faster than in fractions.
    fn grow_in_whole_packets(&mut self, ack: &Ack, acked: f64) {
        let epoch = self.epoch.as_mut().expect("an epoch has begun");
        epoch.reno_counted += acked;
        let tick = ack.now.as_nanos() / TICK_NS;
        let since = epoch
            .looked
            .map(|(at, window)| (tick.saturating_sub(at), window == self.cwnd));
        if since.is_none_or(|(ticks, same)| !same || ticks > SAME_WINDOW_TICKS) {
            if since.is_none_or(|(ticks, _)| ticks > 0) {
                epoch.looked = Some((tick, self.cwnd));
                let ahead = epoch.origin + epoch.beyond(ack).trunc() - self.cwnd;
                epoch.cubic_each = if ahead > 0.0 {
                    (self.cwnd / ahead).floor()
                } else {
                    100.0 * self.cwnd
                };
                if self.w_max == 0.0 {
                    epoch.cubic_each = epoch.cubic_each.min(20.0); // no loss yet and nothing to aim at
                }
            }
            // RFC 9438, equation 4, with 1 / alpha = 15/8
            let reno_each = (self.cwnd * 15.0 / 8.0).floor();
            while epoch.reno_counted > reno_each {
                epoch.reno_counted -= reno_each;
                epoch.reno_window += 1.0;
            }
            let behind_reno = epoch.reno_window - self.cwnd;
            epoch.each = epoch.cubic_each;
            if behind_reno > 0.0 {
                epoch.each = epoch.each.min((self.cwnd / behind_reno).floor());
            }
            epoch.each = epoch.each.max(1.0 / MAX_GROWTH);
        }
        let each = epoch.each;
        additive_increase(&mut self.cwnd, &mut self.counted, each, acked);
    }
}

pub(crate) const KINDS: &[Kind] = &[
    Kind::plain("cubic", |_| Box::new(Cubic::new(CubicConfig::linux()))),
    Kind::plain("cubic-rfc9438", |_| {
        Box::new(Cubic::new(CubicConfig::rfc9438()))
    }),
    Kind::plain("cubic-hystart++", |_| {
        Box::new(Cubic::new(CubicConfig::hystart_plus_plus()))
    }),
];

impl Controller for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }

    fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    fn on_ack(&mut self, ack: &Ack) {
        // HyStart sees all samples, also where the window does not grow
        if self.config.slow_start_exit == SlowStartExit::HyStart
            && self.in_slow_start()
            && self.hystart.should_exit(ack, self.cwnd)
        {
            self.ssthresh = self.cwnd;
        }
        if !ack.may_grow() {
            return;
        }
        let acked = if self.in_slow_start() {
            self.slow_start(ack)
        } else {
            ack.acked_packets as f64
        };
        if acked > 0.0 {
            self.avoid_congestion(ack, acked);
        }
    }

    fn on_idle_restart(&mut self, now: Time, idle: Span) {
        // the curve stands still while nothing is sent (RFC 9438, section 5.8; Linux: on CA_EVENT_TX_START)
        if let Some(epoch) = &mut self.epoch {
            epoch.start = (epoch.start + idle).min(now);
        }
    }

    fn on_congestion(&mut self, _event: &Congestion) {
        self.epoch = None;
        self.counted = 0.0;
        let whole = |window: f64| match self.config.whole_packets {
            true => window.floor(),
            false => window,
        };
        self.cwnd = whole(self.cwnd);
        let beta = match self.config.whole_packets {
            true => LINUX_BETA,
            false => CUBIC_BETA,
        };
        // fast convergence (RFC 9438, section 4.7): a flow that lost below its last maximum makes room
        self.w_max = if self.cwnd < self.w_max {
            whole(self.cwnd * (1.0 + beta) / 2.0)
        } else {
            self.cwnd
        };
        self.cwnd_prior = self.cwnd;
        self.ssthresh = whole(self.cwnd * beta).max(2.0);
        self.cwnd = self.ssthresh;
    }

    fn on_timeout(&mut self, _now: Time) {
        self.cwnd = 1.0;
        // Linux resets the whole of CUBIC's state on a timeout
        self.w_max = 0.0;
        self.epoch = None;
        self.counted = 0.0;
        self.hystart = HyStart::default();
    }

    fn set_window(&mut self, cwnd: f64, ssthresh: f64) {
        (self.cwnd, self.ssthresh) = (cwnd, ssthresh);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bottleneck::{Bottleneck, run};
    use crate::controller::tests::{ack, loss};

    /// Feeds one round trip of 100 ms after another, one acknowledgment for two packets, and
    /// returns the window at the end of each.
    fn rounds(cubic: &mut Cubic, from_s: f64, count: usize) -> Vec<f64> {
        let mut windows = Vec::new();
        for round in 0..count {
            let acks = (cubic.cwnd() / 2.0).ceil() as usize;
            for i in 0..acks {
                let now_s = from_s + 0.1 * (round as f64 + i as f64 / acks as f64);
                cubic.on_ack(&ack(now_s, 2));
            }
            windows.push(cubic.cwnd());
        }
        windows
    }

    fn after_loss_at(window: f64) -> Cubic {
        let mut cubic = Cubic::new(CubicConfig::rfc9438());
        cubic.cwnd = window;
        cubic.ssthresh = window;
        cubic.on_congestion(&loss());
        cubic
    }

    #[test]
    fn cubic_falls_to_seven_tenths_on_loss() {
        let cubic = after_loss_at(1000.0);
        assert_eq!((cubic.cwnd(), cubic.ssthresh()), (700.0, 700.0));
    }

    #[test]
    fn the_window_follows_the_cubic_function() {
        let mut cubic = after_loss_at(1000.0);
        // K = cbrt(1000 * 0.3 / 0.4) = 9.086 s; one RTT ahead, reached one RTT later
        let windows = rounds(&mut cubic, 0.0, 150);
        for (round, window) in windows.iter().enumerate() {
            let t_s = 0.1 * (round as f64 + 1.0);
            let expected = 1000.0 + 0.4 * libm::pow(t_s - 9.0856, 3.0);
            assert!(
                (window / expected - 1.0).abs() < 0.01,
                "{t_s}: {window}, W(t) is {expected}"
            );
        }
    }

    #[test]
    fn the_curve_stands_still_while_nothing_is_sent() {
        let (mut busy, mut idle) = (after_loss_at(1000.0), after_loss_at(1000.0));
        rounds(&mut busy, 0.0, 10);
        rounds(&mut idle, 0.0, 10);
        idle.on_idle_restart(
            Time::ZERO + Span::from_millis(31_000),
            Span::from_millis(30_000),
        );
        assert_eq!(rounds(&mut busy, 1.0, 50), rounds(&mut idle, 31.0, 50));
    }

    #[test]
    fn short_round_trips_follow_reno() {
        // at W_max = 20 and 100 ms, W(t) needs 2.5 s to come back, Reno's slope of 0.53 a round 1.1 s
        let mut cubic = after_loss_at(20.0);
        let windows = rounds(&mut cubic, 0.0, 10);
        let expected = 14.0 + RENO_FRIENDLY_SLOPE * 10.0;
        assert!(
            (windows[9] / expected - 1.0).abs() < 0.08,
            "{} is not {expected}",
            windows[9]
        );
    }

    #[test]
    fn the_reno_slope_is_whole_past_the_last_maximum_in_the_rfc_only() {
        let last_rounds = |config| {
            let mut cubic = Cubic {
                config,
                ..after_loss_at(20.0)
            };
            let windows = rounds(&mut cubic, 0.0, 20);
            windows[19] - windows[14]
        };
        let linux = CubicConfig {
            slow_start_exit: SlowStartExit::Loss,
            ..CubicConfig::linux()
        };
        assert!(last_rounds(CubicConfig::rfc9438()) > 1.6 * last_rounds(linux));
    }

    #[test]
    fn hystart_plus_plus_leaves_slow_start_without_a_loss() {
        // three times the window at the first sign of a queue fits into a buffer of 10 BDP
        let path = Bottleneck::of_12mbps_60ms(10.0);
        let lost = |config| run(&mut Cubic::new(config), path, 2.0, 0.0).loss;
        assert!(lost(CubicConfig::rfc9438()) > 0.02);
        assert_eq!(lost(CubicConfig::hystart_plus_plus()), 0.0);
    }

    #[test]
    fn a_loss_below_the_last_maximum_lowers_it_further() {
        let mut cubic = after_loss_at(1000.0);
        cubic.cwnd = 800.0;
        cubic.on_congestion(&loss());
        assert_eq!(cubic.w_max, 800.0 * 0.85);
        cubic.cwnd = 900.0;
        cubic.on_congestion(&loss());
        assert_eq!(cubic.w_max, 900.0);
    }
}
