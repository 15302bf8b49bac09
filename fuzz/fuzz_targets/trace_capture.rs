//! Packets of captures: the container is made here and right, so that what is looked for lies in the
//! headers of packets, in tunnels, and in the order of what a flow sends.
//!
//! An input begins with the kind of link header. Each packet then has its length in the capture, what
//! it was longer on the wire, and the time since the one before, of 2 bytes each, and its bytes.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use pathcast_fuzz::{check_trace, write_seeds};
use pathcast_trace::{ReadOptions, packets_of_bytes, read_bytes};

/// Ethernet, loopback, PPP, FDDI, raw IP, 802.11, Linux cooked 1, radiotap, Linux cooked 2.
const LINKS: [u32; 9] = [1, 0, 9, 10, 101, 105, 113, 127, 276];

fuzz_target!(init: write_seeds(seeds), |input: &[u8]| run(input));

fn run(input: &[u8]) {
    let capture = capture(input);
    for flow in 0..2 {
        let options = ReadOptions {
            flow: Some(flow),
            max_rows: 1 << 16,
            ..ReadOptions::default()
        };
        if let Ok(read) = read_bytes(Path::new("t"), &capture, &options) {
            check_trace(&read.trace);
            let counts: Vec<_> = (read.trace.records.iter())
                .map(|record| {
                    record
                        .retransmits
                        .expect("captures tell what was sent again")
                })
                .collect();
            assert!(counts.is_sorted());
        }
        if let Ok(packets) = packets_of_bytes(Path::new("t"), &capture, &options) {
            assert!(!packets.records.is_empty());
        }
    }
}

fn capture(input: &[u8]) -> Vec<u8> {
    let (link, mut rest) = input.split_first().unwrap_or((&0, &[]));
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    let link = LINKS[usize::from(*link) % LINKS.len()];
    let mut bytes = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, link]);
    let mut time_us = 0u32;
    while let Some((header, after)) = rest.split_at_checked(6) {
        let number = |at: usize| u32::from(u16::from_be_bytes([header[at], header[at + 1]]));
        let length = (number(0) as usize).min(after.len());
        let (packet, after) = after.split_at(length);
        time_us = time_us.saturating_add(number(4) * 16);
        bytes.extend(words(&[
            1_700_000_000 + time_us / 1_000_000,
            time_us % 1_000_000,
            length as u32,
            length as u32 + number(2),
        ]));
        bytes.extend(packet);
        rest = after;
    }
    bytes
}

/// TCP of a flow each way, within `outer`.
fn seed(link: u8, outer: &[u8]) -> Vec<u8> {
    let mut bytes = vec![link];
    for i in 0..8u32 {
        let (from, to, payload) = if i % 2 == 0 {
            (1, 2, 500u16)
        } else {
            (2, 1, 0)
        };
        bytes.extend((outer.len() as u16 + 40).to_be_bytes());
        bytes.extend(payload.to_be_bytes());
        bytes.extend(1000u16.to_be_bytes());
        bytes.extend(outer);
        bytes.extend([0x45, 0]);
        bytes.extend((40 + payload).to_be_bytes());
        bytes.extend([
            0, i as u8, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to,
        ]);
        bytes.extend([0, from, 0, to]);
        let numbers = if i % 2 == 0 {
            [i * 250, 1]
        } else {
            [1, (i + 1) * 250]
        };
        bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        bytes.extend([0x50, 16, 1, 0, 0, 0, 0, 0]);
    }
    bytes
}

fn seeds() -> Vec<Vec<u8>> {
    let ethernet = [&[2; 12][..], &[8, 0]].concat();
    let gre = |kind: [u8; 2]| {
        let ip = [
            0x45, 0, 2, 0, 0, 9, 0, 0, 64, 47, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2,
        ];
        [&ethernet[..], &ip, &[0, 0], &kind].concat()
    };
    let vxlan = {
        let ip = [
            0x45, 0, 2, 0, 0, 9, 0, 0, 64, 17, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2,
        ];
        let udp = [0xc0, 0, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0];
        [&ethernet[..], &ip, &udp, &ethernet].concat()
    };
    let mpls = [&[2; 12][..], &[0x88, 0x47, 0, 1, 1, 64]].concat();
    vec![
        seed(0, &ethernet),
        seed(0, &gre([8, 0])),
        seed(0, &[&gre([0x88, 0xbe])[..], &ethernet].concat()),
        seed(0, &vxlan),
        seed(0, &mpls),
        seed(4, &[]),
    ]
}
