//! Server configuration by client prefix: what manager, agent and learner say to each other, and how the manager decides.
//! The crate takes bytes, reports and times, and returns plain values: no I/O, clock or threads.
//!
//! | to do | call |
//! |---|---|
//! | read or write what the manager sends to agents | [`Configuration::read`], [`Configuration::to_json`] |
//! | send or apply what changed alone | [`Tracked::delta`], [`Tracked::changed_by`] |
//! | read or write what an agent reports | [`Report::read`], [`Report::to_json`] |
//! | read or write what the learner makes | [`Model::read`], [`Model::to_json`] |
//! | place prefixes, try templates, roll back | [`Fleet::report`], [`Fleet::step`] |
//! | an operator's part | [`Fleet::approve`], [`Fleet::revert`], [`Fleet::pin`], [`Fleet::undo`] |
//! | refuse replayed reports | [`Agent::accept`] |
//! | sign and verify bodies | [`Secret::sign`], [`Secret::verify`] |
//!
//! Unknown keys are refused, and a format above [`FORMAT`] is refused whole.

pub mod agents;
pub mod cluster;
pub mod configuration;
pub mod delta;
pub mod error;
pub mod fleet;
pub mod guard;
pub mod history;
pub mod knobs;
pub mod model;
pub mod placement;
pub mod prefix;
pub mod report;
pub mod sequential;
pub mod settings;
pub mod signature;
pub mod table;
pub mod template;
pub mod trial;

pub use agents::{Agent, Refusal};
pub use configuration::Configuration;
pub use delta::{Delta, Tracked};
pub use error::{ControlError, FORMAT};
pub use fleet::{Entry, Fleet, Head, Mode, OperateError};
pub use history::{Cause, Change, Version};
pub use knobs::{HttpVersion, Knobs, Pacing, TlsVersion};
pub use model::{Conditions, Feature, Model, Node};
pub use prefix::Prefix;
pub use report::{Applied, Completions, PrefixReport, Report};
pub use settings::Settings;
pub use signature::{SIGNATURE_HEADER, Secret};
pub use template::{Name, Template};
pub use trial::{Stage, Trial};
