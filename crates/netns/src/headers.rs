//! What the headers of a packet say.

/// What protocol a packet is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Anything else.
    Other,
}

/// What the headers of any packet say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// What follows the header of IP.
    pub protocol: Protocol,
    /// The last 32 bits of the sender's and the receiver's address.
    pub addresses: (u32, u32),
    /// Ports at the sender and the receiver of the packet; 0 for other protocols.
    pub ports: (u16, u16),
    /// TCP's sequence number; 0 for other protocols.
    pub sequence: u32,
    /// Bytes after all headers.
    pub payload_bytes: u32,
    /// Whether a queue may mark it (ECT(0), ECT(1) or CE).
    pub ecn_capable: bool,
}

impl Headers {
    /// A number for the conversation that the packet belongs to, one direction of it.
    #[inline]
    pub fn conversation(&self) -> u64 {
        let (from, to) = self.addresses;
        let (from_port, to_port) = self.ports;
        let addresses = u64::from(from) << 32 | u64::from(to);
        let ports = u64::from(from_port) << 16 | u64::from(to_port);
        // Fibonacci hashing, so that ports reach the bits that addresses have
        addresses
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            ^ (ports << 2 | self.protocol as u64)
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Reads the headers of a packet over IPv4, or over IPv6 without extension headers; none if it is
/// something else.
#[inline]
pub fn read_headers(packet: &[u8]) -> Option<Headers> {
    let last = |end: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| packet[end - 4 + byte]));
    let (header_bytes, protocol, addresses, ecn) = match packet.first()? >> 4 {
        4 if packet.len() >= 20 => {
            let header_bytes = usize::from(packet[0] & 0x0f) * 4;
            (header_bytes, packet[9], (last(16), last(20)), packet[1] & 3)
        }
        6 if packet.len() >= 40 => (40, packet[6], (last(24), last(40)), (packet[1] >> 4) & 3),
        _ => return None,
    };
    let rest = packet.get(header_bytes..)?;
    let ports = |rest: &[u8]| {
        let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
        (port(0), port(2))
    };
    let mut headers = Headers {
        protocol: Protocol::Other,
        addresses,
        ports: (0, 0),
        sequence: 0,
        payload_bytes: rest.len() as u32,
        ecn_capable: ecn != 0,
    };
    if protocol == TCP && rest.len() >= 20 {
        headers.protocol = Protocol::Tcp;
        headers.ports = ports(rest);
        headers.sequence = u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]);
        headers.payload_bytes = rest.len().saturating_sub(usize::from(rest[12] >> 4) * 4) as u32;
    } else if protocol == UDP && rest.len() >= 8 {
        headers.protocol = Protocol::Udp;
        headers.ports = ports(rest);
        headers.payload_bytes = rest.len() as u32 - 8;
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_packet_has_no_headers_beyond_its_end() {
        let mut packet = vec![0; 20 + 20 + 5];
        (packet[0], packet[9], packet[32]) = (0x45, TCP, 5 << 4);
        let headers = read_headers(&packet).unwrap();
        assert_eq!(
            (headers.protocol, headers.payload_bytes),
            (Protocol::Tcp, 5)
        );
        assert_eq!(
            read_headers(&packet[..39]).unwrap().protocol,
            Protocol::Other
        );
        assert_eq!(read_headers(&packet[..19]), None);
        packet[0] = 0x4f; // a header of 60 bytes
        assert_eq!(read_headers(&packet), None);
    }
}
