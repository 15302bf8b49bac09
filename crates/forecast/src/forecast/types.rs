//! What a forecaster takes and gives.

use serde::Serialize;

use super::notes::Notes;
use crate::experts::Expert;
use crate::types::{QUANTILES, Quantity};
use pathcast_analysis::epochs::FlowState;
use pathcast_analysis::rtt::RttSource;
use pathcast_analysis::series::Series;
use pathcast_window_law::Cc;

/// The options of a forecaster.
#[derive(Debug, Clone, PartialEq)]
pub struct ForecasterOptions {
    /// Congestion control.
    pub cc: Cc,
    /// Round-trip time, seconds; from srtt or estimated if `None`.
    pub rtt_s: Option<f64>,
    /// Horizons that will be asked for, seconds.
    pub horizons_s: Vec<f64>,
}

/// A part that a forecaster does without, to measure what the part contributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ablation {
    /// Nothing is left out.
    #[default]
    None,
    /// The loss curve: one loss probability for all windows.
    Curve,
    /// The window law and with it the flow's phase, epoch and last maximum: the window stays as it is.
    Law,
    /// The comparison with moments of this flow's past.
    Analogs,
    /// The window and its law: models of history, and analogs.
    Window,
    /// All of it: the pool of other authors' models of history alone.
    WindowAndAnalogs,
}

impl Ablation {
    /// Whether nothing may rest on the window.
    pub(crate) fn has_no_window(self) -> bool {
        matches!(self, Self::Window | Self::WindowAndAnalogs)
    }

    /// Whether nothing may rest on analogs.
    pub(crate) fn has_no_analogs(self) -> bool {
        matches!(self, Self::Analogs | Self::WindowAndAnalogs)
    }
}

/// One record of a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Seconds, never before the last record's.
    pub time_s: f64,
    /// Window, packets, > 0.
    pub cwnd_packets: f64,
    /// Next sequence number, packets, cumulative; `None` where a record does not know it.
    pub snd_nxt_packets: Option<f64>,
    /// Smoothed round-trip time, seconds; `None` where a record does not know it.
    pub srtt_s: Option<f64>,
}

impl Observation {
    /// Record `index` of a series, counted from 0; it must be there.
    pub fn of(series: &Series, index: usize) -> Self {
        Self {
            time_s: series.time_s()[index],
            cwnd_packets: series.cwnd_packets()[index],
            snd_nxt_packets: series.snd_nxt_at(index),
            srtt_s: series.srtt_at(index),
        }
    }
}

/// One expert's part in a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Weight {
    /// Whose.
    pub expert: Expert,
    /// Its weight; all weights sum to 1.
    pub weight: f64,
    /// What it forecasts by itself, in the forecast's unit.
    pub value: f64,
}

/// What a forecast rests on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Basis {
    /// Loss events seen so far.
    pub losses: u32,
    /// Loss events remembered, each weighed by its age.
    pub losses_remembered: f64,
    /// Packets remembered, each weighed by its age.
    pub packets_remembered: f64,
    /// With no loss remembered: the loss probability exceeded with 5 % chance (rule of three).
    pub loss_upper_bound: Option<f64>,
    /// Forecasts of this horizon whose truth is known.
    pub resolved: u32,
    /// Round-trip time used, seconds.
    pub rtt_s: f64,
    /// Where it came from.
    pub rtt_source: RttSource,
    /// The part that other flows' beginnings have in the forecast: 1 at a flow's begin, 0 from 100 s on.
    pub cold_start: f64,
    /// Earlier flows of the same path that the forecast knows of.
    pub siblings: u32,
    /// The rate at which the path was seen to saturate, packets/s; `None` if it was not.
    pub capacity_packets_per_s: Option<f64>,
    /// What was odd about the records.
    pub notes: Notes,
}

/// One forecast.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Forecast {
    /// Moment of prediction, seconds.
    pub time_s: f64,
    /// Seconds ahead.
    pub horizon_s: f64,
    /// What is forecast, and its unit.
    pub quantity: Quantity,
    /// The one number to use: experts pooled.
    pub point: f64,
    /// Mean of the distribution.
    pub mean: f64,
    /// Quantiles at the levels of [`QUANTILES`], never decreasing.
    pub quantiles: [f64; QUANTILES.len()],
    /// Who contributed how much.
    pub weights: Vec<Weight>,
    /// What it rests on.
    pub basis: Basis,
    /// The flow's state at the moment of prediction.
    pub state: FlowState,
}
