//! Infers the unit of a log's round-trip times: some endpoints write seconds or microseconds where
//! the format has milliseconds. The times from packets to their acknowledgments reveal it.

use std::collections::{HashMap, VecDeque};

/// Most packets of a flow that may still be acknowledged.
const MAX_IN_FLIGHT: usize = 1 << 16;
/// With fewer acknowledgments, each of them may have been delayed.
const LEAST_SAMPLES: u32 = 8;
/// Units differ by a thousand; measured and reported minima differ by far less than this.
const SLACK: f64 = 3.0;

/// Measured and reported round-trip times of one trace, in its unit of time.
#[derive(Default)]
pub struct RttCheck {
    flows: HashMap<u32, VecDeque<(u64, f64)>>,
    samples: u32,
    least_seen: Option<f64>,
    least_told: Option<f64>,
}

impl RttCheck {
    pub fn sent(&mut self, flow: u32, number: u64, time: f64) {
        let sent = self.flows.entry(flow).or_default();
        if sent.len() == MAX_IN_FLIGHT {
            sent.pop_front();
        }
        sent.push_back((number, time));
    }

    pub fn acknowledged(&mut self, flow: u32, number: u64, time: f64) {
        let Some(sent) = self.flows.get_mut(&flow) else {
            return;
        };
        while let Some(&(first, at)) = sent.front() {
            if first > number {
                break;
            }
            sent.pop_front();
            if first == number && time > at {
                self.samples += 1;
                self.least_seen = Some(self.least_seen.unwrap_or(f64::MAX).min(time - at));
            }
        }
    }

    pub fn told(&mut self, rtt: f64) {
        self.least_told = Some(self.least_told.unwrap_or(f64::MAX).min(rtt));
    }

    /// The factor that converts reported round-trip times to the trace's unit of time.
    pub fn factor(&self) -> f64 {
        let (Some(seen), Some(told)) = (self.least_seen, self.least_told) else {
            return 1.0;
        };
        let off_by = |factor: f64| (told * factor / seen).max(seen / (told * factor));
        let thousands = [1e3, 1e-3];
        let found = thousands.into_iter().find(|f| off_by(*f) < SLACK);
        found
            .filter(|_| self.samples >= LEAST_SAMPLES)
            .unwrap_or(1.0)
    }
}
