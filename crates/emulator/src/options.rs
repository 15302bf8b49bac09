//! What to run.

use pathcast_path::{Path, Span};
use pathcast_probe::Method;

use crate::error::EmulatorError;
use crate::interface::MTU;

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The path between the two hosts.
    pub path: Path,
    /// Congestion control of each flow, by the kernel's name.
    pub schemes: Vec<String>,
    /// How long the flows send; connecting comes before it.
    pub duration: Span,
    /// Seed of the path's random elements.
    pub seed: u64,
    /// How to watch the senders; polling takes the place of a tcp_probe that cannot be had.
    pub method: Method,
}

impl Options {
    /// Runs one flow for each of `schemes` over `path` for `duration`, watched by tcp_probe.
    pub fn new(path: Path, schemes: Vec<String>, duration: Span, seed: u64) -> Self {
        Self {
            path,
            schemes,
            duration,
            seed,
            method: Method::TcpProbe,
        }
    }

    /// What can be told without asking the kernel.
    pub(crate) fn check(&self) -> Result<(), EmulatorError> {
        if self.duration == Span::ZERO {
            return Err(EmulatorError::ZeroDuration);
        }
        if self.schemes.is_empty() {
            return Err(EmulatorError::NoFlows);
        }
        Ok(())
    }

    /// The bandwidth-delay product of the forward direction in bytes; `None` without a rate.
    pub(crate) fn bdp_bytes(&self) -> Option<u64> {
        let rate = self.path.forward.mean_rate()?;
        Some((rate.as_bps() * self.path.base_rtt().as_secs() / 8.0) as u64)
    }

    /// The most bytes that can be on their way at once: the bandwidth-delay product and the queue.
    pub(crate) fn bytes_on_the_way(&self) -> u64 {
        let Some(bdp_bytes) = self.bdp_bytes() else {
            return u64::MAX;
        };
        let (bytes, packets) = self.path.queue_limits(&self.path.forward);
        bdp_bytes.saturating_add(bytes.min(packets.saturating_mul(u64::from(MTU))))
    }
}
