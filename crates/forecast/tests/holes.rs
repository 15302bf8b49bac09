//! What records lack is missing, and nothing else: holes in any column.

use pathcast_analysis::follow::follow;
use pathcast_analysis::{FitOptions, RttSource, Series, fit};
use pathcast_forecast::{EvaluateOptions, Model, Quantity, evaluate};
use pathcast_window_law::Cc;
use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

const RTT_S: f64 = 0.06;

/// The columns of one flow.
#[derive(Clone)]
struct Flow {
    time_s: Vec<f64>,
    cwnd: Vec<f64>,
    snd_nxt: Vec<f64>,
    srtt_s: Vec<f64>,
    sent_again: Vec<f64>,
}

fn uniform(rng: &mut Xoshiro256PlusPlus) -> f64 {
    rng.next_u64() as f64 / u64::MAX as f64
}

/// Reno on a path that loses one packet of so many, ten records a round trip.
fn reno(seconds: f64, one_of: f64, seed: u64) -> Flow {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut flow = Flow {
        time_s: vec![],
        cwnd: vec![],
        snd_nxt: vec![],
        srtt_s: vec![],
        sent_again: vec![],
    };
    let (mut now_s, mut w, mut sent, mut again) = (0.0, 30.0_f64, 0.0, 0.0);
    let mut quiet_until = 0.0;
    while now_s < seconds {
        flow.time_s.push(now_s);
        flow.cwnd.push(w.floor());
        flow.snd_nxt.push(f64::floor(sent));
        flow.srtt_s.push(RTT_S * (0.95 + 0.1 * uniform(&mut rng)));
        flow.sent_again.push(again);
        let packets = w.floor() / 10.0;
        sent += packets;
        w += 0.1;
        if uniform(&mut rng) < packets / one_of && now_s > quiet_until {
            w = (w / 2.0).max(2.0);
            again += 1.0;
            quiet_until = now_s + 2.0 * RTT_S;
        }
        now_s += RTT_S / 10.0;
    }
    flow
}

impl Flow {
    /// The same, each value missing with this chance, each column by itself; the window too if asked for.
    fn punched(&self, part: f64, windows: bool, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut punched = self.clone();
        let Flow {
            cwnd,
            snd_nxt,
            srtt_s,
            sent_again,
            ..
        } = &mut punched;
        for column in [snd_nxt, srtt_s, sent_again] {
            punch(column, part, &mut rng);
        }
        if windows {
            punch(cwnd, part, &mut rng);
        }
        punched
    }

    fn series(&self) -> Series {
        Series::new(self.time_s.clone(), self.cwnd.clone())
            .and_then(|s| s.with_snd_nxt(self.snd_nxt.clone()))
            .and_then(|s| s.with_srtt(self.srtt_s.clone()))
            .and_then(|s| s.with_retransmits(self.sent_again.clone()))
            .unwrap()
    }
}

fn punch(column: &mut [f64], part: f64, rng: &mut Xoshiro256PlusPlus) {
    for value in column {
        if uniform(rng) < part {
            *value = f64::NAN;
        }
    }
}

fn known_cc() -> FitOptions {
    FitOptions {
        cc: Some(Cc::Reno),
        ..FitOptions::default()
    }
}

fn close(one: f64, other: f64, tolerance: f64, what: &str) {
    assert!(
        (one / other - 1.0).abs() <= tolerance,
        "{what}: {one} against {other}"
    );
}

#[test]
fn half_of_every_column_gives_the_same_round_trip_losses_and_curve() {
    let flow = reno(200.0, 400.0, 1);
    let whole = fit(&flow.series(), &known_cc());
    assert_eq!(whole.rtt_source, RttSource::Srtt);
    assert!(whole.losses.len() > 150, "{}", whole.losses.len());
    for windows in [false, true] {
        let punched = fit(&flow.punched(0.5, windows, 7).series(), &known_cc());
        assert_eq!(punched.rtt_source, RttSource::Srtt);
        close(punched.rtt_s, whole.rtt_s, 0.005, "rtt");
        close(
            punched.losses.len() as f64,
            whole.losses.len() as f64,
            0.02,
            "losses",
        );
        close(punched.curve.packets, whole.curve.packets, 1e-3, "packets");
        // p over a tenth of the windows each, where there are enough losses
        let within = |curve: &pathcast_analysis::LossCurve, from: u32| {
            let points = curve.points.iter();
            let inside = points.filter(|p| (from..from + 6).contains(&p.cwnd_packets));
            inside.fold((0.0, 0.0), |sum, p| {
                (sum.0 + f64::from(p.losses), sum.1 + p.packets)
            })
        };
        for from in [12, 18, 24, 30] {
            let ((lost, sent), (lost_too, sent_too)) =
                (within(&whole.curve, from), within(&punched.curve, from));
            close(sent_too, sent, 0.02, "packets of some windows");
            assert!(
                (lost - lost_too).abs() <= 2.0 + 0.1 * lost,
                "{lost} {lost_too}"
            );
        }
    }
}

#[test]
fn one_hole_changes_one_record() {
    let flow = reno(60.0, 400.0, 2);
    let whole = fit(&flow.series(), &known_cc());
    for hole in [0, 1, 500, flow.time_s.len() - 1] {
        let mut holed = flow.clone();
        holed.srtt_s[hole] = f64::NAN;
        holed.snd_nxt[hole] = f64::NAN;
        holed.sent_again[hole] = f64::NAN;
        let holed = fit(&holed.series(), &known_cc());
        assert_eq!(holed.rtt_source, RttSource::Srtt);
        close(holed.rtt_s, whole.rtt_s, 1e-4, "rtt");
        assert_eq!(holed.losses.len(), whole.losses.len());
        // at either end it is one record's packets
        close(holed.curve.packets, whole.curve.packets, 1e-3, "packets");
    }
}

#[test]
fn a_column_that_is_missing_everywhere_is_no_column() {
    let flow = reno(60.0, 400.0, 3);
    let none = vec![f64::NAN; flow.time_s.len()];
    let bare = || Series::new(flow.time_s.clone(), flow.cwnd.clone()).unwrap();
    let empty = bare()
        .with_snd_nxt(none.clone())
        .and_then(|s| s.with_srtt(none.clone()))
        .and_then(|s| s.with_retransmits(none))
        .unwrap();
    assert_eq!(empty, bare());
    assert_eq!(fit(&empty, &known_cc()), fit(&bare(), &known_cc()));
}

#[test]
fn forecasts_are_judged_alike_with_and_without_holes() {
    let flow = reno(120.0, 400.0, 4);
    let options = EvaluateOptions {
        cc: Some(Cc::Reno),
        horizons_s: vec![1.0, 5.0],
        ..EvaluateOptions::default()
    };
    let whole = evaluate(&flow.series(), &options).unwrap();
    let punched = evaluate(&flow.punched(0.3, true, 9).series(), &options).unwrap();
    assert_eq!(punched.truth, Quantity::PacketsPerS);
    close(punched.rtt_s, whole.rtt_s, 0.02, "rtt");
    for (punched, whole) in punched.horizons.iter().zip(&whole.horizons) {
        assert_eq!(punched.windows, whole.windows);
        for model in [
            Model::Pathcast,
            Model::WindowMean,
            Model::LastSample,
            Model::Econ,
        ] {
            let error = |score: &pathcast_forecast::HorizonScore| {
                score.median_error_pct[model].unwrap_or(f64::NAN)
            };
            let (one, other) = (error(punched), error(whole));
            assert!(
                (one - other).abs() < 1.5 + 0.1 * other,
                "{model:?}: {one}, {other}"
            );
        }
    }
}

#[test]
fn seconds_without_a_sequence_number_are_not_judged_and_not_learned_from() {
    let mut flow = reno(120.0, 400.0, 5);
    let unknown = 60.0..80.0;
    for i in 0..flow.time_s.len() {
        if unknown.contains(&flow.time_s[i]) {
            flow.snd_nxt[i] = f64::NAN;
        }
    }
    let options = EvaluateOptions {
        cc: Some(Cc::Reno),
        horizons_s: vec![1.0],
        keep_predictions: true,
        ..EvaluateOptions::default()
    };
    let evaluation = evaluate(&flow.series(), &options).unwrap();
    let predictions = evaluation.horizons[0].predictions.as_ref().unwrap();
    assert!(
        predictions
            .iter()
            .all(|p| !(60.5..79.0).contains(&p.time_s))
    );
    let judged = predictions.iter().filter(|p| p.time_s > 81.0);
    assert!(judged.clone().count() > 30);
    // a burst of twenty seconds' packets in one, or seconds of none, would be seen here
    for p in judged {
        let last = p.forecast[Model::LastSample];
        assert!((100.0..2000.0).contains(&last), "{p:?}");
    }
    let mean = |from_s: f64, to_s: f64| {
        let inside = predictions
            .iter()
            .filter(|p| (from_s..to_s).contains(&p.time_s));
        let (n, sum) = inside.fold((0, 0.0), |(n, sum), p| {
            (n + 1, sum + p.forecast[Model::WindowMean])
        });
        sum / f64::from(n)
    };
    close(
        mean(80.0, 90.0),
        mean(50.0, 60.0),
        0.1,
        "mean of the window before and after",
    );
}

#[test]
fn a_path_followed_with_holes_has_the_same_curve() {
    let flow = reno(200.0, 400.0, 6);
    let of = |flow: &Flow| {
        let (follower, _) = follow(&[flow.series()], Some(Cc::Reno), None, 150.0).unwrap();
        follower.curve.basis(1).unwrap()
    };
    let (whole, punched) = (of(&flow), of(&flow.punched(0.5, true, 11)));
    close(punched.packets, whole.packets, 0.02, "packets");
    close(
        f64::from(punched.losses),
        f64::from(whole.losses),
        0.05,
        "losses",
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// What the window shows does not depend on which records know their round-trip time, and a record keeps its
    /// own values whatever its neighbors lack.
    #[test]
    fn holes_change_no_other_record(seed in 0..1000_u64, part in 0.0..0.95) {
        let flow = reno(20.0, 300.0, 100 + seed);
        let (whole, punched) = (flow.series(), flow.punched(part, false, seed).series());
        for i in 0..whole.len() {
            for (one, other) in [
                (punched.srtt_at(i), whole.srtt_at(i)),
                (punched.snd_nxt_at(i), whole.snd_nxt_at(i)),
                (punched.retransmits_at(i), whole.retransmits_at(i)),
            ] {
                prop_assert!(one.is_none() || one == other);
            }
        }
        let mut only_srtt = flow.clone();
        only_srtt.srtt_s.clone_from(&flow.punched(part, false, seed).srtt_s);
        let given = FitOptions { rtt_s: Some(RTT_S), ..known_cc() };
        let (one, other) = (fit(&only_srtt.series(), &given), fit(&whole, &given));
        prop_assert_eq!(one, other);
        // packets are those between the first and the last record that knows
        if let Some(sent) = punched.sent() {
            let curve = fit(&punched, &given).curve;
            let least = curve.points.iter().map(|p| f64::from(p.losses)).sum::<f64>();
            prop_assert!(curve.packets >= sent - 1e-6 && curve.packets <= sent + least + 1e-6);
        }
    }
}
