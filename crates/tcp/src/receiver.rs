//! The receiving end: order, delayed acknowledgments, SACK blocks.

use pathcast_path::{Span, Time};

use crate::segment::{AckSegment, MAX_SACK_BLOCKS, SackBlock};

/// How long an acknowledgment of one packet may wait for a second (Linux's TCP_DELACK_MIN).
const DELAYED_ACK: Span = Span::from_millis(40);
/// Packets acknowledged one by one at the start, so that slow start is not slowed (Linux's
/// TCP_MAX_QUICKACKS).
const QUICK_ACKS: u64 = 16;

/// Puts packets in order and acknowledges them.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    /// The next packet in order.
    next: u64,
    /// Blocks past `next`, ascending, with gaps between them.
    blocks: Vec<SackBlock>,
    /// A packet in each of the blocks that changed last, newest first.
    recent: [u64; MAX_SACK_BLOCKS],
    /// Packets that arrived since the last acknowledgment.
    unacknowledged: u64,
    delayed_ack_at: Option<Time>,
}

impl Receiver {
    /// Packets delivered in order to the application.
    pub const fn delivered(&self) -> u64 {
        self.next
    }

    /// Takes packet `seq`, which arrived at `now`; returns an acknowledgment if one is due at once.
    #[inline]
    pub fn on_data(&mut self, now: Time, seq: u64) -> Option<AckSegment> {
        let had_gap = !self.blocks.is_empty();
        if seq == self.next {
            self.next += 1;
            if had_gap && self.blocks[0].start == self.next {
                self.next = self.blocks.remove(0).end;
            }
        } else if seq > self.next {
            self.insert(seq);
        } // else: arrived twice, say so at once
        self.unacknowledged += 1;
        let out_of_order = had_gap || !self.blocks.is_empty() || seq + 1 != self.next;
        if out_of_order || self.unacknowledged >= 2 || self.next <= QUICK_ACKS {
            return Some(self.acknowledge());
        }
        self.delayed_ack_at.get_or_insert(now + DELAYED_ACK);
        None
    }

    /// When a delayed acknowledgment is due, if one waits.
    #[inline]
    pub const fn next_timer(&self) -> Option<Time> {
        self.delayed_ack_at
    }

    /// The delayed acknowledgment, if it is due at `now`.
    pub fn on_timer(&mut self, now: Time) -> Option<AckSegment> {
        (self.delayed_ack_at? <= now).then(|| self.acknowledge())
    }

    fn insert(&mut self, seq: u64) {
        // most packets past a gap extend the last block
        let at = match self.blocks.last() {
            Some(last) if last.end <= seq => self.blocks.len(),
            _ => self.blocks.partition_point(|block| block.end <= seq),
        };
        if self.blocks.get(at).is_some_and(|block| block.start <= seq) {
            return; // arrived twice
        }
        let extends_left = at > 0 && self.blocks[at - 1].end == seq;
        let extends_right = self
            .blocks
            .get(at)
            .is_some_and(|block| block.start == seq + 1);
        match (extends_left, extends_right) {
            (true, true) => self.blocks[at - 1].end = self.blocks.remove(at).end,
            (true, false) => self.blocks[at - 1].end += 1,
            (false, true) => self.blocks[at].start -= 1,
            (false, false) => self.blocks.insert(
                at,
                SackBlock {
                    start: seq,
                    end: seq + 1,
                },
            ),
        }
        let changed = self.block_of(seq);
        if self.block_of(self.recent[0]) != changed {
            self.recent.rotate_right(1);
        }
        self.recent[0] = seq;
    }

    fn block_of(&self, seq: u64) -> Option<SackBlock> {
        let at = self.blocks.partition_point(|block| block.end <= seq);
        self.blocks
            .get(at)
            .copied()
            .filter(|block| block.start <= seq)
    }

    fn acknowledge(&mut self) -> AckSegment {
        self.unacknowledged = 0;
        self.delayed_ack_at = None;
        let mut ack = AckSegment::new(self.next);
        if !self.blocks.is_empty() {
            for seq in self.recent {
                if let Some(block) = self.block_of(seq) {
                    ack.push(block);
                }
            }
        }
        ack
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn past_quick_acks() -> Receiver {
        let mut receiver = Receiver::default();
        for seq in 0..QUICK_ACKS {
            assert!(receiver.on_data(at(0), seq).is_some());
        }
        receiver
    }

    #[test]
    fn every_second_packet_is_acknowledged_or_after_40_ms() {
        let mut receiver = past_quick_acks();
        assert_eq!(receiver.on_data(at(0), 16), None);
        assert_eq!(receiver.on_data(at(1), 17), Some(AckSegment::new(18)));
        assert_eq!(receiver.on_data(at(2), 18), None);
        assert_eq!(receiver.next_timer(), Some(at(42)));
        assert_eq!(receiver.on_timer(at(41)), None);
        assert_eq!(receiver.on_timer(at(42)), Some(AckSegment::new(19)));
        assert_eq!(receiver.next_timer(), None);
    }

    #[test]
    fn packets_past_a_gap_are_acknowledged_at_once_newest_block_first() {
        let mut receiver = past_quick_acks();
        let block = |start, end| SackBlock { start, end };
        assert_eq!(
            receiver.on_data(at(0), 17).unwrap().sacks(),
            [block(17, 18)]
        );
        assert_eq!(
            receiver.on_data(at(0), 19).unwrap().sacks(),
            [block(19, 20), block(17, 18)]
        );
        assert_eq!(
            receiver.on_data(at(0), 18).unwrap().sacks(),
            [block(17, 20)]
        );
        let ack = receiver.on_data(at(0), 16).unwrap();
        assert_eq!((ack.cumulative, ack.sacks().len()), (20, 0));
        assert_eq!(receiver.delivered(), 20);
    }

    proptest! {
        #[test]
        fn whatever_the_order_all_packets_are_delivered_once(
            order in Just((0..60u64).collect::<Vec<_>>()).prop_shuffle(),
            twice in prop::collection::vec(0..60usize, 0..20),
        ) {
            let mut receiver = Receiver::default();
            let mut arrived = std::collections::BTreeSet::new();
            let again: Vec<u64> = twice.iter().map(|&i| order[i]).collect();
            for seq in order.into_iter().chain(again) {
                arrived.insert(seq);
                let ack = receiver.on_data(Time::ZERO, seq);
                let in_order = (0..).find(|n| !arrived.contains(n)).unwrap();
                prop_assert_eq!(receiver.delivered(), in_order);
                for block in ack.iter().flat_map(|ack| ack.sacks()) {
                    prop_assert!(block.start > in_order);
                    prop_assert!((block.start..block.end).all(|n| arrived.contains(&n)));
                    prop_assert!(!arrived.contains(&block.end) && !arrived.contains(&(block.start - 1)));
                }
            }
            prop_assert_eq!(receiver.delivered(), 60);
        }
    }
}
