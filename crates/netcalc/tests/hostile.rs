//! Numbers, files and sizes that no curve was made for: typed errors, no panic, no endless work.

use pathcast_netcalc::{Arrivals, Curve, MinPlusError, Segment, Tail};
use proptest::prelude::*;

/// Any number at all, and such as are taken but come close to the limits.
fn numbers() -> impl Strategy<Value = f64> {
    const TAKEN: [f64; 14] = [
        0.0,
        1e-300,
        1e-30,
        1e-12,
        1e-6,
        0.1,
        1.0,
        1.0 + 1e-9,
        1.0 + 1e-12,
        3.0,
        1e6,
        1e15,
        1e29,
        1e30,
    ];
    prop_oneof![1 => prop::num::f64::ANY, 3 => prop::sample::select(TAKEN.to_vec()), 1 => 0.0..100.0_f64]
}

proptest! {
    // few: numbers like these take up to the limit of work
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_numbers_make_it_panic(
        mut times in prop::collection::vec(numbers(), 0..6),
        values in prop::collection::vec(numbers(), 0..6),
        numbers in prop::array::uniform4(numbers()),
        sorted in any::<bool>(),
    ) {
        if sorted {
            times.sort_by(f64::total_cmp);
        }
        let [a, b, c, d] = numbers;
        let points: Vec<(f64, f64)> = times.iter().copied().zip(values.iter().copied()).collect();
        let segments: Vec<Segment> = points
            .iter()
            .map(|&(start_s, value)| Segment { start_s, value, slope: a })
            .collect();
        let tail = Tail::Periodic { from_s: a, period_s: b, increment: c };
        let made = [
            Curve::latency_rate(a, b),
            Curve::token_bucket(a, b),
            Curve::delay(a),
            Curve::steps(a, b, true),
            Curve::window_flow_control(a, b, c, d),
            Curve::from_points(&points, a),
            Curve::from_probes(&times, &values),
            Curve::from_segments(&segments, tail),
        ];
        let made: Vec<Curve> = made.into_iter().flatten().collect();
        for f in &made {
            for t in numbers {
                let _ = (f.at(t), f.right_limit(t));
            }
            for g in &made {
                let _ = (f.min(g), f.convolve(g), f.deconvolve(g), f.horizontal_deviation(g));
            }
            let _ = (f.minus(f), f.closure(), f.later(a), f.raised(a), f.scaled(a), f.points(a));
        }
        if let Ok(arrivals) = Arrivals::new(&times, &values) {
            for f in &made {
                let _ = (arrivals.delay_bounds(f), arrivals.backlog_bounds(f));
            }
            let _ = (arrivals.envelope(), arrivals.envelope_at(&times), arrivals.smallest_burst(a));
        }
    }
}

#[test]
fn hostile_numbers_are_refused_with_what_and_where() {
    let refused = [
        (
            Curve::latency_rate(f64::NAN, 0.0),
            "rate is NaN, expected 0 to 1e30",
        ),
        (
            Curve::latency_rate(1.0, -1.0),
            "latency_s is -1, expected 0 to 1e30",
        ),
        (
            Curve::token_bucket(1.0, f64::INFINITY),
            "burst is inf, expected 0 to 1e30",
        ),
        (
            Curve::delay(f64::INFINITY),
            "delay_s is inf, expected 0 to 1e30",
        ),
        (
            Curve::steps(0.0, 1.0, true),
            "size is 0, expected above 0, at most 1e30",
        ),
        (
            Curve::window_flow_control(1e6, 0.2, 0.1, 1e3),
            "latency_s is 0.2, expected at most rtt_s, 0.1",
        ),
        (
            Curve::from_points(&[], 1.0),
            "points: expected at least one",
        ),
        (
            Curve::from_points(&[(1.0, 1.0), (0.5, 2.0)], 1.0),
            "time of point 1 is 0.5, expected at least 1 as before it",
        ),
        (
            Curve::from_points(&[(1.0, 1.0), (1.5, 0.5)], 1.0),
            "value of point 1 is 0.5, expected at least 1 as before it",
        ),
        (
            Curve::from_points(&[(1.0, f64::NAN)], 1.0),
            "point 0: value is NaN, expected 0 to 1e30",
        ),
        (Curve::from_probes(&[], &[]), "rates: expected at least one"),
        (
            Curve::from_probes(&[1.0], &[]),
            "delays_s: 0 of them, expected 1 as there are rates",
        ),
        (
            Curve::from_probes(&[1.0], &[-0.1]),
            "delays_s[0] is -0.1, expected 0 to 1e30",
        ),
        (
            Curve::zero().scaled(0.0),
            "factor is 0, expected above 0, at most 1e30",
        ),
    ];
    for (result, message) in refused {
        assert_eq!(result.unwrap_err().to_string(), message);
    }
    let packets = [
        (Arrivals::new(&[], &[]), "packets: expected at least one"),
        (
            Arrivals::new(&[1.0], &[]),
            "sizes: 0 of them, expected 1 as there are times_s",
        ),
        (
            Arrivals::new(&[1.0, 0.5], &[1.0, 1.0]),
            "times_s 1 is 0.5, expected at least 1 as before it",
        ),
        (
            Arrivals::new(&[1.0], &[0.0]),
            "sizes[0] is 0, expected above 0, at most 1e30",
        ),
        (
            Arrivals::new(&[f64::NAN], &[1.0]),
            "times_s[0] is NaN, expected 0 to 1e30",
        ),
    ];
    for (result, message) in packets {
        assert_eq!(result.unwrap_err().to_string(), message);
    }
}

#[test]
fn hostile_json_is_refused() {
    for (text, wanted) in [
        ("{}", "missing field"),
        (
            r#"{"segments": [], "tail": {"kind": "affine"}}"#,
            "at least one",
        ),
        (
            r#"{"segments": [{"start_s": 0, "value": -1, "slope": 0}], "tail": {"kind": "affine"}}"#,
            "segment 0: value is -1",
        ),
        (
            r#"{"segments": [{"start_s": 1, "value": 0, "slope": 0}], "tail": {"kind": "affine"}}"#,
            "segment 0: start_s is 1, expected 0",
        ),
        (
            r#"{"segments": [{"start_s": 0, "value": 5, "slope": 0}, {"start_s": 1, "value": 4, "slope": 0}], "tail": {"kind": "affine"}}"#,
            "value of segment 1 is 4, expected at least 5",
        ),
        (
            r#"{"segments": [{"start_s": 0, "value": 0, "slope": 1}], "tail": {"kind": "periodic", "from_s": 0, "period_s": 1, "increment": 0.5}}"#,
            "expected no fall",
        ),
        (
            r#"{"segments": [{"start_s": 0, "value": 0, "slope": 1}], "tail": {"kind": "periodic", "from_s": 0.5, "period_s": 1, "increment": 2}}"#,
            "expected the start of a segment",
        ),
        (
            r#"{"segments": [{"start_s": 0, "value": 0, "slope": 1e999}], "tail": {"kind": "affine"}}"#,
            "number out of range",
        ),
        (
            r#"{"segments": [{"start_s": 0, "value": 0, "slope": 1, "more": 1}], "tail": {"kind": "affine"}}"#,
            "unknown field",
        ),
    ] {
        let error = serde_json::from_str::<Curve>(text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn a_million_points_and_huge_periods_end_in_an_answer_or_an_error() {
    let many: Vec<(f64, f64)> = (0..1_000_000)
        .map(|i| {
            let t = f64::from(i) * 1e-3;
            (t, t + (i % 3) as f64 * 1e-4)
        })
        .scan(0.0_f64, |most, (t, value)| {
            *most = most.max(value);
            Some((t, *most))
        })
        .collect();
    let f = Curve::from_points(&many, 1.0).unwrap();
    assert!(matches!(f.convolve(&f), Err(MinPlusError::TooMany { .. })));
    f.convolve(&Curve::latency_rate(2.0, 0.1).unwrap()).unwrap();
    f.horizontal_deviation(&Curve::latency_rate(2.0, 0.1).unwrap())
        .unwrap();
    let more: Vec<(f64, f64)> = (0..2_000_000)
        .map(|i| (f64::from(i), f64::from(i)))
        .collect();
    assert!(matches!(
        Curve::from_points(&more, 1.0),
        Err(MinPlusError::TooMany { .. })
    ));
    // periods that have no common multiple anyone could use, and rates that hardly differ
    let (slow, fast) = (
        Curve::steps(1e15, 1.0, true).unwrap(),
        Curve::steps(1.0, 1.0, true).unwrap(),
    );
    assert!(matches!(
        slow.add(&fast),
        Err(MinPlusError::Incommensurable { .. })
    ));
    let nearly = Curve::steps(1.0, 1.0 + 1e-10, true).unwrap();
    assert!(matches!(
        fast.convolve(&nearly),
        Err(MinPlusError::TooMany { .. })
    ));
    assert!(matches!(
        fast.min(&nearly),
        Err(MinPlusError::TooMany { .. })
    ));
    let far = Curve::steps(1.0, 1e-20, true).unwrap();
    assert_eq!(far.at(1e25), 100_000.0);
    // parts that are cheapest at 1 and at the square root of 2: nothing ever repeats
    let spots = Curve::from_points(
        &[
            (0.0, 1.0),
            (1.0, 1.0),
            (1.0, 2.0_f64.sqrt()),
            (2.0_f64.sqrt(), 2.0_f64.sqrt()),
            (2.0_f64.sqrt(), 9.0),
        ],
        50.0,
    )
    .unwrap();
    assert!(matches!(
        spots.closure(),
        Err(MinPlusError::NoPeriod { .. }
            | MinPlusError::TooMany { .. }
            | MinPlusError::Incommensurable { .. })
    ));
}
