//! Which bytes were in which packets of QUIC that crossed.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use pathcast_quic::Packet;
use pathcast_trace::{Direction, Segment, Splitter};

/// A packet of QUIC that left, and bytes that it held.
#[derive(Clone, Debug)]
pub(crate) struct SealedPacket {
    pub(crate) flow: u32,
    pub(crate) direction: Direction,
    pub(crate) packet: Packet,
}

/// Brings together packets of QUIC that crossed and what was in them, which come from two threads.
#[derive(Default)]
pub(crate) struct Seals {
    /// Bytes by flow, direction and seal.
    held: HashMap<(u32, u8, u64), Vec<Range<u64>>>,
    /// Events of packets in their order, the first of which may not be reported yet.
    crossed: VecDeque<Crossed>,
}

pub(crate) struct Crossed {
    pub(crate) flow: u32,
    pub(crate) direction: Direction,
    pub(crate) seal: u64,
    pub(crate) entered_ns: u64,
    /// None of a packet that entered.
    pub(crate) left: Option<Left>,
}

/// How a packet left the path.
pub(crate) enum Left {
    At(u64),
    Dropped,
}

impl Seals {
    /// A packet entered or left.
    pub(crate) fn cross(&mut self, crossed: Crossed) {
        self.crossed.push_back(crossed);
    }

    pub(crate) fn note(&mut self, sealed: SealedPacket) {
        let key = (sealed.flow, sealed.direction as u8, sealed.packet.seal);
        self.held.entry(key).or_default().push(sealed.packet.bytes);
    }

    /// Hands over what has become known.
    pub(crate) fn tell(&mut self, splitter: &mut Splitter) {
        while let Some(first) = self.crossed.front() {
            let key = (first.flow, first.direction as u8, first.seal);
            let Some(pieces) = self.held.get(&key) else {
                return;
            };
            let left_ns = match first.left {
                None => Some(None),
                Some(Left::At(left_ns)) => Some(Some(left_ns)),
                Some(Left::Dropped) => None,
            };
            for bytes in pieces.iter().filter(|bytes| !bytes.is_empty()) {
                if let Some(left_ns) = left_ns {
                    let segment = Segment {
                        first: bytes.start,
                        end: bytes.end,
                        entered_ns: first.entered_ns,
                        left_ns,
                    };
                    splitter.packet(first.flow, first.direction, segment);
                }
            }
            if first.left.is_some() {
                self.held.remove(&key);
            }
            self.crossed.pop_front();
        }
    }
}

#[cfg(test)]
impl Seals {
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.crossed.is_empty()
    }
}
