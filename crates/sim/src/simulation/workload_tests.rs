//! What applications do.

use super::tests::{CORE, run, scenario};

#[test]
fn a_transfer_ends_the_run_when_it_has_arrived() {
    let flow = "[[flows]]\nscheme = 'cubic'\nworkload = { kind = 'transfer', size = '1 MB' }\n";
    let outcome = run(&scenario(&format!("{CORE}{flow}"), 60.0, 1));
    let report = &outcome.flows()[0];
    assert_eq!(
        (report.delivered_bytes, report.workload.as_str()),
        (1_000_000, "transfer")
    );
    // 0.69 s on the link alone, a few round trips of slow start before it is full
    let took_s = report.completed_s.unwrap();
    assert!((0.75..1.1).contains(&took_s), "{took_s}");
    assert_eq!(outcome.elapsed.as_secs(), took_s);
    let messages = report.messages.unwrap();
    assert_eq!((messages.written, messages.delivered), (1, 1));
    assert!((messages.latency_ms.p50 / (took_s * 1e3) - 1.0).abs() < 0.02);
    assert!((report.goodput_bps * took_s / 8e6 - 1.0).abs() < 1e-9);
}

#[test]
fn probes_and_calls_have_the_rate_that_they_are_given() {
    for scheme in ["udp", "reno"] {
        let text = format!(
            "{CORE}[[flows]]\nscheme = '{scheme}'\nworkload = {{ kind = 'constant-rate', \
             rate = '2 Mbit/s', portion = '500 B' }}\n\
             [[flows]]\nscheme = '{scheme}'\nstart = '10 s'\nworkload = {{ kind = 'on-off', \
             on = {{ kind = 'exponential', mean = '200 ms' }}, \
             off = {{ kind = 'exponential', mean = '600 ms' }}, rate = '2 Mbit/s' }}\n"
        );
        let outcome = run(&scenario(&text, 1010.0, 1));
        let [probe, call] = outcome.flows() else {
            panic!()
        };
        assert!(
            (probe.goodput_bps / 2e6 - 1.0).abs() < 1e-3,
            "{scheme}: {probe:?}"
        );
        assert!(
            (call.goodput_bps / 0.5e6 - 1.0).abs() < 0.1,
            "{scheme}: {call:?}"
        );
        assert_eq!((call.start_s, call.completed_s), (10.0, None));
        let latency = probe.messages.unwrap().latency_ms;
        assert!((20.0..25.0).contains(&latency.p50), "{scheme}: {latency:?}");
    }
}

#[test]
fn a_recorded_call_is_replayed_and_ends() {
    let text = format!(
        "{CORE}[[flows]]\nscheme = 'udp'\nworkload = {{ kind = 'replay', \
         writes = [['0 s', '3 kB'], ['40 ms', '100 B'], ['80 ms', '1 kB']] }}\n"
    );
    let outcome = run(&scenario(&text, 60.0, 1));
    let report = &outcome.flows()[0];
    assert_eq!((report.delivered_bytes, outcome.data.delivered), (4100, 5));
    let done_s = report.completed_s.unwrap();
    assert!((done_s - 0.1007).abs() < 1e-3, "{done_s}");
}

#[test]
fn an_answer_takes_a_round_trip_and_its_time_on_the_link() {
    let text = format!(
        "{CORE}[[flows]]\nscheme = 'cubic'\nworkload = {{ kind = 'request-response', \
         response = '1000 B', think = '100 ms', count = 50 }}\n"
    );
    let outcome = run(&scenario(&text, 60.0, 1));
    let messages = outcome.flows()[0].messages.unwrap();
    assert_eq!((messages.written, messages.delivered), (50, 50));
    // 452 and 1052 bytes at 12 Mbit/s and 40 ms
    assert!(
        (messages.latency_ms.p50 / 41.003 - 1.0).abs() < 0.01,
        "{messages:?}"
    );
    assert!(
        (outcome.elapsed.as_secs() - 50.0 * 0.141).abs() < 0.2,
        "{:?}",
        outcome.elapsed
    );
}

#[test]
fn transfers_wait_for_each_other_and_slow_down_when_idle() {
    let run_with = |restart: bool| {
        let text = format!(
            "{CORE}[[flows]]\nscheme = 'reno'\nslow_start_after_idle = {restart}\nworkload = \
             {{ kind = 'transfer', size = '60 kB', pause = '2 s', count = 20 }}\n"
        );
        let outcome = run(&scenario(&text, 600.0, 1));
        let messages = outcome.flows()[0].messages.unwrap();
        assert_eq!((messages.written, messages.delivered), (20, 20));
        messages.latency_ms.p50
    };
    let (restarted, kept) = (run_with(true), run_with(false));
    assert!(restarted > kept + 40.0, "{restarted} {kept}"); // a round trip more at least
}
