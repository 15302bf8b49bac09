//! The loss curve that forecasts use: smoothed, with forgetting and clustering.
//!
//! The paper's curve ([`crate::LossCurve`]) is B/A at single windows, filled from the nearest. With
//! few losses it is noisy: one loss at a rare window makes loss certain there. This curve pools
//! losses and exposure over neighboring windows (in ln cwnd). It shrinks each scale to the next
//! wider one, as in a Gamma-Poisson hierarchy.

use std::sync::LazyLock;

use crate::smoothing::{SHRINK, Scales};

/// Bins from one packet up to e^(600 * 0.02) = 160,000 packets.
const BINS: usize = 600;
/// The bins, a fiftieth of ln cwnd each.
static SCALES: LazyLock<Scales> = LazyLock::new(|| Scales::new(0.02, BINS));
/// Bounds of the ages since the last loss at which clustering is measured, seconds.
const AGES_S: [f64; 7] = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
/// Pseudo-losses that represent "no clustering" at each age.
const AGE_SHRINK: f64 = 3.0;

/// Weights are rescaled to 1 before they can overflow.
const WEIGHT_MAX: f64 = 1e100;

/// Losses and packets by window, with exponential forgetting.
///
/// Forgetting increases the weight of new counts instead of decreasing old ones. A count's value is
/// its ratio to the current weight, so forgetting takes O(1).
#[derive(Debug, Clone)]
pub struct Hazard {
    /// The weight of one packet or loss now.
    weight: f64,
    packets: Vec<f64>,
    losses: Vec<f64>,
    all_packets: f64,
    all_losses: f64,
    age_losses: [f64; AGES_S.len() + 1],
    age_expected: [f64; AGES_S.len() + 1],
    smoothed: Vec<f64>,
    is_flat: bool,
}

impl Default for Hazard {
    fn default() -> Self {
        Self {
            weight: 1.0,
            packets: vec![0.0; BINS],
            losses: vec![0.0; BINS],
            all_packets: 0.0,
            all_losses: 0.0,
            age_losses: [0.0; AGES_S.len() + 1],
            age_expected: [0.0; AGES_S.len() + 1],
            smoothed: Vec::new(),
            is_flat: false,
        }
    }
}

impl Hazard {
    /// Counts as any other does, but gives all windows the same probability: that of all packets together.
    pub fn flat() -> Self {
        Self {
            is_flat: true,
            ..Self::default()
        }
    }

    /// Takes `packets` sent at a window, `age_s` after the last loss.
    pub fn sent(&mut self, cwnd_packets: f64, packets: f64, age_s: f64) {
        let packets = packets * self.weight;
        if !self.smoothed.is_empty() {
            self.age_expected[age_bin(age_s)] += packets * self.base(cwnd_packets);
        }
        self.packets[SCALES.bin(cwnd_packets)] += packets;
        self.all_packets += packets;
    }

    /// Takes a loss at a window, `age_s` after the previous one.
    pub fn lost(&mut self, cwnd_packets: f64, age_s: f64) {
        self.losses[SCALES.bin(cwnd_packets)] += self.weight;
        self.all_losses += self.weight;
        if !self.smoothed.is_empty() {
            self.age_losses[age_bin(age_s)] += self.weight;
        }
    }

    /// Withdraws a loss that proved spurious.
    pub fn not_lost(&mut self, cwnd_packets: f64, age_s: f64) {
        let count = &mut self.losses[SCALES.bin(cwnd_packets)];
        let taken = count.min(self.weight);
        *count -= taken;
        self.all_losses = (self.all_losses - taken).max(0.0);
        let count = &mut self.age_losses[age_bin(age_s)];
        *count = (*count - self.weight).max(0.0);
    }

    /// Multiplies all counts by `keep`, 0..=1.
    pub fn forget(&mut self, keep: f64) {
        self.weight /= keep;
        if self.weight < WEIGHT_MAX {
            return;
        }
        // `keep` = 0 makes the weight infinite, and 1/infinity gives counts of 0
        let rescale = 1.0 / self.weight;
        let counts = self.packets.iter_mut().chain(&mut self.losses);
        counts
            .chain(&mut self.age_losses)
            .chain(&mut self.age_expected)
            .chain([&mut self.all_packets, &mut self.all_losses])
            .for_each(|count| *count *= rescale);
        self.weight = 1.0;
    }

    /// Takes a change of the path. The counts keep their shape over windows, but are rescaled to
    /// `losses` losses at an overall probability of `loss_probability`.
    pub fn step_to(&mut self, loss_probability: f64, losses: f64) {
        let scale = |total: f64, wanted: f64| if total > 0.0 { wanted / total } else { 0.0 };
        let of_packets = scale(self.packets(), losses / loss_probability);
        let of_losses = scale(self.losses(), losses);
        self.packets
            .iter_mut()
            .for_each(|count| *count *= of_packets);
        self.losses.iter_mut().for_each(|count| *count *= of_losses);
        self.all_packets *= of_packets;
        self.all_losses *= of_losses;
        self.age_losses.fill(0.0);
        self.age_expected.fill(0.0);
    }

    /// Losses remembered, each weighted by forgetting.
    pub fn losses(&self) -> f64 {
        self.all_losses / self.weight
    }

    /// Packets remembered, weighted likewise.
    pub fn packets(&self) -> f64 {
        self.all_packets / self.weight
    }

    /// Recomputes the smoothed curve from the counts.
    pub fn smooth(&mut self) {
        let overall = self.overall();
        if self.is_flat {
            self.smoothed = vec![overall; BINS];
            return;
        }
        let has = |&b: &usize| self.packets[b] > 0.0;
        let (Some(first), Some(last)) = ((0..BINS).find(has), (0..BINS).rev().find(has)) else {
            self.smoothed = vec![overall; BINS];
            return;
        };
        let unit = 1.0 / self.weight;
        let counts = |b: usize| (self.packets[b] * unit, self.losses[b] * unit);
        // outside the range seen, the edge value applies
        let seen = (first, last);
        let shrinks = SCALES.shrinks(counts, seen, overall);
        let smoothed = (first..=last)
            .map(|b| (SCALES.posterior_with(&shrinks, counts, seen, b, overall)).mean())
            .collect::<Vec<f64>>();
        let at = |b: usize| smoothed[b.clamp(first, last) - first];
        self.smoothed = (0..BINS).map(at).collect();
    }

    /// The overall loss probability. Half a pseudo-loss (Jeffreys' prior) avoids a probability of 0
    /// without losses.
    fn overall(&self) -> f64 {
        (self.losses() + SHRINK) / self.packets().max(1.0)
    }

    /// Loss probability of a packet sent at this window, without clustering.
    pub fn base(&self, cwnd_packets: f64) -> f64 {
        if self.smoothed.is_empty() {
            return self.overall();
        }
        let x = SCALES.place(cwnd_packets);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped below
        let b = (x as usize).min(BINS - 2);
        let part = (x - b as f64).min(1.0);
        self.smoothed[b] * (1.0 - part) + self.smoothed[b + 1] * part
    }

    /// The factor by which a loss is more likely than [`Hazard::base`] at this time since the last
    /// one. A factor common to all ages is not clustering: it means that the base was different.
    pub fn clustering(&self, age_s: f64) -> f64 {
        let a = age_bin(age_s);
        let all = |counts: &[f64]| counts.iter().sum::<f64>() + AGE_SHRINK * self.weight;
        let common = all(&self.age_losses) / all(&self.age_expected);
        let shrink = AGE_SHRINK * self.weight;
        (self.age_losses[a] + shrink) / (common * self.age_expected[a] + shrink)
    }
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
        // half a loss overall; each of the four scales counts the same packets without a loss again
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
    fn a_step_keeps_the_form_and_is_soon_overcome() {
        let mut hazard = Hazard::default();
        hazard.sent(100.0, 1e6, 10.0);
        hazard.sent(1000.0, 1e6, 10.0);
        (0..10).for_each(|_| hazard.lost(100.0, 10.0));
        (0..200).for_each(|_| hazard.lost(1000.0, 10.0));
        hazard.smooth();
        let form = hazard.base(1000.0) / hazard.base(100.0);
        hazard.step_to(1e-3, 3.0);
        assert!((hazard.losses() - 3.0).abs() < 1e-9 && (hazard.packets() - 3000.0).abs() < 1e-6);
        hazard.smooth();
        assert!(hazard.base(1000.0) > hazard.base(100.0) && form > 5.0);
        hazard.sent(100.0, 1e6, 10.0);
        (0..100).for_each(|_| hazard.lost(100.0, 10.0));
        hazard.smooth();
        assert!((hazard.base(100.0) / 1e-4 - 1.0).abs() < 0.2);
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
        // losses become ten times as rare, equally at all ages
        for age_s in [0.7, 3.0, 20.0] {
            hazard.sent(100.0, 1e5, age_s);
            (0..100).for_each(|_| hazard.lost(100.0, age_s));
        }
        for age_s in [0.7, 3.0, 20.0] {
            assert!((hazard.clustering(age_s) - 1.0).abs() < 0.05);
        }
    }

    #[test]
    fn a_long_time_of_forgetting_is_that_of_its_parts() {
        let (mut hazard, keep) = (Hazard::default(), (-1.0_f64 / 400.0).exp());
        // beyond the point where weights are rescaled
        for second in 0..200_000_u32 {
            hazard.sent(100.0, 500.0, 1.0);
            if second % 20 == 0 {
                hazard.lost(100.0, 1.0);
            }
            hazard.forget(keep);
        }
        let packets = 500.0 * keep / (1.0 - keep);
        assert!((hazard.packets() / packets - 1.0).abs() < 1e-9);
        assert!((hazard.losses() / (packets / 10_000.0) - 1.0).abs() < 0.03);
        hazard.smooth();
        assert!((hazard.base(100.0) / 1e-4 - 1.0).abs() < 0.1);
        hazard.forget(0.0);
        assert_eq!((hazard.packets(), hazard.losses()), (0.0, 0.0));
        assert!(hazard.clustering(1.0).is_finite());
    }
}
