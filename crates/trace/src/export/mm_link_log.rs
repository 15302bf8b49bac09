//! The log of mahimahi's mm-link, for tools that plot it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::error::TraceError;
use crate::output::write_beside;
use crate::record::{Direction, PacketEvent, PacketRecord};

/// Bytes that TUN puts before each packet.
const TUN_BYTES: u32 = 4;

/// Writes an mm-link log of the data direction, completely or not at all. It holds arrivals (`+`),
/// departures (`-`) and drops (`d`) in whole milliseconds, as mm-link writes them. Opportunities
/// are missing, because a packet table has none.
///
/// # Errors
/// A [`TraceError`] if there are no packets, or the file cannot be written.
pub fn write_mm_link_log(path: &Path, packets: &[PacketRecord]) -> Result<(), TraceError> {
    if packets.is_empty() {
        return Err(TraceError::new(
            path,
            "cannot be written: there are no packets",
        ));
    }
    write_beside(path, |file| {
        let mut out = BufWriter::new(file);
        write(&mut out, packets)
            .and_then(|()| out.flush())
            .map_err(|error| error.to_string())
    })
}

fn write(out: &mut impl Write, packets: &[PacketRecord]) -> std::io::Result<()> {
    writeln!(out, "# base timestamp: 0")?;
    // when each packet in flight was sent, the earliest sending first
    let mut under_way: BTreeMap<(u32, u64), VecDeque<u64>> = BTreeMap::new();
    for packet in packets {
        if packet.direction != Direction::Data {
            continue; // another link's
        }
        let now_ms = milliseconds(packet.time_s);
        let bytes = u64::from(packet.size_bytes) + u64::from(TUN_BYTES);
        let name = (packet.flow, packet.seq);
        if packet.event == PacketEvent::Sent {
            under_way.entry(name).or_default().push_back(now_ms);
            writeln!(out, "{now_ms} + {bytes}")?;
            continue;
        }
        let sent_ms = under_way.get_mut(&name).and_then(VecDeque::pop_front);
        if under_way.get(&name).is_some_and(VecDeque::is_empty) {
            under_way.remove(&name);
        }
        if packet.event == PacketEvent::Delivered {
            let waited_ms = sent_ms.map_or_else(
                || milliseconds(packet.one_way_delay_s.unwrap_or(0.0)),
                |sent_ms| now_ms.saturating_sub(sent_ms),
            );
            writeln!(out, "{now_ms} - {bytes} {waited_ms}")?;
        } else {
            writeln!(out, "{now_ms} d 1 {bytes}")?;
        }
    }
    Ok(())
}

fn milliseconds(time_s: f64) -> u64 {
    (time_s * 1e3 + 1e-6).max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::import::{ReadOptions, read_packets};

    /// A queue for three packets, drained by a link at one packet every other millisecond.
    fn queue(sizes: &[(u64, u32)]) -> Vec<PacketRecord> {
        let mut records = Vec::new();
        let mut waiting: VecDeque<(u64, u64, u32)> = VecDeque::new();
        let mut coming = sizes.iter().scan(0, |ms, &(gap, size)| {
            *ms += gap;
            Some((*ms, size))
        });
        let mut next = coming.next();
        let mut seq = 0;
        for now_ms in 0..2000 {
            let mut record = |seq: u64, size_bytes: u32, event, delay_ms: Option<u64>| {
                records.push(PacketRecord {
                    time_s: now_ms as f64 * 1e-3,
                    flow: 0,
                    seq,
                    size_bytes,
                    event,
                    one_way_delay_s: delay_ms.map(|ms| ms as f64 * 1e-3),
                    direction: Direction::Data,
                });
            };
            while let Some((ms, size)) = next.filter(|(ms, _)| *ms == now_ms) {
                record(seq, size, PacketEvent::Sent, None);
                if waiting.len() == 3 {
                    record(seq, size, PacketEvent::DroppedByQueue, None);
                } else {
                    waiting.push_back((seq, ms, size));
                }
                seq += 1;
                next = coming.next();
            }
            if now_ms % 2 == 1
                && let Some((seq, ms, size)) = waiting.pop_front()
            {
                record(seq, size, PacketEvent::Delivered, Some(now_ms - ms));
            }
        }
        records
    }

    proptest! {
        #[test]
        fn the_log_of_a_queue_is_read_back(
            sizes in prop::collection::vec((0..4u64, 40..1500u32), 1..100),
        ) {
            let mut packets = queue(&sizes);
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("link.log");
            write_mm_link_log(&path, &packets).unwrap();
            let read = read_packets(&path, &ReadOptions::default()).unwrap().records;
            let start_s = packets[0].time_s;
            packets.iter_mut().for_each(|packet| packet.time_s -= start_s);
            prop_assert_eq!(read.len(), packets.len());
            for (got, wanted) in read.iter().zip(&packets) {
                prop_assert!((got.time_s - wanted.time_s).abs() < 1e-9);
                let delay_s = got.one_way_delay_s.unwrap_or(0.0) - wanted.one_way_delay_s.unwrap_or(0.0);
                prop_assert!(delay_s.abs() < 1e-9);
                let of = |p: &PacketRecord| (p.seq, p.size_bytes, p.event);
                prop_assert_eq!(of(got), of(wanted));
            }
        }
    }
}
