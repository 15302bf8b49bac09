//! Droptail: a packet that finds the queue full is dropped.

use std::collections::VecDeque;

use pathcast_base::Time;

use super::fifo::{Fifo, Limits};
use super::kind::Kind;
use crate::packet::{DropReason, Drops, Queued};
use crate::queue::QueueLimit;

/// The queue itself.
#[derive(Clone, Debug)]
pub struct DropTail<P> {
    fifo: Fifo<P>,
    limits: Limits,
}

impl<P> DropTail<P> {
    /// An empty queue.
    pub fn new(limits: Limits) -> Self {
        let fifo = Fifo::default();
        Self { fifo, limits }
    }

    #[inline]
    pub(super) fn enqueue(
        &mut self,
        _now: Time,
        packet: Queued<P>,
        _drops: &mut Drops<P>,
    ) -> Result<(), (Queued<P>, DropReason)> {
        if !self.fifo.has_room(packet.info.size_bytes, self.limits) {
            return Err((packet, DropReason::Queue));
        }
        self.fifo.push(packet);
        Ok(())
    }

    #[inline]
    pub(super) fn dequeue(&mut self, _now: Time, _drops: &mut Drops<P>) -> Option<Queued<P>> {
        self.fifo.pop()
    }

    pub(super) fn len(&self) -> usize {
        self.fifo.len()
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.fifo.bytes()
    }
}

/// Accounts for a first-in first-out queue before a link that never idles while packets wait.
///
/// The start of each packet's transmission is known when it arrives, so the queue needs no event of
/// its own: it forgets packets whose transmission has begun, many at a time, when they would fill it or its memory.
#[derive(Clone, Debug)]
pub struct VirtualDropTail {
    limit_bytes: u64,
    limit_packets: u64,
    /// Start of transmission and size of each packet that waits, after some whose transmission has begun.
    waiting: VecDeque<(Time, u32)>,
    /// Bytes of all of them.
    waiting_bytes: u64,
}

impl VirtualDropTail {
    /// A queue that holds at most `limit_bytes` bytes and `limit_packets` packets, the one in
    /// transmission not counted.
    pub const fn new(limit_bytes: u64, limit_packets: u64) -> Self {
        Self {
            limit_bytes,
            limit_packets,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    fn forget_started(&mut self, now: Time) {
        while let Some(&(start, size_bytes)) = self.waiting.front() {
            if start > now {
                break;
            }
            self.waiting.pop_front();
            self.waiting_bytes -= u64::from(size_bytes);
        }
    }

    /// Whether a packet of `size_bytes` that arrives at `now` finds room.
    #[inline]
    pub fn has_room(&mut self, now: Time, size_bytes: u32) -> bool {
        // one that has room for those that have begun too, has room
        let known = self.fits(size_bytes) && self.waiting.len() < self.waiting.capacity();
        known || self.has_room_now(now, size_bytes)
    }

    fn has_room_now(&mut self, now: Time, size_bytes: u32) -> bool {
        self.forget_started(now);
        self.fits(size_bytes)
    }

    #[inline]
    fn fits(&self, size_bytes: u32) -> bool {
        self.waiting_bytes + u64::from(size_bytes) <= self.limit_bytes
            && (self.waiting.len() as u64) < self.limit_packets
    }

    /// Notes a packet whose transmission begins at `start`, later than now.
    #[inline]
    pub fn push(&mut self, start: Time, size_bytes: u32) {
        self.waiting.push_back((start, size_bytes));
        self.waiting_bytes += u64::from(size_bytes);
    }

    /// Bytes that wait at `now`.
    pub fn backlog_bytes(&mut self, now: Time) -> u64 {
        self.forget_started(now);
        self.waiting_bytes
    }
}

pub(super) const KINDS: &[Kind<()>] = &[Kind {
    name: "droptail",
    keys: &["limit"],
    limit: None,
    read: |_| Ok(()),
}];

pub(super) fn to_toml(limit: QueueLimit) -> String {
    format!("\"{limit}\"")
}
