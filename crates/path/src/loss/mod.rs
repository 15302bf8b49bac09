//! Loss that is not the queue's: which packets never arrive although there was room for them.

mod bursts;
mod gilbert_elliott;
mod iid;
mod periodic;

pub use bursts::{BurstLoss, Bursts};
pub use gilbert_elliott::{GilbertElliott, GilbertElliottLoss};
pub use iid::IidLoss;
pub use periodic::{Periodic, PeriodicLoss};

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::units::{Probability, Time};

/// A loss process as a path file describes it.
#[derive(Clone, Debug, PartialEq)]
pub enum LossSpec {
    /// Each packet is lost independently with this probability.
    Iid(Probability),
    /// Two states, each with its probability of loss.
    GilbertElliott(GilbertElliott),
    /// Every nth packet.
    Periodic(Periodic),
    /// A list of bursts.
    Bursts(Bursts),
}

impl Default for LossSpec {
    fn default() -> Self {
        Self::Iid(Probability::ZERO)
    }
}

impl LossSpec {
    /// The share of packets lost in the long run; that of a list of bursts is 0.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Iid(probability) => probability.value(),
            Self::GilbertElliott(spec) => spec.stationary_loss(),
            Self::Periodic(spec) => 1.0 / spec.every as f64,
            Self::Bursts(_) => 0.0,
        }
    }

    /// The process, drawing from `rng` if it draws at all.
    pub fn process(&self, rng: Xoshiro256PlusPlus) -> Loss {
        match self {
            Self::Iid(p) if p.value() <= 0.0 => Loss::None,
            Self::Iid(p) => Loss::Iid(IidLoss::new(*p, rng)),
            Self::GilbertElliott(spec) => Loss::GilbertElliott(GilbertElliottLoss::new(*spec, rng)),
            Self::Periodic(spec) => Loss::Periodic(PeriodicLoss::new(*spec)),
            Self::Bursts(spec) => Loss::Bursts(Box::new(BurstLoss::new(spec.clone()))),
        }
    }
}

/// A loss process, asked once for each packet in order.
#[derive(Clone, Debug)]
pub enum Loss {
    /// Nothing is lost.
    None,
    /// Each packet is lost independently with the same probability.
    Iid(IidLoss),
    /// Two states.
    GilbertElliott(GilbertElliottLoss),
    /// Every nth packet.
    Periodic(PeriodicLoss),
    /// A list of bursts.
    Bursts(Box<BurstLoss>),
}

impl Loss {
    /// Whether the next packet, which leaves the link at `sent`, is lost.
    #[inline]
    pub fn drops_next(&mut self, sent: Time) -> bool {
        match self {
            Self::None => false,
            Self::Iid(loss) => loss.drops_next(),
            _ => self.drops_next_of_others(sent),
        }
    }

    /// Out of the way of the fast channels.
    #[inline(never)]
    fn drops_next_of_others(&mut self, sent: Time) -> bool {
        match self {
            Self::None | Self::Iid(_) => false,
            Self::GilbertElliott(loss) => loss.drops_next(),
            Self::Periodic(loss) => loss.drops_next(),
            Self::Bursts(loss) => loss.drops_next(sent),
        }
    }
}
