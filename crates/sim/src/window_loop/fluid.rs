//! The loop as a fluid, in equal steps of time: for delays of days, for which a simulation by packets would
//! take too long.
//!
//! Equations 2 and 3 of the paper on a grid of moments: what may have been sent by now is what had been sent a
//! round trip ago plus the window, and no more than was written. The error is smaller than a step: marks
//! take effect at its end, and acknowledgments within the step count from its beginning.

use std::ops::ControlFlow;

use super::{Flow, LoopError, Marks, Samples, Window, WindowLoop};

/// Steps between two looks at the progress callback.
const PER_PROGRESS: u64 = 1 << 22;
/// Steps of a round trip at the most.
const MAX_STEPS: u32 = 10_000;

/// A train at a constant rate, as a fluid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FluidProbe {
    /// Packets a second.
    pub rate_pps: f64,
    /// Seconds before the first sample.
    pub warm_up_s: f64,
    /// Seconds in which samples are taken.
    pub duration_s: f64,
    /// From one sample to the next on average, in seconds, uniform from 0 to twice that.
    pub every_s: f64,
    /// Steps of a round trip.
    pub steps: u32,
}

impl WindowLoop {
    /// Sends a train through the loop, which must have a network without a limit of its capacity.
    /// `progress` receives the seconds that have passed. If it breaks, the function returns what was seen
    /// until then.
    ///
    /// # Errors
    /// The network has a limit, or a number of the train is out of range.
    pub fn probe_fluid(
        &self,
        probe: &FluidProbe,
        seed: u64,
        progress: &mut dyn FnMut(f64) -> ControlFlow<()>,
    ) -> Result<Samples, LoopError> {
        let check = |holds: bool, what, wanted, got| match holds {
            true => Ok(()),
            false => Err(LoopError { what, wanted, got }),
        };
        let positive = |value: f64| value > 0.0 && value < 1e12;
        check(
            self.packet_s == 0.0,
            "the capacity",
            "without a limit, for a fluid",
            1.0 / self.packet_s,
        )?;
        check(
            positive(probe.rate_pps),
            "the rate",
            "packets a second above 0",
            probe.rate_pps,
        )?;
        check(
            positive(probe.duration_s),
            "the duration",
            "above 0 s",
            probe.duration_s,
        )?;
        check(
            positive(probe.every_s),
            "the distance of samples",
            "above 0 s",
            probe.every_s,
        )?;
        check(
            (0.0..1e12).contains(&probe.warm_up_s),
            "the warm-up",
            "0 s or more",
            probe.warm_up_s,
        )?;
        let steps = f64::from(probe.steps);
        check(
            (1..=MAX_STEPS).contains(&probe.steps),
            "the steps of a round trip",
            "1 to 10,000",
            steps,
        )?;

        let mut fluid = Fluid::new(self, probe.steps, seed);
        let step_s = fluid.step_s;
        let mut written_next = probe.warm_up_s + probe.every_s * 2.0 * fluid.flow.draw_unit();
        let end_s = probe.warm_up_s + probe.duration_s;
        let mut samples = Samples::default();
        let mut number: u64 = 0;
        while written_next < end_s {
            number += 1;
            let now = number as f64 * step_s;
            let was = fluid.sent;
            fluid.step(probe.rate_pps * now);
            // the fluid that was written then leaves within this step
            while written_next * probe.rate_pps <= fluid.sent && written_next < end_s {
                let amount = written_next * probe.rate_pps;
                let left = now - step_s * (fluid.sent - amount) / (fluid.sent - was);
                let waited = (left - written_next).max(0.0);
                samples.written_s.push(written_next);
                samples.sender_s.push(waited);
                samples.delay_s.push(waited + self.latency_s);
                samples.window_packets.push(fluid.window);
                samples.buffered += u64::from(waited > step_s * 1e-3);
                samples.packets += 1;
                written_next += probe.every_s * 2.0 * fluid.flow.draw_unit();
            }
            if number.is_multiple_of(PER_PROGRESS) && progress(now.min(end_s)).is_break() {
                break;
            }
        }
        samples.arriving_s = probe.duration_s;
        Ok(samples)
    }

    /// What a source gets that always has something to send, in packets a second, over `duration_s` after a
    /// quarter as long in which nothing is counted. The capacity, if there is one, is a bound.
    ///
    /// # Errors
    /// A number is out of range.
    pub fn greedy_rate(&self, duration_s: f64, steps: u32, seed: u64) -> Result<f64, LoopError> {
        let wrong = |what, wanted, got| Err(LoopError { what, wanted, got });
        if !(duration_s > 0.0 && duration_s < 1e12) {
            return wrong("the duration", "above 0 s", duration_s);
        }
        if !(1..=MAX_STEPS).contains(&steps) {
            return wrong("the steps of a round trip", "1 to 10,000", f64::from(steps));
        }
        let mut fluid = Fluid::new(self, steps, seed);
        let counted = (duration_s / fluid.step_s).ceil();
        let before = (counted / 4.0).ceil();
        for _ in 0..before as u64 {
            fluid.step(f64::INFINITY);
        }
        let at_first = fluid.sent;
        for _ in 0..counted as u64 {
            fluid.step(f64::INFINITY);
        }
        let rate = (fluid.sent - at_first) / (counted * fluid.step_s);
        Ok(match self.packet_s > 0.0 {
            true => rate.min(1.0 / self.packet_s),
            false => rate,
        })
    }
}

/// The state of the loop on the grid.
struct Fluid {
    flow: Flow,
    marks: Option<Marks>,
    step_s: f64,
    /// What had been sent at the last steps of a round trip; the oldest is at `oldest`.
    sent_before: Vec<f64>,
    oldest: usize,
    sent: f64,
    window: f64,
    until_mark: f64,
}

impl Fluid {
    fn new(of: &WindowLoop, steps: u32, seed: u64) -> Self {
        let flow = of.start(seed);
        Self {
            marks: match of.window {
                Window::Adaptive { marks } => Some(marks),
                Window::Static { .. } => None,
            },
            step_s: (of.latency_s + of.acknowledgment_s) / f64::from(steps),
            sent_before: vec![0.0; steps as usize + 1],
            oldest: 0,
            sent: 0.0,
            window: flow.window,
            until_mark: flow.until_mark as f64,
            flow,
        }
    }

    /// One step on, `written` being all that was written by its end.
    #[inline]
    fn step(&mut self, written: f64) {
        let length = self.sent_before.len();
        let acknowledged_before = self.sent_before[self.oldest];
        let newest = self.oldest;
        self.oldest = if self.oldest + 1 == length {
            0
        } else {
            self.oldest + 1
        };
        let acknowledged = self.sent_before[self.oldest];
        let mut news = acknowledged - acknowledged_before;
        if let Some(marks) = self.marks {
            while news >= self.until_mark {
                news -= self.until_mark;
                let grown = self.window + self.until_mark / self.window;
                self.window = (grown / 2.0).max(1.0);
                self.until_mark = self.flow.draw_mark(marks) as f64;
            }
            self.until_mark -= news;
            self.window += news / self.window;
        }
        self.sent = self.sent.max(written.min(acknowledged + self.window));
        self.sent_before[newest] = self.sent;
    }
}
