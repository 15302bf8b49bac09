//! Budget of the issue: one latency forecast under 200 us, from 1 KB to 100 MB.
//!
//! Caveat: with a loss curve of many points each look-up is a binary search; with a constant
//! probability it is not. Both are here.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use pathcast_analysis::EpochDetector;
use pathcast_analysis::hazard::Hazard;
use pathcast_transfer::latency::{LatencyPath, Loss, Opening, Start, Transfer, latency};
use pathcast_window_law::Cc;

fn latencies(criterion: &mut Criterion) {
    let mut hazard = Hazard::default();
    for w in 5..3000 {
        hazard.sent(f64::from(w), 1e6, 10.0);
        (0..1000).for_each(|_| hazard.lost(f64::from(w), 10.0));
    }
    hazard.smooth();
    let mut group = criterion.benchmark_group("latency");
    for (name, cc, loss) in [
        ("cubic", Cc::Cubic, Loss::Constant(1e-3)),
        ("reno", Cc::Reno, Loss::Constant(1e-3)),
        ("cubic_by_curve", Cc::Cubic, Loss::Hazard(&hazard)),
    ] {
        let path = LatencyPath {
            rtt_s: 0.05,
            loss,
            capacity_packets_per_s: 4167.0,
            buffer_packets: 208.0,
            ..LatencyPath::unlimited(cc)
        };
        for bytes in [1_000, 100_000, 10_000_000, 100_000_000] {
            group.bench_with_input(BenchmarkId::new(name, bytes), &bytes, |b, &bytes| {
                let start = Start::New(Opening::default());
                b.iter(|| latency(black_box(&path), start, &Transfer::of(bytes)));
            });
        }
        // mid-flow, from what a detector has seen
        let mut detector = EpochDetector::new(cc, 0.05);
        for i in 0..400 {
            detector.push(f64::from(i) * 0.05, f64::from(100 + i % 101));
        }
        let state = detector.state(19.95);
        group.bench_function(
            BenchmarkId::new(format!("{name}_mid_flow"), 100_000_000),
            |b| {
                let start = Start::MidFlow {
                    state: black_box(&state),
                    now_s: 19.95,
                };
                b.iter(|| latency(&path, start, &Transfer::of(100_000_000)));
            },
        );
    }
    group.finish();
}

criterion_group!(benches, latencies);
criterion_main!(benches);
