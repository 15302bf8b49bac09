//! What keeps a scheme from being used.

use std::io;

use thiserror::Error;

/// Why a scheme cannot be used.
#[derive(Debug, Error)]
pub enum SchemeError {
    /// No scheme has such a name.
    #[error(
        "got the congestion control {got:?}, expected a name of 1 to 15 characters out of a-z, 0-9, \
         _ and -"
    )]
    BadName {
        /// What was asked for.
        got: String,
    },
    /// Neither the kernel nor its modules nor Pathcast has it.
    #[error(
        "this kernel has no congestion control {scheme:?}; it has: {}; {advice}",
        available.join(", ")
    )]
    Unknown {
        /// What was asked for.
        scheme: String,
        /// What there is.
        available: Vec<String>,
        /// What could be done about it.
        advice: String,
    },
    /// The kernel did not take the BPF scheme.
    #[error(
        "this kernel has no congestion control {scheme:?}, and did not take Pathcast's by BPF: \
         {reason}; that needs Linux 6.4 or newer with BTF (CONFIG_DEBUG_INFO_BTF) and its JIT, and root \
         (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON)"
    )]
    Bpf {
        /// What was asked for.
        scheme: String,
        /// What the loader and the kernel say.
        reason: String,
    },
    /// The kernel cannot be asked.
    #[error("asking the kernel for the congestion control {scheme:?}: {source}")]
    Kernel {
        /// What was asked for.
        scheme: String,
        /// What the kernel says.
        source: io::Error,
    },
}
