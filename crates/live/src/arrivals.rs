//! Arrivals of messages, as a host sends them to the other.

use crate::endpoints::{Arrival, MOST_MESSAGES};
use crate::varint::{put, put_signed, take, take_signed};

/// Arrivals in some ten bytes each.
pub(crate) fn encode(arrivals: &[Arrival]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut last_ns = (0u64, 0u64);
    for arrival in arrivals {
        put(&mut bytes, arrival.flow.into());
        put(&mut bytes, arrival.bytes);
        put_signed(
            &mut bytes,
            arrival.written_ns.wrapping_sub(last_ns.0) as i64,
        );
        put_signed(
            &mut bytes,
            arrival.arrived_ns.wrapping_sub(last_ns.1) as i64,
        );
        last_ns = (arrival.written_ns, arrival.arrived_ns);
    }
    bytes
}

/// Reads what [`encode`] wrote; none if it is anything else, or more than a host notes.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Arrival>> {
    decode_at_most(bytes, MOST_MESSAGES)
}

fn decode_at_most(mut bytes: &[u8], most: usize) -> Option<Vec<Arrival>> {
    let bytes = &mut bytes;
    let (mut arrivals, mut last_ns) = (Vec::new(), (0u64, 0u64));
    while !bytes.is_empty() {
        let flow = take(bytes)?.try_into().ok()?;
        let size = take(bytes)?;
        last_ns.0 = last_ns.0.wrapping_add_signed(take_signed(bytes)?);
        last_ns.1 = last_ns.1.wrapping_add_signed(take_signed(bytes)?);
        if arrivals.len() == most {
            return None;
        }
        arrivals.push(Arrival {
            flow,
            bytes: size,
            written_ns: last_ns.0,
            arrived_ns: last_ns.1,
        });
    }
    Some(arrivals)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn more_arrivals_than_anybody_notes_are_refused() {
        assert_eq!(decode_at_most(&[0; 12], 3).map(|rows| rows.len()), Some(3));
        assert_eq!(decode_at_most(&[0; 16], 3), None);
    }

    proptest! {
        #[test]
        fn arrivals_come_back(
            rows in proptest::collection::vec((proptest::num::u32::ANY, proptest::num::u64::ANY), 0..40)
        ) {
            let arrivals: Vec<Arrival> = rows
                .iter()
                .map(|&(flow, word)| Arrival {
                    flow,
                    bytes: word >> 5,
                    written_ns: word,
                    arrived_ns: word.wrapping_mul(7),
                })
                .collect();
            let bytes = encode(&arrivals);
            prop_assert_eq!(decode(&bytes), Some(arrivals));
            for cut in 0..bytes.len() {
                let _ = decode(&bytes[..cut]);
            }
        }
    }
}
