//! One interface over every model that forecasts a flow's throughput: [`Estimator::fit`] on a trace,
//! [`Estimator::forecast`] from a state.
//!
//! A new model is a variant of [`Model`] and a line in `Learned::forecast`;
//! the evaluation, the command line and the tables take it from there.

mod learned;

use crate::types::{ForecastError, Model, Protocol, QUANTILES, Quantity};
use std::collections::VecDeque;

use serde::Serialize;

use crate::bands::{ASSUMED_SPREAD, Residuals, VALUE_FLOOR};
use pathcast_analysis::epochs::FlowState;
use pathcast_analysis::series::Series;
use pathcast_window_law::Cc;

pub(crate) use learned::{Learned, Walk};

/// What to learn with.
#[derive(Debug, Clone, PartialEq)]
pub struct EstimatorOptions {
    /// Congestion control; guessed from the series if `None`.
    pub cc: Option<Cc>,
    /// Round-trip time, seconds; from srtt or estimated if `None`.
    pub rtt_s: Option<f64>,
    /// Horizons that will be asked for, seconds.
    pub horizons_s: Vec<f64>,
    /// Length and age of the samples that history-based models see.
    pub protocol: Protocol,
    /// All models learn on this many past seconds, within [`WINDOWS_S`]; `None`: each on what suits it.
    pub window_s: Option<f64>,
}

impl Default for EstimatorOptions {
    fn default() -> Self {
        Self {
            cc: None,
            rtt_s: None,
            horizons_s: vec![1.0, 5.0, 10.0],
            protocol: Protocol::Fair,
            window_s: None,
        }
    }
}

/// Where a flow is at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct State {
    /// The moment, seconds, in the trace's time.
    pub time_s: f64,
    /// The sender's state there.
    pub flow: FlowState,
}

/// What a model expects.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// Unit of all values.
    pub quantity: Quantity,
    /// The one number that the model gives.
    pub point: f64,
    /// Mean of the distribution.
    pub mean: f64,
    /// Quantiles at the levels of [`QUANTILES`], never decreasing. Pathcast's are its own; around another
    /// model's number they are what that model was lately off by on this trace.
    pub quantiles: [f64; QUANTILES.len()],
}

/// A model that has learned from a trace.
///
/// ```
/// use pathcast_analysis::Series;
/// use pathcast_window_law::Cc;
/// use pathcast_forecast::{Estimator, EstimatorOptions, Model};
/// let time_s: Vec<f64> = (0..3000).map(|i| f64::from(i) * 0.1).collect();
/// let cwnd = (0..3000).map(|i| f64::from(100 + i % 101)).collect();
/// let options = EstimatorOptions { cc: Some(Cc::Reno), ..EstimatorOptions::default() };
/// let estimator = Estimator::fit(Model::WindowMean, &Series::new(time_s, cwnd)?, &options)?;
/// let estimate = estimator.forecast(&estimator.state(), 5.0)?;
/// assert!((estimate.point - 150.0).abs() < 2.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Estimator {
    model: Model,
    learned: Learned,
    /// What the model was off by in ln, in units of [`ASSUMED_SPREAD`], for each horizon.
    residuals: Vec<(f64, Residuals)>,
    state: State,
}

impl Estimator {
    /// Learns from a trace. It makes the forecast of each moment, to know the models' errors.
    ///
    /// # Errors
    /// [`ForecastError`] for a horizon or round-trip time that is not positive, or a training window out of
    /// range.
    pub fn fit(
        model: Model,
        series: &Series,
        options: &EstimatorOptions,
    ) -> Result<Self, ForecastError> {
        let mut walk = Walk::new(series, options, &[model])?;
        let mut residuals: Vec<(f64, Residuals)> = (options.horizons_s.iter())
            .map(|&horizon_s| (horizon_s, Residuals::cautious(horizon_s)))
            .collect();
        // (made at, ln of the forecast), oldest first
        let mut pending: Vec<VecDeque<(f64, f64)>> = vec![VecDeque::new(); residuals.len()];
        while walk.next_second()? {
            let now_s = walk.now_s();
            for ((horizon_s, residuals), pending) in residuals.iter_mut().zip(&mut pending) {
                while let Some(&(made_s, said)) = pending.front()
                    && made_s + *horizon_s <= now_s
                {
                    pending.pop_front();
                    let happened = walk.truth(made_s, made_s + *horizon_s);
                    if happened.is_nan() {
                        continue;
                    }
                    let off = happened.max(VALUE_FLOOR).ln() - said;
                    residuals.push(made_s + *horizon_s, off / ASSUMED_SPREAD);
                }
                let point = walk.learned().forecast(model, &walk.state(), *horizon_s);
                if point.is_finite() {
                    pending.push_back((now_s, point.max(VALUE_FLOOR).ln()));
                }
            }
        }
        walk.finish()?;
        let state = walk.state();
        for (_, residuals) in &mut residuals {
            residuals.recut(state.time_s);
        }
        Ok(Self {
            model,
            learned: walk.into_learned(),
            residuals,
            state,
        })
    }

    /// Which model.
    pub fn model(&self) -> Model {
        self.model
    }

    /// Where the flow was at the end of the trace.
    pub fn state(&self) -> State {
        self.state
    }

    /// Forecasts the `horizon_s` seconds from `state` on. Models of history and formulas do not look at the
    /// state.
    ///
    /// # Errors
    /// [`ForecastError::UnknownHorizon`] if it was not among the options';
    /// [`ForecastError::Unsuited`] if the model says nothing of the flow's congestion control, or has not
    /// seen one sample.
    pub fn forecast(&self, state: &State, horizon_s: f64) -> Result<Estimate, ForecastError> {
        let known = self.residuals.iter().find(|known| known.0 == horizon_s);
        let Some((_, residuals)) = known else {
            return Err(ForecastError::UnknownHorizon {
                got: horizon_s,
                known: self.residuals.iter().map(|known| known.0).collect(),
            });
        };
        let quantity = self.learned.quantity();
        if let Some(own) = self.learned.own(self.model, state, horizon_s) {
            return Ok(Estimate {
                quantity,
                point: own.point,
                mean: own.mean,
                quantiles: own.quantiles,
            });
        }
        let point = self.learned.forecast(self.model, state, horizon_s);
        if !point.is_finite() {
            return Err(ForecastError::Unsuited { model: self.model });
        }
        let at = |cut: f64| point * (ASSUMED_SPREAD * cut).exp();
        Ok(Estimate {
            quantity,
            point,
            mean: residuals.mean(state.time_s, at),
            quantiles: residuals.cut().map(at),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::MODELS;

    fn sawtooth(seconds: u32) -> Series {
        let records = 0..=seconds * 10;
        let time_s = records.clone().map(|i| f64::from(i) * 0.1).collect();
        Series::new(time_s, records.map(|i| f64::from(100 + i % 101)).collect()).unwrap()
    }

    fn options(cc: Cc) -> EstimatorOptions {
        EstimatorOptions {
            cc: Some(cc),
            rtt_s: Some(0.1),
            ..EstimatorOptions::default()
        }
    }

    #[test]
    fn names_lead_back() {
        for model in MODELS {
            assert_eq!(Model::from_name(model.name()), Some(model));
            assert_eq!(serde_json::to_value(model).unwrap(), model.name());
        }
        assert_eq!(Model::from_name("oracle"), None);
    }

    #[test]
    fn every_model_that_suits_forecasts_a_sawtooth_s_mean() {
        let series = sawtooth(350);
        for model in MODELS {
            let estimator = Estimator::fit(model, &series, &options(Cc::Reno)).unwrap();
            let forecast = estimator.forecast(&estimator.state(), 10.0);
            if model.suits(Cc::Reno) {
                let estimate = forecast.unwrap();
                let point = estimate.point;
                assert!((90.0..260.0).contains(&point), "{model:?}: {point}");
                assert!(estimate.quantiles.is_sorted(), "{model:?}: {estimate:?}");
            } else {
                assert_eq!(forecast, Err(ForecastError::Unsuited { model }));
            }
        }
    }

    #[test]
    fn bands_learn_what_the_model_is_off_by() {
        // 100 to 200 and back each 10.1 s: the mean of 10 s hardly moves, the last second does
        let series = sawtooth(600);
        let mean = Estimator::fit(Model::WindowMean, &series, &options(Cc::Reno)).unwrap();
        let last = Estimator::fit(Model::LastSample, &series, &options(Cc::Reno)).unwrap();
        let width = |estimator: &Estimator| {
            let estimate = estimator.forecast(&estimator.state(), 10.0).unwrap();
            (estimate.quantiles[4] / estimate.quantiles[0]).ln()
        };
        assert!(width(&mean) < 0.25 * width(&last));
    }

    #[test]
    fn the_state_matters_to_those_who_look_at_it() {
        let series = sawtooth(350);
        for model in [Model::Pathcast, Model::Econ] {
            let estimator = Estimator::fit(model, &series, &options(Cc::Reno)).unwrap();
            let here = estimator.state();
            let mut there = here;
            there.flow.cwnd_packets *= 0.7;
            let point = |state| estimator.forecast(state, 1.0).unwrap().point;
            assert!(point(&there) < 0.9 * point(&here), "{model:?}");
        }
    }

    #[test]
    fn a_horizon_that_was_not_asked_for_is_refused() {
        let estimator = Estimator::fit(Model::Ewma, &sawtooth(30), &options(Cc::Reno)).unwrap();
        assert!(matches!(
            estimator.forecast(&estimator.state(), 7.0),
            Err(ForecastError::UnknownHorizon { .. })
        ));
    }
}
