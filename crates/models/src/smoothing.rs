//! Losses over packets by window, smoothed: the hierarchy that [`crate::hazard`],
//! [`crate::online_curve`] and [`crate::clusters`] share.
//!
//! Counts lie in bins of equal width in ln cwnd. They are pooled over neighbouring bins at four
//! scales, each shrunk to the next wider one as the prior of a Gamma-Poisson model: where losses are
//! many the narrow scale speaks, where they are few the wide one.

use crate::gamma::Gamma;

/// Bandwidths in ln cwnd, widest first. The narrowest resolves a drop-tail queue's few per cent.
const BANDWIDTHS: [f64; 4] = [0.6, 0.25, 0.1, 0.04];
/// Pseudo-losses by which the wider scale weighs in the narrower.
pub(crate) const SHRINK: f64 = 0.5;

/// Bins of equal width in ln cwnd from one packet on, and the kernels that pool them.
#[derive(Debug)]
pub(crate) struct Scales {
    step: f64,
    bins: usize,
    kernels: Vec<Vec<f64>>,
}

impl Scales {
    /// `bins` bins, each `step` wide in ln cwnd.
    pub(crate) fn new(step: f64, bins: usize) -> Self {
        let kernel = |bandwidth: f64| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small, positive
            let reach = (3.0 * bandwidth / step) as usize;
            (0..=reach)
                .map(|k| (-0.5 * (k as f64 * step / bandwidth).powi(2)).exp())
                .collect()
        };
        Self {
            step,
            bins,
            kernels: BANDWIDTHS.map(kernel).to_vec(),
        }
    }

    /// Where a window lies among the bins, a part of one included.
    pub(crate) fn place(&self, cwnd_packets: f64) -> f64 {
        cwnd_packets.max(1.0).ln() / self.step
    }

    /// The bin of a window; windows beyond the last are in the last.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped
    pub(crate) fn bin(&self, cwnd_packets: f64) -> usize {
        (self.place(cwnd_packets).round() as usize).min(self.bins - 1)
    }

    /// The window in the middle of a bin, packets.
    pub(crate) fn cwnd_packets(&self, bin: usize) -> f64 {
        (bin as f64 * self.step).exp()
    }

    /// What is known of the loss probability at a bin. `counts` gives a bin's packets and losses,
    /// `seen` the first and the last bin that has any, `prior` the mean before them, > 0.
    pub(crate) fn posterior(
        &self,
        counts: impl Fn(usize) -> (f64, f64),
        seen: (usize, usize),
        bin: usize,
        prior: f64,
    ) -> Gamma {
        let mut posterior = Gamma {
            shape: SHRINK,
            rate: SHRINK / prior,
        };
        for kernel in &self.kernels {
            let reach = kernel.len() - 1;
            let (mut losses, mut packets) = (0.0, 0.0);
            for c in bin.saturating_sub(reach).max(seen.0)..=(bin + reach).min(seen.1) {
                let weight = kernel[bin.abs_diff(c)];
                let (sent, lost) = counts(c);
                losses += weight * lost;
                packets += weight * sent;
            }
            // a Gamma(SHRINK, SHRINK / wider) rate after the pooled counts
            posterior = Gamma {
                shape: losses + SHRINK,
                rate: packets + SHRINK / posterior.mean(),
            };
        }
        posterior
    }
}
