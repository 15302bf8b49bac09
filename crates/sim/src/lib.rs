//! Packet-level simulation of a [`Scenario`](pathcast_scenario::Scenario): flows over links, in virtual
//! time.
//!
//! The same seed gives the same run, byte for byte, on every machine.

#![deny(clippy::disallowed_methods)] // the same run on every machine

mod batch;
mod capture;
mod carried;
mod ends;
mod network;
mod quic;
mod recorder;
mod sampler;
mod send_buffer;
mod simulation;
mod stream;
pub mod window_loop;
mod wire;
mod world;

pub use batch::{Ended, check_many, load_many, run_many};
pub use capture::CaptureLog;
pub use recorder::{Crossing, NoRecorder, QueueLog, Recorder};
pub use sampler::Sampler;
pub use simulation::{Outcome, SimError, Simulation};
pub use wire::{MSS_BYTES, MTU_BYTES};
