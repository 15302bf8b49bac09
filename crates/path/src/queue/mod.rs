//! Queues before the link, one file each, with its keys in the path file; `disciplines!` lists them.

mod fifo;
mod kind;
mod limit;

pub use codel::{CoDel, CoDelSpec};
pub use drophead::DropHead;
pub use droptail::{DropTail, VirtualDropTail};
pub use fifo::{Fifo, Limits};
pub use fq_codel::{FqCoDel, FqCoDelSpec};
pub use limit::QueueLimit;
pub use pie::{Pie, PieSpec};
pub use red::{Red, RedSpec};

use pathcast_base::{Bandwidth, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

use self::kind::SIZE;
use crate::packet::{DropReason, Drops, Queued};
use crate::reader::{Field, Read, Table};

/// A queue as a path file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSpec {
    /// What may wait.
    pub limit: QueueLimit,
    /// Which packets are dropped or marked, and when.
    pub discipline: Discipline,
}

impl QueueSpec {
    /// The value of the key `queue`; `default` is the limit where none is given.
    pub(crate) fn read(field: Option<Field<'_, '_>>, default: QueueLimit) -> Read<Self> {
        let (limit, discipline) = match field {
            None => (default, Discipline::DropTail),
            Some(field) if !field.is_table() => (field.quantity(SIZE)?, Discipline::DropTail),
            Some(field) => {
                let (kind, table) = field.kind(&Discipline::kinds())?;
                Discipline::read(kind, table, default)?
            }
        };
        Ok(Self { limit, discipline })
    }

    pub(crate) fn to_toml(&self) -> String {
        self.discipline.to_toml(self.limit)
    }
}

/// Makes of the list of disciplines what goes by it: their modules, [`Discipline`], [`Queue`] and its calls, and
/// the kinds of queues in a path file. A line has the name, the parameters if there are any, the
/// module with its `KINDS` and `to_toml`, the queue, and how it is made.
macro_rules! disciplines {
    (
        new($limits:ident, $rate:ident, $rng:ident);
        $($(#[$doc:meta])* $name:ident $(($spec:ident: $parameters:ty))? in $module:ident: $queue:ty = $new:expr;)*
    ) => {
        $(mod $module;)*

        /// Which packets are dropped or marked, and when.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Discipline {
            $($(#[$doc])* $name $(($parameters))?,)*
        }

        impl Discipline {
            /// The kinds of a path file, each with its keys.
            fn kinds() -> Vec<(&'static str, &'static [&'static str])> {
                let mut kinds = Vec::new();
                $(kinds.extend($module::KINDS.iter().map(|kind| (kind.name, kind.keys)));)*
                kinds
            }

            /// Limit and discipline of a table of this `kind`; `default` is the limit for most.
            fn read(kind: &str, table: Table<'_, '_>, default: QueueLimit) -> Read<(QueueLimit, Self)> {
                $(if let Some(kind) = $module::KINDS.iter().find(|known| known.name == kind) {
                    let limit = kind.limit.unwrap_or(default);
                    let limit = table.or("limit", limit, |field| field.quantity(SIZE))?;
                    let _parameters = (kind.read)(table)?;
                    return Ok((limit, Self::$name $(({ let $spec = _parameters; $spec }))?));
                })*
                unreachable!("the kind was checked")
            }

            fn to_toml(&self, limit: QueueLimit) -> String {
                match self {
                    $(Self::$name $(($spec))? => $module::to_toml($($spec,)? limit),)*
                }
            }
        }

        /// A queue of packets that carry a `P`.
        #[derive(Clone, Debug)]
        pub enum Queue<P> {
            $(#[doc = concat!("See [`Discipline::", stringify!($name), "`].")] $name($queue),)*
        }

        impl<P> Queue<P> {
            /// An empty queue before a link of mean rate `rate`, drawing from `rng` if it draws at all.
            pub fn new(
                discipline: &Discipline,
                $limits: Limits,
                $rate: Option<Bandwidth>,
                $rng: Xoshiro256PlusPlus,
            ) -> Self {
                match discipline {
                    $(Discipline::$name $(($spec))? => Self::$name($new),)*
                }
            }

            /// Takes in a packet at `now`. Others that must make room for it go to `drops`.
            ///
            /// # Errors
            /// Returns the packet with the reason if it is dropped on arrival.
            #[inline]
            pub fn enqueue(
                &mut self,
                now: Time,
                packet: Queued<P>,
                drops: &mut Drops<P>,
            ) -> Result<(), (Queued<P>, DropReason)> {
                match self {
                    $(Self::$name(queue) => queue.enqueue(now, packet, drops),)*
                }
            }

            /// The packet to send at `now`. Packets that are dropped instead go to `drops`, so there may be
            /// no packet to send although some waited.
            #[inline]
            pub fn dequeue(&mut self, now: Time, drops: &mut Drops<P>) -> Option<Queued<P>> {
                match self {
                    $(Self::$name(queue) => queue.dequeue(now, drops),)*
                }
            }

            /// Packets that wait.
            #[inline]
            pub fn len(&self) -> usize {
                match self {
                    $(Self::$name(queue) => queue.len(),)*
                }
            }

            /// Whether none waits.
            #[inline]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Bytes that wait.
            pub fn bytes(&self) -> u64 {
                match self {
                    $(Self::$name(queue) => queue.bytes(),)*
                }
            }
        }
    };
}

disciplines! {
    new(limits, rate, rng);
    /// A packet that finds the queue full is dropped.
    DropTail in droptail: DropTail<P> = DropTail::new(limits);
    /// A packet that finds the queue full pushes out those that wait longest.
    DropHead in drophead: DropHead<P> = DropHead::new(limits);
    /// Random early detection.
    Red(spec: RedSpec) in red: Box<Red<P>> = Box::new(Red::new(*spec, limits, rate, rng));
    /// Controlled delay.
    CoDel(spec: CoDelSpec) in codel: CoDel<P> = CoDel::new(*spec, limits);
    /// Proportional integral controller enhanced.
    Pie(spec: PieSpec) in pie: Box<Pie<P>> = Box::new(Pie::new(*spec, limits, rng));
    /// Fair queueing with `CoDel` in each queue.
    FqCoDel(spec: FqCoDelSpec) in fq_codel: Box<FqCoDel<P>> = Box::new(FqCoDel::new(*spec, limits, rng));
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
