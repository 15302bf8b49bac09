//! Delivered packets of QUIC for each CPU second, for each controller, on one thread.
//!
//! `cargo run --release -p pathcast-sim --example quic_speed [SECONDS]`

use std::ops::ControlFlow;

use pathcast_path::{Path, Span};
use pathcast_scenario::{QuicScheme, Scenario};
use pathcast_sim::Simulation;

fn main() {
    let duration_s: f64 = std::env::args()
        .nth(1)
        .map_or(60.0, |text| text.parse().expect("SECONDS is a number"));
    let text = "rate = '100 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n";
    for scheme in QuicScheme::ALL {
        let path = Path::parse(text, "speed.toml").expect("a valid path");
        let simulation = Simulation {
            scenario: Scenario::bulk(path, [scheme.name()]),
            duration: Span::from_secs(duration_s),
            seed: 1,
        };
        let before_s = cpu_s();
        let outcome = simulation.run(&mut |_| ControlFlow::Continue(()));
        let spent_s = cpu_s() - before_s;
        let packets = outcome.expect("runs").data().delivered;
        let rate = packets as f64 / spent_s;
        println!(
            "{:12} {packets:10} packets {spent_s:8.3} s {rate:10.0} packets/CPU s",
            scheme.name()
        );
    }
}

/// CPU time of this process so far, by Linux.
fn cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    let nanos = text.split_whitespace().next().map(str::parse::<f64>);
    nanos.and_then(Result::ok).expect("a number") * 1e-9
}
