//! Smoothed ratio of losses to packets by window: the hierarchy that [`crate::hazard`],
//! [`crate::online_curve`] and [`crate::clusters`] share.
//!
//! Counts are in bins of equal width in ln cwnd. They are pooled over neighboring bins at four
//! scales, each shrunk to the next wider one as the prior of a Gamma-Poisson model. Where losses
//! are many, the narrow scale dominates; where they are few, the wide one.

use crate::gamma::Gamma;

/// Bandwidths in ln cwnd, widest first. The narrowest resolves a drop-tail queue's window to a few
/// per cent.
const BANDWIDTHS: [f64; 4] = [0.6, 0.25, 0.1, 0.04];
/// Pseudo-losses by which the wider scale counts in the narrower.
pub(crate) const SHRINK: f64 = 0.5;

/// Bounds of estimated pseudo-losses.
const SHRINK_RANGE: (f64, f64) = (0.5, 50.0);
/// Assumed variation of the loss probability between scales, as a squared coefficient of variation,
/// and the squared losses that this prior counts as.
const VARIATION_PRIOR: (f64, f64) = (0.5, 4.0);
/// Width of a block in bandwidths: about that of the kernel.
const BLOCK: f64 = 2.5;

/// Pseudo-losses of each scale.
pub(crate) type Shrinks = [f64; BANDWIDTHS.len()];

/// Bins of equal width in ln cwnd from one packet on, and the kernels that pool them.
#[derive(Debug)]
pub(crate) struct Scales {
    step: f64,
    bins: usize,
    kernels: Vec<Vec<f64>>,
}

impl Scales {
    /// Creates `bins` bins, each `step` wide in ln cwnd.
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

    /// The position of a window among the bins, with its fraction.
    pub(crate) fn place(&self, cwnd_packets: f64) -> f64 {
        cwnd_packets.max(1.0).ln() / self.step
    }

    /// The bin of a window; windows beyond the last bin count in the last.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped
    pub(crate) fn bin(&self, cwnd_packets: f64) -> usize {
        (self.place(cwnd_packets).round() as usize).min(self.bins - 1)
    }

    /// The window in the middle of a bin, packets.
    pub(crate) fn cwnd_packets(&self, bin: usize) -> f64 {
        (bin as f64 * self.step).exp()
    }

    /// The posterior of the loss probability at a bin. `counts` returns a bin's packets and losses,
    /// `seen` holds the first and the last non-empty bin, and `prior` > 0 is the prior mean.
    pub(crate) fn posterior(
        &self,
        counts: impl Fn(usize) -> (f64, f64),
        seen: (usize, usize),
        bin: usize,
        prior: f64,
    ) -> Gamma {
        self.posterior_with(&[SHRINK; BANDWIDTHS.len()], counts, seen, bin, prior)
    }

    /// [`Scales::posterior`] with other pseudo-losses; with fewer, only the widest scales count.
    pub(crate) fn posterior_with(
        &self,
        shrinks: &[f64],
        counts: impl Fn(usize) -> (f64, f64),
        seen: (usize, usize),
        bin: usize,
        prior: f64,
    ) -> Gamma {
        let mut posterior = Gamma {
            shape: SHRINK,
            rate: SHRINK / prior,
        };
        for (kernel, shrink) in self.kernels.iter().zip(shrinks) {
            let reach = kernel.len() - 1;
            let (mut losses, mut packets) = (0.0, 0.0);
            for c in bin.saturating_sub(reach).max(seen.0)..=(bin + reach).min(seen.1) {
                let weight = kernel[bin.abs_diff(c)];
                let (sent, lost) = counts(c);
                losses += weight * lost;
                packets += weight * sent;
            }
            // posterior of a Gamma(shrink, shrink / wider) prior after the pooled counts
            posterior = Gamma {
                shape: losses + shrink,
                rate: packets + shrink / posterior.mean(),
            };
        }
        posterior
    }

    /// Estimates the pseudo-losses by which each scale is shrunk to the wider one. They are few if
    /// losses vary between windows more than by chance, many if not. The method of moments compares
    /// blocks as wide as the kernel with the wider scale. Losses differ from it by chance (their
    /// expectation) and by real variation (its square times the squared coefficient of variation,
    /// which is 1/shrink).
    pub(crate) fn shrinks(
        &self,
        counts: impl Fn(usize) -> (f64, f64),
        seen: (usize, usize),
        prior: f64,
    ) -> Shrinks {
        let mut shrinks = [SHRINK; BANDWIDTHS.len()];
        for (scale, bandwidth) in BANDWIDTHS.iter().enumerate() {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small and positive
            let block = ((BLOCK * bandwidth / self.step) as usize).max(1);
            let (variation, weight) = VARIATION_PRIOR;
            let (mut beyond_chance, mut squares) = (variation * weight, weight);
            for from in (seen.0..=seen.1).step_by(block) {
                let to = (from + block - 1).min(seen.1);
                let (mut packets, mut lost) = (0.0, 0.0);
                for bin in from..=to {
                    let (sent, losses) = counts(bin);
                    packets += sent;
                    lost += losses;
                }
                let middle = usize::midpoint(from, to);
                let wider = self.posterior_with(&shrinks[..scale], &counts, seen, middle, prior);
                let expected = packets * wider.mean();
                beyond_chance += (lost - expected).powi(2) - expected;
                squares += expected * expected;
            }
            shrinks[scale] = (squares / beyond_chance.max(f64::MIN_POSITIVE))
                .clamp(SHRINK_RANGE.0, SHRINK_RANGE.1);
        }
        shrinks
    }
}
