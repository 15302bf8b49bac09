//! Models behind one interface.

use pathcast_analysis::{FlowState, Phase};
use pathcast_forecast::{EstimatorOptions, MODELS, Model, estimators};
use pyo3::prelude::*;

use crate::models::{Columns, congestion_control, model_error, protocol};

/// The models' names, for which congestion controls each stands, and whether Pathcast is compared with it.
#[pyfunction]
pub fn model_names() -> Vec<(&'static str, Vec<&'static str>, bool)> {
    use pathcast_window_law::Cc;
    let names = [Cc::Cubic, Cc::Reno, Cc::Other].map(|cc| (cc, cc.name()));
    (MODELS.into_iter())
        .map(|model| {
            let suited = names.into_iter().filter(|(cc, _)| model.suits(*cc));
            let suited = suited.map(|(_, name)| name).collect();
            (model.name(), suited, model.is_opponent())
        })
        .collect()
}

/// A flow's state at a moment: `pathcast.State` by its fields.
#[derive(FromPyObject, IntoPyObject)]
#[pyo3(from_item_all)]
pub struct State {
    time_s: f64,
    phase: String,
    cwnd_packets: f64,
    epoch_start_s: f64,
    epoch_start_packets: f64,
    w_max_packets: f64,
    last_loss_s: Option<f64>,
    ssthresh_packets: f64,
    growth: f64,
    held_s: f64,
    release_in_s: f64,
}

const PHASES: [(&str, Phase); 3] = [
    ("slow_start", Phase::SlowStart),
    ("avoidance", Phase::Avoidance),
    ("recovery", Phase::Recovery),
];

impl State {
    fn of(state: estimators::State) -> Self {
        let flow = state.flow;
        let phase = PHASES.iter().find(|(_, phase)| *phase == flow.phase);
        Self {
            time_s: state.time_s,
            phase: phase.map_or("", |(name, _)| name).to_owned(),
            cwnd_packets: flow.cwnd_packets,
            epoch_start_s: flow.epoch_start_s,
            epoch_start_packets: flow.epoch_start_packets,
            w_max_packets: flow.w_max_packets,
            last_loss_s: flow.last_loss_s,
            ssthresh_packets: flow.ssthresh_packets,
            growth: flow.growth,
            held_s: flow.held_s,
            release_in_s: flow.release_in_s,
        }
    }

    fn parse(&self) -> PyResult<estimators::State> {
        let phase = PHASES.iter().find(|(name, _)| *name == self.phase);
        let Some((_, phase)) = phase else {
            return Err(model_error(format!(
                "phase is {:?}, expected slow_start, avoidance or recovery",
                self.phase
            )));
        };
        for (name, got) in [
            ("cwnd_packets", self.cwnd_packets),
            ("epoch_start_packets", self.epoch_start_packets),
        ] {
            if !(got.is_finite() && got > 0.0) {
                return Err(model_error(format!(
                    "{name} is {got}, expected a finite number > 0"
                )));
            }
        }
        for (name, got) in [
            ("time_s", self.time_s),
            ("epoch_start_s", self.epoch_start_s),
            ("last_loss_s", self.last_loss_s.unwrap_or(0.0)),
        ] {
            if !got.is_finite() {
                return Err(model_error(format!(
                    "{name} is {got}, expected a finite number"
                )));
            }
        }
        for (name, got) in [
            ("w_max_packets", self.w_max_packets),
            ("ssthresh_packets", self.ssthresh_packets),
            ("growth", self.growth),
            ("held_s", self.held_s),
            ("release_in_s", self.release_in_s),
        ] {
            if got.is_nan() || got < 0.0 {
                return Err(model_error(format!("{name} is {got}, expected at least 0")));
            }
        }
        Ok(estimators::State {
            time_s: self.time_s,
            flow: FlowState {
                phase: *phase,
                cwnd_packets: self.cwnd_packets,
                epoch_start_s: self.epoch_start_s,
                epoch_start_packets: self.epoch_start_packets,
                w_max_packets: self.w_max_packets,
                last_loss_s: self.last_loss_s,
                ssthresh_packets: self.ssthresh_packets,
                growth: self.growth,
                held_s: self.held_s,
                release_in_s: self.release_in_s,
            },
        })
    }
}

/// A model that has learned from a trace.
#[pyclass(module = "pathcast._internal", frozen)]
pub struct Estimator(pathcast_forecast::Estimator);

#[pymethods]
impl Estimator {
    /// Learns from a flow's columns.
    #[new]
    #[pyo3(signature = (model, flow, horizons_s, protocol_name, cc=None, rtt_s=None))]
    fn new(
        py: Python<'_>,
        model: &str,
        flow: Columns<'_>,
        horizons_s: Vec<f64>,
        protocol_name: &str,
        cc: Option<&str>,
        rtt_s: Option<f64>,
    ) -> PyResult<Self> {
        let Some(model) = Model::from_name(model) else {
            let names = MODELS.map(Model::name).join(", ");
            return Err(model_error(format!(
                "model is {model:?}, expected one of {names}"
            )));
        };
        let series = flow.series().map_err(model_error)?;
        let options = EstimatorOptions {
            cc: congestion_control(cc)?,
            rtt_s,
            horizons_s,
            protocol: protocol(protocol_name)?,
            window_s: None,
        };
        py.detach(|| pathcast_forecast::Estimator::fit(model, &series, &options))
            .map(Self)
            .map_err(model_error)
    }

    /// The state at the end of the trace.
    fn state(&self) -> State {
        State::of(self.0.state())
    }

    /// Unit, point, mean and quantiles.
    fn forecast(&self, state: State, horizon_s: f64) -> PyResult<(String, f64, f64, Vec<f64>)> {
        let estimate = (self.0)
            .forecast(&state.parse()?, horizon_s)
            .map_err(model_error)?;
        let quantity = match estimate.quantity {
            pathcast_forecast::Quantity::MeanCwndPackets => "mean_cwnd_packets",
            pathcast_forecast::Quantity::PacketsPerS => "packets_per_s",
        };
        Ok((
            quantity.to_owned(),
            estimate.point,
            estimate.mean,
            estimate.quantiles.to_vec(),
        ))
    }
}
