//! The scoreboard of a sender that knows of the first few packets past a hole only, as uTP's.

use pathcast_base::{Span, Time};

use super::{Delivery, Scoreboard};
use crate::heard::Heard;
use crate::segment::AckSegment;
use crate::sent::SACKED;

impl Scoreboard {
    /// One that knows of no more packets past a hole than uTP's acknowledgments say.
    pub fn short_sighted() -> Self {
        Self {
            heard: Some(Box::default()),
            ..Self::default()
        }
    }

    /// SACKs what a short-sighted sender knows of.
    #[cold]
    pub(super) fn sack_what_is_known(
        &mut self,
        now: Time,
        ack: &AckSegment,
        min_rtt: Option<Span>,
        delivery: &mut Delivery,
    ) {
        let Some(mut heard) = self.heard.take() else {
            return;
        };
        heard.take(ack);
        for block in heard.known(self.una) {
            self.sack_new_part(now, block, &[], min_rtt, delivery);
        }
        self.heard = Some(heard);
    }

    /// Marks as lost what three SACKed packets came after, from `first` on and `most` of them; returns how many, and
    /// one past the last.
    pub fn lose_before_three(&mut self, first: u64, most: u64) -> (u64, u64) {
        let mut after = Heard::end(self.una).min(self.next());
        let mut sacked = 0;
        while sacked < 3 && after > first {
            after -= 1;
            sacked += u64::from(self.packets[(after - self.una) as usize].has(SACKED));
        }
        let (mut found, mut looked) = (0, first);
        if sacked == 3 {
            for seq in first..after {
                if found < most && self.on_its_way(seq).is_some() {
                    self.mark_lost(seq);
                    (found, looked) = (found + 1, seq + 1);
                }
            }
        }
        (found, looked)
    }
}
