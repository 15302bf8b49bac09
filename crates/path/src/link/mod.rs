//! The link: when does a packet leave the transmitter?
//!
//! There are two kinds. A *serial* link takes time for each byte, so that the end of a transmission
//! is known when it begins. A link of *opportunities* (mahimahi's) sends a number of bytes at each
//! of a row of moments, and what is not used then is lost.

mod constant;
mod mahimahi;
mod opportunities;
mod poisson;
mod steps;
mod wandering;

pub use constant::ConstantLink;
pub use mahimahi::{MAX_TRACE_BYTES, MahimahiTrace, TraceError, traces_to_files};
pub(crate) use opportunities::HEADER_BYTES;
pub use opportunities::{OPPORTUNITY_BYTES, OpportunityLink};
pub use poisson::PoissonClock;
pub use steps::{SteppedLink, Steps};
pub use wandering::{Wandering, WanderingClock};

use pathcast_base::Bandwidth;

use crate::reader::{Field, Loader, RATE, Read};

/// A link as a path file describes it.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkSpec {
    /// A constant rate.
    Constant(Bandwidth),
    /// Opportunities that are a Poisson process with this mean rate.
    Poisson(Bandwidth),
    /// Opportunities that are a Poisson process whose rate wanders.
    Wandering(Wandering),
    /// Opportunities out of a mahimahi trace.
    Mahimahi(MahimahiTrace),
    /// Pieces of constant rate.
    Steps(Steps),
}

impl LinkSpec {
    /// The rate in the long run.
    pub fn mean_rate(&self) -> Bandwidth {
        match self {
            Self::Constant(rate) | Self::Poisson(rate) => *rate,
            Self::Wandering(wandering) => wandering.rate,
            Self::Mahimahi(trace) => trace.mean_rate(),
            Self::Steps(steps) => steps.mean_rate(),
        }
    }

    /// The highest rate; of a link of opportunities, the mean.
    pub fn peak_rate(&self) -> Bandwidth {
        match self {
            Self::Steps(steps) => steps.peak_rate(),
            _ => self.mean_rate(),
        }
    }

    /// The value of the key `rate`.
    pub(crate) fn read(field: Field<'_, '_>, load: &mut Loader<'_>) -> Read<Self> {
        if !field.is_table() {
            return Ok(Self::Constant(field.quantity(RATE)?));
        }
        let (kind, table) = field.kind(&[
            ("constant", &["rate"]),
            ("poisson", &["rate"]),
            ("wandering", Wandering::KEYS),
            ("mahimahi", MahimahiTrace::KEYS),
            ("steps", Steps::KEYS),
        ])?;
        Ok(match kind {
            "constant" => Self::Constant(table.need("rate")?.quantity(RATE)?),
            "poisson" => Self::Poisson(table.need("rate")?.quantity(RATE)?),
            "wandering" => Self::Wandering(Wandering::read(&table)?),
            "mahimahi" => Self::Mahimahi(MahimahiTrace::read(field, table, load)?),
            _ => Self::Steps(Steps::read(table)?),
        })
    }

    pub(crate) fn to_toml(&self) -> String {
        match self {
            Self::Constant(rate) => format!("\"{rate}\""),
            Self::Poisson(rate) => format!("{{ kind = \"poisson\", rate = \"{rate}\" }}"),
            Self::Wandering(wandering) => wandering.to_toml(),
            Self::Mahimahi(trace) => trace.to_toml(),
            Self::Steps(steps) => steps.to_toml(),
        }
    }
}
