//! Watches the kernel's TCP senders, acknowledgment by acknowledgment.
//!
//! [`Probe`] watches sockets of this process and gives [`pathcast_trace::Record`]s. It takes them
//! from the kernel's `tcp:tcp_probe` tracepoint, read by `perf_event_open` (one record for each
//! acknowledgment, 0.4 us an event; needs root), or, where that cannot be had, by asking for
//! `TCP_INFO` every millisecond (needs nothing). Retransmissions come from `TCP_INFO` either way:
//! the tracepoint does not tell them.
//!
//! ```no_run
//! use std::net::TcpStream;
//! use std::os::fd::AsFd;
//! use pathcast_probe::{Options, Probe, realtime};
//!
//! let stream = TcpStream::connect("192.0.2.1:5001")?;
//! let probe = Probe::attach(&[stream.as_fd()], &Options::default())?;
//! let start_ns = realtime::monotonic_ns();
//! // ... send ...
//! let seen = probe.finish(start_ns);
//! println!("{} records by {}", seen.records.len(), seen.method);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod flow;
mod median;
mod netlink;
mod opt_stats;
mod owner;
mod perf;
mod probe;
pub mod realtime;
mod sample;
mod selection;
mod sequence;
mod sock_diag;
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
mod watcher;

pub use probe::{FlowTotals, Method, Observation, Options, Probe, ProbeError, Stopped};
pub use selection::{Prefix, Selection};
pub use tcp_info::TcpInfo;
pub use tcp_probe::{Unavailable, tcp_probe_available};
pub use watch::{Keep, Watch, WatchOptions, WatchProgress};
