//! A player: what it fetches when, and what the viewer sees.

use crate::ladder::Ladder;
use crate::rules::{Abandon, Chooser, Progress, Rule, Seen, Watcher};
use crate::session::{Segment, Session, SessionReport};

/// How a player buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlayerOptions {
    /// It asks for no more while it has so much to play, in seconds.
    pub buffer_s: f64,
    /// It begins to play with so much, at first and after a stall, in seconds; one segment is always enough.
    pub start_s: f64,
    /// When it gives up a download.
    pub abandon: Abandon,
}

impl Default for PlayerOptions {
    fn default() -> Self {
        Self {
            buffer_s: 30.0,
            start_s: 0.0,
            abandon: Abandon::Own,
        }
    }
}

/// A player looks at a download so often, in seconds.
pub const LOOKS_EVERY_S: f64 = 0.1;

/// A request for a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// From 0.
    pub segment: usize,
    /// From 0, by ascending bitrate.
    pub version: usize,
    /// Its size.
    pub bytes: u64,
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    ask: Ask,
    at_s: f64,
    /// When the segment was first asked for, and what there was to play.
    first_s: f64,
    buffer_s: f64,
    /// When the first of it came, as far as that is known.
    first_byte_s: Option<f64>,
    /// Downloads of it that were given up, and what had come of them.
    abandoned: usize,
    wasted_bytes: u64,
}

/// A player of one video. Times are in seconds, ascending.
#[derive(Clone, Debug)]
pub struct Player {
    ladder: Ladder,
    options: PlayerOptions,
    rule: Rule,
    chooser: Chooser,
    watcher: Watcher,
    /// What is there to play at `at_s`.
    buffer_s: f64,
    plays: bool,
    at_s: f64,
    /// Stalled since the last segment arrived, in seconds, and all in all; before the first picture nothing stalls.
    stalled_s: f64,
    began_s: Option<f64>,
    asked: Option<Asked>,
    session: Session,
}

impl Player {
    /// A player that has fetched nothing.
    pub fn new(ladder: Ladder, rule: Rule, options: PlayerOptions) -> Self {
        Self {
            rule,
            chooser: Chooser::new(rule, &ladder, &options),
            watcher: Watcher::new(options.abandon, rule),
            session: Session::new(&ladder),
            ladder,
            options,
            buffer_s: 0.0,
            plays: false,
            at_s: 0.0,
            stalled_s: 0.0,
            began_s: None,
            asked: None,
        }
    }

    /// Chooses the next segment at `now_s`, which is to be fetched now; none if all were.
    pub fn ask(&mut self, now_s: f64) -> Option<Ask> {
        let segment = self.session.segments.len();
        if segment == self.ladder.count() || self.asked.is_some() {
            return None;
        }
        self.began_s.get_or_insert(now_s);
        self.play_until(now_s);
        let seen = seen(&self.ladder, &self.options, &self.session, self.buffer_s);
        let version = self.chooser.choose(&seen);
        let ask = self.request(version);
        self.asked = Some(Asked {
            ask,
            at_s: now_s,
            first_s: now_s,
            buffer_s: self.buffer_s,
            first_byte_s: None,
            abandoned: 0,
            wasted_bytes: 0,
        });
        Some(ask)
    }

    /// A request for a version of the next segment.
    fn request(&self, version: usize) -> Ask {
        let segment = self.session.segments.len();
        Ask {
            segment,
            version,
            bytes: self.ladder.bytes(version, segment),
        }
    }

    /// Whether its backend is to report how far downloads are, every [`LOOKS_EVERY_S`].
    pub const fn looks(&self) -> bool {
        self.watcher.looks()
    }

    /// The first byte of what was asked for comes; later bytes change nothing.
    pub fn on_first_byte(&mut self, now_s: f64) {
        if let Some(asked) = &mut self.asked {
            asked.first_byte_s.get_or_insert(now_s);
        }
    }

    /// So many bytes of what was asked for have come by `now_s`: what it asks for instead, if it gives that up.
    pub fn on_progress(&mut self, now_s: f64, bytes: u64) -> Option<Ask> {
        let asked = self.asked?;
        self.play_until(now_s);
        let came = 8.0 * bytes as f64;
        let progress = Progress {
            version: asked.ask.version,
            bits: self.ladder.bits(asked.ask.version, asked.ask.segment),
            came,
            asked_s: now_s - asked.at_s,
            began_s: asked.first_byte_s.map(|first_s| now_s - first_s),
        };
        let seen = seen(&self.ladder, &self.options, &self.session, self.buffer_s);
        let again = asked.abandoned > 0;
        let version = (self.watcher).instead(&seen, &progress, &mut self.chooser, again)?;
        self.learn(&asked, now_s, came);
        let ask = self.request(version);
        self.asked = Some(Asked {
            ask,
            at_s: now_s,
            first_byte_s: None,
            abandoned: asked.abandoned + 1,
            wasted_bytes: asked.wasted_bytes + bytes,
            ..asked
        });
        Some(ask)
    }

    /// So many bits of what was asked for came until `now_s`.
    fn learn(&mut self, asked: &Asked, now_s: f64, bits: f64) {
        let took_s = now_s - asked.at_s;
        let first_s = asked.first_byte_s.map(|first_s| first_s - asked.at_s);
        self.chooser.learn(took_s, bits);
        self.watcher.learn(took_s, bits, first_s);
    }

    /// The segment that was asked for has come: when the next one is to be asked for; none if that was the last.
    pub fn on_arrival(&mut self, now_s: f64) -> Option<f64> {
        let asked = self.asked.take()?;
        let ask = asked.ask;
        self.play_until(now_s);
        self.buffer_s += self.ladder.segment_s();
        let whole = ask.segment + 1 == self.ladder.count();
        if !self.plays && (self.buffer_s >= self.options.start_s || whole) {
            self.plays = true;
            let began_s = self.began_s.unwrap_or(asked.first_s);
            self.session.startup_s.get_or_insert(now_s - began_s);
        }
        self.session.push(Segment {
            version: ask.version,
            bitrate_bps: self.ladder.bitrates_bps()[ask.version],
            bytes: ask.bytes,
            abandoned: asked.abandoned,
            wasted_bytes: asked.wasted_bytes,
            asked_s: asked.first_s,
            took_s: now_s - asked.first_s,
            buffer_s: asked.buffer_s,
            stalled_s: std::mem::take(&mut self.stalled_s),
        });
        self.learn(&asked, now_s, 8.0 * ask.bytes as f64);
        // a segment more must fit
        let over_s = self.buffer_s + self.ladder.segment_s() - self.options.buffer_s;
        (!whole).then(|| {
            now_s
                + if self.plays {
                    over_s.clamp(0.0, self.buffer_s)
                } else {
                    0.0
                }
        })
    }

    /// How the session went so far, for reports.
    pub fn report(&self) -> SessionReport {
        self.session.report(self.rule.name())
    }

    /// How the session went so far.
    pub const fn session(&self) -> &Session {
        &self.session
    }

    /// Plays what is there.
    fn play_until(&mut self, now_s: f64) {
        let passed_s = (now_s - self.at_s).max(0.0);
        self.at_s = self.at_s.max(now_s);
        if self.plays {
            let played_s = passed_s.min(self.buffer_s);
            self.buffer_s -= played_s;
            if passed_s > played_s + 1e-9 {
                self.plays = false;
                self.stalled_s += passed_s - played_s;
            }
        } else if self.session.startup_s.is_some() {
            self.stalled_s += passed_s;
        }
    }
}

/// What rules look at before the next segment is there.
fn seen<'a>(
    ladder: &'a Ladder,
    options: &'a PlayerOptions,
    session: &Session,
    buffer_s: f64,
) -> Seen<'a> {
    Seen {
        ladder,
        options,
        segment: session.segments.len(),
        buffer_s,
        last: session.segments.last().map(|one| one.version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder() -> Ladder {
        Ladder::constant(4.0, 5, vec![1e6, 2e6]).unwrap()
    }

    /// Each segment takes as long as `took` says.
    fn watch(options: PlayerOptions, took: [f64; 5]) -> (Session, Vec<f64>) {
        let mut player = Player::new(ladder(), Rule::Fixed(0), options);
        let (mut now, mut asked) = (1.0, Vec::new());
        for took in took {
            assert_eq!(player.ask(now).unwrap().bytes, 500_000);
            assert!(player.ask(now).is_none());
            asked.push(now);
            now += took;
            now = player.on_arrival(now).unwrap_or(now);
        }
        assert!(player.ask(now).is_none());
        (player.session().clone(), asked)
    }

    #[test]
    fn a_buffer_that_runs_out_stalls_and_a_full_one_waits() {
        let (session, asked) = watch(PlayerOptions::default(), [1.0, 6.0, 1.0, 1.0, 1.0]);
        // the first at 2; 4 s of it last to 6, the second comes at 8
        assert_eq!(session.startup_s, Some(1.0));
        let stalls: Vec<f64> = session.segments.iter().map(|one| one.stalled_s).collect();
        assert_eq!(stalls, [0.0, 2.0, 0.0, 0.0, 0.0]);
        assert_eq!(asked, [1.0, 2.0, 8.0, 9.0, 10.0]);
        let small = PlayerOptions {
            buffer_s: 8.0,
            ..PlayerOptions::default()
        };
        let (session, asked) = watch(small, [1.0; 5]);
        // two segments at 3, of which one second was played: the third is asked for when 4 s are left
        assert_eq!(asked, [1.0, 2.0, 6.0, 10.0, 14.0]);
        assert!(session.stalled_s() < 1e-9);
    }

    #[test]
    fn playback_begins_with_what_was_asked_for() {
        let patient = PlayerOptions {
            buffer_s: 30.0,
            start_s: 8.0,
            ..PlayerOptions::default()
        };
        let (session, _) = watch(patient, [1.0, 2.0, 10.0, 1.0, 1.0]);
        assert_eq!(session.startup_s, Some(3.0));
        // 8 s last to 12, the third comes at 14, and one more second until there are two segments again
        assert!((session.stalled_s() - 3.0).abs() < 1e-9);
    }
}
