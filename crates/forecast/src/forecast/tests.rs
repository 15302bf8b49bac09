use super::{Expert, Forecaster, ForecasterOptions, Note, Observation, OnBreak};
use crate::cold_start::Siblings;
use crate::types::ForecastError;
use pathcast_window_law::Cc;

fn options(horizons_s: &[f64]) -> ForecasterOptions {
    ForecasterOptions {
        cc: Cc::Reno,
        rtt_s: Some(0.1),
        horizons_s: horizons_s.to_vec(),
    }
}

fn at(time_s: f64, cwnd_packets: f64) -> Observation {
    Observation {
        time_s,
        cwnd_packets,
        snd_nxt_packets: None,
        srtt_s: None,
    }
}

/// Reno between 100 and 200 packets: 10 s an epoch.
fn sawtooth(record: u32) -> Observation {
    at(f64::from(record) * 0.1, f64::from(100 + record % 101))
}

fn after(records: u32) -> Forecaster {
    let mut forecaster = Forecaster::new(&options(&[1.0, 5.0, 30.0])).unwrap();
    for record in 0..records {
        forecaster.observe(&sawtooth(record)).unwrap();
    }
    forecaster
}

#[test]
fn bad_options_are_refused() {
    for got in [0.0, -1.0, f64::INFINITY] {
        let error = Forecaster::new(&options(&[1.0, got])).unwrap_err();
        assert_eq!(error, ForecastError::BadHorizon { got });
    }
    let bad = ForecasterOptions {
        rtt_s: Some(0.0),
        ..options(&[1.0])
    };
    assert_eq!(
        Forecaster::new(&bad).unwrap_err(),
        ForecastError::BadRtt { got: 0.0 }
    );
}

#[test]
fn bad_records_are_refused_and_named() {
    let mut forecaster = after(10);
    let error = forecaster.observe(&at(0.5, 10.0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "record 10: time_s is 0.5, must be >= 0.9 as in the record before"
    );
    assert!(forecaster.observe(&at(2.0, f64::NAN)).is_err());
    assert!(forecaster.observe(&at(2.0, 0.0)).is_err());
    assert!(forecaster.observe(&sawtooth(10)).is_ok());
}

#[test]
fn a_forecast_needs_a_record_and_a_known_horizon() {
    let empty = Forecaster::new(&options(&[1.0])).unwrap();
    assert_eq!(
        empty.forecast(0.0, 1.0),
        Err(ForecastError::NothingObserved)
    );
    let error = after(10).forecast(1.0, 2.0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no forecaster for a horizon of 2 s, have [1.0, 5.0, 30.0]"
    );
}

#[test]
fn the_first_record_is_enough() {
    let forecast = after(1).forecast(0.0, 1.0).unwrap();
    assert!(
        (forecast.point / 100.0 - 1.0).abs() < 0.1,
        "{}",
        forecast.point
    );
    assert_eq!(forecast.basis.losses, 0);
    assert!(forecast.basis.loss_upper_bound.is_some());
}

#[test]
fn quantiles_never_decrease_and_weights_sum_to_one() {
    for records in [1, 5, 50, 400, 3000] {
        let forecaster = after(records);
        for horizon_s in [1.0, 5.0, 30.0] {
            let now_s = f64::from(records - 1) * 0.1;
            let forecast = forecaster.forecast(now_s, horizon_s).unwrap();
            assert!(forecast.quantiles.windows(2).all(|pair| pair[0] <= pair[1]));
            let sum: f64 = forecast.weights.iter().map(|weight| weight.weight).sum();
            assert!((sum - 1.0).abs() < 1e-12);
            assert!(forecast.mean.is_finite() && forecast.point > 0.0);
        }
    }
}

#[test]
fn a_regular_sawtooth_is_learned() {
    let forecaster = after(3000);
    // record 2999 is at 170 packets: a second ahead it grows by 10, 175.5 on average
    let forecast = forecaster.forecast(299.9, 1.0).unwrap();
    assert!(
        (forecast.point / 174.5 - 1.0).abs() < 0.01,
        "{}",
        forecast.point
    );
    // three epochs, whatever the phase: their mean
    let forecast = forecaster.forecast(299.9, 30.0).unwrap();
    assert!(
        (forecast.point / 150.0 - 1.0).abs() < 0.03,
        "{}",
        forecast.point
    );
    assert_eq!(forecast.basis.losses, 29);
}

#[test]
fn asking_changes_nothing_and_the_same_records_give_the_same() {
    let forecaster = after(2500);
    let first = forecaster.forecast(249.9, 5.0).unwrap();
    assert_eq!(forecaster.forecast(249.9, 5.0).unwrap(), first);
    let mut again = after(1000);
    for record in 1000..2500 {
        again.forecast(f64::from(record) * 0.1, 1.0).unwrap();
        again.observe(&sawtooth(record)).unwrap();
    }
    assert_eq!(again.forecast(249.9, 5.0).unwrap(), first);
}

#[test]
fn a_flow_that_is_held_back_is_not_expected_to_grow() {
    let mut forecaster = after(50);
    for record in 50..300 {
        forecaster
            .observe(&at(f64::from(record) * 0.1, 150.0))
            .unwrap();
    }
    let forecast = forecaster.forecast(29.9, 5.0).unwrap();
    assert!(
        (forecast.point / 150.0 - 1.0).abs() < 0.03,
        "{}",
        forecast.point
    );
}

#[test]
fn a_long_silence_is_skipped() {
    let mut forecaster = after(1000);
    forecaster.observe(&at(1e9, 150.0)).unwrap();
    let forecast = forecaster.forecast(1e9, 5.0).unwrap();
    assert!(forecast.point.is_finite() && forecast.point > 0.0);
}

#[test]
fn memory_is_bounded() {
    let (short, long) = (after(5_000), after(50_000));
    let size = |f: &Forecaster| {
        f.detector.losses().len()
            + f.changes.len()
            + f.samples.len()
            + f.horizons
                .iter()
                .map(|h| h.pending.len() + h.bands.len())
                .sum::<usize>()
    };
    assert!(
        size(&long) < 4 * size(&short) + 5000,
        "{} {}",
        size(&short),
        size(&long)
    );
}

/// A sawtooth of Reno that sends what its window and round trip allow; the round trip doubles after 200 s.
#[test]
fn after_a_step_of_the_round_trip_the_past_counts_little() {
    let mut forecaster = Forecaster::new(&ForecasterOptions {
        rtt_s: None,
        ..options(&[10.0])
    })
    .unwrap();
    let (mut now_s, mut sent, mut window) = (0.0, 0.0, 100.0);
    let mut noted = Vec::new();
    while now_s < 230.0 {
        let rtt_s = if now_s < 200.0 { 0.1 } else { 0.2 };
        let record = Observation {
            snd_nxt_packets: Some(sent),
            srtt_s: Some(rtt_s),
            ..at(now_s, window)
        };
        forecaster.observe(&record).unwrap();
        now_s += rtt_s;
        sent += window;
        window = if window < 200.0 { window + 1.0 } else { 100.0 };
        let notes = forecaster.forecast(now_s, 10.0).unwrap().basis.notes;
        noted.push((now_s, notes.contains(Note::PathChanged)));
    }
    let (found_s, _) = noted.iter().find(|noted| noted.1).expect("a change");
    assert!((200.0..210.0).contains(found_s), "{found_s}");
    let forecast = forecaster.forecast(now_s, 10.0).unwrap();
    assert!((forecast.basis.rtt_s - 0.2).abs() < 0.002);
    // 150 packets on average, five times a second; before it was ten
    let short = forecast
        .weights
        .iter()
        .find(|weight| weight.expert == Expert::WindowMean)
        .unwrap();
    assert!(short.value < 900.0, "{}", short.value);
    assert!(
        (500.0..1000.0).contains(&forecast.point),
        "{}",
        forecast.point
    );
}

/// A CUBIC flow that doubles its rate each 0.1 s up to some packets/s, seen for so long.
fn growing(upto: f64, until_s: f64) -> impl Iterator<Item = Observation> {
    let mut sent = 0.0;
    (0..=(100.0 * until_s).round() as u32).map(move |record| {
        let time_s = f64::from(record) * 0.01;
        let rate = (100.0 * 2_f64.powf(time_s / 0.1)).min(upto);
        sent += 0.01 * rate;
        Observation {
            time_s,
            cwnd_packets: (rate * 0.1).max(10.0),
            snd_nxt_packets: Some(sent),
            srtt_s: Some(0.1),
        }
    })
}

fn cubic(horizon_s: f64, records: impl Iterator<Item = Observation>) -> Forecaster {
    let options = ForecasterOptions {
        cc: Cc::Cubic,
        rtt_s: None,
        horizons_s: vec![horizon_s],
    };
    let mut forecaster = Forecaster::new(&options).unwrap();
    records.for_each(|record| forecaster.observe(&record).unwrap());
    forecaster
}

#[test]
fn what_earlier_flows_of_the_path_reached_is_expected_of_a_new_one() {
    let after = |upto: f64| {
        let mut siblings = Siblings::default();
        for _ in 0..3 {
            let earlier = cubic(1.0, growing(upto, 30.0));
            siblings.push(earlier.as_sibling().unwrap().clone());
        }
        let mut flow = cubic(10.0, growing(upto, 0.0));
        flow.take_siblings(siblings);
        for record in growing(upto, 0.3).skip(1) {
            flow.observe(&record).unwrap();
        }
        flow.forecast(0.3, 10.0).unwrap()
    };
    let alone = cubic(10.0, growing(4000.0, 0.3))
        .forecast(0.3, 10.0)
        .unwrap();
    assert_eq!((alone.basis.siblings, after(4000.0).basis.siblings), (0, 3));
    // all have sent the same so far
    let points = [1000.0, 2000.0, 4000.0].map(|upto| after(upto).point);
    assert!(
        points.windows(2).all(|two| two[1] > 1.5 * two[0]),
        "{points:?}"
    );
    assert!((points[0] / 1000.0).ln().abs() < 0.4, "{points:?}");
}

#[test]
fn a_flow_whose_counter_begins_anew_stays_the_sibling_that_it_was() {
    let mut flow = cubic(1.0, growing(4000.0, 5.0)).on_break(OnBreak::Restart);
    let before = flow.as_sibling().unwrap().clone();
    let again = Observation {
        time_s: 6.0,
        cwnd_packets: 10.0,
        snd_nxt_packets: Some(1.0),
        srtt_s: Some(0.1),
    };
    flow.observe(&again).unwrap();
    flow.observe(&Observation {
        time_s: 60.0,
        ..again
    })
    .unwrap();
    assert_eq!(*flow.as_sibling().unwrap(), before.ended());
}
