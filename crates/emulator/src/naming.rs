//! Which flow a packet is of, and its place in it.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;

use pathcast_netns::PayloadCount;
use pathcast_path::End;
use pathcast_trace::{Direction, PacketEvent, PacketRecord};

use crate::packet_log::{Conversation, Entry, Event};

/// The flows of a run, for those who see packets only.
pub(crate) enum Flows {
    /// By group and the ports at the near and the far end.
    ByPorts(BTreeMap<(u16, [u16; 2]), Named>),
    /// Numbered as they come; what goes to the far end is data.
    AsTheyCome,
}

/// What the log must know about a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) flow: u32,
    /// Where its data goes.
    pub(crate) data_to: End,
    /// Whether its packets are QUIC's, known by their seals.
    pub(crate) sealed: bool,
}

/// Finds the flow of each packet, and its place in it.
pub(crate) struct Naming {
    flows: Flows,
    /// The flows that have come so far, if that is how they are numbered.
    seen: BTreeMap<Conversation, u32>,
    /// Of each flow and direction.
    sequences: BTreeMap<(u32, u8), PayloadCount>,
    /// Packets of QUIC so far, and the numbers of those in transit by their seals.
    sealed: BTreeMap<(u32, u8), (u64, HashMap<u64, u64>)>,
}

impl Naming {
    pub(crate) const fn new(flows: Flows) -> Self {
        Self {
            flows,
            seen: BTreeMap::new(),
            sequences: BTreeMap::new(),
            sealed: BTreeMap::new(),
        }
    }

    /// The flows that were numbered as they came, as JSON: near address and port, far address and port, and
    /// the protocol's number (6: TCP, 17: UDP), in the order of their numbers.
    pub(crate) fn conversations(&self) -> String {
        let mut seen: Vec<_> = self.seen.iter().collect();
        seen.sort_by_key(|(_, number)| **number);
        let one = |((addresses, near, far, protocol), _): &(&Conversation, &u32)| {
            let here = Ipv4Addr::from_bits((addresses >> 32) as u32);
            let there = Ipv4Addr::from_bits(*addresses as u32);
            format!("[\"{here}\",{near},\"{there}\",{far},{protocol}]")
        };
        format!("[{}]", seen.iter().map(one).collect::<Vec<_>>().join(","))
    }

    pub(crate) fn record(&mut self, entry: &Entry, began_ns: u64) -> Option<PacketRecord> {
        let (flow, data_to) = match (&self.flows, self.named(entry)) {
            (Flows::ByPorts(_), named) => named.map(|named| (named.flow, named.data_to))?,
            (Flows::AsTheyCome, _) => {
                let next = self.seen.len() as u32;
                let flow = *self.seen.entry(entry.conversation).or_insert(next);
                (flow, End::Far)
            }
        };
        let is_sealed = self.is_sealed(entry);
        let direction = if entry.to == data_to {
            Direction::Data
        } else {
            Direction::Back
        };
        let time_s = (entry.at_ns as f64 - began_ns as f64) * 1e-9;
        let delay_ns = entry.at_ns - entry.entered_ns.min(entry.at_ns);
        let (event, one_way_delay_s) = match entry.event {
            Event::Sent => (PacketEvent::Sent, None),
            Event::Delivered { .. } => (PacketEvent::Delivered, Some(delay_ns as f64 * 1e-9)),
            Event::DroppedByQueue => (PacketEvent::DroppedByQueue, None),
            Event::DroppedByLoss => (PacketEvent::DroppedByLoss, None),
        };
        Some(PacketRecord {
            time_s,
            flow,
            seq: match is_sealed {
                true => self.number(flow, direction, entry)?,
                false => self.unwrap(flow, direction, entry.sequence as u32),
            },
            size_bytes: entry.size_bytes,
            event,
            one_way_delay_s,
            direction,
        })
    }

    fn named(&self, entry: &Entry) -> Option<Named> {
        let (group, near, far, _) = entry.conversation;
        match &self.flows {
            Flows::ByPorts(by_ports) => by_ports.get(&(group as u16, [near, far])).copied(),
            Flows::AsTheyCome => None,
        }
    }

    pub(crate) fn is_sealed(&self, entry: &Entry) -> bool {
        self.named(entry).is_some_and(|named| named.sealed)
    }

    /// The number of a packet of QUIC, none of which is sent twice.
    fn number(&mut self, flow: u32, direction: Direction, entry: &Entry) -> Option<u64> {
        let key = (flow, direction as u8);
        let (count, under_way) = self.sealed.entry(key).or_default();
        if matches!(entry.event, Event::Sent) {
            under_way.insert(entry.sequence, *count);
            *count += 1;
            return Some(*count - 1);
        }
        under_way.remove(&entry.sequence)
    }

    fn unwrap(&mut self, flow: u32, direction: Direction, sequence: u32) -> u64 {
        self.sequences
            .entry((flow, direction as u8))
            .or_insert_with(|| PayloadCount::beginning(sequence))
            .advance(sequence)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn entry(seal: u64, at_ns: u64, entered_ns: u64, event: Event) -> Entry {
        Entry {
            at_ns,
            entered_ns,
            conversation: (0, 9, 7, 0),
            to: End::Far,
            sequence: seal,
            payload_bytes: 1472,
            size_bytes: 1500,
            event,
        }
    }

    pub(crate) fn naming_of_one() -> Naming {
        let named = Named {
            flow: 3,
            data_to: End::Far,
            sealed: true,
        };
        Naming::new(Flows::ByPorts(BTreeMap::from([((0, [9, 7]), named)])))
    }

    #[test]
    fn packets_of_quic_are_numbered_as_they_enter() {
        let mut naming = naming_of_one();
        let mut number = |seal, event| {
            let record = naming.record(&entry(seal, 20, 10, event), 5);
            record.map(|record| (record.flow, record.seq))
        };
        assert_eq!(number(77, Event::Sent), Some((3, 0)));
        assert_eq!(number(55, Event::Sent), Some((3, 1)));
        assert_eq!(number(55, Event::Delivered { marked: false }), Some((3, 1)));
        assert_eq!(number(77, Event::DroppedByQueue), Some((3, 0)));
        assert_eq!(number(66, Event::Sent), Some((3, 2)));
        // what never entered
        assert_eq!(number(44, Event::DroppedByLoss), None);
    }

    #[test]
    fn conversations_are_listed_in_the_order_in_which_they_came() {
        let mut naming = Naming::new(Flows::AsTheyCome);
        for (here, near, protocol) in [(0xC612_0002_u64, 900, 17), (0xC612_0001, 800, 6)] {
            let addresses = here << 32 | 0xC612_0009;
            let conversation = (addresses, near, 5000, protocol);
            let first = entry(0, 20, 10, Event::Sent);
            naming.record(
                &Entry {
                    conversation,
                    ..first
                },
                5,
            );
        }
        assert_eq!(
            naming.conversations(),
            r#"[["198.18.0.2",900,"198.18.0.9",5000,17],["198.18.0.1",800,"198.18.0.9",5000,6]]"#
        );
    }

    #[test]
    fn sequence_numbers_are_counted_from_the_first_byte_and_never_wrap() {
        let flows = Flows::ByPorts(BTreeMap::new());
        let mut naming = Naming::new(flows);
        let isn = u32::MAX - 1000;
        let mut seq = |offset: u32| naming.unwrap(0, Direction::Data, isn.wrapping_add(offset));
        assert_eq!(seq(0), 0); // the SYN
        assert_eq!(seq(1), 0);
        assert_eq!(seq(1449), 1448);
        assert_eq!(seq(2897), 2896);
        assert_eq!(seq(1449), 1448); // again
        for _ in 0..5 {
            for quarter in 1..4 {
                seq(quarter << 30);
            }
            seq(0);
        }
        assert_eq!(seq(1), 5 << 32);
    }
}
