//! A counter over time.

use std::collections::VecDeque;

/// A mean rate is known if the counter is known within this part of its span from either end.
const END_PART: f64 = 0.25;

/// The rate between two moments of which the counter was last known at (seconds, value). NaN if that was too long
/// before either of them. Where it was known at the last record before both, they count as the moments themselves.
pub(crate) fn rate_between(
    (from_s, from): (f64, Option<(f64, f64)>),
    (to_s, to): (f64, Option<(f64, f64)>),
) -> f64 {
    let (Some((known_from_s, from)), Some((known_to_s, to))) = (from, to) else {
        return f64::NAN;
    };
    let most_s = END_PART * (to_s - from_s);
    if from_s - known_from_s > most_s || to_s - known_to_s > most_s {
        return f64::NAN;
    }
    (to - from) / (known_to_s - known_from_s)
}

/// snd_nxt over time: the last value holds.
#[derive(Debug, Clone, Default)]
pub(super) struct Steps {
    /// NaN from a record on that does not know it.
    points: VecDeque<(f64, f64)>,
}

impl Steps {
    pub(super) fn push(&mut self, time_s: f64, value: Option<f64>) {
        match value {
            Some(value) => self.points.push_back((time_s, value)),
            None if self.points.back().is_some_and(|point| !point.1.is_nan()) => {
                self.points.push_back((time_s, f64::NAN));
            }
            None => {}
        }
    }

    /// Mean growth a second.
    pub(super) fn rate(&self, from_s: f64, to_s: f64) -> f64 {
        rate_between((from_s, self.at(from_s)), (to_s, self.at(to_s)))
    }

    /// What holds at a moment, and since when: the moment itself where the last record knows it.
    fn at(&self, time_s: f64) -> Option<(f64, f64)> {
        let after = self.points.partition_point(|point| point.0 <= time_s);
        let last = after.saturating_sub(1);
        let point = self.points.get(last)?;
        if point.1.is_nan() {
            // two in a row are never unknown
            return self.points.get(last.checked_sub(1)?).copied();
        }
        Some((time_s, point.1))
    }

    pub(super) fn forget_before(&mut self, time_s: f64) {
        let mut old = self
            .points
            .partition_point(|point| point.0 <= time_s)
            .saturating_sub(1);
        if self.points.get(old).is_some_and(|point| point.1.is_nan()) {
            old = old.saturating_sub(1);
        }
        self.points.drain(..old);
    }
}
