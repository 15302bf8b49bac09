//! What crosses the wire, in packet numbers.

use pathcast_path::Time;

/// SACK blocks that fit beside the timestamp option (RFC 2018, section 3).
pub const MAX_SACK_BLOCKS: usize = 3;

/// What a data packet says about congestion (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The sender does not react to marks: a router must drop instead.
    #[default]
    NotCapable,
    /// A router may mark it (ECT).
    Capable,
    /// A router did (CE).
    Marked,
}

/// A packet of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSegment {
    /// Its number.
    pub seq: u64,
    /// When it was sent: its timestamp option (RFC 7323).
    pub sent_at: Time,
    /// Bytes of payload less than an MSS: not 0 only at the end of the data.
    pub short_by_bytes: u16,
    /// Whether it was sent before.
    pub retransmission: bool,
    /// Whether it may be or was marked; whoever marks it sets this.
    pub ecn: Ecn,
    /// The sender has reduced its window after an ECN echo (CWR).
    pub reduced: bool,
    /// It carries nothing and asks for an acknowledgment with the window (a zero-window probe).
    pub window_probe: bool,
}

impl DataSegment {
    /// An ordinary packet number `seq` sent at `now`.
    pub fn new(now: Time, seq: u64) -> Self {
        Self {
            seq,
            sent_at: now,
            ..Self::default()
        }
    }
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
    /// When the packet was sent that made it due: the echoed timestamp (RFC 7323, section 4.3).
    pub echo: Time,
    /// Packets past `cumulative` that the receiver takes.
    pub window_packets: u32,
    /// A data packet was marked, and the sender has not said yet that it reduced (ECE).
    pub ecn_echo: bool,
    duplicate: bool,
    count: u8,
    blocks: [SackBlock; MAX_SACK_BLOCKS],
}

impl AckSegment {
    /// An acknowledgment of all packets before `cumulative`, with an unlimited window.
    pub fn new(cumulative: u64) -> Self {
        Self {
            cumulative,
            window_packets: u32::MAX,
            ..Self::default()
        }
    }

    /// Says that packet `seq` arrived twice (DSACK, RFC 2883); to be called before `push`.
    pub fn push_duplicate(&mut self, seq: u64) {
        debug_assert_eq!(self.count, 0);
        self.blocks[0] = SackBlock {
            start: seq,
            end: seq + 1,
        };
        (self.duplicate, self.count) = (true, 1);
    }

    /// Adds a block unless it is there already or no more fit.
    pub fn push(&mut self, block: SackBlock) {
        let count = usize::from(self.count);
        if count < MAX_SACK_BLOCKS && !self.sacks().contains(&block) {
            self.blocks[count] = block;
            self.count += 1;
        }
    }

    /// The packet that arrived twice, if this is what the acknowledgment is for.
    pub fn duplicate(&self) -> Option<u64> {
        self.duplicate.then_some(self.blocks[0].start)
    }

    /// The blocks, the one with the newest packet first.
    pub fn sacks(&self) -> &[SackBlock] {
        &self.blocks[usize::from(self.duplicate)..usize::from(self.count)]
    }

    /// Blocks in the option on the wire, a duplicate's included.
    pub const fn block_count(&self) -> u32 {
        self.count as u32
    }
}
