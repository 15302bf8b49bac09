//! Learning on the last seconds alone: the sensitivity to the size of the training window (paper, section 5.2).
//!
//! By default each model has the memory that suits it. With a window asked for, at each update
//! everything that a model learned before the window is dropped: histories are sampled from the window, the
//! loss curve and the formulas' loss are the window's, and Pathcast's forecaster begins anew with its
//! records. The flow's state (phase, window, last maximum) and the round-trip time are measured, not
//! learned, and stay.

use super::{Learned, REFIT_S, Walk};
use crate::baselines::{Ewma, EwmaTuned, HoltWinters, RobustMpc, TwoSpeeds};
use crate::forecast::{Ablation, Forecaster, ForecasterOptions};
use crate::types::{ForecastError, PAPER_SAMPLE_S, Protocol, SAMPLE_S, TRAINING_S, WINDOWS_S};

/// Samples of a window in the paper's protocol: 10 of 10 s where it has 100 s.
const PAPER_SAMPLES: f64 = TRAINING_S / PAPER_SAMPLE_S;

/// Refuses a window out of range.
pub(super) fn check(window_s: Option<f64>) -> Result<(), ForecastError> {
    match window_s {
        Some(got) if !(WINDOWS_S.0..=WINDOWS_S.1).contains(&got) => {
            Err(ForecastError::BadWindow { got })
        }
        _ => Ok(()),
    }
}

impl Walk<'_> {
    /// At an update, learns from the records in the window alone.
    pub(super) fn learn_window(&mut self, now_s: f64, window_s: f64) -> Result<(), ForecastError> {
        let updates = self.second.is_multiple_of(REFIT_S);
        let past_s = self.past_s();
        let sample_s = match self.learned.protocol {
            Protocol::Fair => SAMPLE_S,
            Protocol::Paper => window_s / PAPER_SAMPLES,
        };
        if updates || self.learned.protocol == Protocol::Fair {
            let truth = &self.truth;
            // a partial sample of the window is dropped, but not a whole one because of rounding
            let count = (window_s.min(past_s) / sample_s + 1e-9) as u32;
            let ago_s = |samples: u32| now_s - f64::from(samples) * sample_s;
            let samples = (0..count)
                .rev()
                .map(|i| truth.mean(ago_s(i + 1), ago_s(i)))
                .collect::<Vec<_>>();
            self.learned.relearn(&samples, &self.horizons_s, sample_s);
        }
        for index in 0..self.learned.own.len() {
            if updates && past_s > window_s {
                let recent = self.recent(self.learned.own[index].ablation, now_s, window_s)?;
                self.learned.own[index].recent = Some(recent);
            } else if let Some(recent) = &mut self.learned.own[index].recent {
                recent.advance(now_s);
            }
        }
        Ok(())
    }

    /// A forecaster that has seen the window alone.
    fn recent(
        &self,
        ablation: Ablation,
        now_s: f64,
        window_s: f64,
    ) -> Result<Forecaster, ForecastError> {
        let measured = self.series.srtt_s().is_some();
        let mut recent = Forecaster::new(&ForecasterOptions {
            cc: self.learned.cc,
            rtt_s: (self.rtt_s).or((!measured).then(|| self.learned.rtt_s())),
            horizons_s: self.horizons_s.clone(),
        })?
        .of_quantity(self.truth.quantity())
        .without(ablation);
        let first = (self.series.time_s()).partition_point(|&time_s| time_s <= now_s - window_s);
        // a window without a record begins with the last before it
        for index in first.min(self.taken.saturating_sub(1))..self.taken {
            recent.observe_record(self.series, index)?;
        }
        recent.advance(now_s);
        Ok(recent)
    }
}

impl Learned {
    fn relearn(&mut self, samples: &[f64], horizons_s: &[f64], sample_s: f64) {
        self.samples.clear();
        self.ewma = Ewma::default();
        self.ewma_tuned = EwmaTuned::new(horizons_s, sample_s);
        self.holt_winters = HoltWinters::default();
        self.robust_mpc = RobustMpc::default();
        self.dash_js = TwoSpeeds::dash_js();
        self.hls_js = TwoSpeeds::hls_js();
        for &sample in samples {
            self.take_sample(sample, sample_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::{EvaluateError, EvaluateOptions, Prediction, evaluate};
    use crate::types::{MODELS, Model};
    use pathcast_analysis::series::Series;
    use pathcast_window_law::Cc;

    /// A sawtooth of Reno to 200 packets that was one to `before` packets until 150 s.
    fn sawtooth(before: u32) -> Series {
        let records = 0..=2600_u32;
        let time_s = records.clone().map(|i| f64::from(i) * 0.1).collect();
        let cwnd = records.map(|i| {
            let top = if i < 1500 { before } else { 200 };
            let low = top / 2;
            f64::from(low + i % (top - low + 1))
        });
        Series::new(time_s, cwnd.collect()).unwrap()
    }

    fn late(series: &Series, protocol: Protocol, window_s: Option<f64>) -> Vec<Prediction> {
        let options = EvaluateOptions {
            cc: Some(Cc::Reno),
            rtt_s: Some(0.1),
            horizons_s: vec![1.0, 5.0],
            protocol,
            window_s,
            keep_predictions: true,
        };
        let evaluation = evaluate(series, &options).unwrap();
        let all = (evaluation.horizons.into_iter()).flat_map(|score| score.predictions.unwrap());
        all.filter(|one| one.time_s > 200.0).collect()
    }

    #[test]
    fn what_came_before_the_window_has_no_part_in_any_forecast() {
        let (one, other) = (sawtooth(200), sawtooth(120));
        // sums over the past differ by rounding; what does not apply is NaN in both
        let same = |model: Model, (one, other): &(Vec<Prediction>, Vec<Prediction>)| {
            let pairs = one.iter().zip(other);
            let mut pairs = pairs.map(|(a, b)| (a.forecast[model], b.forecast[model]));
            pairs.all(|(a, b)| a == b || (a.is_nan() && b.is_nan()) || (a / b - 1.0).abs() < 1e-9)
        };
        for protocol in [Protocol::Fair, Protocol::Paper] {
            let within = |series| late(series, protocol, Some(20.0));
            let whole = |series| late(series, protocol, None);
            let pairs = [(within(&one), within(&other)), (whole(&one), whole(&other))];
            assert!(pairs[0].0.len() > 80);
            for model in MODELS {
                assert!(same(model, &pairs[0]), "{model:?}, {protocol:?}");
                if matches!(model, Model::Pathcast | Model::Econ | Model::Pftk) {
                    let forgets = same(model, &pairs[1]);
                    assert!(!forgets, "{model:?} forgets without a window, {protocol:?}");
                }
            }
        }
    }

    #[test]
    fn histories_are_sampled_from_the_window() {
        let series = sawtooth(200);
        let truth = |from_s: f64, to_s: f64| {
            (series.windows_between(from_s, to_s)).map_or(f64::NAN, |part| {
                part.cwnd_packets().iter().sum::<f64>() / part.len() as f64
            })
        };
        for one in late(&series, Protocol::Fair, Some(12.0)) {
            let mean = truth(one.time_s - 12.0, one.time_s);
            assert!((one.forecast[Model::WindowMean] / mean - 1.0).abs() < 0.02);
        }
        // ten samples of 1.2 s, taken each 10 s
        for one in late(&series, Protocol::Paper, Some(12.0)) {
            let update_s = (one.time_s / 10.0).floor() * 10.0;
            let last = truth(update_s - 1.2, update_s);
            assert!((one.forecast[Model::LastSample] / last - 1.0).abs() < 0.02);
        }
    }

    #[test]
    fn a_window_of_the_default_size_samples_as_the_default_does() {
        let series = sawtooth(160);
        for protocol in [Protocol::Fair, Protocol::Paper] {
            let pairs = late(&series, protocol, Some(100.0)).into_iter();
            for (one, other) in pairs.zip(late(&series, protocol, None)) {
                for model in [Model::LastSample, Model::WindowMean, Model::HarmonicMean] {
                    let (one, other) = (one.forecast[model], other.forecast[model]);
                    assert!((one / other - 1.0).abs() < 1e-9, "{model:?}, {protocol:?}");
                }
            }
        }
    }

    #[test]
    fn a_window_shorter_than_an_update_or_no_time_is_refused() {
        for got in [9.99, 1000.1, 0.0, -10.0, f64::NAN, f64::INFINITY] {
            let options = EvaluateOptions {
                window_s: Some(got),
                ..EvaluateOptions::default()
            };
            let error = evaluate(&sawtooth(200), &options).unwrap_err();
            assert!(matches!(
                error,
                EvaluateError::Forecast(ForecastError::BadWindow { .. })
            ));
            assert!(error.to_string().contains("must be 10 to 1000"), "{error}");
        }
    }
}
