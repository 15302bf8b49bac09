//! A portion now and then.

use pathcast_path::reader::{Field, Loader, Read, Table};
use pathcast_path::seed::uniform;
use pathcast_path::{Bandwidth, Size, Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::kind::{Kind, Next, Pace, Write, count_to_toml, read_count};
use super::portions::{interval_s, read_portion, read_rate};

/// A portion now and then, whatever the network does: a probe, a call, a game.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConstantRate {
    /// Payload bits a second, in the mean.
    pub rate: Bandwidth,
    /// Payload of each write.
    pub portion: Size,
    /// How writes lie in time.
    pub arrivals: Arrivals,
    /// How many writes; none: no end of them.
    pub count: Option<u64>,
}

/// How the writes of a source of constant rate lie in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal intervals.
    Periodic,
    /// A Poisson process.
    Poisson,
}

/// Writes since `begin`, and how long after it the last one was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    begin: Option<Time>,
    written: u64,
    elapsed_s: f64,
}

impl Kind for ConstantRate {
    const NAME: &'static str = "constant-rate";
    const KEYS: &'static [&'static str] = &["rate", "portion", "arrivals", "count"];
    type State = Series;

    fn read(_: Field<'_, '_>, table: Table<'_, '_>, _: &mut Loader<'_>) -> Read<Self> {
        let rate = table.need("rate")?;
        let portion = read_portion(table)?;
        Ok(Self {
            rate: read_rate(rate, portion)?,
            portion,
            arrivals: table.or("arrivals", Arrivals::Periodic, |field| {
                match field.text("\"periodic\" or \"poisson\"")? {
                    "periodic" => Ok(Arrivals::Periodic),
                    "poisson" => Ok(Arrivals::Poisson),
                    other => field.wrong(format_args!(
                        "got {other:?}, expected \"periodic\" or \"poisson\""
                    )),
                }
            })?,
            count: read_count(table)?,
        })
    }

    fn keys_to_toml(&self) -> String {
        let arrivals = match self.arrivals {
            Arrivals::Periodic => "periodic",
            Arrivals::Poisson => "poisson",
        };
        let (rate, portion, count) = (self.rate, self.portion, count_to_toml(self.count));
        format!("rate = \"{rate}\", portion = \"{portion}\", arrivals = \"{arrivals}\"{count}")
    }

    fn pace(&self) -> Pace {
        Pace::Open
    }

    fn largest_write(&self) -> Option<Size> {
        Some(self.portion)
    }

    fn count(&self) -> Option<u64> {
        self.count
    }

    fn step(
        &self,
        state: &mut Series,
        at: Time,
        rng: &mut Xoshiro256PlusPlus,
    ) -> (Option<Write>, Next) {
        let begin = *state.begin.get_or_insert(at);
        let interval_s = interval_s(self.rate, self.portion);
        state.written += 1;
        state.elapsed_s = match self.arrivals {
            // multiplied, not added up: an hour of probes does not drift
            Arrivals::Periodic => state.written as f64 * interval_s,
            Arrivals::Poisson => state.elapsed_s - libm::log(uniform(rng)) * interval_s,
        };
        let next = begin + Span::from_secs(state.elapsed_s);
        (
            Some(Write::Message(self.portion.as_bytes())),
            Next::At(next),
        )
    }
}
