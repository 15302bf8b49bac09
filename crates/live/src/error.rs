//! What keeps flows from running between two hosts.

use std::io;

use pathcast_kernel_schemes::SchemeError;
use pathcast_netns::NetnsError;
use pathcast_probe::ProbeError;
use pathcast_trace::TraceError;
use thiserror::Error;

/// Why a server or a run failed.
#[derive(Debug, Error)]
pub enum LiveError {
    /// The file holds no key that may be used.
    #[error("{file}: {why}")]
    Key {
        /// The file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// No host with the same key answers.
    #[error(
        "no answer from {server} within {waited_s:.0} s, expected one from `pathcast live server` \
         with the same key; a server does not answer those who have another, or who \
         speak version 1 of its protocol: both hosts need the same version of pathcast"
    )]
    NoAnswer {
        /// Where it was asked.
        server: String,
        /// How long was waited.
        waited_s: f64,
    },
    /// The other host refuses.
    #[error("the other host refused: {0}")]
    Refused(String),
    /// The other host said what makes no sense, or nothing any more.
    #[error("the other host {0}")]
    Peer(String),
    /// What cannot be run between two hosts, or not like this.
    #[error("{0}")]
    Unsupported(String),
    /// The program that this host ran in place of flows failed.
    #[error("the program that runs schemes on this host failed{}", code.map_or(String::new(), |code| format!(" with code {code}")))]
    Program {
        /// Its exit code; none: a signal ended it.
        code: Option<i32>,
    },
    /// A congestion control that this host has not.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// No host for the flows on this side.
    #[error(transparent)]
    Host(#[from] NetnsError),
    /// The flows cannot be watched.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// Records that cannot be written or read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The kernel refused something else.
    #[error("{doing}: {source}")]
    Kernel {
        /// What was refused.
        doing: String,
        /// What the kernel says.
        source: io::Error,
    },
}

impl LiveError {
    /// The error for what went wrong while `doing` something.
    pub(crate) fn from_io(doing: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Kernel {
            doing: doing.into(),
            source: source.into(),
        }
    }
}
