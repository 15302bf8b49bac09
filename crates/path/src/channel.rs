//! One direction of a path: queue, link, loss and delay in a row.

use crate::delay::DelayLine;
use crate::link::ConstantLink;
use crate::loss::Loss;
use crate::queue::DropTail;
use crate::units::{Span, Time};

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The queue was full.
    Queue,
    /// The loss process took it; it had used its share of the link before.
    Loss,
}

/// What a channel has done so far, in packets. `enqueued` = dropped + delivered + in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered.
    pub enqueued: u64,
    /// Bytes offered.
    pub enqueued_bytes: u64,
    /// Packets that found the queue full.
    pub dropped_by_queue: u64,
    /// Packets that the loss process took.
    pub dropped_by_loss: u64,
    /// Packets handed over at the far end.
    pub delivered: u64,
}

/// One direction of a path, for packets that carry a `P`.
///
/// Packets wait in a droptail queue, are sent by the link, may be lost on the wire after it (so a
/// lost packet has taken its place in the queue and its time on the link), and arrive after the
/// delay. Order is kept.
#[derive(Clone, Debug)]
pub struct Channel<P> {
    queue: DropTail,
    link: Option<ConstantLink>,
    loss: Loss,
    delay: Span,
    wire: DelayLine<P>,
    counters: Counters,
}

impl<P> Channel<P> {
    /// A channel of these elements; without a link, packets go on the wire at once.
    pub fn new(queue: DropTail, link: Option<ConstantLink>, loss: Loss, delay: Span) -> Self {
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

    /// Offers a packet of `size_bytes` (with all its headers) at `now`.
    ///
    /// # Errors
    /// Hands the packet back with the reason if it is dropped, now or later on its way.
    #[inline]
    pub fn enqueue(
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
        if self.loss.drops_next() {
            self.counters.dropped_by_loss += 1;
            return Err((packet, DropReason::Loss));
        }
        self.wire.push(sent + self.delay, packet);
        Ok(())
    }

    /// When the next packet is due at the far end, if one is on its way.
    #[inline]
    pub fn next_event(&self) -> Option<Time> {
        self.wire.next_due()
    }

    /// The next packet that is due at `now` or was before, with the moment at which it was due.
    #[inline]
    pub fn dequeue(&mut self, now: Time) -> Option<(Time, P)> {
        let arrived = self.wire.pop(now)?;
        self.counters.delivered += 1;
        Some(arrived)
    }

    /// Bytes that wait for the link at `now`, the packet in transmission not counted.
    pub fn backlog_bytes(&mut self, now: Time) -> u64 {
        self.queue.backlog_bytes(now)
    }

    /// Packets between `enqueue` and `dequeue`.
    pub fn in_flight(&self) -> usize {
        self.wire.len()
    }

    /// What has happened so far.
    pub const fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Path;

    fn channel(text: &str) -> Channel<u64> {
        Path::parse(text, "test.toml")
            .unwrap()
            .channels::<_, ()>(1)
            .0
    }

    #[test]
    fn a_full_queue_drops_the_tail_and_not_the_packet_in_transmission() {
        let mut channel = channel("rate = '12 Mbit/s'\ndelay = '10 ms'\nqueue = '2 packets'\n");
        let outcomes: Vec<bool> = (0..5)
            .map(|id| channel.enqueue(Time::ZERO, 1500, id).is_ok())
            .collect();
        assert_eq!(outcomes, [true, true, true, false, false]); // one on the link, two wait
        assert_eq!(channel.backlog_bytes(Time::ZERO), 3000);
        // after 1 ms the first waiting packet is on the link, and one more fits
        assert!(
            channel
                .enqueue(Time::from_nanos(1_000_000), 1500, 9)
                .is_ok()
        );
        let mut arrivals = Vec::new();
        while let Some((due, id)) = channel.dequeue(Time::MAX) {
            arrivals.push((due.as_nanos() / 1_000_000, id));
        }
        assert_eq!(arrivals, [(11, 0), (12, 1), (13, 2), (14, 9)]);
    }

    #[test]
    fn without_a_rate_only_the_delay_remains() {
        let mut channel = channel("delay = '10 ms'\n");
        channel.enqueue(Time::from_nanos(5), 1500, 1).unwrap();
        channel.enqueue(Time::from_nanos(5), 1500, 2).unwrap();
        assert_eq!(channel.next_event(), Some(Time::from_nanos(10_000_005)));
        assert_eq!(channel.dequeue(Time::from_nanos(10_000_004)), None);
        assert!(channel.dequeue(Time::from_nanos(10_000_005)).is_some());
        assert!(channel.dequeue(Time::from_nanos(10_000_005)).is_some());
    }

    #[test]
    fn a_link_that_is_never_idle_delivers_its_rate() {
        let mut channel = channel("rate = '100 Mbit/s'\ndelay = '1 ms'\nqueue = '20 packets'\n");
        let mut delivered_bytes = 0u64;
        for step in 0..100_000u64 {
            let now = Time::from_nanos(step * 100_000); // 10 s at 120 Mbit/s
            let _ = channel.enqueue(now, 1500, step);
            while channel.dequeue(now).is_some() {
                delivered_bytes += 1500;
            }
        }
        let rate_bps = delivered_bytes as f64 * 8.0 / 10.0;
        assert!((rate_bps / 100e6 - 1.0).abs() < 1e-3, "{rate_bps}");
    }

    proptest! {
        #[test]
        fn packets_in_are_delivered_dropped_or_in_flight(
            loss in 0.0..0.5f64,
            queue_packets in 1..50u64,
            gaps_us in prop::collection::vec((0..3000u64, 40..1600u32), 1..400),
            seed in any::<u64>(),
        ) {
            let text = format!(
                "rate = '10 Mbit/s'\ndelay = '5 ms'\nqueue = '{queue_packets} packets'\nloss = {loss}\n"
            );
            let (mut channel, _) = Path::parse(&text, "p.toml").unwrap().channels::<usize, ()>(seed);
            let (mut now, mut last) = (Time::ZERO, None);
            for (id, (gap_us, size)) in gaps_us.iter().enumerate() {
                now += Span::from_nanos(gap_us * 1000);
                let _ = channel.enqueue(now, *size, id);
                while let Some((due, id)) = channel.dequeue(now) {
                    prop_assert!(due <= now);
                    prop_assert!(last.is_none_or(|last| last < id), "order is kept");
                    last = Some(id);
                }
                let c = channel.counters();
                prop_assert_eq!(
                    c.enqueued,
                    c.delivered + c.dropped_by_loss + c.dropped_by_queue + channel.in_flight() as u64
                );
            }
        }
    }
}
