//! Which version of the next segment to fetch. One file for each family, with its sources; all see the same.

mod abandon;
mod bola;
mod mpc;
mod robust_mpc;
mod throughput;

use std::str::FromStr;

use thiserror::Error;

pub(crate) use self::abandon::Watcher;
pub use self::abandon::{Abandon, AbandonError};
use self::bola::{Bola, Dynamic};
use self::mpc::Mpc;
use self::robust_mpc::RobustMpc;
use self::throughput::{Confident, Hls, LastSample, Throughput};
use crate::ladder::Ladder;
use crate::player::PlayerOptions;

/// How a player chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Always this version, from 0.
    Fixed(usize),
    /// The highest bitrate below the last segment's rate.
    LastSample,
    /// The highest bitrate below 0.9 times the lower of two means: dash.js's rule for throughput.
    Throughput,
    /// By the buffer: BOLA (Spiteri et al. 2016) with the constants of dash.js.
    Bola,
    /// Throughput with little in the buffer, BOLA with much: what dash.js does by default.
    Dynamic,
    /// What hls.js does by default.
    Hls,
    /// Plans five segments by a harmonic mean, less its worst error (Yin et al. 2015).
    RobustMpc,
    /// The highest bitrate whose segment arrives in its duration with this probability, by the forecast's distribution.
    Confident(f64),
    /// Plans twelve segments over the forecast's distribution. A second of stall costs so many times what it costs in
    /// [`Session::qoe`](crate::Session::qoe).
    Mpc(f64),
}

/// A rule is not known.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("got rule {0:?}; expected {names}, each with a number after a colon where it takes one", names = Rule::NAMES.join(", "))]
pub struct RuleError(String);

impl Rule {
    /// Names in files: of a rule with a number, what it is without one.
    pub const NAMES: [&'static str; 9] = [
        "fixed:0",
        "last-sample",
        "throughput",
        "bola",
        "dash.js",
        "hls.js",
        "robust-mpc",
        "confident:0.9",
        "mpc",
    ];

    /// Its name, which [`Rule::from_str`] reads.
    pub fn name(&self) -> String {
        match self {
            Self::Fixed(version) => format!("fixed:{version}"),
            Self::LastSample => "last-sample".into(),
            Self::Throughput => "throughput".into(),
            Self::Bola => "bola".into(),
            Self::Dynamic => "dash.js".into(),
            Self::Hls => "hls.js".into(),
            Self::RobustMpc => "robust-mpc".into(),
            Self::Confident(level) => format!("confident:{level}"),
            Self::Mpc(risk) => format!("mpc:{risk}"),
        }
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let wrong = || RuleError(text.into());
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number.parse::<f64>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let whole = |number: f64| number.fract() == 0.0 && (0.0..64.0).contains(&number);
        Ok(match (name, number) {
            ("last-sample", None) => Self::LastSample,
            ("throughput", None) => Self::Throughput,
            ("bola", None) => Self::Bola,
            ("dash.js", None) => Self::Dynamic,
            ("hls.js", None) => Self::Hls,
            ("robust-mpc", None) => Self::RobustMpc,
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            // a whole one below 64
            ("fixed", Some(version)) if whole(version) => Self::Fixed(version as usize),
            ("confident", Some(level)) if level > 0.0 && level < 1.0 => Self::Confident(level),
            ("mpc", None) => Self::Mpc(1.0),
            ("mpc", Some(risk)) if (0.0..=1e6).contains(&risk) => Self::Mpc(risk),
            _ => return Err(wrong()),
        })
    }
}

/// What a rule may look at.
pub(crate) struct Seen<'a> {
    pub(crate) ladder: &'a Ladder,
    pub(crate) options: &'a PlayerOptions,
    /// The one that is to be fetched, from 0.
    pub(crate) segment: usize,
    /// What there is to play, in seconds.
    pub(crate) buffer_s: f64,
    /// The version of the segment before.
    pub(crate) last: Option<usize>,
}

/// A download that runs.
pub(crate) struct Progress {
    /// The version, and its bits.
    pub(crate) version: usize,
    pub(crate) bits: f64,
    /// Those that have arrived.
    pub(crate) came: f64,
    /// Since it was asked for, in seconds.
    pub(crate) asked_s: f64,
    /// Since the first of it came, in seconds; none: nothing came.
    pub(crate) began_s: Option<f64>,
}

impl Progress {
    pub(crate) fn left(&self) -> f64 {
        (self.bits - self.came).max(0.0)
    }
}

/// A plan takes a download to last this at most, in seconds.
const LONGEST_S: f64 = 100.0;

/// What plans share.
impl Seen<'_> {
    /// The buffer that is full, in seconds.
    fn full_s(&self) -> f64 {
        self.options.buffer_s.max(self.ladder.segment_s())
    }

    /// What there is to play after a download that took so long, in seconds.
    #[inline]
    fn there_s(&self, buffer_s: f64, took_s: f64) -> f64 {
        let there_s = (buffer_s - took_s).max(0.0) + self.ladder.segment_s();
        there_s.min(self.full_s())
    }

    /// Segments from the next one on, at most so many.
    fn ahead(&self, most: usize) -> std::ops::Range<usize> {
        self.segment..self.segment + most.min(self.ladder.count() - self.segment)
    }

    /// Bitrates in Mbit/s.
    fn bitrates(&self) -> Vec<f64> {
        let bitrates_bps = self.ladder.bitrates_bps();
        bitrates_bps.iter().map(|one| one / 1e6).collect()
    }

    /// The version that is worth most.
    fn most(&self, worth: impl Fn(usize) -> f64) -> usize {
        let versions = 0..self.ladder.bitrates_bps().len();
        let worth = versions.map(|version| (version, worth(version)));
        worth
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map_or(0, |(version, _)| version)
    }
}

/// A rule at work.
#[derive(Clone, Debug)]
pub(crate) enum Chooser {
    Fixed(usize),
    LastSample(LastSample),
    Throughput(Throughput),
    Bola(Bola),
    Dynamic(Dynamic),
    Hls(Hls),
    RobustMpc(RobustMpc),
    Confident(Box<Confident>),
    Mpc(Box<Mpc>),
}

impl Chooser {
    pub(crate) fn new(rule: Rule, ladder: &Ladder, options: &PlayerOptions) -> Self {
        match rule {
            Rule::Fixed(version) => Self::Fixed(version.min(ladder.bitrates_bps().len() - 1)),
            Rule::LastSample => Self::LastSample(LastSample::default()),
            Rule::Throughput => Self::Throughput(Throughput::default()),
            Rule::Bola => Self::Bola(Bola::new(ladder, options)),
            Rule::Dynamic => Self::Dynamic(Dynamic::new(ladder, options)),
            Rule::Hls => Self::Hls(Hls::default()),
            Rule::RobustMpc => Self::RobustMpc(RobustMpc::default()),
            Rule::Confident(level) => Self::Confident(Box::new(Confident::new(level, ladder))),
            Rule::Mpc(risk) => Self::Mpc(Box::new(Mpc::new(risk, ladder))),
        }
    }

    /// The version of the next segment.
    pub(crate) fn choose(&mut self, seen: &Seen<'_>) -> usize {
        match self {
            Self::Fixed(version) => *version,
            Self::LastSample(rule) => rule.choose(seen),
            Self::Throughput(rule) => rule.choose(seen),
            Self::Bola(rule) => rule.choose(seen),
            Self::Dynamic(rule) => rule.choose(seen),
            Self::Hls(rule) => rule.choose(seen),
            Self::RobustMpc(rule) => rule.choose(seen),
            Self::Confident(rule) => rule.choose(seen),
            Self::Mpc(rule) => rule.choose(seen),
        }
    }

    /// The version that the plan would fetch instead of the download that runs; none if it has no plan.
    pub(crate) fn instead(&mut self, seen: &Seen<'_>, progress: &Progress) -> Option<usize> {
        match self {
            Self::Mpc(rule) => rule.instead(seen, progress),
            _ => None,
        }
    }

    /// So many bits of a segment came in so many seconds.
    pub(crate) fn learn(&mut self, seconds: f64, bits: f64) {
        match self {
            Self::Fixed(_) => {}
            Self::Confident(rule) => rule.learn(seconds, bits),
            Self::Mpc(rule) => rule.learn(seconds, bits),
            // a download of which nothing came is no rate to players
            _ if bits <= 0.0 => {}
            Self::LastSample(rule) => rule.learn(seconds, bits),
            Self::Throughput(rule) => rule.learn(seconds, bits),
            Self::Bola(rule) => rule.learn(seconds, bits),
            Self::Dynamic(rule) => rule.learn(seconds, bits),
            Self::Hls(rule) => rule.learn(seconds, bits),
            Self::RobustMpc(rule) => rule.learn(seconds, bits),
        }
    }
}

#[cfg(test)]
mod tests;
