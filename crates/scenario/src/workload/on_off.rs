//! Times of sending and of silence.

use pathcast_path::reader::{Field, Loader, Read, TIME, Table};
use pathcast_path::{Bandwidth, Size, Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::kind::{Kind, Next, Pace, Write};
use super::portions::{interval_s, read_portion, read_rate};
use crate::varying::Varying;

/// Times of sending and times of silence, whatever the network does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnOff {
    /// How long it sends.
    pub on: Varying<Span>,
    /// How long it is silent.
    pub off: Varying<Span>,
    /// At which rate and in which portions; none: as much as the network takes.
    pub rate: Option<(Bandwidth, Size)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) enum Phase {
    #[default]
    Silent,
    /// It sends as much as is taken.
    Greedy,
    /// It has `written` portions since `begin`, and sends until `end`.
    Portions {
        begin: Time,
        written: u64,
        end: Time,
    },
}

impl Kind for OnOff {
    const NAME: &'static str = "on-off";
    const KEYS: &'static [&'static str] = &["on", "off", "rate", "portion"];
    type State = Phase;

    fn read(_: Field<'_, '_>, table: Table<'_, '_>, _: &mut Loader<'_>) -> Read<Self> {
        let rate = match table.get("rate") {
            Some(field) => {
                let portion = read_portion(table)?;
                Some((read_rate(field, portion)?, portion))
            }
            None => match table.get("portion") {
                Some(field) => return field.wrong("needs a `rate` beside it"),
                None => None,
            },
        };
        let on = Varying::read(table.need("on")?, TIME)?;
        let off = Varying::read(table.need("off")?, TIME)?;
        if on.mean == Span::ZERO {
            return table.need("on")?.wrong("expected more than no time");
        }
        Ok(Self { on, off, rate })
    }

    fn keys_to_toml(&self) -> String {
        let rate = self.rate.map_or(String::new(), |(rate, portion)| {
            format!(", rate = \"{rate}\", portion = \"{portion}\"")
        });
        format!(
            "on = {}, off = {}{rate}",
            self.on.to_toml(),
            self.off.to_toml()
        )
    }

    fn pace(&self) -> Pace {
        match self.rate {
            Some(_) => Pace::Open,
            None => Pace::Greedy,
        }
    }

    fn largest_write(&self) -> Option<Size> {
        self.rate.map(|(_, portion)| portion)
    }

    fn step(
        &self,
        state: &mut Phase,
        at: Time,
        rng: &mut Xoshiro256PlusPlus,
    ) -> (Option<Write>, Next) {
        match (&mut *state, self.rate) {
            (Phase::Silent, None) => {
                *state = Phase::Greedy;
                (Some(Write::Endless), Next::At(at + self.on.span(rng)))
            }
            (Phase::Silent, Some(_)) => {
                *state = Phase::Portions {
                    begin: at,
                    written: 0,
                    end: at + self.on.span(rng),
                };
                (None, Next::At(at)) // its first portion is due now
            }
            (
                Phase::Portions {
                    begin,
                    written,
                    end,
                },
                Some((rate, portion)),
            ) if at < *end => {
                *written += 1;
                let elapsed_s = *written as f64 * interval_s(rate, portion);
                let next = (*begin + Span::from_secs(elapsed_s)).min(*end);
                (Some(Write::Message(portion.as_bytes())), Next::At(next))
            }
            (Phase::Portions { end, .. }, _) => {
                let next = *end + self.off.span(rng);
                *state = Phase::Silent;
                (None, Next::At(next))
            }
            (Phase::Greedy, _) => {
                *state = Phase::Silent;
                (Some(Write::Stop), Next::At(at + self.off.span(rng)))
            }
        }
    }
}
