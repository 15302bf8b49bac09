//! Pathcast's own congestion controllers over UDP, so that they run over emulated and real paths.
//!
//! [`wire`] is the format of datagrams. [`SendingEnd`] and [`ReceivingEnd`] are the two ends, without I/O: datagrams
//! and the time go in, datagrams come out. They stand on [`pathcast_tcp`], so that a scheme recovers from loss here as
//! it does in the simulator. [`io`] runs an end in real time, and the program `pathcast-udp` is a command line
//! around it: `docs/reference/udp.md`.

mod command;
mod error;
pub mod io;
mod receiving;
mod sending;
#[allow(unsafe_code)] // the kernel's interface for signals
mod sys;
pub mod wire;

pub use command::{Command, USAGE, command};
pub use error::UdpError;
pub use receiving::{ReceivingEnd, WINDOW_PACKETS};
pub use sending::{Over, SendingEnd, SendingOptions};
