//! Reads a trace of any format: which it is, its content tells.

use std::path::Path;

use crate::error::TraceError;
use crate::import::{ReadOptions, read_with};
use crate::record::Trace;

/// Reads a trace in any format that is known, told by content; what there is to say of how it was
/// read, [`read_with`] tells.
///
/// # Errors
/// A [`TraceError`] if the file cannot be opened or read, or holds no valid trace.
pub fn read(path: &Path) -> Result<Trace, TraceError> {
    read_with(path, &ReadOptions::default()).map(|imported| imported.trace)
}
