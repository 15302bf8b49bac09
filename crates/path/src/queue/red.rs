//! Random early detection (Floyd and Jacobson 1993), gentle (Floyd 2000), and adaptive (Floyd,
//! Gummadi and Shenker 2001).

use std::fmt::Write;

use pathcast_base::seed::uniform;
use pathcast_base::{Bandwidth, Probability, Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::fifo::{Fifo, Limits};
use super::kind::{Kind, SIZE};
use crate::packet::{DropReason, Drops, Queued};
use crate::queue::QueueLimit;
use crate::reader::{Field, Read, Table};

/// Parameters as a path file gives them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedSpec {
    /// Average queue below which nothing is dropped, and up to which the probability rises to
    /// `max_probability`; both in packets or both in bytes. None: derived from the rate.
    pub thresholds: Option<(QueueLimit, QueueLimit)>,
    /// Probability of a drop at the upper threshold; of an adaptive queue, at the start.
    pub max_probability: Probability,
    /// Weight of a new sample in the average. None: derived from the rate.
    pub weight: Option<Probability>,
    /// Whether the probability rises from there to 1 at twice the upper threshold, instead of
    /// jumping to 1.
    pub gentle: bool,
    /// Whether `max_probability` adapts so that the average stays between the thresholds.
    pub adaptive: bool,
    /// The queueing delay from which an adaptive queue derives its thresholds.
    pub target: Span,
    /// Whether packets that can be marked are, instead of being dropped.
    pub ecn: bool,
}

impl RedSpec {
    /// Floyd's parameters: thresholds of 5 and 15 packets, weight 0.002 (1993), 0.1 at the upper
    /// threshold and gentle (<https://www.icir.org/floyd/REDparameters.txt>, 2000).
    pub fn classic() -> Self {
        Self {
            thresholds: Some((QueueLimit::Packets(5), QueueLimit::Packets(15))),
            max_probability: Probability::new(0.1).expect("0.1 is one"),
            weight: Probability::new(0.002),
            gentle: true,
            adaptive: false,
            target: Span::from_millis(5),
            ecn: false,
        }
    }

    /// All derived from the rate, for a queueing delay of 5 ms (Floyd, Gummadi and Shenker 2001).
    pub fn adaptive() -> Self {
        Self {
            thresholds: None,
            weight: None,
            adaptive: true,
            ..Self::classic()
        }
    }
}

/// Time between two adaptations (2001, section 3).
const ADAPT_EVERY: Span = Span::from_millis(500);

/// The queue.
#[derive(Clone, Debug)]
pub struct Red<P> {
    fifo: Fifo<P>,
    limits: Limits,
    spec: RedSpec,
    /// Thresholds and average are in bytes, not packets.
    in_bytes: bool,
    min: f64,
    max: f64,
    weight: f64,
    max_p: f64,
    /// Time to send one packet, for the decay of the average while idle.
    packet_s: f64,
    average: f64,
    /// Packets since the last drop while above the lower threshold.
    count: i64,
    idle_since: Option<Time>,
    adapted_at: Time,
    rng: Xoshiro256PlusPlus,
}

impl<P> Red<P> {
    /// An empty queue before a link of `rate`; without a link nothing ever waits.
    pub fn new(
        spec: RedSpec,
        limits: Limits,
        rate: Option<Bandwidth>,
        rng: Xoshiro256PlusPlus,
    ) -> Self {
        let packets_per_s = rate.map_or(f64::INFINITY, |rate| rate.as_bps() / (1500.0 * 8.0));
        let (in_bytes, min, max) = match spec.thresholds {
            Some((QueueLimit::Bytes(min), QueueLimit::Bytes(max))) => {
                (true, min as f64, max as f64)
            }
            Some((QueueLimit::Packets(min), QueueLimit::Packets(max))) => {
                (false, min as f64, max as f64)
            }
            // min = max(5, target C / 2), max = 3 min  (2001, section 4.1)
            _ => {
                let min = f64::max(5.0, spec.target.as_secs() * packets_per_s / 2.0);
                (false, min, 3.0 * min)
            }
        };
        // w = 1 - exp(-1 / C), C in packets a second: a time constant of one second  (2001, 4.2)
        let weight = spec
            .weight
            .map_or_else(|| -libm::expm1(-1.0 / packets_per_s), Probability::value);
        Self {
            fifo: Fifo::default(),
            limits,
            spec,
            in_bytes,
            min,
            max,
            weight,
            max_p: spec.max_probability.value(),
            packet_s: 1.0 / packets_per_s,
            average: 0.0,
            count: -1,
            idle_since: Some(Time::ZERO),
            adapted_at: Time::ZERO,
            rng,
        }
    }

    fn update_average(&mut self, now: Time) {
        if let Some(since) = self.idle_since.take() {
            // as if m small packets had found the queue empty (1993, section 4)
            let missed = now.since(since).as_secs() / self.packet_s;
            self.average *= libm::pow(1.0 - self.weight, missed);
        }
        let length = if self.in_bytes {
            self.fifo.bytes() as f64
        } else {
            self.fifo.len() as f64
        };
        self.average += self.weight * (length - self.average);
    }

    fn adapt(&mut self, now: Time) {
        // no more turns than would take it from one end of its range to the other
        for _ in 0..100 {
            if now < self.adapted_at + ADAPT_EVERY {
                return;
            }
            self.adapted_at += ADAPT_EVERY;
            let middle = |share: f64| self.min + share * (self.max - self.min);
            if self.average > middle(0.6) && self.max_p <= 0.5 {
                self.max_p += f64::min(0.01, self.max_p / 4.0);
            } else if self.average < middle(0.4) && self.max_p >= 0.01 {
                self.max_p *= 0.9;
            }
        }
        self.adapted_at = now;
    }

    /// The probability of a drop before it is spread out.
    fn probability(&self) -> f64 {
        if self.average < self.min {
            0.0
        } else if self.average < self.max {
            self.max_p * (self.average - self.min) / (self.max - self.min)
        } else if self.spec.gentle && self.average < 2.0 * self.max {
            self.max_p + (1.0 - self.max_p) * (self.average - self.max) / self.max
        } else {
            1.0
        }
    }

    fn chooses(&mut self) -> bool {
        let p = self.probability();
        if p <= 0.0 {
            self.count = -1;
            return false;
        }
        self.count += 1;
        // p_a = p_b / (1 - count p_b): gaps between drops are uniform, not geometric  (1993)
        let left = 1.0 - self.count as f64 * p;
        let chosen = left <= p || uniform(&mut self.rng) <= p / left;
        if chosen {
            self.count = 0;
        }
        chosen
    }

    pub(super) fn enqueue(
        &mut self,
        now: Time,
        mut packet: Queued<P>,
        drops: &mut Drops<P>,
    ) -> Result<(), (Queued<P>, DropReason)> {
        self.update_average(now);
        if self.spec.adaptive {
            self.adapt(now);
        }
        let chosen = self.chooses();
        let outcome = if !self.fifo.has_room(packet.info.size_bytes, self.limits) {
            Err((packet, DropReason::Queue))
        } else if chosen
            // above the upper threshold, packets are dropped in spite of ECN (RFC 3168, section 7)
            && !(self.spec.ecn && self.average < self.max && drops.mark(&mut packet))
        {
            Err((packet, DropReason::Aqm))
        } else {
            self.fifo.push(packet);
            Ok(())
        };
        if self.fifo.is_empty() {
            self.idle_since = Some(now);
        }
        outcome
    }

    pub(super) fn dequeue(&mut self, now: Time, _drops: &mut Drops<P>) -> Option<Queued<P>> {
        let packet = self.fifo.pop();
        if self.fifo.is_empty() {
            self.idle_since = Some(now);
        }
        packet
    }

    pub(super) fn len(&self) -> usize {
        self.fifo.len()
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.fifo.bytes()
    }
}

pub(super) const KINDS: &[Kind<RedSpec>] = &[
    Kind {
        name: "red",
        keys: &[
            "limit",
            "min",
            "max",
            "max_probability",
            "weight",
            "gentle",
            "ecn",
        ],
        limit: None,
        read: |table| RedSpec::read(table, RedSpec::classic()),
    },
    Kind {
        name: "adaptive-red",
        keys: &[
            "limit",
            "target",
            "min",
            "max",
            "max_probability",
            "weight",
            "gentle",
            "ecn",
        ],
        limit: None,
        read: |table| RedSpec::read(table, RedSpec::adaptive()),
    },
];

impl RedSpec {
    fn read(table: Table<'_, '_>, default: Self) -> Read<Self> {
        let size = |key| {
            table
                .get(key)
                .map(|field| field.quantity::<QueueLimit>(SIZE))
                .transpose()
        };
        let min = size("min")?;
        let max = size("max")?.or(match min {
            Some(QueueLimit::Packets(min)) => Some(QueueLimit::Packets(min.saturating_mul(3))),
            Some(QueueLimit::Bytes(min)) => Some(QueueLimit::Bytes(min.saturating_mul(3))),
            _ => None,
        });
        let thresholds = match (min, max) {
            (None, None) => default.thresholds,
            (Some(min), Some(max))
                if matches!(
                    (min, max),
                    (QueueLimit::Packets(a), QueueLimit::Packets(b))
                    | (QueueLimit::Bytes(a), QueueLimit::Bytes(b)) if a < b
                ) =>
            {
                Some((min, max))
            }
            _ => {
                return table
                    .get("max")
                    .or(table.get("min"))
                    .expect("one is there")
                    .wrong("expected `min` less than `max`, both in packets or both in bytes");
            }
        };
        let more_than_none = |field: Field<'_, '_>| match field.probability()? {
            Probability::ZERO => field.wrong("got 0, expected more"),
            probability => Ok(probability),
        };
        Ok(Self {
            thresholds,
            max_probability: table.or(
                "max_probability",
                default.max_probability,
                more_than_none,
            )?,
            weight: table.or("weight", default.weight, |field| {
                more_than_none(field).map(Some)
            })?,
            gentle: table.or("gentle", default.gentle, |field| field.boolean())?,
            target: table.or("target", default.target, |field| field.some_time())?,
            ecn: table.or("ecn", default.ecn, |field| field.boolean())?,
            ..default
        })
    }
}

pub(super) fn to_toml(spec: &RedSpec, limit: QueueLimit) -> String {
    let mut text = if spec.adaptive {
        format!(
            "{{ kind = \"adaptive-red\", limit = \"{limit}\", target = \"{}\"",
            spec.target
        )
    } else {
        format!("{{ kind = \"red\", limit = \"{limit}\"")
    };
    if let Some((min, max)) = &spec.thresholds {
        let _ = write!(text, ", min = \"{min}\", max = \"{max}\"");
    }
    if let Some(weight) = &spec.weight {
        let _ = write!(text, ", weight = {:?}", weight.value());
    }
    let (p, gentle, ecn) = (spec.max_probability.value(), spec.gentle, spec.ecn);
    text + &format!(", max_probability = {p:?}, gentle = {gentle}, ecn = {ecn} }}")
}

#[cfg(test)]
mod tests {
    use pathcast_base::seed::generator;

    use super::super::testing::{at_ms, drops, packet, packets};
    use super::*;

    fn red(spec: RedSpec, rate_bps: f64) -> Red<u64> {
        let rate = Bandwidth::from_bps(rate_bps);
        Red::new(spec, packets(1000), rate, generator(1, "queue"))
    }

    /// A queue whose average is its present length, so the average is known.
    fn without_memory(ecn: bool) -> Red<u64> {
        let weight = Probability::new(1.0);
        red(
            RedSpec {
                weight,
                ecn,
                ..RedSpec::classic()
            },
            12e6,
        )
    }

    #[test]
    fn half_way_between_the_thresholds_half_of_the_probability_applies() {
        let (mut queue, mut drops) = (without_memory(false), drops());
        let mut dropped = 0;
        for id in 0..100_000u64 {
            let now = at_ms(id);
            // offered again and again until it holds 10
            while queue.len() < 10 {
                let _ = queue.enqueue(now, packet(now, id, 0, false), &mut drops);
            }
            // the sample: the queue holds 10 packets, p_b = 0.05
            if queue
                .enqueue(now, packet(now, id, 0, false), &mut drops)
                .is_err()
            {
                dropped += 1;
            } else {
                queue.dequeue(now, &mut drops);
            }
        }
        // gaps are uniform on 1 to 1 / p_b - 1, so 1 / (2 p_b) = 10 in the mean
        assert!((9_800..10_200).contains(&dropped), "{dropped}");
    }

    #[test]
    fn nothing_is_dropped_below_and_all_above() {
        let (mut queue, mut drops) = (without_memory(false), drops());
        for id in 0..5 {
            queue
                .enqueue(Time::ZERO, packet(Time::ZERO, id, 0, false), &mut drops)
                .unwrap();
        }
        queue.average = 31.0;
        assert_eq!(queue.probability(), 1.0);
        queue.average = 22.5; // gentle: half way between 15 and 30
        assert!((queue.probability() - 0.55).abs() < 1e-12);
    }

    #[test]
    fn packets_that_can_be_are_marked_up_to_the_upper_threshold() {
        let (mut queue, mut drops) = (without_memory(true), drops());
        for id in 0..10_000 {
            queue
                .enqueue(Time::ZERO, packet(Time::ZERO, id, 0, true), &mut drops)
                .unwrap();
            if queue.len() > 10 {
                queue.dequeue(Time::ZERO, &mut drops);
            }
        }
        assert!(
            (800..1200).contains(&drops.counters.marked),
            "{}",
            drops.counters.marked
        );
        assert_eq!(drops.counters.dropped(), 0);
    }

    #[test]
    fn the_average_decays_while_idle() {
        let mut queue = red(RedSpec::classic(), 12e6); // a packet a millisecond
        queue.average = 10.0;
        queue.idle_since = Some(Time::ZERO);
        queue.update_average(at_ms(500));
        let expected = 10.0 * libm::pow(0.998, 501.0);
        assert!((queue.average - expected).abs() < 1e-9, "{}", queue.average);
    }

    #[test]
    fn an_adaptive_queue_holds_its_average_between_the_thresholds() {
        // 120 Mbit/s, 10,000 packets a second; 30 % more offered by senders that do not respond
        let (mut queue, mut drops) = (red(RedSpec::adaptive(), 120e6), drops());
        assert!((queue.min - 25.0).abs() < 1e-9 && (queue.weight - 1e-4).abs() < 1e-7);
        let (mut id, mut credit) = (0, 0.0);
        for tick in 0..1_200_000u64 {
            let now = Time::from_nanos(tick * 100_000);
            credit += 1.3;
            while credit >= 1.0 {
                credit -= 1.0;
                let _ = queue.enqueue(now, packet(now, id, 0, false), &mut drops);
                id += 1;
            }
            queue.dequeue(now, &mut drops);
        }
        assert!(
            queue.average > 35.0 && queue.average < 65.0,
            "{}",
            queue.average
        );
    }
}
