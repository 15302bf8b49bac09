//! One path that all flows of TCP or datagrams share, data in one direction: two channels and no events but theirs.

use pathcast_path::{Channel, Counters, DropReason, Dropped, Path, Time};

use crate::network::Network;
use crate::wire::{Ack, Data};

/// A path with data forward and acknowledgments back.
#[derive(Debug)]
pub struct OnePath {
    forward: Channel<Data>,
    reverse: Channel<Ack>,
}

impl OnePath {
    /// `path` with the random elements of `seed`.
    pub fn new(path: &Path, seed: u64) -> Self {
        let (forward, reverse) = path.channels(seed);
        Self { forward, reverse }
    }
}

impl Network for OnePath {
    const BOTH_WAYS: bool = false;

    #[inline(always)]
    fn next_data(&self) -> Time {
        self.forward.next_event().unwrap_or(Time::MAX)
    }

    #[inline(always)]
    fn next_ack(&self) -> Time {
        self.reverse.next_event().unwrap_or(Time::MAX)
    }

    #[inline(always)]
    fn send(&mut self, now: Time, data: Data) -> Result<(), (Data, DropReason)> {
        self.forward.enqueue_as(now, data.info(), data)
    }

    #[inline(always)]
    fn acknowledge(&mut self, now: Time, ack: Ack) -> bool {
        self.reverse.enqueue_as(now, ack.info(), ack).is_ok()
    }

    #[inline(always)]
    fn take_data(&mut self, now: Time) -> Option<Data> {
        let mut arrival = self.forward.receive(now)?;
        if arrival.marked {
            arrival.packet.segment.mark();
        }
        Some(arrival.packet)
    }

    #[inline(always)]
    fn take_ack(&mut self, now: Time) -> Option<Ack> {
        self.reverse.dequeue(now).map(|(_, ack)| ack)
    }

    #[inline(always)]
    fn coming_data(&self, ahead: usize) -> Option<u32> {
        Some(self.forward.coming(ahead)?.flow)
    }

    #[inline(always)]
    fn coming_ack(&self, ahead: usize) -> Option<u32> {
        Some(self.reverse.coming(ahead)?.flow)
    }

    fn keep_drops(&mut self) {
        self.forward.keep_drops();
    }

    #[inline]
    fn take_dropped(&mut self) -> Option<Dropped<Data>> {
        self.forward.take_dropped()
    }

    fn look_at_queues(&mut self, now: Time, each: &mut dyn FnMut(u64)) {
        each(self.forward.backlog_bytes(now));
        each(self.reverse.backlog_bytes(now));
    }

    fn counters(&self) -> Counters {
        self.forward.counters()
    }
}
