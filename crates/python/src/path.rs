//! Path files.

use pathcast_path::Path;
use pyo3::prelude::*;

use crate::errors::PathFileError;

/// Parses a path file's text; `file` names it in errors.
pub fn parse(text: &str, file: &str) -> PyResult<Path> {
    Path::parse(text, file).map_err(|error| PathFileError::new_err(error.to_string()))
}

/// Reads a path file's text and returns it with every default written out.
#[pyfunction]
pub fn check_path(text: &str, file: &str) -> PyResult<String> {
    Ok(parse(text, file)?.to_toml())
}

/// Name, rate (bit/s or None), base RTT (s), forward loss and queue (bytes or None, packets or None).
type Summary = (String, Option<f64>, f64, f64, Option<u64>, Option<u64>);

/// What plots and models want to know of a path.
#[pyfunction]
pub fn path_summary(text: &str, file: &str) -> PyResult<Summary> {
    let path = parse(text, file)?;
    let (bytes, packets) = path.queue_limits(&path.forward);
    let limited = |limit: u64| (limit != u64::MAX).then_some(limit);
    Ok((
        path.name.clone(),
        path.forward.mean_rate().map(|rate| rate.as_bps()),
        path.base_rtt().as_secs(),
        path.forward.mean_loss(),
        limited(bytes),
        limited(packets),
    ))
}
