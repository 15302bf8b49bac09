use std::sync::Arc;

use pathcast_path::Span;
use pathcast_scenario::{Http, Page, Protocol, StreamOrder};

use super::*;

fn page(count: usize, bytes: usize) -> Arc<Page> {
    let images = (0..count).map(|number| {
        format!(
            "[[resources]]\nurl = 'https://a.org/{number}'\ntype = 'image'\nsize = '{bytes} B'\n"
        )
    });
    let images: String = images.collect();
    let text = format!("[[resources]]\nurl = 'https://a.org/'\nsize = '10 kB'\n{images}");
    Arc::new(Page::parse(&text, "page.toml").unwrap())
}

fn model(scheme: &str, rate_bps: Option<f64>, loss: f64) -> Model {
    Model::new(
        scheme,
        Span::from_millis(50),
        rate_bps,
        LossCurve::constant(loss),
    )
}

fn median_ms(page: &Arc<Page>, protocol: Protocol, model: &Model) -> f64 {
    let mut times: Vec<f64> = (0..41)
        .map(|seed| {
            load(page, Http::new(protocol), model, seed)
                .load_ms
                .unwrap()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[20]
}

#[test]
fn without_a_link_and_losses_only_round_trips_count() {
    let free = model("cubic", None, 0.0);
    // TCP, TLS, request and response
    assert_eq!(median_ms(&page(0, 1), Protocol::Http2, &free), 150.0);
    // the images in one more; in HTTP/1.1 one on the open connection, and five others after two more
    assert_eq!(median_ms(&page(6, 1000), Protocol::Http2, &free), 200.0);
    assert_eq!(median_ms(&page(12, 1000), Protocol::Http1, &free), 350.0);
    // QUIC opens in one round trip, and in none where the server is known
    assert_eq!(median_ms(&page(6, 1000), Protocol::Http3, &free), 150.0);
    let early = Http {
        early_data: true,
        ..Http::new(Protocol::Http3)
    };
    assert_eq!(load(&page(6, 1000), early, &free, 1).load_ms, Some(100.0));
    // 10, 20 and 40 packets hold 100 kB: the document took 7 of the first window
    let slow_start = median_ms(&page(1, 100_000), Protocol::Http2, &free);
    assert!((250.0..=350.0).contains(&slow_start), "{slow_start}");
}

#[test]
fn a_link_sets_the_time_of_large_pages() {
    // 3 MB at 10 Mbit/s take 2.5 s with headers
    for protocol in Protocol::ALL {
        let took = median_ms(
            &page(30, 100_000),
            protocol,
            &model("cubic", Some(10e6), 0.0),
        );
        assert!((2450.0..3200.0).contains(&took), "{protocol}: {took}");
    }
}

#[test]
fn the_right_protocol_depends_on_loss_and_congestion_control() {
    let page = page(60, 20_000);
    let both = |scheme, loss| {
        let model = model(scheme, Some(20e6), loss);
        (
            median_ms(&page, Protocol::Http1, &model),
            median_ms(&page, Protocol::Http2, &model),
        )
    };
    let (h1, h2) = both("cubic", 0.0);
    assert!(h2 < h1, "{h1} {h2}");
    let (h1, h2) = both("cubic", 0.02);
    assert!(h1 < 0.8 * h2, "{h1} {h2}");
    let (h1, h2) = both("bbr", 0.02);
    assert!(h2 < h1, "{h1} {h2}");
    // a stream that waits for a repair holds up no other: the page takes as long, its resources come sooner
    let mean_ms = |protocol| {
        let http = Http {
            streams: StreamOrder::Priority,
            ..Http::new(protocol)
        };
        let model = model("cubic", Some(20e6), 0.02);
        let loads = (0..41).map(|seed| load(&page, http, &model, seed).times);
        let ends = loads.flatten().filter_map(|times| times.finished);
        let (count, sum) = ends.fold((0.0, 0.0), |(count, sum), at| {
            (count + 1.0, sum + at.as_secs() * 1e3)
        });
        sum / count
    };
    let (h2, h3) = (mean_ms(Protocol::Http2), mean_ms(Protocol::Http3));
    assert!(h3 < 0.97 * h2, "{h2} {h3}");
}

#[test]
fn the_loss_curve_counts_where_the_window_is() {
    let curve = LossCurve::of_points(vec![(10.0, 0.0), (20.0, 0.1), (40.0, 0.3)]).unwrap();
    let near = |window: f64, p: f64| assert!((curve.at(window) - p).abs() < 1e-12);
    near(5.0, 0.0);
    near(15.0, 0.05);
    near(30.0, 0.2);
    near(99.0, 0.3);
    assert_eq!(LossCurve::of_points(vec![]), None);
    assert_eq!(LossCurve::of_points(vec![(2.0, 0.1), (1.0, 0.1)]), None);
    assert_eq!(LossCurve::of_points(vec![(2.0, 1.1)]), None);
    // losses of large windows alone do not harm six connections that stay small
    let page = page(60, 20_000);
    let large = LossCurve::of_points(vec![(30.0, 0.0), (31.0, 0.05)]).unwrap();
    let model = Model::new("cubic", Span::from_millis(50), Some(20e6), large);
    let clean = Model::new(
        "cubic",
        Span::from_millis(50),
        Some(20e6),
        LossCurve::constant(0.0),
    );
    let slower = |protocol| median_ms(&page, protocol, &model) / median_ms(&page, protocol, &clean);
    assert!(slower(Protocol::Http2) > 1.1, "{}", slower(Protocol::Http2));
    assert!(slower(Protocol::Http1) < 1.1, "{}", slower(Protocol::Http1));
}

#[test]
fn losses_are_those_of_as_many_connections_as_send() {
    let clean = model("cubic", Some(20e6), 0.0);
    let lossy = LossCurve::constant(0.05);
    let with = |number| Model {
        curves: vec![(number, lossy.clone()), (20, LossCurve::constant(0.0))],
        ..clean.clone()
    };
    let alone = page(0, 1);
    let many = page(60, 20_000);
    let slower = |page: &Arc<Page>, protocol, model: &Model| {
        median_ms(page, protocol, model) / median_ms(page, protocol, &clean)
    };
    // six connections are nearer to 2 than to 20, and one to 1
    assert!(slower(&many, Protocol::Http1, &with(2)) > 1.1);
    assert!(slower(&many, Protocol::Http2, &with(1)) > 1.5);
    // six are nearer to 6 than to 1: losses of one connection count where one sends
    let six = Model {
        curves: vec![(1, LossCurve::constant(0.0)), (6, lossy.clone())],
        ..clean.clone()
    };
    assert!(slower(&many, Protocol::Http1, &six) > 1.1);
    assert!((slower(&many, Protocol::Http2, &six) - 1.0).abs() < 0.01);
    assert!((slower(&alone, Protocol::Http1, &six) - 1.0).abs() < 0.01);
}

#[test]
fn the_same_seed_loads_the_same() {
    let (page, model) = (page(40, 15_000), model("cubic", Some(20e6), 0.02));
    let run = |seed| load(&page, Http::new(Protocol::Http2), &model, seed);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).load_ms, run(2).load_ms);
}
