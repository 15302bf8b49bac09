//! In which unit a log tells round-trip times: some endpoints write seconds or microseconds where
//! the format has milliseconds. What packets and their acknowledgments took shows it.

use std::collections::{HashMap, VecDeque};

/// Packets of a flow that may still be acknowledged, at most.
const MAX_IN_FLIGHT: usize = 1 << 16;
/// With fewer acknowledgments, none may have come without a delay.
const LEAST_SAMPLES: u32 = 8;
/// Units differ by a thousand; the least of both times by far less than this.
const SLACK: f64 = 3.0;

/// What one trace tells of round-trip times, in its unit of time.
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

    /// What told times have to be multiplied by to be in the trace's unit of time.
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
