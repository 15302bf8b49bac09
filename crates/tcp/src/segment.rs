//! What crosses the wire, in packet numbers.

/// SACK blocks that fit beside the timestamp option (RFC 2018, section 3).
pub const MAX_SACK_BLOCKS: usize = 3;

/// A packet of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSegment {
    /// Its number.
    pub seq: u64,
    /// Whether it was sent before.
    pub retransmission: bool,
}

/// Packets from `start` up to, not including, `end` that arrived out of order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    /// First packet.
    pub start: u64,
    /// One past the last packet.
    pub end: u64,
}

/// An acknowledgment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckSegment {
    /// The next packet that is expected: all before it have arrived.
    pub cumulative: u64,
    blocks: [SackBlock; MAX_SACK_BLOCKS],
    count: u8,
}

impl AckSegment {
    /// An acknowledgment of all packets before `cumulative`.
    pub fn new(cumulative: u64) -> Self {
        Self {
            cumulative,
            ..Self::default()
        }
    }

    /// Adds a block unless it is there already or no more fit.
    pub fn push(&mut self, block: SackBlock) {
        let count = usize::from(self.count);
        if count < MAX_SACK_BLOCKS && !self.sacks().contains(&block) {
            self.blocks[count] = block;
            self.count += 1;
        }
    }

    /// The blocks, the one with the newest packet first.
    pub fn sacks(&self) -> &[SackBlock] {
        &self.blocks[..usize::from(self.count)]
    }
}
