//! Proportional integral controller enhanced (RFC 8033): a drop probability that follows the
//! queueing delay.
//!
//! As in Linux, it is always active (RFC 8033 lets it sleep below a third of the limit), and the
//! delay is that of the packet sent last (the RFC's alternative to estimating the departure rate).

use pathcast_base::seed::uniform;
use pathcast_base::{Probability, Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::fifo::{Fifo, Limits};
use super::kind::{AQM_LIMIT, Kind};
use crate::packet::{DropReason, Drops, Queued};
use crate::queue::QueueLimit;
use crate::reader::{Read, TIME, Table};

/// Parameters as a path file gives them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PieSpec {
    /// The queueing delay to hold.
    pub target: Span,
    /// Time between two updates of the probability.
    pub update: Span,
    /// How long a burst is let through after the queue was empty.
    pub max_burst: Span,
    /// Weight of the delay's distance from the target, in 1/s.
    pub alpha: f64,
    /// Weight of the delay's change, in 1/s.
    pub beta: f64,
    /// Whether packets that can be marked are, while the probability is below `mark_below`.
    pub ecn: bool,
    /// See `ecn`.
    pub mark_below: Probability,
}

impl Default for PieSpec {
    /// RFC 8033, sections 4.2, 4.4 and 5.1.
    fn default() -> Self {
        Self {
            target: Span::from_millis(15),
            update: Span::from_millis(15),
            max_burst: Span::from_millis(150),
            alpha: 0.125,
            beta: 1.25,
            ecn: false,
            mark_below: Probability::new(0.1).expect("0.1 is one"),
        }
    }
}

/// The most updates to catch up on after a silence: 0.98^2048 is negligible.
const MOST_UPDATES: u32 = 2048;
/// A queue this short is left alone (RFC 8033, section 4.1: two packets of mean size).
const SHORT_BYTES: u64 = 2 * 1500;

/// The queue.
#[derive(Clone, Debug)]
pub struct Pie<P> {
    fifo: Fifo<P>,
    limits: Limits,
    spec: PieSpec,
    probability: f64,
    accumulated: f64,
    burst_allowance: Span,
    delay: Span,
    delay_before: Span,
    update_at: Time,
    rng: Xoshiro256PlusPlus,
}

impl<P> Pie<P> {
    /// An empty queue.
    pub fn new(spec: PieSpec, limits: Limits, rng: Xoshiro256PlusPlus) -> Self {
        Self {
            fifo: Fifo::default(),
            limits,
            spec,
            probability: 0.0,
            accumulated: 0.0,
            burst_allowance: spec.max_burst,
            delay: Span::ZERO,
            delay_before: Span::ZERO,
            update_at: Time::ZERO + spec.update,
            rng,
        }
    }

    /// Performs the updates that were due since the last packet.
    fn catch_up(&mut self, now: Time) {
        for _ in 0..MOST_UPDATES {
            if now < self.update_at {
                return;
            }
            self.update_at += self.spec.update;
            self.update();
        }
        self.update_at = now + self.spec.update;
    }

    /// RFC 8033, section 4.2.
    fn update(&mut self) {
        let delay = if self.fifo.is_empty() {
            Span::ZERO
        } else {
            self.delay
        };
        let (delay_s, before_s) = (delay.as_secs(), self.delay_before.as_secs());
        let mut step = self.spec.alpha * (delay_s - self.spec.target.as_secs())
            + self.spec.beta * (delay_s - before_s);
        step /= match self.probability {
            p if p < 0.000_001 => 2048.0,
            p if p < 0.000_01 => 512.0,
            p if p < 0.000_1 => 128.0,
            p if p < 0.001 => 32.0,
            p if p < 0.01 => 8.0,
            p if p < 0.1 => 2.0,
            _ => 1.0,
        };
        if self.probability >= 0.1 {
            step = step.min(0.02);
        }
        self.probability += step;
        if delay == Span::ZERO && self.delay_before == Span::ZERO {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.burst_allowance = self.burst_allowance - self.spec.update;
        let calm = |delay: Span| delay < self.spec.target.mul_div(1, 2);
        if self.probability == 0.0 && calm(delay) && calm(self.delay_before) {
            self.burst_allowance = self.spec.max_burst;
        }
        self.delay_before = delay;
    }

    /// RFC 8033, sections 4.1 and 5.4 (de-randomization).
    fn drops_early(&mut self) -> bool {
        if self.burst_allowance > Span::ZERO
            || (self.delay_before < self.spec.target.mul_div(1, 2) && self.probability < 0.2)
            || self.fifo.bytes() <= SHORT_BYTES
        {
            return false;
        }
        if self.probability == 0.0 {
            self.accumulated = 0.0;
        }
        self.accumulated += self.probability;
        let chosen = self.accumulated >= 0.85
            && (self.accumulated >= 8.5 || uniform(&mut self.rng) <= self.probability);
        if chosen {
            self.accumulated = 0.0;
        }
        chosen
    }

    pub(super) fn enqueue(
        &mut self,
        now: Time,
        mut packet: Queued<P>,
        drops: &mut Drops<P>,
    ) -> Result<(), (Queued<P>, DropReason)> {
        self.catch_up(now);
        if !self.fifo.has_room(packet.info.size_bytes, self.limits) {
            return Err((packet, DropReason::Queue));
        }
        if self.drops_early() {
            let may_mark = self.spec.ecn && self.probability < self.spec.mark_below.value();
            if !(may_mark && drops.mark(&mut packet)) {
                return Err((packet, DropReason::Aqm));
            }
        }
        self.fifo.push(packet);
        Ok(())
    }

    pub(super) fn dequeue(&mut self, now: Time, _drops: &mut Drops<P>) -> Option<Queued<P>> {
        self.catch_up(now);
        let packet = self.fifo.pop()?;
        self.delay = now.since(packet.entered);
        Some(packet)
    }

    pub(super) fn len(&self) -> usize {
        self.fifo.len()
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.fifo.bytes()
    }
}

pub(super) const KINDS: &[Kind<PieSpec>] = &[Kind {
    name: "pie",
    keys: &[
        "limit",
        "target",
        "update",
        "max_burst",
        "alpha",
        "beta",
        "ecn",
        "mark_below",
    ],
    limit: Some(AQM_LIMIT),
    read: PieSpec::read,
}];

impl PieSpec {
    fn read(table: Table<'_, '_>) -> Read<Self> {
        let default = Self::default();
        let weight = |key, default| {
            table.or(key, default, |field| {
                match field.number("a number from 0 to 1000")? {
                    weight if (0.0..=1000.0).contains(&weight) => Ok(weight),
                    weight => field.wrong(format_args!("got {weight}, expected 0 to 1000")),
                }
            })
        };
        Ok(Self {
            target: table.or("target", default.target, |field| field.some_time())?,
            update: table.or("update", default.update, |field| field.some_time())?,
            max_burst: table.or("max_burst", default.max_burst, |field| field.quantity(TIME))?,
            alpha: weight("alpha", default.alpha)?,
            beta: weight("beta", default.beta)?,
            ecn: table.or("ecn", default.ecn, |field| field.boolean())?,
            mark_below: table.or("mark_below", default.mark_below, |field| {
                field.probability()
            })?,
        })
    }
}

pub(super) fn to_toml(spec: &PieSpec, limit: QueueLimit) -> String {
    format!(
        "{{ kind = \"pie\", limit = \"{limit}\", target = \"{}\", update = \"{}\", \
         max_burst = \"{}\", alpha = {:?}, beta = {:?}, ecn = {}, mark_below = {:?} }}",
        spec.target,
        spec.update,
        spec.max_burst,
        spec.alpha,
        spec.beta,
        spec.ecn,
        spec.mark_below.value()
    )
}

#[cfg(test)]
mod tests {
    use pathcast_base::seed::generator;

    use super::super::testing::{drops, packet, packets};
    use super::*;

    /// 12,000 packets a second offered to a link of 10,000; the wait of each that is sent, in
    /// seconds, in order, with the queue at the end.
    fn overloaded(ecn: bool) -> (Pie<u64>, Drops<u64>, Vec<f64>) {
        let spec = PieSpec {
            ecn,
            ..PieSpec::default()
        };
        let mut queue = Pie::new(spec, packets(10_000), generator(1, "queue"));
        let (mut drops, mut waits) = (drops(), Vec::new());
        let mut gap = seed_gap();
        let (mut arrival, mut id) = (0.0, 0);
        for tick in 0..1_200_000u64 {
            let now_s = tick as f64 * 1e-4;
            while arrival <= now_s {
                let at = Time::from_nanos((arrival * 1e9) as u64);
                if let Err((packet, reason)) = queue.enqueue(at, packet(at, id, 0, ecn), &mut drops)
                {
                    drops.push(at, packet, reason);
                }
                arrival += gap() / 12_000.0;
                id += 1;
            }
            if let Some(packet) = queue.dequeue(Time::from_nanos(tick * 100_000), &mut drops) {
                waits.push(now_s - packet.entered.as_secs());
            }
        }
        (queue, drops, waits)
    }

    fn seed_gap() -> impl FnMut() -> f64 {
        let mut rng = generator(2, "arrivals");
        move || -libm::log(uniform(&mut rng))
    }

    #[test]
    fn the_delay_converges_to_the_target_and_drops_to_the_overload() {
        let (_, drops, waits) = overloaded(false);
        let settled = &waits[waits.len() / 2..];
        let mean_ms = settled.iter().sum::<f64>() / settled.len() as f64 * 1000.0;
        assert!((mean_ms - 15.0).abs() < 2.0, "{mean_ms}");
        let share = drops.counters.dropped() as f64 / 1.44e6;
        assert!((share - 1.0 / 6.0).abs() < 0.005, "{share}"); // 1 - 10,000 / 12,000
    }

    #[test]
    fn beyond_a_tenth_packets_are_dropped_even_if_they_could_be_marked() {
        let (_, drops, _) = overloaded(true);
        assert!(drops.counters.marked > 0 && drops.counters.dropped() > drops.counters.marked);
    }

    #[test]
    fn a_long_silence_forgets_the_probability() {
        let (mut queue, mut drops, _) = overloaded(false);
        while queue
            .dequeue(Time::from_nanos(121_000_000_000), &mut drops)
            .is_some()
        {}
        queue.catch_up(Time::from_nanos(4_000_000_000_000));
        assert!(queue.probability < 1e-6, "{}", queue.probability);
    }
}
