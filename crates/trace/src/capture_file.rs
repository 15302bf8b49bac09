//! Packet captures as files: headers of TCP and UDP over IPv4, as pcapng.
//!
//! <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-02.html>; the importer in `import/pcap` reads them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::Ipv4Addr;

/// LINKTYPE_RAW: packets begin with an IP header.
const RAW_IP: u16 = 101;
const IP_BYTES: usize = 20;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const MOST_OPTION_BYTES: usize = 40;
/// A packet is kept only up to the end of its headers.
const SNAP_BYTES: u32 = (IP_BYTES + TCP_BYTES + MOST_OPTION_BYTES) as u32;

/// Flags of TCP (RFC 9293, section 3.1).
pub mod flags {
    /// No more data from the sender.
    pub const FIN: u8 = 1;
    /// Opens a connection.
    pub const SYN: u8 = 2;
    /// Marks the end of one write of the application.
    pub const PSH: u8 = 8;
    /// The acknowledgment number is valid.
    pub const ACK: u8 = 16;
    /// Echoes a congestion mark.
    pub const ECE: u8 = 64;
    /// The window was reduced for a mark.
    pub const CWR: u8 = 128;
}

/// One packet of IPv4.
#[derive(Clone, Copy, Debug)]
pub struct IpPacket {
    /// Address and port of the sender.
    pub from: (Ipv4Addr, u16),
    /// Address and port of the receiver.
    pub to: (Ipv4Addr, u16),
    /// Distinguishes packets with the same content.
    pub id: u16,
    /// Remaining hops.
    pub ttl: u8,
    /// Whether routers may mark it (ECT(0)).
    pub ecn_capable: bool,
    /// Payload bytes. None are written; the checksum counts them as zeros.
    pub payload_bytes: u32,
}

/// The TCP header of a packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpHeader {
    /// Sequence number of the first payload byte.
    pub seq: u32,
    /// The next byte that the sender of this packet expects.
    pub ack: u32,
    /// See [`flags`].
    pub flags: u8,
    /// The window field of the header, after scaling down.
    pub window: u16,
    /// MSS without timestamps, and the window scale. Only packets with SYN have them.
    pub opening: Option<(u16, u8)>,
    /// Timestamp value and echo, in milliseconds.
    pub timestamps: (u32, u32),
    /// SACK blocks: data that arrived past a gap, or twice; at most three.
    pub sacks: [Option<(u32, u32)>; 3],
}

impl TcpHeader {
    fn options(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MOST_OPTION_BYTES);
        match self.opening {
            // MSS, SACK permitted
            Some((mss, _)) => bytes.extend([&[2, 4][..], &mss.to_be_bytes(), &[4, 2]].concat()),
            None => bytes.extend([1, 1]),
        }
        bytes.extend([8, 10]);
        bytes.extend(self.timestamps.0.to_be_bytes());
        bytes.extend(self.timestamps.1.to_be_bytes());
        if let Some((_, scale)) = self.opening {
            bytes.extend([1, 3, 3, scale]);
        }
        let blocks = self.sacks.iter().flatten().count();
        if blocks > 0 {
            bytes.extend([1, 1, 5, 2 + 8 * blocks as u8]);
            for (start, end) in self.sacks.iter().flatten() {
                bytes.extend(start.to_be_bytes());
                bytes.extend(end.to_be_bytes());
            }
        }
        bytes
    }
}

/// The Internet checksum (RFC 1071) over `bytes`, begun with `sum`.
fn checksum(bytes: &[u8], sum: u32) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    let mut sum = words.fold(sum, u32::wrapping_add);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

impl IpPacket {
    fn header(&self, protocol: u8, transport_bytes: usize) -> Vec<u8> {
        let total = (IP_BYTES + transport_bytes) as u32 + self.payload_bytes;
        let mut header = vec![0x45, if self.ecn_capable { 2 } else { 0 }];
        header.extend((total as u16).to_be_bytes());
        header.extend(self.id.to_be_bytes());
        header.extend([0x40, 0, self.ttl, protocol, 0, 0]); // not to be fragmented
        header.extend(self.from.0.octets());
        header.extend(self.to.0.octets());
        let sum = checksum(&header, 0);
        header[10..12].copy_from_slice(&sum);
        header
    }

    /// Returns the captured part of the packet: IP header and `transport`. The transport header has
    /// its checksum at `checksum_at`.
    fn bytes(&self, protocol: u8, mut transport: Vec<u8>, checksum_at: usize) -> Vec<u8> {
        let mut bytes = self.header(protocol, transport.len());
        // the checksum also covers addresses, protocol and length
        let length = transport.len() as u32 + self.payload_bytes;
        let addresses = bytes[12..20].chunks(2);
        let pseudo: u32 = addresses
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        let sum = checksum(&transport, pseudo + u32::from(protocol) + length);
        transport[checksum_at..checksum_at + 2].copy_from_slice(&sum);
        bytes.extend(transport);
        bytes
    }

    fn tcp(&self, tcp: &TcpHeader) -> Vec<u8> {
        let options = tcp.options();
        let mut header = Vec::with_capacity(TCP_BYTES + options.len());
        header.extend(self.from.1.to_be_bytes());
        header.extend(self.to.1.to_be_bytes());
        header.extend(tcp.seq.to_be_bytes());
        header.extend(tcp.ack.to_be_bytes());
        let words = (TCP_BYTES + options.len()) / 4;
        header.extend([(words as u8) << 4, tcp.flags]);
        header.extend(tcp.window.to_be_bytes());
        header.extend([0; 4]);
        header.extend(options);
        self.bytes(6, header, 16)
    }

    fn udp(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(UDP_BYTES);
        header.extend(self.from.1.to_be_bytes());
        header.extend(self.to.1.to_be_bytes());
        header.extend((UDP_BYTES as u16 + self.payload_bytes as u16).to_be_bytes());
        header.extend([0; 2]);
        self.bytes(17, header, 6)
    }
}

/// Writes packets to a file as they arrive.
pub struct CaptureWriter<'a> {
    file: BufWriter<&'a mut File>,
    failed: Option<String>,
}

impl<'a> CaptureWriter<'a> {
    /// Begins a capture in `file`; `name` is the program that writes it.
    pub fn new(file: &'a mut File, name: &str) -> Self {
        let mut writer = Self {
            file: BufWriter::with_capacity(1 << 16, file),
            failed: None,
        };
        let mut section = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
        // shb_userappl
        section.extend(4u16.to_le_bytes());
        section.extend((name.len() as u16).to_le_bytes());
        section.extend(name.bytes());
        section.resize(section.len().next_multiple_of(4), 0);
        section.extend([0; 4]);
        writer.block(0x0a0d_0d0a, &section);
        let mut interface = RAW_IP.to_le_bytes().to_vec();
        interface.extend([0; 2]);
        interface.extend(SNAP_BYTES.to_le_bytes());
        // if_tsresol: nanoseconds
        interface.extend([9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        writer.block(1, &interface);
        writer
    }

    fn block(&mut self, kind: u32, body: &[u8]) {
        let length = (body.len() as u32 + 12).to_le_bytes();
        for part in [&kind.to_le_bytes()[..], &length, body, &length] {
            if self.failed.is_none()
                && let Err(error) = self.file.write_all(part)
            {
                self.failed = Some(error.to_string());
            }
        }
    }

    fn packet(&mut self, time_ns: u64, headers: &[u8], payload_bytes: u32) {
        let captured = headers.len() as u32;
        let mut body = [0u32, (time_ns >> 32) as u32, time_ns as u32, captured]
            .map(u32::to_le_bytes)
            .concat();
        body.extend((captured + payload_bytes).to_le_bytes());
        body.extend(headers);
        body.resize(body.len().next_multiple_of(4), 0);
        self.block(6, &body);
    }

    /// Writes a TCP packet, captured at `time_ns` since 1970.
    pub fn tcp(&mut self, time_ns: u64, packet: &IpPacket, header: &TcpHeader) {
        self.packet(time_ns, &packet.tcp(header), packet.payload_bytes);
    }

    /// Writes a UDP datagram, captured at `time_ns` since 1970.
    pub fn udp(&mut self, time_ns: u64, packet: &IpPacket) {
        self.packet(time_ns, &packet.udp(), packet.payload_bytes);
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The reason why the file cannot be written, now or at an earlier packet.
    pub fn finish(mut self) -> Result<(), String> {
        let flushed = self.file.flush().map_err(|error| error.to_string());
        self.failed.map_or(flushed, Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: IpPacket = IpPacket {
        from: (Ipv4Addr::new(10, 0, 0, 1), 40_000),
        to: (Ipv4Addr::new(10, 0, 1, 1), 5001),
        id: 7,
        ttl: 64,
        ecn_capable: false,
        payload_bytes: 3,
    };

    /// The checksums that a receiver computes: zero for an intact packet.
    fn sums(bytes: &[u8], protocol: u8) -> [[u8; 2]; 2] {
        let (ip, transport) = bytes.split_at(IP_BYTES);
        let pseudo = [
            &ip[12..20],
            &[0, protocol],
            &(transport.len() as u16 + 3).to_be_bytes(),
            transport,
        ];
        [checksum(ip, 0), checksum(&pseudo.concat(), 0)]
    }

    #[test]
    fn checksums_add_up_and_options_fill_whole_words() {
        let header = TcpHeader {
            seq: 1,
            flags: flags::ACK,
            sacks: [Some((5, 9)), Some((20, 30)), Some((1, 2))],
            ..TcpHeader::default()
        };
        let bytes = PACKET.tcp(&header);
        assert_eq!(bytes.len(), SNAP_BYTES as usize);
        assert_eq!(sums(&bytes, 6), [[0; 2]; 2]);
        assert_eq!(bytes[32] >> 4, 15);
        let opening = TcpHeader {
            opening: Some((1460, 7)),
            ..TcpHeader::default()
        };
        assert_eq!(PACKET.tcp(&opening).len(), 60);
        assert_eq!(sums(&PACKET.udp(), 17), [[0; 2]; 2]);
    }
}
