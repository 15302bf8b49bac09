//! Independent loss: every packet alike, without memory.

use pathcast_base::Probability;
use pathcast_base::seed::uniform;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Independent loss with probability `p`.
///
/// Draws the number of packets up to the next loss, which is geometric, rather than a number for
/// each packet: the same process, at one draw a loss.
#[derive(Clone, Debug)]
pub struct IidLoss {
    probability: f64,
    survivors_left: u64,
    rng: Xoshiro256PlusPlus,
}

impl IidLoss {
    /// Loss with probability `probability` out of the generator `rng`.
    pub fn new(probability: Probability, rng: Xoshiro256PlusPlus) -> Self {
        let mut loss = Self {
            probability: probability.value(),
            survivors_left: 0,
            rng,
        };
        loss.survivors_left = loss.draw_gap();
        loss
    }

    fn draw_gap(&mut self) -> u64 {
        if self.probability <= 0.0 {
            return u64::MAX;
        }
        // P(gap >= k) = (1-p)^k, inverted; p = 1 gives ln(0) = -inf and so a gap of 0
        (libm::log(uniform(&mut self.rng)) / libm::log1p(-self.probability)) as u64
    }

    /// Whether the next packet is lost.
    #[inline]
    pub fn drops_next(&mut self) -> bool {
        if self.survivors_left > 0 {
            self.survivors_left -= 1;
            return false;
        }
        self.survivors_left = self.draw_gap();
        true
    }
}

#[cfg(test)]
mod tests {
    use pathcast_base::seed::generator;

    use super::*;

    fn loss(p: f64) -> IidLoss {
        IidLoss::new(Probability::new(p).unwrap(), generator(7, "loss"))
    }

    #[test]
    fn iid_loss_has_its_rate_and_no_memory() {
        let mut process = loss(0.01);
        let outcomes: Vec<bool> = (0..1_000_000).map(|_| process.drops_next()).collect();
        let lost = outcomes.iter().filter(|&&l| l).count() as f64;
        // five standard deviations of a binomial
        assert!(
            (lost - 10_000.0).abs() < 5.0 * (10_000.0f64 * 0.99).sqrt(),
            "{lost}"
        );
        let pairs = outcomes.windows(2).filter(|w| w[0] && w[1]).count() as f64;
        assert!((pairs - 100.0).abs() < 50.0, "{pairs}");
    }

    #[test]
    fn the_ends_of_the_range_are_never_and_always() {
        let (mut never, mut always) = (loss(0.0), loss(1.0));
        assert!((0..1000).all(|_| !never.drops_next()));
        assert!((0..1000).all(|_| always.drops_next()));
    }
}
