//! Loss recovery's states.

use crate::prr::ProportionalRateReduction;
use crate::scoreboard::Delivery;

/// Loss recovery's states, by Linux's names. The reduction sets the window, if the controller leaves
/// it to that; each state ends when all before `high_seq` is acknowledged.
#[derive(Clone, Debug)]
pub enum State {
    /// No known loss (Open and Disorder).
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

/// The state of detecting whether a timeout was too early (RFC 5682).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frto {
    /// It was not, or the question does not arise: the losses of a recovery came before.
    Off,
    /// The first packet was sent again, or new data after that: what is acknowledged next decides.
    TimedOut,
    /// New data leaves before more is sent again.
    NewData,
}

impl State {
    /// Whether new data leaves before more is sent again.
    #[inline]
    pub fn sends_new_first(&self) -> bool {
        matches!(
            self,
            Self::Loss {
                frto: Frto::NewData,
                ..
            }
        )
    }

    /// New data has left up to `next`, or could not.
    #[inline]
    pub fn end_new_data(&mut self, next: u64) {
        if let Self::Loss { high_seq, frto } = self
            && *frto == Frto::NewData
        {
            *frto = match next > *high_seq {
                true => Frto::TimedOut,
                false => Frto::Off,
            };
        }
    }

    /// An acknowledgment after a timeout. The first that moves lets new data out, if there is any, before
    /// more is sent again: if that, too, brings what was never sent again, the timeout was too early
    /// (as Linux's tcp_process_loss).
    #[inline]
    pub fn probe_timeout(&mut self, delivery: &Delivery, next: u64, has_new: bool) {
        if let Self::Loss { high_seq, frto } = self
            && *frto != Frto::Off
        {
            if next > *high_seq {
                if delivery.sacked || !delivery.advanced {
                    *frto = Frto::Off;
                }
            } else if delivery.advanced {
                *high_seq = next;
                *frto = if has_new { Frto::NewData } else { Frto::Off };
            }
        }
    }

    /// The reduction to the new window, while it continues.
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
