//! Packets that are due together, joined into super-packets for the device of their destination.

use pathcast_netns::Join;
use pathcast_path::Time;

use crate::packet::Packet;

/// The most flows whose packets wait to be joined; the kernel's receive offload has as many for each bucket.
const MOST_OPEN: usize = 8;

/// A packet that has crossed the links.
pub(crate) struct Leaving {
    pub(crate) packet: Packet,
    /// When it was due.
    pub(crate) due: Time,
    pub(crate) marked: bool,
}

/// Packets that are written together, in their order.
pub(crate) struct Batch {
    /// Their headers as one packet; without it there is but one.
    pub(crate) join: Option<Join>,
    pub(crate) packets: Vec<Leaving>,
}

/// Joins packets of one flow as long as they are due together.
pub(crate) struct Joiner {
    /// At most [`MOST_OPEN`], the oldest first.
    open: Vec<Batch>,
    /// Room of batches that were written.
    spare: Vec<Vec<Leaving>>,
}

impl Joiner {
    pub(crate) fn new() -> Self {
        Self {
            open: Vec::with_capacity(MOST_OPEN),
            spare: Vec::with_capacity(MOST_OPEN),
        }
    }

    /// Takes a packet in. Gives what is to be written now, in this order, so that packets of a flow keep
    /// theirs.
    #[inline]
    pub(crate) fn add(&mut self, leaving: Leaving) -> [Option<Batch>; 2] {
        let packet = &leaving.packet;
        let of_flow = |batch: &Batch| {
            let first = &batch.packets[0].packet;
            first.flow == packet.flow && first.to == packet.to
        };
        let mut before = None;
        if let Some(at) = self.open.iter().position(of_flow) {
            let batch = &mut self.open[at];
            let join = batch.join.as_mut().expect("open batches can be joined to");
            if packet.unsummed && join.add(packet.bytes()) {
                let closed = join.is_closed();
                batch.packets.push(leaving);
                return [closed.then(|| self.open.remove(at)), None];
            }
            before = Some(self.open.remove(at));
        }
        let unsummed = packet.unsummed.then(|| packet.bytes());
        let join = unsummed.and_then(Join::begin);
        let mut packets = self.spare.pop().unwrap_or_default();
        packets.push(leaving);
        let batch = Batch { join, packets };
        if batch.join.is_none() {
            return [before, Some(batch)];
        }
        if self.open.len() == MOST_OPEN {
            before = Some(self.open.remove(0)); // of another flow, for this one's has just made room
        }
        self.open.push(batch);
        [before, None]
    }

    /// The oldest batch that waits for more.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Batch> {
        (!self.open.is_empty()).then(|| self.open.remove(0))
    }

    /// Keeps the room of a batch that was written.
    #[inline]
    pub(crate) fn give_back(&mut self, packets: Vec<Leaving>) {
        debug_assert!(packets.is_empty());
        self.spare.push(packets);
    }
}

#[cfg(test)]
mod tests {
    use pathcast_path::End;

    use super::*;
    use crate::packet::{Kind, Pool};

    const PAYLOAD: u32 = 1000;

    /// Full packet number `number` of `flow`, with ports of its own.
    fn leaving(pool: &mut Pool, flow: u8, number: u32, unsummed: bool) -> Leaving {
        let mut buffer = pool.take();
        let size = 40 + PAYLOAD as usize;
        buffer[..40].fill(0);
        (buffer[0], buffer[9], buffer[21]) = (0x45, 6, flow);
        buffer[2..4].copy_from_slice(&(size as u16).to_be_bytes());
        buffer[4..6].copy_from_slice(&(number as u16).to_be_bytes());
        buffer[24..28].copy_from_slice(&(PAYLOAD * number).to_be_bytes());
        (buffer[32], buffer[33]) = (5 << 4, 0x10);
        Leaving {
            packet: Packet {
                buffer,
                size_bytes: size as u32,
                to: End::Far,
                kind: Kind::Data,
                entered: Time::ZERO,
                flow: flow.into(),
                unsummed,
            },
            due: Time::from_nanos(number.into()),
            marked: false,
        }
    }

    fn numbers(batch: &Batch) -> Vec<u64> {
        let due = batch.packets.iter().map(|leaving| leaving.due.as_nanos());
        due.collect()
    }

    fn add(joiner: &mut Joiner, leaving: Leaving) -> Vec<Vec<u64>> {
        let batches = joiner.add(leaving);
        batches.iter().flatten().map(numbers).collect()
    }

    #[test]
    fn packets_of_a_flow_are_joined_between_those_of_others_and_keep_their_order() {
        let (mut joiner, mut pool) = (Joiner::new(), Pool::new(1));
        for number in 0..3 {
            for flow in [1, 2] {
                assert!(add(&mut joiner, leaving(&mut pool, flow, number, true)).is_empty());
            }
        }
        // a gap; then one that cannot be joined
        let after_gap = leaving(&mut pool, 1, 9, true);
        assert_eq!(add(&mut joiner, after_gap), [[0, 1, 2]]);
        let summed = leaving(&mut pool, 1, 10, false);
        assert_eq!(add(&mut joiner, summed), [[9], [10]]);
        assert_eq!(numbers(&joiner.take().unwrap()), [0, 1, 2]);
        assert!(joiner.take().is_none());
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let (mut joiner, mut pool) = (Joiner::new(), Pool::new(1));
        for flow in 0..MOST_OPEN as u8 {
            assert!(add(&mut joiner, leaving(&mut pool, flow, u32::from(flow), true)).is_empty());
        }
        let one_more = leaving(&mut pool, 100, 50, true);
        assert_eq!(add(&mut joiner, one_more), [[0]]);
        // of a flow that waits, so that another need not go
        let next = leaving(&mut pool, 100, 60, true);
        assert_eq!(add(&mut joiner, next), [[50]]);
        let written: Vec<Vec<u64>> = (0..200)
            .flat_map(|number| add(&mut joiner, leaving(&mut pool, 100, 61 + number, true)))
            .collect();
        assert!(written.len() >= 4 && written.iter().all(|batch| batch.len() <= 48));
        assert!(written.concat().windows(2).all(|pair| pair[0] < pair[1]));
    }
}
