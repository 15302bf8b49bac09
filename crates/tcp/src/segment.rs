//! What crosses the wire, in packet numbers.

use pathcast_base::Time;

/// SACK blocks that fit together with the timestamp option (RFC 2018, section 3).
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

const ECN_CAPABLE: u64 = 1 << 17;
const ECN_MARKED: u64 = 1 << 18;
const REDUCED: u64 = 1 << 19;
const EMPTY: u64 = 1 << 20;
const PUSHED: u64 = 1 << 21;
const SYN: u64 = 1 << 22;
const FIN: u64 = 1 << 23;
const ASKS: u64 = 1 << 24;
const ECHO_SHIFT: u32 = 32;

/// A packet of data.
///
/// All but its number and time is one word: millions of these are copied each second, and fields of a
/// byte or two would make each copy wait for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSegment {
    /// Its number.
    pub seq: u64,
    /// When it was sent: its timestamp option (RFC 7323).
    pub sent_at: Time,
    /// Bytes missing to an MSS, flags, and the timestamp that it echoes.
    word: u64,
}

impl DataSegment {
    /// An ordinary packet number `seq` sent at `now`.
    #[inline]
    pub const fn new(now: Time, seq: u64) -> Self {
        Self {
            seq,
            sent_at: now,
            word: 0,
        }
    }

    const fn with(mut self, flag: u64, set: bool) -> Self {
        self.word |= if set { flag } else { 0 };
        self
    }

    /// With `bytes` of payload less than an MSS.
    #[inline]
    pub const fn with_short_by_bytes(mut self, bytes: u16) -> Self {
        self.word |= bytes as u64;
        self
    }

    /// Sets whether the segment ends a write of the application (PSH).
    #[inline]
    pub const fn with_pushed(self, pushed: bool) -> Self {
        self.with(PUSHED, pushed)
    }

    /// That echoes the timestamp of an acknowledgment.
    #[inline]
    pub const fn with_echo(mut self, stamp: u16) -> Self {
        self.word |= (stamp as u64) << ECHO_SHIFT;
        self
    }

    /// As one that routers may mark.
    #[inline]
    pub const fn with_ecn_capable(self, capable: bool) -> Self {
        self.with(ECN_CAPABLE, capable)
    }

    /// As one that says that the sender has reduced its window after an ECN echo (CWR).
    #[inline]
    pub const fn with_reduced(self, reduced: bool) -> Self {
        self.with(REDUCED, reduced)
    }

    /// As one that carries no data and acknowledges a SYN/ACK.
    #[inline]
    pub const fn as_syn_ack_ack(self) -> Self {
        self.with(EMPTY, true)
    }

    /// As one that carries no data and asks for the receiver's window.
    #[inline]
    pub const fn as_window_probe(self) -> Self {
        self.with(EMPTY | ASKS, true)
    }

    /// As one that carries no data and opens a connection.
    #[inline]
    pub const fn as_syn(self) -> Self {
        self.with(EMPTY | SYN, true)
    }

    /// As one that carries no data and ends a connection; it has a number and may be sent again.
    #[inline]
    pub const fn as_fin(self) -> Self {
        self.with(FIN | PUSHED, true)
    }

    /// The timestamp of the last acknowledgment that the sender had got, see [`AckSegment::stamp`].
    #[inline]
    pub const fn echo(&self) -> u16 {
        (self.word >> ECHO_SHIFT) as u16
    }

    /// Bytes of payload less than an MSS: not 0 only at the end of the data.
    #[inline]
    pub const fn short_by_bytes(&self) -> u16 {
        self.word as u16
    }

    /// Whether the segment ends a write of the application.
    #[inline]
    pub const fn is_pushed(&self) -> bool {
        self.word & PUSHED != 0
    }

    /// What it says about congestion.
    #[inline]
    pub const fn ecn(&self) -> Ecn {
        if self.word & ECN_MARKED != 0 {
            Ecn::Marked
        } else if self.word & ECN_CAPABLE != 0 {
            Ecn::Capable
        } else {
            Ecn::NotCapable
        }
    }

    /// A router marks it; returns whether that is allowed. It must drop it otherwise.
    #[inline]
    pub const fn mark(&mut self) -> bool {
        let capable = self.word & ECN_CAPABLE != 0;
        if capable {
            self.word |= ECN_MARKED;
        }
        capable
    }

    /// Whether the sender has reduced its window after an ECN echo (CWR).
    #[inline]
    pub const fn has_reduced(&self) -> bool {
        self.word & REDUCED != 0
    }

    /// Whether it carries no data and has no number of its own: a SYN, the acknowledgment of a SYN/ACK, or
    /// a question for the receiver's window.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.word & EMPTY != 0
    }

    /// Whether it asks for an acknowledgment with the window.
    #[inline]
    pub const fn asks_for_window(&self) -> bool {
        self.word & ASKS != 0
    }

    /// Whether it opens a connection.
    #[inline]
    pub const fn is_syn(&self) -> bool {
        self.word & SYN != 0
    }

    /// Whether it ends a connection and carries no data.
    #[inline]
    pub const fn is_fin(&self) -> bool {
        self.word & FIN != 0
    }

    /// Whether the receiver has to look at ECN flags: it is marked or says that the sender reduced.
    #[inline]
    pub(crate) const fn has_ecn_news(&self) -> bool {
        self.word & (ECN_MARKED | REDUCED) != 0
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

/// The bits of an acknowledgment that count its blocks, and its flags.
const BLOCKS: u8 = 3;
const DUPLICATE: u8 = 1 << 2;
const ECN_ECHO: u8 = 1 << 3;

/// An acknowledgment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckSegment {
    /// The next packet that is expected: all before it have arrived.
    pub cumulative: u64,
    /// When the packet was sent that made it due: the echoed timestamp (RFC 7323, section 4.3).
    pub echo: Time,
    /// Packets past `cumulative` that the receiver takes.
    pub window_packets: u32,
    /// When the segment was sent, in milliseconds; 0 from a receiver whose window does not grow, which
    /// needs no stamp.
    pub stamp: u16,
    /// It answers a SYN.
    pub is_syn: bool,
    /// Flags, and the number of blocks.
    bits: u8,
    /// First packet of each and one past its last, less `cumulative`: a duplicate's may lie before it.
    blocks: [(u32, u32); MAX_SACK_BLOCKS],
}

impl AckSegment {
    /// An acknowledgment of all packets before `cumulative`, with an unlimited window.
    #[inline]
    pub const fn new(cumulative: u64) -> Self {
        Self {
            cumulative,
            echo: Time::ZERO,
            window_packets: u32::MAX,
            stamp: 0,
            is_syn: false,
            bits: 0,
            blocks: [(0, 0); MAX_SACK_BLOCKS],
        }
    }

    /// As one that says that a data packet was marked, and that the sender has not said yet that it reduced (ECE), or
    /// not.
    #[inline]
    pub const fn with_ecn_echo(mut self, echo: bool) -> Self {
        self.bits |= if echo { ECN_ECHO } else { 0 };
        self
    }

    /// Whether a data packet was marked, and the sender has not said yet that it reduced (ECE).
    #[inline]
    pub const fn ecn_echo(&self) -> bool {
        self.bits & ECN_ECHO != 0
    }

    /// Says that packet `seq` arrived twice (DSACK, RFC 2883); to be called before `push`.
    pub fn push_duplicate(&mut self, seq: u64) {
        debug_assert_eq!(self.block_count(), 0);
        self.push(SackBlock {
            start: seq,
            end: seq + 1,
        });
        self.bits |= DUPLICATE;
    }

    /// Adds a block unless it is there already or no more fit.
    pub fn push(&mut self, block: SackBlock) {
        let count = self.block_count() as usize;
        if count < MAX_SACK_BLOCKS && !self.sacks().any(|other| other == block) {
            let offset = |seq: u64| seq.wrapping_sub(self.cumulative) as u32;
            self.blocks[count] = (offset(block.start), offset(block.end));
            self.bits += 1;
        }
    }

    fn block(&self, at: usize) -> SackBlock {
        let seq = |offset: u32| {
            self.cumulative
                .wrapping_add_signed(i64::from(offset as i32))
        };
        let (start, end) = self.blocks[at];
        SackBlock {
            start: seq(start),
            end: seq(end),
        }
    }

    /// The packet that arrived twice, if this is what the acknowledgment is for.
    #[inline]
    pub fn duplicate(&self) -> Option<u64> {
        (self.bits & DUPLICATE != 0).then(|| self.block(0).start)
    }

    /// The blocks, the one with the newest packet first.
    pub fn sacks(&self) -> impl ExactSizeIterator<Item = SackBlock> + '_ {
        let first = usize::from(self.bits & DUPLICATE != 0);
        (first..self.block_count() as usize).map(|at| self.block(at))
    }

    /// Blocks in the option on the wire, a duplicate's included.
    #[inline]
    pub const fn block_count(&self) -> u32 {
        (self.bits & BLOCKS) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_on_either_side_of_the_cumulative_acknowledgment() {
        let mut ack = AckSegment::new(5_000_000_000);
        ack.push_duplicate(4_999_999_000);
        let block = SackBlock {
            start: 5_000_000_010,
            end: 5_000_900_000,
        };
        ack.push(block);
        ack.push(block);
        assert_eq!(ack.duplicate(), Some(4_999_999_000));
        assert_eq!(ack.sacks().collect::<Vec<_>>(), [block]);
        assert_eq!(ack.block_count(), 2);
    }

    #[test]
    fn only_what_may_be_marked_is_marked() {
        let mut plain = DataSegment::new(Time::ZERO, 1);
        assert!(!plain.mark());
        assert_eq!(plain.ecn(), Ecn::NotCapable);
        let mut capable = plain.with_ecn_capable(true).with_short_by_bytes(700);
        assert_eq!(capable.ecn(), Ecn::Capable);
        assert!(capable.mark());
        assert_eq!(
            (capable.ecn(), capable.short_by_bytes()),
            (Ecn::Marked, 700)
        );
    }
}
