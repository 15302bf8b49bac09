//! The models on arrays.

use numpy::PyReadonlyArray1;
use pathcast_analysis::loss_curve::{LossCurveBuilder, LossCurves};
use pathcast_analysis::{Counting, Fit, FitOptions, Series, SeriesError};
use pathcast_forecast::{
    EvaluateOptions, ForecasterOptions, Model, Observation, OnBreak, Protocol, Siblings, score,
};
use pathcast_window_law::Cc;
use pyo3::prelude::*;
use serde::Serialize;

use crate::errors::ModelError;

pub(crate) fn model_error(error: impl std::fmt::Display) -> PyErr {
    ModelError::new_err(error.to_string())
}

/// The window law of a congestion control; [`Cc::Other`] if none is known.
pub(crate) fn congestion_control(name: Option<&str>) -> PyResult<Option<Cc>> {
    match name {
        Some(name) if name.trim().is_empty() => Err(model_error(format!(
            "cc is {name:?}, expected a congestion control such as cubic, reno or bbr"
        ))),
        name => Ok(name.map(Cc::of)),
    }
}

/// The name of the window law of a congestion control, if one is known.
#[pyfunction]
pub fn window_law(name: &str) -> Option<&'static str> {
    Cc::from_name(name).map(Cc::name)
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

/// One flow's columns: times (s), windows (packets), then snd_nxt (packets), srtt (s) and the counter of packets sent
/// again if known; NaN where a record does not know.
#[derive(FromPyObject)]
pub struct Columns<'py>(
    PyReadonlyArray1<'py, f64>,
    PyReadonlyArray1<'py, f64>,
    Option<PyReadonlyArray1<'py, f64>>,
    Option<PyReadonlyArray1<'py, f64>>,
    Option<PyReadonlyArray1<'py, f64>>,
);

impl Columns<'_> {
    pub(crate) fn series(&self) -> Result<Series, SeriesError> {
        let copy = |array: &PyReadonlyArray1<'_, f64>| array.as_array().to_vec();
        let (time_s, cwnd) = (copy(&self.0), copy(&self.1));
        // the sequence numbers of several flows would go back
        let mut series = match &self.2 {
            Some(snd_nxt) => Series::of_one_flow(time_s, cwnd)?.with_snd_nxt(copy(snd_nxt))?,
            None => Series::new(time_s, cwnd)?,
        };
        if let Some(srtt) = &self.3 {
            series = series.with_srtt(copy(srtt))?;
        }
        if let Some(retransmits) = &self.4 {
            series = series.with_retransmits(copy(retransmits))?;
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
    } else if cc.is_none_or(Cc::has_law) {
        Counting::Passages
    } else {
        Counting::Time // there are no epochs to pass through
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
            .map(|(series, &npc)| pathcast_analysis::fit(series, &options(npc)))
            .collect();
        let mut builders: std::collections::BTreeMap<u32, LossCurveBuilder> = Default::default();
        for ((series, fit), &npc) in flows.iter().zip(&fits).zip(&npcs) {
            builders
                .entry(npc)
                .or_insert_with(|| LossCurveBuilder::new(npc, counting))
                .add(series, &fit.detection(), fit.rtt_s);
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
#[pyo3(signature = (
    flow, horizons_s, protocol, cc=None, rtt_s=None, window_s=None, siblings=vec![], keep_predictions=false
))]
#[allow(clippy::too_many_arguments)] // by keyword in Python
pub fn evaluate(
    py: Python<'_>,
    flow: Columns<'_>,
    horizons_s: Vec<f64>,
    protocol: &str,
    cc: Option<&str>,
    rtt_s: Option<f64>,
    window_s: Option<f64>,
    siblings: Vec<Columns<'_>>,
    keep_predictions: bool,
) -> PyResult<String> {
    let series = flow.series().map_err(model_error)?;
    let siblings = siblings
        .iter()
        .map(|sibling| sibling.series().map_err(model_error));
    let siblings = siblings.collect::<PyResult<Vec<Series>>>()?;
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
        .detach(|| pathcast_forecast::evaluate_beside(&series, &siblings, &options))
        .map_err(model_error)?;
    Ok(serde_json::to_string(&evaluation).expect("plain data"))
}

/// Mean, median, 10 and 90 % quantile of the finite errors; `None` if there is none.
#[pyfunction]
pub fn error_summary(errors: PyReadonlyArray1<'_, f64>) -> Option<(f64, f64, f64, f64)> {
    let found = score::Summary::of(errors.as_array().iter().copied())?;
    Some((found.mean, found.median, found.p10, found.p90))
}

/// Compares `pathcast` with the others on the same windows, by their errors in per cent; JSON.
#[pyfunction]
pub fn skills(
    errors: Vec<(String, PyReadonlyArray1<'_, f64>)>,
    horizon_s: f64,
) -> PyResult<String> {
    let errors = (errors.iter())
        .map(|(name, errors)| {
            let model = Model::from_name(name)
                .ok_or_else(|| model_error(format!("no model is named {name:?}")))?;
            Ok((model, errors.as_array().to_vec()))
        })
        .collect::<PyResult<Vec<_>>>()?;
    let skills = score::skills(&errors, horizon_s);
    Ok(serde_json::to_string(&skills).expect("plain data"))
}

/// Compares the errors of two models on the same windows, per cent; JSON, `null` if no window has both.
#[pyfunction]
pub fn error_ratio(
    ours: PyReadonlyArray1<'_, f64>,
    theirs: PyReadonlyArray1<'_, f64>,
    horizon_s: f64,
) -> String {
    let errors = [ours, theirs].map(|errors| errors.as_array().to_vec());
    let ratio = score::Ratio::of(&errors[0], &errors[1], horizon_s);
    serde_json::to_string(&ratio).expect("plain data")
}

/// Part of the truths within their bands; `None` without one.
#[pyfunction]
pub fn coverage(in_band: PyReadonlyArray1<'_, bool>) -> Option<f64> {
    score::coverage(in_band.as_array().iter().copied())
}

/// Forecasts one flow, record by record; with the newest window.
#[pyclass(module = "pathcast._internal")]
pub struct Forecaster(pathcast_forecast::Forecaster, Option<f64>);

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
        pathcast_forecast::Forecaster::new(&options)
            .map(|forecaster| Self(forecaster.on_break(on_break), None))
            .map_err(model_error)
    }

    /// Takes records in the order of their times.
    fn observe(&mut self, flow: Columns<'_>) -> PyResult<()> {
        let (time, cwnd) = (flow.0.as_array(), flow.1.as_array());
        let column = |column: &Option<PyReadonlyArray1<'_, f64>>| {
            let array = column.as_ref().map(|column| column.as_array().to_vec());
            array.unwrap_or_else(|| vec![f64::NAN; time.len()])
        };
        let (snd_nxt, srtt, sent_again) = (column(&flow.2), column(&flow.3), column(&flow.4));
        for length in [cwnd.len(), snd_nxt.len(), srtt.len(), sent_again.len()] {
            if length != time.len() {
                let message = format!("a column has {length} rows, time_s has {}", time.len());
                return Err(model_error(message));
            }
        }
        let known = |value: f64| (!value.is_nan()).then_some(value);
        for i in 0..time.len() {
            // a missing window is the one before; before the first nothing is known
            let Some(cwnd_packets) = known(cwnd[i]).or(self.1) else {
                continue;
            };
            self.1 = Some(cwnd_packets);
            if let Some(sent_again) = known(sent_again[i]) {
                self.0.count(time[i], sent_again);
            }
            self.0
                .observe(&Observation {
                    time_s: time[i],
                    cwnd_packets,
                    snd_nxt_packets: known(snd_nxt[i]),
                    srtt_s: known(srtt[i]),
                })
                .map_err(model_error)?;
        }
        Ok(())
    }

    /// Takes what earlier flows of the same path did, oldest first; before the first record.
    fn take_siblings(&mut self, flows: Vec<PyRef<'_, Self>>) {
        let mut siblings = Siblings::default();
        for flow in flows.iter().filter_map(|flow| flow.0.as_sibling()) {
            siblings.push(flow.clone());
        }
        self.0.take_siblings(siblings);
    }

    /// What forecasts of a flow's beginning rest on; see `Forecaster::cold_start`.
    fn cold_start(&self, now_s: f64, horizon_s: f64) -> Option<(f64, Vec<f64>)> {
        self.0.cold_start(now_s, horizon_s)
    }

    /// Forecasts the `horizon_s` seconds from `now_s` on; JSON.
    fn forecast(&mut self, now_s: f64, horizon_s: f64) -> PyResult<String> {
        let forecast = self.0.forecast(now_s, horizon_s).map_err(model_error)?;
        Ok(serde_json::to_string(&forecast).expect("plain data"))
    }
}
