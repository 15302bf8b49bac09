//! What runs over which links: links, flows and their workloads, described once (a TOML file) and run by
//! any backend.
//!
//! [`Scenario`] is the description. [`Network`] carries packets over its links, and [`Application`] is the
//! application of a flow: what it writes and when, and when it is complete. Both are pure, so that the
//! simulator (virtual time), the emulator and `live` (real time) run the same.
//!
//! ```
//! use pathcast_scenario::Scenario;
//!
//! let text = "
//! [links.bottleneck]
//! rate = '12 Mbit/s'
//! delay = '30 ms'
//!
//! [[flows]]
//! scheme = 'cubic'
//!
//! [[flows]]
//! scheme = 'reno'
//! start = '5 s'
//! workload = { kind = 'transfer', size = '1 MB' }
//! ";
//! let scenario = Scenario::parse(text, "example.toml")?;
//! assert_eq!(scenario.flows().count(), 2);
//! # Ok::<(), pathcast_path::PathError>(())
//! ```

#![deny(clippy::disallowed_methods)] // the same run on every machine

mod application;
mod datagrams;
mod file;
mod http;
mod network;
mod pipe;
mod quic;
mod receive_window;
mod scenario;
mod source;
mod timers;
mod transport;
mod varying;
mod workload;

pub use application::{Application, Message, Side};
pub use datagrams::{DATAGRAM_BYTES, Datagrams};
pub use http::{Browser, Exchange, Http, PageLoad, StreamOrder, Times, Tls};
pub use pathcast_page::{Cause, Node, Page, Protocol, UnknownProtocol, har, read as read_pages};
pub use pathcast_path::Heading;
pub use pathcast_video::SessionReport;

pub use network::{Exit, Network, route};
pub use pipe::{Pending, Pipe};
pub use quic::QuicScheme;
pub use receive_window::ReceiveWindow;
pub use scenario::{Flow, FlowSpec, Link, Scenario};
pub use timers::Timers;
pub use transport::{DEFAULT_MSS_BYTES, Transport};
pub use varying::{Shape, Varying};
pub use workload::{
    Arrivals, Bulk, ConstantRate, OnOff, Replay, RequestResponse, Transfer, UNSENT_BYTES, WebPage,
    Workload, Write,
};
