//! TCP segments of IPv4 and IPv6, with their options.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::layers::{Carried, Tunnel};

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// The relevant fields of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub from: (IpAddr, u16),
    pub to: (IpAddr, u16),
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub payload_bytes: u32,
    /// Bytes of IP and TCP headers in the packet.
    pub header_bytes: u32,
    pub options: Options,
    pub packet: Packet,
}

/// Distinguishes packets that carry the same segment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet {
    /// IPv4's id, unless it is 0.
    pub id: Option<u16>,
    /// TTL, or hop limit.
    pub ttl: u8,
    /// TCP checksum.
    pub checksum: u16,
    /// Hash of the link's addresses and tags. It usually differs between two captures of one
    /// packet.
    pub place: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
    pub timestamps: Option<(u32, u32)>,
    pub sacks: [(u32, u32); 4],
    pub sack_count: usize,
}

/// Why a frame is not a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// Another protocol.
    Other,
    /// A fragment of an IP packet.
    Fragment,
    /// The capture truncated its headers.
    Cut,
    /// Its lengths contradict each other.
    Malformed,
    /// Its link header is of an unknown type.
    Link(u32),
    /// It is in a tunnel that cannot be read.
    Hidden(Tunnel),
}

/// Returns the TCP segment of an IPv4 packet, or its other content.
///
/// # Errors
/// The reason why it cannot be read.
pub fn ipv4(packet: &[u8], wire_bytes: u32, is_measured: bool) -> Result<Carried, Skipped> {
    let header = packet.get(..20).ok_or(Skipped::Cut)?;
    let header_bytes = usize::from(header[0] & 0xf) * 4;
    if header_bytes < 20 {
        return Err(Skipped::Malformed);
    }
    let protocol = header[9];
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    // the first fragment of a tunnel packet still holds the inner headers
    let rest = if protocol == 6 { 0x3fff } else { 0x1fff };
    if fragment & rest != 0 {
        return Err(Skipped::Fragment);
    }
    if protocol != 6 {
        return Ok(Carried::Other {
            protocol,
            header_bytes,
        });
    }
    let total = u32::from(u16::from_be_bytes([header[2], header[3]]));
    // 0 means that the network card was to split it into packets
    let total = match total {
        0 => wire_bytes,
        total if is_measured => total.min(wire_bytes),
        total => total,
    };
    let address = |at: usize| {
        IpAddr::V4(Ipv4Addr::new(
            header[at],
            header[at + 1],
            header[at + 2],
            header[at + 3],
        ))
    };
    let rest = packet.get(header_bytes..).ok_or(Skipped::Cut)?;
    let id = u16::from_be_bytes([header[4], header[5]]);
    let mut segment = tcp(address(12), address(16), rest, header_bytes as u32, total)?;
    segment.packet.id = (id != 0).then_some(id);
    segment.packet.ttl = header[8];
    Ok(Carried::Segment(segment))
}

/// Returns the TCP segment of an IPv6 packet, or its other content.
///
/// # Errors
/// The reason why it cannot be read.
pub fn ipv6(packet: &[u8], wire_bytes: u32, is_measured: bool) -> Result<Carried, Skipped> {
    let header = packet.get(..40).ok_or(Skipped::Cut)?;
    let payload = u32::from(u16::from_be_bytes([header[4], header[5]]));
    let total = match payload {
        0 => wire_bytes,
        payload if is_measured => (payload + 40).min(wire_bytes),
        payload => payload + 40,
    };
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    let (mut next, mut at) = (header[6], 40);
    loop {
        let extension = packet.get(at..).ok_or(Skipped::Cut)?;
        let length = match next {
            6 => {
                let mut segment = tcp(address(8), address(24), extension, at as u32, total)?;
                segment.packet.ttl = header[7];
                return Ok(Carried::Segment(segment));
            }
            0 | 43 | 60 => usize::from(*extension.get(1).ok_or(Skipped::Cut)?) * 8 + 8,
            51 => usize::from(*extension.get(1).ok_or(Skipped::Cut)?) * 4 + 8,
            44 => {
                let fragment = extension.get(2..4).ok_or(Skipped::Cut)?;
                // the only fragment of a packet is the whole packet (RFC 6946)
                if fragment[0] != 0 || fragment[1] & 0xf9 != 0 {
                    return Err(Skipped::Fragment);
                }
                8
            }
            protocol => {
                return Ok(Carried::Other {
                    protocol,
                    header_bytes: at,
                });
            }
        };
        next = *extension.first().ok_or(Skipped::Cut)?;
        at += length;
    }
}

fn tcp(
    from: IpAddr,
    to: IpAddr,
    bytes: &[u8],
    ip_header_bytes: u32,
    total: u32,
) -> Result<Segment, Skipped> {
    let header = bytes.get(..20).ok_or(Skipped::Cut)?;
    let header_bytes = usize::from(header[12] >> 4) * 4;
    if header_bytes < 20 {
        return Err(Skipped::Malformed);
    }
    let headers = ip_header_bytes + header_bytes as u32;
    let payload_bytes = total.checked_sub(headers).ok_or(Skipped::Malformed)?;
    let u16_at = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let u32_at = |at: usize| {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    // with only the fixed part of the header, sequence numbers are still known
    let options = bytes.get(20..header_bytes.min(bytes.len())).unwrap_or(&[]);
    Ok(Segment {
        from: (from, u16_at(0)),
        to: (to, u16_at(2)),
        seq: u32_at(4),
        ack: u32_at(8),
        flags: header[13],
        window: u16_at(14),
        payload_bytes,
        header_bytes: headers,
        options: parse_options(options),
        packet: Packet {
            checksum: u16_at(16),
            ..Packet::default()
        },
    })
}

fn parse_options(mut bytes: &[u8]) -> Options {
    let mut options = Options::default();
    let u32_of = |b: &[u8]| u32::from_be_bytes([b[0], b[1], b[2], b[3]]);
    while let [kind, rest @ ..] = bytes {
        if *kind == 0 {
            break;
        }
        if *kind == 1 {
            bytes = rest;
            continue;
        }
        let Some(length) = rest.first().map(|length| usize::from(*length)) else {
            break;
        };
        let Some(value) = bytes.get(2..length) else {
            break;
        };
        match (kind, value.len()) {
            (2, 2) => options.mss = Some(u16::from_be_bytes([value[0], value[1]])),
            (3, 1) => options.window_scale = Some(value[0].min(14)), // RFC 7323, section 2.3
            (8, 8) => options.timestamps = Some((u32_of(value), u32_of(&value[4..]))),
            (5, _) => {
                for block in value.chunks_exact(8).take(4) {
                    options.sacks[options.sack_count] = (u32_of(block), u32_of(&block[4..]));
                    options.sack_count += 1;
                }
            }
            _ => {}
        }
        bytes = &bytes[length..];
    }
    options
}
