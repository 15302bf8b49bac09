//! Runs the kernel's own TCP, and QUIC, over an emulated path, in real time, on one machine.
//!
//! Two network namespaces without names hold the hosts; each has a TUN device, or a veth pair where there
//! are none; one real-time thread carries packets from one to the other over the same
//! [`pathcast_scenario::Network`] that the simulator uses. [`emulate`] runs the flows of a scenario and gives a report and a trace;
//! [`capabilities`] reports whether the machine can run it. Every run checks itself: a run that was late or
//! lost packets outside the path is marked invalid, with the reason.
//!
//! File descriptors of this process hold everything, so nothing is left behind when it ends, however it
//! ends.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use pathcast_emulator::{Options, emulate};
//! use pathcast_path::{Path, Span};
//!
//! let path = Path::parse("rate = '100 Mbit/s'\ndelay = '20 ms'\n", "example.toml")?;
//! let options = Options::new(path, vec!["cubic".into()], Span::from_secs(5.0), 1);
//! let (report, trace) = emulate(&options, &|_| (), &AtomicBool::new(false))?;
//! println!("{} bit/s, {} rows", report.flows[0].goodput_bps, trace.records.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod addresses;
mod applications;
mod capabilities;
mod connection;
mod datagram;
mod error;
mod joiner;
mod mm_log;
mod naming;
mod options;
mod outcome;
mod outside;
mod packet;
mod packet_log;
mod pump;
mod quic;
mod receive_buffers;
mod run;
mod seals;
mod send_buffers;
mod session;
mod shell;
// what happens to a child between fork and exec has no safe wrapper in the libraries we use
#[allow(unsafe_code)]
#[warn(clippy::undocumented_unsafe_blocks)]
mod sys;
mod verdict;
mod waiting;

pub use addresses::Ip;
pub use capabilities::{Capabilities, capabilities, may_make_namespaces};
pub use error::EmulatorError;
pub use options::Options;
pub use pathcast_kernel_schemes::Schemes;
pub use pathcast_netns::{DeviceKind, enter_user_namespace, in_user_namespace};
pub use run::{emulate, emulate_watched};
pub use shell::{Crossed, ShellOptions, ShellReport, shell};
pub use verdict::slip_bound;
