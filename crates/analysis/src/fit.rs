//! Fits everything that is measured on a series.

use serde::Serialize;

use crate::epochs::{Detection, Epoch, Loss, find_epochs};
use crate::loss_curve::{Counting, LossCurve};
use crate::rtt::{RttSource, guess_cc, rtt_s};
use crate::series::Series;
use pathcast_window_law::Cc;

/// What the caller knows about the flow; every field is optional.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FitOptions {
    /// Congestion control; inferred from the window if `None`.
    pub cc: Option<Cc>,
    /// Round-trip time, seconds, finite and > 0 (the caller checks). If `None`, from srtt, or
    /// estimated.
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

/// The evidence for losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossSource {
    /// The trace counts retransmissions: each window of data in which the counter rises is one loss
    /// event.
    Retransmissions,
    /// Falls of the window that match a window law.
    Window,
}

/// Epochs, losses and loss curve of one flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fit {
    /// Congestion control, given or inferred.
    pub cc: Cc,
    /// True if `cc` was inferred.
    pub cc_guessed: bool,
    /// Round-trip time, seconds.
    pub rtt_s: f64,
    /// Source of the round-trip time.
    pub rtt_source: RttSource,
    /// The evidence for losses.
    pub losses_source: LossSource,
    /// Packets retransmitted; `None` if the trace does not count them.
    pub sent_again: Option<f64>,
    /// Packets sent; `None` without sequence numbers.
    pub packets: Option<f64>,
    /// Packets sent per second; `None` without sequence numbers.
    pub rate_packets_per_s: Option<f64>,
    /// Ended congestion-avoidance epochs, oldest first; empty if the window law is unknown.
    pub epochs: Vec<Epoch>,
    /// Loss events, oldest first.
    pub losses: Vec<Loss>,
    /// p(cwnd).
    pub curve: LossCurve,
}

impl Fit {
    /// Epochs and losses, as a curve of several flows takes them.
    pub fn detection(&self) -> Detection {
        Detection {
            epochs: self.epochs.clone(),
            losses: self.losses.clone(),
        }
    }
}

/// Finds epochs and losses and fits the loss curve.
///
/// ```
/// use pathcast_analysis::{FitOptions, Series, fit};
/// use pathcast_window_law::Cc;
/// let time: Vec<f64> = (0..110).map(|i| f64::from(i) * 0.1).collect();
/// let cwnd = (0..110).map(|i| f64::from(10 + i % 11)).collect();
/// let fit = fit(&Series::new(time, cwnd)?, &FitOptions::default());
/// assert_eq!(fit.cc, Cc::Reno);
/// assert!((fit.rtt_s - 0.1).abs() < 1e-9);
/// assert_eq!(fit.losses.len(), 9);
/// # Ok::<(), pathcast_analysis::SeriesError>(())
/// ```
pub fn fit(series: &Series, options: &FitOptions) -> Fit {
    let cc = options.cc.unwrap_or_else(|| guess_cc(series));
    let (rtt_s, rtt_source) = match options.rtt_s {
        Some(rtt_s) => (rtt_s, RttSource::Given),
        None => rtt_s(series, cc),
    };
    let mut found = find_epochs(series, cc, rtt_s);
    let mut counting = options.counting.unwrap_or_else(|| Counting::of(series));
    if !cc.has_law() {
        found.epochs.clear();
        if counting == Counting::Passages {
            counting = Counting::Time;
        }
    }
    let curve = LossCurve::fit(series, &found, rtt_s, options.npc, counting);
    Fit {
        cc,
        cc_guessed: options.cc.is_none(),
        rtt_s,
        rtt_source,
        losses_source: match series.retransmits() {
            Some(_) => LossSource::Retransmissions,
            None => LossSource::Window,
        },
        sent_again: series.sent_again(),
        packets: series.sent(),
        rate_packets_per_s: series.sent().map(|packets| packets / series.duration_s()),
        epochs: found.epochs,
        losses: found.losses,
        curve,
    }
}
