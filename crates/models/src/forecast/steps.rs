//! A counter over time.

use std::collections::VecDeque;

/// snd_nxt over time: the last value holds.
#[derive(Debug, Clone, Default)]
pub(super) struct Steps {
    points: VecDeque<(f64, f64)>,
}

impl Steps {
    pub(super) fn push(&mut self, time_s: f64, value: f64) {
        self.points.push_back((time_s, value));
    }

    pub(super) fn at(&self, time_s: f64) -> f64 {
        let after = self.points.partition_point(|point| point.0 <= time_s);
        self.points
            .get(after.saturating_sub(1))
            .map_or(0.0, |point| point.1)
    }

    pub(super) fn forget_before(&mut self, time_s: f64) {
        let old = self
            .points
            .partition_point(|point| point.0 <= time_s)
            .saturating_sub(1);
        self.points.drain(..old);
    }
}
