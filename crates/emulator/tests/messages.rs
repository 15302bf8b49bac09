//! Where messages spend their time. Where these tests can run is said in `kernel.rs`.

mod common;

use std::fs::File;
use std::path::Path as FilePath;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt8Type, UInt64Type};
use common::{alone, valid_run_that};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use pathcast_emulator::Options;
use pathcast_path::Span;
use pathcast_scenario::Scenario;
use pathcast_trace::{DelaySplit, MessageReport, RunReport, Trace};

const LINK: &str = "[links.core]\nrate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n";
const DELAY_S: f64 = 20e-3;
/// Of payload in one packet: headers of IP and TCP with time stamps.
const HEADER_BYTES: f64 = 52.0;

struct Row {
    direction: u8,
    message: u64,
    written_s: f64,
    entered_s: f64,
    sent_s: f64,
    left_s: f64,
    read_s: f64,
}

fn rows(file: &FilePath) -> Vec<Row> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap();
    let mut rows = Vec::new();
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        let column = |name| batch.column_by_name(name).unwrap();
        let times = |name| column(name).as_primitive::<Float64Type>().values().to_vec();
        let directions = column("direction").as_primitive::<UInt8Type>();
        let messages = column("message").as_primitive::<UInt64Type>();
        let names = ["written_s", "entered_s", "sent_s", "left_s", "read_s"];
        let all = names.map(times);
        for at in 0..batch.num_rows() {
            let [written_s, entered_s, sent_s, left_s, read_s] = all.each_ref().map(|c| c[at]);
            rows.push(Row {
                direction: directions.value(at),
                message: messages.value(at),
                written_s,
                entered_s,
                sent_s,
                left_s,
                read_s,
            });
        }
    }
    rows
}

/// A run of one flow: its report, its messages' rows, and the bound on how late packets may be.
fn run(link: &str, flow: &str, duration_s: f64) -> Option<(RunReport, Trace, Vec<Row>, f64)> {
    run_that(link, flow, duration_s, |_, _| true)
}

/// The same, of a run for which `expected` holds of its messages and this bound; see `valid_run_that`.
fn run_that(
    link: &str,
    flow: &str,
    duration_s: f64,
    expected: impl Fn(&DelaySplit, f64) -> bool,
) -> Option<(RunReport, Trace, Vec<Row>, f64)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("messages.parquet");
    let text = format!("{LINK}{link}[[flows]]\nstart = '0 s'\n{flow}");
    let scenario = Scenario::parse(&text, "test.toml").unwrap();
    let options = Options {
        messages_file: Some(file.clone()),
        ..Options::of_scenario(scenario, Span::from_secs(duration_s), 1)
    };
    let (report, trace) = valid_run_that(&options, |report, trace| {
        let messages = report.flows[0].messages;
        messages
            .and_then(|messages| messages.delay_split_ms)
            .is_none_or(|split| expected(&split, bound_s(trace)))
    })?;
    let rows = rows(&file);
    for row in &rows {
        let times = [
            row.written_s,
            row.entered_s,
            row.sent_s,
            row.left_s,
            row.read_s,
        ];
        assert!(times.is_sorted(), "{times:?}");
    }
    let bound_s = bound_s(&trace);
    Some((report, trace, rows, bound_s))
}

fn bound_s(trace: &Trace) -> f64 {
    let bound_us: f64 = trace.metadata.environment["slip_bound_us"].parse().unwrap();
    bound_us * 1e-6
}

fn split(report: &RunReport) -> (MessageReport, DelaySplit) {
    let messages = report.flows[0].messages.unwrap();
    (messages, messages.delay_split_ms.unwrap())
}

#[test]
fn on_an_idle_path_messages_spend_their_time_in_the_network() {
    let Some(_alone) = alone() else { return };
    for scheme in ["cubic", "quic-cubic"] {
        on_an_idle_path(scheme);
    }
}

fn on_an_idle_path(scheme: &str) {
    let flow = format!(
        "scheme = '{scheme}'\nworkload = {{ kind = 'constant-rate', rate = '1 Mbit/s', portion = \
         '1250 B', count = 200 }}\n"
    );
    let is_quick = |split: &DelaySplit, bound_s: f64| {
        let stacks = [split.sender_stack, split.receiver_stack];
        split.buffered_fraction < 0.1 && stacks.iter().all(|stack| stack.p50 < bound_s * 1e3)
    };
    let Some((report, _, rows, bound_s)) = run_that("", &flow, 10.0, is_quick) else {
        return;
    };
    let (messages, split) = split(&report);
    assert_eq!((messages.delivered, rows.len()), (200, 200));
    assert!(
        rows.iter()
            .zip(0..)
            .all(|(row, n)| (row.direction, row.message) == (0, n))
    );
    let expected_s = DELAY_S + (1250.0 + HEADER_BYTES) * 8.0 / 20e6;
    let within = expected_s * 1e3..(expected_s + bound_s) * 1e3;
    assert!(within.contains(&split.network.p50), "{split:?}");
    assert!(is_quick(&split, bound_s), "{split:?}");
    let sum = split.sender_stack.mean + split.network.mean + split.receiver_stack.mean;
    assert!(
        (sum / messages.latency_ms.mean - 1.0).abs() < 1e-6,
        "{split:?}"
    );
}

#[test]
fn what_a_window_cannot_carry_waits_in_the_sender_s_stack() {
    let Some(_alone) = alone() else { return };
    let flow = "scheme = 'cubic'\nreceive_window = '20 kB'\nworkload = { kind = 'constant-rate', \
                rate = '8 Mbit/s', portion = '1448 B' }\n";
    let Some((report, trace, rows, _)) = run("", flow, 4.0) else {
        return;
    };
    let (_, split) = split(&report);
    assert!(split.buffered_fraction > 0.9, "{split:?}");
    // a window a round trip: rate = W / RTT. What is written at t goes at t * 8 Mbit/s / rate.
    // The first window, before the receiver was limited, is larger; scaled, 20 kB may be 20,480.
    let later = &trace.records[trace.records.len() / 4..];
    let windows = later.iter().filter_map(|record| record.rwnd_bytes);
    let window_bytes = (windows.max().unwrap() / 1448 * 1448) as f64;
    assert!((15e3..21e3).contains(&window_bytes), "{window_bytes}");
    let mut srtts: Vec<f64> = later.iter().filter_map(|r| r.srtt_s).collect();
    srtts.sort_by(f64::total_cmp);
    let rate_bps = window_bytes * 8.0 / srtts[srtts.len() / 2];
    let growth = 8e6 / rate_bps - 1.0;
    assert!(growth > 0.5, "{growth}");
    // between two messages, so that slow start does not count
    let wait_s = |row: &Row| row.entered_s - row.written_s;
    let (early, late) = (&rows[rows.len() / 4], &rows[rows.len() - 1]);
    let got = (wait_s(late) - wait_s(early)) / (late.written_s - early.written_s);
    println!("grew by {got} s a second, W / RTT says {growth}");
    assert!(
        (got / growth - 1.0).abs() < 0.1,
        "grew by {got}, W / RTT says {growth}"
    );
    assert!(
        split.sender_stack.p99 > 10.0 * split.network.p99,
        "{split:?}"
    );
}

#[test]
fn a_loss_is_repaired_from_the_sender_s_stack_and_what_follows_waits_in_the_receiver_s() {
    let Some(_alone) = alone() else { return };
    for scheme in ["reno", "quic-reno"] {
        a_loss_is_repaired(scheme);
    }
}

fn a_loss_is_repaired(scheme: &str) {
    let flow = format!(
        "scheme = '{scheme}'\nworkload = {{ kind = 'constant-rate', rate = '2 Mbit/s', portion = \
         '1250 B', count = 800 }}\n"
    );
    let Some((report, _, rows, bound_s)) = run("loss = 0.02\n", &flow, 20.0) else {
        return;
    };
    let (_, split) = split(&report);
    let count = |of: fn(&Row) -> f64| rows.iter().filter(|row| of(row) > DELAY_S).count();
    let (repaired, held) = (
        count(|row| row.sent_s - row.entered_s),
        count(|row| row.read_s - row.left_s),
    );
    // 16 losses are to be expected, and each is noticed after three more packets, at 5 ms each
    assert!((2..=60).contains(&repaired), "{repaired}");
    assert!(held > repaired, "{held} held back by {repaired}");
    assert!(split.receiver_stack.p99 > 1e3 * DELAY_S, "{split:?}");
    // the network knows nothing of that: delay, the packet's own time, and those of a few others
    let packet_s = (1448.0 + HEADER_BYTES) * 8.0 / 20e6;
    let most_s = DELAY_S + 4.0 * packet_s + bound_s;
    assert!(split.network.p95 < most_s * 1e3, "{split:?}");
}

#[test]
fn what_quic_s_window_cannot_carry_waits_in_the_sender_s_stack() {
    let Some(_alone) = alone() else { return };
    let flow = "scheme = 'quic-cubic'\nworkload = { kind = 'constant-rate', rate = '25 Mbit/s', \
                portion = '1250 B' }\n";
    let Some((report, _, rows, _)) = run("", flow, 4.0) else {
        return;
    };
    let (messages, split) = split(&report);
    assert_eq!(messages.delivered, rows.len() as u64);
    assert!(split.buffered_fraction > 0.5, "{split:?}");
    // the network has a queue of 40 ms at most; what is beyond waits for the window
    assert!(split.network.p99 < 61.0, "{split:?}");
    let last = &rows[rows.len() - 1];
    let behind_s = last.entered_s - last.written_s;
    // 25 Mbit/s come, of 20 at most 19.2 go
    assert!((0.6..1.6).contains(&behind_s), "{behind_s}");
}

#[test]
fn requests_and_answers_are_told_apart() {
    let Some(_alone) = alone() else { return };
    for scheme in ["cubic", "quic-bbr3"] {
        requests_and_answers(scheme);
    }
}

fn requests_and_answers(scheme: &str) {
    let flow = format!(
        "scheme = '{scheme}'\nworkload = {{ kind = 'request-response', response = '4 kB', think = \
         '10 ms', count = 20 }}\n"
    );
    let Some((report, _, rows, bound_s)) = run("", &flow, 10.0) else {
        return;
    };
    let (messages, split) = split(&report);
    assert_eq!((messages.delivered, rows.len()), (20, 40));
    for direction in [0, 1] {
        let numbers = rows.iter().filter(|row| row.direction == direction);
        let numbers: Vec<u64> = numbers.map(|row| row.message).collect();
        assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    }
    // the split is of the answers, the latency from request to answer
    let answers_ms = split.sender_stack.mean + split.network.mean + split.receiver_stack.mean;
    let requests_ms = messages.latency_ms.mean - answers_ms;
    let within = 1e3 * DELAY_S..1e3 * (DELAY_S + 4.0 * bound_s);
    assert!(
        within.contains(&requests_ms),
        "{requests_ms} of {messages:?}"
    );
}
