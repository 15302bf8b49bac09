//! Files that Python writes, by the same means as Rust's.

use std::io::Write;
use std::path::PathBuf;

use pyo3::prelude::*;

use crate::trace::trace_error;

/// Writes a file whole or not at all; for a user, who ran sudo, with no more rights than theirs.
#[pyfunction]
#[pyo3(signature = (file, content, user=None))]
pub fn write_file(
    py: Python<'_>,
    file: PathBuf,
    content: &[u8],
    user: Option<(u32, u32)>,
) -> PyResult<()> {
    let write = || {
        pathcast_trace::write_beside_for(user, &file, |file| {
            file.write_all(content).map_err(|error| error.to_string())
        })
    };
    py.detach(write).map_err(|error| trace_error(&error))
}

/// Refuses a file that could not be written so.
#[pyfunction]
#[pyo3(signature = (file, user=None))]
pub fn check_output(file: PathBuf, user: Option<(u32, u32)>) -> PyResult<()> {
    pathcast_trace::check_writable(&file, user).map_err(|error| trace_error(&error))
}
