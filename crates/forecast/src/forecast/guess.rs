//! Forecasts: the experts' guesses for one horizon, pooled, with their quantiles.

use super::analogs::Followed;
use super::cycle::usual_rate;
use super::early::Early;
use super::forecaster::Forecaster;
use super::horizon::{Horizon, Pending, Summary, summarize};
use super::notes::Note;
use super::types::{Basis, Forecast, Weight};
use crate::bands::VALUE_FLOOR;
use crate::baselines::{harmonic_mean, last_sample, window_mean};
use crate::experts::{ByExpert, EXPERTS, Expert, middle};
use crate::renewal::Law;
use crate::types::{ForecastError, Quantity, SAMPLE_S};
use pathcast_analysis::epochs::FlowState;

/// Samples in the mean between the harmonic mean's five and the training window's 100.
const SHORT_SAMPLES: usize = 30;
/// No expert widens the band more than if it were off by so much in ln: one that says that nothing will be sent is off
/// by any amount.
const DISAGREEMENT_MAX: f64 = 0.7;
/// The present rate is that of the last round trip, but at least of this many seconds.
pub(super) const RATE_NOW_S: f64 = 0.1;
/// Spread in ln before the first table.
const ASSUMED_SPREAD: f64 = 0.1;
/// No forecast is above this, packets or packets/s: 10^10 packets/s are 100 Tbit/s.
const VALUE_CEILING: f64 = 1e10;
/// Quantiles stay within this factor of what was seen and is expected.
const BELIEVABLE: f64 = 8.0;

impl Forecaster {
    /// Forecasts the next `horizon_s` seconds from `now_s`, at or after the last record.
    /// Changes nothing: asking twice gives the same.
    ///
    /// # Errors
    /// [`ForecastError::UnknownHorizon`] if it was not given at the start;
    /// [`ForecastError::NothingObserved`] before the first record.
    pub fn forecast(&self, now_s: f64, horizon_s: f64) -> Result<Forecast, ForecastError> {
        let now_s = self.last.map_or(now_s, |last| now_s.max(last.time_s));
        self.forecast_from(&self.detector.state(now_s), now_s, horizon_s)
    }

    /// Forecasts as [`Forecaster::forecast`] does, but from a state that the caller gives: what would a
    /// flow do here that has, say, half the window?
    ///
    /// # Errors
    /// As [`Forecaster::forecast`].
    pub fn forecast_from(
        &self,
        state: &FlowState,
        now_s: f64,
        horizon_s: f64,
    ) -> Result<Forecast, ForecastError> {
        let Some(horizon) = self.horizons.iter().find(|h| h.horizon_s == horizon_s) else {
            let known = self.horizons.iter().map(|h| h.horizon_s).collect();
            return Err(ForecastError::UnknownHorizon {
                got: horizon_s,
                known,
            });
        };
        let Some(last) = self.last else {
            return Err(ForecastError::NothingObserved);
        };
        let now_s = now_s.max(last.time_s);
        let beginning = self.first_seconds(state, now_s);
        let early = beginning.map(|beginning| self.early(horizon, &beginning, now_s));
        let (guess, weights) = self.guess(horizon, state, now_s, early.as_ref());
        let believable = self.believable(guess.ln_point.exp());
        let said = horizon.said(&guess, believable);
        let (mut quantiles, mean) = (
            horizon.bands.quantiles(&said),
            horizon.bands.mean(&said, now_s),
        );
        if let Some(early) = &early {
            for (quantile, ln_early) in quantiles.iter_mut().zip(early.ln_quantiles) {
                *quantile = early.mix(ln_early, quantile.max(VALUE_FLOOR).ln()).exp();
            }
        }
        let losses_remembered = self.hazard.losses();
        let packets_remembered = self.hazard.packets();
        Ok(Forecast {
            time_s: now_s,
            horizon_s,
            quantity: self.quantity,
            point: guess.ln_point.exp(),
            mean,
            quantiles,
            weights: (0..EXPERTS.len())
                .map(|e| Weight {
                    expert: EXPERTS[e],
                    weight: weights[e],
                    value: guess.ln_value[e].exp(),
                })
                .collect(),
            basis: Basis {
                losses: self.losses,
                losses_remembered,
                packets_remembered,
                loss_upper_bound: (losses_remembered < 0.5)
                    .then(|| (3.0 / packets_remembered.max(1.0)).min(1.0)),
                resolved: horizon.resolved,
                rtt_s: self.rtt_s,
                rtt_source: self.rtt_source,
                cold_start: early.map_or(0.0, |early| early.part),
                siblings: self.siblings.as_ref().map_or(0, |flows| flows.len() as u32),
                capacity_packets_per_s: self.reward.limit.is_finite().then_some(self.reward.limit),
                notes: (self.notes)
                    .with(Note::NoLoss, self.losses == 0)
                    .with(Note::OneLoss, self.losses == 1)
                    .with(
                        Note::SlowStartLossesOnly,
                        self.losses > 0 && self.avoidance_losses == 0,
                    )
                    .with(Note::Held, state.held_s > 0.0)
                    .with(Note::MixedFlows, self.interleaving.is_mixed()),
            },
            state: *state,
        })
    }

    /// What quantiles are kept within: a few times beyond what the flow has done and is expected to
    /// do. After a standstill the spread in ln may be beyond all reason.
    pub(super) fn believable(&self, point: f64) -> (f64, f64) {
        let (low, high) = self.sample_range;
        (
            low.min(point) / BELIEVABLE,
            (high.max(point) * BELIEVABLE).min(VALUE_CEILING),
        )
    }

    /// The rate by the window and the newest round-trip time, packets/s; `None` if either is not known or
    /// a window is forecast.
    fn now_packets_per_s(&self, state: &FlowState) -> Option<f64> {
        let srtt_s = self.last?.srtt_s?;
        (self.quantity == Quantity::PacketsPerS).then(|| state.cwnd_packets / srtt_s)
    }

    /// The rate of the last round trip, packets/s; `None` if it is not known or a window is forecast.
    pub(crate) fn rate_now(&self, now_s: f64) -> Option<f64> {
        let from_s = now_s - self.rtt_s.max(RATE_NOW_S);
        let rate = self.snd_nxt.rate(from_s, now_s);
        (self.quantity == Quantity::PacketsPerS && !rate.is_nan()).then_some(rate)
    }

    /// The usual rate less what regular dips of the window cost; `None` before the first sample.
    fn by_cycle(&self, now_s: f64, horizon_s: f64) -> Option<f64> {
        if self.cc.has_law() {
            return None;
        }
        let part = self.cycle.part(now_s, horizon_s).unwrap_or(1.0);
        usual_rate(&self.samples).map(|usual| part * usual)
    }

    /// What followed when earlier bursts or pauses were as old as this one; `None` where windows are forecast, or with too
    /// few of them.
    fn by_bursts(&self, now_s: f64, horizon_s: f64) -> Option<f64> {
        let rate = |from_s, to_s| self.snd_nxt.rate(from_s, to_s);
        (self.bursts.followed(now_s, horizon_s, rate))
            .filter(|_| self.quantity == Quantity::PacketsPerS)
    }

    pub(super) fn law(&self) -> Law<'_> {
        Law {
            cc: self.cc,
            rtt_s: self.rtt_s,
            hazard: &self.hazard,
            reward: self.reward,
            ceiling_packets: self.ceiling_packets,
        }
    }

    /// What each expert says of one horizon, but the regression, which needs the others.
    fn values(
        &self,
        horizon: &Horizon,
        state: &FlowState,
        now_s: f64,
        by_state: &Summary,
    ) -> ByExpert {
        let now_worth = self.reward.of(state.cwnd_packets);
        let (front, back) = self.samples.as_slices();
        let samples: Vec<f64>;
        let samples = if back.is_empty() {
            front
        } else {
            samples = [front, back].concat();
            &samples
        };
        // before the first sample everything is what the window is worth now
        let or_now = |value: Option<f64>| value.unwrap_or(now_worth);
        let mean_of_all =
            (self.sum_of_all.1 > 0).then(|| self.sum_of_all.0 / f64::from(self.sum_of_all.1));
        // where there is nothing to compare with, what was sent in the time just past
        let or_lately = |value: Option<f64>| {
            value.unwrap_or_else(|| or_now(window_mean(newest(samples, horizon.horizon_s))))
        };
        let since_s = now_s - self.start_s - f64::from(self.ticks) * SAMPLE_S;
        let followed = (self.analogs).followed(since_s.max(0.0), horizon.horizon_s);
        let followed = followed.unwrap_or_else(|| {
            let lately = or_lately(None);
            Followed {
                few: lately,
                several: lately,
                growth: lately,
            }
        });
        let short = &samples[samples.len().saturating_sub(SHORT_SAMPLES)..];
        [
            by_state.median,
            by_state.median * horizon.pool.bias().exp(),
            by_state.likely,
            // of the others: below
            1.0,
            or_now(last_sample(samples)),
            or_now(self.ewma.forecast()),
            or_now(self.ewma_tuned.forecast(horizon.horizon_s)),
            or_now(self.holt_winters.forecast()),
            or_now(harmonic_mean(samples)),
            or_now(window_mean(short)),
            or_now(window_mean(samples)),
            or_now(mean_of_all),
            or_now(self.rate_now(now_s).or(last_sample(samples))),
            self.now_packets_per_s(state).unwrap_or(now_worth),
            or_now(self.by_cycle(now_s, horizon.horizon_s)),
            followed.few,
            followed.several,
            followed.growth,
            or_lately(self.by_bursts(now_s, horizon.horizon_s)),
        ]
    }

    /// All experts' forecasts for one horizon, pooled, with other flows' beginnings.
    pub(super) fn guess(
        &self,
        horizon: &Horizon,
        state: &FlowState,
        now_s: f64,
        early: Option<&Early>,
    ) -> (Pending, ByExpert) {
        let now_worth = self.reward.of(state.cwnd_packets);
        let by_state = match &horizon.table {
            Some(table) => summarize(&table.forecast(self.law(), state, now_s)),
            None => Summary {
                median: now_worth,
                likely: now_worth,
                spread: ASSUMED_SPREAD,
            },
        };
        let value = self.values(horizon, state, now_s, &by_state);
        let mut ln_value = value.map(|value| value.max(VALUE_FLOOR).ln());
        let mut ln_queue = ln_value[Expert::Now as usize] - now_worth.max(VALUE_FLOOR).ln();
        if self.ablation.has_no_window() {
            // the regression sees the last sample where the window was; the pool does not use these experts
            for expert in Expert::OF_WINDOW {
                ln_value[expert as usize] = ln_value[Expert::LastSample as usize];
            }
            ln_queue = 0.0;
        }
        ln_value[Expert::Regression as usize] = horizon.regression.ln_value(&ln_value, ln_queue);
        let weights = if *state == self.detector.state(now_s) {
            horizon.pool.weights()
        } else {
            // another state than this flow's: its past moments were like that one, not like this
            horizon.pool.weights_without(&Expert::OF_ANALOGS)
        };
        let mut ln_point = middle(&ln_value, &weights);
        let disagreement: f64 = ln_value
            .iter()
            .zip(horizon.pool.doubtful_weights())
            .map(|(v, w)| w * (v - ln_point).abs().min(DISAGREEMENT_MAX).powi(2))
            .sum();
        let own = weights[0] * by_state.spread;
        let mut spread = (own * own + disagreement + horizon.pool.usual_error().powi(2)).sqrt();
        let ln_own = ln_point;
        if let Some(early) = early {
            ln_point = early.mix(early.ln_point(), ln_point);
            spread = early.mix(early.spread(), spread);
        }
        (
            Pending {
                time_s: now_s,
                ln_value,
                ln_queue,
                ln_own,
                ln_early: early.map(Early::ln_point),
                ln_point,
                spread,
            },
            weights,
        )
    }
}

/// The newest samples that make up a time, one at least.
fn newest(samples: &[f64], seconds: f64) -> &[f64] {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
    let count = (seconds / SAMPLE_S).round().max(1.0) as usize;
    &samples[samples.len().saturating_sub(count)..]
}
