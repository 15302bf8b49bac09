//! One-way delay: fixed, or drawn for each packet.

mod jitter;
mod line;

pub use jitter::{Distribution, Jitter};
pub use line::{DelayLine, ShuffledLine};

use pathcast_base::{Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::reader::{Field, Read, TIME};

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

    /// The value of the key `delay`.
    pub(crate) fn read(field: Field<'_, '_>) -> Read<Self> {
        if !field.is_table() {
            return Ok(Self::Fixed(field.quantity(TIME)?));
        }
        let (kind, table) = field.kind(&[("fixed", &["delay"]), ("jitter", Jitter::KEYS)])?;
        match kind {
            "fixed" => Ok(Self::Fixed(table.need("delay")?.quantity(TIME)?)),
            _ => Jitter::read(table).map(Self::Jitter),
        }
    }

    pub(crate) fn to_toml(self) -> String {
        match self {
            Self::Fixed(delay) => format!("\"{delay}\""),
            Self::Jitter(jitter) => jitter.to_toml(),
        }
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

    /// From now on, delays of another kind. Packets in transit keep theirs.
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
