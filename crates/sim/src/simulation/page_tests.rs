//! Pages over HTTP in the simulator.

use std::ops::ControlFlow;

use pathcast_path::Span;
use pathcast_scenario::Scenario;
use pathcast_trace::PageReport;

use super::*;

/// A document of 10 kB and `count` images of `bytes` that it names at its end.
fn page(count: usize, bytes: usize) -> String {
    let images = (0..count).map(|number| {
        format!(
            ", {{ url = 'https://a.org/{number}', type = 'image', size = '{bytes} B', header = '300 B' }}"
        )
    });
    let images: String = images.collect();
    format!("{{ resources = [{{ url = 'https://a.org/', size = '10 kB' }}{images}] }}")
}

fn simulation(path: &str, scheme: &str, workload: &str, more: &str, seed: u64) -> Simulation {
    let text = format!(
        "[links.l]\n{path}\n[links.l.reverse]\nloss = 0.0\n\
         [[flows]]\nscheme = '{scheme}'\nstart = '1 s'\nworkload = {workload}\n{more}"
    );
    Simulation {
        scenario: Scenario::parse(&text, "test.toml").unwrap(),
        duration: Span::from_secs(100.0),
        seed,
    }
}

fn workload(page: &str, protocol: &str) -> String {
    format!("{{ kind = 'page', page = {page}, protocol = '{protocol}' }}")
}

fn go(simulation: &Simulation) -> Outcome {
    simulation.run(&mut |_| ControlFlow::Continue(())).unwrap()
}

fn load_ms(outcome: &Outcome) -> f64 {
    outcome.pages()[0].load_ms.unwrap()
}

const FAST: &str = "rate = '1 Gbit/s'\ndelay = '25 ms'";

#[test]
fn handshakes_and_the_request_take_three_round_trips() {
    let outcome = go(&simulation(
        FAST,
        "cubic",
        &workload(&page(0, 1), "h2"),
        "",
        1,
    ));
    let PageReport {
        first_byte_ms,
        load_ms,
        connections,
        resources,
        ..
    } = &outcome.pages()[0];
    // TCP, TLS and the request, and 10 kB are seven packets of the first window
    assert!((150.0..152.0).contains(&load_ms.unwrap()), "{load_ms:?}");
    // 10 kB are one record, which is whole before it can be read
    assert_eq!(first_byte_ms, load_ms);
    assert_eq!((*connections, resources.len()), (1, 1));
    assert_eq!(resources[0].wanted_ms, Some(0.0));
    assert!((100.0..101.0).contains(&resources[0].asked_ms.unwrap()));
    // the server sent the handshake of TLS and the response
    let sent = outcome.flows()[0].delivered_bytes;
    assert!((13_000..14_500).contains(&sent), "{sent}");
}

#[test]
fn six_connections_take_the_rounds_of_six() {
    let twelve = workload(&page(12, 1000), "http/1.1");
    let outcome = go(&simulation(FAST, "cubic", &twelve, "", 1));
    assert_eq!(outcome.pages()[0].connections, 6);
    // one image after the document in each round trip; five connections open in two
    let rounds: Vec<f64> = outcome.pages()[0].resources[1..]
        .iter()
        .map(|one| (one.finished_ms.unwrap() / 50.0).round())
        .collect();
    let count = |round: f64| rounds.iter().filter(|one| **one == round).count();
    assert_eq!(
        (count(4.0), count(5.0), count(6.0), count(7.0)),
        (1, 1, 6, 4)
    );
    let all = go(&simulation(
        FAST,
        "cubic",
        &workload(&page(12, 1000), "h2"),
        "",
        1,
    ));
    // each request is a write of its own: ten fill the browser's first window, the others wait for a round trip
    assert!((250.0..255.0).contains(&load_ms(&all)), "{}", load_ms(&all));
    let ten = go(&simulation(
        FAST,
        "cubic",
        &workload(&page(10, 1000), "h2"),
        "",
        1,
    ));
    assert!((200.0..205.0).contains(&load_ms(&ten)), "{}", load_ms(&ten));
}

#[test]
fn a_full_link_sets_the_time_whatever_the_protocol() {
    // 3 MB at 10 Mbit/s take 2.5 s with headers; handshakes and slow start half a second at most
    let slow = "rate = '10 Mbit/s'\ndelay = '25 ms'\nqueue = '2 BDP'";
    for protocol in ["http/1.1", "h2"] {
        let outcome = go(&simulation(
            slow,
            "cubic",
            &workload(&page(30, 100_000), protocol),
            "",
            1,
        ));
        let took = load_ms(&outcome);
        assert!((2500.0..3100.0).contains(&took), "{protocol}: {took}");
    }
}

#[test]
fn at_one_percent_the_right_protocol_is_that_of_the_congestion_control() {
    let lossy = "rate = '20 Mbit/s'\ndelay = '25 ms'\nqueue = '500 kB'\nloss = 0.01";
    let median = |scheme: &str, protocol: &str| {
        let work = workload(&page(60, 20_000), protocol);
        let mut times: Vec<f64> = (0..21)
            .map(|seed| load_ms(&go(&simulation(lossy, scheme, &work, "", seed))))
            .collect();
        times.sort_by(f64::total_cmp);
        times[10]
    };
    assert!(median("cubic", "http/1.1") < 0.8 * median("cubic", "h2"));
    assert!(median("bbr", "h2") < 0.8 * median("bbr", "http/1.1"));
}

#[test]
fn http_3_takes_a_round_trip_less_and_none_where_servers_are_known() {
    let first = |more: &str| {
        let page = page(0, 1).replace("10 kB", "500 B");
        let work = format!("{{ kind = 'page', page = {page}, protocol = 'h3'{more} }}");
        let outcome = go(&simulation(FAST, "quic-cubic", &work, "", 1));
        let report = &outcome.pages()[0];
        assert_eq!((report.protocol.as_str(), report.connections), ("h3", 1));
        report.load_ms.unwrap()
    };
    assert!((100.0..101.0).contains(&first("")), "{}", first(""));
    let known = first(", early_data = true");
    assert!((50.0..51.0).contains(&known), "{known}");
    // a longer chain of certificates waits for the browser's address to be known
    let long = first(", certificate = '8 kB'");
    assert!((150.0..165.0).contains(&long), "{long}");
}

#[test]
fn http_3_fills_a_link_and_ends_under_losses() {
    let work = workload(&page(30, 100_000), "h3");
    let slow = "rate = '10 Mbit/s'\ndelay = '25 ms'\nqueue = '2 BDP'";
    for scheme in ["quic-cubic", "quic-reno", "quic-bbr3"] {
        let took = load_ms(&go(&simulation(slow, scheme, &work, "", 1)));
        assert!((2450.0..3300.0).contains(&took), "{scheme}: {took}");
    }
    let lossy = "rate = '10 Mbit/s'\ndelay = '25 ms'\nloss = 0.05";
    let took = load_ms(&go(&simulation(lossy, "quic-cubic", &work, "", 1)));
    assert!((3000.0..60_000.0).contains(&took), "{took}");
}

#[test]
fn a_loss_delays_fewer_resources_by_http_3_than_by_http_2() {
    // packet 20 is lost; what the browser has got 30 ms later than without the loss
    let late = |protocol: &str, scheme: &str| {
        let path = |loss: &str| format!("rate = '50 Mbit/s'\ndelay = '25 ms'{loss}");
        let work = workload(&page(20, 1200), protocol);
        let ends = |loss: &str| -> Vec<f64> {
            let outcome = go(&simulation(&path(loss), scheme, &work, "", 1));
            let resources = outcome.pages()[0].resources.iter();
            resources.map(|one| one.finished_ms.unwrap()).collect()
        };
        let (clean, lossy) = (
            ends(""),
            ends("\nloss = { kind = 'bursts', packets = [[20, 20]] }"),
        );
        let pairs = clean.iter().zip(&lossy);
        pairs.filter(|(a, b)| *b - *a > 30.0).count()
    };
    let (h2, h3) = (late("h2", "cubic"), late("h3", "quic-cubic"));
    assert!(h3 <= 2 && h2 > 2 * h3.max(1), "{h2} {h3}");
}

#[test]
fn other_flows_do_not_keep_a_load_from_ending() {
    let work = workload(&page(5, 50_000), "h2");
    let bulk = "[[flows]]\nscheme = 'cubic'\n";
    let path = "rate = '20 Mbit/s'\ndelay = '10 ms'";
    let beside = simulation(path, "cubic", &work, bulk, 1);
    let outcome = beside.load(&mut |_| ControlFlow::Continue(())).unwrap();
    assert!(outcome.elapsed < Span::from_secs(20.0));
    let alone = go(&simulation(path, "cubic", &work, "", 1));
    assert!(load_ms(&outcome) > 1.2 * load_ms(&alone));
    // the same loads come out when the rest of the run follows
    assert_eq!(go(&beside).pages(), outcome.pages());
}

#[test]
fn the_same_seed_loads_the_same() {
    let lossy = "rate = '20 Mbit/s'\ndelay = '25 ms'\nloss = 0.02";
    let work = workload(&page(40, 15_000), "http/1.1");
    let run = |seed| {
        go(&simulation(lossy, "cubic", &work, "", seed))
            .pages()
            .to_vec()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
    let work = workload(&page(40, 15_000), "h3");
    let over_quic = |seed| {
        let outcome = go(&simulation(lossy, "quic-cubic", &work, "", seed));
        outcome.pages().to_vec()
    };
    assert_eq!(over_quic(3), over_quic(3));
    assert_ne!(over_quic(3), over_quic(4));
}
