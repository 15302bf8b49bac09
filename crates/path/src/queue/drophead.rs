//! Drophead: a packet that finds the queue full pushes out those that wait longest, so that senders
//! hear of congestion a queueing delay sooner (Lakshman, Neidhardt and Ott, INFOCOM 1996).

use pathcast_base::Time;

use super::fifo::{Fifo, Limits};
use super::kind::Kind;
use crate::packet::{DropReason, Drops, Queued};
use crate::queue::QueueLimit;

/// The queue.
#[derive(Clone, Debug)]
pub struct DropHead<P> {
    fifo: Fifo<P>,
    limits: Limits,
}

impl<P> DropHead<P> {
    /// An empty queue.
    pub fn new(limits: Limits) -> Self {
        let fifo = Fifo::default();
        Self { fifo, limits }
    }

    pub(super) fn enqueue(
        &mut self,
        now: Time,
        packet: Queued<P>,
        drops: &mut Drops<P>,
    ) -> Result<(), (Queued<P>, DropReason)> {
        while !self.fifo.has_room(packet.info.size_bytes, self.limits) {
            match self.fifo.pop() {
                Some(head) => drops.push(now, head, DropReason::Queue),
                None => return Err((packet, DropReason::Queue)), // larger than the queue
            }
        }
        self.fifo.push(packet);
        Ok(())
    }

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

pub(super) const KINDS: &[Kind<()>] = &[Kind {
    name: "drophead",
    keys: &["limit"],
    limit: None,
    read: |_| Ok(()),
}];

pub(super) fn to_toml(limit: QueueLimit) -> String {
    format!("{{ kind = \"drophead\", limit = \"{limit}\" }}")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{drops, packet, packets};
    use super::*;

    #[test]
    fn the_longest_waiting_makes_room() {
        let (mut queue, mut drops) = (DropHead::new(packets(3)), drops());
        for id in 0..5 {
            queue
                .enqueue(Time::ZERO, packet(Time::ZERO, id, 0, false), &mut drops)
                .unwrap();
        }
        let dropped: Vec<u64> = std::iter::from_fn(|| drops.take())
            .map(|d| d.packet)
            .collect();
        assert_eq!(dropped, [0, 1]);
        assert_eq!(
            queue.dequeue(Time::ZERO, &mut drops).map(|p| p.packet),
            Some(2)
        );
        assert_eq!((queue.len(), queue.bytes()), (2, 3000));
    }
}
