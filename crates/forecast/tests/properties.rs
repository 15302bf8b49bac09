//! Whatever a series holds, nothing panics and what comes out is sane.

use pathcast_analysis::{FitOptions, Series, find_epochs, fit};
use pathcast_forecast::{EvaluateOptions, Model, Protocol, evaluate};
use pathcast_window_law::Cc;
use proptest::prelude::*;

/// Steps of time and window: growth, cuts, spikes, repeats, silence.
fn series() -> impl Strategy<Value = Series> {
    let step = (
        prop_oneof![4 => 0.0..0.05_f64, 2 => 0.05..1.0, 1 => Just(0.0), 1 => 1.0..40.0],
        prop_oneof![6 => 1.0..1.1_f64, 2 => 0.3..0.9, 1 => 1.1..20.0, 1 => Just(1.0), 1 => 0.01..0.3],
        0.0..50.0_f64,
    );
    (1.0..2000.0_f64, prop::collection::vec(step, 2..200)).prop_filter_map(
        "lasts longer than 0 s",
        |(first, steps)| {
            let (mut t, mut w, mut sent) = (0.0, first, 0.0);
            let (mut time_s, mut cwnd, mut snd_nxt) = (vec![], vec![], vec![]);
            for (dt, factor, packets) in steps {
                t += dt;
                w = (w * factor).clamp(0.5, 1e6);
                sent += packets;
                time_s.push(t);
                cwnd.push(w);
                snd_nxt.push(sent);
            }
            let plain = Series::new(time_s, cwnd).ok()?;
            if first < 1000.0 {
                Some(plain)
            } else {
                plain.with_snd_nxt(snd_nxt).ok()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn epochs_are_ordered_and_lie_within_the_series(series in series(), reno: bool) {
        let cc = if reno { Cc::Reno } else { Cc::Cubic };
        let found = find_epochs(&series, cc, 0.1);
        for epoch in &found.epochs {
            prop_assert!(epoch.start_s <= epoch.end_s);
            prop_assert!(epoch.start_s >= series.start_s() && epoch.end_s <= series.end_s());
        }
        prop_assert!(found.losses.windows(2).all(|pair| pair[0].time_s <= pair[1].time_s));
    }

    #[test]
    fn loss_probabilities_are_probabilities(series in series()) {
        let fit = fit(&series, &FitOptions::default());
        prop_assert!(fit.rtt_s > 0.0);
        for point in &fit.curve.points {
            prop_assert!((0.0..=1.0).contains(&point.loss_probability), "{point:?}");
            prop_assert!(point.packets >= f64::from(point.losses));
        }
        for cwnd in [1.0, 37.5, 1e6] {
            prop_assert!((0.0..=1.0).contains(&fit.curve.loss_probability(cwnd)));
        }
    }

    #[test]
    fn forecasts_are_finite_and_ordered(series in series(), paper: bool) {
        let options = EvaluateOptions {
            horizons_s: vec![1.0, 2.5, 10.0],
            protocol: if paper { Protocol::Paper } else { Protocol::Fair },
            keep_predictions: true,
            ..EvaluateOptions::default()
        };
        if let Ok(evaluation) = evaluate(&series, &options) {
            for horizon in evaluation.horizons {
                for prediction in horizon.predictions.unwrap() {
                    prop_assert!(prediction.forecast[Model::Pathcast].is_finite());
                    prop_assert!(prediction.forecast[Model::Pathcast] > 0.0);
                    prop_assert!(prediction.quantiles.iter().all(|q| q.is_finite()));
                    prop_assert!(prediction.quantiles.windows(2).all(|q| q[0] <= q[1]));
                }
            }
        }
    }
}
