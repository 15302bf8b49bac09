//! What a viewer had.

use serde::Serialize;

use crate::ladder::Ladder;

/// A segment that was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Segment {
    /// From 0, by ascending bitrate.
    pub version: usize,
    /// Its bitrate.
    pub bitrate_bps: f64,
    /// Its size.
    pub bytes: u64,
    /// Downloads of it that were given up.
    pub abandoned: usize,
    /// What had come of them.
    pub wasted_bytes: u64,
    /// When it was first asked for, in seconds.
    pub asked_s: f64,
    /// From then on until all of it was there.
    pub took_s: f64,
    /// What there was to play when it was first asked for, in seconds.
    pub buffer_s: f64,
    /// How long playback stood still until it was there, in seconds.
    pub stalled_s: f64,
}

/// A session, as reports have it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SessionReport {
    /// What chose the versions.
    pub rule: String,
    /// From the first request to the first picture, in seconds; none if there was none.
    pub startup_s: Option<f64>,
    /// How long playback stood still after that, in seconds.
    pub stalled_s: f64,
    /// How often it stood still.
    pub stalls: usize,
    /// Mean bitrate of what was fetched.
    pub mean_bitrate_bps: f64,
    /// How often the bitrate changed.
    pub switches: usize,
    /// Downloads that were given up.
    pub abandoned: usize,
    /// What had come of them.
    pub wasted_bytes: u64,
    /// See [`Session::qoe`].
    pub qoe: f64,
    /// In their order.
    pub segments: Vec<Segment>,
}

/// A session, so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// From the first request to the first picture, in seconds.
    pub startup_s: Option<f64>,
    /// In their order.
    pub segments: Vec<Segment>,
    highest_bps: f64,
}

impl Session {
    pub(crate) fn new(ladder: &Ladder) -> Self {
        Self {
            startup_s: None,
            segments: Vec::new(),
            highest_bps: *ladder.bitrates_bps().last().expect("there is a version"),
        }
    }

    pub(crate) fn push(&mut self, segment: Segment) {
        self.segments.push(segment);
    }

    /// Seconds in which playback stood still after it had begun.
    pub fn stalled_s(&self) -> f64 {
        self.segments.iter().map(|one| one.stalled_s).sum()
    }

    /// How often it stood still.
    pub fn stalls(&self) -> usize {
        let stalled = |one: &&Segment| one.stalled_s > 0.0;
        self.segments.iter().filter(stalled).count()
    }

    /// The mean bitrate of what was fetched; 0 before the first segment.
    pub fn mean_bitrate_bps(&self) -> f64 {
        let sum: f64 = self.segments.iter().map(|one| one.bitrate_bps).sum();
        sum / (self.segments.len() as f64).max(1.0)
    }

    /// How often the bitrate changed.
    pub fn switches(&self) -> usize {
        let changes = |two: &&[Segment]| two[0].version != two[1].version;
        self.segments.windows(2).filter(changes).count()
    }

    /// Downloads that were given up.
    pub fn abandoned(&self) -> usize {
        self.segments.iter().map(|one| one.abandoned).sum()
    }

    /// What had come of them, in bytes.
    pub fn wasted_bytes(&self) -> u64 {
        self.segments.iter().map(|one| one.wasted_bytes).sum()
    }

    /// Quality of experience by segment: bitrate in Mbit/s, less each change of it, less the highest bitrate for each second
    /// that playback stood still (QoE_lin of Yin et al. 2015, as Pensieve has it).
    pub fn qoe(&self) -> f64 {
        let mut sum = 0.0;
        let mut before = None;
        for one in &self.segments {
            let bitrate = one.bitrate_bps / 1e6;
            let change = (bitrate - before.unwrap_or(bitrate)).abs();
            sum += bitrate - change - self.highest_bps / 1e6 * one.stalled_s;
            before = Some(bitrate);
        }
        sum / (self.segments.len() as f64).max(1.0)
    }

    /// All of it, as reports have it.
    pub fn report(&self, rule: String) -> SessionReport {
        SessionReport {
            rule,
            startup_s: self.startup_s,
            stalled_s: self.stalled_s(),
            stalls: self.stalls(),
            mean_bitrate_bps: self.mean_bitrate_bps(),
            switches: self.switches(),
            abandoned: self.abandoned(),
            wasted_bytes: self.wasted_bytes(),
            qoe: self.qoe(),
            segments: self.segments.clone(),
        }
    }
}
