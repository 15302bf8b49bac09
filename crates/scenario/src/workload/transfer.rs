//! One transfer after another.

use pathcast_path::reader::{Field, Loader, Read, SIZE, TIME, Table};
use pathcast_path::{Size, Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::kind::{Kind, Next, Pace, Write, count_to_toml, read_count};
use crate::varying::Varying;

/// One transfer after another over the same connection, each some time after the one before has
/// arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Of each.
    pub size: Varying<Size>,
    /// From the arrival of one to the beginning of the next.
    pub pause: Varying<Span>,
    /// How many; none: no end of them.
    pub count: Option<u64>,
}

impl Kind for Transfer {
    const NAME: &'static str = "transfer";
    const KEYS: &'static [&'static str] = &["size", "pause", "count"];
    type State = ();

    fn read(_: Field<'_, '_>, table: Table<'_, '_>, _: &mut Loader<'_>) -> Read<Self> {
        let once = table.get("pause").is_none() && table.get("count").is_none();
        Ok(Self {
            size: Varying::read(table.need("size")?, SIZE)?,
            pause: table.or("pause", Varying::fixed(Span::ZERO), |field| {
                Varying::read(field, TIME)
            })?,
            count: if once { Some(1) } else { read_count(table)? },
        })
    }

    fn keys_to_toml(&self) -> String {
        let (size, pause) = (self.size.to_toml(), self.pause.to_toml());
        format!(
            "size = {size}, pause = {pause}{}",
            count_to_toml(self.count)
        )
    }

    fn pace(&self) -> Pace {
        Pace::Arrivals
    }

    fn count(&self) -> Option<u64> {
        self.count
    }

    fn step(&self, (): &mut (), _: Time, rng: &mut Xoshiro256PlusPlus) -> (Option<Write>, Next) {
        (Some(Write::Message(self.size.bytes(rng))), Next::Waits)
    }

    fn on_delivered(
        &self,
        (): &mut (),
        _: u64,
        now: Time,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Option<Next> {
        Some(Next::At(now + self.pause.span(rng)))
    }
}
