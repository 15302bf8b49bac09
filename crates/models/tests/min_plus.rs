//! Min-plus operations against their definitions on a grid, laws of the algebra, and hostile input.

use pathcast_models::min_plus::{Arrivals, Curve, MinPlusError, Segment, Tail};
use proptest::prelude::*;

/// Breakpoints stand on multiples of this, so that a grid of it meets all sums of them.
const STEP: f64 = 0.25;

/// Factors that leave no breakpoint as it is.
const TIME: f64 = 0.1 / 0.25;
const DATA: f64 = 1e6 / 3.0;

/// The same curve with other units of time and data.
fn awkward(curve: &Curve) -> Curve {
    let segments: Vec<Segment> = curve
        .segments()
        .iter()
        .map(|segment| Segment {
            start_s: segment.start_s * TIME,
            value: segment.value * DATA,
            slope: segment.slope * (DATA / TIME),
        })
        .collect();
    let tail = match curve.tail() {
        Tail::Affine => Tail::Affine,
        Tail::Infinite { from_s } => Tail::Infinite {
            from_s: from_s * TIME,
        },
        Tail::Periodic {
            from_s,
            period_s,
            increment,
        } => Tail::Periodic {
            from_s: from_s * TIME,
            period_s: period_s * TIME,
            increment: increment * DATA,
        },
    };
    Curve::from_segments(&segments, tail).expect("a curve")
}

/// A curve of few segments on the grid: jumps, plateaus, slopes; any tail.
fn curves() -> impl Strategy<Value = Curve> {
    let piece = (1..4_u32, 0..4_u32, 0..5_u32);
    let tail = prop_oneof![
        3 => Just(None),
        1 => Just(Some(f64::INFINITY)),
        3 => (0..4_u32).prop_map(|more| Some(f64::from(more))),
    ];
    (prop::collection::vec(piece, 1..5), tail, 0..4_usize).prop_map(|(pieces, tail, first)| {
        let (mut at, mut value) = (0.0, 0.0);
        let mut segments = Vec::new();
        for &(width, jump, slope) in &pieces {
            value += f64::from(jump);
            let slope = f64::from(slope);
            segments.push(Segment {
                start_s: at,
                value,
                slope,
            });
            at += f64::from(width) * STEP;
            value += slope * f64::from(width) * STEP;
        }
        let tail = match tail {
            None => Tail::Affine,
            Some(f64::INFINITY) => Tail::Infinite { from_s: at },
            Some(more) => {
                let begin = segments[first % segments.len()];
                Tail::Periodic {
                    from_s: begin.start_s,
                    period_s: at - begin.start_s,
                    // at least so much that it does not fall
                    increment: value - begin.value + more,
                }
            }
        };
        Curve::from_segments(&segments, tail).expect("a curve")
    })
}

/// Curves that start with a burst or with a latency and are slower than `rates`.
fn finite_curves() -> impl Strategy<Value = Curve> {
    curves().prop_filter("finite", |curve| {
        !matches!(curve.tail(), Tail::Infinite { .. })
    })
}

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

/// An operation's result; nothing to say where it has no common period or is too large.
fn usable(result: Result<Curve, MinPlusError>) -> Result<Curve, TestCaseError> {
    match result {
        Ok(curve) => Ok(curve),
        Err(
            MinPlusError::Incommensurable { .. }
            | MinPlusError::TooMany { .. }
            | MinPlusError::NoPeriod { .. },
        ) => Err(TestCaseError::reject("no common period, or too large")),
        Err(error) => Err(TestCaseError::fail(error.to_string())),
    }
}

/// Times at which a result is compared, into its tail: on the grid, and between.
fn times() -> impl Iterator<Item = f64> {
    (1..=80).map(|i| f64::from(i) * STEP / 2.0)
}

fn near(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
}

/// The infimum of `f(t - s) + g(s)`: between the grid's points both are linear, so that it lies at one, from either side, or
/// where `t - s` is on the grid.
fn convolution_by_definition(f: &Curve, g: &Curve, t: f64) -> f64 {
    let mut least = f.at(t).min(g.at(t));
    let steps = (t / (STEP / 2.0)).round() as i32;
    for i in 0..=steps {
        let s = f64::from(i) * STEP / 2.0;
        least = least.min(f.at(t - s) + g.at(s));
    }
    least
}

/// As above, for the supremum of `f(t + u) - g(u)`, where `u` up to 60 s shows it.
fn deconvolution_by_definition(f: &Curve, g: &Curve, t: f64) -> f64 {
    (0..480)
        .map(|i| f64::from(i) * STEP / 2.0)
        .flat_map(|u| {
            // u slightly larger as well
            [
                (f.at(t + u), g.at(u)),
                (f.right_limit(t + u), g.right_limit(u)),
            ]
        })
        .filter(|(_, g)| g.is_finite())
        .map(|(f, g)| f - g)
        .fold(f64::NEG_INFINITY, f64::max)
}

fn configured() -> ProptestConfig {
    ProptestConfig {
        cases: ProptestConfig::default().cases.max(1000),
        max_global_rejects: 200_000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(configured())]

    #[test]
    fn pointwise_operations_are_so_at_each_time(f in curves(), g in curves()) {
        let (least, most, sum) = (f.min(&g), f.max(&g), f.add(&g));
        let (least, most, sum) = (usable(least)?, usable(most)?, usable(sum)?);
        for t in times() {
            prop_assert!(near(least.at(t), f.at(t).min(g.at(t))), "min at {t}: {least:?}");
            prop_assert!(near(most.at(t), f.at(t).max(g.at(t))), "max at {t}: {most:?}");
            prop_assert!(near(sum.at(t), f.at(t) + g.at(t)), "sum at {t}: {sum:?}");
            prop_assert!(near(sum.right_limit(t), f.right_limit(t) + g.right_limit(t)), "sum at {t}+");
        }
    }

    #[test]
    fn convolution_is_its_definition(f in curves(), g in curves()) {
        let found = usable(f.convolve(&g))?;
        for t in times() {
            let wanted = convolution_by_definition(&f, &g, t);
            prop_assert!(near(found.at(t), wanted), "at {t}: {} for {wanted}, {found:?}", found.at(t));
        }
        let other = usable(g.convolve(&f))?;
        prop_assert!(found.is_same_as(&other).unwrap(), "{found:?}\n{other:?}");
    }

    #[test]
    fn convolution_is_associative_and_isotone(f in curves(), g in curves(), h in curves()) {
        let left = usable(usable(f.convolve(&g))?.convolve(&h))?;
        let right = usable(f.convolve(&usable(g.convolve(&h))?))?;
        prop_assert!(left.is_same_as(&right).unwrap(), "{left:?}\n{right:?}");
        let less = usable(f.min(&h))?;
        let (a, b) = (usable(less.convolve(&g))?, usable(f.convolve(&g))?);
        prop_assert!(a.is_at_most(&b).unwrap(), "{a:?}\n{b:?}");
    }

    #[test]
    fn a_delay_shifts_whatever_it_is_convolved_with(f in curves(), steps in 0..20_u32) {
        let by = f64::from(steps) * STEP;
        let later = usable(f.convolve(&Curve::delay(by).unwrap()))?;
        for t in times() {
            prop_assert!(near(later.at(t), f.at(t - by)), "{later:?}");
        }
        prop_assert!(later.is_same_as(&f.later(by).unwrap()).unwrap());
    }

    #[test]
    fn deconvolution_is_its_definition_and_dual_to_convolution(f in finite_curves(), g in curves()) {
        let found = usable(f.deconvolve(&g))?;
        if found.rate().is_finite() {
            for t in times() {
                let wanted = deconvolution_by_definition(&f, &g, t);
                prop_assert!(near(found.at(t), wanted), "at {t}: {} for {wanted}, {found:?}", found.at(t));
            }
        } else {
            prop_assert!(f.rate() > g.rate());
        }
        // f (/) g is the least h with f <= h (x) g, but for the value at 0, which a curve does not hold
        let above = f.vertical_deviation(&g);
        if let Ok(above) = above
            && above.is_finite()
        {
            let service = g.raised(above).unwrap();
            let back = usable(found.convolve(&service))?;
            prop_assert!(f.is_at_most(&back).unwrap(), "{f:?}\n{back:?}");
            prop_assert!(found.right_limit(0.0) >= above - 1e-9 * (1.0 + above));
        }
    }

    #[test]
    fn a_closure_is_sub_additive_below_the_curve_and_its_own_closure(f in curves()) {
        let closed = usable(f.closure())?;
        prop_assert!(closed.is_at_most(&f).unwrap());
        let twice = usable(closed.convolve(&closed))?;
        prop_assert!(twice.is_same_as(&closed).unwrap(), "{closed:?}\n{twice:?}");
        prop_assert!(usable(closed.closure())?.is_same_as(&closed).unwrap());
        // the smallest sum of parts on the grid, by dynamic programming; a curve without a burst may be cut finer
        if f.right_limit(0.0) > 0.0 {
            let n = 120;
            let mut least = vec![0.0; n + 1];
            for i in 1..=n {
                least[i] = (1..=i)
                    .map(|k| f.at(k as f64 * STEP / 2.0) + least[i - k])
                    .fold(f64::INFINITY, f64::min);
                let t = i as f64 * STEP / 2.0;
                prop_assert!(near(closed.at(t), least[i]), "at {t}: {closed:?}, {}", least[i]);
            }
        }
    }

    #[test]
    fn deviations_are_their_definitions(f in curves(), g in curves()) {
        let (delay, backlog) = (f.horizontal_deviation(&g), f.vertical_deviation(&g));
        let (Ok(delay), Ok(backlog)) = (delay, backlog) else {
            return Err(TestCaseError::reject("no common period"));
        };
        prop_assert!(delay >= 0.0 && backlog >= 0.0);
        let inverse = g.inverse().unwrap();
        let (mut worst, mut most) = (0.0_f64, 0.0_f64);
        for i in 0..800 {
            let t = f64::from(i) * STEP / 2.0;
            for (value, served) in [(f.at(t), g.at(t)), (f.right_limit(t), g.right_limit(t))] {
                if value.is_finite() {
                    most = most.max(value - served);
                    worst = worst.max(inverse.at(value) - t);
                }
            }
        }
        // the grid holds the largest difference; the largest delay may be between
        if backlog.is_finite() {
            prop_assert!(near(backlog, most), "backlog {backlog} for {most}");
        }
        prop_assert!(delay == f64::INFINITY || delay >= worst - 1e-9 * (1.0 + worst), "delay {delay} for {worst}");
        // what arrives is gone after the delay, and not a little earlier
        if delay.is_finite() {
            prop_assert!(f.is_at_most(&g_earlier(&g, delay)?).unwrap());
            if delay > 1e-6 {
                prop_assert!(!f.is_at_most(&g_earlier(&g, delay * 0.999)?).unwrap());
            }
        }
    }

    #[test]
    fn numbers_that_binary_cannot_hold_give_the_same_curves(f in curves(), g in curves()) {
        // tenths of seconds and thirds of data: each breakpoint is rounded, and none may be missed or doubled
        let (one, two) = (awkward(&f), awkward(&g));
        let pairs = [
            (f.min(&g), one.min(&two), "min"),
            (f.max(&g), one.max(&two), "max"),
            (f.add(&g), one.add(&two), "add"),
            (f.minus(&g), one.minus(&two), "minus"),
            (f.convolve(&g), one.convolve(&two), "convolve"),
            (f.deconvolve(&g), one.deconvolve(&two), "deconvolve"),
            (f.closure(), one.closure(), "closure"),
        ];
        for (exact, rounded, operation) in pairs {
            let (Ok(exact), Ok(rounded)) = (exact, rounded) else {
                continue;
            };
            // differences of large numbers may leave rounding where nothing should be left
            let (exact, rounded) = (awkward(&exact).raised(DATA).unwrap(), rounded.raised(DATA).unwrap());
            prop_assert!(exact.is_same_as(&rounded).unwrap(), "{operation}: {exact:?}\n{rounded:?}");
        }
        let deviations = [
            (f.vertical_deviation(&g), one.vertical_deviation(&two), DATA),
            (f.horizontal_deviation(&g), one.horizontal_deviation(&two), TIME),
        ];
        for (exact, rounded, factor) in deviations {
            if let (Ok(exact), Ok(rounded)) = (exact, rounded) {
                let wanted = exact * factor;
                let is_near = wanted == rounded || (wanted - rounded).abs() <= 1e-9 * (wanted + factor);
                prop_assert!(is_near, "{rounded} for {wanted}");
            }
        }
    }

    #[test]
    fn inverses_come_back(f in curves()) {
        let inverse = usable(f.inverse())?;
        let back = usable(inverse.inverse())?;
        prop_assert!(back.is_same_as(&f).unwrap(), "{f:?}\n{inverse:?}\n{back:?}");
    }

    #[test]
    fn what_is_left_is_the_running_maximum_of_the_difference(f in finite_curves(), g in finite_curves()) {
        let left = usable(f.minus(&g))?;
        let mut most = 0.0_f64;
        for t in times() {
            most = most.max(f.right_limit(t - STEP / 2.0) - g.right_limit(t - STEP / 2.0));
            most = most.max(f.at(t) - g.at(t));
            prop_assert!(near(left.at(t), most), "at {t}: {} for {most}, {left:?}", left.at(t));
        }
    }

    #[test]
    fn curves_come_back_from_json(f in curves()) {
        let text = serde_json::to_string(&f).unwrap();
        prop_assert_eq!(serde_json::from_str::<Curve>(&text).unwrap(), f);
    }
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

/// `g(t + by)` for `t > 0`.
fn g_earlier(g: &Curve, by: f64) -> Result<Curve, TestCaseError> {
    usable(g.deconvolve(&Curve::delay(by).unwrap()))
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
