//! The addresses of a shell, distinct from those of all others.

use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;

use pathcast_netns::{Shape, ipv4_address};

use crate::addresses::SHAPE;
use crate::error::EmulatorError;

/// Addresses of shells: 198.18.0.0/15, which is reserved for benchmarking networks (RFC 2544, appendix
/// C.2.2). Each shell has a block of it, and nested shells have blocks within. So one route outside leads
/// to all of them.
const NETWORK: u32 = 198 << 24 | 18 << 16;
const NETWORK_BITS: u32 = 17;
/// Bits of a block in which no other is, and how many fewer those inside it have.
const BLOCK_BITS: u32 = 11;
const BITS_PER_LEVEL: u32 = 3;
/// Shells within each other: what is left in the last is an address for each end.
const MOST_LEVELS: u32 = 4;

/// The device inside, with the number of shells around it.
pub(super) const INNER_DEVICE: &str = "path";

/// The addresses of one shell and of those inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) first: u32,
    pub(super) level: u32,
}

impl Block {
    /// The block of shell number `number` within `around`, or outside of all.
    pub(super) fn of(around: Option<Self>, number: u32) -> Result<Self, EmulatorError> {
        let too_many = |got, what, most| Err(EmulatorError::TooManyShells { got, what, most });
        let Some(around) = around else {
            let most = 1 << (NETWORK_BITS - BLOCK_BITS);
            if number >= most {
                return too_many(number + 1, "at once", most);
            }
            let first = NETWORK + (number << BLOCK_BITS);
            return Ok(Self { first, level: 0 });
        };
        let level = around.level + 1;
        if level == MOST_LEVELS {
            return too_many(level + 1, "within each other", MOST_LEVELS);
        }
        let most = (1 << BITS_PER_LEVEL) - 1; // the first part is the shell's own
        if number >= most {
            return too_many(number + 1, "at once inside one", most);
        }
        let block = Self { first: 0, level };
        Ok(Self {
            first: around.first + ((number + 1) << block.bits()),
            level,
        })
    }

    /// The block of the shell that the calling thread is inside of.
    pub(super) fn around() -> io::Result<Option<Self>> {
        for level in 0..MOST_LEVELS {
            if let Some(address) = ipv4_address(&format!("{INNER_DEVICE}{level}"))?
                && address.to_bits() >> NETWORK_BITS == NETWORK >> NETWORK_BITS
            {
                let first = address.to_bits() - 2;
                return Ok(Some(Self { first, level }));
            }
        }
        Ok(None)
    }

    const fn bits(self) -> u32 {
        BLOCK_BITS - BITS_PER_LEVEL * self.level
    }

    pub(super) const fn prefix(self) -> u32 {
        32 - self.bits()
    }

    pub(super) const fn shape(self) -> Shape {
        Shape {
            prefix_v4: self.prefix(),
            ..SHAPE
        }
    }

    pub(super) const fn outer(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first + 1)
    }

    pub(super) const fn inner(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first + 2)
    }

    /// The outer end of the outermost shell.
    const fn base(self) -> Ipv4Addr {
        Ipv4Addr::from_bits((self.first >> BLOCK_BITS << BLOCK_BITS) + 1)
    }

    /// The environment variables with these addresses and the settings of TCP inside, and `more`.
    pub(super) fn environment(
        self,
        scheme: Option<&str>,
        more: &[(OsString, OsString)],
    ) -> Vec<(OsString, OsString)> {
        let base = self.base().to_string();
        let mut ours = vec![
            ("PATHCAST_BASE", base.clone()),
            ("MAHIMAHI_BASE", base),
            ("PATHCAST_ADDRESS", self.inner().to_string()),
        ];
        ours.extend(scheme.map(|scheme| ("PATHCAST_SCHEME", scheme.to_string())));
        let ours = ours.into_iter();
        let ours = ours.map(|(name, value)| (name.into(), value.into()));
        ours.chain(more.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_shells_never_overlap_and_lie_within_those_around_them() {
        let mut blocks = Vec::new();
        let mut level = vec![None];
        for depth in 0..MOST_LEVELS {
            let mut next = Vec::new();
            for around in level {
                let most = if depth == 0 { 64 } else { 7 };
                for number in [0, 1, most - 1] {
                    let block = Block::of(around, number).unwrap();
                    assert_eq!(block.level, depth);
                    if let Some(around) = around {
                        assert!(block.first > around.inner().to_bits());
                        let end = |block: Block| block.first + (1 << block.bits());
                        assert!(end(block) <= end(around));
                        assert_eq!(block.base(), around.base());
                    }
                    blocks.push(block);
                    next.push(Some(block));
                }
                assert!(matches!(
                    Block::of(around, most),
                    Err(EmulatorError::TooManyShells { .. })
                ));
            }
            level = next;
        }
        assert!(Block::of(level[0], 0).is_err());
        let ends = blocks.iter().flat_map(|b| [b.outer(), b.inner()]);
        let mut ends: Vec<_> = ends.collect();
        assert!(
            ends.iter()
                .all(|end| end.octets()[..2] == [198, 18] || end.octets()[..2] == [198, 19])
        );
        ends.sort_unstable();
        ends.dedup();
        assert_eq!(ends.len(), 2 * blocks.len());
    }
}
