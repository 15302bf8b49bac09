//! Fixed delay: a line that packets enter and leave in the same order.

use std::collections::VecDeque;

use crate::units::Time;

/// Packets on the wire, each with the moment at which it is due at the far end.
#[derive(Clone, Debug)]
pub struct DelayLine<P> {
    line: VecDeque<(Time, P)>,
}

impl<P> Default for DelayLine<P> {
    fn default() -> Self {
        Self {
            line: VecDeque::new(),
        }
    }
}

impl<P> DelayLine<P> {
    /// Puts a packet on the wire. `due` is never before that of the packet ahead of it.
    #[inline]
    pub fn push(&mut self, due: Time, packet: P) {
        debug_assert!(self.line.back().is_none_or(|(last, _)| *last <= due));
        self.line.push_back((due, packet));
    }

    /// When the first packet is due, if there is one.
    #[inline]
    pub fn next_due(&self) -> Option<Time> {
        self.line.front().map(|(due, _)| *due)
    }

    /// Takes the first packet off the wire if it is due at `now`, with its due time.
    #[inline]
    pub fn pop(&mut self, now: Time) -> Option<(Time, P)> {
        if self.next_due()? > now {
            return None;
        }
        self.line.pop_front()
    }

    /// Packets on the wire.
    pub fn len(&self) -> usize {
        self.line.len()
    }

    /// Whether the wire is empty.
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }
}
