//! Delivered packets for each CPU second, for five runs on one thread.
//!
//! `cargo run --release -p pathcast-sim --example speed [SCALE [NAME]]`; SCALE multiplies the virtual time,
//! NAME is how a run's name begins.
//! CPU time is the kernel's (`/proc/self/schedstat`); where there is none it is wall time, which is
//! longer on a busy machine. Runs of the same program differ by some 10 % on a machine that is shared.

use std::ops::ControlFlow;
use std::time::Instant;

use pathcast_congestion::Scheme;
use pathcast_path::{Path, Span};
use pathcast_sim::Simulation;

fn main() {
    let scale: f64 = std::env::args()
        .nth(1)
        .map_or(1.0, |text| text.parse().expect("SCALE is a number"));
    let runs = [
        (
            "1 cubic, 100 Mbit/s, 40 ms",
            Scheme::named("cubic"),
            1,
            "100 Mbit/s",
            20,
            300.0,
        ),
        (
            "10 reno, 100 Mbit/s, 20 ms",
            Scheme::named("reno"),
            10,
            "100 Mbit/s",
            10,
            300.0,
        ),
        (
            "10 cubic, 1 Gbit/s, 20 ms",
            Scheme::named("cubic"),
            10,
            "1 Gbit/s",
            10,
            60.0,
        ),
        (
            "1000 cubic, 1 Gbit/s, 20 ms",
            Scheme::named("cubic"),
            1000,
            "1 Gbit/s",
            10,
            30.0,
        ),
        (
            "10,000 cubic, 10 Gbit/s, 10 ms",
            Scheme::named("cubic"),
            10_000,
            "10 Gbit/s",
            5,
            3.0,
        ),
    ];
    let chosen = std::env::args().nth(2).unwrap_or_default();

    println!(
        "{:30} {:>12} {:>8} {:>16}",
        "", "packets", "CPU s", "packets/CPU s"
    );
    for (name, scheme, flows, rate, delay_ms, duration_s) in runs {
        if !name.starts_with(&chosen) {
            continue;
        }
        let path = format!("rate = '{rate}'\ndelay = '{delay_ms} ms'\nqueue = '1 BDP'\n");
        let path = Path::parse(&path, "speed.toml").expect("a valid path");
        let duration = Span::from_secs(duration_s * scale);
        let spec = Simulation::bulk(path, &vec![scheme; flows], duration, 1);
        let wall = Instant::now();
        let before_s = cpu_s();
        let outcome = spec.run(&mut |_| ControlFlow::Continue(())).expect("runs");
        let spent_s = match (before_s, cpu_s()) {
            (Some(before), Some(after)) => after - before,
            _ => wall.elapsed().as_secs_f64(),
        };
        let packets = outcome.data().delivered;
        let rate = packets as f64 / spent_s;
        println!("{name:30} {packets:12} {spent_s:8.3} {rate:16.0}");
    }
}

/// CPU time of this process so far.
fn cpu_s() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    let nanos: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanos * 1e-9)
}
