//! Closed-loop window flow control alone, without a transport around it: the loop of Lübben and Fidler,
//! "A Benchmark for the Performance of Time-varying Closed-loop Flow Control", section III.
//!
//! Packets are sent while fewer than a window of them are in flight. They cross a network with a rate and a
//! latency, nothing is lost, and each packet is acknowledged after a delay. The window is
//! [static](Window::Static), or [adapts](Window::Adaptive) to marks as NewReno's congestion avoidance does.
//!
//! The loop is a max-plus recursion over packets, not a queue of events. It takes about 10 ns a packet, so
//! it simulates the weeks that rare delays need within seconds.

mod fluid;
mod probe;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use pathcast_path::seed;
use rand_core::RngCore;
use thiserror::Error;

pub use fluid::FluidProbe;
pub use probe::{Probe, Samples};

/// The most packets that may be in flight; a larger window is a mistake.
const MAX_WINDOW: f64 = 1e7;

/// A loop that cannot be: says which number is wrong.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{what} is {got}, expected {wanted}")]
pub struct LoopError {
    what: &'static str,
    wanted: &'static str,
    got: f64,
}

/// How many packets may be in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Window {
    /// A fixed number of packets.
    Static {
        /// At least 1.
        packets: u64,
    },
    /// One more for each window of acknowledgments, half for an acknowledgment with a mark; never below 1.
    Adaptive {
        /// Which packets are marked.
        marks: Marks,
    },
}

/// Which packets the network marks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Marks {
    /// Each with this probability, whatever the others.
    Random(f64),
    /// Every n-th packet.
    Periodic(u64),
}

impl Marks {
    /// Of the same probability: every 1/p.
    fn mean_gap(self) -> f64 {
        match self {
            Self::Random(probability) => 1.0 / probability,
            Self::Periodic(every) => every as f64,
        }
    }
}

/// The loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowLoop {
    window: Window,
    /// Seconds of the link for one packet; 0: its capacity has no limit.
    packet_s: f64,
    latency_s: f64,
    acknowledgment_s: f64,
}

impl WindowLoop {
    /// A loop over a network of `rate_pps` packets a second (infinity: no limit) and a latency, both ways
    /// in seconds.
    ///
    /// # Errors
    /// A number is out of range; it says which.
    pub fn new(
        window: Window,
        rate_pps: f64,
        latency_s: f64,
        acknowledgment_s: f64,
    ) -> Result<Self, LoopError> {
        let check = |holds: bool, what, wanted, got| match holds {
            true => Ok(()),
            false => Err(LoopError { what, wanted, got }),
        };
        check(
            rate_pps > 0.0,
            "the rate",
            "packets a second above 0",
            rate_pps,
        )?;
        for (what, delay) in [
            ("the latency", latency_s),
            ("the delay of acknowledgments", acknowledgment_s),
        ] {
            check((0.0..=1e4).contains(&delay), what, "0 to 10,000 s", delay)?;
        }
        let round_trip = latency_s + acknowledgment_s;
        check(round_trip > 0.0, "the round trip", "above 0 s", round_trip)?;
        let largest = match window {
            Window::Static { packets } => packets as f64,
            Window::Adaptive { marks } => {
                let gap = marks.mean_gap();
                check(
                    gap >= 1.0,
                    "the packets from mark to mark",
                    "at least 1",
                    gap,
                )?;
                // after so many packets without a mark the window squared is twice as many
                (2.0 * 50.0 * gap).sqrt()
            }
        };
        let wanted = "1 to 10,000,000 packets";
        check(
            (1.0..=MAX_WINDOW).contains(&largest),
            "the window",
            wanted,
            largest,
        )?;
        Ok(Self {
            window,
            packet_s: if rate_pps.is_finite() {
                1.0 / rate_pps
            } else {
                0.0
            },
            latency_s,
            acknowledgment_s,
        })
    }

    /// A flow through the loop, at time 0 with nothing in flight.
    ///
    /// An adaptive window begins at the mean that Mathis et al. 1997 give for it.
    pub fn start(&self, run_seed: u64) -> Flow {
        let mut flow = Flow {
            of: *self,
            window: 1.0,
            whole: 1,
            acknowledged: 0,
            until_mark: u64::MAX,
            last_sent_s: f64::NEG_INFINITY,
            link_free_s: f64::NEG_INFINITY,
            under_way: VecDeque::new(),
            rng: seed::generator(run_seed, "window_loop.marks"),
        };
        match self.window {
            Window::Static { packets } => flow.set_window(packets as f64),
            Window::Adaptive { marks } => {
                flow.set_window((1.5 * marks.mean_gap()).sqrt().max(1.0));
                flow.until_mark = flow.draw_mark(marks);
            }
        }
        flow
    }
}

/// When a packet passed where, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Passage {
    /// It left the sender: until then it waited for the window.
    pub sent_s: f64,
    /// It arrived.
    pub delivered_s: f64,
}

/// A flow in the loop.
#[derive(Clone, Debug)]
pub struct Flow {
    of: WindowLoop,
    window: f64,
    /// Whole packets of it.
    whole: usize,
    acknowledged: u64,
    /// Packets to be acknowledged until one that was marked, it included.
    until_mark: u64,
    last_sent_s: f64,
    link_free_s: f64,
    /// When acknowledgments of what is in flight arrive.
    under_way: VecDeque<f64>,
    rng: rand_xoshiro::Xoshiro256PlusPlus,
}

impl Flow {
    /// Takes the next packet, which the application writes at `written_s`; not before the last one.
    #[inline]
    pub fn carry(&mut self, written_s: f64) -> Passage {
        let mut now = written_s.max(self.last_sent_s);
        while let Some(&at) = self.under_way.front() {
            if at > now {
                if self.under_way.len() < self.whole {
                    break;
                }
                now = at;
            }
            self.under_way.pop_front();
            self.acknowledge();
        }
        self.last_sent_s = now;
        let begins = now.max(self.link_free_s);
        self.link_free_s = begins + self.of.packet_s;
        let delivered_s = self.link_free_s + self.of.latency_s;
        self.under_way
            .push_back(delivered_s + self.of.acknowledgment_s);
        Passage {
            sent_s: now,
            delivered_s,
        }
    }

    /// The window, in packets.
    pub const fn window_packets(&self) -> f64 {
        self.window
    }

    #[inline]
    fn acknowledge(&mut self) {
        self.acknowledged += 1;
        if let Window::Adaptive { marks } = self.of.window {
            self.until_mark -= 1;
            if self.until_mark == 0 {
                self.until_mark = self.draw_mark(marks);
                self.set_window((self.window / 2.0).max(1.0));
            } else {
                self.set_window(self.window + 1.0 / self.window);
            }
        }
    }

    #[inline]
    fn set_window(&mut self, packets: f64) {
        self.window = packets;
        self.whole = packets as usize;
    }

    /// Packets up to the next that is marked, it included; at least 1.
    fn draw_mark(&mut self, marks: Marks) -> u64 {
        match marks {
            Marks::Periodic(every) => every,
            Marks::Random(probability) => {
                if probability >= 1.0 {
                    return 1;
                }
                let uniform = seed::uniform(&mut self.rng);
                // at the most 50 means, which a run has not once in 10^21 marks
                let gap = (libm::log(uniform) / libm::log1p(-probability)).ceil();
                (gap.clamp(1.0, 50.0 / probability)) as u64
            }
        }
    }

    /// Uniform from 0 to 1, drawn independently of the marks.
    fn draw_unit(&mut self) -> f64 {
        seed::uniform(&mut self.rng)
    }

    /// A whole number from 0 to `below` - 1, drawn independently of the marks.
    fn draw_below(&mut self, below: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(below)) >> 64) as u64
    }
}
