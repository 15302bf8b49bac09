//! What a receiver saw: bytes in order over time.

/// Milestones at which a model's arrivals are compared with what was seen.
const MILESTONES: usize = 32;
/// Packets over which the fastest rate is looked for.
const TRAIN_PACKETS: f64 = 24.0;
/// A repaired loss delivers at least this many packets together,
const REPAIRED_PACKETS: f64 = 5.0;
/// and such a share of what had come, or would have come meanwhile,
const REPAIRED_SHARE: f64 = 0.4;
/// after this many round trips in which nothing arrived.
const STILL: f64 = 0.95;
/// After this many, which is longer than any gap between rounds,
const LONG_STILL: f64 = 1.3;
/// such a share is enough: of several losses in a window the first repair hands over a part.
const LONG_STILL_SHARE: f64 = 0.2;
/// Reads closer together than this are one, seconds.
const AT_ONCE_S: f64 = 0.5e-3;

/// Packets in order over time: `(seconds since the first byte, packets)`, both rising.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Timeline {
    points: Vec<(f64, f64)>,
    /// Whether it is more than its end.
    pub is_detailed: bool,
}

impl Timeline {
    /// Of a transfer of which only the end is known.
    pub fn of_end(packets: f64, time_s: f64) -> Self {
        Self {
            points: vec![(time_s, packets)],
            is_detailed: false,
        }
    }

    /// Of all that was seen; `points` are not empty.
    pub fn new(points: Vec<(f64, f64)>) -> Self {
        Self {
            is_detailed: points.len() > 2,
            points,
        }
    }

    /// The last point: seconds and packets.
    pub fn end(&self) -> (f64, f64) {
        *self.points.last().expect("checked when measured")
    }

    /// When `packets` had arrived, seconds.
    pub fn time_of(&self, packets: f64) -> f64 {
        let at = self.points.partition_point(|point| point.1 < packets);
        self.points[at.min(self.points.len() - 1)].0
    }

    /// How long each of the first rounds of slow start took, if longer than `rtt_s` and visible by gaps
    /// between them, seconds.
    pub fn round_s(&self, initial_window: f64, rtt_s: f64) -> Option<f64> {
        if !self.is_detailed {
            return None;
        }
        // round k + 1 begins after (2^k - 1) W0 packets
        let begin_s = |k: i32| self.time_of((2f64.powi(k) - 1.0) * initial_window + 1.0);
        let mean_s = begin_s(3) / 3.0;
        ((1.01..1.3).contains(&(mean_s / rtt_s))).then_some(mean_s)
    }

    /// Evenly spaced in packets, the end last: `(packets, seconds)`.
    pub fn milestones(&self) -> Vec<(f64, f64)> {
        let (end_s, packets) = self.end();
        if !self.is_detailed {
            return vec![(packets, end_s)];
        }
        (1..=MILESTONES)
            .map(|i| packets * i as f64 / MILESTONES as f64)
            .map(|packets| (packets, self.time_of(packets)))
            .collect()
    }

    /// The rate of the fastest train of packets, packets/s; infinite if a train arrived in one moment.
    pub fn peak_rate(&self) -> f64 {
        let mut peak: f64 = 0.0;
        let mut first = 0;
        for last in 1..self.points.len() {
            while first + 1 < last && self.packets(first + 1, last) >= TRAIN_PACKETS {
                first += 1;
            }
            let (packets, took_s) = (
                self.packets(first, last),
                self.points[last].0 - self.points[first].0,
            );
            if packets >= TRAIN_PACKETS {
                peak = peak.max(packets / took_s.max(1e-9));
            }
        }
        let (end_s, packets) = self.end();
        peak.max(packets / end_s)
    }

    fn packets(&self, first: usize, last: usize) -> f64 {
        self.points[last].1 - self.points[first].1
    }

    /// Packets at which the stream paused for a round trip, and then continued with much of a round trip's
    /// data together: a repaired loss.
    pub fn losses(&self, rtt_s: f64) -> Vec<f64> {
        let mut found = Vec::new();
        if !self.is_detailed {
            return found;
        }
        let (end_s, packets) = self.end();
        let mut next = 1;
        while next < self.points.len() {
            let (before_s, before) = self.points[next - 1];
            let first_s = self.points[next].0;
            let at_once = self.points[next..].partition_point(|one| one.0 - first_s <= AT_ONCE_S);
            let jump = self.points[next + at_once - 1].1 - before;
            let still_s = first_s - before_s;
            let share = if still_s >= LONG_STILL * rtt_s {
                LONG_STILL_SHARE
            } else {
                REPAIRED_SHARE
            };
            let usual = share * before.min(still_s * packets / end_s);
            if still_s >= STILL * rtt_s && jump >= usual.max(REPAIRED_PACKETS) {
                found.push(before);
            }
            next += at_once;
        }
        found
    }

    /// Packets a second over the last `span_s`, or over all if that is less.
    pub fn last_rate(&self, span_s: f64) -> f64 {
        let (end_s, packets) = self.end();
        let first = self.points.partition_point(|one| one.0 < end_s - span_s);
        match self.points.get(first) {
            Some(&(first_s, before)) if first_s < end_s => (packets - before) / (end_s - first_s),
            _ => packets / end_s,
        }
    }
}
