//! Types of the whole crate: models, what they forecast, how they are judged, and errors.

use std::ops::{Index, IndexMut};

use serde::{Serialize, Serializer};
use thiserror::Error;

use pathcast_analysis::series::SeriesError;
use pathcast_window_law::Cc;

/// Seconds per sample of history.
pub const SAMPLE_S: f64 = 1.0;
/// Training window, seconds (paper, section 5.1).
pub const TRAINING_S: f64 = 100.0;
/// Seconds between updates in the paper's protocol, and per sample there (section 5.1).
pub const PAPER_SAMPLE_S: f64 = 10.0;
/// Training windows that may be asked for, seconds. Below the time from update to update (10 s) a part of
/// the flow would never be seen.
pub const WINDOWS_S: (f64, f64) = (10.0, 1000.0);

/// Levels of the quantiles that a forecast carries.
pub const QUANTILES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];

/// What is forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Time-weighted mean window over the horizon, packets: without sequence numbers.
    MeanCwndPackets,
    /// Growth of snd_nxt over the horizon, packets per second.
    PacketsPerS,
}

/// What the history-based baselines may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Samples of 1 s, up to the moment of prediction.
    #[default]
    Fair,
    /// Averages over 10 s, updated every 10 s: up to 10 s stale (paper, section 5.1).
    Paper,
}

impl Protocol {
    /// Seconds of a sample.
    pub fn sample_s(self) -> f64 {
        match self {
            Self::Fair => SAMPLE_S,
            Self::Paper => PAPER_SAMPLE_S,
        }
    }
}

/// What a model is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// The flow's state and what was learned on the path.
    State,
    /// Pathcast's forecast without one of its parts: it shows what that part contributes.
    Ablation,
    /// The flow's value at the moment of prediction.
    Now,
    /// Samples of the past.
    History,
    /// A formula of round-trip time and loss probability.
    Formula,
}

/// A model of throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Pathcast's forecast ([`crate::forecast`]).
    Pathcast,
    /// Cao 2019 ([`crate::econ`]): equation 4 in slow start, equation 2 after it.
    Econ,
    /// Pathcast's forecast with one loss probability for all windows.
    FlatCurve,
    /// Pathcast's forecast with the window now in place of the window law.
    NoState,
    /// Pathcast's forecast without the comparison with moments of the flow's own past.
    NoAnalogs,
    /// Pathcast's forecast from the flow's past alone, analogs included: neither window nor window law.
    NoWindow,
    /// What the window is worth now: cwnd / srtt, or cwnd itself where windows are forecast.
    WindowNow,
    /// The rate of the last round trip, of 0.1 s at least; the window now where windows are forecast.
    RateNow,
    /// The newest sample (Sun 2016).
    LastSample,
    /// Weight 0.8 on the newest sample (He 2005).
    Ewma,
    /// The weight, of nine, that had the least error so far at the same horizon.
    EwmaTuned,
    /// Level plus trend (He 2005).
    HoltWinters,
    /// Level plus trend, followed through the horizon.
    HoltWintersExtrapolated,
    /// Of five samples (Yin 2015).
    HarmonicMean,
    /// Mean of the training window.
    WindowMean,
    /// Pathcast's pool of the other models of history: neither window, window law nor analogs.
    HistoryPool,
    /// The harmonic mean less its worst recent error (Yin 2015).
    RobustMpc,
    /// The player's estimate, without its safety factor.
    DashJs,
    /// The player's estimate, without its safety factor.
    HlsJs,
    /// Mathis 1997.
    Mathis,
    /// Padhye 1998 without timeouts: the paper's "PFTK".
    PftkWithoutTimeouts,
    /// Padhye 1998, whole.
    Pftk,
    /// Chen 2006.
    Chen,
    /// Dunaytsev 2007, as Cao 2019 uses it.
    Dunaytsev,
    /// Cardwell 2000: slow start, then PFTK.
    Cardwell,
    /// TFRC, RFC 5348.
    Tfrc,
    /// CUBIC's steady state, RFC 9438.
    Rfc9438,
}

/// All models, in the order of all tables.
pub const MODELS: [Model; 27] = [
    Model::Pathcast,
    Model::Econ,
    Model::FlatCurve,
    Model::NoState,
    Model::NoAnalogs,
    Model::NoWindow,
    Model::WindowNow,
    Model::RateNow,
    Model::LastSample,
    Model::Ewma,
    Model::EwmaTuned,
    Model::HoltWinters,
    Model::HoltWintersExtrapolated,
    Model::HarmonicMean,
    Model::WindowMean,
    Model::HistoryPool,
    Model::RobustMpc,
    Model::DashJs,
    Model::HlsJs,
    Model::Mathis,
    Model::PftkWithoutTimeouts,
    Model::Pftk,
    Model::Chen,
    Model::Dunaytsev,
    Model::Cardwell,
    Model::Tfrc,
    Model::Rfc9438,
];

impl Model {
    /// Its name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pathcast => "pathcast",
            Self::Econ => "econ",
            Self::FlatCurve => "flat_curve",
            Self::NoState => "no_state",
            Self::NoAnalogs => "no_analogs",
            Self::NoWindow => "no_window",
            Self::WindowNow => "window_now",
            Self::RateNow => "rate_now",
            Self::LastSample => "last_sample",
            Self::Ewma => "ewma",
            Self::EwmaTuned => "ewma_tuned",
            Self::HoltWinters => "holt_winters",
            Self::HoltWintersExtrapolated => "holt_winters_extrapolated",
            Self::HarmonicMean => "harmonic_mean",
            Self::WindowMean => "window_mean",
            Self::HistoryPool => "history_pool",
            Self::RobustMpc => "robust_mpc",
            Self::DashJs => "dash_js",
            Self::HlsJs => "hls_js",
            Self::Mathis => "mathis",
            Self::PftkWithoutTimeouts => "pftk_without_timeouts",
            Self::Pftk => "pftk",
            Self::Chen => "chen",
            Self::Dunaytsev => "dunaytsev",
            Self::Cardwell => "cardwell",
            Self::Tfrc => "tfrc",
            Self::Rfc9438 => "rfc9438",
        }
    }

    /// The model of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        MODELS.into_iter().find(|model| model.name() == name)
    }

    /// What it is made of.
    pub fn family(self) -> Family {
        match self {
            Self::Pathcast | Self::Econ => Family::State,
            Self::FlatCurve | Self::NoState | Self::NoAnalogs | Self::NoWindow => Family::Ablation,
            Self::WindowNow | Self::RateNow => Family::Now,
            Self::LastSample
            | Self::Ewma
            | Self::EwmaTuned
            | Self::HoltWinters
            | Self::HoltWintersExtrapolated
            | Self::HarmonicMean
            | Self::WindowMean
            | Self::HistoryPool
            | Self::RobustMpc
            | Self::DashJs
            | Self::HlsJs => Family::History,
            Self::Mathis
            | Self::PftkWithoutTimeouts
            | Self::Pftk
            | Self::Chen
            | Self::Dunaytsev
            | Self::Cardwell
            | Self::Tfrc
            | Self::Rfc9438 => Family::Formula,
        }
    }

    /// Whether Pathcast is compared with it: every model but itself and what is left of it without a part.
    pub fn is_opponent(self) -> bool {
        self != Self::Pathcast && self.family() != Family::Ablation
    }

    /// Whether it says anything of this congestion control: a formula is of Reno or of CUBIC, and ECON needs a window
    /// law, as have the ablations that leave out its loss curve or the law itself.
    pub fn suits(self, cc: Cc) -> bool {
        match (self, self.family()) {
            (Self::Econ | Self::FlatCurve | Self::NoState, _) => cc.has_law(),
            (_, Family::Ablation | Family::State | Family::Now | Family::History) => true,
            (Self::Rfc9438, _) => cc == Cc::Cubic,
            (_, Family::Formula) => cc == Cc::Reno,
        }
    }
}

/// One value for each model; as JSON an object with the models' names as keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ByModel<T>([T; MODELS.len()]);

impl<T> ByModel<T> {
    /// Asks for each model's value, in the order of [`MODELS`].
    pub fn from_fn(mut of: impl FnMut(Model) -> T) -> Self {
        Self(MODELS.map(&mut of))
    }

    /// Models and values, in the order of [`MODELS`].
    pub fn iter(&self) -> impl Iterator<Item = (Model, &T)> {
        MODELS.into_iter().zip(&self.0)
    }
}

impl<T> Index<Model> for ByModel<T> {
    type Output = T;

    fn index(&self, model: Model) -> &T {
        &self.0[model as usize]
    }
}

impl<T> IndexMut<Model> for ByModel<T> {
    fn index_mut(&mut self, model: Model) -> &mut T {
        &mut self.0[model as usize]
    }
}

impl<T: Serialize> Serialize for ByModel<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(model, value)| (model.name(), value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_has_its_own_place() {
        let names = ByModel::from_fn(Model::name);
        for model in MODELS {
            assert_eq!(names[model], model.name());
        }
        let json = serde_json::to_value(names).unwrap();
        assert_eq!(json["hls_js"], "hls_js");
    }
}

/// Why a forecaster or a forecast was refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ForecastError {
    /// A horizon that is not a positive time.
    #[error("horizon is {got} s, must be a finite number > 0")]
    BadHorizon {
        /// What was asked for, seconds.
        got: f64,
    },
    /// A round-trip time that is not a positive time.
    #[error("rtt is {got} s, must be a finite number > 0")]
    BadRtt {
        /// What was given, seconds.
        got: f64,
    },
    /// A training window that is too short or too long.
    #[error("window is {got} s, must be {} to {}", WINDOWS_S.0, WINDOWS_S.1)]
    BadWindow {
        /// What was asked for, seconds.
        got: f64,
    },
    /// A horizon for which nothing was tabulated and learned.
    #[error("no forecaster for a horizon of {got} s, have {known:?}")]
    UnknownHorizon {
        /// What was asked for, seconds.
        got: f64,
        /// The horizons given at the start, seconds.
        known: Vec<f64>,
    },
    /// A record that cannot follow the one before.
    #[error(transparent)]
    Record(#[from] SeriesError),
    /// A model that says nothing of this flow.
    #[error("{} says nothing of this flow: it is of another congestion control, or nothing was seen yet", model.name())]
    Unsuited {
        /// Which.
        model: Model,
    },
    /// No record yet.
    #[error("nothing observed yet, expected at least one record")]
    NothingObserved,
}
