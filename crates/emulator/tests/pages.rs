//! Pages over HTTP with the kernel's TCP. Where these tests can run is said in `kernel.rs`.

mod common;

use common::{alone, valid_run};
use pathcast_emulator::{EmulatorError, Ip, Options, emulate};
use pathcast_path::Span;
use pathcast_scenario::Scenario;
use std::collections::BTreeSet;
use std::fs::File;
use std::sync::atomic::AtomicBool;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// A document of 10 kB and `images` of 10 kB that it names at its end.
fn page(images: usize) -> String {
    let images: String = (0..images)
        .map(|number| format!(", {{ url = 'https://a.org/{number}', size = '10 kB' }}"))
        .collect();
    format!("{{ resources = [{{ url = 'https://a.org/', size = '10 kB' }}{images}] }}")
}

/// One load of a page; `keys` are those of its flow, `workload` more of its workload.
fn load(page: &str, keys: &str, workload: &str) -> Options {
    let text = format!(
        "[links.l]\nrate = '100 Mbit/s'\ndelay = '25 ms'\nqueue = '500 kB'\n\
         [[flows]]\nscheme = 'cubic'\nstart = '0.2 s'\n{keys}\n\
         workload = {{ kind = 'page', page = {page}{workload} }}\n"
    );
    let scenario = Scenario::parse(&text, "test.toml").unwrap();
    Options::of_scenario(scenario, Span::from_secs(10.0), 1)
}

#[test]
fn handshakes_and_the_request_take_three_round_trips_either_way() {
    let Some(_alone) = alone() else { return };
    for (ip, keys) in [
        (Ip::V4, ""),
        (Ip::V6, "direction = 'reverse'\necn = true"),
        (Ip::V4, "mss = '536 B'\ninitial_window = 40"),
        (Ip::V4, "receive_window = '200 kB'"),
    ] {
        let options = Options {
            ip,
            ..load(&page(0), keys, "")
        };
        let Some((report, trace)) = valid_run(&options) else {
            return;
        };
        let [one] = &report.pages[..] else {
            panic!("{report:?}")
        };
        // TCP, TLS and the request; 10 kB take 1 ms
        let load_ms = one.load_ms.unwrap();
        assert!((150.0..158.0).contains(&load_ms), "{keys}: {load_ms}");
        assert_eq!((one.connections, one.start_s), (1, 0.2));
        assert_eq!(one.first_byte_ms, one.load_ms);
        let [flow] = &report.flows[..] else {
            panic!("{report:?}")
        };
        let completed_s = flow.completed_s.unwrap();
        assert!((completed_s - 0.2 - load_ms / 1e3).abs() < 1e-6);
        assert!((13_000..14_500).contains(&flow.delivered_bytes));
        // the server is watched from its first byte on; the run ends before the acknowledgment of the last
        let (first, last) = (
            trace.records.first().unwrap(),
            trace.records.last().unwrap(),
        );
        assert_eq!((trace.flows(), first.snd_una_bytes), (vec![0], Some(0)));
        assert!(last.snd_nxt_bytes >= Some(3250), "{last:?}");
        assert!(last.time_s < 0.6, "{last:?}");
    }
}

#[test]
fn each_connection_is_a_flow_with_packets_of_its_own() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("packets.parquet");
    let options = Options {
        packets_file: Some(file.clone()),
        ..load(
            &page(20),
            "count = 2\nevery = '1 s'",
            ", protocol = 'http/1.1'",
        )
    };
    let Some((report, trace)) = valid_run(&options) else {
        return;
    };
    assert_eq!(report.flows.len(), 12);
    let firsts: Vec<_> = report
        .pages
        .iter()
        .map(|page| (page.first_flow, page.connections))
        .collect();
    assert_eq!(firsts, [(0, 6), (6, 6)]);
    for page in &report.pages {
        let flows: BTreeSet<_> = page.resources.iter().map(|one| one.flow.unwrap()).collect();
        assert_eq!(
            flows,
            (page.first_flow..page.first_flow + 6).collect::<BTreeSet<_>>()
        );
        assert!(page.resources.iter().all(|one| one.finished_ms.is_some()));
    }
    assert_eq!(trace.flows(), (0..12).collect::<Vec<u32>>());
    let packets = ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap();
    let mut named = BTreeSet::new();
    for batch in packets.build().unwrap() {
        let batch = batch.unwrap();
        let flows = batch.column_by_name("flow").unwrap();
        named.extend(flows.as_primitive::<UInt32Type>().values().iter().copied());
    }
    assert_eq!(named, (0..12).collect::<BTreeSet<u32>>());
}

#[test]
fn a_run_that_ends_before_the_page_says_what_had_come() {
    let Some(_alone) = alone() else { return };
    let options = Options {
        duration: Span::from_millis(420),
        ..load(&page(300), "", "")
    };
    let Some((report, _)) = valid_run(&options) else {
        return;
    };
    let [one] = &report.pages[..] else {
        panic!("{report:?}")
    };
    assert_eq!(one.load_ms, None);
    let came = one.resources.iter().filter(|one| one.finished_ms.is_some());
    assert!((1..300).contains(&came.count()));
    assert_eq!(report.flows[0].completed_s, None);
}

#[test]
fn other_flows_run_beside_a_page() {
    let Some(_alone) = alone() else { return };
    let mut options = load(&page(5), "", "");
    let text = options.scenario.to_toml()
        + "[[flows]]\nscheme = 'reno'\nworkload = { kind = 'transfer', size = '300 kB' }\n\
           [[flows]]\nscheme = 'quic-cubic'\nworkload = { kind = 'transfer', size = '200 kB' }\n\
           [[flows]]\nscheme = 'udp'\nworkload = { kind = 'constant-rate', rate = '100 kbit/s', count = 5 }\n";
    options.scenario = Scenario::parse(&text, "test.toml").unwrap();
    let Some((report, _)) = valid_run(&options) else {
        return;
    };
    assert!(report.pages[0].load_ms.is_some());
    let bytes: Vec<u64> = report.flows[1..]
        .iter()
        .map(|flow| flow.delivered_bytes)
        .collect();
    assert_eq!(bytes, [300_000, 200_000, 7240]);
    assert!(report.flows.iter().all(|flow| flow.completed_s.is_some()));
}

#[test]
fn a_server_needs_a_scheme_that_the_kernel_has() {
    let Some(_alone) = alone() else { return };
    let mut options = load(&page(0), "", "");
    let text = options.scenario.to_toml().replace("cubic", "nosuch");
    options.scenario = Scenario::parse(&text, "test.toml").unwrap();
    let error = emulate(&options, &|_| (), &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, EmulatorError::Scheme(_)), "{error}");
}
