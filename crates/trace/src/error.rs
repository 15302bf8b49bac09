//! A trace that cannot be read or written: the file, the place in it, and the reason.

use std::fmt;
use std::path::Path;

/// What went wrong with a trace file.
#[derive(Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The file, as the caller named it.
    pub file: String,
    /// The place in the file, if known.
    pub place: Option<Place>,
    /// What was got and what was expected.
    pub message: String,
}

/// A place in a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    /// In a text file or a table.
    Line {
        /// Line of a text file or row of a Parquet file, from 1.
        line: u64,
        /// The column's name; empty if the error concerns the whole line.
        column: String,
    },
    /// In a binary file: offset from the start of the unpacked data.
    Byte(u64),
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
        let place = Some(Place::Line {
            line,
            column: column.to_string(),
        });
        Self {
            place,
            ..Self::new(file, message)
        }
    }

    pub(crate) fn at_byte(file: &Path, offset: u64, message: impl Into<String>) -> Self {
        Self {
            place: Some(Place::Byte(offset)),
            ..Self::new(file, message)
        }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        match &self.place {
            Some(Place::Line { line, column }) => {
                write!(f, ":{line}")?;
                if !column.is_empty() {
                    write!(f, ": {column}")?;
                }
            }
            Some(Place::Byte(offset)) => write!(f, ": byte {offset}")?,
            None => {}
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for TraceError {}
