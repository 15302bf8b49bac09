//! What keeps flows from being watched.

use std::io;

use pathcast_trace::TraceError;
use thiserror::Error;

/// What keeps flows from being watched.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// No connected TCP socket.
    #[error("cannot watch flow {flow}: {source}; expected a connected TCP socket")]
    Socket {
        /// Its place in the list.
        flow: usize,
        /// What the kernel says.
        source: io::Error,
    },
    /// What is to be watched is not there, or makes no sense.
    #[error("{0}")]
    Selection(String),
    /// No process that can be watched.
    #[error(
        "cannot watch process {pid}: {source}; expected a process that is there, and of this user or root's"
    )]
    Process {
        /// Its number.
        pid: u32,
        /// What the kernel says.
        source: io::Error,
    },
    /// The kernel does not list its sockets.
    #[error("cannot ask the kernel for its TCP sockets (sock_diag): {source}")]
    Diag {
        /// What it says.
        source: io::Error,
    },
    /// The requested method is not available.
    #[error("{0}")]
    Unavailable(String),
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The thread that reads could not be started.
    #[error("cannot start the thread that reads the probe: {0}")]
    Thread(io::Error),
}
