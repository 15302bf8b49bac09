//! What stands before each packet of a TUN device with offloads: `struct virtio_net_hdr` (virtio 1.3,
//! section 5.1.6).

use super::layout::{Layout, TCP, UDP};

/// Bytes of the header, as TUN devices have it from the beginning.
pub(crate) const HEADER_BYTES: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Set in addition to the kind of TCP if the first packet has CWR, which reports a reduced window.
const GSO_ECN: u8 = 0x80;

/// What to do with the bytes that follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VirtioHeader {
    flags: u8,
    gso_type: u8,
    /// Bytes of all headers: a hint.
    header_bytes: u16,
    /// Payload of each packet but the last.
    pub(crate) gso_size: u16,
    pub(crate) checksum_start: u16,
    pub(crate) checksum_offset: u16,
}

impl VirtioHeader {
    pub(crate) fn parse(bytes: &[u8; HEADER_BYTES]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            header_bytes: word(2),
            gso_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        (bytes[0], bytes[1]) = (self.flags, self.gso_type);
        let words = [
            self.header_bytes,
            self.gso_size,
            self.checksum_start,
            self.checksum_offset,
        ];
        for (word, at) in words.into_iter().zip((2..).step_by(2)) {
            bytes[at..at + 2].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Whether the packet's checksum is the sum of its pseudo header only.
    pub(crate) const fn needs_checksum(&self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0
    }

    pub(crate) const fn is_super(&self) -> bool {
        self.gso_type & !GSO_ECN != GSO_NONE
    }

    /// Whether these headers are of the kind of super-packet that this says.
    pub(crate) const fn is_of(&self, layout: &Layout) -> bool {
        match self.gso_type & !GSO_ECN {
            GSO_TCP_V4 => layout.protocol == TCP && !layout.v6,
            GSO_TCP_V6 => layout.protocol == TCP && layout.v6,
            GSO_UDP => layout.protocol == UDP,
            _ => false,
        }
    }

    /// Of one packet whose checksum is the sum of its pseudo header.
    pub(crate) const fn unsummed(layout: &Layout) -> Self {
        Self {
            flags: NEEDS_CHECKSUM,
            gso_type: GSO_NONE,
            header_bytes: layout.header_bytes as u16,
            gso_size: 0,
            checksum_start: layout.ip_bytes as u16,
            checksum_offset: layout.checksum_offset() as u16,
        }
    }

    /// Of a super-packet of TCP with this payload in each packet.
    pub(crate) const fn super_packet(layout: &Layout, gso_size: u16) -> Self {
        Self {
            gso_type: if layout.v6 { GSO_TCP_V6 } else { GSO_TCP_V4 },
            gso_size,
            ..Self::unsummed(layout)
        }
    }
}

/// The header for `packet`, whose checksum is the sum of its pseudo header; none if it has no such
/// checksum.
#[inline]
pub(crate) fn unsummed_header(packet: &[u8]) -> Option<VirtioHeader> {
    Layout::of(packet).map(|layout| VirtioHeader::unsummed(&layout))
}
