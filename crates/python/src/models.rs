//! The models on arrays.

use numpy::PyReadonlyArray1;
use pathcast_models::loss_curve::{LossCurveBuilder, LossCurves};
use pathcast_models::{
    Cc, Counting, Detection, EvaluateOptions, Fit, FitOptions, ForecasterOptions, Observation,
    OnBreak, Protocol, Series, SeriesError,
};
use pyo3::prelude::*;
use serde::Serialize;

use crate::errors::ModelError;

pub(crate) fn model_error(error: impl std::fmt::Display) -> PyErr {
    ModelError::new_err(error.to_string())
}

pub(crate) fn congestion_control(name: Option<&str>) -> PyResult<Option<Cc>> {
    name.map(|name| {
        Cc::from_name(name)
            .ok_or_else(|| model_error(format!("cc is {name:?}, expected cubic or reno")))
    })
    .transpose()
}

pub(crate) fn protocol(name: &str) -> PyResult<Protocol> {
    match name {
        "fair" => Ok(Protocol::Fair),
        "paper" => Ok(Protocol::Paper),
        _ => Err(model_error(format!(
            "protocol is {name:?}, expected fair or paper"
        ))),
    }
}

/// One flow's columns: times (s), windows (packets), then snd_nxt (packets) and srtt (s) if known.
#[derive(FromPyObject)]
pub struct Columns<'py>(
    PyReadonlyArray1<'py, f64>,
    PyReadonlyArray1<'py, f64>,
    Option<PyReadonlyArray1<'py, f64>>,
    Option<PyReadonlyArray1<'py, f64>>,
);

impl Columns<'_> {
    pub(crate) fn series(&self) -> Result<Series, SeriesError> {
        let copy = |array: &PyReadonlyArray1<'_, f64>| array.as_array().to_vec();
        let mut series = Series::new(copy(&self.0), copy(&self.1))?;
        if let Some(snd_nxt) = &self.2 {
            series = series.with_snd_nxt(copy(snd_nxt))?;
        }
        if let Some(srtt) = &self.3 {
            series = series.with_srtt(copy(srtt))?;
        }
        Ok(series)
    }
}

/// Every flow's fit and, over all flows, one curve for each number of parallel connections.
#[derive(Serialize)]
struct Fits {
    flows: Vec<Fit>,
    curves: LossCurves,
}

/// Fits flows, each with its name in errors and its number of parallel connections; JSON with
/// `flows` and `curves`.
#[pyfunction]
#[pyo3(signature = (flows, names, npcs, cc=None, rtt_s=None))]
pub fn fit(
    py: Python<'_>,
    flows: Vec<Columns<'_>>,
    names: Vec<String>,
    npcs: Vec<u32>,
    cc: Option<&str>,
    rtt_s: Option<f64>,
) -> PyResult<String> {
    let cc = congestion_control(cc)?;
    let named = |(flow, name): (&Columns<'_>, &String)| {
        flow.series()
            .map_err(|error| model_error(format!("{name}: {error}")))
    };
    let flows = flows
        .iter()
        .zip(&names)
        .map(named)
        .collect::<PyResult<Vec<Series>>>()?;
    // packets are counted alike in all flows of a curve
    let all_sent = flows
        .iter()
        .all(|series| Counting::of(series) == Counting::Sent);
    let counting = if all_sent {
        Counting::Sent
    } else {
        Counting::Passages
    };
    Ok(py.detach(|| {
        let options = |npc| FitOptions {
            cc,
            rtt_s,
            npc,
            ..FitOptions::default()
        };
        let fits: Vec<Fit> = flows
            .iter()
            .zip(&npcs)
            .map(|(series, &npc)| pathcast_models::fit(series, &options(npc)))
            .collect();
        let mut builders: std::collections::BTreeMap<u32, LossCurveBuilder> = Default::default();
        for ((series, fit), &npc) in flows.iter().zip(&fits).zip(&npcs) {
            let found = Detection {
                epochs: fit.epochs.clone(),
                losses: fit.losses.clone(),
            };
            builders
                .entry(npc)
                .or_insert_with(|| LossCurveBuilder::new(npc, counting))
                .add(series, &found, fit.rtt_s);
        }
        let curves = builders
            .into_values()
            .map(LossCurveBuilder::build)
            .collect();
        let fits = Fits {
            flows: fits,
            curves: LossCurves { curves },
        };
        serde_json::to_string(&fits).expect("plain data")
    }))
}

/// Forecasts one flow again and again and compares with what happened; JSON.
#[pyfunction]
#[pyo3(signature = (flow, horizons_s, protocol, cc=None, rtt_s=None, window_s=None, keep_predictions=false))]
#[allow(clippy::too_many_arguments)] // by keyword in Python
pub fn evaluate(
    py: Python<'_>,
    flow: Columns<'_>,
    horizons_s: Vec<f64>,
    protocol: &str,
    cc: Option<&str>,
    rtt_s: Option<f64>,
    window_s: Option<f64>,
    keep_predictions: bool,
) -> PyResult<String> {
    let series = flow.series().map_err(model_error)?;
    let protocol = self::protocol(protocol)?;
    let cc = congestion_control(cc)?;
    let options = EvaluateOptions {
        cc,
        rtt_s,
        horizons_s,
        protocol,
        window_s,
        keep_predictions,
    };
    let evaluation = py
        .detach(|| pathcast_models::evaluate(&series, &options))
        .map_err(model_error)?;
    Ok(serde_json::to_string(&evaluation).expect("plain data"))
}

/// Forecasts one flow, record by record.
#[pyclass(module = "pathcast._internal")]
pub struct Forecaster(pathcast_models::Forecaster);

#[pymethods]
impl Forecaster {
    #[new]
    #[pyo3(signature = (cc, horizons_s, rtt_s=None, restart_on_break=false))]
    fn new(
        cc: &str,
        horizons_s: Vec<f64>,
        rtt_s: Option<f64>,
        restart_on_break: bool,
    ) -> PyResult<Self> {
        let cc = congestion_control(Some(cc))?.expect("was some");
        let options = ForecasterOptions {
            cc,
            rtt_s,
            horizons_s,
        };
        let on_break = if restart_on_break {
            OnBreak::Restart
        } else {
            OnBreak::Refuse
        };
        pathcast_models::Forecaster::new(&options)
            .map(|forecaster| Self(forecaster.on_break(on_break)))
            .map_err(model_error)
    }

    /// Takes records in the order of their times.
    fn observe(&mut self, flow: Columns<'_>) -> PyResult<()> {
        let (time, cwnd) = (flow.0.as_array(), flow.1.as_array());
        let (snd_nxt, srtt) = (
            flow.2.as_ref().map(|c| c.as_array()),
            flow.3.as_ref().map(|c| c.as_array()),
        );
        for column in [Some(cwnd), snd_nxt, srtt].into_iter().flatten() {
            if column.len() != time.len() {
                let message = format!(
                    "a column has {} rows, time_s has {}",
                    column.len(),
                    time.len()
                );
                return Err(model_error(message));
            }
        }
        for i in 0..time.len() {
            self.0
                .observe(&Observation {
                    time_s: time[i],
                    cwnd_packets: cwnd[i],
                    snd_nxt_packets: snd_nxt.map(|column| column[i]),
                    srtt_s: srtt.map(|column| column[i]),
                })
                .map_err(model_error)?;
        }
        Ok(())
    }

    /// Forecasts the `horizon_s` seconds from `now_s` on; JSON.
    fn forecast(&mut self, now_s: f64, horizon_s: f64) -> PyResult<String> {
        let forecast = self.0.forecast(now_s, horizon_s).map_err(model_error)?;
        Ok(serde_json::to_string(&forecast).expect("plain data"))
    }
}
