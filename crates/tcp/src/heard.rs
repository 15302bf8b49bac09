//! What a receiver has said of packets past a hole, for senders that may know of the first few only: uTP's
//! acknowledgments have a bit for each of 32 packets, where TCP's name ranges of any length.

use crate::segment::{AckSegment, SackBlock};

/// Packets past the first that is missing of which an acknowledgment knows.
const BITS: u64 = 32;

/// Ranges that have arrived, in order and apart.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    blocks: Vec<SackBlock>,
}

impl Heard {
    /// Takes what an acknowledgment says; all before its cumulative number is forgotten.
    pub fn take(&mut self, ack: &AckSegment) {
        for mut block in ack.sacks() {
            // those that it touches become part of it
            self.blocks.retain(|known| {
                let touches = known.start <= block.end && block.start <= known.end;
                if touches {
                    block.start = block.start.min(known.start);
                    block.end = block.end.max(known.end);
                }
                !touches
            });
            let at = (self.blocks).partition_point(|known| known.start < block.start);
            self.blocks.insert(at, block);
        }
        self.blocks.retain(|known| known.end > ack.cumulative);
    }

    /// The ranges, as far as an acknowledgment of all before `una` knows of them.
    pub fn known(&self, una: u64) -> impl Iterator<Item = SackBlock> + '_ {
        let end = Self::end(una);
        let within = self
            .blocks
            .iter()
            .take_while(move |block| block.start < end);
        within.map(move |block| SackBlock {
            start: block.start,
            end: block.end.min(end),
        })
    }

    /// One past the last packet of which an acknowledgment of all before `una` knows.
    pub const fn end(una: u64) -> u64 {
        una + 1 + BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(cumulative: u64, blocks: &[(u64, u64)], heard: &mut Heard) -> Vec<(u64, u64)> {
        let mut ack = AckSegment::new(cumulative);
        for &(start, end) in blocks {
            ack.push(SackBlock { start, end });
        }
        heard.take(&ack);
        let known = heard.known(cumulative);
        known.map(|block| (block.start, block.end)).collect()
    }

    #[test]
    fn thirty_two_packets_past_the_first_that_is_missing_are_known() {
        let mut all = Heard::default();
        assert_eq!(heard(10, &[(11, 20)], &mut all), [(11, 20)]);
        assert_eq!(heard(10, &[(11, 90)], &mut all), [(11, 43)]);
        assert_eq!(heard(10, &[(100, 120)], &mut all), [(11, 43)]);
        // the first hole is filled: what was heard before is known now
        assert_eq!(heard(90, &[], &mut all), [(100, 120)]);
        assert_eq!(heard(120, &[], &mut all), []);
        assert!(all.blocks.is_empty());
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let mut all = Heard::default();
        assert_eq!(heard(0, &[(5, 6), (1, 2)], &mut all), [(1, 2), (5, 6)]);
        assert_eq!(heard(0, &[(2, 5)], &mut all), [(1, 6)]);
        assert_eq!(heard(0, &[(3, 4), (8, 9)], &mut all), [(1, 6), (8, 9)]);
    }
}
