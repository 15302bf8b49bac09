//! Watches the kernel's TCP senders, acknowledgment by acknowledgment.
//!
//! [`Probe`] watches sockets of this process and gives [`pathcast_trace::Record`]s. [`Watch`] watches
//! the flows of any process, found by port, process, cgroup or address, those that are there and those
//! that come. [`Sockets`] lists the sockets of a namespace, for who looks now and then. The first two use one of four [`Method`]s:
//!
//! | method | whose sockets | needs | a record for |
//! |---|---|---|---|
//! | `TcpProbe` | anybody's | root | each acknowledgment |
//! | `SockDiag` | anybody's in the network namespace | nothing | each 2 ms in which something changed |
//! | `TcpInfo` | own | nothing | each 1 ms in which something changed |
//! | `OptStats` | own | nothing | each write, when it is acknowledged |
//!
//! Retransmissions come from `TCP_INFO` with all of them except the last: the tracepoint does not report
//! them. `docs/results/measuring.md` says what each costs.
//!
//! ```no_run
//! use std::net::TcpStream;
//! use std::os::fd::AsFd;
//! use pathcast_base::clock::monotonic_ns;
//! use pathcast_probe::{Options, Probe};
//!
//! let stream = TcpStream::connect("192.0.2.1:5001")?;
//! let probe = Probe::attach(&[stream.as_fd()], &Options::default())?;
//! let start_ns = monotonic_ns();
//! // ... send ...
//! let seen = probe.finish(start_ns);
//! println!("{} records by {}", seen.records.len(), seen.method);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod flow;
mod joining;
mod median;
mod method;
mod netlink;
mod opt_stats;
mod own;
mod owner;
mod perf;
mod probe;
pub mod realtime;
mod sample;
mod selection;
mod sequence;
mod sock_diag;
mod sockets;
mod source;
// perf_event_open, its ring in shared memory, TCP_INFO and sched_setscheduler have no safe wrapper
// in the libraries we use; all of them are called from here and nowhere else
#[allow(unsafe_code)]
#[warn(clippy::undocumented_unsafe_blocks)]
mod sys;
mod tcp_info;
mod tcp_probe;
mod tracefs;
mod tracepoint;
mod watch;
mod watched;
mod watcher;

/// Another descriptor of the open file `fd`, for callers in another language.
///
/// # Errors
/// `fd` is not open.
pub fn duplicate(fd: i32) -> std::io::Result<std::os::fd::OwnedFd> {
    sys::duplicate(fd)
}

pub use error::ProbeError;
pub use joining::Joining;
pub use method::Method;
pub use probe::{Observation, Options, Probe, Stopped};
pub use selection::{Prefix, Selection};
pub use sockets::{SocketState, Sockets};
pub use tcp_info::TcpInfo;
pub use tcp_probe::{Unavailable, tcp_probe_available};
pub use watch::{Fed, Keep, Watch, WatchOptions, WatchProgress};
pub use watched::FlowTotals;
