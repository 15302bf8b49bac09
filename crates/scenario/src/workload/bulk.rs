//! As much as the network takes.

use pathcast_path::Time;
use pathcast_path::reader::{Field, Loader, Read, Table};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::kind::{Kind, Next, Pace, Write};

/// As much as the network takes, until the flow is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bulk;

impl Kind for Bulk {
    const NAME: &'static str = "bulk";
    const KEYS: &'static [&'static str] = &[];
    type State = ();

    fn read(_: Field<'_, '_>, _: Table<'_, '_>, _: &mut Loader<'_>) -> Read<Self> {
        Ok(Self)
    }

    fn keys_to_toml(&self) -> String {
        String::new()
    }

    fn pace(&self) -> Pace {
        Pace::Greedy
    }

    fn step(&self, (): &mut (), _: Time, _: &mut Xoshiro256PlusPlus) -> (Option<Write>, Next) {
        (Some(Write::Endless), Next::Waits)
    }
}
