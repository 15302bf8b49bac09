//! Short flows: from one small transfer to larger ones.

use numpy::PyReadonlyArray1;
use pathcast_transfer::short_flow::{
    Estimate, Measured, Published, Windows, estimate, published_estimate, windows,
};
use pyo3::prelude::*;
use serde::Serialize;

use crate::errors::ModelError;

/// A transfer's timeline: seconds since its first byte, bytes in order.
#[derive(FromPyObject)]
pub struct Timeline<'py>(PyReadonlyArray1<'py, f64>, PyReadonlyArray1<'py, f64>);

#[derive(Serialize)]
struct Both {
    #[serde(flatten)]
    estimate: Estimate,
    published: Published,
    windows: Option<Windows>,
}

/// Estimates the times of larger transfers, by Pathcast's model and by the published one; JSON.
#[pyfunction]
#[pyo3(signature = (
    bytes, time_s, before_s, rtts_s, sizes_bytes, timeline, mss_bytes, initial_window_packets,
    receive_window_bytes=None, losses=None, windows_of_bytes=None
))]
#[allow(clippy::too_many_arguments)] // one for each field of Measured
pub fn estimate_short_flow(
    py: Python<'_>,
    bytes: f64,
    time_s: f64,
    before_s: f64,
    rtts_s: Vec<f64>,
    sizes_bytes: Vec<f64>,
    timeline: Option<Timeline<'_>>,
    mss_bytes: f64,
    initial_window_packets: f64,
    receive_window_bytes: Option<f64>,
    losses: Option<u32>,
    windows_of_bytes: Option<f64>,
) -> PyResult<String> {
    let timeline = timeline.map_or_else(Vec::new, |Timeline(time_s, bytes)| {
        let pairs = time_s.as_array().into_iter().copied();
        pairs.zip(bytes.as_array().iter().copied()).collect()
    });
    let measured = Measured {
        bytes,
        time_s,
        before_s,
        rtts_s,
        timeline,
        mss_bytes,
        initial_window_packets,
        receive_window_bytes,
        losses,
    };
    py.detach(|| {
        let both = Both {
            estimate: estimate(&measured, &sizes_bytes)?,
            published: published_estimate(&measured, &sizes_bytes)?,
            windows: (windows_of_bytes.map(|size| windows(&measured, size))).transpose()?,
        };
        Ok(serde_json::to_string(&both).expect("plain data"))
    })
    .map_err(|error: pathcast_transfer::short_flow::ShortFlowError| {
        ModelError::new_err(error.to_string())
    })
}
