//! When a player gives up a download that takes too long, and which version it fetches instead.

use std::str::FromStr;

use thiserror::Error;

use super::throughput::LowerMean;
use super::{Chooser, Progress, Rule, Seen};

/// When a player gives up a download.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Abandon {
    /// As the player does whose rule it is: [`Abandon::of`].
    #[default]
    Own,
    /// It waits for what it asked for.
    Never,
    /// As dash.js 5 does (`AbandonRequestsRule`): all of it would take 1.8 times as long as it plays, at the rate so far, and
    /// what is left is larger than the version that fits the rate.
    DashJs,
    /// As hls.js 1 does: after half of its duration, if the buffer would be empty before what is left has come, and a lower
    /// version comes earlier.
    HlsJs,
    /// If the plan is worth more with another version, by the forecast that knows the download so far.
    Plan,
}

/// A way to give up is not known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("got {0:?}; expected {names}", names = Abandon::NAMES.join(", "))]
pub struct AbandonError(String);

impl Abandon {
    /// Names in files.
    pub const NAMES: [&'static str; 5] = ["own", "never", "dash.js", "hls.js", "plan"];

    const ALL: [Self; 5] = [
        Self::Own,
        Self::Never,
        Self::DashJs,
        Self::HlsJs,
        Self::Plan,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let at = Self::ALL.iter().position(|one| *one == self);
        Self::NAMES[at.unwrap_or(0)]
    }

    /// What the player of a rule does: dash.js and hls.js as they do, plans by the plan, all others never.
    pub const fn of(rule: Rule) -> Self {
        match rule {
            Rule::Dynamic => Self::DashJs,
            Rule::Hls => Self::HlsJs,
            Rule::Mpc(_) => Self::Plan,
            _ => Self::Never,
        }
    }
}

impl FromStr for Abandon {
    type Err = AbandonError;

    fn from_str(text: &str) -> Result<Self, AbandonError> {
        let at = Self::NAMES.iter().position(|name| *name == text);
        at.map(|at| Self::ALL[at])
            .ok_or_else(|| AbandonError(text.into()))
    }
}

/// Looks at downloads, and says when to give one up.
#[derive(Clone, Debug)]
pub(crate) enum Watcher {
    Never,
    DashJs,
    HlsJs(HlsJs),
    Plan,
}

/// dash.js: how many times its duration a download may take, how long it is looked at first, and how many times.
const TIMES: f64 = 1.8;
const FIRST_S: f64 = 0.5;
/// dash.js: with so much in the buffer nothing is given up, in seconds.
const STABLE_S: f64 = 18.0;
/// dash.js: part of the rate that counts.
const SAFE: f64 = 0.9;
/// hls.js: a version that takes so many times its duration is not tried.
const MOST_TIMES: f64 = 10.0;

impl Watcher {
    pub(crate) fn new(abandon: Abandon, rule: Rule) -> Self {
        let abandon = match abandon {
            Abandon::Own => Abandon::of(rule),
            given => given,
        };
        match abandon {
            Abandon::Own | Abandon::Never => Self::Never,
            Abandon::DashJs => Self::DashJs,
            Abandon::HlsJs => Self::HlsJs(HlsJs::default()),
            Abandon::Plan => Self::Plan,
        }
    }

    pub(crate) const fn looks(&self) -> bool {
        !matches!(self, Self::Never)
    }

    /// The version that is to be fetched instead, of the same segment; `again`: one of it was given up before.
    pub(crate) fn instead(
        &self,
        seen: &Seen<'_>,
        progress: &Progress,
        chooser: &mut Chooser,
        again: bool,
    ) -> Option<usize> {
        if progress.version == 0 || progress.left() <= 0.0 {
            return None;
        }
        match self {
            Self::Never => None,
            Self::DashJs if again => None,
            Self::DashJs => dash_js(seen, progress),
            Self::HlsJs(state) => state.instead(seen, progress),
            Self::Plan => chooser.instead(seen, progress),
        }
    }

    /// So many bits came in so many seconds, of which the first ones passed until the first of them.
    pub(crate) fn learn(&mut self, seconds: f64, bits: f64, first_s: Option<f64>) {
        if let Self::HlsJs(state) = self {
            state.learn(seconds, bits, first_s);
        }
    }
}

fn dash_js(seen: &Seen<'_>, progress: &Progress) -> Option<usize> {
    let began_s = progress.began_s.filter(|began_s| *began_s >= FIRST_S)?;
    let rate_bps = progress.came / began_s;
    let in_time = progress.bits < TIMES * seen.ladder.segment_s() * rate_bps;
    if in_time || seen.buffer_s > STABLE_S {
        return None;
    }
    let bitrates = seen.ladder.bitrates_bps();
    let version = (seen.ladder).best(|version| bitrates[version] <= SAFE * rate_bps);
    let smaller = seen.ladder.bits(version, seen.segment) < progress.left();
    (version < progress.version && smaller).then_some(version)
}

/// hls.js: how fast downloads were, and how long their first byte took.
#[derive(Clone, Debug)]
pub(crate) struct HlsJs {
    rate: LowerMean,
    first_s: f64,
}

impl Default for HlsJs {
    fn default() -> Self {
        Self {
            rate: LowerMean::hls(),
            first_s: 0.1,
        }
    }
}

impl HlsJs {
    fn instead(&self, seen: &Seen<'_>, progress: &Progress) -> Option<usize> {
        let segment_s = seen.ladder.segment_s();
        if progress.asked_s <= (segment_s / 2.0).max(self.first_s) {
            return None;
        }
        let (rate_bps, left_s) = match progress.began_s {
            Some(began_s) if progress.came > 0.0 => {
                let rate_bps = progress.came / began_s.max(0.001);
                (rate_bps, progress.left() / rate_bps)
            }
            _ => {
                let rate_bps = self.rate.get()?;
                (rate_bps, progress.bits / rate_bps + self.first_s)
            }
        };
        if left_s <= seen.buffer_s {
            return None;
        }
        let takes_s =
            |version: usize| self.first_s + seen.ladder.bits(version, seen.segment) / rate_bps;
        let within_s = seen.buffer_s.min(segment_s + self.first_s);
        let lower = 0..progress.version;
        let version = (lower.rev())
            .find(|version| takes_s(*version) < within_s)
            .unwrap_or(0);
        let helps = takes_s(version) < left_s && takes_s(version) <= MOST_TIMES * segment_s;
        helps.then_some(version)
    }

    fn learn(&mut self, seconds: f64, bits: f64, first_s: Option<f64>) {
        let waited_s = first_s.unwrap_or(seconds);
        self.first_s = waited_s;
        if bits > 0.0 {
            self.rate.learn((seconds - waited_s).max(0.05), bits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::Ladder;
    use crate::player::PlayerOptions;

    /// What a player whose buffer holds `buffer_s` fetches instead of 4 s of 8 Mbit/s, of which `came` bits have come `asked_s`
    /// after it was asked for; the first of them after 0.1 s.
    fn instead(abandon: Abandon, buffer_s: f64, came: f64, asked_s: f64) -> Option<usize> {
        let ladder = Ladder::constant(4.0, 9, vec![0.25e6, 0.5e6, 1e6, 8e6]).unwrap();
        let options = PlayerOptions::default();
        let seen = Seen {
            ladder: &ladder,
            options: &options,
            segment: 4,
            buffer_s,
            last: Some(3),
        };
        let progress = Progress {
            version: 3,
            bits: 32e6,
            came,
            asked_s,
            began_s: (came > 0.0).then_some(asked_s - 0.1),
        };
        let mut watcher = Watcher::new(abandon, Rule::Bola);
        watcher.learn(4.1, 32e6, Some(0.1));
        let mut chooser = Chooser::new(Rule::Bola, &ladder, &options);
        watcher.instead(&seen, &progress, &mut chooser, false)
    }

    #[test]
    fn names_are_read_back() {
        for name in Abandon::NAMES {
            assert_eq!(name.parse::<Abandon>().unwrap().name(), name);
        }
        assert!("".parse::<Abandon>().is_err());
    }

    #[test]
    fn dash_js_gives_up_what_takes_more_than_1_8_of_its_duration() {
        // 32 Mbit take 7.2 s at 4.44 Mbit/s
        let at = |rate: f64, asked_s: f64| rate * (asked_s - 0.1);
        let dash = |came, asked_s| instead(Abandon::DashJs, 10.0, came, asked_s);
        assert_eq!(dash(at(4.5e6, 1.1), 1.1), None);
        assert_eq!(dash(at(4.4e6, 1.1), 1.1), Some(2));
        // not before 0.5 s
        assert_eq!(dash(at(0.6e6, 0.5), 0.5), None);
        // 0.9 of the rate counts: 0.54 Mbit/s
        assert_eq!(dash(at(0.6e6, 0.7), 0.7), Some(1));
        // what is left is less than another version
        assert_eq!(dash(31e6, 20.1), None);
        assert_eq!(instead(Abandon::DashJs, 18.5, 0.6e6, 1.1), None);
        assert_eq!(dash(0.0, 5.0), None);
    }

    #[test]
    fn hls_js_gives_up_what_comes_after_the_buffer_is_empty() {
        let hls = |buffer_s, came, asked_s| instead(Abandon::HlsJs, buffer_s, came, asked_s);
        // after half of its duration; 4 Mbit of 32 came in 2 s, so the rest takes 14 s
        assert_eq!(hls(10.0, 4e6, 1.9), None);
        assert_eq!(hls(10.0, 4e6, 2.1), Some(2));
        assert_eq!(hls(14.1, 4e6, 2.1), None);
        // 4 Mbit take 2.1 s, 2 Mbit take 1.1 s, 1 Mbit takes 0.6 s
        assert_eq!(hls(2.0, 4e6, 2.1), Some(1));
        assert_eq!(hls(0.2, 4e6, 2.1), Some(0));
        // nothing came: the rate of before counts, at which it would take 4.1 s, and 1 Mbit/s takes 0.6 s
        assert_eq!(hls(3.0, 0.0, 2.1), Some(2));
        assert_eq!(hls(5.0, 0.0, 2.1), None);
    }

    #[test]
    fn a_player_that_waits_gives_up_nothing() {
        for abandon in [Abandon::Never, Abandon::Own, Abandon::Plan] {
            assert_eq!(instead(abandon, 0.0, 1e4, 9.0), None, "{abandon:?}");
        }
    }
}
