//! Budgets of the issue: one fit of a 100 s window under 5 ms, one forecast under 200 us.
//!
//! Caveat: the flow is a synthetic CUBIC sawtooth with one record per packet of growth; a trace with
//! a record per acknowledgment has ten times as many, and `fit` is linear in them.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use pathcast_analysis::{FitOptions, Series, fit};
use pathcast_forecast::{Forecaster, ForecasterOptions, Observation, econ};
use pathcast_window_law::Cc;
use pathcast_window_law::Epoch;

/// CUBIC at 0.2 s, losing at 400 to 1000 packets in turn, one record per packet of change.
fn flow(duration_s: f64) -> Series {
    let (mut time_s, mut cwnd) = (vec![], vec![]);
    let (mut now_s, mut loss, mut turn) = (0.0, 700.0, 0_u32);
    while now_s < duration_s {
        let epoch = Epoch::after_loss(Cc::Cubic, loss, 0.0, 0.2);
        let from = loss as u32;
        for w in (epoch.start_packets as u32..from).rev() {
            time_s.push(now_s);
            cwnd.push(f64::from(w));
            now_s += 0.2 / (0.3 * loss);
        }
        turn += 1;
        loss = 400.0 + f64::from(turn * 37 % 7) * 100.0;
        let (mut t, mut w) = (0.0, epoch.start_packets);
        while w < loss && t < 60.0 {
            t += 0.01;
            if epoch.window_packets(t) >= w + 1.0 {
                w = epoch.window_packets(t).floor();
                time_s.push(now_s + t);
                cwnd.push(w);
            }
        }
        now_s += t + 0.2;
    }
    Series::new(time_s, cwnd).expect("sorted and positive")
}

fn models(criterion: &mut Criterion) {
    let window = flow(100.0);
    let options = FitOptions {
        cc: Some(Cc::Cubic),
        ..FitOptions::default()
    };
    criterion.bench_function("fit_100_s", |b| {
        b.iter(|| fit(black_box(&window), &options));
    });

    let long = flow(600.0);
    let horizons_s = vec![1.0, 5.0, 10.0, 30.0, 60.0];
    let mut forecaster = Forecaster::new(&ForecasterOptions {
        cc: Cc::Cubic,
        rtt_s: Some(0.2),
        horizons_s: horizons_s.clone(),
    })
    .expect("valid options");
    for (&time_s, &cwnd_packets) in long.time_s().iter().zip(long.cwnd_packets()) {
        let record = Observation {
            time_s,
            cwnd_packets,
            snd_nxt_packets: None,
            srtt_s: None,
        };
        forecaster.observe(&record).expect("a valid record");
    }
    for horizon_s in horizons_s {
        criterion.bench_function(&format!("forecast_{horizon_s}_s"), |b| {
            b.iter(|| forecaster.forecast(black_box(long.end_s()), horizon_s));
        });
    }

    let curve = fit(&window, &options).curve;
    criterion.bench_function("econ", |b| {
        b.iter(|| {
            econ::congestion_avoidance(Cc::Cubic, black_box(500.0), 0.2, |w| {
                curve.loss_probability(w)
            })
        });
    });

    // ten seconds of a flow: records, ten samples, and one refit with all its tables
    criterion.bench_function("observe_10_s", |b| {
        let records: Vec<Observation> = (long.time_s().iter().zip(long.cwnd_packets()))
            .filter(|(time_s, _)| (580.0..590.0).contains(*time_s))
            .map(|(&time_s, &cwnd_packets)| Observation {
                time_s: time_s + long.end_s() - 580.0,
                cwnd_packets,
                snd_nxt_packets: None,
                srtt_s: None,
            })
            .collect();
        b.iter_batched(
            || forecaster.clone(),
            |mut forecaster| {
                records
                    .iter()
                    .for_each(|record| forecaster.observe(record).expect("valid"));
                forecaster
            },
            criterion::BatchSize::LargeInput,
        );
    });
}

criterion_group!(benches, models);
criterion_main!(benches);
