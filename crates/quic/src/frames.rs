//! Which bytes of streams an open packet holds (RFC 9000, section 19).

use std::ops::Range;

/// A frame of a kind that is not known, or a cut one: what follows it cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// Calls `take` with the number of the stream and the bytes in each `STREAM` frame of a packet's open payload.
pub(crate) fn stream_bytes(
    payload: &[u8],
    mut take: impl FnMut(u64, Range<u64>),
) -> Result<(), Unreadable> {
    let mut rest = Reader(payload);
    while !rest.0.is_empty() {
        match rest.number()? {
            // PADDING, PING, HANDSHAKE_DONE, IMMEDIATE_ACK
            0x00 | 0x01 | 0x1e | 0x1f => {}
            kind @ (0x02 | 0x03) => {
                rest.numbers(2)?; // largest acknowledged, delay
                let ranges = rest.number()?;
                rest.numbers(1)?;
                for _ in 0..ranges {
                    rest.numbers(2)?;
                }
                rest.numbers(if kind == 0x03 { 3 } else { 0 })?; // ECN counts
            }
            // MAX_DATA, MAX_STREAMS, DATA_BLOCKED, STREAMS_BLOCKED, RETIRE_CONNECTION_ID
            0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 => rest.numbers(1)?,
            // STOP_SENDING, MAX_STREAM_DATA, STREAM_DATA_BLOCKED
            0x05 | 0x11 | 0x15 => rest.numbers(2)?,
            0x04 => rest.numbers(3)?, // RESET_STREAM
            0x06 => {
                rest.numbers(1)?; // CRYPTO
                rest.counted()?;
            }
            0x07 => rest.counted()?, // NEW_TOKEN
            kind @ 0x08..=0x0f => {
                let stream = rest.number()?;
                let first = if kind & 4 == 0 { 0 } else { rest.number()? };
                let size = match kind & 2 {
                    0 => rest.0.len() as u64,
                    _ => rest.number()?,
                };
                rest.skip(size)?;
                take(stream, first..first.checked_add(size).ok_or(Unreadable)?);
            }
            0x18 => {
                rest.numbers(2)?; // NEW_CONNECTION_ID
                let (&length, after) = rest.0.split_first().ok_or(Unreadable)?;
                rest.0 = after;
                rest.skip(u64::from(length) + 16)?;
            }
            0x1a | 0x1b => rest.skip(8)?, // PATH_CHALLENGE, PATH_RESPONSE
            kind @ (0x1c | 0x1d) => {
                rest.numbers(if kind == 0x1c { 2 } else { 1 })?; // CONNECTION_CLOSE
                rest.counted()?;
            }
            0xaf => rest.numbers(4)?, // ACK_FREQUENCY
            _ => return Err(Unreadable),
        }
    }
    Ok(())
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// A number of variable length (section 16).
    fn number(&mut self) -> Result<u64, Unreadable> {
        let &first = self.0.first().ok_or(Unreadable)?;
        let length = 1 << (first >> 6);
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Unreadable)?;
        self.0 = rest;
        let value = bytes[1..]
            .iter()
            .fold(u64::from(first & 0x3f), |value, &byte| {
                value << 8 | u64::from(byte)
            });
        Ok(value)
    }

    fn numbers(&mut self, count: u32) -> Result<(), Unreadable> {
        (0..count).try_for_each(|_| self.number().map(drop))
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Unreadable> {
        let bytes = usize::try_from(bytes).map_err(|_| Unreadable)?;
        self.0 = self.0.get(bytes..).ok_or(Unreadable)?;
        Ok(())
    }

    /// A length and as many bytes.
    fn counted(&mut self) -> Result<(), Unreadable> {
        let length = self.number()?;
        self.skip(length)
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{RngCore, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn read(payload: &[u8]) -> Result<Vec<(u64, Range<u64>)>, Unreadable> {
        let mut found = Vec::new();
        stream_bytes(payload, |stream, range| found.push((stream, range))).map(|()| found)
    }

    #[test]
    fn streams_are_found_among_other_frames() {
        // an ACK with one more range, MAX_DATA of four bytes, 3 bytes at 0, 2 bytes at 0x3fff to the end
        let payload = [
            &[0x02, 0x09, 0x40, 0x10, 0x01, 0x02, 0x00, 0x01][..],
            &[0x10, 0x80, 0, 1, 0],
            &[0x0a, 0x02, 0x03, 1, 2, 3],
            &[0x00, 0x01],
            &[0x0c, 0x02, 0x7f, 0xff, 1, 2],
        ]
        .concat();
        assert_eq!(read(&payload), Ok(vec![(2, 0..3), (2, 0x3fff..0x4001)]));
        assert_eq!(read(&[]), Ok(vec![]));
    }

    #[test]
    fn what_is_cut_or_unknown_is_told() {
        assert_eq!(read(&[0x0a, 0x02, 0x03, 1, 2]), Err(Unreadable));
        assert_eq!(read(&[0x40]), Err(Unreadable));
        assert_eq!(read(&[0x21]), Err(Unreadable));
        let endless = [0x02, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(read(&endless), Err(Unreadable));
    }

    #[test]
    fn no_payload_is_a_panic() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut readable = 0;
        for _ in 0..20_000 {
            let mut payload = vec![0; (random.next_u64() % 40) as usize];
            random.fill_bytes(&mut payload);
            if let Some(first) = payload.first_mut() {
                *first &= 0x1f;
            }
            readable += u32::from(read(&payload).is_ok());
        }
        assert!(readable > 0);
    }
}
