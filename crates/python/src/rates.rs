//! Forecasts of a path's rate.

use numpy::PyReadonlyArray1;
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
