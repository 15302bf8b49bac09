//! One-way delay: fixed, or drawn for each packet.

mod jitter;
mod line;

pub use jitter::{Distribution, Jitter};
pub use line::{DelayLine, ShuffledLine};

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::units::{Span, Time};

/// A delay as a path file describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DelaySpec {
    /// The same for all packets.
    Fixed(Span),
    /// Drawn for each packet.
    Jitter(Jitter),
}

impl DelaySpec {
    /// The least delay that a packet can have.
    pub const fn base(&self) -> Span {
        match self {
            Self::Fixed(delay) => *delay,
            Self::Jitter(jitter) => jitter.base,
        }
    }

    /// Whether packets may overtake each other.
    pub const fn reorders(&self) -> bool {
        matches!(self, Self::Jitter(jitter) if jitter.reorder)
    }
}

/// Draws delays and says when packets are due.
#[derive(Clone, Debug)]
pub struct Delay {
    spec: DelaySpec,
    last_due: Time,
    rng: Xoshiro256PlusPlus,
}

impl Delay {
    /// Delays of `spec`, drawn from `rng`.
    pub const fn new(spec: DelaySpec, rng: Xoshiro256PlusPlus) -> Self {
        Self {
            spec,
            last_due: Time::ZERO,
            rng,
        }
    }

    /// From now on, delays of another kind. Packets that are on their way keep theirs.
    pub const fn change(&mut self, spec: DelaySpec) {
        self.spec = spec;
    }

    /// When the packet that leaves the link at `sent` is due.
    ///
    /// Without reordering, it is due no sooner than the packet before it: where the delay falls,
    /// packets close up.
    #[inline]
    pub fn due(&mut self, sent: Time) -> Time {
        let due = match &self.spec {
            DelaySpec::Fixed(delay) => sent + *delay,
            DelaySpec::Jitter(jitter) => sent + jitter.draw(&mut self.rng),
        };
        if self.spec.reorders() {
            return due;
        }
        self.last_due = self.last_due.max(due);
        self.last_due
    }
}
