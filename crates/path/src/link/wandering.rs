//! A rate that wanders, as that of a cell does.
//!
//! Opportunities are a Poisson process whose rate is random itself (a Cox process): its logarithm is an
//! Ornstein-Uhlenbeck process, in ticks of 20 ms as in Sprout's model of cellular links (Winstein and
//! others, NSDI 2013, section 3.1). There the rate itself is a Brownian motion; here it stays positive and
//! has a mean.

use pathcast_base::seed::uniform;
use pathcast_base::{Bandwidth, Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::reader::{RATE, Read, Table};

/// The rate is constant for so long.
const TICK: Span = Span::from_millis(20);

/// A rate that wanders around its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wandering {
    /// Its mean.
    pub rate: Bandwidth,
    /// Standard deviation of its logarithm, at most [`Wandering::MOST_SPREAD`].
    pub spread: f64,
    /// After this time the correlation of its logarithm has fallen to 1/e.
    pub correlation: Span,
}

impl Wandering {
    /// The largest standard deviation: beyond it, hardly anything gets through for most of the time.
    pub const MOST_SPREAD: f64 = 3.0;

    const LEAST_BPS: f64 = 1000.0;

    pub(super) const KEYS: &[&str] = &["rate", "spread", "correlation"];

    /// The table of a path file.
    pub(super) fn read(table: &Table<'_, '_>) -> Read<Self> {
        let field = table.need("spread")?;
        let spread = field.number("a number from 0 to 3")?;
        if !(0.0..=Self::MOST_SPREAD).contains(&spread) {
            return field.wrong(format!("got {spread}, expected a number from 0 to 3"));
        }
        let field = table.need("correlation")?;
        let correlation = field.some_time()?;
        if correlation < TICK {
            return field.wrong(format!("got {correlation}, expected at least {TICK}"));
        }
        let field = table.need("rate")?;
        let rate: Bandwidth = field.quantity(RATE)?;
        // the process is drawn tick by tick until the next opportunity
        if rate.as_bps() < Self::LEAST_BPS {
            return field.wrong(format!("got \"{rate}\", expected at least \"1 kbit/s\""));
        }
        Ok(Self {
            rate,
            spread,
            correlation,
        })
    }

    pub(super) fn to_toml(self) -> String {
        format!(
            "{{ kind = \"wandering\", rate = \"{}\", spread = {:?}, correlation = \"{}\" }}",
            self.rate, self.spread, self.correlation
        )
    }
}

/// The next moment of a Poisson process whose rate wanders.
#[derive(Clone, Debug)]
pub struct WanderingClock {
    mean_gap_s: f64,
    spread: f64,
    /// Correlation of the logarithm of the rate in one tick and the next.
    decay: f64,
    /// The logarithm of the rate, in standard deviations from its mean.
    level: f64,
    gap_s: f64,
    tick_end: Time,
    next: Time,
    rng: Xoshiro256PlusPlus,
}

impl WanderingClock {
    /// A process with a mean of `rate` / 12,000 moments a second: packets of 1500 bytes at `rate`.
    pub fn new(wandering: Wandering, mut rng: Xoshiro256PlusPlus) -> Self {
        let level = normal(&mut rng);
        let mut clock = Self {
            mean_gap_s: 1500.0 * 8.0 / wandering.rate.as_bps(),
            spread: wandering.spread,
            decay: libm::exp(-TICK.as_secs() / wandering.correlation.as_secs()),
            level,
            gap_s: 0.0,
            tick_end: Time::ZERO + TICK,
            next: Time::ZERO,
            rng,
        };
        clock.set_rate();
        clock.draw(Time::ZERO);
        clock
    }

    /// Sets the mean gap of this tick; the mean of a lognormal rate lies above its median.
    fn set_rate(&mut self) {
        let log = self.spread * (self.level - 0.5 * self.spread);
        self.gap_s = self.mean_gap_s * libm::exp(-log);
    }

    /// On by `ticks` ticks.
    fn tick(&mut self, ticks: u64) {
        let kept = libm::pow(self.decay, ticks as f64);
        self.level = kept * self.level + libm::sqrt(1.0 - kept * kept) * normal(&mut self.rng);
        self.tick_end += Span::from_nanos(TICK.as_nanos().saturating_mul(ticks));
        self.set_rate();
    }

    /// Draws the first moment after `from`, which is in this tick. Gaps have no memory, so that one that
    /// crosses the end of the tick is drawn anew from there.
    fn draw(&mut self, mut from: Time) {
        loop {
            let gap_s = -self.gap_s * libm::log(uniform(&mut self.rng));
            if gap_s <= self.tick_end.since(from).as_secs() {
                self.next = from + Span::from_secs(gap_s);
                return;
            }
            from = self.tick_end;
            self.tick(1);
        }
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

    /// On to the first moment after `now`. Those in between need not be drawn.
    pub fn skip_past(&mut self, now: Time) {
        if self.next > now {
            return;
        }
        if now > self.tick_end {
            let beyond = now.since(self.tick_end).as_nanos();
            self.tick(beyond.div_ceil(TICK.as_nanos()));
        }
        self.draw(now);
    }
}

/// A standard normal draw (Box and Muller 1958).
fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(uniform(rng)));
    radius * libm::cos(2.0 * std::f64::consts::PI * uniform(rng))
}

#[cfg(test)]
mod tests {
    use pathcast_base::seed::generator;

    use super::*;

    fn clock(spread: f64, correlation_ms: u64, seed: u64) -> WanderingClock {
        let wandering = Wandering {
            rate: Bandwidth::from_bps(12e6).unwrap(),
            spread,
            correlation: Span::from_millis(correlation_ms),
        };
        WanderingClock::new(wandering, generator(seed, "link"))
    }

    /// Moments in each `bin_ms` of `bins` bins.
    fn counts(clock: &mut WanderingClock, bin_ms: u64, bins: usize) -> Vec<f64> {
        let mut found = vec![0.0; bins];
        loop {
            let bin = clock.next().as_nanos() / (bin_ms * 1_000_000);
            match found.get_mut(bin as usize) {
                Some(count) => *count += 1.0,
                None => return found,
            }
            clock.advance();
        }
    }

    fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
        let count = values.len() as f64;
        values.sum::<f64>() / count
    }

    #[test]
    fn the_rate_has_its_mean_spread_and_correlation() {
        // 1000 moments a second, in bins of a tick; 40,000 s hold 80,000 times of correlation
        let found = counts(&mut clock(0.5, 500, 7), 20, 2_000_000);
        let average = mean(found.iter().copied());
        assert!((average / 20.0 - 1.0).abs() < 0.01, "{average}"); // standard error 0.003
        let covariance = |lag: usize| {
            let products = found.iter().zip(&found[lag..]);
            mean(products.map(|(a, b)| (a - average) * (b - average)))
        };
        // of a lognormal: mean^2 (exp(spread^2 correlation) - 1)
        for (lag, correlation) in [(1_usize, 0.96079_f64), (25, 0.36788), (50, 0.13534)] {
            let told = 400.0 * libm::expm1(0.25 * correlation);
            let ratio = covariance(lag) / told;
            assert!((ratio - 1.0).abs() < 0.08, "lag {lag}: {ratio}");
        }
    }

    #[test]
    fn without_spread_it_is_a_poisson_process() {
        let found = counts(&mut clock(0.0, 500, 3), 10, 100_000);
        let average = mean(found.iter().copied());
        let variance = mean(
            found
                .iter()
                .map(|count| (count - average) * (count - average)),
        );
        assert!((average / 10.0 - 1.0).abs() < 0.01, "{average}"); // standard error 0.001
        assert!((variance / 10.0 - 1.0).abs() < 0.02, "{variance}"); // 0.0045
    }

    #[test]
    fn skipping_ends_after_now_and_keeps_the_rate() {
        let mut near = 0.0;
        let mut far = 0.0;
        for seed in 1..=4000 {
            let mut clock = clock(1.0, 200, seed);
            let before = clock.level;
            clock.skip_past(Time::from_nanos(19_999_999));
            assert!(clock.next() > Time::from_nanos(19_999_999));
            let mut skipped = clock.clone();
            skipped.skip_past(Time::from_nanos(60_000_000));
            assert!(skipped.next() > Time::from_nanos(60_000_000));
            near += before * skipped.level / 4000.0;
            skipped.skip_past(Time::from_nanos(10_000_000_000));
            assert!(skipped.next().since(Time::from_nanos(10_000_000_000)) < Span::from_secs(9.0));
            far += before * skipped.level / 4000.0;
        }
        // two to three ticks on: exp(-0.25) or so; long after: nothing
        assert!((0.6..0.85).contains(&near), "{near}");
        assert!(far.abs() < 0.06, "{far}"); // standard error 0.016
    }
}
