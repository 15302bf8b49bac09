//! Moments of a Poisson process.

use pathcast_base::seed::uniform;
use pathcast_base::{Bandwidth, Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The next moment of a Poisson process.
#[derive(Clone, Debug)]
pub struct PoissonClock {
    mean_gap_s: f64,
    next: Time,
    rng: Xoshiro256PlusPlus,
}

impl PoissonClock {
    /// A process with `rate` / 12,000 moments a second: packets of 1500 bytes at `rate`.
    pub fn new(rate: Bandwidth, rng: Xoshiro256PlusPlus) -> Self {
        let mean_gap_s = 1500.0 * 8.0 / rate.as_bps();
        let mut clock = Self {
            mean_gap_s,
            next: Time::ZERO,
            rng,
        };
        clock.draw(Time::ZERO);
        clock
    }

    fn draw(&mut self, from: Time) {
        // P(gap > t) = exp(-t / mean), inverted
        let gap_s = -self.mean_gap_s * libm::log(uniform(&mut self.rng));
        self.next = from + Span::from_secs(gap_s);
    }

    /// The next moment.
    pub const fn next(&self) -> Time {
        self.next
    }

    /// On to the moment after the next.
    #[inline]
    pub fn advance(&mut self) {
        self.draw(self.next);
    }

    /// On to the first moment after `now`. The process has no memory, so that those in between need
    /// not be drawn.
    pub fn skip_past(&mut self, now: Time) {
        if self.next <= now {
            self.draw(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use pathcast_base::seed::generator;

    use super::*;

    #[test]
    fn gaps_are_exponential_with_the_mean_of_the_rate() {
        let rate = Bandwidth::from_bps(12e6).unwrap();
        let mut clock = PoissonClock::new(rate, generator(5, "link"));
        let (mut last, mut sum, mut squares) = (Time::ZERO, 0.0, 0.0);
        for _ in 0..200_000 {
            let gap_ms = clock.next().since(last).as_secs() * 1000.0;
            (sum, squares) = (sum + gap_ms, squares + gap_ms * gap_ms);
            last = clock.next();
            clock.advance();
        }
        let (mean, second) = (sum / 2e5, squares / 2e5);
        assert!((mean - 1.0).abs() < 0.01, "{mean}"); // standard error 0.0022
        assert!((second - 2.0).abs() < 0.05, "{second}"); // E x^2 = 2 mean^2
    }
}
