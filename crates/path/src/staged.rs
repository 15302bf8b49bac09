//! A channel of any elements: policer, queue, link, loss, delay and aggregation, in this order.
//!
//! Internal events (the link becomes free, an opportunity comes) are processed in the order of time, before
//! any later call from outside.

use std::collections::VecDeque;

use pathcast_base::Time;

use crate::aggregation::Aggregator;
use crate::delay::{Delay, DelayLine, DelaySpec, ShuffledLine};
use crate::link::{ConstantLink, HEADER_BYTES, OPPORTUNITY_BYTES, OpportunityLink, SteppedLink};
use crate::loss::Loss;
use crate::packet::{Arrival, Counters, DropReason, Dropped, Drops, PacketInfo, Queued};
use crate::policer::Policer;
use crate::queue::Queue;

/// The link, if there is one.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    None,
    Constant(ConstantLink),
    Stepped(SteppedLink),
    Opportunities(OpportunityLink),
}

/// Packets between the link and the far end.
#[derive(Clone, Debug)]
enum Wire<P> {
    Ordered(DelayLine<Queued<P>>),
    Shuffled(ShuffledLine<Queued<P>>),
}

impl<P> Wire<P> {
    #[inline]
    fn push(&mut self, due: Time, packet: Queued<P>) {
        match self {
            Self::Ordered(line) => line.push(due, packet),
            Self::Shuffled(line) => line.push(due, packet),
        }
    }

    #[inline]
    fn next_due(&self) -> Option<Time> {
        match self {
            Self::Ordered(line) => line.next_due(),
            Self::Shuffled(line) => line.next_due(),
        }
    }

    #[inline]
    fn pop(&mut self, now: Time) -> Option<(Time, Queued<P>)> {
        match self {
            Self::Ordered(line) => line.pop(now),
            Self::Shuffled(line) => line.pop(now),
        }
    }
}

/// A change for packets that leave the link at a moment or later.
#[derive(Clone, Debug)]
pub(crate) struct WireChange {
    pub(crate) at: Time,
    pub(crate) loss: Option<Loss>,
    pub(crate) delay: Option<DelaySpec>,
}

#[derive(Clone, Debug)]
pub(crate) struct StagedChannel<P> {
    policer: Option<Policer>,
    queue: Queue<P>,
    link: Link,
    /// When a packet last came to an empty queue.
    busy_from: Time,
    /// The packet that a link of opportunities has sent a part of, and the bytes to come.
    in_transit: Option<(Queued<P>, u32)>,
    loss: Loss,
    delay: Delay,
    /// In the order of their time.
    changes: VecDeque<WireChange>,
    wire: Wire<P>,
    aggregator: Option<Aggregator<Queued<P>>>,
    drops: Drops<P>,
}

impl<P> StagedChannel<P> {
    #[allow(clippy::too_many_arguments)] // one for each element
    pub(crate) fn new(
        policer: Option<Policer>,
        queue: Queue<P>,
        link: Link,
        loss: Loss,
        delay: Delay,
        changes: VecDeque<WireChange>,
        reorders: bool,
        aggregator: Option<Aggregator<Queued<P>>>,
    ) -> Self {
        let wire = if reorders {
            Wire::Shuffled(ShuffledLine::default())
        } else {
            Wire::Ordered(DelayLine::default())
        };
        Self {
            policer,
            queue,
            link,
            busy_from: Time::ZERO,
            in_transit: None,
            loss,
            delay,
            changes,
            wire,
            aggregator,
            drops: Drops::default(),
        }
    }

    #[inline(never)]
    pub(crate) fn enqueue(
        &mut self,
        now: Time,
        info: PacketInfo,
        packet: P,
    ) -> Result<(), (P, DropReason)> {
        self.work(now);
        self.drops.counters.enqueued += 1;
        self.drops.counters.enqueued_bytes += u64::from(info.size_bytes);
        if let Some(policer) = &mut self.policer
            && !policer.admits(now, info.size_bytes)
        {
            self.drops.counters.count(DropReason::Policer);
            return Err((packet, DropReason::Policer));
        }
        let packet = Queued::new(now, info, packet);
        if matches!(self.link, Link::None) {
            return self.depart(now, packet).map_err(|lost| {
                self.drops.counters.count(DropReason::Loss);
                (lost.packet, DropReason::Loss)
            });
        }
        if self.queue.is_empty() && self.in_transit.is_none() {
            self.busy_from = now;
            if let Link::Opportunities(link) = &mut self.link {
                link.skip_past(now);
            }
        }
        if let Err((packet, reason)) = self.queue.enqueue(now, packet, &mut self.drops) {
            self.drops.counters.count(reason);
            return Err((packet.packet, reason));
        }
        self.work(now); // an idle link takes it immediately
        Ok(())
    }

    /// When the link does something next.
    #[inline]
    fn link_event(&self) -> Option<Time> {
        if self.queue.is_empty() && self.in_transit.is_none() {
            return None;
        }
        match &self.link {
            Link::None => None,
            Link::Constant(link) => Some(link.free_at().max(self.busy_from)),
            Link::Stepped(link) => Some(link.free_at().max(self.busy_from)),
            Link::Opportunities(link) => Some(link.next()),
        }
    }

    /// Processes the link's events up to `now`.
    #[inline]
    fn work(&mut self, now: Time) {
        while let Some(at) = self.link_event() {
            if at > now {
                return;
            }
            self.serve(at);
        }
    }

    #[inline]
    fn serve(&mut self, at: Time) {
        if let Link::Opportunities(link) = &mut self.link {
            link.advance();
            self.use_opportunity(at);
            return;
        }
        // active queue management may have dropped all that waited
        let Some(packet) = self.queue.dequeue(at, &mut self.drops) else {
            return;
        };
        let (_, end) = match &mut self.link {
            Link::Constant(link) => link.transmit(at, packet.info.size_bytes),
            Link::Stepped(link) => link.transmit(at, packet.info.size_bytes),
            Link::None | Link::Opportunities(_) => (at, at),
        };
        self.depart_or_lose(end, packet);
    }

    fn use_opportunity(&mut self, at: Time) {
        let mut left = OPPORTUNITY_BYTES;
        while left > 0 {
            let begun = self.in_transit.take().or_else(|| {
                let packet = self.queue.dequeue(at, &mut self.drops)?;
                let size_bytes = packet.info.size_bytes.saturating_add(HEADER_BYTES);
                Some((packet, size_bytes))
            });
            let Some((packet, size_bytes)) = begun else {
                return;
            };
            if size_bytes > left {
                self.in_transit = Some((packet, size_bytes - left));
                return;
            }
            left -= size_bytes;
            self.depart_or_lose(at, packet);
        }
    }

    #[inline]
    fn depart_or_lose(&mut self, sent: Time, packet: Queued<P>) {
        if let Err(lost) = self.depart(sent, packet) {
            self.drops.push(sent, lost, DropReason::Loss);
        }
    }

    /// Puts a packet that has left the link on the wire; returns the packet if it is lost there.
    #[inline]
    fn depart(&mut self, sent: Time, packet: Queued<P>) -> Result<(), Queued<P>> {
        while self.changes.front().is_some_and(|change| change.at <= sent) {
            let change = self.changes.pop_front().expect("there is one");
            if let Some(loss) = change.loss {
                self.loss = loss;
            }
            if let Some(delay) = change.delay {
                self.delay.change(delay);
            }
        }
        if self.loss.drops_next(sent) {
            return Err(packet);
        }
        self.wire.push(self.delay.due(sent), packet);
        Ok(())
    }

    #[inline(never)]
    pub(crate) fn next_event(&self) -> Option<Time> {
        let release = self.aggregator.as_ref().and_then(Aggregator::next_release);
        let events = [self.link_event(), self.wire.next_due(), release];
        events.into_iter().flatten().min()
    }

    #[inline(never)]
    pub(crate) fn dequeue(&mut self, now: Time) -> Option<Arrival<P>> {
        self.work(now);
        let (due, packet) = match &mut self.aggregator {
            None => self.wire.pop(now)?,
            Some(aggregator) => {
                while let Some((arrived, packet)) = self.wire.pop(now) {
                    aggregator.push(arrived, packet);
                }
                aggregator.pop(now)?
            }
        };
        self.drops.counters.delivered += 1;
        Some(Arrival {
            due,
            packet: packet.packet,
            marked: packet.marked,
        })
    }

    pub(crate) fn backlog_bytes(&mut self, now: Time) -> u64 {
        self.work(now);
        self.queue.bytes()
    }

    pub(crate) const fn in_flight(&self) -> usize {
        let counters = &self.drops.counters;
        (counters.enqueued - counters.delivered - counters.dropped()) as usize
    }

    pub(crate) const fn counters(&self) -> Counters {
        self.drops.counters
    }

    pub(crate) fn keep_drops(&mut self) {
        self.drops.keep();
    }

    pub(crate) fn take_dropped(&mut self) -> Option<Dropped<P>> {
        self.drops.take()
    }
}
