//! Timers of many connections, links or applications.
//!
//! A connection's timer moves with almost every acknowledgment, nearly always further away. So each
//! keeps one entry, at or before its deadline, and is asked again when that comes up: entries move
//! once a timeout, not once a packet.
//!
//! Many timers wait in slots of half a millisecond, unsorted, and only those of the current slot are in a
//! heap: it stays small enough for the fastest cache, whatever the number of connections.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pathcast_path::Time;

/// Length of a slot: 2^19 ns.
const SLOT_BITS: u32 = 19;
/// Slots ahead of the current one: half a second, past which lie few timeouts but repeated ones.
const SLOTS: usize = 1024;
/// So few timers are all in the heap.
const FEW: usize = 64;

/// When to wake which timer.
type Entry = (Time, u32);

/// Wake-up calls for numbered timers.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    /// Entries of the slots before `next_slot`; empty only if there is no entry at all.
    near: BinaryHeap<Reverse<Entry>>,
    /// Entries of `next_slot` and the [`SLOTS`] after it, each at its number modulo [`SLOTS`].
    slots: Vec<Vec<Entry>>,
    in_slots: usize,
    /// Entries that lay past the last slot when they came.
    far: BinaryHeap<Reverse<Entry>>,
    next_slot: u64,
    /// Earliest entry of each timer.
    scheduled: Vec<Time>,
}

const fn slot_of(at: Time) -> u64 {
    at.as_nanos() >> SLOT_BITS
}

impl Timers {
    /// As many timers as `count`, none set.
    pub fn new(count: usize) -> Self {
        let (slots, next_slot) = match count {
            ..=FEW => (0, u64::MAX),
            _ => (SLOTS, 0),
        };
        Self {
            slots: vec![Vec::new(); slots],
            next_slot,
            scheduled: vec![Time::MAX; count],
            ..Self::default()
        }
    }

    /// Timer `id` expires at `deadline`, or before that if an earlier deadline was set.
    #[inline]
    pub fn want(&mut self, id: u32, deadline: Option<Time>) {
        if let Some(deadline) = deadline
            && deadline < self.scheduled[id as usize]
        {
            self.scheduled[id as usize] = deadline;
            self.insert(deadline, id);
        }
    }

    fn insert(&mut self, at: Time, id: u32) {
        let slot = slot_of(at);
        if slot >= self.next_slot && self.near.is_empty() {
            self.next_slot = slot + 1; // there is no other
        }
        if slot < self.next_slot {
            self.near.push(Reverse((at, id)));
        } else if slot - self.next_slot < SLOTS as u64 {
            self.slots[slot as usize % SLOTS].push((at, id));
            self.in_slots += 1;
        } else {
            self.far.push(Reverse((at, id)));
        }
    }

    /// When the next timer is to be woken.
    #[inline]
    pub fn next(&self) -> Option<Time> {
        self.near.peek().map(|Reverse((at, _))| *at)
    }

    /// A timer to wake at `now`, and when it was to be woken; it must look at its own deadline, which
    /// may have moved.
    pub fn pop(&mut self, now: Time) -> Option<(Time, u32)> {
        while let Some(&Reverse((at, id))) = self.near.peek() {
            if at > now {
                return None;
            }
            self.near.pop();
            if self.near.is_empty() {
                self.refill();
            }
            if self.scheduled[id as usize] == at {
                self.scheduled[id as usize] = Time::MAX;
                return Some((at, id));
            }
        }
        None
    }

    /// Takes the entries of the next slot that has any into the heap.
    fn refill(&mut self) {
        while self.near.is_empty() {
            if self.in_slots == 0 {
                let Some(&Reverse((at, _))) = self.far.peek() else {
                    return;
                };
                self.next_slot = self.next_slot.max(slot_of(at));
            }
            if let Some(entries) = self.slots.get_mut(self.next_slot as usize % SLOTS) {
                self.in_slots -= entries.len();
                // an earlier entry has taken the place of some
                let due = entries.drain(..);
                let due = due.filter(|&(at, id)| self.scheduled[id as usize] == at);
                self.near.extend(due.map(Reverse));
            }
            self.next_slot += 1;
            while let Some(&Reverse((at, _))) = self.far.peek()
                && slot_of(at) < self.next_slot
            {
                self.near.extend(self.far.pop());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_woken_at_its_earliest_wish() {
        let at = Time::from_nanos;
        let mut timers = Timers::new(2);
        timers.want(0, Some(at(50)));
        timers.want(0, Some(at(90))); // later: the wake-up at 50 will do
        timers.want(1, Some(at(70)));
        timers.want(1, Some(at(60)));
        timers.want(1, None);
        assert_eq!(timers.next(), Some(at(50)));
        assert_eq!(timers.pop(at(55)), Some((at(50), 0)));
        assert_eq!(timers.pop(at(55)), None);
        assert_eq!(timers.pop(at(99)), Some((at(60), 1)));
        assert_eq!(timers.pop(at(99)), None); // the entry at 70 is stale
    }

    /// What `Timers` is to do, in one list.
    #[derive(Default)]
    struct List(Vec<Entry>);

    impl List {
        fn want(&mut self, id: u32, deadline: Time) {
            let earlier = self
                .0
                .iter()
                .any(|&(at, other)| other == id && at <= deadline);
            if !earlier {
                self.0.retain(|&(_, other)| other != id);
                self.0.push((deadline, id));
            }
        }

        fn pop(&mut self, now: Time) -> Option<Entry> {
            let first = self.0.iter().copied().min().filter(|(at, _)| *at <= now)?;
            self.0.retain(|entry| *entry != first);
            Some(first)
        }
    }

    #[test]
    fn timers_near_and_far_are_woken_in_their_order() {
        for count in [FEW, 500] {
            let (mut timers, mut list) = (Timers::new(count), List::default());
            let (mut draw, mut now, mut woken) = (1u64, 0u64, 0);
            for step in 0..12_000 {
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let id = (draw >> 33) as u32 % count as u32;
                // from a microsecond to two minutes ahead; none for a while, so that all are woken
                let ahead = (1000 << ((draw >> 20) % 27)) + (draw >> 50);
                if step % 4000 < 3000 {
                    timers.want(id, Some(Time::from_nanos(now + ahead)));
                    list.want(id, Time::from_nanos(now + ahead));
                    now += (draw >> 40) % 300_000;
                } else {
                    now += 400_000_000;
                }
                loop {
                    let next = timers.pop(Time::from_nanos(now));
                    assert_eq!(next, list.pop(Time::from_nanos(now)));
                    if next.is_none() {
                        break;
                    }
                    woken += 1;
                }
            }
            assert_eq!((timers.next(), list.0.len()), (None, 0));
            assert!(woken > 4000, "{woken}");
        }
    }
}
