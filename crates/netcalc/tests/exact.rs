//! Min-plus operations against their definitions on a grid, and laws of the algebra.

use pathcast_netcalc::{Curve, MinPlusError, Segment, Tail};
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

/// The infimum of `f(t - s) + g(s)`: between the grid's points both are linear, so that it lies at one,
/// from either side, or where `t - s` is on the grid.
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
        // f (/) g is the least h with f <= h (x) g, except for the value at 0, which a curve does not have
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
        // the smallest sum of parts on the grid, by dynamic programming; a curve without a burst may be
        // cut finer
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
        // tenths of seconds and thirds of data: each breakpoint is rounded, and none may be missed or
        // doubled
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

/// `g(t + by)` for `t > 0`.
fn g_earlier(g: &Curve, by: f64) -> Result<Curve, TestCaseError> {
    usable(g.deconvolve(&Curve::delay(by).unwrap()))
}

/// What a difference of two breakpoints leaves beside 0 is no step of its own.
#[test]
fn breakpoints_that_meet_at_zero_within_rounding_meet_there() {
    let piece = |start_s, value, slope| Segment {
        start_s,
        value,
        slope,
    };
    let arrivals = [
        piece(0.0, 0.0, 0.0),
        piece(0.75, 1.0, 2.0),
        piece(1.5, 5.5, 4.0),
    ];
    let service = [
        piece(0.0, 0.0, 0.0),
        piece(0.75, 0.0, 3.0),
        piece(1.25, 1.5, 3.0),
    ];
    let tail = Tail::Periodic {
        from_s: 1.25,
        period_s: 0.25,
        increment: 1.75,
    };
    let f = awkward(&Curve::from_segments(&arrivals, Tail::Affine).unwrap());
    let g = awkward(&Curve::from_segments(&service, tail).unwrap());
    let output = f.deconvolve(&g).unwrap();
    assert_eq!(output.segments().len(), 1, "{output:?}");
}
