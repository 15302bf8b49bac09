//! A player of adaptive video.

use pathcast_path::reader::{Field, Loader, RATE, Read, TIME, Table};
use pathcast_path::{Bandwidth, Span, Time};
use pathcast_video::{Ladder, Player, PlayerOptions, Rule};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::kind::{Kind, Next, Pace, Write};

/// A player that fetches one segment after another over one connection, each in the version that a rule chooses.
#[derive(Clone, Debug, PartialEq)]
pub struct Video {
    /// The versions of the video.
    pub ladder: Ladder,
    /// What chooses among them.
    pub rule: Rule,
    /// How the player buffers.
    pub options: PlayerOptions,
}

/// A small HTTP request with its headers.
const REQUEST_BYTES: u64 = 400;
/// Segments of a video at most: a day of 1 s.
const MOST_SEGMENTS: u64 = 86_400;

impl Video {
    /// A player of the video that has fetched nothing.
    pub fn player(&self) -> Player {
        Player::new(self.ladder.clone(), self.rule, self.options)
    }
}

impl Kind for Video {
    const NAME: &'static str = "video";
    const KEYS: &'static [&'static str] = &[
        "bitrates", "segment", "count", "sizes", "rule", "buffer", "start",
    ];
    /// The player, from its first request on, and the size of the segment that was asked for.
    type State = Option<Box<(Player, u64)>>;

    fn read(_: Field<'_, '_>, table: Table<'_, '_>, _: &mut Loader<'_>) -> Read<Self> {
        let bitrates = table.need("bitrates")?;
        let rates = bitrates.list("a list of bitrates such as [\"500 kbit/s\", \"1 Mbit/s\"]")?;
        let rates = rates.map(|rate| Ok(rate.quantity::<Bandwidth>(RATE)?.as_bps()));
        let rates = rates.collect::<Read<Vec<f64>>>()?;
        let time = |key, otherwise: f64| {
            table.or(key, otherwise, |field| {
                Ok(field.quantity::<Span>(TIME)?.as_secs())
            })
        };
        let count = table.need("count")?.whole(1, MOST_SEGMENTS)? as usize;
        let ladder = Ladder::constant(time("segment", 4.0)?, count, rates)
            .or_else(|error| bitrates.wrong(error))?;
        let ladder = match table.get("sizes") {
            None => ladder,
            Some(field) => ladder
                .with_sizes(read_sizes(field)?)
                .or_else(|error| field.wrong(error))?,
        };
        let defaults = PlayerOptions::default();
        Ok(Self {
            ladder,
            rule: table.or("rule", Rule::Dynamic, |field| field.parsed("text"))?,
            options: PlayerOptions {
                buffer_s: time("buffer", defaults.buffer_s)?,
                start_s: time("start", defaults.start_s)?,
            },
        })
    }

    fn keys_to_toml(&self) -> String {
        let seconds = Span::from_secs;
        let rates = self.ladder.bitrates_bps().iter();
        let rates: Vec<_> = rates.map(|rate| format!("\"{rate} bit/s\"")).collect();
        let sizes = match self.ladder.sizes() {
            [] => String::new(),
            sizes => format!(", sizes = {sizes:?}"),
        };
        format!(
            "bitrates = [{}], segment = \"{}\", count = {}, rule = \"{}\", buffer = \"{}\", start = \"{}\"{sizes}",
            rates.join(", "),
            seconds(self.ladder.segment_s()),
            self.ladder.count(),
            self.rule.name(),
            seconds(self.options.buffer_s),
            seconds(self.options.start_s),
        )
    }

    fn pace(&self) -> Pace {
        Pace::Answers
    }

    fn count(&self) -> Option<u64> {
        Some(self.ladder.count() as u64)
    }

    fn step(
        &self,
        state: &mut Self::State,
        at: Time,
        _: &mut Xoshiro256PlusPlus,
    ) -> (Option<Write>, Next) {
        let (player, bytes) = &mut **state.get_or_insert_with(|| Box::new((self.player(), 0)));
        match player.ask(at.as_secs()) {
            None => (None, Next::Finished),
            Some(ask) => {
                *bytes = ask.bytes;
                (Some(Write::Message(REQUEST_BYTES)), Next::Waits)
            }
        }
    }

    fn on_delivered(
        &self,
        state: &mut Self::State,
        _: u64,
        now: Time,
        _: &mut Xoshiro256PlusPlus,
    ) -> Option<Next> {
        let (player, _) = &mut **state.as_mut()?;
        Some(match player.on_arrival(now.as_secs()) {
            None => Next::Finished,
            Some(at_s) => Next::At(now + Span::from_secs(at_s - now.as_secs())),
        })
    }

    fn answer(&self, state: &mut Self::State, _: u64, _: &mut Xoshiro256PlusPlus) -> u64 {
        state.as_ref().map_or(0, |state| state.1)
    }
}

/// Sizes of segments in bytes, a list for each version.
fn read_sizes(field: Field<'_, '_>) -> Read<Vec<Vec<u64>>> {
    let versions = field.list("a list of sizes in bytes for each version")?;
    let versions = versions.map(|version| {
        let sizes = version.list("a list of sizes in bytes")?;
        sizes.map(|size| size.whole(1, 1 << 40)).collect()
    });
    versions.collect()
}

#[cfg(test)]
mod tests {
    use super::super::Workload;

    #[test]
    fn a_video_is_written_as_it_was_read() {
        for text in [
            "{ kind = 'video', bitrates = ['300 kbit/s', '1.2 Mbit/s'], count = 75 }",
            "{ kind = 'video', bitrates = ['1 Mbit/s'], segment = '2 s', count = 2, sizes = [[1000, 2000]], \
             rule = 'confident:0.95', buffer = '12 s', start = '4 s' }",
        ] {
            let video = Workload::of_value(text).unwrap();
            assert_eq!(Workload::of_value(&video.to_toml()), Ok(video));
        }
    }

    #[test]
    fn a_video_that_cannot_be_is_refused() {
        for (keys, expected) in [
            ("count = 3", "bitrates"),
            ("bitrates = [], count = 3", "at least one"),
            ("bitrates = ['2 Mbit/s', '1 Mbit/s'], count = 3", "ascend"),
            ("bitrates = ['1 Mbit/s'], count = 0", "count"),
            (
                "bitrates = ['1 Mbit/s'], count = 3, segment = '0 s'",
                "segments",
            ),
            (
                "bitrates = ['1 Mbit/s'], count = 3, sizes = [[1, 2]]",
                "sizes of 2",
            ),
            (
                "bitrates = ['1 Mbit/s'], count = 3, sizes = [[1, 2, 0]]",
                "whole number",
            ),
            (
                "bitrates = ['1 Mbit/s'], count = 3, rule = 'best'",
                "robust-mpc",
            ),
            (
                "bitrates = ['1 Mbit/s'], count = 3, rules = 'bola'",
                "rules",
            ),
        ] {
            let error = Workload::of_value(&format!("{{ kind = 'video', {keys} }}")).unwrap_err();
            assert!(error.contains(expected), "{keys}: {error}");
        }
    }
}
