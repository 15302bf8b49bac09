//! The part that other flows' beginnings have in the forecasts of a flow that has just begun.

use super::forecaster::Forecaster;
use super::guess::RATE_NOW_S;
use super::horizon::{Horizon, NORMAL_90};
use crate::cold_start::{Beginning, OVER_S, REFERENCE_S, WINDOWS, outlook, part};
use crate::types::{QUANTILES, Quantity};
use pathcast_analysis::epochs::{FlowState, Phase};

/// Rates are compared over so many seconds.
const COMPARED_S: f64 = 8.0;

/// A forecast by other flows' beginnings, and its part in the whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct Early {
    pub(super) part: f64,
    /// At [`QUANTILES`].
    pub(super) ln_quantiles: [f64; QUANTILES.len()],
}

impl Early {
    /// ln of the median.
    pub(super) fn ln_point(&self) -> f64 {
        self.ln_quantiles[2]
    }

    /// Standard deviation in ln.
    pub(super) fn spread(&self) -> f64 {
        (self.ln_quantiles[4] - self.ln_quantiles[0]) / NORMAL_90
    }

    /// A mean, weighted by the part.
    pub(super) fn mix(&self, early: f64, other: f64) -> f64 {
        self.part * early + (1.0 - self.part) * other
    }
}

impl Forecaster {
    /// What other flows that began like this one did next.
    pub(super) fn early(&self, horizon: &Horizon, beginning: &Beginning, now_s: f64) -> Early {
        Early {
            part: part(self.known_until(now_s), horizon.horizon_s, &horizon.contest),
            ln_quantiles: outlook(beginning, horizon.horizon_s),
        }
    }

    /// The flow's first seconds while other flows' beginnings have a part; also `None` where windows are forecast, or
    /// nothing was sent in the last second.
    pub(super) fn first_seconds(&self, state: &FlowState, now_s: f64) -> Option<Beginning> {
        let over = self.known_until(now_s) >= OVER_S || self.ablation.has_no_window();
        if over {
            return None;
        }
        self.beginning(state, now_s)
    }

    fn known_until(&self, now_s: f64) -> f64 {
        self.known_s + (now_s - self.start_s)
    }

    /// As [`Forecaster::first_seconds`], at whatever age.
    fn beginning(&self, state: &FlowState, now_s: f64) -> Option<Beginning> {
        if self.quantity != Quantity::PacketsPerS {
            return None;
        }
        let age_s = now_s - self.start_s;
        let rtt_s = self.last?.srtt_s.unwrap_or(self.rtt_s);
        // the counter is 0 packets before the first record, or whatever it was
        let rate = |ago_s: f64, length_s: f64| {
            let to_s = now_s - ago_s;
            self.snd_nxt.rate((to_s - length_s).max(self.start_s), to_s)
        };
        let last_s = REFERENCE_S.min(age_s);
        let rate_last = rate(0.0, last_s);
        if age_s <= 0.0 || !(rate_last.is_finite() && rate_last > 0.0) {
            return None;
        }
        let before_s = if age_s > last_s { last_s } else { 0.5 * age_s };
        let compared_s = COMPARED_S.min(age_s);
        let length_s = rtt_s.max(RATE_NOW_S).max(compared_s / WINDOWS as f64);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0..=WINDOWS
        let windows = (compared_s / length_s + 1e-9) as usize;
        let rates = (0..windows)
            .rev()
            .map(|i| rate(i as f64 * length_s, length_s));
        Some(Beginning {
            cc: self.cc,
            start_s: self.start_s,
            age_s,
            rtt_s,
            least_rtt_s: self.least_srtt_s.min(rtt_s),
            cwnd_packets: state.cwnd_packets,
            largest_cwnd_packets: self.range.1.max(state.cwnd_packets),
            w_max_packets: state.w_max_packets,
            in_slow_start: state.phase == Phase::SlowStart,
            losses: self.losses,
            since_loss_s: state.last_loss_s.map(|loss_s| (now_s - loss_s).max(0.0)),
            rate_last,
            rate_before: rate(age_s.min(last_s).min(age_s - before_s), before_s),
            rate_trip: rate(0.0, rtt_s.max(RATE_NOW_S).min(age_s)),
            rate_of_all: rate(0.0, age_s),
            rates: rates.filter(|rate| rate.is_finite()).collect(),
            held_s: state.held_s,
            siblings: self.siblings.clone(),
        })
    }

    /// What forecasts of a flow's beginning rest on, for those who train them: ln of the present rate, and the numbers.
    pub fn cold_start(&self, now_s: f64, horizon_s: f64) -> Option<(f64, Vec<f64>)> {
        let beginning = self.beginning(&self.detector.state(now_s), now_s)?;
        Some((beginning.ln_reference(), beginning.all_features(horizon_s)))
    }
}
