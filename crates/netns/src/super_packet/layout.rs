//! Where the headers of a packet lie that can be split or joined.

use super::checksum::{add, fold};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// A whole packet over TCP or UDP, over IPv4 or over IPv6 without extension headers, whose lengths agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) v6: bool,
    /// The header of IP.
    pub(crate) ip_bytes: usize,
    /// All headers.
    pub(crate) header_bytes: usize,
    pub(crate) protocol: u8,
}

impl Layout {
    /// Of a packet; none if it is something else, a fragment, or shorter or longer than it says.
    #[inline]
    pub(crate) fn of(packet: &[u8]) -> Option<Self> {
        let word = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        let (v6, ip_bytes, protocol) = match packet.first()? >> 4 {
            4 if packet.len() >= 20 => {
                let ip_bytes = usize::from(packet[0] & 0x0f) * 4;
                // more fragments, or an offset
                let fragment = word(6) & 0x3fff != 0;
                if ip_bytes < 20 || fragment || word(2) != packet.len() {
                    return None;
                }
                (false, ip_bytes, packet[9])
            }
            6 if packet.len() >= 40 && word(4) + 40 == packet.len() => (true, 40, packet[6]),
            _ => return None,
        };
        let rest = packet.get(ip_bytes..)?;
        let transport_bytes = match protocol {
            TCP if rest.len() >= 20 => usize::from(rest[12] >> 4) * 4,
            UDP if rest.len() >= 8 => 8,
            _ => return None,
        };
        let least = if protocol == TCP { 20 } else { 8 };
        (transport_bytes >= least && transport_bytes <= rest.len()).then_some(Self {
            v6,
            ip_bytes,
            header_bytes: ip_bytes + transport_bytes,
            protocol,
        })
    }

    /// Where the checksum lies, from the beginning of the transport's header.
    pub(crate) const fn checksum_offset(&self) -> usize {
        if self.protocol == TCP { 16 } else { 6 }
    }

    /// The sum of the pseudo header without the length (RFC 9293, section 3.1; RFC 8200, section 8.1).
    pub(crate) fn pseudo_sum(&self, packet: &[u8]) -> u64 {
        let addresses = if self.v6 { 8..40 } else { 12..20 };
        add(u64::from(self.protocol), &packet[addresses])
    }

    /// Writes the lengths that a packet of `size` bytes has, the checksum of its IP header, and the sum of
    /// its pseudo header, which [`Layout::pseudo_sum`] has begun, in place of its checksum.
    #[inline]
    pub(crate) fn set_lengths(&self, packet: &mut [u8], size: usize, pseudo_sum: u64) {
        let mut set = |at: usize, value: u16| {
            packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
        };
        let transport = (size - self.ip_bytes) as u16;
        let sum_at = self.ip_bytes + self.checksum_offset();
        set(sum_at, fold(pseudo_sum + u64::from(transport)));
        if self.protocol == UDP {
            set(self.ip_bytes + 4, transport);
        }
        if self.v6 {
            set(4, transport);
        } else {
            set(2, size as u16);
            set(10, 0);
            let sum = !fold(add(0, &packet[..self.ip_bytes]));
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }
}
