//! Trains of packets at a constant rate through a loop, and what became of some of them.

use std::ops::ControlFlow;

use super::{Flow, LoopError, WindowLoop};

/// Packets between two looks at the progress callback.
const PER_PROGRESS: u64 = 1 << 20;

/// A train of packets at a constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Packets a second; infinity: a greedy source, which has a packet whenever the window has room.
    pub rate_pps: f64,
    /// Packets that are sent before the first sample.
    pub warm_up_packets: u64,
    /// Packets from which samples are taken.
    pub packets: u64,
    /// From one sample to the next on average, at random so that no rhythm of the loop is met; at least 1.
    pub packets_per_sample: u64,
}

/// What became of the packets that were sampled, and of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// When each was written, in seconds since the first packet of the train.
    pub written_s: Vec<f64>,
    /// From writing to arrival, in seconds.
    pub delay_s: Vec<f64>,
    /// The part of it that it waited for the window.
    pub sender_s: Vec<f64>,
    /// The window as each was sent, in packets.
    pub window_packets: Vec<f64>,
    /// Packets after the warm-up that waited for the window.
    pub buffered: u64,
    /// Packets after the warm-up.
    pub packets: u64,
    /// From the first to the last of them to arrive, in seconds.
    pub arriving_s: f64,
}

impl WindowLoop {
    /// Sends a train through the loop. `progress` receives the packets sent so far from time to time. If it
    /// breaks, the function returns what was seen until then.
    ///
    /// # Errors
    /// The rate is not above 0, or the train has no packets or too many to count.
    pub fn probe(
        &self,
        probe: &Probe,
        seed: u64,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Samples, LoopError> {
        let wrong = |what, wanted, got| Err(LoopError { what, wanted, got });
        if probe.rate_pps.is_nan() || probe.rate_pps <= 0.0 {
            return wrong("the rate", "packets a second above 0", probe.rate_pps);
        }
        let all = probe.warm_up_packets.checked_add(probe.packets);
        let Some(all) = all.filter(|&all| probe.packets > 0 && all < 1 << 50) else {
            return wrong("the train", "1 to 10^15 packets", probe.packets as f64);
        };
        if probe.packets_per_sample == 0 {
            return wrong("the packets for each sample", "at least 1", 0.0);
        }
        let mut flow = self.start(seed);
        let mut samples = Samples::default();
        let gap_s = 1.0 / probe.rate_pps;
        let mut number = 0;
        while number < probe.warm_up_packets {
            let until = probe.warm_up_packets.min(number + PER_PROGRESS);
            while number < until {
                flow.carry(number as f64 * gap_s);
                number += 1;
            }
            if progress(number).is_break() {
                return Ok(samples);
            }
        }
        let mut next = number + flow.draw_gap(probe.packets_per_sample) - 1;
        let mut arrived = (f64::NAN, f64::NAN);
        while number < all {
            let until = all.min(number + PER_PROGRESS);
            while number < until {
                let written_s = number as f64 * gap_s;
                let passage = flow.carry(written_s);
                samples.buffered += u64::from(passage.sent_s > written_s);
                if arrived.0.is_nan() {
                    arrived.0 = passage.delivered_s;
                }
                arrived.1 = passage.delivered_s;
                if number == next {
                    next += flow.draw_gap(probe.packets_per_sample);
                    samples.written_s.push(written_s);
                    samples.delay_s.push(passage.delivered_s - written_s);
                    samples.sender_s.push(passage.sent_s - written_s);
                    samples.window_packets.push(flow.window_packets());
                }
                number += 1;
            }
            samples.packets = number - probe.warm_up_packets;
            samples.arriving_s = arrived.1 - arrived.0;
            if progress(number).is_break() {
                break;
            }
        }
        Ok(samples)
    }

    /// When each of the packets that are written at `written_s` is sent and arrives, after a warm-up of the
    /// window by `warm_up_packets` greedy ones that end before the first. Times are seconds, in order.
    pub fn carry(
        &self,
        written_s: &[f64],
        warm_up_packets: u64,
        seed: u64,
    ) -> impl Iterator<Item = super::Passage> {
        let mut flow = self.start(seed);
        flow.warm_up(warm_up_packets);
        written_s.iter().map(move |&at| flow.carry(at))
    }
}

impl Flow {
    /// Packets to the next sample: 1 to twice the mean less 1, each as likely.
    fn draw_gap(&mut self, mean: u64) -> u64 {
        1 + self.draw_below(2 * mean - 1)
    }

    /// Runs the window through a number of acknowledgments, of packets that have all left the network at
    /// time 0.
    fn warm_up(&mut self, packets: u64) {
        for _ in 0..packets {
            self.acknowledge();
        }
    }
}
