//! What a window is worth, learned from what windows lately were.

use crate::renewal::Reward;
use pathcast_analysis::rtt::median;

/// Which of the seconds with a standing queue shows the link's rate, counted from the slowest: in some of them the link
/// idled, or packets were sent again.
const OF_LINK: f64 = 0.75;

/// The same where applications pause: what is sent in a second is less than the link carries.
const OF_BURSTS: f64 = 0.9;

/// A link carries the same whatever the window is: in seconds in which the window grows, what is delivered differs by less
/// than this part of what windows do, in logarithms between quantiles. These must differ by so much, in so many seconds.
const SAME_PART: f64 = 0.25;
const LEAST_WINDOWS: f64 = 0.05;
const LEAST_SECONDS: usize = 5;

/// A second of a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Second {
    /// Mean window, packets.
    pub(super) window: f64,
    /// What was sent, packets/s.
    pub(super) rate: f64,
    /// By how much the window grew, packets; NaN in the first second.
    pub(super) growth: f64,
}

impl Second {
    /// What the path delivered, packets/s: what was sent, less the growth of what is in flight.
    fn delivered(&self) -> f64 {
        let growth = if self.growth.is_nan() {
            0.0
        } else {
            self.growth
        };
        self.rate - growth
    }

    /// A window that falls does so before packets of the former one are acknowledged: such a second tells little.
    fn has_grown(&self) -> bool {
        self.growth >= 0.0
    }
}

/// The link's rate, packets/s, from seconds with a standing queue, three at least.
fn of_link(mut queued: Vec<Second>) -> f64 {
    if queued.iter().filter(|second| second.has_grown()).count() >= 3 {
        queued.retain(Second::has_grown);
    }
    quantile(queued.iter().map(Second::delivered).collect(), OF_LINK)
}

/// Whether the link is what limits the seconds in which the window grew.
fn are_of_link(grown: &[Second]) -> bool {
    if grown.len() < LEAST_SECONDS {
        return false;
    }
    let spread = |values: Vec<f64>| (quantile(values.clone(), 0.8) / quantile(values, 0.2)).ln();
    let windows = spread(grown.iter().map(|second| second.window).collect());
    let delivered = spread(grown.iter().map(Second::delivered).collect());
    windows > LEAST_WINDOWS && delivered < SAME_PART * windows
}

/// The value that this part of others is below; one at least.
fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // less than the length
    let place = (part * values.len() as f64) as usize;
    values[place]
}

/// From the last seconds. Below the path's capacity the rate is window over RTT; above it the queue grows and the rate does
/// not. `least_rtt_s` is the shortest round-trip time that was measured, infinite if none was: a queue that never empties
/// hides it from windows and rates.
pub(super) fn learn(seconds: impl Iterator<Item = Second>, rtt_s: f64, least_rtt_s: f64) -> Reward {
    let mut seconds: Vec<Second> = seconds.collect();
    // a flow that is silent for a second has sent all that it had: its window does not say what is in flight
    let queues = !seconds.iter().any(|second| second.rate == 0.0);
    seconds.retain(|second| second.window > 0.0 && second.rate > 0.0);
    if seconds.len() < 3 {
        return Reward {
            per_packet: 1.0 / rtt_s,
            limit: f64::INFINITY,
            queues,
        };
    }
    let trip_s = |second: &Second| second.window / second.rate;
    let mut trips: Vec<f64> = seconds.iter().map(trip_s).collect();
    trips.sort_by(f64::total_cmp);
    // the lower quartile has the shorter queues
    let mut short_s = trips[trips.len() / 4];
    let queued: Vec<Second> = (seconds.iter().copied())
        .filter(|second| trip_s(second) > 1.15 * short_s)
        .collect();
    let queue_stands = queued.len() >= 3 && queued.len() * 10 >= seconds.len();
    let grown: Vec<Second> = seconds.iter().copied().filter(Second::has_grown).collect();
    let limit = match (queue_stands, queues) {
        (true, true) => of_link(queued),
        (true, false) => quantile(queued.iter().map(|second| second.rate).collect(), OF_BURSTS),
        (false, true) if are_of_link(&grown) => of_link(grown),
        (false, _) => f64::INFINITY,
    };
    if limit.is_finite() {
        // with a standing queue, only the shortest round trips show the path without it
        short_s = trips[trips.len() / 20].min(least_rtt_s);
    }
    // what is left over (headers of the trace, pacing) is taken up by one factor
    let off = median(
        seconds
            .iter()
            .map(|second| {
                let got = if queues && limit.is_finite() {
                    second.delivered()
                } else {
                    second.rate
                };
                got / (second.window / short_s).min(limit)
            })
            .collect(),
    );
    Reward {
        per_packet: off / short_s,
        limit: off * limit,
        queues,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window that grows by so many packets a second over a link of 500 packets/s and 0.06 s.
    fn seconds(from: f64, growth: f64) -> impl Iterator<Item = Second> {
        (0..40_u32).map(move |second| {
            let window = from + growth * (f64::from(second) + 0.5);
            let rate = if window < 30.0 {
                window / 0.06
            } else {
                500.0 + growth
            };
            Second {
                window,
                rate,
                growth,
            }
        })
    }

    #[test]
    fn the_link_s_rate_is_what_it_delivers_and_not_what_is_sent() {
        let reward = learn(seconds(40.0, 12.0), 0.06, 0.06);
        assert!((reward.limit - 500.0).abs() < 1e-9, "{reward:?}");
        assert!((reward.per_packet * 0.06 - 1.0).abs() < 1e-9, "{reward:?}");
    }

    #[test]
    fn seconds_in_which_the_window_falls_tell_nothing_of_the_link() {
        let falls = (0..40).map(|second| Second {
            window: 100.0,
            rate: 500.0,
            growth: -80.0 * f64::from(second % 2),
        });
        let free = seconds(10.0, 0.1).take(20);
        let reward = learn(falls.chain(free), 0.06, 0.06);
        assert!(reward.limit < 501.0, "{reward:?}");
    }

    #[test]
    fn a_link_shows_where_windows_grow_and_what_is_delivered_does_not() {
        // a queue that is never empty: windows over rates of 0.06 to 0.072 s
        let always_full = |count| seconds(30.1, 0.5).take(count);
        let reward = learn(always_full(12), 0.06, 0.06);
        assert!((reward.limit - 500.0).abs() < 1e-9, "{reward:?}");
        let reward = learn(always_full(4), 0.06, 0.06);
        assert_eq!(reward.limit, f64::INFINITY, "too few");
        let held = (0..40).map(|_| Second {
            window: 100.0,
            rate: 500.0,
            growth: 0.0,
        });
        assert_eq!(learn(held, 0.06, 0.06).limit, f64::INFINITY);
    }

    #[test]
    fn a_flow_that_pauses_shows_no_queue_by_its_window() {
        let paused = Second {
            window: 40.0,
            rate: 0.0,
            growth: 0.0,
        };
        let reward = learn(seconds(30.1, 0.5).take(12).chain([paused]), 0.06, 0.06);
        assert_eq!(reward.limit, f64::INFINITY);
        let reward = learn(seconds(10.0, 12.0).chain([paused]), 0.06, 0.06);
        assert!((reward.limit - 512.0).abs() < 1.0, "{reward:?}");
        assert_eq!(reward.waiting(1000.0), 0.0);
    }

    #[test]
    fn a_path_without_a_queue_has_no_limit() {
        let reward = learn(seconds(10.0, 0.2), 0.06, 0.06);
        assert_eq!(reward.limit, f64::INFINITY);
        assert!((reward.per_packet * 0.06 - 1.0).abs() < 1e-9, "{reward:?}");
    }
}
