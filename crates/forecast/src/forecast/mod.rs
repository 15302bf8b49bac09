//! Pathcast's own forecast: conditioned on the flow's state and on a horizon, with its uncertainty.
//!
//! Four layers, all strictly causal (only records up to the moment of prediction, and only forecasts
//! whose truth is known by then):
//! 1. *State*: the window law from where the flow is now, averaged over when the next losses come
//!    ([`crate::renewal`]), with loss chances learned on this path ([`pathcast_analysis::hazard`]).
//! 2. *Experts*: the state's median and the history-based forecasts, pooled in logarithms and weighted by
//!    their recent errors at this horizon on this path. Where the law explains the flow, the state gets all
//!    the weight; where the flow repeats itself, analogs do ([`analogs`], [`bursts`]); where the path is noise, means
//!    over the past do.
//! 3. *Cold start*: in a flow's first seconds, what other flows that began like it did next ([`crate::cold_start`]).
//! 4. *Bands*: quantiles of the pooled forecast's past errors, normalized by the predicted spread
//!    (normalized conformal prediction, Papadopoulos 2008, with older residuals fading out).

mod analogs;
mod breaks;
mod bursts;
mod changes;
mod cycle;
mod early;
mod forecaster;
mod guess;
mod horizon;
mod notes;
mod records;
mod regression;
mod reward;
mod seconds;
mod types;

#[cfg(test)]
mod tests;

pub use crate::experts::{EXPERTS, Expert};
pub use breaks::OnBreak;
pub use forecaster::Forecaster;
pub use notes::{Note, Notes};
pub use types::{Ablation, Basis, Forecast, ForecasterOptions, Observation, Weight};
