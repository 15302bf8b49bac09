//! Min-plus algebra: curves, traces and bounds.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pathcast_netcalc::{Arrivals, Curve, MinPlusError};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::errors::ModelError;

type Column<'py> = PyReadonlyArray1<'py, f64>;

fn refused(error: MinPlusError) -> PyErr {
    ModelError::new_err(error.to_string())
}

fn numbers(column: &Column<'_>) -> Vec<f64> {
    column.as_array().iter().copied().collect()
}

/// A curve; immutable.
#[pyclass(module = "pathcast._internal", frozen)]
pub struct MinPlusCurve(Curve);

impl MinPlusCurve {
    fn of(
        py: Python<'_>,
        make: impl FnOnce() -> Result<Curve, MinPlusError> + Send,
    ) -> PyResult<Self> {
        py.detach(make).map(Self).map_err(refused)
    }
}

#[pymethods]
impl MinPlusCurve {
    #[classmethod]
    fn from_json(_class: &Bound<'_, PyType>, text: &str) -> PyResult<Self> {
        serde_json::from_str(text)
            .map(Self)
            .map_err(|error| ModelError::new_err(error.to_string()))
    }

    fn to_json(&self) -> String {
        serde_json::to_string(&self.0).expect("plain data")
    }

    #[classmethod]
    fn latency_rate(_class: &Bound<'_, PyType>, rate: f64, latency_s: f64) -> PyResult<Self> {
        Curve::latency_rate(rate, latency_s)
            .map(Self)
            .map_err(refused)
    }

    #[classmethod]
    fn delay(_class: &Bound<'_, PyType>, delay_s: f64) -> PyResult<Self> {
        Curve::delay(delay_s).map(Self).map_err(refused)
    }

    #[classmethod]
    fn token_bucket(_class: &Bound<'_, PyType>, rate: f64, burst: f64) -> PyResult<Self> {
        Curve::token_bucket(rate, burst).map(Self).map_err(refused)
    }

    #[classmethod]
    fn from_points(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        times_s: Column<'_>,
        values: Column<'_>,
        rate: f64,
    ) -> PyResult<Self> {
        let (times_s, values) = (numbers(&times_s), numbers(&values));
        let points: Vec<(f64, f64)> = times_s.into_iter().zip(values).collect();
        Self::of(py, || Curve::from_points(&points, rate))
    }

    #[classmethod]
    fn steps(_class: &Bound<'_, PyType>, size: f64, rate: f64, early: bool) -> PyResult<Self> {
        Curve::steps(size, rate, early).map(Self).map_err(refused)
    }

    #[classmethod]
    fn window_flow_control(
        _class: &Bound<'_, PyType>,
        rate: f64,
        latency_s: f64,
        rtt_s: f64,
        window: f64,
    ) -> PyResult<Self> {
        Curve::window_flow_control(rate, latency_s, rtt_s, window)
            .map(Self)
            .map_err(refused)
    }

    #[classmethod]
    fn from_probes(
        _class: &Bound<'_, PyType>,
        rates: Column<'_>,
        delays_s: Column<'_>,
    ) -> PyResult<Self> {
        Curve::from_probes(&numbers(&rates), &numbers(&delays_s))
            .map(Self)
            .map_err(refused)
    }

    #[classmethod]
    fn from_backlogs(
        _class: &Bound<'_, PyType>,
        rates: Column<'_>,
        backlogs: Column<'_>,
    ) -> PyResult<Self> {
        Curve::from_backlogs(&numbers(&rates), &numbers(&backlogs))
            .map(Self)
            .map_err(refused)
    }

    fn windowed(&self, py: Python<'_>, back_s: f64, window: f64) -> PyResult<Self> {
        Self::of(py, || Curve::windowed(&self.0, back_s, window))
    }

    fn at<'py>(&self, py: Python<'py>, times_s: Column<'py>) -> Bound<'py, PyArray1<f64>> {
        let times_s = times_s.as_array();
        let values: Vec<f64> = times_s.iter().map(|&t| self.0.at(t)).collect();
        values.into_pyarray(py)
    }

    fn right_limit<'py>(&self, py: Python<'py>, times_s: Column<'py>) -> Bound<'py, PyArray1<f64>> {
        let times_s = times_s.as_array();
        let values: Vec<f64> = times_s.iter().map(|&t| self.0.right_limit(t)).collect();
        values.into_pyarray(py)
    }

    #[allow(clippy::type_complexity)] // two columns
    fn points<'py>(
        &self,
        py: Python<'py>,
        until_s: f64,
    ) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>)> {
        let points = py.detach(|| self.0.points(until_s)).map_err(refused)?;
        let (times_s, values): (Vec<f64>, Vec<f64>) = points.into_iter().unzip();
        Ok((times_s.into_pyarray(py), values.into_pyarray(py)))
    }

    fn rate(&self) -> f64 {
        self.0.rate()
    }

    fn tail_from_s(&self) -> f64 {
        self.0.tail_from_s()
    }

    fn is_convex(&self) -> bool {
        self.0.is_convex()
    }

    fn is_concave(&self) -> bool {
        self.0.is_concave()
    }

    fn equals(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn is_at_most(&self, py: Python<'_>, other: &Self) -> PyResult<bool> {
        py.detach(|| self.0.is_at_most(&other.0)).map_err(refused)
    }

    fn is_same_as(&self, py: Python<'_>, other: &Self) -> PyResult<bool> {
        py.detach(|| self.0.is_same_as(&other.0)).map_err(refused)
    }

    fn min(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        Self::of(py, || self.0.min(&other.0))
    }

    fn max(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        Self::of(py, || self.0.max(&other.0))
    }

    fn add(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        Self::of(py, || self.0.add(&other.0))
    }

    fn minus(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        Self::of(py, || self.0.minus(&other.0))
    }

    fn convolve(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        Self::of(py, || self.0.convolve(&other.0))
    }

    fn deconvolve(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        Self::of(py, || self.0.deconvolve(&other.0))
    }

    fn closure(&self, py: Python<'_>) -> PyResult<Self> {
        Self::of(py, || self.0.closure())
    }

    fn inverse(&self, py: Python<'_>) -> PyResult<Self> {
        Self::of(py, || self.0.inverse())
    }

    fn raised(&self, value: f64) -> PyResult<Self> {
        self.0.raised(value).map(Self).map_err(refused)
    }

    fn later(&self, delay_s: f64) -> PyResult<Self> {
        self.0.later(delay_s).map(Self).map_err(refused)
    }

    fn scaled(&self, factor: f64) -> PyResult<Self> {
        self.0.scaled(factor).map(Self).map_err(refused)
    }

    fn horizontal_deviation(&self, py: Python<'_>, other: &Self) -> PyResult<f64> {
        py.detach(|| self.0.horizontal_deviation(&other.0))
            .map_err(refused)
    }

    fn vertical_deviation(&self, py: Python<'_>, other: &Self) -> PyResult<f64> {
        py.detach(|| self.0.vertical_deviation(&other.0))
            .map_err(refused)
    }
}

/// A traffic trace; immutable.
#[pyclass(module = "pathcast._internal", frozen)]
pub struct MinPlusArrivals(Arrivals);

#[pymethods]
impl MinPlusArrivals {
    #[new]
    fn new(times_s: Column<'_>, sizes: Column<'_>) -> PyResult<Self> {
        Arrivals::new(&numbers(&times_s), &numbers(&sizes))
            .map(Self)
            .map_err(refused)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn total(&self) -> f64 {
        self.0.total()
    }

    fn span_s(&self) -> f64 {
        self.0.span_s()
    }

    fn delay_bounds<'py>(
        &self,
        py: Python<'py>,
        service: &MinPlusCurve,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let bounds = py.detach(|| self.0.delay_bounds(&service.0));
        Ok(bounds.map_err(refused)?.into_pyarray(py))
    }

    fn backlog_bounds<'py>(
        &self,
        py: Python<'py>,
        service: &MinPlusCurve,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let bounds = py.detach(|| self.0.backlog_bounds(&service.0));
        Ok(bounds.map_err(refused)?.into_pyarray(py))
    }

    fn cumulative(&self, py: Python<'_>) -> PyResult<MinPlusCurve> {
        MinPlusCurve::of(py, || self.0.cumulative())
    }

    #[pyo3(signature = (windows_s=None))]
    fn envelope(&self, py: Python<'_>, windows_s: Option<Column<'_>>) -> PyResult<MinPlusCurve> {
        let windows_s = windows_s.as_ref().map(numbers);
        MinPlusCurve::of(py, || match windows_s {
            None => self.0.envelope(),
            Some(windows_s) => self.0.envelope_at(&windows_s),
        })
    }

    fn smallest_burst(&self, rate: f64) -> PyResult<f64> {
        self.0.smallest_burst(rate).map_err(refused)
    }
}
