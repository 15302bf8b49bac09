//! What is measured on one TCP flow and what follows from it: epochs, loss curve, ECON, baselines.

pub mod baselines;
pub mod econ;
pub mod epochs;
pub mod fit;
pub mod loss_curve;
pub mod rtt;
pub mod series;
pub mod window;
pub use epochs::{Detection, Epoch, EpochDetector, FlowState, Loss, Phase, find_epochs};
pub use fit::{Fit, FitOptions, fit};
pub use loss_curve::{Counting, CurvePoint, LossCurve, LossCurveBuilder, LossCurves};
pub use series::{Integral, Series, SeriesError};
pub use window::Cc;
