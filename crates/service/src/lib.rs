//! Decisions for live traffic over HTTP.
//!
//! | to do | call |
//! |---|---|
//! | read the options | [`Config::read`], [`Config::from_options`] |
//! | serve | [`serve()`], until a [`Stop`] |
//!
//! The program `pathcast-serve` and the command `pathcast serve` do this. `docs/reference/serve.md` documents the options
//! and the interface.

mod answers;
mod app;
mod clock;
mod cmsd;
mod config;
mod decision_log;
mod error;
mod ingest;
mod knowledge;
mod metrics;
mod pages;
mod ports;
mod serve;
mod store;
mod watch;
// a refusal is a response: it is made once and sent
#[allow(clippy::result_large_err)]
mod web;
mod workers;

pub use config::{Config, DecisionLog};
pub use error::ServiceError;
pub use pathcast_web::{Access, Limits, Stop};
pub use ports::Ports;
pub use serve::serve;
