//! Forecasts of a path's rate.

use numpy::PyReadonlyArray1;
use pathcast_decide::decision::bitrate::{self, Ladder};
use pathcast_decide::rate::Rates;
use pathcast_rates::{Rate, RateForecaster as Inner};
use pyo3::prelude::*;

use crate::errors::ModelError;

/// See `pathcast.RateForecaster`.
#[pyclass]
pub struct RateForecaster(Inner);

/// The point, then quantiles at `levels`, in bit/s.
fn row(rate: &Rate, levels: &[f64]) -> Vec<f64> {
    let quantiles = levels.iter().map(|level| rate.quantile_bps(*level));
    std::iter::once(rate.point_bps()).chain(quantiles).collect()
}

impl RateForecaster {
    /// Takes samples in their order, and calls `then` after each.
    fn each(
        &mut self,
        seconds: &PyReadonlyArray1<'_, f64>,
        bits: &PyReadonlyArray1<'_, f64>,
        mut then: impl FnMut(&Inner),
    ) -> PyResult<()> {
        let (seconds, bits) = (seconds.as_array(), bits.as_array());
        for (number, (seconds, bits)) in seconds.iter().zip(bits).enumerate() {
            self.0
                .observe(*seconds, *bits)
                .map_err(|error| ModelError::new_err(format!("sample {number}: {error}")))?;
            then(&self.0);
        }
        Ok(())
    }
}

#[pymethods]
impl RateForecaster {
    #[new]
    fn new(horizon_s: f64) -> PyResult<Self> {
        Inner::new(horizon_s)
            .map(Self)
            .map_err(|error| ModelError::new_err(error.to_string()))
    }

    /// Samples in their order: seconds, and bits that came in them.
    fn observe(
        &mut self,
        seconds: PyReadonlyArray1<'_, f64>,
        bits: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<()> {
        self.each(&seconds, &bits, |_| {})
    }

    /// The same, and after each sample the point and the quantiles of [`RateForecaster::forecast`]; an empty row before the
    /// first forecast.
    fn follow(
        &mut self,
        seconds: PyReadonlyArray1<'_, f64>,
        bits: PyReadonlyArray1<'_, f64>,
        levels: Vec<f64>,
    ) -> PyResult<Vec<Vec<f64>>> {
        let mut rows = Vec::new();
        self.each(&seconds, &bits, |path| {
            let forecast = path.forecast();
            rows.push(forecast.map_or_else(Vec::new, |rate| row(&rate, &levels)));
        })?;
        Ok(rows)
    }

    /// The point, then quantiles at `levels`, in bit/s; none before the first step.
    fn forecast(&self, levels: Vec<f64>) -> Option<Vec<f64>> {
        Some(row(&self.0.forecast()?, &levels))
    }

    /// Seconds of all samples.
    #[getter]
    fn observed_s(&self) -> f64 {
        self.0.observed_s()
    }
}

/// A choice among versions of a video from a series of rates: see [`choose_bitrate`].
type Chosen = (Option<usize>, Vec<f64>, Vec<f64>, f64);

/// The choice of `pathcast serve` from a path's samples: the highest version whose next segment arrives in its duration with
/// the confidence, if one does; the confidence of each; the mean rate over the segment at `levels`, in bit/s; and the seconds
/// of all samples.
#[pyfunction]
pub fn choose_bitrate(
    seconds: PyReadonlyArray1<'_, f64>,
    bits: PyReadonlyArray1<'_, f64>,
    segment_s: f64,
    sizes_bytes: Vec<f64>,
    confidence: f64,
    levels: Vec<f64>,
) -> PyResult<Chosen> {
    let mut rates = Rates::default();
    for (number, (seconds, bits)) in seconds.as_array().iter().zip(bits.as_array()).enumerate() {
        rates
            .observe(*seconds, *bits)
            .map_err(|error| ModelError::new_err(format!("sample {number}: {error}")))?;
    }
    let now_s = rates.newest_s().unwrap_or(0.0);
    let rate = rates.forecast(now_s, segment_s);
    let rate = rate.ok_or_else(|| {
        ModelError::new_err("the path was not observed yet, expected samples before a forecast")
    })?;
    let chosen = bitrate::choose(
        &rate,
        0.0,
        segment_s,
        confidence,
        &Ladder::Sizes(sizes_bytes),
    );
    Ok((
        chosen.rung.filter(|_| chosen.is_confident),
        chosen.ladder.iter().map(|rung| rung.confidence).collect(),
        levels
            .iter()
            .map(|level| rate.quantile_bps(*level))
            .collect(),
        now_s,
    ))
}
