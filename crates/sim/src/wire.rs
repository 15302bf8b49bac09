//! Packets on the simulated wire and their sizes, as Linux sends them over Ethernet.

use pathcast_path::PacketInfo;
use pathcast_tcp::{AckSegment, DataSegment, Ecn};

/// Largest IP packet.
pub const MTU_BYTES: u32 = 1500;
/// An IPv4 header.
pub const IP_BYTES: u32 = 20;
/// IPv4 and UDP headers.
pub const UDP_IP_BYTES: u32 = IP_BYTES + 8;
/// The most that a packet of QUIC holds of a stream.
pub const QUIC_PAYLOAD_BYTES: u32 = 1442;
/// IPv4 and TCP headers with the timestamp option.
const HEADER_BYTES: u32 = IP_BYTES + 20 + 12;
/// The same with the options of a SYN: MSS, SACK permitted, timestamps, window scale.
const SYN_BYTES: u32 = IP_BYTES + 20 + 20;
/// Both packets of a handshake that a round trip measures.
pub const HANDSHAKE_BYTES: u32 = SYN_BYTES;
/// Payload of a full packet.
pub const MSS_BYTES: u32 = MTU_BYTES - HEADER_BYTES;

/// A data packet in transit.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// The number of its flow.
    pub flow: u32,
    /// What it says.
    pub segment: DataSegment,
}

impl Data {
    /// Its size as an IP packet.
    #[inline]
    pub fn size_bytes(&self) -> u32 {
        if self.segment.is_syn() {
            SYN_BYTES
        } else if self.segment.is_empty() || self.segment.is_fin() {
            HEADER_BYTES
        } else {
            MTU_BYTES - u32::from(self.segment.short_by_bytes())
        }
    }

    /// What the path sees of the packet. It can distinguish flows (FQ-CoDel).
    #[inline]
    pub fn info(&self) -> PacketInfo {
        PacketInfo {
            size_bytes: self.size_bytes(),
            flow: u64::from(self.flow),
            ecn_capable: self.segment.ecn() != Ecn::NotCapable,
        }
    }
}

/// An acknowledgment in transit, or a datagram of QUIC in the opposite direction of the data.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// The number of its flow.
    pub flow: u32,
    /// The size as an IP packet of a datagram, whose number is `segment.cumulative`; 0 of TCP.
    pub datagram_bytes: u32,
    /// What it says.
    pub segment: AckSegment,
}

impl Ack {
    /// Its size as an IP packet.
    #[inline]
    pub fn size_bytes(&self) -> u32 {
        match self.segment.block_count() {
            _ if self.datagram_bytes > 0 => self.datagram_bytes,
            0 if self.segment.is_syn => SYN_BYTES,
            0 => HEADER_BYTES,
            blocks => HEADER_BYTES + 4 + 8 * blocks,
        }
    }

    /// What the path sees of it. An acknowledgment cannot be marked (RFC 3168, section 6.1.4).
    #[inline]
    pub fn info(&self) -> PacketInfo {
        PacketInfo {
            size_bytes: self.size_bytes(),
            flow: u64::from(self.flow),
            ecn_capable: false,
        }
    }
}

/// A packet of either kind.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// Data.
    Data(Data),
    /// An acknowledgment.
    Ack(Ack),
}

impl Ack {
    /// An acknowledgment of TCP.
    #[inline]
    pub const fn of_tcp(flow: u32, segment: AckSegment) -> Self {
        Self {
            flow,
            datagram_bytes: 0,
            segment,
        }
    }
}

// each packet is copied several times in transit
const _: () = assert!(size_of::<Data>() == 32 && size_of::<Ack>() == 56 && size_of::<Body>() == 56);
