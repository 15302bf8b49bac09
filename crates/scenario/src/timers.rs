//! Timers of many connections, links or applications in one small heap.
//!
//! A connection's timer moves with almost every acknowledgment, nearly always further away. So each
//! keeps one entry in the heap, at or before its deadline, and is asked again when that comes up:
//! the heap is touched once a timeout, not once a packet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pathcast_path::Time;

/// Wake-up calls for numbered timers.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Time, u32)>>,
    /// Earliest entry of each timer in the heap.
    scheduled: Vec<Time>,
}

impl Timers {
    /// As many timers as `count`, none set.
    pub fn new(count: usize) -> Self {
        Self {
            heap: BinaryHeap::new(),
            scheduled: vec![Time::MAX; count],
        }
    }

    /// Timer `id` expires at `deadline`, or before that if an earlier deadline was set.
    #[inline]
    pub fn want(&mut self, id: u32, deadline: Option<Time>) {
        if let Some(deadline) = deadline
            && deadline < self.scheduled[id as usize]
        {
            self.scheduled[id as usize] = deadline;
            self.heap.push(Reverse((deadline, id)));
        }
    }

    /// When the next timer is to be woken.
    #[inline]
    pub fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// A timer to wake at `now`, and when it was to be woken; it must look at its own deadline, which
    /// may have moved.
    pub fn pop(&mut self, now: Time) -> Option<(Time, u32)> {
        while let Some(&Reverse((at, id))) = self.heap.peek() {
            if at > now {
                return None;
            }
            self.heap.pop();
            if self.scheduled[id as usize] == at {
                self.scheduled[id as usize] = Time::MAX;
                return Some((at, id));
            }
        }
        None
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
}
