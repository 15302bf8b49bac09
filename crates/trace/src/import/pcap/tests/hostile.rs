//! Wrong lengths.

use super::*;
use crate::import::input::Input;
use crate::import::pcap::container::Frames;
use crate::import::testing::check;

const LIES: [u32; 12] = [
    0,
    1,
    3,
    11,
    12,
    0xffff,
    0x0001_0000,
    4 << 20,
    (4 << 20) + 1,
    0x7fff_ffff,
    0xffff_fffc,
    0xffff_ffff,
];

fn captures() -> Vec<Vec<u8>> {
    let mut doubled = script();
    doubled.extend(script());
    vec![
        pcap(&doubled, 1, false, ethernet),
        pcap(&script(), 113, true, cooked),
        pcapng(&script()),
    ]
}

/// Memory for packets grows with the file, not with the lengths in it.
fn largest_buffer(content: &[u8]) -> usize {
    let input = Input::bytes(std::path::Path::new("f"), content);
    let mut buffer = Vec::new();
    let mut largest = 0;
    if let Ok(mut frames) = Frames::open(input) {
        while let Ok(Some(_)) = frames.next(&mut buffer) {
            largest = largest.max(buffer.capacity());
        }
    }
    largest.max(buffer.capacity())
}

#[test]
fn every_word_may_lie() {
    for capture in captures() {
        for at in (0..capture.len().min(300)).step_by(4) {
            for lie in LIES {
                for bytes in [lie.to_le_bytes(), lie.to_be_bytes()] {
                    let mut hostile = capture.clone();
                    let end = (at + 4).min(hostile.len());
                    hostile[at..end].copy_from_slice(&bytes[..end - at]);
                    check(&hostile);
                    let buffer = largest_buffer(&hostile);
                    assert!(
                        buffer <= 4 * capture.len() + 4096,
                        "{buffer} B for {lie} at {at}"
                    );
                }
            }
        }
    }
}

#[test]
fn lengths_within_packets_may_lie() {
    // xorshift64
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for _ in 0..2000 {
        let all = captures();
        let mut hostile = all[random(all.len())].clone();
        for _ in 0..=random(6) {
            let at = random(hostile.len());
            hostile[at] = [0, 1, 5, 0x0f, 0x45, 0x4f, 0x60, 0x80, 0xf0, 0xff][random(10)];
        }
        check(&hostile);
    }
}

#[test]
fn options_that_overrun_their_block_are_damage() {
    let header = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let interface = |options: &[u8]| {
        let body = [&[101, 0, 0, 0, 0, 0, 0, 0][..], options].concat();
        [block(0x0a0d_0d0a, &header), block(1, &body)].concat()
    };
    let error = read(interface(&[9, 0, 0xff, 0xff, 0, 0, 0, 0])).unwrap_err();
    assert!(
        error.contains("an interface's option is longer than its block"),
        "{error}"
    );
    // times in 2^-127 s
    let error = read(interface(&[9, 0, 1, 0, 0xff, 0, 0, 0])).unwrap_err();
    assert!(error.contains("got times in 2^-127 s, too fine"), "{error}");
}
