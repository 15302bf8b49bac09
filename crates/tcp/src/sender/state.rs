//! Loss recovery's states.

use crate::prr::ProportionalRateReduction;

/// Loss recovery's states, by Linux's names. The reduction sets the window, if the controller leaves
/// it to that; each state ends when all before `high_seq` is acknowledged.
#[derive(Clone, Debug)]
pub enum State {
    /// Nothing lost that is known of (Open and Disorder).
    Open,
    /// Packets were marked, none was lost.
    Reducing {
        high_seq: u64,
        reduction: Option<ProportionalRateReduction>,
    },
    /// Losses found by RACK.
    Recovery {
        high_seq: u64,
        reduction: Option<ProportionalRateReduction>,
    },
    /// The retransmission timer expired.
    Loss { high_seq: u64, frto: Frto },
}

/// How far it was looked whether a timeout was too early (RFC 5682).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frto {
    /// It was not, or nobody asks: the losses of a recovery came before.
    Off,
    /// The first packet was sent again, or new data after that: what is acknowledged next decides.
    TimedOut,
    /// New data leaves before more is sent again.
    NewData,
}

impl State {
    /// How to get down to the new window, while that is under way.
    #[inline]
    pub fn reduction(&mut self) -> Option<&mut ProportionalRateReduction> {
        match self {
            Self::Reducing { reduction, .. } | Self::Recovery { reduction, .. } => {
                reduction.as_mut()
            }
            Self::Open | Self::Loss { .. } => None,
        }
    }
}
