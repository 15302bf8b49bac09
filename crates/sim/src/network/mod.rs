//! What lies between the hosts of a simulation.

mod one_path;
mod routed;

use pathcast_path::{Counters, DropReason, Dropped, Time};

use crate::wire::{Ack, Data};

pub use one_path::OnePath;
pub use routed::Routed;

/// Carries packets between hosts.
pub trait Network {
    /// Whether it carries data in both directions of a connection: requests and responses, or QUIC. What only these
    /// need is not compiled for a network that does not.
    const BOTH_WAYS: bool;

    /// When to call `take_data` next; [`Time::MAX`] if no data is in transit.
    fn next_data(&self) -> Time;

    /// When to call `take_ack` next; [`Time::MAX`] if no acknowledgment is in transit.
    fn next_ack(&self) -> Time;

    /// Sends a data packet.
    ///
    /// # Errors
    /// Hands the packet back if it is known already that it is dropped.
    fn send(&mut self, now: Time, data: Data) -> Result<(), (Data, DropReason)>;

    /// Sends an acknowledgment; whether it was taken in. One that is dropped is made good by the next.
    fn acknowledge(&mut self, now: Time, ack: Ack) -> bool;

    /// Does one thing that is due at `now`: a data packet that reaches its receiver in it, if one does.
    fn take_data(&mut self, now: Time) -> Option<Data>;

    /// An acknowledgment that reaches its sender by `now`.
    fn take_ack(&mut self, now: Time) -> Option<Ack>;

    /// The flow whose data packet arrives after the next `ahead` packets, if that is known.
    fn coming_data(&self, _ahead: usize) -> Option<u32> {
        None
    }

    /// Likewise: the flow of an acknowledgment.
    fn coming_ack(&self, _ahead: usize) -> Option<u32> {
        None
    }

    /// From now on keeps data packets that are dropped in transit, for `take_dropped`.
    fn keep_drops(&mut self);

    /// A data packet that was dropped after it was taken in, and not yet taken here.
    fn take_dropped(&mut self) -> Option<Dropped<Data>>;

    /// From now on keeps datagrams of QUIC that are dropped in the reverse direction, for `take_dropped_ack`.
    fn keep_dropped_acks(&mut self) {}

    /// A datagram of QUIC that was accepted and then dropped in the reverse direction, and not yet taken here.
    fn take_dropped_ack(&mut self) -> Option<Ack> {
        None
    }

    /// Calls `each` with the bytes that wait at `now` for each direction of each link: forward, reverse,
    /// forward, ...
    fn look_at_queues(&mut self, now: Time, each: &mut dyn FnMut(u64));

    /// What became of data packets.
    fn counters(&self) -> Counters;

    /// Data packets in transit.
    fn in_flight(&self) -> u64 {
        let counters = self.counters();
        counters.enqueued - counters.delivered - counters.dropped()
    }
}
