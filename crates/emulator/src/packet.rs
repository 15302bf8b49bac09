//! Packets on their way, and what we need to know of them.

use pathcast_path::Time;

use crate::interface::MTU;

/// Room for one packet.
pub(crate) type Buffer = Box<[u8; MTU as usize]>;

/// A packet on its way.
pub(crate) struct Packet {
    pub(crate) buffer: Buffer,
    pub(crate) size_bytes: u32,
    /// It carries payload, so losing or delaying it matters to the reports.
    pub(crate) is_data: bool,
    /// When it was taken off the sender's device.
    pub(crate) entered: Time,
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

/// Whether `packet` is a TCP segment with payload, over IPv4 or IPv6 without extension headers.
#[inline]
pub(crate) fn carries_tcp_payload(packet: &[u8]) -> bool {
    const TCP: u8 = 6;
    let (header_bytes, protocol) = match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= 20 => (usize::from(packet[0] & 0x0f) * 4, packet[9]),
        Some(6) if packet.len() >= 40 => (40, packet[6]),
        _ => return false,
    };
    let Some(tcp) = packet
        .get(header_bytes..)
        .filter(|tcp| protocol == TCP && tcp.len() >= 20)
    else {
        return false;
    };
    tcp.len() > usize::from(tcp[12] >> 4) * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers of 20 and 32 bytes (timestamps), then `payload` bytes.
    fn segment(payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 20 + 32 + payload];
        (packet[0], packet[9]) = (0x45, 6);
        packet[20 + 12] = 8 << 4;
        packet
    }

    #[test]
    fn a_pure_acknowledgment_is_no_data() {
        assert!(carries_tcp_payload(&segment(1448)));
        assert!(carries_tcp_payload(&segment(1)));
        assert!(!carries_tcp_payload(&segment(0)));
    }

    #[test]
    fn ipv6_is_known_and_other_protocols_are_no_data() {
        let mut packet = vec![0; 40 + 20 + 10];
        (packet[0], packet[6]) = (0x60, 6);
        packet[40 + 12] = 5 << 4;
        assert!(carries_tcp_payload(&packet));
        packet[6] = 17;
        assert!(!carries_tcp_payload(&packet));
    }

    #[test]
    fn cut_packets_are_no_data() {
        let packet = segment(10);
        for length in 0..52 {
            assert!(!carries_tcp_payload(&packet[..length]));
        }
        assert!(!carries_tcp_payload(&[0xff; 60]));
    }
}
