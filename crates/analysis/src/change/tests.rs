//! False alarms on steady paths and detection delays, on flows simulated from the window laws.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::*;
use pathcast_window_law::{Cc, Epoch};

/// A path with one flow; without `packets_per_s` it has no queue.
#[derive(Clone, Copy)]
struct Conditions {
    rtt_s: f64,
    loss: f64,
    packets_per_s: f64,
    buffer_packets: f64,
    /// Standard deviation, in ln, of the delay that others add, and how long it lasts.
    jitter: f64,
    jitter_s: f64,
    /// Mean number of losses in a burst.
    burst: f64,
}

const PLAIN: Conditions = Conditions {
    rtt_s: 0.1,
    loss: 1e-3,
    packets_per_s: f64::INFINITY,
    buffer_packets: 0.0,
    jitter: 0.0,
    jitter_s: 0.0,
    burst: 1.0,
};

struct Rng(Xoshiro256PlusPlus);

impl Rng {
    fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let u = self.uniform().max(1e-300);
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Runs a flow round by round, ten records each, and returns the detected changes.
fn changes(cc: Cc, seed: u64, until_s: f64, at: impl Fn(f64) -> Conditions) -> Vec<Change> {
    let mut rng = Rng(Xoshiro256PlusPlus::seed_from_u64(seed));
    let mut detector = ChangeDetector::default();
    let mut found = vec![];
    let (mut now_s, mut w, mut others, mut srtt_s) = (0.0, 10.0_f64, 0.0_f64, None::<f64>);
    let mut epoch: Option<(f64, Epoch)> = None;
    let (mut w_max, mut bunch) = (0.0_f64, false);
    while now_s < until_s {
        let path = at(now_s);
        let bdp = path.packets_per_s * path.rtt_s;
        let queue_s = ((w - bdp).max(0.0) / path.packets_per_s).max(0.0);
        let rtt_s = (path.rtt_s + queue_s) * others.exp();
        let keep = if path.jitter_s > 0.0 {
            (-rtt_s / path.jitter_s).exp()
        } else {
            0.0
        };
        others = keep * others + (1.0 - keep * keep).sqrt() * path.jitter * rng.normal().abs();
        let p = if bunch { path.loss * 50.0 } else { path.loss };
        let chance = 1.0 - (1.0 - p.min(1.0)).powf(w);
        let lost = w > bdp + path.buffer_packets && bdp.is_finite() || rng.uniform() < chance;
        if path.burst > 1.0 {
            bunch = if lost {
                true
            } else {
                bunch && rng.uniform() < 0.95
            };
        }
        for part in 0..10 {
            let srtt = *srtt_s.get_or_insert(rtt_s);
            srtt_s = Some(srtt + (rtt_s - srtt) / 8.0);
            let record = ChangeRecord {
                time_s: now_s + rtt_s * f64::from(part) / 10.0,
                cwnd_packets: w,
                packets: w / 10.0,
                losses: u32::from(lost && part == 9),
                srtt_s,
            };
            found.extend(detector.observe(&record));
        }
        now_s += rtt_s;
        if lost {
            let next = Epoch::after_loss(cc, w, w_max, rtt_s);
            (w_max, w) = (w, next.start_packets.max(2.0));
            epoch = Some((now_s, next));
        } else if let Some((start_s, epoch)) = &epoch {
            w = epoch.window_packets(now_s - start_s).max(2.0);
        } else {
            w *= 2.0;
        }
    }
    found
}

const STEADY: [(&str, Conditions); 7] = [
    ("1e-3", PLAIN),
    (
        "1e-5",
        Conditions {
            loss: 1e-5,
            rtt_s: 0.05,
            ..PLAIN
        },
    ),
    (
        "drop-tail, 1 BDP",
        Conditions {
            loss: 0.0,
            packets_per_s: 2000.0,
            buffer_packets: 200.0,
            ..PLAIN
        },
    ),
    (
        "drop-tail, 3 BDP, 1e-5",
        Conditions {
            loss: 1e-5,
            packets_per_s: 2000.0,
            buffer_packets: 600.0,
            ..PLAIN
        },
    ),
    (
        "jitter of 1 s",
        Conditions {
            loss: 3e-4,
            jitter: 0.1,
            jitter_s: 1.0,
            ..PLAIN
        },
    ),
    (
        "jitter of 10 s",
        Conditions {
            loss: 3e-4,
            jitter: 0.2,
            jitter_s: 10.0,
            ..PLAIN
        },
    ),
    (
        "bunches",
        Conditions {
            loss: 1e-4,
            burst: 5.0,
            ..PLAIN
        },
    ),
];

#[test]
fn on_steady_paths_false_alarms_are_rare() {
    let (seeds, seconds) = (10, 1000.0);
    for cc in [Cc::Reno, Cc::Cubic] {
        for (name, path) in STEADY {
            let all: Vec<Change> = (0..seeds)
                .flat_map(|seed| changes(cc, seed, seconds, |_| path))
                .collect();
            let rtt = (all.iter())
                .filter(|change| change.kind == ChangeKind::Rtt)
                .count();
            let loss = all.len() - rtt;
            println!(
                "{cc:?}, {name}: RTT {rtt}, loss {loss} false alarms in {seeds} x {seconds} s"
            );
            // bursts of seconds at fifty times the loss rate are not a steady path
            let may = if path.burst > 1.0 { 20 } else { 1 };
            assert!(rtt <= 1 && loss <= may, "{cc:?}, {name}: {all:?}");
        }
    }
}

#[test]
fn steps_of_the_papers_changing_path_are_found() {
    // section 5.2: a change every two minutes
    let at = |t: f64| {
        let (rtt_s, loss) = match t {
            t if t < 120.0 => (0.1, 1e-4),
            t if t < 240.0 => (0.1, 1e-3),
            t if t < 360.0 => (0.1, 1e-5),
            t if t < 480.0 => (0.2, 1e-4),
            _ => (0.05, 1e-4),
        };
        Conditions {
            rtt_s,
            loss,
            ..PLAIN
        }
    };
    // the step; how many of 20 flows must detect it within two minutes; the median delay allowed
    let steps = [
        (Cc::Reno, ChangeKind::LossRate, 120.0, 20, 35.0),
        (Cc::Reno, ChangeKind::LossRate, 240.0, 20, 20.0),
        (Cc::Reno, ChangeKind::Rtt, 360.0, 20, 4.0),
        (Cc::Reno, ChangeKind::Rtt, 480.0, 20, 3.0),
        (Cc::Cubic, ChangeKind::LossRate, 120.0, 20, 25.0),
        (Cc::Cubic, ChangeKind::LossRate, 240.0, 20, 15.0),
        // from 1e-5 to 1e-4 at 200 ms: a loss every ten seconds, and hardly any before
        (Cc::Cubic, ChangeKind::LossRate, 360.0, 16, 80.0),
        (Cc::Cubic, ChangeKind::Rtt, 360.0, 20, 4.0),
        (Cc::Cubic, ChangeKind::Rtt, 480.0, 20, 3.0),
    ];
    for cc in [Cc::Reno, Cc::Cubic] {
        let flows: Vec<Vec<Change>> = (0..20).map(|seed| changes(cc, seed, 600.0, at)).collect();
        for (_, kind, at_s, wanted, soon_s) in steps.into_iter().filter(|step| step.0 == cc) {
            let hits = flows.iter().filter_map(|found| {
                let hit =
                    |c: &&Change| c.kind == kind && (at_s..at_s + 120.0).contains(&c.detected_s);
                found.iter().find(hit)
            });
            let (mut delays, mut errors): (Vec<f64>, Vec<f64>) = (vec![], vec![]);
            for hit in hits {
                delays.push(hit.detected_s - at_s);
                errors.push((hit.at_s - at_s).abs());
                assert!(hit.probability >= SURE && hit.at_s <= hit.detected_s);
            }
            delays.sort_by(f64::total_cmp);
            errors.sort_by(f64::total_cmp);
            // the time of a change is known to about the time between losses
            let usual_s = errors[errors.len() / 2];
            assert!(
                usual_s < if kind == ChangeKind::Rtt { 1.0 } else { 12.0 },
                "{usual_s}"
            );
            let (n, median_s) = (delays.len(), delays[delays.len() / 2]);
            println!(
                "{cc:?}, {kind:?} at {at_s} s: {n} of 20, after {median_s:.1} s (median), {:.1} s (most), \
                 placed within {usual_s:.1} s",
                delays[n - 1]
            );
            assert!(n >= wanted && median_s < soon_s, "{cc:?} {kind:?} {at_s}");
        }
        // other reports are rare: at most one beyond the five steps
        assert!(flows.iter().all(|found| found.len() <= 6));
    }
}

#[test]
fn a_step_of_a_tenth_in_the_round_trip_is_seen_and_one_of_a_hundredth_is_none() {
    for (factor, seen) in [(1.1, true), (0.9, true), (1.01, false), (0.99, false)] {
        let found = changes(Cc::Cubic, 3, 120.0, |t| Conditions {
            rtt_s: if t < 60.0 { 0.1 } else { 0.1 * factor },
            ..PLAIN
        });
        assert_eq!(!found.is_empty(), seen, "{factor}: {found:?}");
        if seen {
            assert!(
                (found[0].after / found[0].before / factor - 1.0).abs() < 0.01,
                "{found:?}"
            );
        }
    }
}

#[test]
fn a_short_spike_of_the_round_trip_is_no_change() {
    let found = changes(Cc::Reno, 3, 300.0, |t| Conditions {
        rtt_s: if t % 60.0 > 58.5 { 0.4 } else { 0.1 },
        loss: 1e-4,
        ..PLAIN
    });
    assert_eq!(found, []);
}

#[test]
fn what_is_no_number_is_left_out() {
    let mut detector = ChangeDetector::default();
    for (i, bad) in [f64::NAN, f64::INFINITY, -1.0, 0.0]
        .into_iter()
        .cycle()
        .take(400)
        .enumerate()
    {
        let record = ChangeRecord {
            time_s: if i % 5 == 0 { bad } else { i as f64 },
            cwnd_packets: if i % 5 == 1 { bad } else { 10.0 },
            packets: if i % 5 == 2 { bad } else { 10.0 },
            losses: 0,
            srtt_s: Some(if i % 5 == 3 { bad } else { 0.1 }),
        };
        assert_eq!(detector.observe(&record), None);
    }
}
