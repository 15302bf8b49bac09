//! Analogs: what followed the moments of this flow's past that were most like now.
//!
//! No model of the sender is needed where a flow repeats itself: a window that cycles below a full queue, a policer that
//! fills and empties, an application that sends in turns. The last seconds' rates are compared with all earlier ones
//! (delay embedding), and the forecast is the median of what came after the nearest (Lorenz 1969; simplex projection,
//! Sugihara and May 1990).

use std::collections::VecDeque;

use crate::types::SAMPLE_S;

/// Seconds of the past that moments are looked for in.
const PAST: usize = 200;
/// Seconds that are compared; each counts [`FADES`] times the one after it.
const LAGS: usize = 5;
const FADES: f32 = 0.7;
/// The first seconds of a flow are like nothing later.
const SKIPPED: usize = 3;
/// Moments that the two kinds of forecast are the median of. Few suit flows that repeat themselves exactly.
const FEW: usize = 3;
const SEVERAL: usize = 7;
/// Rates below this part of the mean rate are alike.
const FLOOR: f64 = 0.02;
/// The least rate that has a logarithm here.
const LEAST: f64 = 1e-3;

/// The past of a flow, second by second, and which parts of it are like the present.
#[derive(Debug, Clone, Default)]
pub(super) struct Analogs {
    /// Means of the seconds, oldest first; NaN where they are not known.
    samples: VecDeque<f32>,
    /// Their logarithms; where a second is not known, that of the one before.
    levels: VecDeque<f32>,
    /// Of all known seconds, and how many there were.
    sum: f64,
    known: f64,
    /// Seconds so far, known or not.
    seconds: usize,
    /// Places in `samples` of the seconds that ended at moments like now, the most alike first.
    alike: Vec<u16>,
}

/// What analogs say of one horizon, in the samples' unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Followed {
    /// Median of what followed the three most similar moments.
    pub(super) few: f64,
    /// Of the seven most similar.
    pub(super) several: f64,
    /// Median of what followed these over the rate there, times the rate now.
    pub(super) growth: f64,
}

impl Analogs {
    /// A second is over; its mean may be unknown (NaN).
    pub(super) fn second(&mut self, sample: f64) {
        if sample.is_finite() {
            self.sum += sample;
            self.known += 1.0;
        }
        let level = if sample.is_finite() {
            let least = (FLOOR * self.sum / self.known).max(LEAST);
            sample.max(least).ln() as f32
        } else {
            self.levels.back().copied().unwrap_or(LEAST.ln() as f32)
        };
        self.samples.push_back(sample as f32);
        self.levels.push_back(level);
        self.seconds += 1;
        if self.samples.len() > PAST + 1 {
            self.samples.pop_front();
            self.levels.pop_front();
        }
        self.compare();
    }

    /// Forgets all seconds: time went back or leapt.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Sorts the past by how much its moments are like now.
    fn compare(&mut self) {
        let Some(now) = self.levels.len().checked_sub(1) else {
            return;
        };
        // places of the flow's first seconds, if they are still there
        let first = SKIPPED.saturating_sub(self.seconds - self.samples.len());
        let levels = self.levels.make_contiguous();
        let mut distances = [0.0_f32; PAST + 1];
        for (place, distance) in distances.iter_mut().enumerate().take(now).skip(first) {
            let mut weight = 1.0;
            for lag in 0..LAGS {
                // what lies before the first second is like nothing
                *distance += if lag > place || lag > now {
                    weight
                } else {
                    weight * (levels[place - lag] - levels[now - lag]).abs()
                };
                weight *= FADES;
            }
        }
        self.alike.clear();
        #[allow(clippy::cast_possible_truncation)] // PAST is small
        self.alike.extend((first..now).map(|place| place as u16));
        (self.alike).sort_unstable_by(|&a, &b| {
            let of = |place: u16| distances[usize::from(place)];
            of(a).total_cmp(&of(b)).then(a.cmp(&b))
        });
    }

    /// What followed moments like the end of the last whole second, `since_s` ago, over a horizon that begins now; `None`
    /// if fewer than three are known.
    pub(super) fn followed(&self, since_s: f64, horizon_s: f64) -> Option<Followed> {
        let (since, seconds) = (since_s / SAMPLE_S, horizon_s / SAMPLE_S);
        let now = self.samples.len().checked_sub(1)?;
        let mut nearest = [(0.0, 0.0); SEVERAL];
        let mut found = 0;
        for place in self.alike.iter().map(|&place| usize::from(place)) {
            if place as f64 + since + seconds > now as f64 {
                continue; // it is not over yet
            }
            let after = self.mean(place as f64 + since, seconds);
            if after.is_nan() {
                continue;
            }
            nearest[found] = (after, after / f64::from(self.levels[place]).exp());
            found += 1;
            if found == SEVERAL {
                break;
            }
        }
        if found < FEW {
            return None;
        }
        let now = f64::from(*self.levels.back()?).exp();
        let nearest = &nearest[..found];
        Some(Followed {
            few: median(&nearest[..FEW], |one| one.0),
            several: median(nearest, |one| one.0),
            growth: now * median(nearest, |one| one.1),
        })
    }

    /// The mean of so many seconds after the end of the second at a place, which may lie between two; NaN if one is not
    /// known.
    fn mean(&self, place: f64, seconds: f64) -> f64 {
        let end = place + seconds;
        let (mut from, mut sum) = (place, 0.0);
        while from < end {
            let upto = (from.floor() + 1.0).min(end);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // at most PAST
            let second = from as usize + 1;
            sum += (upto - from) * f64::from(self.samples[second.min(self.samples.len() - 1)]);
            from = upto;
        }
        sum / seconds
    }
}

/// The median of a few values, the upper one of two.
fn median(of: &[(f64, f64)], value: impl Fn(&(f64, f64)) -> f64) -> f64 {
    let mut values = [0.0; SEVERAL];
    for (place, one) in values.iter_mut().zip(of) {
        *place = value(one);
    }
    let values = &mut values[..of.len()];
    values.sort_unstable_by(f64::total_cmp);
    values[of.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(samples: impl IntoIterator<Item = f64>) -> Analogs {
        let mut analogs = Analogs::default();
        samples.into_iter().for_each(|one| analogs.second(one));
        analogs
    }

    /// 7 s, of which each is another.
    fn cycle(second: u32) -> f64 {
        f64::from(100 + second * 3 % 7 * 10)
    }

    #[test]
    fn what_repeats_itself_goes_on() {
        let analogs = after((0..100).map(cycle));
        for horizon in 1..=20_u32 {
            let truth = (100..100 + horizon).map(cycle).sum::<f64>() / f64::from(horizon);
            let said = analogs.followed(0.0, f64::from(horizon)).unwrap();
            for value in [said.few, said.several, said.growth] {
                assert!((value / truth - 1.0).abs() < 1e-5, "{said:?} {truth}");
            }
        }
        let half = analogs.followed(0.5, 1.5).unwrap().few;
        let truth = (0.5 * cycle(100) + cycle(101)) / 1.5;
        assert!((half / truth - 1.0).abs() < 1e-5, "{half} {truth}");
    }

    #[test]
    fn a_flow_that_grows_goes_on_growing() {
        let analogs = after((0..60).map(|second| 100.0 * 1.05_f64.powi(second)));
        let said = analogs.followed(0.0, 1.0).unwrap();
        let truth = 100.0 * 1.05_f64.powi(60);
        assert!((said.growth / truth - 1.0).abs() < 1e-3, "{said:?} {truth}");
        assert!(said.several < 0.9 * truth);
    }

    #[test]
    fn what_is_not_known_or_not_over_is_not_compared() {
        assert_eq!(after([]).followed(0.0, 1.0), None);
        assert_eq!(after((0..7).map(cycle)).followed(0.0, 2.0), None);
        assert!(after((0..9).map(cycle)).followed(0.0, 2.0).is_some());
        assert_eq!(after((0..100).map(cycle)).followed(0.0, 100.0), None);
        // of three seconds one is never known
        let holes = (0..100).map(|s| if s % 3 == 0 { f64::NAN } else { cycle(s) });
        let holes = after(holes);
        assert!(holes.followed(0.0, 2.0).is_some());
        assert_eq!(holes.followed(0.0, 3.0), None);
    }

    #[test]
    fn memory_is_bounded_and_zeros_are_values() {
        let analogs = after((0..5000).map(|s| f64::from(u8::from(s % 10 < 4)) * 80.0));
        assert_eq!(analogs.samples.len(), PAST + 1);
        // it stopped for 6 s
        assert!((analogs.followed(0.0, 1.0).unwrap().few - 80.0).abs() < 1e-3);
        let said = analogs.followed(0.0, 10.0).unwrap();
        assert!((said.few - 32.0).abs() < 1e-3, "{said:?}");
    }
}
