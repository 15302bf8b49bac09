//! What the elements know about a packet, and what happens to it.

use std::collections::VecDeque;

/// An Ethernet payload: the largest packet that the project's hosts send.
pub(crate) const FULL_PACKET_BYTES: u64 = 1500;

use pathcast_base::Time;

/// What a path must know about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// Size with all headers, from the IP header on.
    pub size_bytes: u32,
    /// Which flow it belongs to; a queue that is fair between flows hashes this.
    pub flow: u64,
    /// Whether a queue may mark it (ECT(0), RFC 3168) where it would drop others.
    pub ecn_capable: bool,
}

impl PacketInfo {
    /// A packet of `size_bytes`, of flow 0, that cannot be marked.
    pub const fn of_size(size_bytes: u32) -> Self {
        Self {
            size_bytes,
            flow: 0,
            ecn_capable: false,
        }
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The queue was full.
    Queue,
    /// Active queue management chose it.
    Aqm,
    /// The loss process took it; it had used its share of the link before.
    Loss,
    /// The policer had no tokens for it.
    Policer,
}

/// A packet that was dropped after it had been taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped<P> {
    /// When.
    pub at: Time,
    /// The packet.
    pub packet: P,
    /// Why.
    pub reason: DropReason,
}

/// A packet that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival<P> {
    /// When it was due.
    pub due: Time,
    /// The packet.
    pub packet: P,
    /// Whether a queue marked it: congestion experienced (RFC 3168).
    pub marked: bool,
}

/// What a channel has done so far, in packets.
///
/// `enqueued` = `dropped()` + `delivered` + in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered.
    pub enqueued: u64,
    /// Bytes offered.
    pub enqueued_bytes: u64,
    /// Packets that the queue dropped, being full or by active queue management.
    pub dropped_by_queue: u64,
    /// Packets that the loss process took.
    pub dropped_by_loss: u64,
    /// Packets that the policer took.
    pub dropped_by_policer: u64,
    /// Packets that the queue marked.
    pub marked: u64,
    /// Packets handed over at the far end.
    pub delivered: u64,
}

impl Counters {
    /// Packets dropped, whatever the reason.
    pub const fn dropped(&self) -> u64 {
        self.dropped_by_queue + self.dropped_by_loss + self.dropped_by_policer
    }

    /// Counts a drop.
    pub const fn count(&mut self, reason: DropReason) {
        match reason {
            DropReason::Queue | DropReason::Aqm => self.dropped_by_queue += 1,
            DropReason::Loss => self.dropped_by_loss += 1,
            DropReason::Policer => self.dropped_by_policer += 1,
        }
    }
}

/// A packet in transit.
#[derive(Clone, Debug)]
pub struct Queued<P> {
    /// The packet.
    pub packet: P,
    /// What the path knows about the packet.
    pub info: PacketInfo,
    /// Whether a queue marked it.
    pub marked: bool,
    /// When it was taken in.
    pub entered: Time,
}

impl<P> Queued<P> {
    /// A packet taken in at `now`.
    pub const fn new(now: Time, info: PacketInfo, packet: P) -> Self {
        Self {
            packet,
            info,
            marked: false,
            entered: now,
        }
    }
}

/// Where elements put the packets that they drop. Drops are always counted, and kept on request.
#[derive(Clone, Debug)]
pub struct Drops<P> {
    pub(crate) counters: Counters,
    kept: Option<VecDeque<Dropped<P>>>,
}

impl<P> Default for Drops<P> {
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            kept: None,
        }
    }
}

impl<P> Drops<P> {
    /// From now on, keeps what is dropped until it is taken.
    pub(crate) fn keep(&mut self) {
        self.kept.get_or_insert_default();
    }

    /// The earliest drop that was not taken yet.
    pub(crate) fn take(&mut self) -> Option<Dropped<P>> {
        self.kept.as_mut()?.pop_front()
    }

    /// Notes that `packet` was dropped.
    #[inline]
    pub fn push(&mut self, at: Time, packet: Queued<P>, reason: DropReason) {
        self.counters.count(reason);
        if let Some(kept) = &mut self.kept {
            let packet = packet.packet;
            kept.push_back(Dropped { at, packet, reason });
        }
    }

    /// Marks `packet`, if it can be: whether it was.
    #[inline]
    pub(crate) fn mark(&mut self, packet: &mut Queued<P>) -> bool {
        if packet.info.ecn_capable {
            self.counters.marked += u64::from(!packet.marked);
            packet.marked = true;
        }
        packet.info.ecn_capable
    }
}
