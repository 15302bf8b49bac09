//! What keeps the agent from its work.

use std::io;
use std::path::PathBuf;

use pathcast_control::ControlError;
use thiserror::Error;

/// Why the agent cannot start, or does not apply a configuration. What it refuses, it refuses whole.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AgentError {
    /// Options or settings are wrong.
    #[error("{0}")]
    Settings(String),
    /// A file cannot be read or written.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// What the manager sent is not a configuration, or not from it.
    #[error("configuration: {0}")]
    Configuration(#[from] ControlError),
    /// The configuration asks for what cannot be applied here.
    #[error("{0}")]
    Impossible(String),
    /// The system refused a part.
    #[error("{0}")]
    Refused(String),
    /// The manager cannot be reached, or refuses.
    #[error("manager: {0}")]
    Manager(String),
}

impl AgentError {
    #[allow(clippy::needless_pass_by_value)] // as `map_err` calls it
    pub(crate) fn refused(error: impl ToString) -> Self {
        Self::Refused(error.to_string())
    }
}
