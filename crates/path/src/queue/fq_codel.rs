//! Fair queueing with `CoDel` in each queue (RFC 8290).

use std::collections::VecDeque;

use pathcast_base::Time;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::RngCore;

use super::codel::{CoDelSpec, Control};
use super::fifo::{Fifo, Limits};
use super::kind::Kind;
use crate::packet::{DropReason, Drops, Queued};
use crate::queue::QueueLimit;
use crate::reader::{Read, Table};

/// Parameters as a path file gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCoDelSpec {
    /// Of each queue.
    pub codel: CoDelSpec,
    /// How many queues flows are hashed into.
    pub flows: u32,
    /// Bytes that a queue may send in its turn.
    pub quantum_bytes: u32,
}

impl Default for FqCoDelSpec {
    /// RFC 8290, sections 5.2.4 and 5.2.5; marking is on by default (section 5.2.6).
    fn default() -> Self {
        Self {
            codel: CoDelSpec {
                ecn: true,
                ..CoDelSpec::default()
            },
            flows: 1024,
            quantum_bytes: 1514,
        }
    }
}

/// The most packets dropped together from the longest queue (RFC 8290, section 4.1.3).
const BATCH: usize = 64;

#[derive(Clone, Debug)]
struct FlowQueue<P> {
    fifo: Fifo<P>,
    control: Control,
    /// Bytes that it may still send in this turn.
    credit_bytes: i64,
    /// In one of the two lists.
    listed: bool,
}

/// The queue.
#[derive(Clone, Debug)]
pub struct FqCoDel<P> {
    queues: Vec<FlowQueue<P>>,
    /// Queues that have just become active, which go first, and the others, in their order.
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    limits: Limits,
    quantum_bytes: i64,
    /// Mixed into the hash, so that no two runs collide alike.
    perturbation: u64,
    packets: usize,
    bytes: u64,
}

impl<P> FqCoDel<P> {
    /// Empty queues.
    pub fn new(spec: FqCoDelSpec, limits: Limits, mut rng: Xoshiro256PlusPlus) -> Self {
        let queue = || FlowQueue {
            fifo: Fifo::default(),
            control: Control::new(spec.codel),
            credit_bytes: 0,
            listed: false,
        };
        Self {
            queues: (0..spec.flows.max(1)).map(|_| queue()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            limits,
            quantum_bytes: i64::from(spec.quantum_bytes.max(1)),
            perturbation: rng.next_u64(),
            packets: 0,
            bytes: 0,
        }
    }

    fn queue_of(&self, flow: u64) -> u32 {
        // SplitMix64's finalizer
        let mut hash = (flow ^ self.perturbation).wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((hash ^ (hash >> 31)) % self.queues.len() as u64) as u32
    }

    /// Drops half of the longest queue, from its head, at most [`BATCH`] packets.
    fn drop_from_longest(&mut self, now: Time, drops: &mut Drops<P>) {
        let longest = self
            .queues
            .iter_mut()
            .max_by_key(|queue| queue.fifo.bytes());
        let fifo = &mut longest.expect("there is a queue").fifo;
        for _ in 0..fifo.len().div_ceil(2).min(BATCH) {
            if let Some(packet) = fifo.pop() {
                self.packets -= 1;
                self.bytes -= u64::from(packet.info.size_bytes);
                drops.push(now, packet, DropReason::Queue);
            }
        }
    }

    pub(super) fn enqueue(
        &mut self,
        now: Time,
        packet: Queued<P>,
        drops: &mut Drops<P>,
    ) -> Result<(), (Queued<P>, DropReason)> {
        let index = self.queue_of(packet.info.flow);
        let queue = &mut self.queues[index as usize];
        self.packets += 1;
        self.bytes += u64::from(packet.info.size_bytes);
        queue.fifo.push(packet);
        if !queue.listed {
            queue.listed = true;
            queue.credit_bytes = self.quantum_bytes;
            self.new.push_back(index);
        }
        while self.bytes > self.limits.bytes || self.packets as u64 > self.limits.packets {
            self.drop_from_longest(now, drops);
        }
        Ok(())
    }

    pub(super) fn dequeue(&mut self, now: Time, drops: &mut Drops<P>) -> Option<Queued<P>> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = *list.front()?;
            let queue = &mut self.queues[index as usize];
            if queue.credit_bytes <= 0 {
                queue.credit_bytes += self.quantum_bytes;
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let (packets, bytes) = (queue.fifo.len(), queue.fifo.bytes());
            // as in Linux, CoDel looks at what waits in all queues
            let beside_bytes = self.bytes - bytes;
            let packet = queue
                .control
                .dequeue(now, &mut queue.fifo, beside_bytes, drops);
            self.packets -= packets - queue.fifo.len();
            self.bytes -= bytes - queue.fifo.bytes();
            if let Some(packet) = packet {
                queue.credit_bytes -= i64::from(packet.info.size_bytes);
                return Some(packet);
            }
            list.pop_front();
            // a new queue that ran empty goes through the old ones once, lest a flow stay new by
            // sending one packet at a time (RFC 8290, section 4.2)
            if is_new && !self.old.is_empty() {
                self.old.push_back(index);
            } else {
                queue.listed = false;
            }
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.packets
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

pub(super) const KINDS: &[Kind<FqCoDelSpec>] = &[Kind {
    name: "fq-codel",
    keys: &["limit", "target", "interval", "ecn", "flows", "quantum"],
    limit: Some(QueueLimit::Packets(10_240)), // RFC 8290, section 5.2.3
    read: FqCoDelSpec::read,
}];

impl FqCoDelSpec {
    fn read(table: Table<'_, '_>) -> Read<Self> {
        let default = Self::default();
        Ok(Self {
            codel: CoDelSpec::read(table, default.codel)?,
            flows: table.or("flows", default.flows, |field| {
                Ok(field.whole(1, 65_536)? as u32)
            })?,
            quantum_bytes: table.or("quantum", default.quantum_bytes, |field| {
                match field.quantity("a size such as \"1514 B\"")? {
                    QueueLimit::Bytes(bytes @ 1..=1_000_000) => Ok(bytes as u32),
                    _ => field.wrong("expected 1 B to 1 MB"),
                }
            })?,
        })
    }
}

pub(super) fn to_toml(spec: &FqCoDelSpec, limit: QueueLimit) -> String {
    format!(
        "{{ kind = \"fq-codel\", limit = \"{limit}\", {}, flows = {}, quantum = \"{} B\" }}",
        spec.codel.keys_to_toml(),
        spec.flows,
        spec.quantum_bytes
    )
}

#[cfg(test)]
mod tests {
    use pathcast_base::seed::generator;

    use super::super::testing::{at_ms, drops, packet, packets};
    use super::*;

    fn fq_codel(limit: u64) -> FqCoDel<u64> {
        FqCoDel::new(
            FqCoDelSpec::default(),
            packets(limit),
            generator(1, "queue"),
        )
    }

    #[test]
    fn a_sparse_flow_does_not_wait_behind_a_full_one() {
        let (mut queue, mut drops) = (fq_codel(10_240), drops());
        let mut sparse_waits = Vec::new();
        for tick in 0..2000u64 {
            let now = at_ms(tick);
            for id in 0..3 {
                let _ = queue.enqueue(now, packet(now, id, 1, false), &mut drops);
            }
            if tick % 20 == 0 {
                let _ = queue.enqueue(now, packet(now, tick, 2, false), &mut drops);
            }
            let sent = queue.dequeue(now, &mut drops).expect("it is never empty");
            if sent.info.flow == 2 {
                sparse_waits.push(now.since(sent.entered).as_nanos() / 1_000_000);
            }
        }
        assert_eq!(sparse_waits.len(), 100);
        assert!(
            sparse_waits.iter().all(|wait_ms| *wait_ms <= 2),
            "{sparse_waits:?}"
        );
    }

    #[test]
    fn greedy_flows_share_equally_by_bytes() {
        let (mut queue, mut drops) = (fq_codel(10_240), drops());
        let mut sent_bytes = [0u64; 2];
        for tick in 0..3000u64 {
            let now = at_ms(tick);
            // one flow of large packets, one of many small ones
            let _ = queue.enqueue(now, packet(now, 0, 0, false), &mut drops);
            for _ in 0..6 {
                let mut small = packet(now, 0, 1, false);
                small.info.size_bytes = 300;
                let _ = queue.enqueue(now, small, &mut drops);
            }
            let mut left: i64 = 1500;
            while left > 0 {
                let Some(sent) = queue.dequeue(now, &mut drops) else {
                    break;
                };
                left -= i64::from(sent.info.size_bytes);
                sent_bytes[sent.info.flow as usize] += u64::from(sent.info.size_bytes);
            }
        }
        let ratio = sent_bytes[0] as f64 / sent_bytes[1] as f64;
        assert!((ratio - 1.0).abs() < 0.03, "{sent_bytes:?}");
    }

    #[test]
    fn a_full_queue_drops_from_the_head_of_the_longest_flow() {
        let (mut queue, mut drops) = (fq_codel(100), drops());
        for id in 0..99 {
            queue
                .enqueue(Time::ZERO, packet(Time::ZERO, id, 1, false), &mut drops)
                .unwrap();
        }
        for id in 0..2 {
            queue
                .enqueue(
                    Time::ZERO,
                    packet(Time::ZERO, 1000 + id, 2, false),
                    &mut drops,
                )
                .unwrap();
        }
        let dropped: Vec<u64> = std::iter::from_fn(|| drops.take())
            .map(|d| d.packet)
            .collect();
        assert_eq!(dropped, (0..50).collect::<Vec<u64>>());
        assert_eq!(queue.len(), 51);
    }
}
