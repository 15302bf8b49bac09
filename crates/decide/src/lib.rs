//! Decisions for live traffic: what samples of flows say of client prefixes, and what follows for the next request.
//! The crate takes numbers and returns plain structs: no I/O, clock or threads.
//!
//! | to do | call | gives |
//! |---|---|---|
//! | take a sample | [`sample::Report::sample`], [`table::Table::update`], [`group::Groups::update`] | outcomes of earlier decisions |
//! | what is known of a client | [`path_state::PathState::own`], [`path_state::PathState::of_group`] | [`path_state::PathState`] |
//! | the rate over the next seconds | [`rate::Rates::forecast`] | [`distribution::RateDistribution`] |
//! | the rate over a long session | [`decision::session::rate`] | [`distribution::RateDistribution`] |
//! | a bitrate | [`decision::bitrate::choose`] | [`decision::bitrate::Bitrate`] |
//! | the time of a transfer | [`decision::transfer::times`] | [`path_state::Quantiles`] |
//! | the version of HTTP | [`decision::http::choose`] | [`decision::http::Choice`] |
//! | how decisions fared | [`score::Waiting`], [`score::Score`] | coverage and error |
//!
//! Clients are kept by prefix: a /24 of IPv4 or a /48 of IPv6. A client of whom nothing is known gets the answer of a
//! [`group::Group`].

pub mod curve;
pub mod decision;
pub mod distribution;
pub mod entry;
pub mod group;
mod halves;
pub mod networks;
pub mod path_state;
pub mod rate;
pub mod sample;
pub mod score;
pub mod table;

pub use distribution::RateDistribution;
pub use entry::Entry;
pub use group::{Group, Groups};
pub use networks::{Networks, Place};
pub use path_state::{Asked, Basis, PathState, Quantiles};
pub use sample::{Client, Report, Sample, SampleError};
pub use score::{Kind, Outcome, Waiting};
pub use table::Table;
