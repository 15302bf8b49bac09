//! What causes a flow's losses: chance, a full queue, or a policer.

use std::collections::VecDeque;

use super::interval::Interval;
use super::policer::Bucket;
use super::{Limit, Shares};

/// Loss events whose causes are remembered.
const REMEMBERED: usize = 12;
/// Weight of an event, as a part of the next one's.
const FADES: f64 = 0.6;
/// A queue drops where it is nearly the longest: at this part of the delay that it had before, at least.
const PART_OF_LONGEST: f64 = 0.6;
/// Seconds in which the longest delay fades.
const LONGEST_FOR_S: f64 = 10.0;
/// It also shows where the round trip is longer by this than it usually is, in seconds and in packets at the highest rate.
const RISE_S: f64 = 0.0005;
const RISE_PACKETS: f64 = 1.5;
/// Intervals over which the usual round trip is averaged.
const USUAL: f64 = 30.0;

/// Windows at the losses of a policer differ by this at most, as a standard deviation of their logarithms; fewer
/// windows say nothing.
const ALIKE: f64 = 0.17;
const LEAST_WINDOWS: f64 = 5.0;

/// Probability that a value is below a threshold, which is not sharp: logistic in the logarithm of their ratio, with
/// `scale` as the logarithm by which it must be off for odds of e.
pub(super) fn below(value: f64, threshold: f64, scale: f64) -> f64 {
    let x = (threshold.max(1e-12) / value.max(1e-12)).ln() / scale;
    1.0 / (1.0 + (-x).exp())
}

/// Adds the value of the newest loss event, and forgets the oldest.
fn remember(values: &mut VecDeque<f64>, newest: f64) {
    values.push_back(newest);
    if values.len() > REMEMBERED {
        values.pop_front();
    }
}

/// The causes of the flow's loss events so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Causes {
    /// Of the last events, the probability that a queue caused each.
    by_queue: VecDeque<f64>,
    bucket: Bucket,
    /// Logarithms of the windows at the last events.
    ln_windows: VecDeque<f64>,
    /// The queue's delay when it was longest lately, seconds.
    longest_s: f64,
    /// When the current loss event began, and the longest queueing delay around it.
    event: Option<(f64, f64)>,
    /// The longest queueing delay of the interval before.
    before_s: f64,
    /// The queueing delay that is usual between losses, seconds.
    usual_s: f64,
}

impl Causes {
    /// Takes an interval with its queueing delay, the least one that counts, and the time that a packet takes at the
    /// highest rate, all in seconds. A loss event lasts for two round trips.
    pub(super) fn take(&mut self, interval: &Interval, queue_s: f64, least_s: f64, packet_s: f64) {
        let lost = interval.retransmits > 0.0;
        let is_new = lost && self.event.is_none();
        if is_new {
            remember(&mut self.ln_windows, interval.largest_cwnd.ln());
            self.event = Some((interval.start_s, self.before_s.max(queue_s)));
        }
        let lost = interval.lost.filter(|_| is_new);
        self.bucket.push(interval.end_s, interval.snd_nxt, lost);
        if let Some((start_s, longest_s)) = &mut self.event {
            *longest_s = longest_s.max(queue_s);
            if interval.end_s - *start_s > 2.0 * interval.srtt_s {
                let at_loss_s = *longest_s;
                self.event = None;
                self.longest_s = self.longest_s.max(at_loss_s);
                let rise_s = (at_loss_s - self.usual_s).max(0.0);
                let least_rise_s = RISE_S.max(RISE_PACKETS * packet_s);
                let there = below(least_s, at_loss_s, 0.15).max(below(least_rise_s, rise_s, 0.15));
                let full = below(PART_OF_LONGEST * self.longest_s, at_loss_s, 0.15);
                remember(&mut self.by_queue, there * full);
            }
        }
        let keep = (-interval.length_s() / LONGEST_FOR_S).exp();
        self.longest_s = (self.longest_s * keep).max(queue_s);
        self.before_s = queue_s;
        if self.event.is_none() && queue_s.is_finite() {
            self.usual_s += (queue_s - self.usual_s) / USUAL;
        }
    }

    /// Whether any loss event has ended.
    pub(super) fn known(&self) -> bool {
        !self.by_queue.is_empty()
    }

    /// Probability that a policer causes the losses, by how alike the windows were: chance strikes at any window.
    fn at_one_window(&self) -> f64 {
        let count = self.ln_windows.len() as f64;
        if count < LEAST_WINDOWS {
            return 0.0;
        }
        let mean = self.ln_windows.iter().sum::<f64>() / count;
        let squares = self
            .ln_windows
            .iter()
            .map(|ln| (ln - mean).powi(2))
            .sum::<f64>();
        below((squares / (count - 1.0)).sqrt(), ALIKE, 0.12)
    }

    /// What holds the window down, by what caused the last losses.
    pub(super) fn shares(&self) -> Shares {
        let (mut queue, mut weights, mut weight) = (0.0, 0.0, 1.0);
        for probability in self.by_queue.iter().rev() {
            queue += weight * probability;
            weights += weight;
            weight *= FADES;
        }
        queue /= weights;
        let policer = (1.0 - queue) * self.bucket.probability().max(self.at_one_window());
        let mut shares = Shares::default();
        shares.add(Limit::Queue, queue);
        shares.add(Limit::Policer, policer);
        shares.add(Limit::Loss, 1.0 - queue - policer);
        shares
    }
}
