//! Scenarios with the kernel's TCP: many flows, links, both directions, workloads, datagrams. Where
//! these tests can run is said in `kernel.rs`.

mod common;

use common::{alone, valid_run};
use pathcast_emulator::{DeviceKind, EmulatorError, Ip, Options, emulate};
use pathcast_path::Span;
use pathcast_scenario::Scenario;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::AtomicBool;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt32Type, UInt64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

fn scenario(text: &str, duration_s: f64) -> Options {
    let scenario = Scenario::parse(text, "test.toml").unwrap();
    Options::of_scenario(scenario, Span::from_secs(duration_s), 1)
}

const CORE: &str = "[links.core]\nrate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n";

#[test]
fn transfers_probes_and_requests_take_as_long_as_the_links_make_them() {
    let Some(_alone) = alone() else { return };
    for (ip, device) in [
        (Ip::V4, None),
        (Ip::V6, None),
        (Ip::V4, Some(DeviceKind::Veth)),
        (Ip::V6, Some(DeviceKind::Veth)),
    ] {
        let text = format!(
            "{CORE}[[flows]]\nscheme = 'cubic'\nstart = '0 s'\n\
             workload = {{ kind = 'transfer', size = '2 MB' }}\n\
             [[flows]]\nscheme = 'udp'\nstart = '2 s'\nworkload = {{ kind = 'constant-rate', \
             rate = '1 Mbit/s', portion = '1250 B', count = 200 }}\n\
             [[flows]]\nscheme = 'reno'\nstart = '2 s'\ndelay = '10 ms'\nworkload = {{ kind = \
             'request-response', response = '1 kB', think = '50 ms', count = 12 }}\n"
        );
        let options = Options {
            ip,
            device,
            ..scenario(&text, 30.0)
        };
        let Some((report, trace)) = valid_run(&options) else {
            return;
        };
        let [transfer, probe, asking] = &report.flows[..] else {
            panic!("{report:?}")
        };
        assert_eq!(transfer.delivered_bytes, 2_000_000);
        // 0.83 s on the link alone, and slow start before
        let took_s = transfer.completed_s.unwrap();
        assert!((0.85..1.6).contains(&took_s), "{took_s}");
        let probes = probe.messages.unwrap();
        assert_eq!(
            (probes.written, probes.delivered, probe.delivered_bytes),
            (200, 200, 250_000)
        );
        assert!(
            (probes.latency_ms.p50 / 20.5 - 1.0).abs() < 0.05,
            "{probes:?}"
        );
        let answers = asking.messages.unwrap();
        assert_eq!((answers.written, answers.delivered), (12, 12));
        assert!(
            (answers.latency_ms.p50 / 60.6 - 1.0).abs() < 0.03,
            "{answers:?}"
        );
        // the run ends when all is done
        let end_s = trace.records.last().unwrap().time_s;
        assert!(end_s < 8.0, "{end_s}");
        assert_eq!(trace.flows(), [0, 2]);
        assert_eq!(trace.metadata.schemes, ["cubic", "udp", "reno"]);
        assert!(trace.metadata.scenario_toml.is_some() && trace.metadata.path_toml.is_none());
    }
}

#[test]
fn a_long_route_shares_each_link_with_the_flow_that_crosses_it() {
    let Some(_alone) = alone() else { return };
    let link = "rate = '20 Mbit/s'\ndelay = '5 ms'\nqueue = '50 packets'\n";
    let text = format!(
        "[links.a]\n{link}[links.b]\n{link}[[flows]]\nscheme = 'reno'\n\
         [[flows]]\nscheme = 'reno'\nroute = ['a']\n[[flows]]\nscheme = 'reno'\nroute = ['b']\n"
    );
    let Some((report, _)) = valid_run(&scenario(&text, 8.0)) else {
        return;
    };
    let rates: Vec<f64> = report.flows.iter().map(|flow| flow.goodput_bps).collect();
    for crossing in &rates[1..] {
        assert!(rates[0] < *crossing, "{rates:?}");
        let link = (rates[0] + crossing) / (20e6 * 1448.0 / 1500.0);
        assert!((0.93..1.001).contains(&link), "{link}: {rates:?}");
    }
}

#[test]
fn data_goes_both_ways_and_stops_when_it_is_told() {
    let Some(_alone) = alone() else { return };
    let text = format!(
        "{CORE}[links.core.reverse]\nqueue = '1 BDP'\n[[flows]]\nscheme = 'cubic'\n\
         [[flows]]\nscheme = 'cubic'\ndirection = 'reverse'\nstart = '1 s'\nstop = '4 s'\n"
    );
    let Some((report, trace)) = valid_run(&scenario(&text, 6.0)) else {
        return;
    };
    let [out, back] = &report.flows[..] else {
        panic!("{report:?}")
    };
    assert!(
        out.goodput_bps > 12e6 && back.goodput_bps > 10e6,
        "{report:?}"
    );
    let last = trace.flow(1).last().unwrap().time_s;
    assert!((3.9..4.8).contains(&last), "{last}"); // what waited in the socket and the queue
    assert_eq!(back.start_s, 1.0);
}

#[test]
fn queues_mark_flows_that_can_be_marked() {
    let Some(_alone) = alone() else { return };
    let run_with = |ecn: bool| {
        let text = format!(
            "[links.core]\nrate = '20 Mbit/s'\ndelay = '20 ms'\n\
             queue = {{ kind = 'codel', ecn = true }}\n[[flows]]\nscheme = 'cubic'\necn = {ecn}\n"
        );
        valid_run(&scenario(&text, 6.0))
    };
    let (Some((marked, _)), Some((dropped, _))) = (run_with(true), run_with(false)) else {
        return;
    };
    assert_eq!((marked.flows[0].retransmits, marked.loss_rate), (0, 0.0));
    assert!(dropped.flows[0].retransmits > 0 && dropped.loss_rate > 0.0);
    for report in [&marked, &dropped] {
        assert!(report.flows[0].goodput_bps > 14e6, "{report:?}");
        assert!(report.one_way_delay_ms.p50 < 32.0, "{report:?}");
    }
}

#[test]
fn the_log_has_each_packet_and_each_drop_is_sent_again() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("packets.parquet");
    let text = format!("{CORE}loss = 0.002\n[[flows]]\nscheme = 'cubic'\nstart = '0 s'\n");
    let options = Options {
        packets_file: Some(file.clone()),
        ..scenario(&text, 6.0)
    };
    let Some((report, trace)) = valid_run(&options) else {
        return;
    };
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&file).unwrap()).unwrap();
    let mut counts: BTreeMap<(u8, u8), u64> = BTreeMap::new();
    let (mut sent, mut dropped): (BTreeMap<u64, u64>, Vec<u64>) = Default::default();
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        let of = |name| {
            batch
                .column_by_name(name)
                .unwrap()
                .as_primitive::<UInt8Type>()
        };
        let (events, directions) = (of("event"), of("direction"));
        let seqs = batch
            .column_by_name("seq")
            .unwrap()
            .as_primitive::<UInt64Type>();
        let sizes = batch
            .column_by_name("size_bytes")
            .unwrap()
            .as_primitive::<UInt32Type>();
        for row in 0..batch.num_rows() {
            let (event, direction) = (events.value(row), directions.value(row));
            *counts.entry((direction, event)).or_default() += 1;
            if direction == 0 && sizes.value(row) > 100 {
                match event {
                    0 => *sent.entry(seqs.value(row)).or_default() += 1,
                    2 | 3 => dropped.push(seqs.value(row)),
                    _ => {}
                }
            }
        }
    }
    let count = |direction, event| counts.get(&(direction, event)).copied().unwrap_or(0);
    // what was sent has arrived, was dropped or was in transit at the end
    for direction in [0, 1] {
        let ended = count(direction, 1) + count(direction, 2) + count(direction, 3);
        let under_way = count(direction, 0) - ended;
        assert!(under_way < 200, "{counts:?}");
    }
    let told: u64 = trace.metadata.environment["data_packets_dropped"]
        .parse()
        .unwrap();
    assert!(
        dropped.len() as u64 >= told && told > 5,
        "{} {told}",
        dropped.len()
    );
    // what was dropped some round trips before the end was sent again
    let last = *sent.keys().last().unwrap();
    let early: Vec<u64> = dropped
        .iter()
        .copied()
        .filter(|seq| seq + 400_000 < last)
        .collect();
    for seq in &early {
        assert!(sent[seq] > 1, "{seq} was dropped and not sent again");
    }
    let again: u64 = sent.values().map(|times| times - 1).sum();
    assert!(
        again.abs_diff(report.flows[0].retransmits) <= 3,
        "{again} {report:?}"
    );
}

#[test]
fn what_a_host_cannot_do_for_one_flow_is_refused() {
    let flows = "[[flows]]\nscheme = 'cubic'\nslow_start_after_idle = false\n\
        [[flows]]\nscheme = 'cubic'\n";
    let options = scenario(&format!("{CORE}{flows}"), 1.0);
    let error = emulate(&options, &|_| (), &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, EmulatorError::Unsupported(_)), "{error:?}");
    assert!(error.to_string().contains("setting of a host"), "{error}");
}

#[test]
fn each_group_begins_with_its_own_window_and_its_own_wish_for_ecn() {
    for ip in [Ip::V4, Ip::V6] {
        let group = |window: u32, direction: &str| {
            format!(
                "[[flows]]\nscheme = 'reno'\ninitial_window = {window}\ndirection = '{direction}'\n\
                 start = '0 s'\n"
            )
        };
        // marks the packets of those who asked for it, and drops those of the others
        let marking = "[links.core]\nrate = '20 Mbit/s'\ndelay = '20 ms'\n\
            queue = { kind = 'codel', ecn = true, limit = '1000 packets' }\n";
        let text = format!(
            "{marking}{}{}ecn = true\n{}",
            group(4, "forward"),
            group(40, "forward"),
            group(25, "reverse")
        );
        let options = Options {
            ip,
            ..scenario(&text, 3.0)
        };
        let Some((report, trace)) = valid_run(&options) else {
            return;
        };
        let first: Vec<f64> = (0..3)
            .map(|flow| trace.flow(flow).next().unwrap().cwnd_packets)
            .collect();
        for (window, first) in [4.0, 40.0, 25.0].into_iter().zip(&first) {
            // the first record is of after the first acknowledgment
            assert!(
                (window..=window + 2.0).contains(first),
                "{first} of {window}"
            );
        }
        assert!(report.flows[0].retransmits > 0, "{report:?}");
        let lost = report.flows[1].retransmits;
        assert!(lost < report.flows[0].retransmits, "{report:?}");
    }
}
