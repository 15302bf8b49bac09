//! Dips of the window that come at a regular interval: BBR probes for its round-trip time each ten seconds (BBRv3 each
//! five), and sends almost nothing meanwhile. The interval is learned, not assumed: a flow that needs no probe, since
//! its round-trip time fell by itself, has none.

use std::collections::VecDeque;

/// A dip begins at a window below this part of the usual one, and ends above that part.
const BEGINS: f64 = 0.6;
const ENDS: f64 = 0.8;
/// Seconds after which the window counts 1/e in the usual one.
const USUAL_S: f64 = 1.0;
/// A window that stays small for longer is no dip, seconds.
const LONGEST_S: f64 = 2.0;
/// Dips remembered: three intervals.
const REMEMBERED: usize = 4;
/// Intervals are regular if each differs from their median by at most this part of it.
const REGULAR: f64 = 0.05;
/// What a dip costs is looked for in so many seconds from shortly before its beginning.
const COST_S: f64 = 2.0;
const BEFORE_S: f64 = 0.1;
/// Weight of the newest dip's cost.
const COST_WEIGHT: f64 = 0.3;
/// The usual rate is that of so many samples: the mean of their middle half, without dips and bursts.
const SAMPLES: usize = 20;

/// What is known of the dips of one flow.
#[derive(Debug, Clone, Default)]
pub(super) struct Cycle {
    /// Time and window of the last record, and the usual window.
    last_s: f64,
    usual_packets: f64,
    /// When the dip that lasts now began, seconds.
    began_s: Option<f64>,
    /// When the last dips began, oldest first; and whether the newest one's cost is known.
    began: VecDeque<f64>,
    is_cost_known: bool,
    /// Seconds of the usual rate that a dip costs.
    cost_s: Option<f64>,
}

impl Cycle {
    /// Takes a record.
    pub(super) fn observe(&mut self, time_s: f64, cwnd_packets: f64) {
        let passed_s = time_s - self.last_s;
        self.last_s = time_s;
        match self.began_s {
            None if cwnd_packets < BEGINS * self.usual_packets => self.began_s = Some(time_s),
            None => {
                let keep = (-passed_s / USUAL_S).exp();
                self.usual_packets = keep * self.usual_packets + (1.0 - keep) * cwnd_packets;
            }
            Some(began_s) if cwnd_packets > ENDS * self.usual_packets => {
                self.began_s = None;
                self.began.push_back(began_s);
                self.is_cost_known = false;
                if self.began.len() > REMEMBERED {
                    self.began.pop_front();
                }
            }
            Some(began_s) if time_s - began_s > LONGEST_S => {
                *self = Self {
                    last_s: time_s,
                    usual_packets: cwnd_packets,
                    ..Self::default()
                };
            }
            Some(_) => {}
        }
    }

    /// A second is over: looks for what the newest dip cost. `rate(from_s, to_s)` is what was sent, NaN if unknown.
    pub(super) fn second(&mut self, now_s: f64, usual_rate: f64, rate: impl Fn(f64, f64) -> f64) {
        let Some(&began_s) = self.began.back() else {
            return;
        };
        let from_s = began_s - BEFORE_S;
        if self.is_cost_known || from_s + COST_S > now_s {
            return;
        }
        self.is_cost_known = true;
        let lost = COST_S * (1.0 - rate(from_s, from_s + COST_S) / usual_rate);
        if lost.is_finite() {
            let lost_s = lost.clamp(0.0, COST_S);
            self.cost_s = Some(match self.cost_s {
                Some(cost_s) => cost_s + COST_WEIGHT * (lost_s - cost_s),
                None => lost_s,
            });
        }
    }

    /// Seconds from dip to dip; `None` if they are not regular.
    fn interval_s(&self) -> Option<f64> {
        let pairs = self.began.iter().zip(self.began.iter().skip(1));
        let mut intervals_s: Vec<f64> = pairs.map(|(a, b)| b - a).collect();
        intervals_s.sort_by(f64::total_cmp);
        let median_s = *intervals_s.get(intervals_s.len() / 2)?;
        let is_regular = |one: &f64| (one - median_s).abs() <= REGULAR * median_s;
        (intervals_s.len() >= 2 && median_s > COST_S && intervals_s.iter().all(is_regular))
            .then_some(median_s)
    }

    /// The part of the usual rate that dips leave of the `horizon_s` seconds from `now_s` on; `None` if none are
    /// expected.
    pub(super) fn part(&self, now_s: f64, horizon_s: f64) -> Option<f64> {
        let (interval_s, cost_s) = (self.interval_s()?, self.cost_s?);
        let last_s = *self.began.back()?;
        let next = ((now_s - cost_s - last_s) / interval_s).ceil().max(0.0);
        if next > 2.0 {
            return None; // the dips have stopped
        }
        let mut lost_s = 0.0;
        let mut began_s = last_s + next * interval_s;
        while began_s < now_s + horizon_s {
            let (from_s, to_s) = (began_s.max(now_s), began_s + cost_s);
            lost_s += (to_s.min(now_s + horizon_s) - from_s).max(0.0);
            began_s += interval_s;
        }
        Some(1.0 - lost_s / horizon_s)
    }
}

/// The mean of the middle half of the newest samples; `None` without one.
pub(super) fn usual_rate(samples: &VecDeque<f64>) -> Option<f64> {
    let mut newest: Vec<f64> = samples.iter().rev().take(SAMPLES).copied().collect();
    newest.sort_by(f64::total_cmp);
    let left_out = newest.len() / 4;
    let middle = newest.get(left_out..newest.len() - left_out)?;
    (!middle.is_empty()).then(|| middle.iter().sum::<f64>() / middle.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flow of 800 packets/s whose window falls for 0.2 s at the given times; it sends nothing then.
    fn watched(until_s: f64, dips_s: &[f64]) -> Cycle {
        let mut cycle = Cycle::default();
        let is_dip = |t: f64| {
            dips_s
                .iter()
                .any(|d| (d - 1e-9..d + 0.2 - 1e-9).contains(&t))
        };
        let rate = |from_s: f64, to_s: f64| {
            let lost: f64 = dips_s
                .iter()
                .map(|d| ((d + 0.2).min(to_s) - d.max(from_s)).max(0.0))
                .sum();
            800.0 * (1.0 - lost / (to_s - from_s))
        };
        let mut tenth = 0_u32;
        loop {
            let t = f64::from(tenth) * 0.1;
            if t > until_s {
                return cycle;
            }
            cycle.observe(t, if is_dip(t) { 4.0 } else { 100.0 });
            if tenth.is_multiple_of(10) {
                cycle.second(t, 800.0, rate);
            }
            tenth += 1;
        }
    }

    #[test]
    fn the_next_dip_is_predicted() {
        let cycle = watched(35.0, &[3.0, 13.3, 23.6, 33.9]);
        // the next is due at 44.2
        assert_eq!(cycle.part(41.0, 3.0), Some(1.0));
        let part = cycle.part(44.0, 1.0).unwrap();
        assert!((part - 0.8).abs() < 0.01, "{part}");
        let part = cycle.part(41.0, 30.0).unwrap();
        assert!((part - (1.0 - 0.6 / 30.0)).abs() < 0.002, "{part}");
    }

    #[test]
    fn irregular_dips_and_those_that_have_stopped_predict_nothing() {
        assert_eq!(
            watched(35.0, &[3.0, 9.0, 23.6, 33.9]).part(36.0, 10.0),
            None
        );
        assert_eq!(watched(15.0, &[3.0, 13.3]).part(16.0, 10.0), None);
        assert_eq!(
            watched(70.0, &[3.0, 13.3, 23.6, 33.9]).part(70.0, 10.0),
            None
        );
    }
}
