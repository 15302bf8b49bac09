//! Packets in transit, and what the emulator knows about them.

use pathcast_netns::{Protocol, read_headers};
use pathcast_path::{End, Time};

use crate::addresses::{MTU, host};

/// Room for one packet.
pub(crate) type Buffer = Box<[u8; MTU as usize]>;

/// A packet in transit.
pub(crate) struct Packet {
    pub(crate) buffer: Buffer,
    pub(crate) size_bytes: u32,
    /// Where it goes.
    pub(crate) to: End,
    pub(crate) kind: Kind,
    /// When it was taken off the sender's device.
    pub(crate) entered: Time,
    /// The key by which a queue that is fair between flows distinguishes them.
    pub(crate) flow: u64,
    /// Whether its checksum is the sum of its pseudo header only; of devices with super-packets.
    pub(crate) unsummed: bool,
}

impl Packet {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.size_bytes as usize]
    }
}

/// What losing or delaying a packet means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// TCP payload the way that the flow's data goes: TCP repairs its loss.
    Data,
    /// A datagram in the direction of the flow's data. Its loss is not repaired, or repaired by QUIC.
    Datagram,
    /// Anything else: acknowledgments, requests, handshakes.
    Other,
}

/// Buffers that are not in use, so that a packet in steady state allocates nothing.
pub(crate) struct Pool {
    free: Vec<Buffer>,
}

impl Pool {
    /// A pool of `count` buffers, all touched, so that none costs a page fault later.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            free: (0..count).map(|_| Self::fresh()).collect(),
        }
    }

    #[allow(clippy::large_stack_arrays)]
    fn fresh() -> Buffer {
        Box::new([0xff; MTU as usize]) // written, not just mapped
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Buffer {
        self.free.pop().unwrap_or_else(Self::fresh)
    }

    #[inline]
    pub(crate) fn give_back(&mut self, buffer: Buffer) {
        self.free.push(buffer);
    }
}

/// What the headers of a packet of the emulator's own hosts say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The group of flows that it belongs to, by the near end's address.
    pub(crate) group: usize,
    /// Where it goes.
    pub(crate) to: End,
    pub(crate) protocol: Protocol,
    /// As [`Headers::ports`].
    pub(crate) ports: (u16, u16),
    /// As [`Headers::sequence`].
    pub(crate) sequence: u32,
    /// As [`Headers::payload_bytes`].
    pub(crate) payload_bytes: u32,
    /// As [`Headers::ecn_capable`].
    pub(crate) ecn_capable: bool,
}

/// Reads the headers of a packet between a near and a far host; none if it is something else, such
/// as what a kernel says to all its neighbors.
#[inline]
pub(crate) fn inspect(packet: &[u8]) -> Option<Header> {
    let headers = read_headers(packet)?;
    let end = |address: u32| {
        let [_, _, high, low] = address.to_be_bytes();
        host([high, low])
    };
    let ((from, from_end), (to, to_end)) = (end(headers.addresses.0)?, end(headers.addresses.1)?);
    if from_end == to_end {
        return None;
    }
    Some(Header {
        group: if from_end == End::Near { from } else { to },
        to: to_end,
        protocol: headers.protocol,
        ports: headers.ports,
        sequence: headers.sequence,
        payload_bytes: headers.payload_bytes,
        ecn_capable: headers.ecn_capable,
    })
}

/// Marks a packet that can be marked: congestion experienced (RFC 3168, section 5).
pub(crate) fn mark(packet: &mut [u8]) {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= 20 => {
            let before = u16::from_be_bytes([packet[0], packet[1]]);
            packet[1] |= 3;
            let after = u16::from_be_bytes([packet[0], packet[1]]);
            let sum = u16::from_be_bytes([packet[10], packet[11]]);
            packet[10..12].copy_from_slice(&updated(sum, before, after).to_be_bytes());
        }
        Some(6) if packet.len() >= 40 => packet[1] |= 3 << 4, // no checksum of the header
        _ => {}
    }
}

/// A checksum after one word changed: HC' = ~(~HC + ~m + m')  (RFC 1624, Eq. 3).
fn updated(sum: u16, before: u16, after: u16) -> u16 {
    let mut total = u32::from(!sum) + u32::from(!before) + u32::from(after);
    total = (total & 0xffff) + (total >> 16);
    total = (total & 0xffff) + (total >> 16);
    !(total as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: u8 = 6;
    const UDP: u8 = 17;

    /// Headers of 20 and 32 bytes (timestamps), then `payload` bytes, from near to far.
    fn segment(payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 20 + 32 + payload];
        (packet[0], packet[9]) = (0x45, TCP);
        packet[12..20].copy_from_slice(&[10, 77, 0, 3, 10, 77, 0x80, 3]);
        packet[20..24].copy_from_slice(&[0x10, 0x01, 0x20, 0x02]);
        packet[24..28].copy_from_slice(&7_000_000u32.to_be_bytes());
        packet[20 + 12] = 8 << 4;
        packet
    }

    fn checksum(header: &[u8]) -> u16 {
        let words = header
            .chunks(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let mut sum: u32 = words.sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn headers_are_read() {
        let header = inspect(&segment(1448)).unwrap();
        assert_eq!((header.group, header.to), (2, End::Far));
        assert_eq!(
            (header.protocol, header.ports),
            (Protocol::Tcp, (0x1001, 0x2002))
        );
        assert_eq!((header.sequence, header.payload_bytes), (7_000_000, 1448));
        assert_eq!(inspect(&segment(0)).unwrap().payload_bytes, 0);
        assert!(!header.ecn_capable);
    }

    #[test]
    fn ipv6_and_udp_are_known() {
        let mut packet = vec![0; 40 + 8 + 10];
        (packet[0], packet[6]) = (0x60, UDP);
        packet[22..24].copy_from_slice(&[0x80, 1]);
        packet[38..40].copy_from_slice(&[0, 1]);
        packet[1] = 2 << 4;
        let header = inspect(&packet).unwrap();
        assert_eq!(
            (header.group, header.to, header.protocol),
            (0, End::Near, Protocol::Udp)
        );
        assert_eq!((header.payload_bytes, header.ecn_capable), (10, true));
        mark(&mut packet);
        assert_eq!(packet[1], 3 << 4);
    }

    #[test]
    fn what_is_not_between_the_ends_or_cut_is_none_of_ours() {
        let mut packet = segment(10);
        packet[18] = 0; // from near to near
        assert_eq!(inspect(&packet), None);
        for length in 0..20 {
            assert_eq!(inspect(&segment(10)[..length]), None);
        }
        for length in 20..40 {
            assert_eq!(
                inspect(&segment(10)[..length]).unwrap().protocol,
                Protocol::Other
            );
        }
        assert_eq!(inspect(&[0xff; 60]), None);
    }

    #[test]
    fn a_marked_header_keeps_a_right_checksum() {
        for first in 0..=255u8 {
            let mut packet = segment(0);
            (packet[1], packet[4]) = (0xb8 | 2, first);
            let sum = checksum(&packet[..20]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            mark(&mut packet);
            assert_eq!(packet[1] & 3, 3);
            assert_eq!(checksum(&packet[..20]), 0);
        }
    }
}
