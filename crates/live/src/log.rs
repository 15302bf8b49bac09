//! What each host records about every packet, and the two logs merged.
//!
//! A packet is identified by the number of the datagram that carried it. So even two equal packets are
//! distinct, such as a segment sent twice (Pantheon's UID, section 3.1.2).

use std::collections::BTreeMap;

use pathcast_netns::{PayloadCount, Protocol, read_headers};
use pathcast_trace::{DelayHistogram, Direction, PacketEvent, PacketRecord};

use crate::plan::{FIRST_FLOW_PORT, FIRST_PROGRAM_PORT, FLOW_PORT, MOST_PROGRAM_FLOWS};
use crate::varint::{put, put_signed, take, take_signed};

/// A packet that left this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) at_ns: u64,
    pub(crate) size_bytes: u32,
    pub(crate) flow: u32,
    /// Data of its flow, and not what goes against it.
    pub(crate) with_data: bool,
    /// TCP's sequence number.
    pub(crate) sequence: u32,
    pub(crate) payload_bytes: u32,
}

/// A packet that came to this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) number: u64,
    pub(crate) at_ns: u64,
}

/// What one host notes of the flows' packets: differences from one to the next, some ten bytes a
/// packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    sent: Vec<u8>,
    sent_rows: usize,
    last_sent: Sent,
    received: Vec<u8>,
    received_rows: usize,
    last_received: Received,
    /// Packets that were not recorded because the log was full.
    pub(crate) missed: u64,
}

/// What one host noted, row by row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) sent: Vec<Sent>,
    pub(crate) received: Vec<Received>,
    pub(crate) missed: u64,
}

/// Most bytes noted of the packets of one direction: some six million packets that were sent.
pub(crate) const MOST_BYTES: usize = 64 << 20;
/// Most packets noted of one direction. One that was sent takes eight bytes or more, except where it was made up.
pub(crate) const MOST_ROWS: usize = MOST_BYTES / 8;

/// The program's flow whose receiver has a port.
fn program_flow(port: u16) -> Option<u16> {
    let flow = port.checked_sub(FIRST_PROGRAM_PORT);
    flow.filter(|&flow| flow < MOST_PROGRAM_FLOWS)
}

fn step(now: u64, then: u64) -> i64 {
    now.wrapping_sub(then) as i64
}

impl Log {
    /// Records a packet that leaves, if it belongs to a flow.
    #[inline]
    pub(crate) fn note_sent(&mut self, number: u64, at_ns: u64, packet: &[u8]) {
        let Some(headers) = read_headers(packet) else {
            return;
        };
        let (from, to) = headers.ports;
        // whoever sends the data connects
        let (flow, with_data) = match (headers.protocol, from, to) {
            (Protocol::Tcp, _, FLOW_PORT) => (from.checked_sub(FIRST_FLOW_PORT), true),
            (Protocol::Tcp, FLOW_PORT, _) => (to.checked_sub(FIRST_FLOW_PORT), false),
            (Protocol::Other, ..) => (None, false),
            _ => match program_flow(to) {
                None => (program_flow(from), false),
                flow => (flow, true),
            },
        };
        let Some(flow) = flow else { return };
        self.push_sent(Sent {
            number,
            at_ns,
            size_bytes: packet.len() as u32,
            flow: flow.into(),
            with_data,
            sequence: headers.sequence,
            payload_bytes: headers.payload_bytes,
        });
    }

    fn push_sent(&mut self, row: Sent) {
        if self.sent.len() >= MOST_BYTES || self.sent_rows >= MOST_ROWS {
            self.missed += 1;
            return;
        }
        self.sent_rows += 1;
        let (bytes, last) = (&mut self.sent, &self.last_sent);
        put_signed(bytes, step(row.number, last.number));
        put_signed(bytes, step(row.at_ns, last.at_ns));
        put(bytes, row.size_bytes.into());
        put(bytes, u64::from(row.flow) << 1 | u64::from(row.with_data));
        let sequence = row.sequence.wrapping_sub(last.sequence) as i32;
        put_signed(bytes, sequence.into());
        put(bytes, row.payload_bytes.into());
        self.last_sent = row;
    }

    #[inline]
    pub(crate) fn note_received(&mut self, number: u64, at_ns: u64) {
        if self.received.len() >= MOST_BYTES || self.received_rows >= MOST_ROWS {
            self.missed += 1;
            return;
        }
        self.received_rows += 1;
        put_signed(&mut self.received, step(number, self.last_received.number));
        put_signed(&mut self.received, step(at_ns, self.last_received.at_ns));
        self.last_received = Received { number, at_ns };
    }

    /// The log as it is sent.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(20 + self.sent.len() + self.received.len());
        put(&mut bytes, self.missed);
        put(&mut bytes, self.sent.len() as u64);
        bytes.extend(&self.sent);
        bytes.extend(&self.received);
        bytes
    }
}

impl Rows {
    /// Reads what [`Log::encode`] wrote; none if it is anything else, or has more rows than a log may have.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        Self::decode_at_most(bytes, MOST_ROWS)
    }

    fn decode_at_most(mut bytes: &[u8], most: usize) -> Option<Self> {
        let missed = take(&mut bytes)?;
        let sent_bytes = usize::try_from(take(&mut bytes)?).ok()?;
        let (mut rest, mut received_rest) = bytes.split_at_checked(sent_bytes)?;
        let mut rows = Self {
            missed,
            ..Self::default()
        };
        let mut last = Sent::default();
        while !rest.is_empty() {
            let rest = &mut rest;
            last.number = last.number.wrapping_add_signed(take_signed(rest)?);
            last.at_ns = last.at_ns.wrapping_add_signed(take_signed(rest)?);
            last.size_bytes = take(rest)?.try_into().ok()?;
            let flow = take(rest)?;
            (last.flow, last.with_data) = ((flow >> 1).try_into().ok()?, flow & 1 == 1);
            let sequence = take_signed(rest)?.try_into().ok()?;
            last.sequence = last.sequence.wrapping_add_signed(sequence);
            last.payload_bytes = take(rest)?.try_into().ok()?;
            if rows.sent.len() == most {
                return None;
            }
            rows.sent.push(last);
        }
        let mut last = Received::default();
        while !received_rest.is_empty() {
            let rest = &mut received_rest;
            last.number = last.number.wrapping_add_signed(take_signed(rest)?);
            last.at_ns = last.at_ns.wrapping_add_signed(take_signed(rest)?);
            if rows.received.len() == most {
                return None;
            }
            rows.received.push(last);
        }
        Some(rows)
    }
}

/// One packet of a flow's data between the hosts, in seconds of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Passage {
    pub(crate) flow: u32,
    /// Its first payload byte.
    pub(crate) first: u64,
    pub(crate) payload_bytes: u32,
    pub(crate) sent_s: f64,
    /// None: it was lost, or is in transit.
    pub(crate) arrived_s: Option<f64>,
}

/// What became of the packets that one host sent to the other.
#[derive(Default)]
pub(crate) struct Crossed {
    /// In the order of their times.
    pub(crate) records: Vec<PacketRecord>,
    /// Those with payload that go the way of their flow's data, in the order in which they were sent.
    pub(crate) passages: Vec<Passage>,
    /// Packets with payload, the way the flows' data goes: sent and arrived.
    pub(crate) data: (u64, u64),
    /// Of those that arrived: how many did after one that was sent later.
    pub(crate) overtaken: u64,
    /// From one host's device to the other's, of those.
    pub(crate) delays: Vec<f64>,
}

/// Puts together what one host sent and the other received. `sent_at` and `received_at` turn the
/// hosts' clocks into seconds of the run; packets sent after `until_s` may still be in transit, and do not
/// count as lost. Nothing was recorded before the flows were connected.
pub(crate) fn merge(
    sent: &[Sent],
    received: &[Received],
    sent_at: impl Fn(u64) -> f64,
    received_at: impl Fn(u64) -> f64,
    until_s: f64,
) -> Crossed {
    let arrivals: BTreeMap<u64, u64> = received.iter().map(|row| (row.number, row.at_ns)).collect();
    let mut crossed = Crossed::default();
    let mut sequences: BTreeMap<(u32, bool), PayloadCount> = BTreeMap::new();
    for row in sent {
        let time_s = sent_at(row.at_ns);
        let sequence = sequences
            .entry((row.flow, row.with_data))
            .or_insert_with(|| PayloadCount::of_connected(row.sequence));
        let record = PacketRecord {
            time_s,
            flow: row.flow,
            seq: sequence.advance(row.sequence),
            size_bytes: row.size_bytes,
            event: PacketEvent::Sent,
            one_way_delay_s: None,
            direction: match row.with_data {
                true => Direction::Data,
                false => Direction::Back,
            },
        };
        crossed.records.push(record);
        let is_data = row.with_data && row.payload_bytes > 0;
        let counts = is_data && time_s <= until_s;
        crossed.data.0 += u64::from(counts);
        let arrived_s = arrivals.get(&row.number).map(|&at_ns| received_at(at_ns));
        if is_data {
            crossed.passages.push(Passage {
                flow: row.flow,
                first: record.seq,
                payload_bytes: row.payload_bytes,
                sent_s: time_s,
                arrived_s,
            });
        }
        if let Some(arrived_s) = arrived_s {
            let delay_s = arrived_s - time_s;
            crossed.records.push(PacketRecord {
                time_s: arrived_s,
                event: PacketEvent::Delivered,
                one_way_delay_s: Some(delay_s),
                ..record
            });
            crossed.data.1 += u64::from(counts);
            if is_data {
                crossed.delays.push(delay_s);
            }
        } else if time_s <= until_s {
            // the place and time of the loss are unknown
            crossed.records.push(PacketRecord {
                event: PacketEvent::DroppedByLoss,
                ..record
            });
        }
    }
    crossed.overtaken = overtaken(&crossed.passages);
    crossed
        .records
        .sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
    crossed
}

/// How many arrived after one that was sent later (RFC 4737, section 3.3: reordered).
fn overtaken(passages: &[Passage]) -> u64 {
    let mut earliest_s = f64::INFINITY;
    let mut count = 0;
    for arrived_s in passages.iter().rev().filter_map(|p| p.arrived_s) {
        count += u64::from(arrived_s > earliest_s);
        earliest_s = earliest_s.min(arrived_s);
    }
    count
}

/// Quantiles of delays; what the error of the clocks made negative counts as 0.
pub(crate) fn histogram(delays: &[f64]) -> DelayHistogram {
    let mut histogram = DelayHistogram::default();
    for delay_s in delays {
        histogram.record((delay_s * 1e9).max(0.0) as u64);
    }
    histogram
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sent(number: u64, at_ns: u64, sequence: u32) -> Sent {
        Sent {
            number,
            at_ns,
            size_bytes: 1400,
            flow: 0,
            with_data: true,
            sequence,
            payload_bytes: 1348,
        }
    }

    #[test]
    fn packets_are_matched_by_number_however_alike_they_are() {
        // the same segment three times: the first is lost, the third overtakes the second
        let out = [
            sent(4, 1_000_000, 100),
            sent(5, 2_000_000, 100),
            sent(6, 3_000_000, 100),
        ];
        let came =
            [(6, 53_000_000), (5, 60_000_000)].map(|(number, at_ns)| Received { number, at_ns });
        let seconds = |ns: u64| ns as f64 * 1e-9;
        // the other clock is 40 ms ahead
        let crossed = merge(&out, &came, seconds, |ns| seconds(ns) - 0.04, 1.0);
        assert_eq!((crossed.data, crossed.overtaken), ((3, 2), 1));
        let rows: Vec<(u64, PacketEvent)> = crossed
            .records
            .iter()
            .map(|record| ((record.time_s * 1e6).round() as u64, record.event))
            .collect();
        let (sent, lost, delivered) = (
            PacketEvent::Sent,
            PacketEvent::DroppedByLoss,
            PacketEvent::Delivered,
        );
        assert_eq!(
            rows,
            [
                (1000, sent),
                (1000, lost),
                (2000, sent),
                (3000, sent),
                (13_000, delivered),
                (20_000, delivered)
            ]
        );
        let mut delays = crossed.delays;
        delays.sort_by(f64::total_cmp);
        assert!((delays[0] - 0.010).abs() < 1e-9 && (delays[1] - 0.018).abs() < 1e-9);
    }

    #[test]
    fn what_may_still_be_under_way_is_not_called_lost() {
        let out = [sent(1, 1_000_000_000, 100), sent(2, 3_000_000_000, 1448)];
        let crossed = merge(&out, &[], |ns| ns as f64 * 1e-9, |_| 0.0, 2.0);
        assert_eq!(crossed.data, (1, 0));
        let bytes: Vec<u64> = crossed.records.iter().map(|record| record.seq).collect();
        assert_eq!(bytes, [0, 0, 1348]);
        let lost = crossed
            .records
            .iter()
            .filter(|r| r.event == PacketEvent::DroppedByLoss);
        assert_eq!(lost.count(), 1);
    }

    #[test]
    fn a_log_of_more_rows_than_anybody_notes_is_refused() {
        // six bytes of zeros are a packet, two are one that was received
        for (sent, received, read) in [(3, 3, true), (4, 3, false), (3, 4, false)] {
            let mut bytes = Vec::new();
            put(&mut bytes, 0);
            put(&mut bytes, 6 * sent);
            bytes.resize(bytes.len() + 6 * sent as usize + 2 * received, 0);
            assert_eq!(
                Rows::decode_at_most(&bytes, 3).is_some(),
                read,
                "{sent} {received}"
            );
        }
    }

    #[test]
    fn only_packets_of_flows_are_noted() {
        let mut packet = vec![0; 52];
        (packet[0], packet[32]) = (0x45, 8 << 4);
        let mut log = Log::default();
        let (tcp, udp) = (6, 17);
        for (protocol, from, to, noted) in [
            (tcp, 20_003, 5001, 1),
            (tcp, 5001, 20_003, 2),
            (tcp, 5000, 40_000, 2),
            (tcp, 9, 5001, 2),
            // programs' flows, by the receiver's port
            (udp, 40_000, 30_001, 3),
            (udp, 30_063, 40_000, 4),
            (udp, 40_000, 30_064, 4),
            (udp, 20_003, 5001, 4),
        ] {
            let (from, to): (u16, u16) = (from, to);
            packet[9] = protocol;
            packet[20..22].copy_from_slice(&from.to_be_bytes());
            packet[22..24].copy_from_slice(&to.to_be_bytes());
            log.note_sent(7, 9, &packet);
            let rows = Rows::decode(&log.encode()).unwrap().sent;
            assert_eq!(rows.len(), noted, "{from} {to}");
        }
        let rows = Rows::decode(&log.encode()).unwrap().sent;
        let found: Vec<_> = rows.iter().map(|row| (row.flow, row.with_data)).collect();
        assert_eq!(found, [(3, true), (3, false), (1, true), (63, false)]);
    }

    proptest! {
        #[test]
        fn a_log_comes_back(
            rows in proptest::collection::vec((proptest::num::u64::ANY, proptest::num::u32::ANY), 0..50),
            missed in proptest::num::u64::ANY,
        ) {
            let sent = rows.iter().map(|&(number, word)| Sent {
                number,
                at_ns: number.wrapping_mul(3),
                size_bytes: word,
                flow: word >> 3,
                with_data: word % 2 == 0,
                sequence: word,
                payload_bytes: word ^ 5,
            });
            let received = rows.iter().map(|&(number, _)| Received { number, at_ns: !number });
            let rows = Rows { sent: sent.collect(), received: received.collect(), missed };
            let mut log = Log { missed, ..Log::default() };
            for row in &rows.sent {
                log.push_sent(*row);
            }
            for row in &rows.received {
                log.note_received(row.number, row.at_ns);
            }
            let bytes = log.encode();
            for cut in 0..bytes.len() {
                let _ = Rows::decode(&bytes[..cut]);
            }
            prop_assert_eq!(Rows::decode(&bytes), Some(rows));
        }

        #[test]
        fn any_bytes_are_a_log_or_none(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = Rows::decode(&bytes);
        }
    }
}
