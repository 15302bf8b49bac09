//! Budget of the issue: the delay bound of 40,000 packets at a curve of 40 segments well under 0.1 s.
//!
//! Caveat: a convex curve takes divide and conquer, whatever the traffic; a stepped one takes branch
//! and bound, which depends on it: here the load is half of the service, and then all of it.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use pathcast_netcalc::{Arrivals, Curve};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// Packets of 1500 bytes in bursts, at this rate in bit/s.
fn traffic(count: usize, rate: f64) -> Arrivals {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut uniform = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut time = 0.0;
    let times: Vec<f64> = (0..count)
        .map(|_| {
            if uniform() < 0.1 {
                time -= 10.0 * 12e3 / rate * uniform().max(1e-9).ln();
            }
            time
        })
        .collect();
    Arrivals::new(&times, &vec![12e3; count]).expect("a trace")
}

/// The curve of 40 probed rates up to 10 Mbit/s.
fn probed() -> Curve {
    let rates: Vec<f64> = (1..=40).map(|i| f64::from(i) * 0.25e6).collect();
    let delays: Vec<f64> = rates.iter().map(|r| 0.03 / (1.01 - r / 10e6)).collect();
    Curve::from_probes(&rates, &delays).expect("a curve")
}

fn bounds(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("min_plus");
    let stepped = Curve::window_flow_control(40e6, 0.05, 0.1, 1e6).expect("a curve");
    for (load, rate) in [("half", 5e6), ("all", 10e6), ("twice", 20e6)] {
        let packets = traffic(40_000, rate);
        for (name, service) in [("probed", probed()), ("stepped", stepped.clone())] {
            let id = BenchmarkId::new(format!("delays_{name}"), load);
            group.bench_with_input(id, &service, |b, service| {
                b.iter(|| packets.delay_bounds(black_box(service)).expect("bounds"));
            });
        }
    }
    let packets = traffic(40_000, 5e6);
    group.bench_function("backlogs_probed/half", |b| {
        let service = probed();
        b.iter(|| packets.backlog_bounds(black_box(&service)).expect("bounds"));
    });
    group.bench_function("envelope_of_4000", |b| {
        let packets = traffic(4_000, 5e6);
        b.iter(|| black_box(&packets).envelope().expect("an envelope"));
    });
    group.bench_function("windowed", |b| {
        let network = Curve::latency_rate(10e6, 0.05).expect("a curve");
        b.iter(|| Curve::windowed(black_box(&network), 0.05, 500e3).expect("a curve"));
    });
    group.bench_function("convolve_probed_with_stepped", |b| {
        let service = probed();
        b.iter(|| black_box(&service).convolve(&stepped).expect("a curve"));
    });
    group.finish();
}

criterion_group!(benches, bounds);
criterion_main!(benches);
