//! What the first seconds of a flow say, in numbers.

use std::sync::Arc;

use pathcast_window_law::Cc;

use super::siblings::{self, Siblings, Young};

/// How many numbers there are of the flow itself, and with those of its siblings.
pub(crate) const FEATURES: usize = 21;
pub(crate) const WITH_SIBLINGS: usize = FEATURES + siblings::FEATURES;
/// The rate that forecasts are ratios of is that of so long, seconds.
pub(crate) const REFERENCE_S: f64 = 1.0;
/// The most windows over which rates are compared.
pub(crate) const WINDOWS: usize = 16;

/// Ratios count as at most this, in ln: a factor of 50.
const MOST: f64 = 4.0;

/// A flow's first seconds. Rates are packets per second, windows packets.
#[derive(Debug, Clone)]
pub(crate) struct Beginning {
    /// Congestion control.
    pub(crate) cc: Cc,
    /// When its first record came, and seconds since.
    pub(crate) start_s: f64,
    pub(crate) age_s: f64,
    /// The newest round-trip time, and the shortest so far, seconds.
    pub(crate) rtt_s: f64,
    pub(crate) least_rtt_s: f64,
    /// The window now, the largest so far, and the one before the last loss.
    pub(crate) cwnd_packets: f64,
    pub(crate) largest_cwnd_packets: f64,
    pub(crate) w_max_packets: f64,
    /// Whether the sender is in slow start.
    pub(crate) in_slow_start: bool,
    /// Loss events so far, and seconds since the last.
    pub(crate) losses: u32,
    pub(crate) since_loss_s: Option<f64>,
    /// Of the last second, the second before, the last round trip (0.1 s at least), and all of the flow.
    pub(crate) rate_last: f64,
    pub(crate) rate_before: f64,
    pub(crate) rate_trip: f64,
    pub(crate) rate_of_all: f64,
    /// Of windows of equal length (a round trip at least) over the last eight seconds, oldest first.
    pub(crate) rates: Vec<f64>,
    /// For how long the application or the receiver has held the window, seconds.
    pub(crate) held_s: f64,
    /// Flows of the same path that began earlier, if there are any.
    pub(crate) siblings: Option<Arc<Siblings>>,
}

impl Beginning {
    /// The rate that forecasts are ratios of, ln.
    pub(crate) fn ln_reference(&self) -> f64 {
        self.rate_last.ln()
    }

    /// The numbers for one horizon, and those of siblings if there are any.
    pub(crate) fn all_features(&self, horizon_s: f64) -> Vec<f64> {
        let mut features = self.features(horizon_s).to_vec();
        if let Some(siblings) = &self.siblings {
            let young = Young {
                cc: self.cc,
                start_s: self.start_s,
                age_s: self.age_s,
                last_s: self.age_s.min(REFERENCE_S),
                ln_rate: self.ln_reference(),
                least_rtt_s: self.least_rtt_s,
            };
            features.extend(siblings.features(&young, horizon_s));
        }
        features
    }

    /// The numbers of the flow itself for one horizon.
    pub(crate) fn features(&self, horizon_s: f64) -> [f64; FEATURES] {
        let ratio = |value: f64, of: f64| {
            let ln = (value / of).ln();
            if ln.is_nan() {
                0.0
            } else {
                ln.clamp(-MOST, MOST)
            }
        };
        let over_last = |rate: f64| ratio(rate, self.rate_last);
        let (mut least, mut most, mut rough) = (0.0_f64, 0.0_f64, 0.0_f64);
        for rate in &self.rates {
            least = least.min(over_last(*rate));
            most = most.max(over_last(*rate));
        }
        for pair in self.rates.windows(2) {
            rough += ratio(pair[1], pair[0]).abs() / (self.rates.len() - 1) as f64;
        }
        let packets = self.rate_of_all * self.age_s;
        let flag = f64::from;
        [
            horizon_s.ln(),
            self.age_s.ln(),
            self.rtt_s.ln(),
            self.rate_last.ln(),
            over_last(self.rate_trip),
            over_last(self.rate_before),
            over_last(self.rate_of_all),
            least,
            most,
            rough,
            ratio(self.cwnd_packets / self.rtt_s, self.rate_last),
            ratio(self.rtt_s, self.least_rtt_s),
            ratio(self.largest_cwnd_packets, self.cwnd_packets),
            (1.0 + f64::from(self.losses)).ln(),
            (self.since_loss_s).map_or(0.0, |since_s| ratio(since_s + self.rtt_s, self.rtt_s)),
            (self.since_loss_s).map_or(0.0, |_| ratio(self.w_max_packets, self.cwnd_packets)),
            ((f64::from(self.losses) + 0.5) / packets.max(1.0)).ln(),
            flag(self.in_slow_start),
            flag(self.cc == Cc::Reno),
            flag(!self.cc.has_law()),
            ratio(self.held_s + self.rtt_s, self.rtt_s),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beginning() -> Beginning {
        Beginning {
            cc: Cc::Cubic,
            start_s: 0.0,
            age_s: 2.0,
            rtt_s: 0.05,
            least_rtt_s: 0.05,
            cwnd_packets: 100.0,
            largest_cwnd_packets: 100.0,
            w_max_packets: 0.0,
            in_slow_start: false,
            losses: 0,
            since_loss_s: None,
            rate_last: 2000.0,
            rate_before: 1000.0,
            rate_trip: 2000.0,
            rate_of_all: 1500.0,
            rates: vec![500.0, 1000.0, 2000.0],
            held_s: 0.0,
            siblings: None,
        }
    }

    #[test]
    fn what_is_not_known_and_what_is_beyond_reason_is_a_number() {
        let odd = Beginning {
            rate_before: f64::NAN,
            rate_trip: 0.0,
            rates: vec![0.0, 0.0, 1e12],
            since_loss_s: Some(0.0),
            losses: 1,
            ..beginning()
        };
        for features in [beginning().features(5.0), odd.features(5.0)] {
            assert!(
                features.iter().all(|value| value.is_finite()),
                "{features:?}"
            );
        }
        assert_eq!(odd.features(5.0)[8], MOST);
    }

    #[test]
    fn a_faster_path_gives_the_same_ratios() {
        let slow = beginning().features(5.0);
        let mut fast = beginning();
        for rate in [
            &mut fast.rate_last,
            &mut fast.rate_before,
            &mut fast.rate_trip,
            &mut fast.rate_of_all,
        ] {
            *rate *= 8.0;
        }
        fast.rates.iter_mut().for_each(|rate| *rate *= 8.0);
        fast.cwnd_packets *= 8.0;
        fast.largest_cwnd_packets *= 8.0;
        let fast = fast.features(5.0);
        let same = (slow.iter().zip(&fast)).filter(|(a, b)| (**a - **b).abs() < 1e-12);
        assert_eq!(same.count(), FEATURES - 2); // the rate itself, and losses over packets
    }
}
