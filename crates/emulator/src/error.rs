//! What keeps a run from being made.

use std::io;

use pathcast_kernel_schemes::SchemeError;
use pathcast_netns::NetnsError;
use pathcast_probe::ProbeError;
use pathcast_quic::QuicError;
use pathcast_trace::TraceError;
use thiserror::Error;

/// Why the emulator cannot run. A finished run that cannot be trusted is not an error: its report says
/// `valid: false`, and why.
#[derive(Debug, Error)]
pub enum EmulatorError {
    /// The run would end as it begins.
    #[error("the duration is 0 s, expected more than 0 s")]
    ZeroDuration,
    /// There are no flows.
    #[error("no flows: got an empty list of schemes, expected one name for each flow")]
    NoFlows,
    /// The emulator cannot do that; the simulator may.
    #[error("the emulator got {0}")]
    Unsupported(String),
    /// The log of packets cannot be written.
    #[error(transparent)]
    PacketLog(#[from] TraceError),
    /// The process may not do what the emulator needs.
    #[error(
        "not permitted: {doing}: {source}; the emulator needs CAP_NET_ADMIN and CAP_SYS_ADMIN: run \
         it as root or in a user namespace, or use the simulator, which needs no privileges"
    )]
    NotPermitted {
        /// What was refused.
        doing: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// The kernel has no TUN devices, or the machine gives none.
    #[error(
        "no TUN device: opening /dev/net/tun: {source}; load the kernel's tun module or, in a \
         container, pass --device /dev/net/tun; the simulator needs none"
    )]
    NoTun {
        /// What the kernel says.
        source: io::Error,
    },
    /// A congestion control that is not available.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// A congestion control that a namespace other than the first cannot have.
    #[error(
        "this kernel restricts the congestion control {scheme:?} to the first network namespace, and \
         took it for no route either ({source}); expected one of those in `sysctl \
         net.ipv4.tcp_allowed_congestion_control`, to which root adds it by `sysctl -w \
         net.ipv4.tcp_allowed_congestion_control=\"$(sysctl -n \
         net.ipv4.tcp_allowed_congestion_control) {scheme}\"`"
    )]
    RestrictedScheme {
        /// What was asked for.
        scheme: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// Neither privileges nor a place where they are not needed.
    #[error(
        "without root (CAP_NET_ADMIN, CAP_SYS_ADMIN) the emulator runs in a user namespace, but \
         this user may not make any ({source}): {why}; the simulator needs none"
    )]
    NoUserNamespace {
        /// What prevents it, as far as is known, and what to do.
        why: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// The command cannot be started.
    #[error("cannot start {program:?}: {source}; expected the name of a program")]
    Command {
        /// What was to be started.
        program: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// The server outside a shell ended before it listened.
    #[error(
        "{program:?}, which was to run outside, ended before it listened ({status}); expected a \
         server that stays in the foreground"
    )]
    OutsideEnded {
        /// What was started.
        program: String,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// No room for another shell.
    #[error("got {got} shells {what}, expected at most {most}")]
    TooManyShells {
        /// How many there are with this one.
        got: u32,
        /// In which way.
        what: &'static str,
        /// How many there can be.
        most: u32,
    },
    /// The flows could not connect over the path.
    #[error(
        "{connected} of {flows} flows connected within {waited_s:.0} s, expected all; the path \
         delays or drops too many packets for TCP's handshake"
    )]
    NoConnection {
        /// Flows that did.
        connected: usize,
        /// Flows in all.
        flows: usize,
        /// How long was waited.
        waited_s: f64,
    },
    /// The flows over QUIC could not connect over the path.
    #[error(
        "{connected} of {flows} QUIC handshakes were over within {waited_s:.0} s, expected all; the \
         path delays or drops too many packets for them"
    )]
    NoHandshake {
        /// Flows that did.
        connected: usize,
        /// Flows over QUIC in all.
        flows: usize,
        /// How long was waited.
        waited_s: f64,
    },
    /// QUIC does not work.
    #[error(transparent)]
    Quic(#[from] QuicError),
    /// The flows cannot be watched.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The kernel refused something else.
    #[error("{doing}: {source}")]
    Kernel {
        /// What was refused.
        doing: String,
        /// What the kernel says.
        source: io::Error,
    },
}

impl EmulatorError {
    /// The error for what went wrong while `doing` something.
    pub(crate) fn from_io(doing: impl Into<String>, source: impl Into<io::Error>) -> Self {
        let (doing, source) = (doing.into(), source.into());
        if source.kind() == io::ErrorKind::PermissionDenied {
            Self::NotPermitted { doing, source }
        } else {
            Self::Kernel { doing, source }
        }
    }
}

impl From<NetnsError> for EmulatorError {
    fn from(error: NetnsError) -> Self {
        match error {
            NetnsError::NotPermitted { doing, source } => Self::NotPermitted { doing, source },
            NetnsError::NoTun { source } => Self::NoTun { source },
            NetnsError::NoUserNamespace { why, source } => Self::NoUserNamespace { why, source },
            NetnsError::Kernel { doing, source } => Self::Kernel { doing, source },
        }
    }
}
