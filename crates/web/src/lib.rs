//! What Pathcast's HTTP services share.
//!
//! | to do | call |
//! |---|---|
//! | limits and files of a configuration | [`Limits`], [`Access`] |
//! | listen, raise the limit of descriptors, wait for signals | [`bind`], [`raise_descriptors`], [`wait_for_stop`] |
//! | serve connections, by TLS or not | [`listen()`] |
//! | tokens, names of this machine, rates of requests | [`access`] |
//! | refuse requests by site, token and rate | [`Gate`] |
//! | bodies and responses | [`whole`], [`json`], [`page`], [`problem`] |
//! | metrics and log | [`Family`], [`log()`] |

pub mod access;
// a refusal is a response: it is made once and sent
#[allow(clippy::result_large_err)]
mod body;
mod config;
mod error;
#[allow(clippy::result_large_err)] // as above
mod gate;
mod life;
mod listen;
mod log;
mod metrics;
mod tls;

pub use body::{json, page, problem, whole};
pub use config::{Access, Limits};
pub use error::WebError;
pub use gate::{Gate, Reason, text, unauthorized};
pub use life::{Stop, bind, raise_descriptors, wait_for_stop};
pub use listen::{Connections, Peer, listen};
pub use log::log;
pub use metrics::{Family, memory_bytes};
