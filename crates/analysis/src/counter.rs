//! A counter over time, such as the sequence number, that some records may lack.

use std::collections::VecDeque;

use crate::series::Series;

/// A mean rate is known if the counter is known within this share of its span before both ends.
const END_PART: f64 = 0.25;

/// The rate between two moments, given the last known (seconds, value) at each. Returns NaN if
/// either value is too old. A value of the last record before a moment counts as known at the
/// moment.
fn rate_between(
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

/// The sequence number of a whole series.
#[derive(Debug)]
pub struct Counter<'a> {
    time_s: &'a [f64],
    value: &'a [f64],
    /// For each record, the newest record up to it with a value.
    known: Vec<Option<usize>>,
}

impl<'a> Counter<'a> {
    /// The counter of a series; `None` without sequence numbers.
    pub fn of(series: &'a Series) -> Option<Self> {
        let value = series.snd_nxt_packets()?;
        let newest = value.iter().enumerate().scan(None, |newest, (i, v)| {
            if !v.is_nan() {
                *newest = Some(i);
            }
            Some(*newest)
        });
        Some(Self {
            time_s: series.time_s(),
            value,
            known: newest.collect(),
        })
    }

    /// Mean growth per second; NaN where unknown.
    pub fn rate(&self, from_s: f64, to_s: f64) -> f64 {
        rate_between((from_s, self.at(from_s)), (to_s, self.at(to_s)))
    }

    /// The value at a moment, and since when: the moment itself if the last record has a value.
    pub fn at(&self, time_s: f64) -> Option<(f64, f64)> {
        let last = self.time_s.partition_point(|&t| t <= time_s).max(1) - 1;
        let known = self.known[last]?;
        let since_s = if known == last {
            time_s
        } else {
            self.time_s[known]
        };
        Some((since_s, self.value[known]))
    }
}

/// A counter that grows record by record and holds its last value.
#[derive(Debug, Clone, Default)]
pub struct Steps {
    /// NaN from the first record without a value.
    points: VecDeque<(f64, f64)>,
}

impl Steps {
    /// Takes the value at a moment; `None` if unknown.
    pub fn push(&mut self, time_s: f64, value: Option<f64>) {
        match value {
            Some(value) => self.points.push_back((time_s, value)),
            None if self.points.back().is_some_and(|point| !point.1.is_nan()) => {
                self.points.push_back((time_s, f64::NAN));
            }
            None => {}
        }
    }

    /// Mean growth per second.
    pub fn rate(&self, from_s: f64, to_s: f64) -> f64 {
        rate_between((from_s, self.at(from_s)), (to_s, self.at(to_s)))
    }

    /// The value at a moment, and since when: the moment itself if the last record has a value.
    fn at(&self, time_s: f64) -> Option<(f64, f64)> {
        let after = self.points.partition_point(|point| point.0 <= time_s);
        let last = after.saturating_sub(1);
        let point = self.points.get(last)?;
        if point.1.is_nan() {
            // unknown values never follow each other
            return self.points.get(last.checked_sub(1)?).copied();
        }
        Some((time_s, point.1))
    }

    /// Forgets what queries about later moments do not need.
    pub fn forget_before(&mut self, time_s: f64) {
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
