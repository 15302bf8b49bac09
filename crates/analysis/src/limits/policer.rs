//! Whether a policer explains losses: its bucket of tokens is empty whenever it drops (Flach et al., SIGCOMM 2016).

use std::collections::VecDeque;

use super::cause::below;

/// Loss events that are remembered; fewer than the least say nothing.
const EVENTS: usize = 16;
const LEAST_EVENTS: usize = 4;
/// Points that are remembered.
const MOST_POINTS: usize = 256;
/// The least time between points, as a part of the time between loss events.
const POINT_EVERY: f64 = 0.1;
/// At losses of a policer, the bucket's content varies by this share of its range over time, at most.
const PART_OF_RANGE: f64 = 0.25;

/// When the first packets of loss events were sent, and the packets sent in between.
#[derive(Debug, Clone, Default)]
pub(super) struct Bucket {
    /// Time, packets sent before, and whether the next one was lost.
    points: VecDeque<(f64, f64, bool)>,
    events: usize,
}

impl Bucket {
    /// Takes the packets sent by the end of an interval, and the packet with which a loss event began in it: when it
    /// was sent, and its number.
    pub(super) fn push(&mut self, time_s: f64, sent: f64, lost: Option<(f64, f64)>) {
        if let Some((sent_s, number)) = lost {
            self.points.push_back((sent_s, number, true));
            self.events += 1;
        }
        if self.is_due(time_s) && sent.is_finite() {
            self.points.push_back((time_s, sent, false));
        }
        while self.events > EVENTS || self.points.len() > MOST_POINTS {
            if let Some((_, _, true)) = self.points.pop_front() {
                self.events -= 1;
            }
            while self.points.front().is_some_and(|point| !point.2) {
                self.points.pop_front();
            }
        }
    }

    /// Whether a point between losses is due: ten of them show what the bucket holds.
    fn is_due(&self, time_s: f64) -> bool {
        let (Some(first), Some(last)) = (self.points.front(), self.points.back()) else {
            return false;
        };
        time_s - last.0 >= POINT_EVERY * (last.0 - first.0) / self.events as f64
    }

    /// How well one rate explains all losses: the standard deviation of the bucket's content at losses, as a part of
    /// its range over time. `None` with too few losses.
    fn misfit(&self) -> Option<f64> {
        if self.events < LEAST_EVENTS {
            return None;
        }
        let last = self.points.iter().rposition(|point| point.2)?;
        let points = || self.points.iter().take(last + 1);
        let at_losses: Vec<(f64, f64)> = points()
            .filter(|point| point.2)
            .map(|point| (point.0, point.1))
            .collect();
        let count = at_losses.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| at_losses.iter().map(of).sum::<f64>() / count;
        let (mean_s, mean_sent) = (mean(|p| p.0), mean(|p| p.1));
        let (mut both, mut of_time) = (0.0, 0.0);
        for (time_s, sent) in &at_losses {
            both += (time_s - mean_s) * (sent - mean_sent);
            of_time += (time_s - mean_s).powi(2);
        }
        let rate = both / of_time;
        let content = |time_s: f64, sent: f64| rate * (time_s - mean_s) - (sent - mean_sent);
        let spread = (at_losses.iter())
            .map(|&(time_s, sent)| content(time_s, sent).powi(2))
            .sum::<f64>();
        let contents = points().map(|point| content(point.0, point.1));
        let (least, most) = contents.fold((f64::INFINITY, f64::NEG_INFINITY), |range, content| {
            (range.0.min(content), range.1.max(content))
        });
        let range = most - least;
        // two parameters were fitted
        let deviation = (spread / (count - 2.0)).sqrt();
        (range > 0.0).then(|| deviation / range)
    }

    /// Probability that a policer caused the losses, if no queue did.
    pub(super) fn probability(&self) -> f64 {
        self.misfit()
            .map_or(0.0, |misfit| below(misfit, PART_OF_RANGE, 0.15))
    }
}
