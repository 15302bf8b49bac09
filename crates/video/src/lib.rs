//! Adaptive video over HTTP (DASH, HLS): a player that fetches one segment after another, rules that choose the bitrate of
//! each, and how a session went. Numbers in, plain structs out: no I/O, no clock, no threads, no randomness.
//!
//! | part | what |
//! |---|---|
//! | [`Ladder`] | bitrates, and the sizes of segments |
//! | [`Player`] | buffer, playback, stalls; says when to ask for which segment |
//! | [`Rule`] | chooses the bitrate: throughput, BOLA, as dash.js and hls.js do, MPC and RobustMPC, and Pathcast's |
//! | [`Abandon`] | when a player gives up a download, and for which version |
//! | [`Session`] | what the viewer had: bitrate, stalls, switches, quality of experience |
//!
//! A backend carries the segments: [`Player::ask`], [`Player::on_progress`] and [`Player::on_arrival`] take the time as an
//! argument.

#![forbid(unsafe_code)]

mod ladder;
mod player;
pub mod rules;
mod session;

pub use ladder::{Ladder, LadderError};
pub use player::{Ask, LOOKS_EVERY_S, Player, PlayerOptions};
pub use rules::{Abandon, AbandonError, Rule, RuleError};
pub use session::{Segment, Session, SessionReport};
