//! Consecutive packets of one flow into one super-packet.

use super::layout::{Layout, TCP};
use super::virtio::VirtioHeader;

/// The most packets of one super-packet: 64 KiB of full packets are 45.
pub(crate) const MOST_JOINED: usize = 48;

/// No packet of IP is larger.
const MOST_BYTES: usize = 0xffff;
/// Headers of IPv4 or TCP have at most 60 bytes, that of IPv6 has 40.
const MOST_HEADER_BYTES: usize = 120;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;

/// The headers of a super-packet of TCP in the making: those of its first packet, and what the next one
/// has to be to be joined to it.
///
/// Packets are joined that the kernel's receive offload would join: same addresses, ports, acknowledgment,
/// window, options (so timestamps, too), ECN and type of service; consecutive sequence numbers and, in
/// IPv4, identifications. All but the last have the same payload, and only the last has PSH or FIN.
#[derive(Clone, Debug)]
pub struct Join {
    layout: Layout,
    headers: [u8; MOST_HEADER_BYTES],
    payload_bytes: usize,
    size_bytes: usize,
    packets: usize,
    /// Whether nothing may follow.
    closed: bool,
}

impl Join {
    /// A super-packet that begins with `packet`, whose checksum is the sum of its pseudo header; none if
    /// nothing can be joined to it.
    #[inline]
    pub fn begin(packet: &[u8]) -> Option<Self> {
        let layout = Layout::of(packet).filter(|layout| layout.protocol == TCP)?;
        let payload_bytes = packet.len() - layout.header_bytes;
        let flags = packet[layout.ip_bytes + 13];
        if payload_bytes == 0 || flags & !ECE != ACK {
            return None;
        }
        let mut headers = [0; MOST_HEADER_BYTES];
        headers[..layout.header_bytes].copy_from_slice(&packet[..layout.header_bytes]);
        Some(Self {
            layout,
            headers,
            payload_bytes,
            size_bytes: packet.len(),
            packets: 1,
            closed: false,
        })
    }

    /// How many packets it has.
    pub const fn packets(&self) -> usize {
        self.packets
    }

    /// Whether nothing can be joined to it any more.
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Joins `packet`, whose checksum is the sum of its pseudo header, to the others; `false` if it cannot be.
    #[inline]
    pub fn add(&mut self, packet: &[u8]) -> bool {
        let (ip, all) = (self.layout.ip_bytes, self.layout.header_bytes);
        let payload_bytes = packet.len().saturating_sub(all);
        if self.closed
            || payload_bytes == 0
            || payload_bytes > self.payload_bytes
            || self.size_bytes + payload_bytes > MOST_BYTES
            || Layout::of(packet) != Some(self.layout)
        {
            return false;
        }
        let first = &self.headers[..all];
        let same = |range: std::ops::Range<usize>| first[range.clone()] == packet[range];
        let same_ip = if self.layout.v6 {
            same(0..4) && same(6..40)
        } else {
            let id = |packet: &[u8]| u16::from_be_bytes([packet[4], packet[5]]);
            let next = id(first).wrapping_add(self.packets as u16);
            same(0..2) && same(6..10) && same(12..ip) && id(packet) == next
        };
        let sequence =
            |packet: &[u8]| u32::from_be_bytes([0, 1, 2, 3].map(|byte| packet[ip + 4 + byte]));
        let next = sequence(first).wrapping_add((self.size_bytes - all) as u32);
        let last = packet[ip + 13] & (PSH | FIN);
        // ports; acknowledgment, size of the header; flags; window; urgent pointer, options
        let same_tcp = same(ip..ip + 4)
            && same(ip + 8..ip + 13)
            && packet[ip + 13] & !(PSH | FIN) == first[ip + 13]
            && same(ip + 14..ip + 16)
            && same(ip + 18..all);
        if !(same_ip && same_tcp && sequence(packet) == next) {
            return false;
        }
        self.headers[ip + 13] |= last;
        self.size_bytes += payload_bytes;
        self.packets += 1;
        self.closed =
            last != 0 || payload_bytes < self.payload_bytes || self.packets == MOST_JOINED;
        true
    }

    /// Bytes of headers of each of its packets.
    pub(crate) const fn header_bytes(&self) -> usize {
        self.layout.header_bytes
    }

    /// What stands before the super-packet, and its headers.
    pub(crate) fn headers(&mut self) -> (VirtioHeader, &[u8]) {
        let (layout, headers) = (self.layout, &mut self.headers);
        let pseudo_sum = layout.pseudo_sum(headers);
        layout.set_lengths(headers, self.size_bytes, pseudo_sum);
        let header = VirtioHeader::super_packet(&layout, self.payload_bytes as u16);
        (header, &self.headers[..layout.header_bytes])
    }
}
