//! The wire: packets enter when they leave the link, and leave when they are due.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use pathcast_base::Time;

/// Packets on a wire that keeps their order, each with the moment at which it is due.
#[derive(Clone, Debug)]
pub struct DelayLine<P> {
    line: VecDeque<(Time, P)>,
    /// When the first is due, which is asked for with every event of a run; the end of time if there is none.
    next: Time,
}

impl<P> Default for DelayLine<P> {
    fn default() -> Self {
        Self {
            line: VecDeque::new(),
            next: Time::MAX,
        }
    }
}

impl<P> DelayLine<P> {
    /// Puts a packet on the wire. `due` is never before that of the packet ahead of it.
    #[inline]
    pub fn push(&mut self, due: Time, packet: P) {
        debug_assert!(self.line.back().is_none_or(|(last, _)| *last <= due));
        self.next = self.next.min(due);
        self.line.push_back((due, packet));
    }

    /// When the first packet is due, if there is one.
    #[inline]
    pub fn next_due(&self) -> Option<Time> {
        (self.next < Time::MAX).then_some(self.next)
    }

    /// Takes the first packet off the wire if it is due at `now`, with its due time.
    #[inline]
    pub fn pop(&mut self, now: Time) -> Option<(Time, P)> {
        if self.next > now {
            return None;
        }
        let first = self.line.pop_front();
        self.next = self.line.front().map_or(Time::MAX, |(due, _)| *due);
        first
    }

    /// The packet behind the first `ahead` packets.
    #[inline]
    pub fn get(&self, ahead: usize) -> Option<&P> {
        self.line.get(ahead).map(|(_, packet)| packet)
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

/// Packets on a wire where one may overtake another; those due together keep their order.
#[derive(Clone, Debug)]
pub struct ShuffledLine<P> {
    heap: BinaryHeap<Reverse<Entry<P>>>,
    pushed: u64,
}

#[derive(Clone, Debug)]
struct Entry<P> {
    due: Time,
    number: u64,
    packet: P,
}

impl<P> PartialEq for Entry<P> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<P> Eq for Entry<P> {}

impl<P> PartialOrd for Entry<P> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> Ord for Entry<P> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl<P> Default for ShuffledLine<P> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            pushed: 0,
        }
    }
}

impl<P> ShuffledLine<P> {
    /// Puts a packet on the wire.
    pub fn push(&mut self, due: Time, packet: P) {
        let number = self.pushed;
        self.pushed += 1;
        self.heap.push(Reverse(Entry {
            due,
            number,
            packet,
        }));
    }

    /// When the next packet is due, if there is one.
    pub fn next_due(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.0.due)
    }

    /// Takes the next packet off the wire if it is due at `now`, with its due time.
    pub fn pop(&mut self, now: Time) -> Option<(Time, P)> {
        if self.next_due()? > now {
            return None;
        }
        self.heap
            .pop()
            .map(|Reverse(entry)| (entry.due, entry.packet))
    }
}
