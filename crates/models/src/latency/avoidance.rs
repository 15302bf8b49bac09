//! The window in congestion avoidance, step by step.

use crate::window::{Cc, Epoch};

/// A window that grows with time (CUBIC) or with packets (Reno), up to the receive window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avoidance {
    epoch: Epoch,
    /// Seconds in the epoch.
    in_epoch_s: f64,
    /// What the window is above what the law says: kept, as a flow that was held back keeps it.
    above: f64,
    growth: f64,
    /// Seconds for which the window still stands.
    held_s: f64,
    ceiling: f64,
    window: f64,
}

impl Avoidance {
    /// From the beginning of an epoch.
    pub(super) fn new(epoch: Epoch, ceiling: f64) -> Self {
        Self {
            epoch,
            in_epoch_s: 0.0,
            above: 0.0,
            growth: 1.0,
            held_s: 0.0,
            ceiling,
            window: epoch.start_packets.min(ceiling),
        }
    }

    /// Within an epoch, where the window is not quite what the law says and grows `growth` as fast.
    pub(super) fn within(
        epoch: Epoch,
        in_epoch_s: f64,
        window: f64,
        growth: f64,
        held_s: f64,
        ceiling: f64,
    ) -> Self {
        let ceiling = ceiling.max(window);
        Self {
            epoch,
            in_epoch_s,
            above: window - growth * epoch.window_packets(in_epoch_s),
            growth,
            held_s,
            ceiling,
            window,
        }
    }

    /// Packets.
    pub(super) fn window(&self) -> f64 {
        self.window
    }

    /// CUBIC's aim, packets.
    pub(super) fn w_max(&self) -> f64 {
        self.epoch.w_max_packets
    }

    /// Sends `packets` in `s` seconds.
    pub(super) fn advance(&mut self, packets: f64, s: f64) {
        let free_s = (s - self.held_s).max(0.0);
        let part = if s > 0.0 { free_s / s } else { 1.0 };
        self.held_s = (self.held_s - s).max(0.0);
        let window = match self.epoch.cc {
            // one packet for each window of them: W^2 grows by 2 a packet
            Cc::Reno => (self.window * self.window + 2.0 * self.growth * packets * part).sqrt(),
            Cc::Cubic => {
                self.in_epoch_s += free_s;
                self.above + self.growth * self.epoch.window_packets(self.in_epoch_s)
            }
        };
        self.window = window.clamp(1.0, self.ceiling);
    }
}
