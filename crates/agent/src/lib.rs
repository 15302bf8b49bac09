//! Applies configurations of servers by client prefix, and reports what is in force.
//!
//! A manager sends a configuration: templates, and the template of each prefix. The agent applies all of it or
//! nothing, reads back what is in force, and reports that with the conditions and completion times of clients.
//!
//! | what | how |
//! |---|---|
//! | initial window, congestion control | routes in a table of the agent's own, or a BPF program (feature `bpf`) |
//! | restart after idle, autocorking, buffers, unsent bytes | sysctls of a network namespace |
//! | versions of HTTP and TLS | the pool, by HAProxy's map or by forwarding in nftables |
//!
//! [`space`](crate::space()) lists what can be configured on this machine, and by which experiment that is known.

mod agent;
mod apply;
mod command;
mod error;
mod hands;
mod ip;
mod log;
mod manager;
mod observe;
mod plan;
mod record;
mod settings;
mod sock_ops;
mod space;
mod tls;

pub use command::{HELP, command};
pub use error::AgentError;
pub use settings::{Completion, Connections, Forward, Haproxy, Pool, Settings};
pub use space::{Knob, Place, space};
