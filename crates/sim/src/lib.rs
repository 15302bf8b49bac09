//! Packet-level simulation: TCP flows over a [`Path`](pathcast_path::Path) in virtual time.
//!
//! The same seed gives the same run, byte for byte, on every machine.

mod batch;
mod recorder;
mod simulation;
mod timers;
mod wire;

pub use batch::run_many;
pub use recorder::{NoRecorder, Recorder};
pub use simulation::{Outcome, SimError, Simulation};
pub use wire::{MSS_BYTES, MTU_BYTES};
