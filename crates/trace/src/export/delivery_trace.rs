//! mahimahi's packet-delivery trace, from the packets that a link delivered.

use std::io::{BufWriter, Write};
use std::path::Path;

use crate::error::TraceError;
use crate::output::write_beside;
use crate::record::{Direction, PacketEvent, PacketRecord};

/// Bytes that one opportunity carries: an Ethernet packet without the TUN header.
const OPPORTUNITY_BYTES: u64 = 1500;

/// Writes a delivery trace of the data direction, completely or not at all, and returns its number
/// of opportunities. Each line is a millisecond since the first delivery, one line for every 1500
/// bytes delivered.
///
/// The trace shows the link's capacity only while senders keep its queue filled. Otherwise it shows
/// what they sent.
///
/// # Errors
/// A [`TraceError`] if fewer bytes than one opportunity were delivered, or if the file cannot be
/// written.
pub fn write_delivery_trace(path: &Path, packets: &[PacketRecord]) -> Result<u64, TraceError> {
    let delivered = |packet: &&PacketRecord| {
        packet.event == PacketEvent::Delivered && packet.direction == Direction::Data
    };
    let bytes: u64 = (packets.iter().filter(delivered))
        .map(|packet| u64::from(packet.size_bytes))
        .sum();
    if bytes < OPPORTUNITY_BYTES {
        let message = format!(
            "cannot be written: {bytes} B were delivered, expected at least {OPPORTUNITY_BYTES}; \
             a capture at the sender tells of no deliveries"
        );
        return Err(TraceError::new(path, message));
    }
    let start_s = packets
        .iter()
        .find(delivered)
        .map_or(0.0, |first| first.time_s);
    write_beside(path, |file| {
        let mut out = BufWriter::new(file);
        let (mut carried, mut opportunities) = (0, 0);
        let mut write = || -> std::io::Result<u64> {
            for packet in packets.iter().filter(delivered) {
                carried += u64::from(packet.size_bytes);
                while carried >= OPPORTUNITY_BYTES {
                    // the last line must not be 0, for it is the trace's period
                    let ms = ((packet.time_s - start_s) * 1e3 + 1e-6).floor() + 1.0;
                    writeln!(out, "{ms}")?;
                    carried -= OPPORTUNITY_BYTES;
                    opportunities += 1;
                }
            }
            out.flush()?;
            Ok(opportunities)
        };
        write().map_err(|error| error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_delivered_make_opportunities() {
        let packet = |ms: u32, size_bytes: u32, event: PacketEvent| PacketRecord {
            time_s: 5.0 + f64::from(ms) * 1e-3,
            flow: 0,
            seq: 0,
            size_bytes,
            event,
            one_way_delay_s: None,
            direction: Direction::Data,
        };
        use PacketEvent::{Delivered, DroppedByQueue, Sent};
        let packets = [
            packet(0, 1500, Sent),
            packet(10, 1500, Delivered),
            packet(12, 750, Delivered),
            packet(12, 1500, DroppedByQueue),
            packet(14, 750, Delivered),
            packet(20, 3000, Delivered),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.trace");
        assert_eq!(write_delivery_trace(&path, &packets), Ok(4));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "1\n5\n11\n11\n");
        let error = write_delivery_trace(&path, &packets[..1]).unwrap_err();
        assert!(error.to_string().contains("0 B were delivered"), "{error}");
    }
}
