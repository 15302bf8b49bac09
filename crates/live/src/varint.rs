//! Whole numbers in as few bytes as they need: seven bits a byte, the last without the highest bit.

/// Appends `value`.
#[inline]
pub(crate) fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends `value`, which may be negative: 0, -1, 1, -2, ... are 0, 1, 2, 3, ...
#[inline]
pub(crate) fn put_signed(bytes: &mut Vec<u8>, value: i64) {
    put(bytes, (value << 1 ^ value >> 63) as u64);
}

/// Takes a number off the front of `bytes`; none if it is incomplete.
#[inline]
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// As [`take`], for what [`put_signed`] wrote.
#[inline]
pub(crate) fn take_signed(bytes: &mut &[u8]) -> Option<i64> {
    let value = take(bytes)?;
    Some((value >> 1) as i64 ^ -((value & 1) as i64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(value in proptest::num::u64::ANY, signed in proptest::num::i64::ANY) {
            for (value, signed) in [(value, signed), (value >> 40, signed >> 50), (u64::MAX, i64::MIN)] {
                let mut bytes = Vec::new();
                put(&mut bytes, value);
                put_signed(&mut bytes, signed);
                let mut rest = &bytes[..];
                prop_assert_eq!(take(&mut rest), Some(value));
                prop_assert_eq!(take_signed(&mut rest), Some(signed));
                prop_assert!(rest.is_empty());
                let mut cut = &bytes[..bytes.len() - 1];
                take(&mut cut);
                prop_assert_eq!(take_signed(&mut cut), None);
            }
        }

        #[test]
        fn any_bytes_are_read_to_an_end(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..40)) {
            let mut rest = &bytes[..];
            while take(&mut rest).is_some() {}
        }
    }
}
