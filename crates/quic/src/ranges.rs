//! Bytes that come in any order, and how far they are whole.

use std::collections::BTreeMap;
use std::ops::Range;

/// How many bytes of a stream are there from its beginning on.
#[derive(Clone, Debug, Default)]
pub struct Frontier {
    whole: u64,
    /// Disjoint ranges beyond a gap: first byte and end.
    beyond: BTreeMap<u64, u64>,
}

impl Frontier {
    /// All bytes before this one are there.
    pub const fn whole(&self) -> u64 {
        self.whole
    }

    /// These bytes are there, some of them perhaps for the second time.
    pub fn add(&mut self, range: Range<u64>) {
        let (mut first, mut end) = (range.start.max(self.whole), range.end);
        if first >= end {
            return;
        }
        // what it touches becomes one with it
        while let Some((&at, &until)) = self.beyond.range(..=end).next_back() {
            if until < first {
                break;
            }
            self.beyond.remove(&at);
            (first, end) = (first.min(at), end.max(until));
        }
        if first <= self.whole {
            self.whole = end;
        } else {
            self.beyond.insert(first, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{RngCore, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn gaps_are_waited_for() {
        let mut bytes = Frontier::default();
        for (range, whole) in [
            (5..8, 0),
            (0..3, 3),
            (9..12, 3),
            (8..9, 3),
            (2..4, 4),
            (4..5, 12),
            (1..6, 12),
            (12..12, 12),
        ] {
            bytes.add(range);
            assert_eq!(bytes.whole(), whole);
        }
        assert!(bytes.beyond.is_empty());
    }

    #[test]
    fn any_order_and_any_overlap_is_as_marking_each_byte() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        for _ in 0..200 {
            let (mut bytes, mut marked) = (Frontier::default(), [false; 64]);
            for _ in 0..40 {
                let first = random.next_u64() % 60;
                let end = first + random.next_u64() % 5;
                bytes.add(first..end);
                marked[first as usize..end as usize].fill(true);
                let whole = marked.iter().take_while(|there| **there).count();
                assert_eq!(bytes.whole(), whole as u64);
                let mut before = bytes.whole();
                for (&at, &until) in &bytes.beyond {
                    assert!(at > before && until > at);
                    before = until;
                }
            }
        }
    }
}
