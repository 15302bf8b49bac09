//! The same flow captured at its sender, at its receiver, and between.

use super::*;

const RTT_US: u32 = 347_000;

/// The evidence that a capture keeps.
#[derive(Clone, Copy)]
struct Kept {
    handshake: bool,
    stamps: bool,
    hops: (u8, u8),
}

/// Ten packets a round trip, each acknowledged when it arrives. The capture is `share` of a round
/// trip away from the sender.
fn captured(share: f64, kept: Kept) -> Script {
    let (half, away) = (RTT_US / 2, (share * f64::from(RTT_US)) as u32 / 2);
    let start = 1_000_000;
    let stamp = |time_us: u32| time_us / 1000 + 1;
    let stamps = |value: u32, echo: u32| kept.stamps.then_some((value, echo));
    let data = Tcp {
        ttl: kept.hops.0,
        ..DATA
    };
    let reply = Tcp {
        ttl: kept.hops.1,
        ..REPLY
    };
    let mut script = Script::new();
    if kept.handshake {
        let syn = Tcp {
            seq: u32::MAX,
            ack: 0,
            flags: 2,
            payload: 0,
            ..data
        };
        let answer = Tcp {
            seq: 0,
            ack: 0,
            flags: 18,
            ..reply
        };
        let done = Tcp { payload: 0, ..data };
        let first = start - RTT_US;
        script.push((first + away, syn));
        script.push((start - away, answer));
        script.push((start + away, done));
    }
    for packet in 0..200u32 {
        let sent = start + packet / 10 * RTT_US + packet % 10 * 1000;
        // the newest timestamp that returned by then belongs to the packet ten before
        let echo = if packet < 10 { 0 } else { stamp(sent - half) };
        let segment = Tcp {
            seq: packet * 1000,
            stamps: stamps(stamp(sent), echo),
            ..data
        };
        script.push((sent + away, segment));
        let acknowledgment = Tcp {
            ack: (packet + 1) * 1000,
            stamps: stamps(stamp(sent + half), stamp(sent)),
            ..reply
        };
        script.push((sent + RTT_US - away, acknowledgment));
    }
    script.sort_by_key(|(time_us, _)| *time_us);
    script
}

/// Round-trip times of the rows, and the warnings.
fn round_trips(share: f64, kept: Kept) -> (Vec<Option<f64>>, String) {
    let mut script = captured(share, kept);
    // whole seconds are in another field
    let frames: Vec<u8> = {
        let mut bytes = pcap(&Vec::new(), 101, false, Tcp::ipv4);
        for (time_us, tcp) in script.drain(..) {
            let one = pcap(&vec![(time_us % 1_000_000, tcp)], 101, false, Tcp::ipv4);
            let seconds = 1_700_000_000 + time_us / 1_000_000;
            bytes.extend(seconds.to_le_bytes());
            bytes.extend(&one[28..]);
        }
        bytes
    };
    let read = read(frames).unwrap();
    let srtt = read.trace.records.iter().map(|row| row.srtt_s).collect();
    (srtt, read.warnings.join("; "))
}

fn right(srtt_s: f64) -> bool {
    (srtt_s / (f64::from(RTT_US) * 1e-6) - 1.0).abs() < 0.01
}

const ALL: Kept = Kept {
    handshake: true,
    stamps: true,
    hops: (64, 64),
};

#[test]
fn timestamps_tell_the_round_trip_wherever_the_capture_stood() {
    for handshake in [true, false] {
        for share in [0.0, 0.3, 0.5, 0.9, 1.0] {
            let (srtt, warnings) = round_trips(share, Kept { handshake, ..ALL });
            let known: Vec<f64> = srtt.iter().flatten().copied().collect();
            // without the handshake, the capture lacks the values that the first packets echo
            assert!(
                known.len() * 100 >= srtt.len() * 80,
                "{share}: {} known",
                known.len()
            );
            let wrong = known.iter().find(|srtt_s| !right(**srtt_s));
            assert_eq!(wrong, None, "{share}, {handshake}");
            let told = format!("captured {:.0} % of a round trip away", share * 100.0);
            assert_eq!(warnings.contains(&told), share > 0.1, "{share}: {warnings}");
        }
    }
}

#[test]
fn without_timestamps_no_round_trip_is_made_up() {
    let kept = Kept {
        stamps: false,
        ..ALL
    };
    let (srtt, warnings) = round_trips(0.0, kept);
    assert!(srtt.iter().all(|s| s.is_some_and(right)), "{srtt:?}");
    assert_eq!(warnings, "");
    for share in [0.5, 1.0] {
        let (srtt, warnings) = round_trips(share, kept);
        assert!(srtt[0].is_some_and(right), "{:?}", srtt[0]);
        assert!(srtt.iter().flatten().all(|s| right(*s)), "{srtt:?}");
        assert!(srtt[100..].iter().all(Option::is_none), "{srtt:?}");
        let told = "the only round-trip time that is known is the handshake's, 347.0000 ms";
        assert!(warnings.contains(told), "{warnings}");
    }
    // nor without both, unless hop limits show that the sender is near
    let neither = Kept {
        handshake: false,
        ..kept
    };
    for (share, hops) in [(0.0, (64, 64)), (0.5, (60, 61)), (1.0, (51, 64))] {
        let (srtt, warnings) = round_trips(share, Kept { hops, ..neither });
        assert!(srtt.iter().all(Option::is_none), "{share}: {srtt:?}");
        assert!(
            warnings.contains("round-trip times cannot be known"),
            "{warnings}"
        );
    }
    let hops = (64, 51);
    let (srtt, warnings) = round_trips(0.0, Kept { hops, ..neither });
    assert!(srtt[1..].iter().all(|s| s.is_some_and(right)), "{srtt:?}");
    assert_eq!(warnings, "");
}

#[test]
fn a_handshake_without_duration_is_no_round_trip() {
    let mut script = script();
    for (time_us, _) in &mut script[..3] {
        *time_us = 20_020;
    }
    let records = read(pcap(&script, 101, false, Tcp::ipv4))
        .unwrap()
        .trace
        .records;
    // nothing else shows where this capture was taken
    assert!(
        records.iter().all(|row| row.srtt_s.is_none()),
        "{records:?}"
    );
}

/// A sender whose handshake took 0.1 ms, a fifth of it in its own host. Its data then queued for 20
/// ms.
#[test]
fn a_queue_outweighs_the_handshake_of_a_short_way() {
    let syn = Tcp {
        seq: u32::MAX,
        ack: 0,
        flags: 2,
        payload: 0,
        ..DATA
    };
    let answer = Tcp {
        seq: 0,
        ack: 0,
        flags: 18,
        ..REPLY
    };
    let mut script = Script::new();
    script.push((1_000, syn));
    script.push((1_080, answer));
    script.push((1_100, Tcp { payload: 0, ..DATA }));
    for packet in 0..20u32 {
        let sent_us = 2_000 + packet * 1_000;
        let seq = packet * 1000;
        script.push((sent_us, Tcp { seq, ..DATA }));
        let ack = seq + 1000;
        script.push((sent_us + 20_000, Tcp { ack, ..REPLY }));
    }
    script.sort_by_key(|(time_us, _)| *time_us);
    let read = read(pcap(&script, 101, false, Tcp::ipv4)).unwrap();
    assert_eq!(read.warnings, Vec::<String>::new());
    let last = read.trace.records.last().and_then(|row| row.srtt_s);
    assert!(last.is_some_and(|srtt_s| srtt_s > 0.015), "{last:?}");
}
