//! The window in congestion avoidance, step by step.

use pathcast_window_law::{Cc, Epoch, RENO_FRIENDLY_SLOPE};

/// A window that grows with time (CUBIC) or with packets (Reno), up to the receive window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avoidance {
    epoch: Epoch,
    /// Seconds in the epoch.
    in_epoch_s: f64,
    /// CUBIC's Reno-friendly window, packets, as Linux has it: it grows by 9/17 a window of packets also
    /// beyond the former Wmax, where RFC 9438 has it grow by 1.
    friendly: f64,
    /// What the window is above what the law says: kept, as a flow that was held back keeps it.
    above: f64,
    growth: f64,
    /// Seconds for which the window still stands.
    held_s: f64,
    ceiling: f64,
    /// Whether no loss has given CUBIC an aim yet: Linux then adds a packet for each twenty.
    aimless: bool,
    window: f64,
}

impl Avoidance {
    /// From the beginning of an epoch.
    pub(super) fn new(epoch: Epoch, ceiling: f64) -> Self {
        Self {
            epoch,
            in_epoch_s: 0.0,
            friendly: epoch.start_packets,
            above: 0.0,
            growth: 1.0,
            held_s: 0.0,
            ceiling,
            aimless: false,
            window: epoch.start_packets.min(ceiling),
        }
    }

    /// After a slow start that ended without a loss.
    pub(super) fn aimless(epoch: Epoch, ceiling: f64) -> Self {
        Self {
            aimless: true,
            ..Self::new(epoch, ceiling)
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
        let friendly = epoch.start_packets + RENO_FRIENDLY_SLOPE * in_epoch_s / epoch.rtt_s;
        Self {
            epoch,
            in_epoch_s,
            friendly,
            above: window - growth * epoch.cubic_packets(in_epoch_s).max(friendly),
            growth,
            held_s,
            ceiling,
            aimless: false,
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
            Cc::Other => self.window,
            // one packet for each window of them: W^2 grows by 2 a packet
            Cc::Reno => (self.window * self.window + 2.0 * self.growth * packets * part).sqrt(),
            Cc::Cubic => {
                self.in_epoch_s += free_s;
                self.friendly += RENO_FRIENDLY_SLOPE * packets * part / self.window;
                let law = self.epoch.cubic_packets(self.in_epoch_s).max(self.friendly);
                // no more than half as much again for a window of packets (Linux's cnt >= 2)
                let most = self.window + 0.5 * packets;
                let least = if self.aimless {
                    self.window + 0.05 * packets * part
                } else {
                    0.0
                };
                (self.above + self.growth * law).max(least).min(most)
            }
        };
        self.window = window.clamp(1.0, self.ceiling);
    }
}
