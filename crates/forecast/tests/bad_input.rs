//! Bad input: what is made of it, and what the forecast then says that it rests on.

mod common;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use pathcast_analysis::series::Interleaving;
use pathcast_analysis::{FitOptions, Series, SeriesError, fit};
use pathcast_forecast::{Forecast, Forecaster, ForecasterOptions, Note, Observation, OnBreak};
use pathcast_window_law::Cc;

const HORIZONS_S: [f64; 3] = [1.0, 5.0, 30.0];

fn forecaster() -> Forecaster {
    Forecaster::new(&ForecasterOptions {
        cc: Cc::Reno,
        rtt_s: Some(0.1),
        horizons_s: HORIZONS_S.to_vec(),
    })
    .unwrap()
}

fn at(time_s: f64, cwnd_packets: f64) -> Observation {
    Observation {
        time_s,
        cwnd_packets,
        snd_nxt_packets: None,
        srtt_s: None,
    }
}

/// Reno between 100 and 200 packets, a record each 0.1 s: the record of that number.
fn tooth(record: u32) -> Observation {
    at(f64::from(record) * 0.1, f64::from(100 + record % 101))
}

/// The forecast of five seconds, after checks that hold for every forecast.
fn forecast(forecaster: &Forecaster, now_s: f64) -> Forecast {
    for horizon_s in HORIZONS_S {
        let forecast = forecaster.forecast(now_s, horizon_s).unwrap();
        // a quantile is 0 where the flow may stop
        let quantiles = forecast.quantiles;
        assert!(
            quantiles.iter().all(|x| x.is_finite() && *x >= 0.0),
            "{forecast:?}"
        );
        let numbers = [forecast.point, forecast.mean];
        assert!(
            numbers.iter().all(|x| x.is_finite() && *x > 0.0),
            "{forecast:?}"
        );
        assert!(forecast.quantiles.is_sorted(), "{forecast:?}");
        let weights: f64 = forecast.weights.iter().map(|weight| weight.weight).sum();
        assert!((weights - 1.0).abs() < 1e-9);
    }
    forecaster.forecast(now_s, 5.0).unwrap()
}

fn notes(forecast: &Forecast) -> Vec<Note> {
    forecast.basis.notes.iter().collect()
}

#[test]
fn without_losses_the_forecast_rests_on_growth_and_on_a_bound() {
    let mut f = forecaster();
    for i in 0..600 {
        f.observe(&at(f64::from(i) * 0.1, f64::from(100 + i)))
            .unwrap();
    }
    let forecast = forecast(&f, 59.9);
    assert_eq!(notes(&forecast), [Note::NoLoss]);
    assert_eq!(forecast.basis.losses, 0);
    let packets = forecast.basis.packets_remembered;
    assert!((0.9..1.0).contains(&(packets / 239_700.0)), "{packets}"); // a little is forgotten
    assert_eq!(forecast.basis.loss_upper_bound, Some(3.0 / packets));
    // one packet more each 0.1 s: 699 now
    assert!(
        (forecast.point / 724.0 - 1.0).abs() < 0.02,
        "{}",
        forecast.point
    );
}

#[test]
fn one_loss_is_no_certainty() {
    let mut f = forecaster();
    for i in 0..600_u32 {
        let w = if i < 300 { 100 + i } else { 200 + i - 300 };
        f.observe(&at(f64::from(i) * 0.1, f64::from(w))).unwrap();
    }
    let forecast = forecast(&f, 59.9);
    assert_eq!(notes(&forecast), [Note::OneLoss]);
    assert_eq!(forecast.basis.losses, 1);
    assert_eq!(forecast.basis.loss_upper_bound, None);
    assert!(
        forecast.point > 400.0 && forecast.point < 550.0,
        "{}",
        forecast.point
    );
}

#[test]
fn losses_that_only_end_slow_start_are_named() {
    let mut f = forecaster();
    let mut w = 10.0_f64;
    for i in 0..600_u32 {
        if i < 60 {
            w *= 2.0_f64.powf(0.1); // ten records a round trip, six of these
        } else if i == 60 {
            w /= 2.0;
        } else if i > 80 {
            w += 0.1;
        }
        f.observe(&at(f64::from(i) * 0.01, w.floor())).unwrap();
    }
    let forecast = forecast(&f, 6.0);
    assert_eq!(forecast.basis.losses, 1);
    assert_eq!(notes(&forecast), [Note::OneLoss, Note::SlowStartLossesOnly]);
    // a loss in avoidance ends that
    for i in 600..700_u32 {
        f.observe(&at(f64::from(i) * 0.01, 372.0 + f64::from(i - 600) / 10.0))
            .unwrap();
    }
    let mut late = f.clone();
    for i in 700..800_u32 {
        late.observe(&at(f64::from(i) * 0.01, 190.0 + f64::from(i - 700) / 10.0))
            .unwrap();
    }
    let forecast = self::forecast(&late, 8.0);
    assert_eq!(forecast.basis.losses, 2);
    assert_eq!(notes(&forecast), []);
}

/// A flow in avoidance from 100 packets on, idle from 20 to 50 s, then from ten packets up again.
fn idle(sent: bool) -> Vec<Observation> {
    let mut records: Vec<Observation> = (0..200).map(tooth).collect();
    let mut w = 10.0_f64;
    for i in 0..200_u32 {
        records.push(at(50.0 + f64::from(i) * 0.1, w.floor()));
        w = if w < 150.0 {
            (w * 2.0).min(150.0)
        } else {
            w + 1.0
        };
    }
    if sent {
        let mut total = 0.0;
        for record in &mut records {
            record.snd_nxt_packets = Some(total);
            total += record.cwnd_packets;
        }
    }
    records
}

#[test]
fn a_window_that_begins_anew_after_an_idle_time_is_no_loss() {
    for sent in [false, true] {
        let records = idle(sent);
        let mut f = forecaster();
        for record in &records {
            f.observe(record).unwrap();
        }
        let forecast = forecast(&f, 70.0);
        assert_eq!(forecast.basis.losses, 1, "the one at 10 s");
        assert!(
            notes(&forecast).contains(&Note::IdleRestart),
            "{:?}",
            notes(&forecast)
        );
        assert!(
            (forecast.state.cwnd_packets - 345.0).abs() < 3.0,
            "{:?}",
            forecast.state
        );

        let (time, cwnd) = records.iter().map(|r| (r.time_s, r.cwnd_packets)).unzip();
        let mut series = Series::new(time, cwnd).unwrap();
        if sent {
            let snd_nxt = records.iter().filter_map(|r| r.snd_nxt_packets).collect();
            series = series.with_snd_nxt(snd_nxt).unwrap();
        }
        let options = FitOptions {
            cc: Some(Cc::Reno),
            rtt_s: Some(0.1),
            ..FitOptions::default()
        };
        assert_eq!(fit(&series, &options).losses.len(), 1);
    }
}

#[test]
fn a_timeout_is_a_loss_and_so_is_a_fall_in_which_packets_were_sent() {
    // from 200 packets to one after 1.5 s without a record, as a timeout leaves it
    let mut f = forecaster();
    (0..101).for_each(|i| f.observe(&tooth(i)).unwrap());
    for i in 0..100_u32 {
        let w = (2.0_f64.powi(i as i32)).min(100.0 + f64::from(i) - 7.0);
        f.observe(&at(11.5 + f64::from(i) * 0.1, w)).unwrap();
    }
    let timeout = forecast(&f, 21.5);
    assert_eq!(timeout.basis.losses, 1);
    assert!(!notes(&timeout).contains(&Note::IdleRestart));
    // to 60 packets, and ten windows went out meanwhile: polled slowly, not idle
    let mut f = forecaster();
    let mut sent = 0.0;
    for i in 0..200_u32 {
        let (time_s, w) = if i < 101 {
            (f64::from(i) * 0.1, f64::from(100 + i))
        } else {
            (10.0 + f64::from(i - 100) * 1.5, f64::from(60 + i - 101))
        };
        sent += if i == 101 { 2000.0 } else { w };
        let record = Observation {
            snd_nxt_packets: Some(sent),
            ..at(time_s, w)
        };
        f.observe(&record).unwrap();
    }
    let polled = forecast(&f, 158.5);
    assert_eq!(polled.basis.losses, 1);
    assert!(!notes(&polled).contains(&Note::IdleRestart));
}

#[test]
fn a_window_that_the_application_holds_is_named() {
    let mut f = forecaster();
    for i in 0..600_u32 {
        let w = if i < 200 {
            tooth(i).cwnd_packets
        } else {
            199.0
        };
        f.observe(&at(f64::from(i) * 0.1, w)).unwrap();
    }
    let forecast = forecast(&f, 60.0);
    assert_eq!(notes(&forecast), [Note::OneLoss, Note::Held]);
    assert!(
        (forecast.point / 199.0 - 1.0).abs() < 0.02,
        "{}",
        forecast.point
    );
}

#[test]
fn a_clock_that_goes_back_is_an_error_unless_the_service_must_go_on() {
    let mut strict = forecaster();
    let mut live = forecaster().on_break(OnBreak::Restart);
    for i in 0..600 {
        strict.observe(&tooth(i)).unwrap();
        live.observe(&tooth(i)).unwrap();
    }
    let before = forecast(&live, 59.9);
    assert!(notes(&before).is_empty());
    let back = at(20.0, 150.0);
    let error = strict.observe(&back).unwrap_err().to_string();
    assert_eq!(
        error,
        "record 600: time_s is 20, must be >= 59.900000000000006 as in the record before"
    );
    // some milliseconds back are evened out
    for f in [&mut strict, &mut live] {
        let result = f.observe(&at(59.88, 195.0));
        assert_eq!(
            result.is_ok(),
            f.forecast(59.9, 1.0).unwrap().state.cwnd_packets == 195.0
        );
    }
    assert!(notes(&forecast(&live, 59.9)).is_empty());
    // forty seconds back
    live.observe(&back).unwrap();
    let after = forecast(&live, 20.0);
    assert_eq!(notes(&after), [Note::ClockStep]);
    assert_eq!(after.basis.losses, before.basis.losses, "losses are kept");
    assert!(after.basis.packets_remembered > 0.99 * before.basis.packets_remembered);
    assert_eq!(after.state.cwnd_packets, 150.0);
    // and it stays as good as before: a fresh one at the same place is not better
    for i in 0..3000_u32 {
        let record = at(20.1 + f64::from(i) * 0.1, tooth(i + 600).cwnd_packets);
        live.observe(&record).unwrap();
    }
    let later = forecast(&live, 320.0);
    assert_eq!(later.basis.losses, before.basis.losses + 30);
    assert!(later.basis.resolved > 300);
}

#[test]
fn a_leap_of_an_hour_and_back_costs_no_time_and_counts_no_packets() {
    let mut f = forecaster().on_break(OnBreak::Restart);
    (0..600).for_each(|i| f.observe(&tooth(i)).unwrap());
    let before = forecast(&f, 59.9).basis;
    f.observe(&at(1e9, 150.0)).unwrap();
    assert_eq!(notes(&forecast(&f, 1e9)), [Note::ClockStep]);
    f.observe(&at(61.0, 151.0)).unwrap();
    let after = forecast(&f, 61.0).basis;
    assert!(after.packets_remembered <= before.packets_remembered);
    assert!(
        after.packets_remembered > 0.9 * before.packets_remembered,
        "{after:?}"
    );
    // files may have such a gap, too
    let mut strict = forecaster();
    (0..600).for_each(|i| strict.observe(&tooth(i)).unwrap());
    strict.observe(&at(59.9 + 3601.0, 150.0)).unwrap();
    let strict = forecast(&strict, 3660.9);
    assert_eq!(notes(&strict), [Note::Held, Note::ClockStep]);
}

#[test]
fn what_is_no_record_is_refused_whatever_the_clock_does() {
    let mut f = forecaster().on_break(OnBreak::Restart);
    (0..100).for_each(|i| f.observe(&tooth(i)).unwrap());
    for bad in [
        at(f64::NAN, 100.0),
        at(f64::INFINITY, 100.0),
        at(f64::NEG_INFINITY, 100.0),
        at(5.0, f64::NAN),
        at(5.0, 0.0),
        at(5.0, 1e9),
        Observation {
            srtt_s: Some(-1.0),
            ..at(5.0, 100.0)
        },
    ] {
        assert!(f.observe(&bad).is_err(), "{bad:?}");
    }
    let after = forecast(&f, 9.9);
    assert_eq!(after.state.cwnd_packets, 199.0, "nothing of them was taken");
    assert!(!notes(&after).contains(&Note::ClockStep));
}

#[test]
fn a_counter_that_begins_anew_is_an_error_or_a_restart() {
    let numbered = |i: u32| Observation {
        snd_nxt_packets: Some(150.0 * f64::from(i)),
        ..tooth(i)
    };
    let mut f = forecaster();
    (0..600).for_each(|i| f.observe(&numbered(i)).unwrap());
    let mut live = f.clone().on_break(OnBreak::Restart);
    let wrapped = Observation {
        snd_nxt_packets: Some(3.0),
        ..tooth(600)
    };
    let error = f.observe(&wrapped).unwrap_err().to_string();
    assert_eq!(
        error,
        "record 600: snd_nxt_packets is 3, must be >= 89850 as in the record before"
    );
    live.observe(&wrapped).unwrap();
    assert_eq!(notes(&forecast(&live, 60.0)), [Note::CounterReset]);
    for i in 601..900 {
        let record = Observation {
            snd_nxt_packets: Some(3.0 + 150.0 * f64::from(i - 600)),
            ..tooth(i)
        };
        live.observe(&record).unwrap();
    }
    // 150 packets each 0.1 s, as before
    let forecast = forecast(&live, 89.9);
    assert!(
        (forecast.point / 1500.0 - 1.0).abs() < 0.05,
        "{}",
        forecast.point
    );
}

#[test]
fn flows_mixed_in_one_series_are_refused_by_name() {
    let other = |i: u32| at(f64::from(i) * 0.1 + 0.03, f64::from(30 + i % 31));
    let mut f = forecaster();
    let (mut time, mut cwnd) = (vec![], vec![]);
    for i in 0..300 {
        for record in [tooth(i), other(i)] {
            f.observe(&record).unwrap();
            time.push(record.time_s);
            cwnd.push(record.cwnd_packets);
        }
    }
    assert!(notes(&forecast(&f, 30.0)).contains(&Note::MixedFlows));
    let error = Series::new(time, cwnd).unwrap_err();
    assert!(matches!(error, SeriesError::MixedFlows { .. }), "{error}");
    assert!(
        error.to_string().contains("records of several flows"),
        "{error}"
    );
    // one after another they are no mix
    let records = (0..300).map(tooth).chain((300..600).map(other));
    let (time, cwnd) = records.map(|r| (r.time_s, r.cwnd_packets)).unzip();
    assert!(Series::new(time, cwnd).is_ok());
}

#[test]
fn real_flows_are_far_from_mixed() {
    let Some(folder) = common::folder() else {
        return;
    };
    for trace in common::TRACES {
        let mut interleaving = Interleaving::default();
        let series = common::series(&folder, trace);
        series
            .cwnd_packets()
            .iter()
            .for_each(|&w| interleaving.push(w));
        let part = interleaving.part_of_all();
        println!("{trace}: {part:.4}");
        assert!(part < 0.03, "{trace}: {part}");
    }
    // a Reno and a CUBIC flow of these, as one
    let series = [0, 2].map(|i| common::series(&folder, common::TRACES[i]));
    for from_s in [100.0, 300.0, 500.0, 700.0] {
        let mut records: Vec<(f64, f64)> = (series.iter())
            .flat_map(|s| {
                s.time_s()
                    .iter()
                    .copied()
                    .zip(s.cwnd_packets().iter().copied())
            })
            .filter(|record| (from_s..from_s + 100.0).contains(&record.0))
            .collect();
        records.sort_by(|x, y| x.0.total_cmp(&y.0));
        let (time, cwnd): (Vec<f64>, Vec<f64>) = records.into_iter().unzip();
        let mut interleaving = Interleaving::default();
        cwnd.iter().for_each(|&w| interleaving.push(w));
        println!("both, from {from_s} s: {:.3}", interleaving.part_of_all());
        assert!(matches!(
            Series::new(time, cwnd),
            Err(SeriesError::MixedFlows { .. })
        ));
    }
}

#[test]
fn a_sawtooth_seen_once_an_epoch_is_no_mix() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    for _ in 0..100 {
        let cwnd: Vec<f64> = (0..500)
            .map(|_| (200 + rng.next_u64() % 200) as f64)
            .collect();
        let time = (0..cwnd.len()).map(|i| i as f64).collect();
        assert!(Series::new(time, cwnd).is_ok());
    }
}
