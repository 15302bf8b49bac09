//! First in, first out: what all queues are made of.

use std::collections::VecDeque;

use crate::packet::Queued;

/// What may wait: both hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes.
    pub bytes: u64,
    /// Most packets.
    pub packets: u64,
}

/// Packets in order, and their bytes.
#[derive(Clone, Debug)]
pub struct Fifo<P> {
    line: VecDeque<Queued<P>>,
    bytes: u64,
}

impl<P> Default for Fifo<P> {
    fn default() -> Self {
        Self {
            line: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl<P> Fifo<P> {
    /// Puts a packet at the end.
    #[inline]
    pub fn push(&mut self, packet: Queued<P>) {
        self.bytes += u64::from(packet.info.size_bytes);
        self.line.push_back(packet);
    }

    /// Takes the first packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Queued<P>> {
        let packet = self.line.pop_front()?;
        self.bytes -= u64::from(packet.info.size_bytes);
        Some(packet)
    }

    /// Whether a packet of `size_bytes` more is within `limits`.
    #[inline]
    pub fn has_room(&self, size_bytes: u32, limits: Limits) -> bool {
        self.bytes + u64::from(size_bytes) <= limits.bytes && (self.len() as u64) < limits.packets
    }

    /// Packets that wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.line.len()
    }

    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Bytes that wait.
    #[inline]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}
