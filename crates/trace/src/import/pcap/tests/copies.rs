//! Packets that a capture holds twice, out of order, or after their acknowledgment.

use super::*;

/// Every packet has its own id, and timestamps.
fn numbered() -> Script {
    let with = |(i, (time_us, tcp)): (u16, (u32, Tcp))| {
        let tcp = Tcp {
            id: 1000 + i,
            stamps: Some((time_us / 1000 + 1, 1)),
            ..tcp
        };
        (time_us, tcp)
    };
    (0..).zip(script()).map(with).collect()
}

fn retransmits(script: &Script) -> Option<u64> {
    let read = read(pcap(script, 101, false, Tcp::ipv4)).unwrap();
    let records = read.trace.records;
    assert!(records.iter().all(|row| row.retransmits.is_some()));
    records.last().unwrap().retransmits
}

#[test]
fn copies_of_a_packet_are_told_and_were_not_sent_again() {
    let plain = read(pcap(&numbered(), 101, false, Tcp::ipv4)).unwrap();
    let without_id = |tcp: Tcp| Tcp { id: 0, ..tcp };
    let farther = |tcp: Tcp| Tcp { ttl: 63, ..tcp };
    type Change = fn(Tcp) -> Tcp;
    let cases: [(&str, u32, Change); 3] = [
        ("both ports of a bridge", 1, |tcp| tcp),
        ("no id, but timestamps", 1, without_id),
        ("both sides of a router", 15_000, farther),
    ];
    for (what, apart_us, change) in cases {
        let mut doubled = Script::new();
        for (time_us, tcp) in numbered() {
            let first = if what.contains("no id") {
                change(tcp)
            } else {
                tcp
            };
            doubled.push((time_us, first));
            doubled.push((time_us + apart_us, change(tcp)));
        }
        doubled.sort_by_key(|(time_us, _)| *time_us);
        let read = read(pcap(&doubled, 101, false, Tcp::ipv4)).unwrap();
        assert_eq!(read.trace.records, plain.trace.records, "{what}");
        let told = format!(
            "left out: {} packets that the capture has twice",
            numbered().len()
        );
        assert!(
            read.warnings.concat().contains(&told),
            "{what}: {:?}",
            read.warnings
        );
    }
}

#[test]
fn a_packet_that_is_sent_again_is_no_copy() {
    assert_eq!(retransmits(&numbered()), Some(1));
    // some hosts retransmit with the original id, after a timeout
    let mut script = numbered();
    script.pop();
    let (time_us, last) = script[script.len() - 1];
    script.push((time_us + 310_000, last));
    assert_eq!(retransmits(&script), Some(2));
    // constant ids give no information
    let constant: Script = (super::script().into_iter())
        .map(|(time_us, tcp)| (time_us, Tcp { id: 0x1234, ..tcp }))
        .collect();
    assert_eq!(retransmits(&constant), Some(1));
}

#[test]
fn acknowledgments_captured_before_their_data_make_no_losses() {
    // a host merges packets 4 to 6, and the capture shows them after their acknowledgment
    let mut script = numbered();
    let stands =
        |script: &Script, time_us: u32| script.iter().position(|(t, _)| *t == time_us).unwrap();
    let at = stands(&script, 40_034);
    let first = script[at].1;
    script.truncate(at);
    let end = first.seq.wrapping_add(3000);
    script.push((60_000, Tcp { ack: end, ..REPLY }));
    script.push((
        60_002,
        Tcp {
            payload: 3000,
            ..first
        },
    ));
    script.push((60_100, Tcp { seq: end, ..DATA }));
    script.push((
        80_100,
        Tcp {
            ack: end.wrapping_add(1000),
            ..REPLY
        },
    ));
    let read = read(pcap(&script, 101, false, Tcp::ipv4)).unwrap();
    let last = read.trace.records.last().unwrap();
    assert_eq!(
        (last.retransmits, last.snd_nxt_bytes),
        (Some(0), Some(8000))
    );
    // the last packet alone, in payloads beside timestamps
    assert_eq!(last.cwnd_packets, 1000.0 / 988.0);
    assert!(
        !read.warnings.concat().contains("missed"),
        "{:?}",
        read.warnings
    );
}

#[test]
fn data_that_was_overtaken_was_not_sent_again() {
    // packets 2 and 3 change places; nothing is lost
    let mut script = numbered();
    script.truncate(7);
    let (third, fourth) = (script[5].1, script[6].1);
    (script[5].1, script[6].1) = (fourth, third);
    assert_eq!(retransmits(&script), Some(0));
    // a later id in the same place means a retransmission of a packet lost before the capture
    script[6].1.id = 2000;
    assert_eq!(retransmits(&script), Some(1));
}

#[test]
fn probes_of_a_shut_window_are_not_counted() {
    let mut script = super::script();
    let end = script[script.len() - 1].1.ack;
    let probe = Tcp {
        seq: end,
        payload: 1,
        ..DATA
    };
    // the last acknowledgment advertises a zero window
    for i in 0..3 {
        script.push((200_000 + i * 200_000, probe));
    }
    let mut capture = pcap(&script, 101, false, Tcp::ipv4);
    let last = capture.len() - 3 * (16 + 40) - 40;
    capture[last + 34..last + 36].copy_from_slice(&[0, 0]);
    let records = read(&capture).unwrap().trace.records;
    assert_eq!(records.last().unwrap().retransmits, Some(1));
}
