//! Results of epoch detection: epochs, losses, and the flow's state.

use serde::Serialize;

use pathcast_window_law::{Cc, Epoch as WindowEpoch};

/// One growth of the window, up to the fall that ends it (the paper's TDP).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Epoch {
    /// When the growth began, seconds.
    pub start_s: f64,
    /// Window at the start, packets.
    pub start_cwnd: f64,
    /// The last record before the fall, seconds.
    pub end_s: f64,
    /// Window at the end, packets: where the loss occurred.
    pub end_cwnd: f64,
}

/// One loss event: the window fell by the CC's decrease and was not restored.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Loss {
    /// The last record before the fall, seconds.
    pub time_s: f64,
    /// Window at that record, packets.
    pub cwnd_packets: f64,
}

/// The phase of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Doubling each RTT.
    SlowStart,
    /// Growing by the CC's law.
    Avoidance,
    /// Falling, or less than a round trip after a fall.
    Recovery,
}

/// The state that a forecast is conditioned on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FlowState {
    /// The phase of the sender.
    pub phase: Phase,
    /// The window, excursions removed, packets.
    pub cwnd_packets: f64,
    /// Start of the current avoidance epoch, seconds.
    pub epoch_start_s: f64,
    /// Window at that start, packets.
    pub epoch_start_packets: f64,
    /// CUBIC's `Wmax` (after fast convergence), packets.
    pub w_max_packets: f64,
    /// Time of the last loss, seconds; `None` before the first.
    pub last_loss_s: Option<f64>,
    /// Where slow start ends, packets; infinite before the first loss.
    pub ssthresh_packets: f64,
    /// Recent growth relative to the law's growth, while the window grows.
    pub growth: f64,
    /// How long the window has stood still although the law would grow it: the application or the
    /// receive window limits the sender. 0 if not limited.
    pub held_s: f64,
    /// Median time until the window is released, seconds; 0 if it is not held.
    pub release_in_s: f64,
}

impl FlowState {
    /// The avoidance epoch of this state, for the window law.
    pub fn epoch(&self, cc: Cc, rtt_s: f64) -> WindowEpoch {
        WindowEpoch::new(
            cc,
            self.epoch_start_packets.max(1.0),
            self.w_max_packets,
            rtt_s,
        )
    }
}

/// The epochs and losses of a series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Detection {
    /// Ended epochs, oldest first.
    pub epochs: Vec<Epoch>,
    /// Loss events, oldest first.
    pub losses: Vec<Loss>,
}
