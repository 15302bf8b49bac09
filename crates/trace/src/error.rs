//! A trace that cannot be read or written: which file, where in it, and why.

use std::fmt;
use std::path::Path;

/// What went wrong with a trace file.
#[derive(Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The file, as the caller named it.
    pub file: String,
    /// Line of a text file or row of a Parquet file, from 1, and the column's name.
    pub place: Option<Place>,
    /// What was got and what was wanted.
    pub message: String,
}

/// Where in a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// Line of a text file or row of a Parquet file, from 1.
    pub line: u64,
    /// The column's name; empty if it is the whole line.
    pub column: String,
}

impl TraceError {
    pub(crate) fn new(file: &Path, message: impl Into<String>) -> Self {
        Self {
            file: file.display().to_string(),
            place: None,
            message: message.into(),
        }
    }

    pub(crate) fn at(file: &Path, line: u64, column: &str, message: impl Into<String>) -> Self {
        let place = Some(Place {
            line,
            column: column.to_string(),
        });
        Self {
            place,
            ..Self::new(file, message)
        }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(place) = &self.place {
            write!(f, ":{}", place.line)?;
            if !place.column.is_empty() {
                write!(f, ": {}", place.column)?;
            }
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for TraceError {}
