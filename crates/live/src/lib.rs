//! Flows between two hosts over a real path, measured packet by packet at both ends.
//!
//! [`serve`] waits for clients; [`run`] asks a server to run the flows of a scenario with it. All goes
//! through one UDP port of the server, so that a client behind a NAT may both send and receive. Each
//! host has a network namespace with a TUN device; what the flows of the kernel's TCP send there is
//! numbered, sealed with a key that both hosts share, carried as datagrams, and noted at both ends by
//! its number. The hosts compare their clocks meanwhile, so that one-way delays are known, and by how
//! much they can be wrong. (After the tunnel of Pantheon, seed 004, section 3.1.2.)
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use pathcast_live::{Key, RunOptions, run, scenario_of};
//! use pathcast_scenario::Heading;
//!
//! let options = RunOptions {
//!     server: ("192.0.2.1".into(), 5600),
//!     key: Key::read("key".as_ref())?,
//!     scenario: scenario_of(&["cubic".into()], Heading::Reverse, None)?,
//!     duration_s: 10.0,
//!     seed: 1,
//!     packets_file: None,
//!     messages_file: None,
//!     programs: None,
//! };
//! let (report, trace) = run(&options, &|_| (), &AtomicBool::new(false))?;
//! println!("{} bit/s, {} rows", report.run.flows[0].goodput_bps, trace.records.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arrivals;
#[cfg(test)]
mod attacks;
mod client;
mod clock;
mod conclude;
mod control;
mod cookie;
mod endpoints;
mod error;
mod handshake;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod hostile;
mod key;
mod log;
mod message;
mod messages;
mod party;
mod plan;
mod programs;
mod replay;
mod server;
mod socket;
mod tunnel;
mod varint;

pub use client::{RunOptions, run};
pub use clock::Clock;
pub use conclude::LiveReport;
pub use error::LiveError;
pub use key::Key;
pub use plan::scenario_of;
pub use programs::Programs;
pub use server::{ServerEvent, ServerOptions, serve};
