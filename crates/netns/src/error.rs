//! What keeps a host from being made.

use std::io;

use thiserror::Error;

/// Why a namespace or device cannot be made or found.
#[derive(Debug, Error)]
pub enum NetnsError {
    /// The process may not do that.
    #[error("not permitted: {doing}: {source}; needs CAP_NET_ADMIN and CAP_SYS_ADMIN")]
    NotPermitted {
        /// What was refused.
        doing: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// The kernel has no TUN devices, or the machine gives none.
    #[error(
        "no TUN device: opening /dev/net/tun: {source}; load the kernel's tun module or, in a \
         container, pass --device /dev/net/tun"
    )]
    NoTun {
        /// What the kernel says.
        source: io::Error,
    },
    /// The user may not make user namespaces.
    #[error("this user may not make user namespaces ({source}): {why}")]
    NoUserNamespace {
        /// What prevents it, as far as is known, and what to do.
        why: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// The kernel refused something else.
    #[error("{doing}: {source}")]
    Kernel {
        /// What was refused.
        doing: String,
        /// What the kernel says.
        source: io::Error,
    },
}

impl NetnsError {
    /// The error for what went wrong while `doing` something.
    pub fn from_io(doing: impl Into<String>, source: impl Into<io::Error>) -> Self {
        let (doing, source) = (doing.into(), source.into());
        if source.kind() == io::ErrorKind::PermissionDenied {
            Self::NotPermitted { doing, source }
        } else {
            Self::Kernel { doing, source }
        }
    }
}
