//! Captures built byte by byte.

mod copies;
mod hostile;
mod tunnels;
mod vantage;

use crate::import::testing::{never_panics, packets, read, read_prefix};
use crate::record::PacketEvent;

const FROM: [u8; 4] = [10, 0, 0, 1];
const TO: [u8; 4] = [10, 0, 0, 2];

/// TCP with its options, then IPv4 or IPv6 around it.
#[derive(Clone, Copy)]
struct Tcp {
    backward: bool,
    seq: u32,
    ack: u32,
    flags: u8,
    payload: u16,
    mss: Option<u16>,
    sack: Option<(u32, u32)>,
    stamps: Option<(u32, u32)>,
    id: u16,
    ttl: u8,
    checksum: u16,
}

const DATA: Tcp = Tcp {
    backward: false,
    seq: 0,
    ack: 1,
    flags: 16,
    payload: 1000,
    mss: None,
    sack: None,
    stamps: None,
    id: 0,
    ttl: 64,
    checksum: 0,
};

const REPLY: Tcp = Tcp {
    backward: true,
    seq: 1,
    payload: 0,
    ..DATA
};

impl Tcp {
    fn bytes(self) -> Vec<u8> {
        let mut options = Vec::new();
        if let Some(mss) = self.mss {
            options.extend([2, 4]);
            options.extend(mss.to_be_bytes());
        }
        if let Some((value, echo)) = self.stamps {
            options.extend([1, 1, 8, 10]);
            options.extend(value.to_be_bytes());
            options.extend(echo.to_be_bytes());
        }
        if let Some((from, to)) = self.sack {
            options.extend([1, 1, 5, 10]);
            options.extend(from.to_be_bytes());
            options.extend(to.to_be_bytes());
        }
        let (from, to): (u16, u16) = if self.backward {
            (80, 4444)
        } else {
            (4444, 80)
        };
        let mut bytes = Vec::new();
        bytes.extend(from.to_be_bytes());
        bytes.extend(to.to_be_bytes());
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        bytes.extend([((20 + options.len()) as u8 / 4) << 4, self.flags]);
        bytes.extend([1, 0]);
        bytes.extend(self.checksum.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(options);
        bytes
    }

    /// Truncated to the headers, as in captures with a snap length.
    fn ipv4(self) -> Vec<u8> {
        let tcp = self.bytes();
        let total = (20 + tcp.len()) as u16 + self.payload;
        let mut bytes = vec![0x45, 0];
        bytes.extend(total.to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes.extend([0x40, 0, self.ttl, 6, 0, 0]);
        let (from, to) = if self.backward {
            (TO, FROM)
        } else {
            (FROM, TO)
        };
        bytes.extend(from);
        bytes.extend(to);
        bytes.extend(tcp);
        bytes
    }

    fn ipv6(self) -> Vec<u8> {
        let tcp = self.bytes();
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend(((8 + tcp.len()) as u16 + self.payload).to_be_bytes());
        bytes.extend([0, 64]); // hop-by-hop options, then TCP
        for last in if self.backward { [2, 1] } else { [1, 2] } {
            bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        bytes.extend([6, 0, 1, 4, 0, 0, 0, 0]);
        bytes.extend(tcp);
        bytes
    }
}

/// Packets, with the time of each in microseconds.
type Script = Vec<(u32, Tcp)>;

/// Windows of 4, then 5 packets, with one lost and repaired. Sequence numbers wrap in between.
fn script() -> Script {
    let isn: u32 = u32::MAX - 2500;
    let at = |packet: u32| isn.wrapping_add(1).wrapping_add(packet * 1000);
    let mut script = vec![
        (
            0,
            Tcp {
                seq: isn,
                ack: 0,
                flags: 2,
                payload: 0,
                mss: Some(1000),
                ..DATA
            },
        ),
        (
            20_000,
            Tcp {
                seq: 0,
                ack: at(0),
                flags: 18,
                mss: Some(1460),
                ..REPLY
            },
        ),
        (
            20_010,
            Tcp {
                seq: at(0),
                payload: 0,
                ..DATA
            },
        ),
    ];
    let data = |packet: u32| Tcp {
        seq: at(packet),
        ..DATA
    };
    let ack = |packet: u32| Tcp {
        ack: at(packet),
        ..REPLY
    };
    for packet in 0..4 {
        script.push((20_020 + packet, data(packet)));
    }
    script.push((40_020, ack(2)));
    for packet in 4..7 {
        script.push((40_030 + packet, data(packet)));
    }
    // packet 2 is lost
    for (i, end) in (4..8).enumerate() {
        let sack = Some((at(3), at(end)));
        script.push((60_000 + i as u32, Tcp { sack, ..ack(2) }));
    }
    script.push((60_100, data(2)));
    script.push((80_100, ack(7)));
    script.push((80_200, data(7)));
    script.push((100_200, ack(8)));
    script
}

fn pcap(script: &Script, link: u32, big_endian: bool, frame: fn(Tcp) -> Vec<u8>) -> Vec<u8> {
    let word = |value: u32| match big_endian {
        true => value.to_be_bytes(),
        false => value.to_le_bytes(),
    };
    let mut bytes = Vec::new();
    for value in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 96, link] {
        bytes.extend(word(value));
    }
    for &(time_us, tcp) in script {
        let frame = frame(tcp);
        let wire = frame.len() as u32 + u32::from(tcp.payload);
        for value in [1_700_000_000, time_us, frame.len() as u32, wire] {
            bytes.extend(word(value));
        }
        bytes.extend(frame);
    }
    bytes
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let length = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, &body, &length].concat()
}

fn pcapng(script: &Script) -> Vec<u8> {
    let header = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let mut bytes = block(0x0a0d_0d0a, &header);
    // raw IP; nanoseconds
    bytes.extend(block(
        1,
        &[101, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0],
    ));
    bytes.extend(block(5, &[0; 12]));
    for &(time_us, tcp) in script {
        let frame = tcp.ipv4();
        let time = 1_700_000_000_000_000_000u64 + u64::from(time_us) * 1000;
        let mut body = 0u32.to_le_bytes().to_vec();
        body.extend(((time >> 32) as u32).to_le_bytes());
        body.extend((time as u32).to_le_bytes());
        body.extend((frame.len() as u32).to_le_bytes());
        body.extend((frame.len() as u32 + u32::from(tcp.payload)).to_le_bytes());
        body.extend(frame);
        bytes.extend(block(6, &body));
    }
    bytes
}

fn ethernet(tcp: Tcp) -> Vec<u8> {
    [&[0; 12][..], &[0x81, 0, 0, 5, 8, 0], &tcp.ipv4()].concat()
}

fn cooked(tcp: Tcp) -> Vec<u8> {
    [&[0; 14][..], &[0x86, 0xdd], &tcp.ipv6()].concat()
}

fn cooked2(tcp: Tcp) -> Vec<u8> {
    [&[8, 0][..], &[0; 18], &tcp.ipv4()].concat()
}

#[test]
fn windows_are_the_bytes_in_flight_before_each_acknowledgment() {
    let read = read(pcap(&script(), 101, false, Tcp::ipv4)).unwrap();
    let windows: Vec<f64> = read.trace.records.iter().map(|r| r.cwnd_packets).collect();
    // 4 sent; 2 acknowledged and 3 sent; then arrivals one by one, the third of which indicates a
    // loss; packet 2 again; packet 7
    assert_eq!(windows, [4.0, 5.0, 4.0, 3.0, 1.0, 1.0, 1.0]);
    let last = read.trace.records.last().unwrap();
    assert_eq!(
        (last.snd_nxt_bytes, last.snd_una_bytes),
        (Some(8000), Some(7000))
    );
    assert_eq!(last.retransmits, Some(1));
    assert!((last.srtt_s.unwrap() - 0.02).abs() < 3e-3, "{last:?}");
    assert_eq!(read.trace.metadata.mss_bytes, Some(1000));
    let flow = &read.trace.metadata.environment["flow 0"];
    assert_eq!(flow, "10.0.0.1:4444 -> 10.0.0.2:80");
    assert_eq!(read.warnings, Vec::<String>::new());
}

#[test]
fn containers_and_link_headers_give_the_same() {
    let plain = read(pcap(&script(), 101, false, Tcp::ipv4))
        .unwrap()
        .trace
        .records;
    for (what, capture) in [
        ("big-endian", pcap(&script(), 101, true, Tcp::ipv4)),
        (
            "Ethernet with a VLAN tag",
            pcap(&script(), 1, false, ethernet),
        ),
        ("SLL with IPv6", pcap(&script(), 113, true, cooked)),
        ("SLL2", pcap(&script(), 276, false, cooked2)),
        ("pcapng", pcapng(&script())),
    ] {
        let records = read(capture)
            .unwrap_or_else(|e| panic!("{what}: {e}"))
            .trace
            .records;
        assert_eq!(records, plain, "{what}");
    }
}

#[test]
fn the_packet_table_has_each_packet_as_often_as_it_was_sent() {
    let mut script = script();
    // two packets in one, as a capture shows them before the network card splits them
    script.retain(|(time_us, _)| *time_us != 20_021);
    script[3].1.payload = 2000;
    let packets = packets(pcap(&script, 101, false, Tcp::ipv4))
        .unwrap()
        .records;
    let numbers: Vec<u64> = packets.iter().map(|packet| packet.seq).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 2, 7]);
    assert!(
        packets
            .iter()
            .all(|p| p.size_bytes == 1040 && p.event == PacketEvent::Sent)
    );
}

#[test]
fn the_busiest_flow_is_followed_and_others_by_number() {
    let mut all = script();
    all.push((
        200_000,
        Tcp {
            backward: true,
            payload: 100,
            seq: 1,
            ack: 0,
            ..DATA
        },
    ));
    all.push((
        220_000,
        Tcp {
            seq: 5000,
            ack: 101,
            payload: 0,
            ..DATA
        },
    ));
    let capture = pcap(&all, 101, false, Tcp::ipv4);
    let options = |flow| crate::ReadOptions {
        flow: Some(flow),
        ..Default::default()
    };
    let path = std::path::Path::new("f");
    let one = crate::read_bytes(path, &capture, &options(1)).unwrap();
    assert_eq!(one.trace.records.len(), 1);
    assert_eq!(one.trace.records[0].flow, 1);
    let error = crate::read_bytes(path, &capture, &options(2)).unwrap_err();
    assert_eq!(error.to_string(), "f: has no flow 2; its flows are 0 to 1");
}

#[test]
fn the_last_data_has_a_row_though_nothing_acknowledges_it() {
    let mut script = script();
    script.pop();
    let again = script[script.len() - 1].1;
    script.push((300_000, again));
    let records = read(pcap(&script, 101, false, Tcp::ipv4))
        .unwrap()
        .trace
        .records;
    let last = records.last().unwrap();
    assert_eq!(
        (last.snd_nxt_bytes, last.retransmits),
        (Some(8000), Some(2))
    );
    // and a capture without acknowledgments has nothing else
    let script = vec![(0, DATA)];
    let records = read(pcap(&script, 101, false, Tcp::ipv4))
        .unwrap()
        .trace
        .records;
    assert_eq!(records.len(), 1);
    assert_eq!(
        (records[0].snd_nxt_bytes, records[0].retransmits),
        (Some(1000), Some(0))
    );
}

#[test]
fn flows_are_listed_with_what_they_carried() {
    let about = read(pcap(&script(), 101, false, Tcp::ipv4))
        .unwrap()
        .trace
        .metadata
        .environment;
    assert_eq!(about["flow 0"], "10.0.0.1:4444 -> 10.0.0.2:80");
    assert_eq!(about["flow 0 carried"], "9000 B in 0.100 s");
    assert_eq!(about["sent_again_packets"], "1");
    assert_eq!(about["sent_again_bytes"], "1000");
}

#[test]
fn a_cut_capture_is_refused_by_byte_or_kept_so_far() {
    let mut capture = pcap(&script(), 101, false, Tcp::ipv4);
    capture.truncate(capture.len() - 5);
    let error = read(&capture).unwrap_err();
    let record = capture.len() + 5 - 40;
    assert_eq!(
        error,
        format!("f: byte {record}: the file ends within a packet")
    );
    let kept = read_prefix(&capture).unwrap();
    assert_eq!(kept.trace.records.len(), 6);
    assert!(
        kept.warnings[0].ends_with("the 6 rows before it are kept"),
        "{:?}",
        kept.warnings
    );
    let mut huge = pcap(&script(), 101, false, Tcp::ipv4);
    huge[32..36].copy_from_slice(&[0xff; 4]);
    let error = read(&huge).unwrap_err();
    assert!(
        error.starts_with("f: byte 24: got a packet of 4294967295 B"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_followed_is_said() {
    let error = read(pcap(&script(), 147, false, Tcp::ipv4)).unwrap_err();
    assert!(
        error.contains("link header 147, which is not known"),
        "{error}"
    );
    let handshake = script()[..3].to_vec();
    let error = read(pcap(&handshake, 101, false, Tcp::ipv4)).unwrap_err();
    assert_eq!(error, "f: has 3 TCP packets, none of which carries data");
}

never_panics!(
    pcap(&script(), 1, false, ethernet),
    pcap(&script(), 113, true, cooked),
    pcapng(&script()),
);

#[test]
fn a_packet_that_says_it_was_gigabytes_is_damage_and_not_millions_of_segments() {
    let mut file = pcap(&script(), 101, false, Tcp::ipv4);
    file[36..40].copy_from_slice(&0xffff_fbf1u32.to_le_bytes());
    let error = packets(&file).unwrap_err();
    assert!(
        error.starts_with("f: byte 24: got a packet of 4294966257 B on the wire"),
        "{error}"
    );
}
