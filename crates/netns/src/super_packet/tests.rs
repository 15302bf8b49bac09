//! Splitting and joining undo each other, and bytes from anywhere break neither.

use super::checksum::{add, complete, fold};
use super::layout::{Layout, TCP, UDP};
use super::{HEADER_BYTES, Join, Segment, Segments, VirtioHeader};

const MTU: usize = 1500;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Numbers that are the same in each run (xorshift64, Marsaglia 2003).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

/// A packet with random addresses, ports, options and payload, whose checksum is the sum of its pseudo header.
fn packet(
    numbers: &mut Numbers,
    v6: bool,
    protocol: u8,
    payload_bytes: usize,
    flags: u8,
) -> Vec<u8> {
    let options = [0, 12, 40][numbers.below(3)];
    let (ip, transport) = match (v6, protocol) {
        (true, TCP) => (40, 20 + options),
        (false, TCP) => (20 + [0, 4][numbers.below(2)], 20 + options),
        (v6, _) => (if v6 { 40 } else { 20 }, 8),
    };
    let mut packet = numbers.bytes(ip + transport + payload_bytes);
    if v6 {
        packet[0] = 0x60;
        packet[6] = protocol;
    } else {
        packet[0] = 0x40 | (ip / 4) as u8;
        packet[6..8].copy_from_slice(&[0x40, 0]); // do not fragment
        packet[9] = protocol;
    }
    if protocol == TCP {
        packet[ip + 12] = (transport as u8 / 4) << 4;
        packet[ip + 13] = flags;
    }
    finish(&mut packet, v6);
    packet
}

/// Writes lengths and sums.
fn finish(packet: &mut [u8], v6: bool) {
    let size = packet.len();
    if v6 {
        packet[4..6].copy_from_slice(&((size - 40) as u16).to_be_bytes());
    } else {
        packet[2..4].copy_from_slice(&(size as u16).to_be_bytes());
    }
    let layout = Layout::of(packet).unwrap();
    let sum = layout.pseudo_sum(packet);
    layout.set_lengths(packet, size, sum);
}

/// What a device gives for a super-packet.
fn read_of(packet: &[u8], gso_size: usize) -> Vec<u8> {
    let layout = Layout::of(packet).unwrap();
    let mut header = VirtioHeader::super_packet(&layout, gso_size as u16).to_bytes();
    if layout.protocol == UDP {
        header[1] = 5;
    }
    [&header, packet].concat()
}

fn split(read: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut read = read.to_vec();
    let mut segments = Segments::of(&mut read, MTU)?;
    let mut packets = Vec::new();
    let mut room = [0; MTU];
    while let Some(segment) = segments.next_into(&mut room) {
        packets.push(room[..segment.size_bytes].to_vec());
    }
    Ok(packets)
}

/// Whether the checksums of IP and of what is in it are right, the latter when it is completed.
fn sums_are_right(packet: &[u8]) -> bool {
    let layout = Layout::of(packet).unwrap();
    let (ip, mut packet) = (layout.ip_bytes, packet.to_vec());
    assert!(complete(&mut packet, ip, layout.checksum_offset()));
    let addresses = if layout.v6 { 8..40 } else { 12..20 };
    let length = (packet.len() - ip) as u64 + u64::from(layout.protocol);
    let whole = fold(add(add(length, &packet[addresses]), &packet[ip..]));
    (layout.v6 || fold(add(0, &packet[..ip])) == 0xffff) && whole == 0xffff
}

#[test]
fn what_is_split_and_joined_again_has_the_same_bytes() {
    let mut numbers = Numbers(1);
    for round in 0..400 {
        let v6 = round % 2 == 0;
        let most = 60_000.min(1 << (4 + numbers.below(13)));
        let payload_bytes = 1 + numbers.below(most);
        let flags = if round % 3 == 0 { ACK | PSH } else { ACK };
        let whole = packet(&mut numbers, v6, TCP, payload_bytes, flags);
        let layout = Layout::of(&whole).unwrap();
        let room = MTU - layout.header_bytes;
        let gso_size = (payload_bytes / 40 + 1 + numbers.below(room)).min(room);
        let packets = split(&read_of(&whole, gso_size)).unwrap();
        assert_eq!(packets.len(), payload_bytes.div_ceil(gso_size));
        let mut payload: Vec<u8> = Vec::new();
        for (number, packet) in packets.iter().enumerate() {
            assert!(packet.len() <= MTU && sums_are_right(packet));
            let ip = layout.ip_bytes;
            let last = number + 1 == packets.len();
            assert_eq!(packet[ip + 13] & PSH, if last { flags & PSH } else { 0 });
            let word = |bytes: &[u8]| u32::from_be_bytes(bytes[ip + 4..ip + 8].try_into().unwrap());
            assert_eq!(
                word(packet).wrapping_sub(word(&whole)) as usize,
                payload.len()
            );
            let id = |bytes: &[u8]| u16::from_be_bytes([bytes[4], bytes[5]]);
            assert!(v6 || id(packet).wrapping_sub(id(&whole)) as usize == number);
            payload.extend(&packet[layout.header_bytes..]);
        }
        assert_eq!(payload, whole[layout.header_bytes..]);

        let first = packets[0].clone();
        let Some(mut join) = Join::begin(&first) else {
            assert!(packets.len() == 1 && flags & PSH != 0);
            continue;
        };
        for packet in &packets[1..] {
            assert!(join.add(packet));
        }
        assert_eq!(join.packets(), packets.len());
        let (header, headers) = join.headers();
        assert_eq!(headers, &whole[..layout.header_bytes]);
        let again = read_of(&whole, gso_size.min(payload_bytes));
        assert_eq!(header.to_bytes(), again[..HEADER_BYTES]);
    }
}

#[test]
fn flags_that_are_of_one_packet_stay_with_it() {
    const FIN: u8 = 0x01;
    const CWR: u8 = 0x80;
    let whole = packet(&mut Numbers(2), false, TCP, 3000, ACK | PSH | FIN | CWR);
    let at = Layout::of(&whole).unwrap().ip_bytes + 13;
    let packets = split(&read_of(&whole, 1000)).unwrap();
    let flags: Vec<u8> = packets.iter().map(|packet| packet[at]).collect();
    assert_eq!(flags, [ACK | CWR, ACK, ACK | PSH | FIN]);
    // nothing is joined to a packet that says something once
    assert!(Join::begin(&packets[0]).is_none() && Join::begin(&packets[2]).is_none());
    let mut join = Join::begin(&packets[1]).unwrap();
    assert!(join.add(&packets[2]) && join.is_closed());
    assert_eq!(join.headers().1[at], ACK | PSH | FIN);
}

#[test]
fn datagrams_are_split_with_lengths_and_sums_of_their_own() {
    let mut numbers = Numbers(3);
    for v6 in [false, true] {
        let whole = packet(&mut numbers, v6, UDP, 3500, 0);
        let packets = split(&read_of(&whole, 1200)).unwrap();
        let payloads: Vec<usize> = packets
            .iter()
            .map(|packet| packet.len() - Layout::of(packet).unwrap().header_bytes)
            .collect();
        assert_eq!(payloads, [1200, 1200, 1100]);
        for packet in &packets {
            let ip = Layout::of(packet).unwrap().ip_bytes;
            let length = u16::from_be_bytes([packet[ip + 4], packet[ip + 5]]);
            assert_eq!(usize::from(length), packet.len() - ip);
            assert!(sums_are_right(packet));
            assert!(Join::begin(packet).is_none());
        }
    }
}

#[test]
fn nothing_is_joined_that_the_receiver_could_tell_apart() {
    for v6 in [false, true] {
        let whole = packet(&mut Numbers(4), v6, TCP, 4000, ACK);
        let layout = Layout::of(&whole).unwrap();
        let packets = split(&read_of(&whole, 1000)).unwrap();
        let ip = layout.ip_bytes;
        // any bit of the headers but the lengths, the sums, PSH and FIN
        for at in 0..layout.header_bytes {
            let free = match (v6, at) {
                (false, 2 | 3 | 10 | 11) | (true, 4 | 5) => true,
                _ => (ip + 16..ip + 18).contains(&at),
            };
            for bit in 0..8 {
                let mut other = packets[1].clone();
                other[at] ^= 1 << bit;
                let mut join = Join::begin(&packets[0]).unwrap();
                let told = at == ip + 13 && matches!(bit, 0 | 3);
                let taken = join.add(&other);
                assert!(!taken || free || told, "byte {at}, bit {bit}, IPv6 {v6}");
            }
        }
        let mut join = Join::begin(&packets[0]).unwrap();
        assert!(!join.add(&packets[0]) && !join.add(&packets[2]) && join.add(&packets[1]));
        assert!(!join.add(&packets[0][..layout.header_bytes]) && !join.add(&[]));
        assert!(join.add(&packets[2]) && join.add(&packets[3]));
    }
}

#[test]
fn bytes_from_anywhere_break_nothing() {
    let mut numbers = Numbers(5);
    let (mut refused, mut taken) = (0, 0);
    for round in 0..30_000 {
        let mut read = if round % 3 == 0 {
            let count = numbers.below(200);
            numbers.bytes(count)
        } else {
            let protocol = [TCP, UDP][numbers.below(2)];
            let (v6, payload_bytes) = (numbers.below(2) == 0, numbers.below(3000));
            let whole = packet(&mut numbers, v6, protocol, payload_bytes, ACK);
            read_of(&whole, 1 + numbers.below(1600))
        };
        for _ in 0..numbers.below(4) {
            let (at, value) = (numbers.below(read.len().clamp(1, 90)), numbers.below(256));
            if let Some(byte) = read.get_mut(at) {
                *byte = value as u8;
            }
        }
        if round % 5 == 0 {
            read.truncate(numbers.below(read.len() + 1));
        }
        match split(&read) {
            Err(_) => refused += 1,
            Ok(packets) => {
                taken += 1;
                assert!(packets.iter().all(|packet| packet.len() <= MTU));
                let bytes: usize = packets.iter().map(Vec::len).sum();
                assert!(bytes <= packets.len() * 120 + read.len());
                if let Some(mut join) = packets.first().and_then(|first| Join::begin(first)) {
                    packets[1..].iter().for_each(|packet| _ = join.add(packet));
                    join.headers();
                }
            }
        }
        let _ = Join::begin(&read);
    }
    assert!(refused > 1000 && taken > 1000, "{refused} {taken}");
}

#[test]
fn a_checksum_at_an_unusual_place_is_computed_and_one_outside_refused() {
    let mut whole = packet(&mut Numbers(6), false, UDP, 100, 0);
    whole[9] = 132; // as the kernel does it for what it has no other name for
    let read = |start: u16, offset: u16| {
        let mut header = [0; HEADER_BYTES];
        header[0] = 1;
        header[6..8].copy_from_slice(&start.to_ne_bytes());
        header[8..10].copy_from_slice(&offset.to_ne_bytes());
        [&header, &whole[..]].concat()
    };
    let mut bytes = read(60, 10);
    let mut segments = Segments::of(&mut bytes, MTU).unwrap();
    let mut room = [0; MTU];
    let segment = segments.next_into(&mut room).unwrap();
    let Segment {
        size_bytes,
        unsummed,
    } = segment;
    assert!(!unsummed && size_bytes == whole.len());
    assert_eq!(room[..70], whole[..70]);
    assert_ne!(room[70..72], whole[70..72]);
    assert!(segments.next_into(&mut room).is_none());
    for (start, offset) in [(200, 0), (60, 70), (u16::MAX, u16::MAX), (127, 0)] {
        assert!(Segments::of(&mut read(start, offset), MTU).is_err());
    }
    assert!(
        Segments::of(&mut read(60, 10), 100).is_err(),
        "larger than the MTU"
    );
}
