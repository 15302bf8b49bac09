//! Every nth packet is lost: the deterministic model behind TCP's response functions (RFC 9438,
//! section 5).

use crate::reader::{Read, Table};

/// Which packets: `first`, `first + every`, ...; the first packet of all is number 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Periodic {
    /// Packets from one loss to the next.
    pub every: u64,
    /// Number of the first packet lost.
    pub first: u64,
}

/// The running counter.
#[derive(Clone, Debug)]
pub struct PeriodicLoss {
    every: u64,
    survivors_left: u64,
}

impl PeriodicLoss {
    /// A counter at the first packet.
    pub const fn new(spec: Periodic) -> Self {
        Self {
            every: spec.every,
            survivors_left: spec.first.saturating_sub(1),
        }
    }

    /// Whether the next packet is lost.
    #[inline]
    pub const fn drops_next(&mut self) -> bool {
        if self.survivors_left > 0 {
            self.survivors_left -= 1;
            return false;
        }
        self.survivors_left = self.every.saturating_sub(1);
        true
    }
}

impl Periodic {
    pub(super) const KEYS: &[&str] = &["every", "first"];

    pub(super) fn read(table: Table<'_, '_>) -> Read<Self> {
        let every = table.need("every")?.whole(2, 1 << 53)?;
        let first = table.or("first", every, |field| field.whole(1, 1 << 53))?;
        Ok(Self { every, first })
    }

    pub(super) fn to_toml(self) -> String {
        let Self { every, first } = self;
        format!("{{ kind = \"periodic\", every = {every}, first = {first} }}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_every_nth_packet_is_lost() {
        let mut process = PeriodicLoss::new(Periodic { every: 4, first: 2 });
        let lost: Vec<u64> = (1..=12).filter(|_| process.drops_next()).collect();
        assert_eq!(lost, [2, 6, 10]);
    }
}
