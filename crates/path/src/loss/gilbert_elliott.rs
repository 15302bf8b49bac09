//! Loss in bursts by a Markov chain of two states (Gilbert 1960, Elliott 1963).

use pathcast_base::Probability;
use pathcast_base::seed::uniform;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::reader::{Read, Table};

/// The chain's parameters. It moves once after each packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Probability of moving from good to bad.
    pub good_to_bad: Probability,
    /// Probability of moving from bad to good: one over the mean stay in the bad state, in packets.
    pub bad_to_good: Probability,
    /// Probability of loss in the good state.
    pub loss_good: Probability,
    /// Probability of loss in the bad state.
    pub loss_bad: Probability,
}

impl GilbertElliott {
    /// The share of packets that find the chain in the bad state: p / (p + r)  (Gilbert 1960).
    pub fn stationary_bad(&self) -> f64 {
        let (p, r) = (self.good_to_bad.value(), self.bad_to_good.value());
        if p + r > 0.0 { p / (p + r) } else { 0.0 }
    }

    /// The share of packets lost in the long run.
    pub fn stationary_loss(&self) -> f64 {
        let bad = self.stationary_bad();
        bad * self.loss_bad.value() + (1.0 - bad) * self.loss_good.value()
    }
}

/// The running chain. It begins in its stationary distribution, so that a run has no warm-up.
#[derive(Clone, Debug)]
pub struct GilbertElliottLoss {
    spec: GilbertElliott,
    bad: bool,
    rng: Xoshiro256PlusPlus,
}

impl GilbertElliottLoss {
    /// A chain that draws from `rng`.
    pub fn new(spec: GilbertElliott, mut rng: Xoshiro256PlusPlus) -> Self {
        let bad = uniform(&mut rng) <= spec.stationary_bad();
        Self { spec, bad, rng }
    }

    /// Whether the next packet is lost.
    #[inline]
    pub fn drops_next(&mut self) -> bool {
        let (loss, leave) = if self.bad {
            (self.spec.loss_bad, self.spec.bad_to_good)
        } else {
            (self.spec.loss_good, self.spec.good_to_bad)
        };
        let lost = uniform(&mut self.rng) <= loss.value();
        self.bad ^= uniform(&mut self.rng) <= leave.value();
        lost
    }
}

impl GilbertElliott {
    pub(super) const KEYS: &[&str] = &["good_to_bad", "bad_to_good", "loss_good", "loss_bad"];

    pub(super) fn read(table: Table<'_, '_>) -> Read<Self> {
        let or = |key, default: f64| {
            let default = Probability::new(default).expect("0 and 1 are probabilities");
            table.or(key, default, |field| field.probability())
        };
        Ok(Self {
            good_to_bad: table.need("good_to_bad")?.probability()?,
            bad_to_good: table.need("bad_to_good")?.probability()?,
            loss_good: or("loss_good", 0.0)?,
            loss_bad: or("loss_bad", 1.0)?,
        })
    }

    pub(super) fn to_toml(self) -> String {
        format!(
            "{{ kind = \"gilbert-elliott\", good_to_bad = {:?}, bad_to_good = {:?}, \
             loss_good = {:?}, loss_bad = {:?} }}",
            self.good_to_bad.value(),
            self.bad_to_good.value(),
            self.loss_good.value(),
            self.loss_bad.value()
        )
    }
}

#[cfg(test)]
mod tests {
    use pathcast_base::seed::generator;

    use super::*;

    fn spec(good_to_bad: f64, bad_to_good: f64, loss_good: f64, loss_bad: f64) -> GilbertElliott {
        let p = |value| Probability::new(value).unwrap();
        GilbertElliott {
            good_to_bad: p(good_to_bad),
            bad_to_good: p(bad_to_good),
            loss_good: p(loss_good),
            loss_bad: p(loss_bad),
        }
    }

    #[test]
    fn loss_and_burst_length_are_those_of_the_stationary_chain() {
        let spec = spec(0.01, 0.25, 0.0, 1.0);
        let mut process = GilbertElliottLoss::new(spec, generator(3, "loss"));
        let outcomes: Vec<bool> = (0..2_000_000).map(|_| process.drops_next()).collect();
        let lost = outcomes.iter().filter(|&&lost| lost).count() as f64;
        let share = lost / outcomes.len() as f64;
        assert!((share / (0.01 / 0.26) - 1.0).abs() < 0.03, "{share}");
        let bursts = outcomes.windows(2).filter(|w| !w[0] && w[1]).count() as f64;
        assert!((lost / bursts - 4.0).abs() < 0.1, "{}", lost / bursts); // 1 / r
    }

    #[test]
    fn both_states_may_lose_some() {
        let spec = spec(0.1, 0.4, 0.05, 0.5);
        assert!((spec.stationary_loss() - (0.2 * 0.5 + 0.8 * 0.05)).abs() < 1e-12);
        let mut process = GilbertElliottLoss::new(spec, generator(4, "loss"));
        let lost = (0..1_000_000).filter(|_| process.drops_next()).count() as f64;
        assert!((lost / 1e6 - spec.stationary_loss()).abs() < 2e-3, "{lost}");
    }
}
