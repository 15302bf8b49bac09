//! What a receiver saw: bytes in order over time.

/// Milestones at which a model's arrivals are compared with what was seen.
const MILESTONES: usize = 40;
/// Packets over which the fastest rate is looked for.
const TRAIN_PACKETS: f64 = 24.0;
/// A repaired loss hands over so many packets at once at least.
const REPAIRED_PACKETS: f64 = 5.0;
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

    /// How long the first rounds of slow start took each, if longer than `rtt_s` and gaps between them
    /// tell, seconds.
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

    /// The rate of the fastest train of packets, packets/s; infinite if one came at once.
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

    /// Packets at which the stream stood still and then went on with many at once: a loss, repaired a
    /// round trip later.
    pub fn losses(&self, rtt_s: f64) -> Vec<f64> {
        let mut found = Vec::new();
        let mut i = 1;
        while i < self.points.len() {
            let still_s = self.points[i].0 - self.points[i - 1].0;
            let before = self.points[i - 1].1;
            let first_s = self.points[i].0;
            let mut last = i;
            while last + 1 < self.points.len() && self.points[last + 1].0 - first_s <= AT_ONCE_S {
                last += 1;
            }
            let at_once = self.points[last].1 - before;
            if self.is_detailed && still_s >= rtt_s / 2.0 && at_once >= REPAIRED_PACKETS {
                found.push(before);
            }
            i = last + 1;
        }
        found
    }
}
