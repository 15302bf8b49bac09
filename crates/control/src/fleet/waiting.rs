//! Entries that wait to be stored.

use std::collections::VecDeque;

/// Numbers of entries, each at most once, the longest waiting first.
///
/// A set would free a node for each few of a million entries when they are stored; the allocator goes through what was freed
/// later, for milliseconds within one report.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<u32>,
    /// By number.
    flags: Vec<Flags>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    waits: bool,
    /// One that no longer waits stays in the queue until its turn.
    is_queued: bool,
}

impl Waiting {
    pub(super) fn insert(&mut self, number: u32) {
        let place = number as usize;
        if place >= self.flags.len() {
            self.flags.resize(place + 1, Flags::default());
        }
        let flags = &mut self.flags[place];
        flags.waits = true;
        if !flags.is_queued {
            flags.is_queued = true;
            self.queue.push_back(number);
        }
    }

    pub(super) fn remove(&mut self, number: u32) {
        if let Some(flags) = self.flags.get_mut(number as usize) {
            flags.waits = false;
        }
    }

    /// Takes the one that waits longest.
    pub(super) fn pop(&mut self) -> Option<u32> {
        while let Some(number) = self.queue.pop_front() {
            let flags = std::mem::take(&mut self.flags[number as usize]);
            if flags.waits {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_taken_once_in_the_order_in_which_they_came() {
        let mut waiting = Waiting::default();
        for number in [5, 2, 5, 9, 2] {
            waiting.insert(number);
        }
        waiting.remove(2);
        waiting.remove(700);
        assert_eq!(waiting.pop(), Some(5));
        waiting.insert(5);
        waiting.insert(9);
        assert_eq!(waiting.pop(), Some(9));
        assert_eq!(waiting.pop(), Some(5));
        assert_eq!(waiting.pop(), None);
    }

    #[test]
    fn the_queue_does_not_grow_beyond_the_entries() {
        let mut waiting = Waiting::default();
        for round in 0..1000 {
            waiting.insert(round % 10);
            waiting.remove(round % 10);
        }
        assert_eq!(waiting.queue.len(), 10);
        assert_eq!(waiting.pop(), None);
        waiting.insert(3);
        assert_eq!(waiting.pop(), Some(3));
    }
}
