//! Measurements on one TCP flow, and conclusions about its path. The crate takes numbers and
//! returns plain structs: no I/O, clock, threads or randomness.
//!
//! | to do | call | gives |
//! |---|---|---|
//! | check input | [`Series::new`], [`Series::with_snd_nxt`], [`Series::with_srtt`] | [`Series`] or [`SeriesError`] (record, value, expected value) |
//! | epochs, losses, loss curve | [`fit()`]`(&Series, &`[`FitOptions`]`)` | [`Fit`] `{cc, cc_guessed, rtt_s, rtt_source, epochs, losses, curve}` |
//! | a path's curve and changes, online | [`follow::Follower`], [`online_curve`], [`change`] | [`online_curve::CurveEstimate`], [`change::Change`] |
//! | a new client's curve | [`clusters::Clusters`] | [`clusters::ClusterCurve`] |
//!
//! All outputs derive `serde::Serialize` with these keys. See `docs/explanation/models.md` and
//! `docs/reference/loss-curves.md`.

pub mod change;
pub mod clusters;
pub mod counter;
pub mod epochs;
pub mod fit;
pub mod follow;
pub mod gamma;
pub mod hazard;
pub mod limits;
pub mod loss_curve;
pub mod online_curve;
pub mod rtt;
mod sent_again;
pub mod series;
mod smoothing;

pub use epochs::{Detection, Epoch, EpochDetector, FlowState, Loss, Phase, find_epochs};
pub use fit::{Fit, FitOptions, LossSource, fit};
pub use loss_curve::{Counting, CurvePoint, LossCurve, LossCurveBuilder, LossCurves};
pub use rtt::{RttSource, estimate_rtt_s, guess_cc};
pub use series::{Integral, Series, SeriesError};
