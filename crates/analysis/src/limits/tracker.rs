//! Follows one flow and says what limits it.

use std::collections::VecDeque;

use serde::Serialize;

use super::cause::{Causes, below};
use super::interval::{Collector, Interval};
use super::{Limit, LimitRecord, Shares};

/// Least queueing delay that says that the path is full: seconds, part of the shortest round trip, and times that a
/// packet takes at the flow's highest rate. Two packets wait for each other where one acknowledgment lets them go.
const QUEUE_S: f64 = 0.001;
const QUEUE_PART: f64 = 0.03;
const QUEUE_PACKETS: f64 = 3.5;
/// Round trips over which a paced flow's rate is averaged: a cycle of BBR's gains.
const CYCLE_RTTS: f64 = 8.0;
/// A flow that gets the path's rate gets this part of its highest one, unless the queue is long: this part of the
/// shortest round trip.
const NEAR_HIGHEST: f64 = 0.5;
const LONG_QUEUE: f64 = 0.3;
/// If fewer packets are in flight than this part of the window, and fewer by this many, the application has no more
/// to send.
const WINDOW_PART: f64 = 0.82;
const WINDOW_PACKETS: f64 = 3.0;
/// The application limits a scheme that paces if it sends less than this part of the rate that its window stands for.
const PACED_PART: f64 = 0.7;
/// The window of a scheme that paces is so many times what it needs (BBR's cwnd_gain).
const PACED_GAIN: f64 = 2.0;
/// The rate of a start that is over grows less than this within three round trips (BBR, draft-cardwell-iccrg-bbr).
const STARTUP_GROWTH: f64 = 1.25;
const STARTUP_RTTS: u32 = 3;
/// Share of packets lost by which a paced flow shows a policer, without any queue.
const POLICED_LOSS: f64 = 0.01;
/// Seconds over which the probabilities of now are averaged.
const NOW_S: f64 = 2.0;

/// The options of a tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitOptions {
    /// Whether the scheme paces by a model of the path instead of filling its window, as BBR does.
    pub is_paced: bool,
}

/// What limits a flow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Limits {
    /// Seconds that were judged.
    pub duration_s: f64,
    /// Share of this time by limit.
    pub shares: Shares,
    /// Probability of each limit in the last two seconds.
    pub now: Shares,
    /// The limit with the largest share.
    pub limit: Limit,
    /// Probability that it is the one with the largest share.
    pub probability: f64,
}

/// Says what limits one flow, record by record, in constant memory.
#[derive(Debug, Clone)]
pub struct LimitTracker {
    options: LimitOptions,
    collector: Collector,
    causes: Causes,
    base_rtt_s: f64,
    /// Sums over time of the intervals' probabilities, seconds.
    sums: Shares,
    /// The same of the last intervals: end and length.
    recent: VecDeque<(f64, f64, Shares)>,
    startup: Startup,
    /// Packets sent and retransmitted, fading over ten seconds, and the longest queueing delay in that time.
    recent_sent: f64,
    recent_lost: f64,
    recent_queue_s: f64,
    /// Highest rate of late, packets/s.
    highest_rate: f64,
    /// Mean rate of a paced flow over the last cycle, packets/s; NaN before the first.
    cycle_rate: f64,
}

/// Whether a paced flow still looks for the path's rate.
#[derive(Debug, Clone, Copy, Default)]
struct Startup {
    rate: f64,
    intervals: u32,
    is_over: bool,
}

impl LimitTracker {
    /// A tracker that has seen nothing.
    pub fn new(options: LimitOptions) -> Self {
        Self {
            options,
            collector: Collector::default(),
            causes: Causes::default(),
            base_rtt_s: f64::INFINITY,
            sums: Shares::default(),
            recent: VecDeque::new(),
            startup: Startup::default(),
            recent_sent: 0.0,
            recent_lost: 0.0,
            recent_queue_s: 0.0,
            highest_rate: 0.0,
            cycle_rate: f64::NAN,
        }
    }

    /// Takes the next record of the flow.
    pub fn observe(&mut self, record: &LimitRecord) {
        for rtt_s in [record.srtt_s, record.min_rtt_s].into_iter().flatten() {
            self.base_rtt_s = self.base_rtt_s.min(rtt_s);
        }
        if let Some(interval) = self.collector.take(record) {
            self.judge(&interval);
        }
    }

    /// What limits the flow so far; `None` before anything was judged.
    pub fn limits(&self) -> Option<Limits> {
        let mut all = self.clone();
        if let Some(rest) = self.collector.rest() {
            all.judge(&rest);
        }
        let duration_s = all.sums.sum();
        if duration_s <= 0.0 {
            return None;
        }
        let shares = all.sums.scaled(1.0 / duration_s);
        let mut now = Shares::default();
        for (_, length_s, of_interval) in &all.recent {
            now.add_all(of_interval, *length_s);
        }
        let limit = shares.largest();
        Some(Limits {
            duration_s,
            shares,
            now: now.scaled(1.0 / now.sum()),
            limit,
            probability: shares.certainty(),
        })
    }

    fn judge(&mut self, interval: &Interval) {
        let judged = self.judged(interval);
        self.sums.add_all(&judged, interval.length_s());
        self.recent
            .push_back((interval.end_s, interval.length_s(), judged));
        while self.recent.len() > 1
            && (self.recent.front()).is_some_and(|first| first.0 < interval.end_s - NOW_S)
        {
            self.recent.pop_front();
        }
    }

    /// Probabilities of what limits the flow in an interval.
    fn judged(&mut self, interval: &Interval) -> Shares {
        // in a queue all packets wait: a delayed acknowledgment alone makes only the mean longer
        let queue_s = (interval.least_srtt_s - self.base_rtt_s).max(0.0);
        let longest_queue_s = (interval.largest_srtt_s - self.base_rtt_s).max(0.0);
        self.remember(interval, longest_queue_s);
        let least_s = self.least_queue_s();
        let packet_s = self.packet_s();
        // a drop comes when the queue is full: neither the least nor the mean of its round trip says it alone
        let mean_queue_s = (interval.srtt_s - self.base_rtt_s).max(0.0);
        self.causes
            .take(interval, 0.5 * (queue_s + mean_queue_s), least_s, packet_s);

        let silent = (interval.silent_s / interval.length_s()).clamp(0.0, 1.0);
        let mut shares = Shares::all(Limit::Idle).scaled(silent);
        let busy = if self.options.is_paced {
            self.judged_paced(interval, queue_s, least_s)
        } else {
            self.judged_by_window(interval, queue_s, least_s)
        };
        shares.add_all(&busy, 1.0 - silent);
        shares
    }

    /// What a packet takes at the highest rate, seconds.
    fn packet_s(&self) -> f64 {
        match self.highest_rate {
            rate if rate > 0.0 => 1.0 / rate,
            _ => 0.0,
        }
    }

    fn least_queue_s(&self) -> f64 {
        QUEUE_S
            .max(QUEUE_PART * self.base_rtt_s)
            .max(QUEUE_PACKETS * self.packet_s())
    }

    fn remember(&mut self, interval: &Interval, longest_queue_s: f64) {
        let keep = (-interval.length_s() / 10.0).exp();
        if interval.sent.is_finite() {
            self.recent_sent = self.recent_sent * keep + interval.sent;
        }
        self.recent_lost = self.recent_lost * keep + interval.retransmits;
        self.recent_queue_s = (self.recent_queue_s * keep).max(longest_queue_s);
        let rate = interval.acked_per_s();
        if rate.is_finite() {
            let keep = (-interval.length_s() / 30.0).exp();
            self.highest_rate = (self.highest_rate * keep).max(rate);
        }
        let rate = interval.sent_per_s();
        if rate.is_finite() {
            let keep = (-interval.length_s() / (CYCLE_RTTS * interval.srtt_s)).exp();
            self.cycle_rate = match self.cycle_rate.is_nan() {
                true => rate,
                false => keep * self.cycle_rate + (1.0 - keep) * rate,
            };
        }
    }

    /// Probability that the application leaves a part of the window unused.
    fn unused(&self, interval: &Interval, window: f64) -> f64 {
        let in_flight = if interval.in_flight.is_nan() {
            interval.sent_per_s() * interval.srtt_s
        } else {
            interval.in_flight
        };
        if in_flight.is_nan() {
            return 0.0;
        }
        below(
            in_flight + WINDOW_PACKETS,
            WINDOW_PART * (window + WINDOW_PACKETS),
            0.04,
        )
    }

    /// Probability that the flow's rate can be the path's: it is near the highest of late, or the queue is so long that
    /// the path must have become slower.
    fn at_path_rate(&self, interval: &Interval, queue_s: f64) -> f64 {
        let rate = interval.acked_per_s();
        if rate.is_nan() {
            return 1.0;
        }
        let is_near = 1.0 - below(rate, NEAR_HIGHEST * self.highest_rate, 0.15);
        is_near.max(below(LONG_QUEUE * self.base_rtt_s, queue_s, 0.2))
    }

    fn judged_by_window(&self, interval: &Interval, queue_s: f64, least_s: f64) -> Shares {
        let mut shares = Shares::default();
        // the window may have changed within the interval
        let cwnd = interval.cwnd.0.min(interval.cwnd.1);
        let window = cwnd.min(interval.rwnd);
        let application = self.unused(interval, window);
        shares.add(Limit::Application, application);
        let left = 1.0 - application;
        let full = below(least_s, queue_s, 0.2) * self.at_path_rate(interval, queue_s);
        shares.add(Limit::PathRate, left * full);
        let left = left * (1.0 - full);
        let receiver = interval.rwnd_smaller;
        shares.add(Limit::ReceiveWindow, left * receiver);
        let left = left * (1.0 - receiver);
        if self.causes.known() {
            shares.add_all(&self.causes.shares(), left);
        } else {
            shares.add(Limit::SlowStart, left);
        }
        shares
    }

    fn judged_paced(&mut self, interval: &Interval, queue_s: f64, least_s: f64) -> Shares {
        let mut shares = Shares::default();
        self.startup.take(interval.acked_per_s());
        let receiver = if queue_s < least_s {
            interval.rwnd_smaller * below(WINDOW_PART, interval.rwnd_used, 0.04)
        } else {
            0.0
        };
        shares.add(Limit::ReceiveWindow, receiver);
        let left = 1.0 - receiver;
        let lost = self.recent_lost / self.recent_sent.max(1.0);
        let policer = below(POLICED_LOSS, lost, 0.3)
            * below(
                self.recent_queue_s,
                least_s.max(0.06 * self.base_rtt_s),
                0.2,
            );
        shares.add(Limit::Policer, left * policer);
        let left = left * (1.0 - policer);
        if !self.startup.is_over {
            shares.add(Limit::SlowStart, left);
            return shares;
        }
        let could =
            (interval.largest_cwnd - 2.0 * WINDOW_PACKETS).max(1.0) / PACED_GAIN / self.base_rtt_s;
        let application = if self.cycle_rate.is_finite() {
            below(self.cycle_rate, PACED_PART * could, 0.1)
        } else {
            0.0
        };
        shares.add(Limit::Application, left * application);
        shares.add(Limit::PathRate, left * (1.0 - application));
        shares
    }
}

impl Startup {
    /// Takes the rate of an interval of a round trip or more.
    fn take(&mut self, rate: f64) {
        if rate.is_nan() || rate > STARTUP_GROWTH * self.rate {
            self.rate = self.rate.max(rate);
            self.intervals = 0;
        } else {
            self.intervals += 1;
        }
        self.is_over |= self.intervals >= STARTUP_RTTS;
    }
}
