//! What is measured on one TCP flow and what follows from it. Numbers in, plain structs out: no I/O,
//! no clock, no threads, no randomness.
//!
//! | to do | call | gives |
//! |---|---|---|
//! | check input | [`Series::new`], [`Series::with_snd_nxt`], [`Series::with_srtt`] | [`Series`] or [`SeriesError`] (which record, what, what was wanted) |
//! | epochs, losses, loss curve | [`fit()`]`(&Series, &`[`FitOptions`]`)` | [`Fit`] `{cc, cc_guessed, rtt_s, rtt_source, epochs, losses, curve}` |
//! | forecasts against truth | [`evaluate()`]`(&Series, &`[`EvaluateOptions`]`)` | [`Evaluation`] `{horizons: [{horizon_s, windows, median_error_pct, coverage90, predictions}], ...}` |
//! | forecast a live flow | [`Forecaster::new`], [`observe`](Forecaster::observe), [`advance`](Forecaster::advance), [`forecast`](Forecaster::forecast)`(now_s, horizon_s)` | [`Forecast`] `{point, mean, quantiles, weights, basis, state, ...}` |
//! | any model, one interface | [`Estimator::fit`]`(Model, &Series, &`[`EstimatorOptions`]`)`, [`forecast`](Estimator::forecast)`(&State, horizon_s)` | [`Estimate`] `{point, mean, quantiles}` |
//! | the paper's model | [`econ::congestion_avoidance`], [`econ::slow_start`] | [`econ::Econ`] |
//! | a path's curve and changes, online | [`follow::Follower`], [`online_curve`], [`change`] | [`online_curve::CurveEstimate`], [`change::Change`] |
//! | a new client's curve | [`clusters::Clusters`] | [`clusters::ClusterCurve`] |
//! | larger transfers from one small one | [`short_flow::estimate`] | [`short_flow::Estimate`] |
//! | the time of a transfer | [`latency::latency`], [`latency::LatencyForecaster`], [`latency::evaluate_latency`] | [`latency::Latency`] `{bytes, mean_s, quantiles_s, no_loss_probability}` |
//! | service curves, delay and backlog bounds | [`min_plus`] | [`min_plus::Curve`], [`min_plus::Arrivals`] |
//! | baselines | [`baselines`] | numbers |
//!
//! All outputs derive `serde::Serialize` with the keys above. What each model is, how it is judged
//! and how well it does: `docs/models.md`.

mod bands;
pub mod baselines;
pub mod change;
pub mod clusters;
pub mod econ;
pub mod epochs;
pub mod estimators;
pub mod evaluate;
pub mod experts;
pub mod fit;
pub mod follow;
pub mod forecast;
pub mod formulas;
pub mod gamma;
pub mod hazard;
pub mod latency;
pub mod loss_curve;
pub mod min_plus;
pub mod online_curve;
pub mod renewal;
pub mod rtt;
mod sent_again;
pub mod series;
pub mod short_flow;
mod smoothing;
pub mod window;

pub use epochs::{Detection, Epoch, EpochDetector, FlowState, Loss, Phase, find_epochs};
pub use estimators::{ByModel, Estimate, Estimator, EstimatorOptions, MODELS, Model};
pub use evaluate::{
    EvaluateError, EvaluateOptions, Evaluation, HorizonScore, Prediction, Protocol, evaluate,
};
pub use fit::{Fit, FitOptions, LossSource, fit};
pub use forecast::{
    Basis, Expert, Forecast, ForecastError, Forecaster, ForecasterOptions, Note, Notes,
    Observation, OnBreak, QUANTILES, Quantity, Weight,
};
pub use loss_curve::{Counting, CurvePoint, LossCurve, LossCurveBuilder, LossCurves};
pub use rtt::{RttSource, estimate_rtt_s, guess_cc};
pub use series::{Integral, Series, SeriesError};
pub use window::Cc;
