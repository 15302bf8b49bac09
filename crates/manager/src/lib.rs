//! The manager of server configuration: takes reports of agents, decides which template each client prefix gets, and
//! keeps all of it in a database.
//!
//! | to do | call |
//! |---|---|
//! | read the options | [`Config::from_options`] |
//! | serve | [`serve()`], until a [`Stop`] |
//!
//! The program `pathcast-manager` and the command `pathcast manager` do this. `docs/reference/manager.md` documents the
//! options and the interface.

mod config;
mod desk;
mod error;
mod keeper;
mod metrics;
mod publisher;
mod serve;
mod store;
// a refusal is a response: it is made once and sent
#[allow(clippy::result_large_err)]
mod web;

pub use config::Config;
pub use error::ManagerError;
pub use pathcast_web::Stop;
pub use serve::serve;
