//! Each datagram is taken once.

/// The numbers that have come, as far back as datagrams may overtake each other (RFC 6479).
#[derive(Clone, Debug)]
pub(crate) struct ReplayWindow {
    /// One more than the greatest number that has come.
    next: u64,
    /// Bit `n % SPAN` says whether number `n` has arrived, for the last `SPAN - 64` numbers.
    came: [u64; WORDS],
}

const WORDS: usize = 64;
/// Numbers that have bits; a word of them is being made ready for what comes.
const SPAN: u64 = 64 * WORDS as u64;

impl ReplayWindow {
    pub(crate) const fn new() -> Self {
        Self {
            next: 0,
            came: [0; WORDS],
        }
    }

    /// Whether `number` may be accepted: it has not arrived before, and is not too old to know.
    #[inline]
    pub(crate) const fn is_new(&self, number: u64) -> bool {
        if number >= self.next {
            return number < u64::MAX;
        }
        // the window begins at a word's beginning
        let oldest_word = (self.next / 64).saturating_sub(WORDS as u64 - 1);
        number / 64 >= oldest_word && self.word(number) & bit(number) == 0
    }

    /// Whether `number` is greater than all that have come.
    #[inline]
    pub(crate) const fn is_newest(&self, number: u64) -> bool {
        number >= self.next
    }

    /// Notes that `number`, which is new, has come: after it was found to be authentic.
    #[inline]
    pub(crate) fn note(&mut self, number: u64) {
        if number >= self.next {
            let (first, last) = (self.next / 64, number / 64);
            // words that come into the window hold what was a round before; that of `next` is in use,
            // unless `next` is its first number
            let begin = if self.next.is_multiple_of(64) {
                first
            } else {
                first + 1
            };
            if last >= begin {
                for word in 0..(last - begin + 1).min(WORDS as u64) {
                    self.came[((last - word) % WORDS as u64) as usize] = 0;
                }
            }
            self.next = number + 1;
        }
        self.came[(number / 64 % WORDS as u64) as usize] |= bit(number);
    }

    const fn word(&self, number: u64) -> u64 {
        self.came[(number / 64 % WORDS as u64) as usize]
    }
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

const _: () = assert!(SPAN == 4096);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_is_new_once() {
        let mut window = ReplayWindow::new();
        for number in [0, 1, 5, 3, 4095, 4096, 63, 64] {
            let old = number < 64 && window.next > SPAN - 64;
            assert_eq!(window.is_new(number), !old, "{number}");
            if !old {
                window.note(number);
                assert!(!window.is_new(number), "{number}");
            }
        }
        assert!(!window.is_new(u64::MAX), "the last nonce is never used");
    }

    proptest! {
        #[test]
        fn nothing_is_taken_twice_and_what_is_at_most_4000_late_is_taken(
            steps in proptest::collection::vec((0u64..300, 0u64..6000), 1..400)
        ) {
            let (mut window, mut came, mut greatest) = (ReplayWindow::new(), BTreeSet::new(), 0u64);
            for (forward, back) in steps {
                let number = (greatest + forward).saturating_sub(if back % 3 == 0 { back } else { 0 });
                let new = window.is_new(number);
                prop_assert!(!(new && came.contains(&number)));
                if !came.contains(&number) && greatest - number.min(greatest) <= 4000 {
                    prop_assert!(new, "{} of {}", number, greatest);
                }
                if new {
                    window.note(number);
                    came.insert(number);
                    greatest = greatest.max(number);
                }
            }
        }
    }
}
