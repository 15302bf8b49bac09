//! Sequence numbers that wrap, as counts that do not.

/// Follows a 32-bit sequence number and counts bytes from where it began.
///
/// Right as long as it moves by less than 2 GiB between two looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unwrapped {
    raw: u32,
    bytes: u64,
}

impl Unwrapped {
    /// Counts from `base`.
    pub(crate) const fn from_base(base: u32) -> Self {
        Self {
            raw: base,
            bytes: 0,
        }
    }

    /// The count at sequence number `raw`; 0 for one before the base.
    pub(crate) fn advance(&mut self, raw: u32) -> u64 {
        let step = raw.wrapping_sub(self.raw) as i32;
        self.bytes = self.bytes.saturating_add_signed(i64::from(step));
        self.raw = raw;
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_wrapped_number_goes_on_counting() {
        let mut number = Unwrapped::from_base(0xffff_ff00);
        assert_eq!(number.advance(0xffff_ff00), 0);
        assert_eq!(number.advance(0xffff_fff0), 0xf0);
        assert_eq!(number.advance(0x10), 0x110);
        assert_eq!(number.advance(0xffff_fff0), 0xf0); // a step back
    }

    proptest! {
        #[test]
        fn any_course_of_small_steps_is_followed(
            base in any::<u32>(),
            steps in prop::collection::vec(0..0x7fff_ffff_u32, 0..60),
        ) {
            let (mut number, mut raw, mut truth) = (Unwrapped::from_base(base), base, 0u64);
            for step in steps {
                raw = raw.wrapping_add(step);
                truth += u64::from(step);
                prop_assert_eq!(number.advance(raw), truth);
            }
        }
    }
}
