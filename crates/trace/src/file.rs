//! Reads a trace of any known format, recognized by content.

use std::path::Path;

use crate::error::TraceError;
use crate::import::{ReadOptions, read_with};
use crate::record::Trace;

/// Reads a trace in any known format, recognized by content. [`read_with`] also returns warnings
/// about the file.
///
/// # Errors
/// A [`TraceError`] if the file cannot be opened or read, or holds no valid trace.
pub fn read(path: &Path) -> Result<Trace, TraceError> {
    read_with(path, &ReadOptions::default()).map(|imported| imported.trace)
}
