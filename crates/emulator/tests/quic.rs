//! Flows over QUIC. Where these tests can run is said in `kernel.rs`.

mod common;

use std::collections::BTreeMap;
use std::fs::File;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt64Type};
use common::{alone, options, valid_run};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use pathcast_emulator::{DeviceKind, Ip, Options};
use pathcast_path::Span;
use pathcast_scenario::Scenario;
use pathcast_trace::{RunReport, Trace};

const SLOW: &str = "rate = '10 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n";

fn scenario(text: &str, duration_s: f64) -> Options {
    let scenario = Scenario::parse(text, "test.toml").unwrap();
    Options::of_scenario(scenario, Span::from_secs(duration_s), 1)
}

/// Packets that the senders gave up, of each flow over QUIC.
fn given_up(trace: &Trace) -> Vec<u64> {
    let said = trace.metadata.environment["quic_lost"].split("; ");
    said.map(|flow| flow.split_whitespace().nth(4).unwrap().parse().unwrap())
        .collect()
}

/// Packets of data and datagrams that the path dropped.
fn dropped(report: &RunReport, trace: &Trace) -> u64 {
    let offered: f64 = trace.metadata.environment["data_packets_offered"]
        .parse()
        .unwrap();
    (report.loss_rate * offered).round() as u64
}

#[test]
fn cubic_over_quic_gets_what_cubic_over_tcp_gets_and_gives_up_what_the_path_drops() {
    let Some(_alone) = alone() else { return };
    let goodput = |scheme| {
        let (report, trace) = valid_run(&options(SLOW, &[scheme], 8.0))?;
        Some((report.flows[0].goodput_bps, report, trace))
    };
    let Some((tcp_bps, ..)) = goodput("cubic") else {
        return;
    };
    // BBR keeps its queue short, and empties it each 5 s
    for (scheme, least) in [
        ("quic-cubic", 0.97),
        ("quic-reno", 0.95),
        ("quic-bbr3", 0.8),
    ] {
        let Some((quic_bps, report, trace)) = goodput(scheme) else {
            return;
        };
        println!("{scheme}: {quic_bps:.0} bit/s, over TCP {tcp_bps:.0}");
        let share = quic_bps / tcp_bps;
        assert!((least..1.02).contains(&share), "{scheme}: {share} of TCP's");
        let (lost, drops) = (given_up(&trace)[0], dropped(&report, &trace));
        // what was dropped last is not noticed any more
        assert!(
            drops > 0 && lost.abs_diff(drops) <= 3,
            "{scheme}: {lost} of {drops}"
        );
        the_trace_tells_of_the_sender(&report, &trace);
        assert_eq!(trace.metadata.schemes, [scheme]);
    }
}

fn the_trace_tells_of_the_sender(report: &RunReport, trace: &Trace) {
    let (first, last) = (trace.records[0], trace.records[trace.records.len() - 1]);
    // the handshake's acknowledgments may have let BBR's grow
    assert!(first.time_s == 0.0 && (10.0..12.0).contains(&first.cwnd_packets));
    assert_eq!(
        (first.snd_nxt_bytes, first.snd_una_bytes),
        (Some(0), Some(0))
    );
    assert!(trace.records.len() > 1000);
    for pair in trace.records.windows(2) {
        assert!(pair[0].time_s <= pair[1].time_s && pair[0].snd_una_bytes <= pair[1].snd_una_bytes);
        assert!(pair[0].snd_nxt_bytes <= pair[1].snd_nxt_bytes && pair[1].cwnd_packets >= 2.0);
        assert!(pair[1].srtt_s >= Some(0.04), "{pair:?}");
    }
    assert_eq!(last.retransmits, Some(report.flows[0].retransmits));
    let delivered = report.flows[0].delivered_bytes;
    assert!(last.snd_una_bytes <= Some(delivered) && last.snd_nxt_bytes >= Some(delivered));
    // a full packet less its headers
    let payload = trace.metadata.mss_bytes.unwrap();
    assert!((1430..1460).contains(&payload), "{payload}");
}

#[test]
fn a_transfer_is_whole_over_a_path_that_loses_by_either_device_and_version_of_ip() {
    let Some(_alone) = alone() else { return };
    for (ip, device) in [(Ip::V4, DeviceKind::Tun), (Ip::V6, DeviceKind::Veth)] {
        let text = "[links.core]\nrate = '20 Mbit/s'\ndelay = '10 ms'\nqueue = '2 BDP'\nloss = 0.02\n\
                    [links.core.reverse]\nloss = 0.02\n\
                    [[flows]]\nscheme = 'quic-cubic'\ncount = 2\nstart = '0.1 s'\n\
                    workload = { kind = 'transfer', size = '500 kB', count = 2 }\n\
                    [[flows]]\nscheme = 'quic-bbr3'\ndirection = 'reverse'\n\
                    workload = { kind = 'transfer', size = '1 MB' }\n\
                    [[flows]]\nscheme = 'cubic'\nworkload = { kind = 'transfer', size = '300 kB' }\n";
        let options = Options {
            ip,
            device: Some(device),
            ..scenario(text, 30.0)
        };
        let Some((report, trace)) = valid_run(&options) else {
            return;
        };
        let delivered: Vec<u64> = report
            .flows
            .iter()
            .map(|flow| flow.delivered_bytes)
            .collect();
        assert_eq!(delivered, [1_000_000, 1_000_000, 1_000_000, 300_000]);
        for flow in &report.flows {
            let messages = flow.messages.unwrap();
            assert_eq!(messages.written, messages.delivered);
            assert!(flow.completed_s.unwrap() < 29.0, "{flow:?}");
            // 700 packets, of which 2 % are lost: none at all once in a million runs
            if flow.scheme.starts_with("quic-") {
                assert!(flow.retransmits > 0, "{flow:?}");
            }
        }
        assert_eq!(given_up(&trace).len(), 3);
        let flows: std::collections::BTreeSet<u32> = trace.records.iter().map(|r| r.flow).collect();
        assert_eq!(flows, [0, 1, 2, 3].into());
    }
}

#[test]
fn a_greedy_flow_stops_when_it_is_told() {
    let Some(_alone) = alone() else { return };
    let text = format!(
        "[links.core]\n{SLOW}[[flows]]\nscheme = 'quic-cubic'\nstart = '0 s'\nstop = '2 s'\n"
    );
    let Some((report, _)) = valid_run(&scenario(&text, 10.0)) else {
        return;
    };
    // what it had written by then: at most the unsent bytes of 128 kB, a window and a queue
    let bytes = report.flows[0].delivered_bytes;
    assert!((1_800_000..2_800_000).contains(&bytes), "{bytes}");
}

#[test]
fn the_log_has_each_packet_once() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("packets.parquet");
    let path = format!("{SLOW}loss = 0.005\n");
    let options = Options {
        packets_file: Some(file.clone()),
        ..options(&path, &["quic-cubic"], 4.0)
    };
    let Some((report, trace)) = valid_run(&options) else {
        return;
    };
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&file).unwrap()).unwrap();
    let mut sent: [Vec<u64>; 2] = Default::default();
    let mut ended: [BTreeMap<u64, u8>; 2] = Default::default();
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        let column = |name| batch.column_by_name(name).unwrap();
        let events = column("event").as_primitive::<UInt8Type>();
        let directions = column("direction").as_primitive::<UInt8Type>();
        let seqs = column("seq").as_primitive::<UInt64Type>();
        for row in 0..batch.num_rows() {
            let (seq, way) = (seqs.value(row), usize::from(directions.value(row)));
            match events.value(row) {
                0 => sent[way].push(seq),
                event => assert_eq!(ended[way].insert(seq, event), None, "{seq} ended twice"),
            }
        }
    }
    for way in [0, 1] {
        let count = sent[way].len() as u64;
        assert_eq!(sent[way], (0..count).collect::<Vec<_>>());
        assert!(count - (ended[way].len() as u64) < 200);
    }
    let lost = ended[0].values().filter(|event| [2, 3].contains(event));
    assert_eq!(lost.count() as u64, dropped(&report, &trace));
}

#[test]
fn an_unknown_scheme_of_quic_is_told_the_names() {
    let options = options(SLOW, &["quic-vegas"], 1.0);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let error = pathcast_emulator::emulate(&options, &|_| (), &stop).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("quic-cubic, quic-reno, quic-bbr3"),
        "{error}"
    );
}
