//! Loss that is not the queue's: which packets never arrive although there was room for them.

mod bursts;
mod gilbert_elliott;
mod iid;
mod periodic;

pub use bursts::{BurstLoss, Bursts};
pub use gilbert_elliott::{GilbertElliott, GilbertElliottLoss};
pub use iid::IidLoss;
pub use periodic::{Periodic, PeriodicLoss};

use pathcast_base::{Probability, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::reader::{Field, Read};

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

    /// The value of the key `loss`.
    pub(crate) fn read(field: Field<'_, '_>) -> Read<Self> {
        let spec = if field.is_table() {
            let (kind, table) = field.kind(&[
                ("iid", &["probability"]),
                ("gilbert-elliott", GilbertElliott::KEYS),
                ("periodic", Periodic::KEYS),
                ("bursts", Bursts::KEYS),
            ])?;
            match kind {
                "iid" => Self::Iid(table.need("probability")?.probability()?),
                "gilbert-elliott" => Self::GilbertElliott(GilbertElliott::read(table)?),
                "periodic" => Self::Periodic(Periodic::read(table)?),
                _ => Self::Bursts(Bursts::read(field, table)?),
            }
        } else {
            Self::Iid(field.probability()?)
        };
        if spec.mean() >= 1.0 {
            return field.wrong("is 1: no packet would ever arrive");
        }
        Ok(spec)
    }

    pub(crate) fn to_toml(&self) -> String {
        match self {
            Self::Iid(probability) => format!("{:?}", probability.value()),
            Self::GilbertElliott(spec) => spec.to_toml(),
            Self::Periodic(spec) => spec.to_toml(),
            Self::Bursts(spec) => spec.to_toml(),
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
