//! One packet through a channel: enqueue and dequeue, a packet offered each microsecond.
//!
//! Caveat: packets carry eight bytes, come at even times, and caches stay warm; a simulation adds
//! its own work to each. The first three run in virtual time, the others in stages.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pathcast_path::{Path, Time};

const PACKETS: u64 = 100_000;

/// Offers a packet of 1500 bytes each microsecond (12 Gbit/s) and takes out what is due.
fn carry(path: &Path) -> u64 {
    let (mut channel, _) = path.channels::<u64, ()>(1);
    for step in 0..PACKETS {
        let now = Time::from_nanos(step * 1000);
        let _ = channel.enqueue(now, 1500, step);
        while channel.next_event().is_some_and(|due| due <= now) {
            black_box(channel.dequeue(now));
        }
    }
    channel.counters().delivered
}

fn channels(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("channel");
    group.throughput(Throughput::Elements(PACKETS));
    for (name, text) in [
        (
            "droptail",
            "rate = '13 Gbit/s'\ndelay = '100 us'\nqueue = '100 packets'\n",
        ),
        (
            "droptail-full",
            "rate = '11 Gbit/s'\ndelay = '100 us'\nqueue = '100 packets'\n",
        ),
        ("delay", "delay = '100 us'\n"),
        (
            "drophead",
            "rate = '11 Gbit/s'\ndelay = '100 us'\nqueue = { kind = 'drophead', limit = '100 packets' }\n",
        ),
        (
            "red",
            "rate = '11 Gbit/s'\ndelay = '100 us'\nqueue = { kind = 'red', limit = '100 packets' }\n",
        ),
        (
            "codel",
            "rate = '11 Gbit/s'\ndelay = '100 us'\nqueue = { kind = 'codel' }\n",
        ),
        (
            "pie",
            "rate = '11 Gbit/s'\ndelay = '100 us'\nqueue = { kind = 'pie' }\n",
        ),
        (
            "fq-codel",
            "rate = '11 Gbit/s'\ndelay = '100 us'\nqueue = { kind = 'fq-codel' }\n",
        ),
        (
            "poisson",
            "rate = { kind = 'poisson', rate = '13 Gbit/s' }\ndelay = '100 us'\nqueue = '100 packets'\n",
        ),
        (
            "jitter-reorder",
            "delay = { kind = 'jitter', base = '100 us', jitter = '50 us', reorder = true }\n",
        ),
        (
            "schedule",
            "rate = '13 Gbit/s'\ndelay = '100 us'\nqueue = '100 packets'\nschedule = [{ at = '1 ms', rate = '12.5 Gbit/s', loss = 0.001 }]\n",
        ),
    ] {
        let path = Path::parse(text, name).expect("a path");
        group.bench_function(name, |bencher| bencher.iter(|| carry(black_box(&path))));
    }
    group.finish();
}

criterion_group!(benches, channels);
criterion_main!(benches);
