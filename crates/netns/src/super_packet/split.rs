//! One super-packet into the packets that it stands for.

use super::checksum::complete;
use super::layout::{Layout, TCP};
use super::virtio::{HEADER_BYTES, VirtioHeader};

/// Room for the largest packet of IP and what stands before it: IPv6 counts no more than its payload.
pub(crate) const SUPER_PACKET_BYTES: usize = HEADER_BYTES + 40 + (1 << 16);

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
const FLAGS: usize = 13;

/// A packet that was split off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its size, headers included.
    pub size_bytes: usize,
    /// Whether its checksum is the sum of its pseudo header only.
    /// [`Device::write_unsummed`](crate::Device::write_unsummed) passes such packets to the kernel.
    pub unsummed: bool,
}

/// The packets of which something consists that was read from a device: one, or those of a super-packet.
pub struct Segments<'a> {
    bytes: &'a mut [u8],
    kind: Kind,
}

enum Kind {
    /// The packet itself, until it is taken.
    Whole { taken: bool, unsummed: bool },
    Split {
        layout: Layout,
        pseudo_sum: u64,
        payload_bytes: usize,
        /// Where the payload of the next one begins.
        at: usize,
        number: u16,
    },
}

impl<'a> Segments<'a> {
    /// Of what was read from a device: a virtio header and what follows. No packet is larger than `mtu`
    /// bytes. The bytes may be anything, for whoever is root in a namespace can send anything.
    ///
    /// # Errors
    /// Says what is wrong with the bytes.
    pub fn of(read: &'a mut [u8], mtu: usize) -> Result<Self, &'static str> {
        let Some((header, bytes)) = read.split_first_chunk_mut::<HEADER_BYTES>() else {
            return Err("fewer bytes than a virtio header has");
        };
        let header = VirtioHeader::parse(header);
        let layout = Layout::of(bytes);
        if !header.is_super() {
            if bytes.len() > mtu {
                return Err("a packet that is larger than the MTU");
            }
            let start = usize::from(header.checksum_start);
            let offset = usize::from(header.checksum_offset);
            let usual =
                |layout: &Layout| start == layout.ip_bytes && offset == layout.checksum_offset();
            let unsummed = header.needs_checksum() && layout.as_ref().is_some_and(usual);
            if header.needs_checksum() && !unsummed && !complete(bytes, start, offset) {
                return Err("a checksum outside of its packet");
            }
            let kind = Kind::Whole {
                taken: false,
                unsummed,
            };
            return Ok(Self { bytes, kind });
        }
        let layout = layout
            .filter(|layout| header.is_of(layout))
            .ok_or("a super-packet whose headers are not of its kind")?;
        let payload_bytes = usize::from(header.gso_size);
        if payload_bytes == 0 || layout.header_bytes + payload_bytes > mtu {
            return Err("a super-packet of packets without payload or larger than the MTU");
        }
        let pseudo_sum = layout.pseudo_sum(bytes);
        let kind = Kind::Split {
            at: layout.header_bytes,
            layout,
            pseudo_sum,
            payload_bytes,
            number: 0,
        };
        Ok(Self { bytes, kind })
    }

    /// Writes the next packet into `packet`, which has room for the MTU; none after the last one.
    #[inline]
    pub fn next_into(&mut self, packet: &mut [u8]) -> Option<Segment> {
        let (layout, pseudo_sum, payload_bytes, at, number) = match &mut self.kind {
            Kind::Whole { taken: true, .. } => return None,
            Kind::Whole { taken, unsummed } => {
                *taken = true;
                let size_bytes = self.bytes.len();
                packet.get_mut(..size_bytes)?.copy_from_slice(self.bytes);
                let unsummed = *unsummed;
                return Some(Segment {
                    size_bytes,
                    unsummed,
                });
            }
            Kind::Split {
                layout,
                pseudo_sum,
                payload_bytes,
                at,
                number,
            } => (*layout, *pseudo_sum, *payload_bytes, at, number),
        };
        let (first, begin) = (*number == 0, *at);
        // a super-packet without payload is one packet without payload
        if begin >= self.bytes.len() && !first {
            return None;
        }
        let end = self.bytes.len().min(begin + payload_bytes);
        let last = end == self.bytes.len();
        let (headers, size_bytes) = (layout.header_bytes, layout.header_bytes + end - begin);
        let packet = packet.get_mut(..size_bytes)?;
        packet[..headers].copy_from_slice(&self.bytes[..headers]);
        packet[headers..].copy_from_slice(&self.bytes[begin..end]);
        if !layout.v6 {
            let id = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(*number);
            packet[4..6].copy_from_slice(&id.to_be_bytes());
        }
        if layout.protocol == TCP {
            let transport = &mut packet[layout.ip_bytes..];
            let sequence =
                u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
            let sequence = sequence.wrapping_add((begin - headers) as u32);
            transport[4..8].copy_from_slice(&sequence.to_be_bytes());
            if !first {
                transport[FLAGS] &= !CWR;
            }
            if !last {
                transport[FLAGS] &= !(FIN | PSH);
            }
        }
        layout.set_lengths(packet, size_bytes, pseudo_sum);
        (*at, *number) = (end, number.wrapping_add(1));
        Some(Segment {
            size_bytes,
            unsummed: true,
        })
    }
}
