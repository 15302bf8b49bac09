//! A fixed window, whatever happens: a yardstick, and a way to measure a path with a known load.

use std::sync::Arc;

use pathcast_base::Time;

use crate::controller::{Ack, Congestion, Controller};
use crate::scheme::{Factory, Kind};

/// The window.
#[derive(Clone, Copy, Debug)]
pub struct FixedWindow {
    packets: f64,
}

impl FixedWindow {
    /// A window of `packets`, at least 1.
    pub fn new(packets: u32) -> Self {
        Self {
            packets: f64::from(packets.max(1)),
        }
    }
}

pub(crate) const KINDS: &[Kind] = &[Kind::with_argument(
    "fixed",
    "fixed:N with N packets from 1 on",
    |packets| {
        let packets = packets.parse().ok().filter(|&packets: &u32| packets > 0)?;
        let factory: Factory = Arc::new(move |_| Box::new(FixedWindow::new(packets)));
        Some((packets.to_string(), factory))
    },
)];

impl Controller for FixedWindow {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn cwnd(&self) -> f64 {
        self.packets
    }

    fn ssthresh(&self) -> f64 {
        self.packets
    }

    fn on_ack(&mut self, _ack: &Ack) {}

    fn on_congestion(&mut self, _event: &Congestion) {}

    fn on_timeout(&mut self, _now: Time) {}

    fn set_window(&mut self, _cwnd: f64, _ssthresh: f64) {}

    fn manages_recovery(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::tests::{ack, loss};

    #[test]
    fn nothing_moves_a_fixed_window() {
        let mut fixed = FixedWindow::new(64);
        fixed.on_ack(&ack(0.0, 10));
        fixed.on_congestion(&loss());
        fixed.on_timeout(Time::ZERO);
        assert_eq!(fixed.cwnd(), 64.0);
        assert!(!fixed.in_slow_start());
    }
}
