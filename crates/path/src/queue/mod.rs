//! Queues before the link, one file each.

mod codel;
mod drophead;
mod droptail;
mod fifo;
mod fq_codel;
mod pie;
mod red;

pub use codel::{CoDel, CoDelSpec};
pub use drophead::DropHead;
pub use droptail::{DropTail, VirtualDropTail};
pub use fifo::{Fifo, Limits};
pub use fq_codel::{FqCoDel, FqCoDelSpec};
pub use pie::{Pie, PieSpec};
pub use red::{Red, RedSpec};

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::packet::{DropReason, Drops, Queued};
use crate::units::{Bandwidth, QueueLimit, Time};

/// A queue as a path file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSpec {
    /// What may wait.
    pub limit: QueueLimit,
    /// Which packets are dropped or marked, and when.
    pub discipline: Discipline,
}

/// Which packets are dropped or marked, and when.
#[derive(Clone, Debug, PartialEq)]
pub enum Discipline {
    /// A packet that finds the queue full is dropped.
    DropTail,
    /// A packet that finds the queue full pushes out those that wait longest.
    DropHead,
    /// Random early detection.
    Red(RedSpec),
    /// Controlled delay.
    CoDel(CoDelSpec),
    /// Proportional integral controller enhanced.
    Pie(PieSpec),
    /// Fair queueing with `CoDel` in each queue.
    FqCoDel(FqCoDelSpec),
}

/// A queue of packets that carry a `P`.
#[derive(Clone, Debug)]
pub enum Queue<P> {
    /// See [`Discipline::DropTail`].
    DropTail(DropTail<P>),
    /// See [`Discipline::DropHead`].
    DropHead(DropHead<P>),
    /// See [`Discipline::Red`].
    Red(Box<Red<P>>),
    /// See [`Discipline::CoDel`].
    CoDel(CoDel<P>),
    /// See [`Discipline::Pie`].
    Pie(Box<Pie<P>>),
    /// See [`Discipline::FqCoDel`].
    FqCoDel(Box<FqCoDel<P>>),
}

/// The same call to whichever queue it is.
macro_rules! each {
    ($self:expr, $queue:ident => $call:expr) => {
        match $self {
            Queue::DropTail($queue) => $call,
            Queue::DropHead($queue) => $call,
            Queue::Red($queue) => $call,
            Queue::CoDel($queue) => $call,
            Queue::Pie($queue) => $call,
            Queue::FqCoDel($queue) => $call,
        }
    };
}

impl<P> Queue<P> {
    /// An empty queue before a link of mean rate `rate`, drawing from `rng` if it draws at all.
    pub fn new(
        discipline: &Discipline,
        limits: Limits,
        rate: Option<Bandwidth>,
        rng: Xoshiro256PlusPlus,
    ) -> Self {
        match discipline {
            Discipline::DropTail => Self::DropTail(DropTail::new(limits)),
            Discipline::DropHead => Self::DropHead(DropHead::new(limits)),
            Discipline::Red(spec) => Self::Red(Box::new(Red::new(*spec, limits, rate, rng))),
            Discipline::CoDel(spec) => Self::CoDel(CoDel::new(*spec, limits)),
            Discipline::Pie(spec) => Self::Pie(Box::new(Pie::new(*spec, limits, rng))),
            Discipline::FqCoDel(spec) => Self::FqCoDel(Box::new(FqCoDel::new(*spec, limits, rng))),
        }
    }

    /// Takes in a packet at `now`. Others that must make room for it go to `drops`.
    ///
    /// # Errors
    /// Hands the packet back with the reason if it is dropped at once.
    #[inline]
    pub fn enqueue(
        &mut self,
        now: Time,
        packet: Queued<P>,
        drops: &mut Drops<P>,
    ) -> Result<(), (Queued<P>, DropReason)> {
        each!(self, queue => queue.enqueue(now, packet, drops))
    }

    /// The packet to send at `now`; those that are dropped in its stead go to `drops`, so that there
    /// may be none even if some waited.
    #[inline]
    pub fn dequeue(&mut self, now: Time, drops: &mut Drops<P>) -> Option<Queued<P>> {
        each!(self, queue => queue.dequeue(now, drops))
    }

    /// Packets that wait.
    #[inline]
    pub fn len(&self) -> usize {
        each!(self, queue => queue.len())
    }

    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> u64 {
        each!(self, queue => queue.bytes())
    }
}

/// What the tests of several queues share.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::packet::PacketInfo;

    pub(crate) const fn at_ms(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    pub(crate) const fn packet(now: Time, id: u64, flow: u64, ecn_capable: bool) -> Queued<u64> {
        let info = PacketInfo {
            size_bytes: 1500,
            flow,
            ecn_capable,
        };
        Queued::new(now, info, id)
    }

    /// Drops that are kept.
    pub(crate) fn drops() -> Drops<u64> {
        let mut drops = Drops::default();
        drops.keep();
        drops
    }

    /// Limits in packets only.
    pub(crate) const fn packets(packets: u64) -> Limits {
        Limits {
            bytes: u64::MAX,
            packets,
        }
    }
}
