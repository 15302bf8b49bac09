//! Why the manager does not start, or ends.

use thiserror::Error;

/// Why the manager does not start, or ends.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// An option or the configuration is invalid.
    #[error("{0}")]
    Config(String),
    /// The database cannot be read or written, or holds what this version does not know.
    #[error("state {place}: {message}")]
    State {
        /// The database, without its password.
        place: String,
        /// What is wrong.
        message: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(std::net::SocketAddr, String),
}

impl From<pathcast_web::WebError> for ManagerError {
    fn from(error: pathcast_web::WebError) -> Self {
        Self::Config(error.0)
    }
}
