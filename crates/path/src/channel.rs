//! One direction of a path: its elements in a row.

use pathcast_base::Time;

use crate::fast::FastChannel;
use crate::packet::{Arrival, Counters, DropReason, Dropped, PacketInfo};
use crate::staged::StagedChannel;

/// One direction of a path, for packets that carry a `P`.
///
/// A packet passes the policer, waits in the queue, and is sent by the link. It may be lost on the wire
/// after the link, so a lost packet has occupied both queue and link. It arrives after the delay, and may
/// be held back until a burst is complete. Packets stay in order, except with a queue that is fair between
/// flows or with jitter that reorders.
///
/// [`Path::channels`](crate::Path::channels) makes channels. One with droptail, a constant rate and a fixed
/// delay is several times as fast as others, because it has no internal events.
#[derive(Clone, Debug)]
pub struct Channel<P> {
    fast: FastChannel<P>,
    /// Replaces the fast channel if the path needs more. (An enum of the two costs a third of the fast
    /// one's speed, because the compiler stores the discriminant in a field of a variant.)
    staged: Option<Box<StagedChannel<P>>>,
}

impl<P> Channel<P> {
    pub(crate) const fn fast(channel: FastChannel<P>) -> Self {
        Self {
            fast: channel,
            staged: None,
        }
    }

    pub(crate) fn staged(channel: StagedChannel<P>) -> Self {
        Self {
            fast: FastChannel::empty(),
            staged: Some(Box::new(channel)),
        }
    }

    /// Offers a packet of `size_bytes` (with all its headers) at `now`, which is never before the
    /// `now` of an earlier call. It belongs to flow 0 and cannot be marked; see
    /// [`Channel::enqueue_as`].
    ///
    /// # Errors
    /// Hands the packet back with the reason if it is known already that it is dropped.
    #[inline]
    pub fn enqueue(
        &mut self,
        now: Time,
        size_bytes: u32,
        packet: P,
    ) -> Result<(), (P, DropReason)> {
        self.enqueue_as(now, PacketInfo::of_size(size_bytes), packet)
    }

    /// Offers a packet of which the path may know its flow and whether it can be marked.
    ///
    /// A packet that is taken in may be dropped later: see [`Channel::take_dropped`].
    ///
    /// # Errors
    /// Hands the packet back with the reason if it is known already that it is dropped.
    #[inline]
    pub fn enqueue_as(
        &mut self,
        now: Time,
        info: PacketInfo,
        packet: P,
    ) -> Result<(), (P, DropReason)> {
        match &mut self.staged {
            None => self.fast.enqueue(now, info.size_bytes, packet),
            Some(channel) => channel.enqueue(now, info, packet),
        }
    }

    /// When [`Channel::dequeue`] should be called next: a packet is due at the far end, or something
    /// happens inside, after which there may be none yet. Nothing happens before this.
    #[inline]
    pub fn next_event(&self) -> Option<Time> {
        match &self.staged {
            None => self.fast.next_event(),
            Some(channel) => channel.next_event(),
        }
    }

    /// The next packet that is due at `now` or was before, with the moment at which it was due.
    #[inline]
    pub fn dequeue(&mut self, now: Time) -> Option<(Time, P)> {
        match &mut self.staged {
            None => self.fast.dequeue(now),
            Some(channel) => {
                let arrival = channel.dequeue(now)?;
                Some((arrival.due, arrival.packet))
            }
        }
    }

    /// As [`Channel::dequeue`], with what happened to the packet in transit.
    #[inline]
    pub fn receive(&mut self, now: Time) -> Option<Arrival<P>> {
        match &mut self.staged {
            None => self.fast.dequeue(now).map(|(due, packet)| Arrival {
                due,
                packet,
                marked: false,
            }),
            Some(channel) => channel.dequeue(now),
        }
    }

    /// The packet that is due after the next `ahead` packets, if that is known.
    #[inline]
    pub fn coming(&self, ahead: usize) -> Option<&P> {
        match &self.staged {
            None => self.fast.coming(ahead),
            Some(_) => None,
        }
    }

    /// From now on, keeps packets that are dropped after they were taken in, for
    /// [`Channel::take_dropped`]. They are only counted otherwise.
    pub fn keep_drops(&mut self) {
        if let Some(channel) = &mut self.staged {
            channel.keep_drops();
        }
    }

    /// The next packet that was dropped after it was taken in, and not yet taken here. A packet that is
    /// lost on the wire may be returned a little before the moment of its loss.
    #[inline]
    pub fn take_dropped(&mut self) -> Option<Dropped<P>> {
        match &mut self.staged {
            None => None,
            Some(channel) => channel.take_dropped(),
        }
    }

    /// Bytes that wait for the link at `now`, the packet in transmission not counted.
    pub fn backlog_bytes(&mut self, now: Time) -> u64 {
        match &mut self.staged {
            None => self.fast.backlog_bytes(now),
            Some(channel) => channel.backlog_bytes(now),
        }
    }

    /// Packets between `enqueue` and `dequeue`.
    pub fn in_flight(&self) -> usize {
        match &self.staged {
            None => self.fast.in_flight(),
            Some(channel) => channel.in_flight(),
        }
    }

    /// What has happened so far.
    pub const fn counters(&self) -> Counters {
        match &self.staged {
            None => self.fast.counters(),
            Some(channel) => channel.counters(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Path, Span};

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
