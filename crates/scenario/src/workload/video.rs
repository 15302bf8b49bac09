//! A player of adaptive video.

use std::collections::VecDeque;

use pathcast_path::reader::{Field, Loader, RATE, Read, SIZE, TIME, Table};
use pathcast_path::{Bandwidth, Size, Span, Time};
use pathcast_video::{Abandon, LOOKS_EVERY_S, Ladder, Player, PlayerOptions, Rule, SessionReport};
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
    /// What may wait unsent in the server's socket (`TCP_NOTSENT_LOWAT`); none: as much as the kernel takes.
    pub unsent: Option<Size>,
}

/// A player at work, and the server of its video.
#[derive(Clone, Debug, Default)]
pub struct Playing {
    /// From its first request on.
    player: Option<Box<Player>>,
    /// The backend reports how far answers are.
    watched: bool,
    /// Requests so far; the newest is for what the player waits for.
    requests: u64,
    waits: bool,
    /// Bytes of the newest answer that have arrived.
    came: u64,
    /// Those that the server has not answered, by their numbers: the size of the answer, and whether it is instead of the one
    /// before.
    unanswered: VecDeque<(u64, u64, bool)>,
}

impl Playing {
    /// How the session went so far; none before the first request.
    pub(super) fn report(&self) -> Option<SessionReport> {
        self.player.as_ref().map(|player| player.report())
    }

    fn request(&mut self, bytes: u64, instead: bool) -> Write {
        self.unanswered.push_back((self.requests, bytes, instead));
        self.requests += 1;
        (self.waits, self.came) = (true, 0);
        Write::Message(REQUEST_BYTES)
    }
}

/// A small HTTP request with its headers.
const REQUEST_BYTES: u64 = 400;
/// A smaller `TCP_NOTSENT_LOWAT` may leave the path idle.
const LEAST_UNSENT: u64 = 4096;
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
        "bitrates", "segment", "count", "sizes", "rule", "buffer", "start", "abandon", "unsent",
    ];
    type State = Playing;

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
        let rule = table.or("rule", Rule::Dynamic, |field| field.parsed("text"))?;
        let abandon = table.or("abandon", Abandon::Own, |field| {
            let abandon: Abandon = field.parsed("text")?;
            match (abandon, rule) {
                (Abandon::Plan, Rule::Mpc(_)) => Ok(abandon),
                (Abandon::Plan, _) => field.wrong("got \"plan\"; expected a rule that plans: mpc"),
                _ => Ok(abandon),
            }
        })?;
        Ok(Self {
            ladder,
            rule,
            options: PlayerOptions {
                buffer_s: time("buffer", defaults.buffer_s)?,
                start_s: time("start", defaults.start_s)?,
                abandon,
            },
            unsent: match table.get("unsent") {
                None => None,
                Some(field) => match field.quantity::<Size>(SIZE)? {
                    unsent if LEAST_UNSENT <= unsent.as_bytes() => Some(unsent),
                    unsent => field.wrong(format_args!(
                        "got {unsent}, expected at least {LEAST_UNSENT} B"
                    ))?,
                },
            },
        })
    }

    fn keys_to_toml(&self) -> String {
        let seconds = Span::from_secs;
        let unsent = self.unsent.map(|unsent| format!(", unsent = \"{unsent}\""));
        let rates = self.ladder.bitrates_bps().iter();
        let rates: Vec<_> = rates.map(|rate| format!("\"{rate} bit/s\"")).collect();
        let sizes = match self.ladder.sizes() {
            [] => String::new(),
            sizes => format!(", sizes = {sizes:?}"),
        };
        format!(
            "bitrates = [{}], segment = \"{}\", count = {}, rule = \"{}\", buffer = \"{}\", start = \"{}\", abandon = \"{}\"{sizes}{}",
            rates.join(", "),
            seconds(self.ladder.segment_s()),
            self.ladder.count(),
            self.rule.name(),
            seconds(self.options.buffer_s),
            seconds(self.options.start_s),
            self.options.abandon.name(),
            unsent.unwrap_or_default(),
        )
    }

    fn pace(&self) -> Pace {
        Pace::Answers
    }

    fn step(
        &self,
        state: &mut Self::State,
        at: Time,
        _: &mut Xoshiro256PlusPlus,
    ) -> (Option<Write>, Next) {
        let player = (state.player).get_or_insert_with(|| Box::new(self.player()));
        let next = match state.watched {
            true => Next::At(at + Span::from_secs(LOOKS_EVERY_S)),
            false => Next::Waits,
        };
        if state.waits {
            let instead = player.on_progress(at.as_secs(), state.came);
            return (instead.map(|ask| state.request(ask.bytes, true)), next);
        }
        match player.ask(at.as_secs()) {
            None => (None, Next::Finished),
            Some(ask) => (Some(state.request(ask.bytes, false)), next),
        }
    }

    fn on_delivered(
        &self,
        state: &mut Self::State,
        message: u64,
        now: Time,
        _: &mut Xoshiro256PlusPlus,
    ) -> Option<Next> {
        // what was given up may come to its end too
        if message + 1 != state.requests {
            return None;
        }
        state.waits = false;
        Some(match state.player.as_mut()?.on_arrival(now.as_secs()) {
            None => Next::Finished,
            Some(at_s) => Next::At(now + Span::from_secs(at_s - now.as_secs())),
        })
    }

    fn watch(&self, state: &mut Self::State) {
        state.watched = true;
    }

    fn on_progress(&self, state: &mut Self::State, now: Time, request: u64, bytes: u64) {
        if request + 1 == state.requests && bytes > 0 {
            if let Some(player) = &mut state.player
                && state.came == 0
            {
                player.on_first_byte(now.as_secs());
            }
            state.came = bytes;
        }
    }

    fn gives_up(&self, state: &mut Self::State, request: u64) -> Option<u64> {
        let asked = state.unanswered.iter().find(|one| one.0 == request)?;
        asked.2.then(|| request - 1)
    }

    fn answer(&self, state: &mut Self::State, request: u64, _: &mut Xoshiro256PlusPlus) -> u64 {
        let at = state.unanswered.iter().position(|one| one.0 == request);
        let asked = at.and_then(|at| state.unanswered.remove(at));
        asked.map_or(0, |(_, bytes, _)| bytes)
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
    use super::*;
    use crate::application::{Application, Message};
    use crate::scenario::FlowSpec;
    use crate::transport::Transport;

    #[test]
    fn a_video_is_written_as_it_was_read() {
        for text in [
            "{ kind = 'video', bitrates = ['300 kbit/s', '1.2 Mbit/s'], count = 75 }",
            "{ kind = 'video', bitrates = ['1 Mbit/s'], segment = '2 s', count = 2, sizes = [[1000, 2000]], \
             rule = 'confident:0.95', buffer = '12 s', start = '4 s', abandon = 'hls.js', unsent = '16 kB' }",
        ] {
            let video = Workload::of_value(text).unwrap();
            assert_eq!(Workload::of_value(&video.to_toml()), Ok(video));
        }
    }

    /// A player that asked for its second segment 1 s after the first had come, and whose backend reports how far answers are.
    fn playing() -> (Application, Message) {
        let text = "{ kind = 'video', bitrates = ['100 kbit/s', '2 Mbit/s'], count = 3, rule = 'dash.js' }";
        let spec = FlowSpec {
            workload: Workload::of_value(text).unwrap(),
            ..FlowSpec::bulk(Transport::by_scheme("reno"))
        };
        let application = Application::new(&spec, Time::ZERO, 1, 0);
        let mut application = application.watched(&spec.workload);
        let first = request(&mut application, 0.0).unwrap();
        let answer = application.on_delivered(at(0.01), &first).unwrap();
        assert_eq!((answer.bytes, application.take_given_up()), (50_000, None));
        application.on_delivered(at(0.02), &answer);
        let second = request(&mut application, 0.02).unwrap();
        (application, second)
    }

    fn at(seconds: f64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    fn request(application: &mut Application, now: f64) -> Option<Message> {
        match application.write(at(now))? {
            Write::Message(message) => Some(message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_given_up_ends_and_is_asked_for_again() {
        let (mut application, second) = playing();
        assert!(application.looks());
        let answer = application.on_delivered(at(0.03), &second).unwrap();
        assert_eq!((answer.number, answer.bytes), (1, 1_000_000));
        application.on_progress(at(0.1), 1, 1448);
        // 20 kB in 1 s: it would take 50 s
        application.on_progress(at(1.0), 1, 20_000);
        let third = (10..15).find_map(|tenth| request(&mut application, f64::from(tenth) / 10.0));
        let third = third.unwrap();
        let instead = application.on_delivered(at(1.6), &third).unwrap();
        assert_eq!((instead.number, instead.bytes), (2, 50_000));
        assert_eq!(application.take_given_up(), Some(1));
        assert_eq!(application.take_given_up(), None);
        // the rest of what was given up is no segment
        application.on_delivered(at(1.7), &answer);
        assert_eq!(application.video().unwrap().segments.len(), 1);
        application.on_delivered(at(2.0), &instead);
        let video = application.video().unwrap();
        assert_eq!((video.abandoned, video.wasted_bytes), (1, 20_000));
        assert_eq!(video.segments[1].version, 0);
        assert!((video.segments[1].took_s - 1.98).abs() < 1e-9);
    }

    #[test]
    fn a_player_that_is_told_nothing_waits() {
        let spec = FlowSpec {
            workload: Workload::of_value("{ kind = 'video', bitrates = ['1 Mbit/s'], count = 3 }")
                .unwrap(),
            ..FlowSpec::bulk(Transport::by_scheme("reno"))
        };
        let mut application = Application::new(&spec, Time::ZERO, 1, 0);
        assert!(!application.looks());
        request(&mut application, 0.0).unwrap();
        assert_eq!(application.next_write(), None);
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
            (
                "bitrates = ['1 Mbit/s'], count = 3, unsent = '4 B'",
                "at least 4096 B",
            ),
            (
                "bitrates = ['1 Mbit/s'], count = 3, abandon = 'always'",
                "hls.js",
            ),
            (
                "bitrates = ['1 Mbit/s'], count = 3, rule = 'bola', abandon = 'plan'",
                "mpc",
            ),
        ] {
            let error = Workload::of_value(&format!("{{ kind = 'video', {keys} }}")).unwrap_err();
            assert!(error.contains(expected), "{keys}: {error}");
        }
    }
}
