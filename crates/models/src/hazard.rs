//! The loss curve that forecasts use: smoothed, forgetting, with clustering.
//!
//! The paper's curve ([`crate::LossCurve`]) is B/A at single windows, filled from the nearest. From
//! a handful of losses that is noisy: one loss at a rarely seen window makes it certain death.
//! Here losses and exposure are pooled over neighbouring windows (in ln cwnd) and each scale is
//! shrunk to the next wider one, as a Gamma-Poisson hierarchy does.

/// ln of the ratio between neighbouring bins.
const STEP: f64 = 0.02;
/// Bins from one packet up to e^(600 * 0.02) = 160,000 packets.
const BINS: usize = 600;
/// Bandwidths in ln cwnd, widest first. The narrowest resolves a drop-tail queue's few per cent.
const BANDWIDTHS: [f64; 4] = [0.6, 0.25, 0.1, 0.04];
/// Pseudo-losses by which the wider scale weighs in the narrower: at least and at most.
const SHRINK: (f64, f64) = (0.5, 50.0);
/// How much the loss probability is assumed to vary from one scale to the next, as a squared coefficient
/// of variation, and how many squared losses that counts as.
const VARIATION_PRIOR: (f64, f64) = (0.5, 4.0);
/// Bounds of the ages since the last loss at which clustering is measured, seconds.
const AGES_S: [f64; 7] = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
/// Pseudo-losses by which "no clustering" weighs at each age.
const AGE_SHRINK: f64 = 3.0;

/// Losses and packets by window, forgetting exponentially.
#[derive(Debug, Clone)]
pub struct Hazard {
    packets: Vec<f64>,
    losses: Vec<f64>,
    age_losses: [f64; AGES_S.len() + 1],
    age_expected: [f64; AGES_S.len() + 1],
    smoothed: Vec<f64>,
}

impl Default for Hazard {
    fn default() -> Self {
        Self {
            packets: vec![0.0; BINS],
            losses: vec![0.0; BINS],
            age_losses: [0.0; AGES_S.len() + 1],
            age_expected: [0.0; AGES_S.len() + 1],
            smoothed: Vec::new(),
        }
    }
}

impl Hazard {
    /// `packets` were sent at a window, `age_s` after the last loss.
    pub fn sent(&mut self, cwnd_packets: f64, packets: f64, age_s: f64) {
        if !self.smoothed.is_empty() {
            self.age_expected[age_bin(age_s)] += packets * self.base(cwnd_packets);
        }
        self.packets[bin(cwnd_packets)] += packets;
    }

    /// A loss was met at a window, `age_s` after the one before.
    pub fn lost(&mut self, cwnd_packets: f64, age_s: f64) {
        self.losses[bin(cwnd_packets)] += 1.0;
        if !self.smoothed.is_empty() {
            self.age_losses[age_bin(age_s)] += 1.0;
        }
    }

    /// A loss proved spurious.
    pub fn not_lost(&mut self, cwnd_packets: f64, age_s: f64) {
        let count = &mut self.losses[bin(cwnd_packets)];
        *count = (*count - 1.0).max(0.0);
        let count = &mut self.age_losses[age_bin(age_s)];
        *count = (*count - 1.0).max(0.0);
    }

    /// Multiplies all counts by `keep`, 0..=1.
    pub fn forget(&mut self, keep: f64) {
        let counts = self.packets.iter_mut().chain(&mut self.losses);
        counts
            .chain(&mut self.age_losses)
            .chain(&mut self.age_expected)
            .for_each(|c| *c *= keep);
    }

    /// Losses remembered, each weighed by what is not yet forgotten of it.
    pub fn losses(&self) -> f64 {
        self.losses.iter().sum()
    }

    /// Packets remembered.
    pub fn packets(&self) -> f64 {
        self.packets.iter().sum()
    }

    /// Recomputes the smoothed curve from the counts.
    pub fn smooth(&mut self) {
        let all = self.packets().max(1.0);
        // half a pseudo-loss: Jeffreys' prior, so that no loss seen is not "never"
        let overall = (self.losses() + 0.5) / all;
        let mut wider = vec![overall; BINS];
        let seen: Vec<usize> = (0..BINS).filter(|&b| self.packets[b] > 0.0).collect();
        let (Some(&first), Some(&last)) = (seen.first(), seen.last()) else {
            self.smoothed = wider;
            return;
        };
        for bandwidth in BANDWIDTHS {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small and positive
            let reach = (3.0 * bandwidth / STEP) as usize;
            let kernel: Vec<f64> = (0..=reach)
                .map(|k| (-0.5 * (k as f64 * STEP / bandwidth).powi(2)).exp())
                .collect();
            let shrink = self.shrink(&wider, bandwidth, first, last);
            let mut narrower = wider.clone();
            for (b, value) in narrower.iter_mut().enumerate().take(last + 1).skip(first) {
                let (mut losses, mut packets) = (0.0, 0.0);
                for c in b.saturating_sub(reach).max(first)..=(b + reach).min(last) {
                    let weight = kernel[b.abs_diff(c)];
                    losses += weight * self.losses[c];
                    packets += weight * self.packets[c];
                }
                // posterior mean of a Gamma(shrink, shrink / wider) rate after the pooled counts
                *value = (losses + shrink) / (packets + shrink / wider[b]);
            }
            wider = narrower;
        }
        // beyond what was seen, the edge counts
        let (low, high) = (wider[first], wider[last]);
        wider[..first].fill(low);
        wider[last + 1..].fill(high);
        self.smoothed = wider;
    }

    /// Pseudo-losses of the wider scale: few where losses vary more from window to window than chance
    /// has it, many where they do not. By moments: in blocks as wide as the kernel, losses differ from what
    /// the wider scale expects by chance (their expectation) and by real variation (its square times the
    /// squared coefficient of variation, 1/shrink).
    fn shrink(&self, wider: &[f64], bandwidth: f64, first: usize, last: usize) -> f64 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small and positive
        let block = ((2.5 * bandwidth / STEP) as usize).max(1);
        let (prior, weight) = VARIATION_PRIOR;
        let (mut beyond_chance, mut squares) = (prior * weight, weight);
        for from in (first..=last).step_by(block) {
            let bins = from..(from + block).min(last + 1);
            let lost: f64 = bins.clone().map(|b| self.losses[b]).sum();
            let expected: f64 = bins.map(|b| self.packets[b] * wider[b]).sum();
            beyond_chance += (lost - expected).powi(2) - expected;
            squares += expected * expected;
        }
        (squares / beyond_chance.max(f64::MIN_POSITIVE)).clamp(SHRINK.0, SHRINK.1)
    }

    /// Probability that a packet sent at this window is lost, clustering left aside.
    pub fn base(&self, cwnd_packets: f64) -> f64 {
        if self.smoothed.is_empty() {
            return (self.losses() + 0.5) / self.packets().max(1.0);
        }
        let x = cwnd_packets.max(1.0).ln() / STEP;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped below
        let b = (x as usize).min(BINS - 2);
        let part = (x - b as f64).min(1.0);
        self.smoothed[b] * (1.0 - part) + self.smoothed[b + 1] * part
    }

    /// How much more likely than by [`Hazard::base`] a loss is so long after the last one. What all ages
    /// have in common is no clustering: the base was another when they were counted.
    pub fn clustering(&self, age_s: f64) -> f64 {
        let a = age_bin(age_s);
        let all = |counts: &[f64]| counts.iter().sum::<f64>() + AGE_SHRINK;
        let common = all(&self.age_losses) / all(&self.age_expected);
        (self.age_losses[a] + AGE_SHRINK) / (common * self.age_expected[a] + AGE_SHRINK)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped
fn bin(cwnd_packets: f64) -> usize {
    ((cwnd_packets.max(1.0).ln() / STEP).round() as usize).min(BINS - 1)
}

fn age_bin(age_s: f64) -> usize {
    AGES_S.partition_point(|&bound| bound <= age_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_losses_a_tenth_to_half_of_one_is_assumed() {
        let mut hazard = Hazard::default();
        hazard.sent(100.0, 1e6, 1.0);
        hazard.smooth();
        // half a loss overall; each of the four scales sees the same packets without a loss again
        assert!(
            (0.09e-6..=0.51e-6).contains(&hazard.base(100.0)),
            "{}",
            hazard.base(100.0)
        );
    }

    #[test]
    fn constant_loss_gives_a_constant_curve() {
        let mut hazard = Hazard::default();
        for w in 50..500 {
            hazard.sent(f64::from(w), 1e6, 1.0);
            (0..100).for_each(|_| hazard.lost(f64::from(w), 1.0));
        }
        hazard.smooth();
        for w in [10.0, 60.0, 200.0, 450.0, 2000.0] {
            assert!(
                (hazard.base(w) / 1e-4 - 1.0).abs() < 0.02,
                "{w}: {}",
                hazard.base(w)
            );
        }
    }

    #[test]
    fn a_cliff_stays_a_cliff() {
        let mut hazard = Hazard::default();
        for w in 500..1000 {
            hazard.sent(f64::from(w), 80.0 * f64::from(w), 10.0);
        }
        for w in 1000..1050 {
            hazard.sent(f64::from(w), 40.0 * f64::from(w), 10.0);
            (0..2).for_each(|_| hazard.lost(f64::from(w), 10.0));
        }
        hazard.smooth();
        assert!(hazard.base(1030.0) > 100.0 * hazard.base(800.0));
    }

    #[test]
    fn losses_in_bunches_raise_the_hazard_after_a_loss() {
        let mut hazard = Hazard::default();
        hazard.sent(100.0, 1e5, 10.0);
        (0..10).for_each(|_| hazard.lost(100.0, 10.0));
        hazard.smooth();
        hazard.sent(100.0, 1e4, 0.7);
        (0..10).for_each(|_| hazard.lost(100.0, 0.7));
        assert!(hazard.clustering(0.7) > 2.0);
        assert!((hazard.clustering(20.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn few_losses_that_come_anyhow_make_a_flat_curve() {
        // 100 losses at a constant probability: by chance some windows have twice their share
        let mut hazard = Hazard::default();
        let mut state = 1_u64;
        for w in 20..120 {
            hazard.sent(f64::from(w), 1000.0, 10.0);
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (0..(state >> 62)).for_each(|_| hazard.lost(f64::from(w), 10.0));
        }
        hazard.smooth();
        let mean = hazard.losses() / hazard.packets();
        for w in [25.0, 40.0, 60.0, 80.0, 110.0] {
            let ratio = hazard.base(w) / mean;
            assert!((0.7..1.4).contains(&ratio), "{w}: {ratio}");
        }
    }

    #[test]
    fn a_base_that_was_too_high_is_no_clustering() {
        let mut hazard = Hazard::default();
        hazard.sent(100.0, 1e3, 10.0);
        (0..10).for_each(|_| hazard.lost(100.0, 10.0));
        hazard.smooth();
        // from now on losses are ten times as rare, at all ages alike
        for age_s in [0.7, 3.0, 20.0] {
            hazard.sent(100.0, 1e5, age_s);
            (0..100).for_each(|_| hazard.lost(100.0, age_s));
        }
        for age_s in [0.7, 3.0, 20.0] {
            assert!((hazard.clustering(age_s) - 1.0).abs() < 0.05);
        }
    }
}
