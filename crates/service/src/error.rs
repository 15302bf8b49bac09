//! Why the service does not start, or ends.

use std::path::PathBuf;

use thiserror::Error;

/// Why the service does not start, or ends.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The configuration is invalid.
    #[error("{0}")]
    Config(String),
    /// Another service has the state folder.
    #[error(
        "{0} is in use by another pathcast serve; expected a folder of its own, or stop that one"
    )]
    InUse(PathBuf),
    /// The state folder cannot be read or written.
    #[error("{0}: {1}")]
    State(PathBuf, String),
    /// The sockets of this host cannot be watched.
    #[error(
        "--watch: {0}; the kernel refuses where sockets of the family AF_NETLINK are forbidden, for example by \
         RestrictAddressFamilies of a systemd unit: allow that, or send samples by POST /v1/samples"
    )]
    Watch(String),
    /// The address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(std::net::SocketAddr, String),
}

impl From<pathcast_web::WebError> for ServiceError {
    fn from(error: pathcast_web::WebError) -> Self {
        Self::Config(error.0)
    }
}
