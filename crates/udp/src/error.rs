//! What can go wrong.

use std::io;
use std::net::SocketAddr;

use pathcast_congestion::SchemeError;
use thiserror::Error;

/// Why an end cannot run, or ended early.
#[derive(Debug, Error)]
pub enum UdpError {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// No scheme has this name.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// The operating system refused.
    #[error("{what}: {error}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system says.
        error: io::Error,
    },
    /// The receiver never answered.
    #[error(
        "got no answer from {0} within 10 s; expected `pathcast-udp receive` there: start it first, and check the address"
    )]
    NoAnswer(SocketAddr),
    /// The receiver stopped answering.
    #[error(
        "{0} has acknowledged nothing for 30 s; expected a receiver that runs until the sender has ended"
    )]
    Silent(SocketAddr),
}

impl UdpError {
    /// Of an error of the system.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, error }
    }

    /// The exit code of the program: 2 for errors of its caller, 1 otherwise.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Scheme(_) => 2,
            Self::Io { .. } | Self::NoAnswer(_) | Self::Silent(_) => 1,
        }
    }
}
