//! From a series to everything that is measured on it.

use serde::Serialize;

use crate::epochs::{Epoch, Loss, find_epochs};
use crate::loss_curve::{Counting, LossCurve};
use crate::rtt::{RttSource, guess_cc, rtt_s};
use crate::series::Series;
use crate::window::Cc;

/// What the caller knows about the flow; all of it may be left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FitOptions {
    /// Congestion control; guessed from the window if `None`.
    pub cc: Option<Cc>,
    /// Round-trip time, seconds, finite and > 0 (the caller checks); from srtt or estimated if `None`.
    pub rtt_s: Option<f64>,
    /// Parallel connections, this one included.
    pub npc: u32,
    /// How packets sent are counted; [`Counting::of`] the series if `None`.
    pub counting: Option<Counting>,
}

impl Default for FitOptions {
    fn default() -> Self {
        Self {
            cc: None,
            rtt_s: None,
            npc: 1,
            counting: None,
        }
    }
}

/// Epochs, losses and loss curve of one flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fit {
    /// Congestion control, given or guessed.
    pub cc: Cc,
    /// True if `cc` was guessed.
    pub cc_guessed: bool,
    /// Round-trip time, seconds.
    pub rtt_s: f64,
    /// Where it came from.
    pub rtt_source: RttSource,
    /// Ended congestion-avoidance epochs, oldest first.
    pub epochs: Vec<Epoch>,
    /// Loss events, oldest first.
    pub losses: Vec<Loss>,
    /// p(cwnd).
    pub curve: LossCurve,
}

/// Finds epochs and losses and fits the loss curve.
///
/// ```
/// use pathcast_models::{Cc, FitOptions, Series, fit};
/// let time: Vec<f64> = (0..110).map(|i| f64::from(i) * 0.1).collect();
/// let cwnd = (0..110).map(|i| f64::from(10 + i % 11)).collect();
/// let fit = fit(&Series::new(time, cwnd)?, &FitOptions::default());
/// assert_eq!(fit.cc, Cc::Reno);
/// assert!((fit.rtt_s - 0.1).abs() < 1e-9);
/// assert_eq!(fit.losses.len(), 9);
/// # Ok::<(), pathcast_models::SeriesError>(())
/// ```
pub fn fit(series: &Series, options: &FitOptions) -> Fit {
    let cc = options.cc.unwrap_or_else(|| guess_cc(series));
    let (rtt_s, rtt_source) = match options.rtt_s {
        Some(rtt_s) => (rtt_s, RttSource::Given),
        None => rtt_s(series, cc),
    };
    let found = find_epochs(series, cc, rtt_s);
    let counting = options.counting.unwrap_or_else(|| Counting::of(series));
    let curve = LossCurve::fit(series, &found, rtt_s, options.npc, counting);
    Fit {
        cc,
        cc_guessed: options.cc.is_none(),
        rtt_s,
        rtt_source,
        epochs: found.epochs,
        losses: found.losses,
        curve,
    }
}
