use std::ops::ControlFlow;
use std::path::Path;

use pathcast_path::Span;
use pathcast_trace::{Imported, ReadOptions, read_bytes};

use super::*;
use crate::simulation::Simulation;

/// A run's own trace, and that which the importer makes of its capture.
fn captured(text: &str, duration_s: f64) -> (Vec<Record>, Imported) {
    let spec = Simulation {
        scenario: Scenario::parse(text, "test.toml").unwrap(),
        duration: Span::from_secs(duration_s),
        seed: 1,
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcapng");
    let mut file = File::create(&path).unwrap();
    let mut log = CaptureLog::new(&spec.scenario, &mut file);
    let mut into = (Vec::new(), Some(&mut log));
    spec.run_recorded(&mut |_| ControlFlow::Continue(()), &mut into)
        .unwrap();
    let records = into.0;
    log.finish().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let read = read_bytes(Path::new("out.pcapng"), &bytes, &ReadOptions::default());
    (records, read.unwrap())
}

#[test]
fn the_importer_reads_of_a_capture_what_the_run_recorded() {
    let text = "[links.link]\nrate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\nloss = 0.002\n\
                [[flows]]\nscheme = 'cubic'\nhandshake = true\nreceive_window = '1 MB'\n\
                workload = { kind = 'transfer', size = '9 MB' }\n";
    let (records, read) = captured(text, 60.0);
    assert_eq!(read.warnings, [""; 0]);
    let theirs = &read.trace.records;
    assert_eq!(theirs.len(), records.len());
    assert_eq!(read.trace.metadata.mss_bytes, Some(1448));
    let shift_s = records[0].time_s - theirs[0].time_s;
    let mut full_windows = 0;
    // a capture shows the sender just before it acts on an acknowledgment, the simulator just after
    for ((before, ours), theirs) in records.iter().zip(&records[1..]).zip(&theirs[1..]) {
        let place = format!("{before:?}\n{ours:?}\n{theirs:?}");
        assert!(
            (ours.time_s - theirs.time_s - shift_s).abs() < 1e-6,
            "{place}"
        );
        // timers may have sent something between
        let sent = [before, theirs, ours].map(|row| row.snd_nxt_bytes.unwrap().min(9_000_000));
        assert!(sent.is_sorted(), "{place}");
        let again = [before, theirs, ours].map(|row| row.retransmits);
        assert!(again.is_sorted(), "{place}");
        assert_eq!(theirs.snd_una_bytes, before.snd_una_bytes, "{place}");
        assert_eq!(theirs.rwnd_bytes, before.rwnd_bytes, "{place}");
        let srtt = theirs.srtt_s.unwrap() / before.srtt_s.unwrap();
        assert!((0.98..1.02).contains(&srtt), "{place}");
        let window = theirs.cwnd_packets / before.cwnd_packets;
        full_windows += usize::from((0.9..1.1).contains(&window));
    }
    assert!(records.last().unwrap().retransmits > Some(10));
    assert!(full_windows > records.len() * 4 / 5, "{full_windows}");
}

#[test]
fn packets_lie_where_the_bytes_of_short_messages_end() {
    let text = "[links.link]\nrate = '20 Mbit/s'\ndelay = '20 ms'\nloss = 0.02\n\
                [[flows]]\nscheme = 'reno'\nhandshake = true\nmss = '1000 B'\n\
                workload = { kind = 'transfer', size = '3333 B', count = 80, pause = '1 ms' }\n";
    let (records, read) = captured(text, 60.0);
    assert_eq!(read.warnings, [""; 0]);
    let last = read.trace.records.last().unwrap();
    assert_eq!(last.snd_nxt_bytes, Some(80 * 3333));
    assert!(last.retransmits > Some(3));
    assert_eq!(last.retransmits, records.last().unwrap().retransmits);
}

#[test]
fn a_growing_window_is_told_in_units_of_its_scale() {
    let text = "[links.link]\nrate = '100 Mbit/s'\ndelay = '100 ms'\n[[flows]]\nscheme = 'cubic'\n\
                handshake = true\nreceive_window = { kind = 'auto', buffer = '1 MB' }\n";
    let (records, read) = captured(text, 4.0);
    assert_eq!(read.warnings, [""; 0]);
    let theirs = &read.trace.records;
    // and one row for what is in flight at the end
    assert_eq!(theirs.len(), records.len() + 1);
    for (ours, theirs) in records.iter().zip(theirs) {
        let windows = [ours, theirs].map(|row| row.rwnd_bytes.unwrap());
        assert!(windows[0] - windows[1] < 128, "{windows:?}");
    }
}

#[test]
fn requests_and_responses_share_one_connection() {
    let text = "[links.link]\nrate = '20 Mbit/s'\ndelay = '20 ms'\n[links.link.reverse]\nrate = '2 Mbit/s'\n\
                [[flows]]\nscheme = 'cubic'\nhandshake = true\n\
                workload = { kind = 'request-response', request = '3 kB', response = '50 kB', count = 6 }\n";
    let (records, read) = captured(text, 60.0);
    assert_eq!(read.warnings, [""; 0]);
    let theirs = &read.trace.records;
    let last = theirs.last().unwrap();
    assert_eq!(last.snd_nxt_bytes, Some(6 * 50_000));
    // the acknowledgment of the last response is still in flight when the run ends
    let acknowledged = (records.last().unwrap().snd_una_bytes, last.snd_una_bytes);
    assert!(acknowledged.1 >= Some(5 * 50_000), "{acknowledged:?}");
    assert_eq!(last.retransmits, Some(0));
}
