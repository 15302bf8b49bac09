//! What comes next on one TCP flow, and how well each model predicts it. Numbers in, plain structs out:
//! no I/O, no clock, no threads, no randomness.
//!
//! | to do | call | gives |
//! |---|---|---|
//! | forecasts against truth | [`evaluate()`]`(&Series, &`[`EvaluateOptions`]`)` | [`Evaluation`] `{horizons: [{horizon_s, windows, median_error_pct, coverage90, predictions}], ...}` |
//! | forecast a live flow | [`Forecaster::new`], [`observe`](Forecaster::observe), [`advance`](Forecaster::advance), [`forecast`](Forecaster::forecast)`(now_s, horizon_s)` | [`Forecast`] `{point, mean, quantiles, weights, basis, state, ...}` |
//! | any model, one interface | [`Estimator::fit`]`(Model, &Series, &`[`EstimatorOptions`]`)`, [`forecast`](Estimator::forecast)`(&State, horizon_s)` | [`Estimate`] `{point, mean, quantiles}` |
//! | the paper's model | [`econ::congestion_avoidance`], [`econ::slow_start`] | [`econ::Econ`] |
//! | errors and coverage of any forecasts | [`score`] | numbers |
//! | baselines | [`baselines`] | numbers |
//!
//! All outputs derive `serde::Serialize` with the keys above. What each model is, how it is judged
//! and how well it does: `docs/explanation/models.md`, `docs/results/models.md`.

mod bands;
pub mod baselines;
mod cold_start;
mod conformal;
pub mod econ;
pub mod estimators;
pub mod evaluate;
pub mod experts;
pub mod forecast;
pub mod formulas;
pub mod renewal;
pub mod score;
pub mod types;

pub use cold_start::{Sibling, Siblings};
pub use estimators::{Estimate, Estimator, EstimatorOptions};
pub use evaluate::{
    EvaluateError, EvaluateOptions, Evaluation, HorizonScore, Prediction, evaluate, evaluate_beside,
};
pub use forecast::{
    Basis, Expert, Forecast, Forecaster, ForecasterOptions, Note, Notes, Observation, OnBreak,
    Weight,
};
pub use types::{ByModel, ForecastError, MODELS, Model, Protocol, QUANTILES, Quantity};
