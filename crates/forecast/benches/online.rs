//! Budgets: one record into the online curve and the change detector under 1 us, one forecast under
//! 50 us.
//!
//! Caveat: the flow is a CUBIC sawtooth with sequence numbers and srtt, a record each 2 ms, as a probe
//! gives of some 500 acknowledgments a second. `forecaster_record` holds each second's learning and
//! each ten seconds' refit of two horizons, spread over all records.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pathcast_analysis::change::{ChangeDetector, ChangeRecord};
use pathcast_analysis::clusters::{Client, Clusters, Pooling};
use pathcast_analysis::follow::Follower;
use pathcast_analysis::limits::{LimitOptions, LimitRecord, LimitTracker};
use pathcast_analysis::online_curve::{FlowRecord, OnlineCurve};
use pathcast_forecast::{Forecaster, ForecasterOptions, Observation};
use pathcast_window_law::Cc;
use pathcast_window_law::Epoch;

/// CUBIC at 0.1 s, losing at 200 to 500 packets in turn.
fn flow(duration_s: f64) -> Vec<FlowRecord> {
    let mut records = vec![];
    let (mut now_s, mut sent, mut loss, mut turn) = (0.0, 0.0, 300.0, 0_u32);
    while now_s < duration_s {
        let epoch = Epoch::after_loss(Cc::Cubic, loss, 0.0, 0.1);
        turn += 1;
        loss = 200.0 + f64::from(turn * 37 % 7) * 50.0;
        let (mut t, mut w) = (0.0, epoch.start_packets);
        while w < loss && t < 60.0 {
            w = epoch.window_packets(t);
            sent += w * 0.02;
            records.push(FlowRecord {
                time_s: now_s + t,
                cwnd_packets: w.floor(),
                snd_nxt_packets: Some(sent),
                srtt_s: Some(0.1),
                npc: 1,
            });
            t += 0.002;
        }
        now_s += t;
    }
    records
}

fn observation(record: &FlowRecord) -> Observation {
    Observation {
        time_s: record.time_s,
        cwnd_packets: record.cwnd_packets,
        snd_nxt_packets: record.snd_nxt_packets,
        srtt_s: record.srtt_s,
    }
}

fn online(criterion: &mut Criterion) {
    let records = flow(300.0);
    let mut group = criterion.benchmark_group("online");
    group.throughput(Throughput::Elements(records.len() as u64));
    group.sample_size(20);
    group.bench_function("curve_records", |b| {
        b.iter(|| {
            let mut curve = OnlineCurve::new(100.0).expect("a time");
            for record in &records {
                curve.sent(record.time_s, record.cwnd_packets, 1, 1.0);
            }
            curve
        });
    });
    group.bench_function("limits_records", |b| {
        b.iter(|| {
            let mut tracker = LimitTracker::new(LimitOptions::default());
            for (i, record) in records.iter().enumerate() {
                tracker.observe(&LimitRecord {
                    time_s: record.time_s,
                    cwnd_packets: record.cwnd_packets,
                    srtt_s: record.srtt_s,
                    snd_nxt_packets: record.snd_nxt_packets,
                    snd_una_packets: record.snd_nxt_packets.map(|nxt| nxt - record.cwnd_packets),
                    retransmits: Some((i / 5000) as f64),
                    ..LimitRecord::default()
                });
            }
            tracker.limits()
        });
    });
    group.bench_function("detector_records", |b| {
        b.iter(|| {
            let mut detector = ChangeDetector::default();
            for (i, record) in records.iter().enumerate() {
                black_box(detector.observe(&ChangeRecord {
                    time_s: record.time_s,
                    cwnd_packets: record.cwnd_packets,
                    packets: 1.0,
                    losses: u32::from(i % 5000 == 0),
                    srtt_s: record.srtt_s,
                }));
            }
            detector
        });
    });
    // losses found from the window, curve and detector
    group.bench_function("follower_records", |b| {
        b.iter(|| {
            let mut follower = Follower::new(100.0).expect("a time");
            let flow = follower.add_flow(Cc::Cubic, None);
            for record in &records {
                black_box(follower.observe(flow, record));
            }
            follower
        });
    });
    let options = ForecasterOptions {
        cc: Cc::Cubic,
        rtt_s: None,
        horizons_s: vec![1.0, 10.0],
    };
    group.sample_size(10);
    group.bench_function("forecaster_records", |b| {
        b.iter(|| {
            let mut forecaster = Forecaster::new(&options).expect("valid options");
            for record in &records {
                forecaster.observe(&observation(record)).expect("a record");
            }
            forecaster
        });
    });
    group.finish();

    let mut follower = Follower::new(100.0).expect("a time");
    let flow = follower.add_flow(Cc::Cubic, None);
    let mut forecaster = Forecaster::new(&options).expect("valid options");
    for record in &records {
        follower.observe(flow, record);
        forecaster.observe(&observation(record)).expect("a record");
    }
    criterion.bench_function("curve_at", |b| {
        b.iter(|| follower.curve.at(black_box(300.0), 1));
    });
    let end_s = records[records.len() - 1].time_s;
    for horizon_s in [1.0, 10.0] {
        criterion.bench_function(&format!("forecaster_forecast_{horizon_s}_s"), |b| {
            b.iter(|| forecaster.forecast(black_box(end_s), horizon_s));
        });
    }

    let mut clusters = Clusters::default();
    for i in 0..1000_u32 {
        let client = Client {
            prefix: format!("10.{}.{}.0/24", i / 250, i % 250)
                .parse()
                .expect("a prefix"),
            network: Some(format!("AS{}", i / 50)),
            region: Some(format!("region {}", i / 250)),
        };
        let evidence = follower.curve.counted(1);
        clusters.add(&client, evidence, 0.0).expect("evidence");
    }
    let address = Some("10.2.3.4".parse().expect("an address"));
    criterion.bench_function("clusters_of_1000_curve", |b| {
        b.iter(|| clusters.curve(black_box(address), None, None, 0.0, Pooling::Posterior));
    });
}

criterion_group!(benches, online);
criterion_main!(benches);
