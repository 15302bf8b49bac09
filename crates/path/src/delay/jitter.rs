//! Delay that varies from packet to packet.

use pathcast_base::Span;
use pathcast_base::seed::uniform;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::reader::{Read, TIME, Table};

/// How what comes on top of the least delay is distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Evenly from 0 to `jitter`.
    Uniform,
    /// Exponentially with mean `jitter`.
    Exponential,
}

/// A delay of `base` and a random part, drawn for each packet.
///
/// With `reorder`, each packet has its own delay, so that one may overtake another, as with netem.
/// Without, a packet that would overtake waits for the one ahead of it, as on a radio link that
/// delivers in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// The least delay.
    pub base: Span,
    /// Size of the random part.
    pub jitter: Span,
    /// Shape of the random part.
    pub distribution: Distribution,
    /// Whether packets may overtake each other.
    pub reorder: bool,
}

impl Jitter {
    /// The delay of one packet.
    #[inline]
    pub fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> Span {
        let u = uniform(rng);
        let share = match self.distribution {
            Distribution::Uniform => u,
            Distribution::Exponential => -libm::log(u),
        };
        self.base + Span::from_secs(self.jitter.as_secs() * share)
    }
}

impl Jitter {
    pub(super) const KEYS: &[&str] = &["base", "jitter", "distribution", "reorder"];

    pub(super) fn read(table: Table<'_, '_>) -> Read<Self> {
        let distribution = table.or("distribution", Distribution::Uniform, |field| match field
            .text("\"uniform\" or \"exponential\"")?
        {
            "uniform" => Ok(Distribution::Uniform),
            "exponential" => Ok(Distribution::Exponential),
            other => field.wrong(format_args!(
                "got {other:?}, expected \"uniform\" or \"exponential\""
            )),
        })?;
        Ok(Self {
            base: table.need("base")?.quantity(TIME)?,
            jitter: table.need("jitter")?.quantity(TIME)?,
            distribution,
            reorder: table.or("reorder", false, |field| field.boolean())?,
        })
    }

    pub(super) fn to_toml(self) -> String {
        let Self {
            base,
            jitter,
            distribution,
            reorder,
        } = self;
        let distribution = match distribution {
            Distribution::Uniform => "uniform",
            Distribution::Exponential => "exponential",
        };
        format!(
            "{{ kind = \"jitter\", base = \"{base}\", jitter = \"{jitter}\", \
             distribution = \"{distribution}\", reorder = {reorder} }}"
        )
    }
}

#[cfg(test)]
mod tests {
    use pathcast_base::Time;
    use pathcast_base::seed::generator;

    use super::*;
    use crate::delay::{Delay, DelaySpec};

    fn jitter(distribution: Distribution, reorder: bool) -> Jitter {
        Jitter {
            base: Span::from_millis(10),
            jitter: Span::from_millis(4),
            distribution,
            reorder,
        }
    }

    #[test]
    fn delays_have_the_mean_of_their_distribution() {
        for (distribution, mean_ms) in [
            (Distribution::Uniform, 12.0),
            (Distribution::Exponential, 14.0),
        ] {
            let mut rng = generator(1, "delay");
            let jitter = jitter(distribution, true);
            let sum: f64 = (0..200_000).map(|_| jitter.draw(&mut rng).as_secs()).sum();
            assert!((sum / 200.0 - mean_ms).abs() < 0.05, "{}", sum / 200.0);
        }
    }

    #[test]
    fn only_with_reordering_do_packets_overtake() {
        for reorder in [false, true] {
            let spec = DelaySpec::Jitter(jitter(Distribution::Uniform, reorder));
            let mut delay = Delay::new(spec, generator(1, "delay"));
            let dues: Vec<Time> = (0..1000)
                .map(|n| delay.due(Time::from_nanos(n * 100_000)))
                .collect();
            assert_eq!(dues.is_sorted(), !reorder);
        }
    }
}
