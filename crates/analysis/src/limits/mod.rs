//! What limits a flow, and for which share of the time.
//!
//! A sender can always send more, or something stops it. [`Limit`] names what. A [`LimitTracker`] takes the records of
//! one flow, divides time into intervals of a round trip or more, and gives each interval a probability for each
//! limit. Means over time are the [`Limits::shares`]. `docs/explanation/limits.md` explains
//! the evidence.

mod cause;
mod interval;
mod policer;
mod tracker;

#[cfg(test)]
mod tests;

use serde::{Serialize, Serializer};

pub use tracker::{LimitOptions, LimitTracker, Limits};

/// What limits a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The window still grows towards what the path carries: slow start, or growth after it before any loss.
    SlowStart,
    /// The window is held down by losses that no queue explains, and the path is not full.
    Loss,
    /// The window is held down by drops of a full queue, and the path is not full: the queue is too short to bridge
    /// the time until the window has grown again.
    Queue,
    /// The path is full: the flow gets the rate that the bottleneck gives it.
    PathRate,
    /// The window is held down by a policer, which drops what exceeds its rate and queues nothing.
    Policer,
    /// The receiver's window.
    ReceiveWindow,
    /// The application sends less than the transport would take.
    Application,
    /// Nothing is in flight.
    Idle,
}

/// All limits, in the order of all tables.
pub const LIMITS: [Limit; 8] = [
    Limit::SlowStart,
    Limit::Loss,
    Limit::Queue,
    Limit::PathRate,
    Limit::Policer,
    Limit::ReceiveWindow,
    Limit::Application,
    Limit::Idle,
];

impl Limit {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::SlowStart => "slow_start",
            Self::Loss => "loss",
            Self::Queue => "queue",
            Self::PathRate => "path_rate",
            Self::Policer => "policer",
            Self::ReceiveWindow => "receive_window",
            Self::Application => "application",
            Self::Idle => "idle",
        }
    }
}

/// Odds that the largest share is truly the largest grow with this power of its ratio to the next.
const CERTAINTY: f64 = 1.5;

/// A share of time or a probability for each limit; they sum to 1. As JSON an object with the limits' names as keys.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shares([f64; LIMITS.len()]);

impl Shares {
    /// All of it for one limit.
    pub fn all(limit: Limit) -> Self {
        let mut shares = Self::default();
        shares.0[limit as usize] = 1.0;
        shares
    }

    /// The share of a limit, 0 to 1.
    pub fn of(&self, limit: Limit) -> f64 {
        self.0[limit as usize]
    }

    /// The limit with the largest share.
    pub fn largest(&self) -> Limit {
        (LIMITS.into_iter())
            .max_by(|a, b| self.of(*a).total_cmp(&self.of(*b)))
            .expect("there are limits")
    }

    /// Probability that the largest share is truly the largest, by how much larger it is than the next.
    fn certainty(&self) -> f64 {
        let mut shares = self.0;
        shares.sort_by(|a, b| b.total_cmp(a));
        let odds = (shares[0] / shares[1].max(1e-6)).powf(CERTAINTY);
        odds / (1.0 + odds)
    }

    fn add(&mut self, limit: Limit, share: f64) {
        self.0[limit as usize] += share;
    }

    /// Adds the shares of `other`, times `scale`.
    fn add_all(&mut self, other: &Self, scale: f64) {
        for (mine, its) in self.0.iter_mut().zip(other.0) {
            *mine += scale * its;
        }
    }

    fn scaled(mut self, scale: f64) -> Self {
        self.0.iter_mut().for_each(|share| *share *= scale);
        self
    }

    fn sum(&self) -> f64 {
        self.0.iter().sum()
    }
}

impl Serialize for Shares {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(LIMITS.map(|limit| (limit.name(), self.of(limit))))
    }
}

/// What one record of a flow says; `None` or NaN where it does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LimitRecord {
    /// Seconds, never before the last record's.
    pub time_s: f64,
    /// Window, packets, > 0.
    pub cwnd_packets: f64,
    /// Smoothed round-trip time, seconds.
    pub srtt_s: Option<f64>,
    /// The shortest round-trip time of the connection, seconds.
    pub min_rtt_s: Option<f64>,
    /// Packets sent at least once, cumulative.
    pub snd_nxt_packets: Option<f64>,
    /// Packets acknowledged, cumulative.
    pub snd_una_packets: Option<f64>,
    /// The receiver's window, packets.
    pub rwnd_packets: Option<f64>,
    /// Packets retransmitted, cumulative.
    pub retransmits: Option<f64>,
}
