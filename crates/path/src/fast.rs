//! A channel in virtual time: droptail, one rate, one delay.
//!
//! The moment at which a packet will leave the link is known when it arrives. So the packet enters the wire
//! immediately, and the link needs no events.

use pathcast_base::{Span, Time};

use crate::delay::DelayLine;
use crate::link::ConstantLink;
use crate::loss::Loss;
use crate::packet::{Counters, DropReason};
use crate::queue::VirtualDropTail;

#[derive(Clone, Debug)]
pub(crate) struct FastChannel<P> {
    queue: VirtualDropTail,
    link: Option<ConstantLink>,
    loss: Loss,
    delay: Span,
    wire: DelayLine<P>,
    counters: Counters,
}

impl<P> FastChannel<P> {
    /// A channel of these elements; without a link, packets enter the wire immediately.
    pub(crate) fn new(
        queue: VirtualDropTail,
        link: Option<ConstantLink>,
        loss: Loss,
        delay: Span,
    ) -> Self {
        let (wire, counters) = (DelayLine::default(), Counters::default());
        Self {
            queue,
            link,
            loss,
            delay,
            wire,
            counters,
        }
    }

    /// A placeholder for a channel that is not used.
    pub(crate) fn empty() -> Self {
        Self::new(VirtualDropTail::new(0, 0), None, Loss::None, Span::ZERO)
    }

    #[inline(always)]
    pub(crate) fn enqueue(
        &mut self,
        now: Time,
        size_bytes: u32,
        packet: P,
    ) -> Result<(), (P, DropReason)> {
        self.counters.enqueued += 1;
        self.counters.enqueued_bytes += u64::from(size_bytes);
        let sent = match &mut self.link {
            None => now,
            Some(link) => {
                let waits = link.free_at() > now;
                if waits && !self.queue.has_room(now, size_bytes) {
                    self.counters.dropped_by_queue += 1;
                    return Err((packet, DropReason::Queue));
                }
                let (start, end) = link.transmit(now, size_bytes);
                if waits {
                    self.queue.push(start, size_bytes);
                }
                end
            }
        };
        // first in, first out up to here, so the order of arrival is the order of the loss process
        if self.loss.drops_next(sent) {
            self.counters.dropped_by_loss += 1;
            return Err((packet, DropReason::Loss));
        }
        self.wire.push(sent + self.delay, packet);
        Ok(())
    }

    #[inline]
    pub(crate) fn next_event(&self) -> Option<Time> {
        self.wire.next_due()
    }

    #[inline]
    pub(crate) fn dequeue(&mut self, now: Time) -> Option<(Time, P)> {
        let arrived = self.wire.pop(now)?;
        self.counters.delivered += 1;
        Some(arrived)
    }

    #[inline]
    pub(crate) fn coming(&self, ahead: usize) -> Option<&P> {
        self.wire.get(ahead)
    }

    pub(crate) fn backlog_bytes(&mut self, now: Time) -> u64 {
        self.queue.backlog_bytes(now)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.wire.len()
    }

    pub(crate) const fn counters(&self) -> Counters {
        self.counters
    }
}
