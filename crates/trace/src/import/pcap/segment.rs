//! From a captured frame to a TCP segment: link header, IPv4 or IPv6, TCP with its options.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// What matters of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub from: (IpAddr, u16),
    pub to: (IpAddr, u16),
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub payload_bytes: u32,
    /// The packet's size with IP and TCP headers, without payload.
    pub header_bytes: u32,
    pub options: Options,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
    pub timestamps: Option<(u32, u32)>,
    pub sacks: [(u32, u32); 4],
    pub sack_count: usize,
}

/// Why a frame is no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// Another protocol.
    Other,
    /// A fragment of an IP packet.
    Fragment,
    /// The capture cut it within the headers.
    Cut,
    /// Its lengths contradict each other.
    Malformed,
    /// Its link header is of a kind that is not known.
    Link(u32),
}

/// Takes off the link's header; `wire_bytes` is the frame's length before the capture cut it.
pub fn parse(link: u32, frame: &[u8], wire_bytes: u32) -> Result<Segment, Skipped> {
    let take = |count: usize| frame.get(count..).ok_or(Skipped::Cut);
    let ethertype = |at: usize| match frame.get(at..at + 2) {
        Some(bytes) => Ok(u16::from_be_bytes([bytes[0], bytes[1]])),
        None => Err(Skipped::Cut),
    };
    let (header, kind) = match link {
        0 | 108 => (4, None), // loopback of BSDs
        1 => {
            let mut at = 12;
            // VLAN tags
            while matches!(ethertype(at)?, 0x8100 | 0x88a8 | 0x9100) {
                at += 4;
            }
            (at + 2, Some(ethertype(at)?))
        }
        12 | 14 | 101 | 228 | 229 => (0, None),
        113 => (16, Some(ethertype(14)?)),
        276 => (20, Some(ethertype(0)?)),
        other => return Err(Skipped::Link(other)),
    };
    if kind.is_some_and(|kind| kind != 0x0800 && kind != 0x86dd) {
        return Err(Skipped::Other);
    }
    let packet = take(header)?;
    let wire_bytes = wire_bytes.saturating_sub(header as u32);
    match packet.first().ok_or(Skipped::Cut)? >> 4 {
        4 => ipv4(packet, wire_bytes),
        6 => ipv6(packet, wire_bytes),
        _ => Err(Skipped::Other),
    }
}

fn ipv4(packet: &[u8], wire_bytes: u32) -> Result<Segment, Skipped> {
    let header = packet.get(..20).ok_or(Skipped::Cut)?;
    let header_bytes = usize::from(header[0] & 0xf) * 4;
    if header_bytes < 20 {
        return Err(Skipped::Malformed);
    }
    if header[9] != 6 {
        return Err(Skipped::Other);
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    if fragment & 0x3fff != 0 {
        return Err(Skipped::Fragment);
    }
    let total = u32::from(u16::from_be_bytes([header[2], header[3]]));
    // 0 for what the network card was to cut into packets
    let total = if total == 0 { wire_bytes } else { total };
    let address = |at: usize| {
        IpAddr::V4(Ipv4Addr::new(
            header[at],
            header[at + 1],
            header[at + 2],
            header[at + 3],
        ))
    };
    let rest = packet.get(header_bytes..).ok_or(Skipped::Cut)?;
    tcp(address(12), address(16), rest, header_bytes as u32, total)
}

fn ipv6(packet: &[u8], wire_bytes: u32) -> Result<Segment, Skipped> {
    let header = packet.get(..40).ok_or(Skipped::Cut)?;
    let payload = u32::from(u16::from_be_bytes([header[4], header[5]]));
    let total = if payload == 0 {
        wire_bytes
    } else {
        payload + 40
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
            6 => return tcp(address(8), address(24), extension, at as u32, total),
            0 | 43 | 60 => usize::from(*extension.get(1).ok_or(Skipped::Cut)?) * 8 + 8,
            51 => usize::from(*extension.get(1).ok_or(Skipped::Cut)?) * 4 + 8,
            44 => return Err(Skipped::Fragment),
            _ => return Err(Skipped::Other),
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
    // a capture of the headers' fixed part alone still tells of sequence numbers
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
