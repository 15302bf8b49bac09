//! Controlled delay (RFC 8289): drops when packets have waited longer than a target for an interval.

use pathcast_base::{Span, Time};

use super::fifo::{Fifo, Limits};
use super::kind::{AQM_LIMIT, Kind};
use crate::packet::{DropReason, Drops, Queued};
use crate::queue::QueueLimit;
use crate::reader::{Read, Table};

/// Parameters as a path file gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDelSpec {
    /// The wait that is acceptable for good.
    pub target: Span,
    /// How long a longer wait is acceptable: about the largest usual round-trip time.
    pub interval: Span,
    /// Whether packets that can be marked are, instead of being dropped.
    pub ecn: bool,
}

impl Default for CoDelSpec {
    /// 5 ms and 100 ms (RFC 8289, sections 4.3 and 4.4).
    fn default() -> Self {
        Self {
            target: Span::from_millis(5),
            interval: Span::from_millis(100),
            ecn: false,
        }
    }
}

/// Bytes that may wait however long: a packet of full size.
const MTU_BYTES: u64 = 1500;

/// The state machine of RFC 8289, section 5, which [`CoDel`] and
/// [`FqCoDel`](super::FqCoDel) share.
#[derive(Clone, Debug)]
pub(super) struct Control {
    spec: CoDelSpec,
    first_above_time: Option<Time>,
    drop_next: Time,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl Control {
    pub(super) const fn new(spec: CoDelSpec) -> Self {
        Self {
            spec,
            first_above_time: None,
            drop_next: Time::ZERO,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }

    /// t + interval / sqrt(count)
    fn control_law(&self, t: Time) -> Time {
        let span_s = self.spec.interval.as_secs() / f64::from(self.count).sqrt();
        t + Span::from_secs(span_s)
    }

    /// The first packet, and whether it may be dropped. `beside_bytes` wait in other queues before
    /// the same link.
    #[inline]
    fn take<P>(
        &mut self,
        now: Time,
        fifo: &mut Fifo<P>,
        beside_bytes: u64,
    ) -> Option<(Queued<P>, bool)> {
        let Some(packet) = fifo.pop() else {
            self.first_above_time = None;
            return None;
        };
        let sojourn = now.since(packet.entered);
        if sojourn < self.spec.target || fifo.bytes() + beside_bytes <= MTU_BYTES {
            self.first_above_time = None;
            return Some((packet, false));
        }
        let since = *self
            .first_above_time
            .get_or_insert(now + self.spec.interval);
        Some((packet, now >= since))
    }

    /// The packet to send at `now`.
    pub(super) fn dequeue<P>(
        &mut self,
        now: Time,
        fifo: &mut Fifo<P>,
        beside_bytes: u64,
        drops: &mut Drops<P>,
    ) -> Option<Queued<P>> {
        let Some((mut packet, mut ok_to_drop)) = self.take(now, fifo, beside_bytes) else {
            self.dropping = false;
            return None;
        };
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
                return Some(packet);
            }
            while self.dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if self.spec.ecn && drops.mark(&mut packet) {
                    self.drop_next = self.control_law(self.drop_next);
                    return Some(packet);
                }
                drops.push(now, packet, DropReason::Aqm);
                let Some(next) = self.take(now, fifo, beside_bytes) else {
                    self.dropping = false;
                    return None;
                };
                (packet, ok_to_drop) = next;
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            let next = if self.spec.ecn && drops.mark(&mut packet) {
                Some(packet)
            } else {
                drops.push(now, packet, DropReason::Aqm);
                self.take(now, fifo, beside_bytes).map(|(packet, _)| packet)
            };
            self.dropping = true;
            // soon after the last dropping state, continue where it ended
            let delta = self.count - self.last_count;
            let recently = now.since(self.drop_next) < self.spec.interval.mul_div(16, 1);
            self.count = if delta > 1 && recently { delta } else { 1 };
            self.drop_next = self.control_law(now);
            self.last_count = self.count;
            return next;
        }
        Some(packet)
    }
}

/// The queue.
#[derive(Clone, Debug)]
pub struct CoDel<P> {
    fifo: Fifo<P>,
    limits: Limits,
    control: Control,
}

impl<P> CoDel<P> {
    /// An empty queue.
    pub fn new(spec: CoDelSpec, limits: Limits) -> Self {
        Self {
            fifo: Fifo::default(),
            limits,
            control: Control::new(spec),
        }
    }

    pub(super) fn enqueue(
        &mut self,
        _now: Time,
        packet: Queued<P>,
        _drops: &mut Drops<P>,
    ) -> Result<(), (Queued<P>, DropReason)> {
        if !self.fifo.has_room(packet.info.size_bytes, self.limits) {
            return Err((packet, DropReason::Queue));
        }
        self.fifo.push(packet);
        Ok(())
    }

    pub(super) fn dequeue(&mut self, now: Time, drops: &mut Drops<P>) -> Option<Queued<P>> {
        self.control.dequeue(now, &mut self.fifo, 0, drops)
    }

    pub(super) fn len(&self) -> usize {
        self.fifo.len()
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.fifo.bytes()
    }
}

pub(super) const KINDS: &[Kind<CoDelSpec>] = &[Kind {
    name: "codel",
    keys: &["limit", "target", "interval", "ecn"],
    limit: Some(AQM_LIMIT),
    read: |table| CoDelSpec::read(table, CoDelSpec::default()),
}];

impl CoDelSpec {
    pub(super) fn read(table: Table<'_, '_>, default: Self) -> Read<Self> {
        Ok(Self {
            target: table.or("target", default.target, |field| field.some_time())?,
            interval: table.or("interval", default.interval, |field| field.some_time())?,
            ecn: table.or("ecn", default.ecn, |field| field.boolean())?,
        })
    }

    /// The keys but `kind` and `limit`.
    pub(super) fn keys_to_toml(self) -> String {
        let Self {
            target,
            interval,
            ecn,
        } = self;
        format!("target = \"{target}\", interval = \"{interval}\", ecn = {ecn}")
    }
}

pub(super) fn to_toml(spec: &CoDelSpec, limit: QueueLimit) -> String {
    let keys = spec.keys_to_toml();
    format!("{{ kind = \"codel\", limit = \"{limit}\", {keys} }}")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{at_ms, drops, packet, packets};
    use super::*;

    /// A queue that stays long: two packets come in and one goes out each millisecond.
    fn overloaded(ecn: bool, millis: u64) -> (CoDel<u64>, Drops<u64>) {
        let spec = CoDelSpec {
            ecn,
            ..CoDelSpec::default()
        };
        let (mut queue, mut drops) = (CoDel::new(spec, packets(1_000_000)), drops());
        for tick in 0..millis {
            let now = at_ms(tick);
            for id in [2 * tick, 2 * tick + 1] {
                queue
                    .enqueue(now, packet(now, id, 0, ecn), &mut drops)
                    .unwrap();
            }
            queue.dequeue(now, &mut drops);
        }
        (queue, drops)
    }

    #[test]
    fn drops_come_at_intervals_over_the_root_of_their_number() {
        let (_, mut drops) = overloaded(false, 2000);
        let times: Vec<f64> = std::iter::from_fn(|| drops.take())
            .map(|dropped| dropped.at.as_secs() * 1000.0)
            .collect();
        // the wait passes 5 ms at 10 ms and has been above for 100 ms at 110 ms
        assert!((times[0] - 110.0).abs() <= 2.0, "{}", times[0]);
        let mut expected = times[0];
        for (n, time) in times.iter().enumerate().skip(1).take(30) {
            expected += 100.0 / f64::sqrt(n as f64);
            assert!(
                (time - expected).abs() <= 1.0,
                "drop {n}: {time}, expected {expected}"
            );
        }
    }

    #[test]
    fn marks_come_where_drops_would() {
        let (_, mut drops) = overloaded(true, 1000);
        let (_, dropping) = overloaded(false, 1000);
        assert!(drops.take().is_none());
        assert!(
            drops
                .counters
                .marked
                .abs_diff(dropping.counters.dropped_by_queue)
                <= 1
        );
    }

    #[test]
    fn a_queue_below_the_target_is_left_alone() {
        let (mut queue, mut drops) = (CoDel::new(CoDelSpec::default(), packets(100)), drops());
        for tick in 0..10_000 {
            let now = at_ms(tick);
            // four packets wait, so each waits for 4 ms
            queue
                .enqueue(now, packet(now, tick, 0, false), &mut drops)
                .unwrap();
            if tick >= 4 {
                queue.dequeue(now, &mut drops);
            }
        }
        assert_eq!(drops.counters.dropped(), 0);
    }
}
