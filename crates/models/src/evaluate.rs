//! Forecasts against what happened, by the paper's protocol and by a fair one.

use serde::Serialize;
use thiserror::Error;

use crate::baselines::{Ewma, HoltWinters, harmonic_mean, last_sample, window_mean};
use crate::econ;
use crate::fit::{FitOptions, fit};
use crate::forecast::{
    ForecastError, Forecaster, ForecasterOptions, Observation, QUANTILES, Quantity, SAMPLE_S,
    TRAINING_S,
};
use crate::loss_curve::LossCurve;
use crate::rtt::guess_cc;
use crate::series::{Integral, Series};
use crate::window::Cc;

/// Seconds between moments of prediction.
pub const EVERY_S: f64 = 1.0;
/// Seconds between updates in the paper's protocol, and per sample there (section 5.1).
pub const PAPER_SAMPLE_S: f64 = 10.0;
/// The longest trace that is evaluated: 30 days.
pub const MAX_DURATION_S: f64 = 2_592_000.0;
/// Samples in the training window of the paper's protocol: 100 s.
const PAPER_SAMPLES: usize = 10;

/// What the history-based baselines may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Samples of 1 s, up to the moment of prediction.
    #[default]
    Fair,
    /// Averages over 10 s, updated every 10 s: up to 10 s stale (paper, section 5.1).
    Paper,
}

/// What to evaluate.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluateOptions {
    /// Congestion control; guessed from what precedes the first prediction if `None`.
    pub cc: Option<Cc>,
    /// Round-trip time, seconds; from srtt or estimated as the flow goes on if `None`.
    pub rtt_s: Option<f64>,
    /// Horizons, seconds.
    pub horizons_s: Vec<f64>,
    /// Protocol.
    pub protocol: Protocol,
    /// Keep each prediction, for plots.
    pub keep_predictions: bool,
}

impl Default for EvaluateOptions {
    fn default() -> Self {
        Self {
            cc: None,
            rtt_s: None,
            horizons_s: vec![1.0, 5.0, 10.0, 30.0, 60.0],
            protocol: Protocol::Fair,
            keep_predictions: false,
        }
    }
}

/// Why an evaluation was refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// A horizon or a round-trip time that is no positive time.
    #[error(transparent)]
    Forecast(#[from] ForecastError),
    /// Not one window fits.
    #[error("the trace lasts {duration_s} s, too short for a forecast of {horizon_s} s")]
    TooShort {
        /// How long it lasts, seconds.
        duration_s: f64,
        /// The shortest horizon asked for, seconds.
        horizon_s: f64,
    },
    /// More seconds than a trace can have: the times are probably in another unit.
    #[error(
        "the trace lasts {duration_s} s, must be <= {MAX_DURATION_S} s (are times in seconds?)"
    )]
    TooLong {
        /// How long it lasts, seconds.
        duration_s: f64,
    },
    /// No horizon was asked for.
    #[error("no horizon given, at least one is wanted")]
    NoHorizon,
}

/// One value for each model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ByModel<T> {
    /// Pathcast's forecast.
    pub pathcast: T,
    /// The paper's model.
    pub econ: T,
    /// The newest sample.
    pub last_sample: T,
    /// Weight 0.8 on the newest sample.
    pub ewma: T,
    /// Level plus trend.
    pub holt_winters: T,
    /// Of five samples.
    pub harmonic_mean: T,
    /// Mean of the training window.
    pub window_mean: T,
}

impl<T> ByModel<T> {
    /// Applies `f` to each value.
    pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> ByModel<U> {
        ByModel {
            pathcast: f(self.pathcast),
            econ: f(self.econ),
            last_sample: f(self.last_sample),
            ewma: f(self.ewma),
            holt_winters: f(self.holt_winters),
            harmonic_mean: f(self.harmonic_mean),
            window_mean: f(self.window_mean),
        }
    }

    /// Names and values, in the order of the fields.
    pub fn named(&self) -> [(&'static str, &T); 7] {
        [
            ("pathcast", &self.pathcast),
            ("econ", &self.econ),
            ("last_sample", &self.last_sample),
            ("ewma", &self.ewma),
            ("holt_winters", &self.holt_winters),
            ("harmonic_mean", &self.harmonic_mean),
            ("window_mean", &self.window_mean),
        ]
    }
}

/// One prediction and what happened.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// Moment of prediction, seconds, in the trace's time.
    pub time_s: f64,
    /// What happened in the horizon.
    pub truth: f64,
    /// What each model said.
    pub forecast: ByModel<f64>,
    /// Pathcast's quantiles at 5, 25, 50, 75 and 95 %.
    pub quantiles: [f64; QUANTILES.len()],
}

/// One row of the table: one horizon.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HorizonScore {
    /// Seconds ahead.
    pub horizon_s: f64,
    /// Predictions judged.
    pub windows: usize,
    /// Median of |forecast / truth - 1|, per cent; `None` without windows.
    pub median_error_pct: ByModel<Option<f64>>,
    /// Part of the truths in Pathcast's 5-95 % band; `None` without windows.
    pub coverage90: Option<f64>,
    /// Each prediction, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predictions: Option<Vec<Prediction>>,
}

/// An evaluation of one flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// What the baselines could see.
    pub protocol: Protocol,
    /// What was predicted, and its unit.
    pub truth: Quantity,
    /// Congestion control, given or guessed.
    pub cc: Cc,
    /// Round-trip time at the end, seconds.
    pub rtt_s: f64,
    /// First moment of prediction, seconds after the first record.
    pub first_prediction_s: f64,
    /// Loss events seen.
    pub losses: u32,
    /// One score for each horizon, in the order asked for.
    pub horizons: Vec<HorizonScore>,
}

/// Forecasts a flow again and again and compares with what it then did.
///
/// Moments of prediction are each second after the first record, from 100 s on (from a third of the
/// trace on if that is earlier), as long as the horizon fits. Truth is the time-weighted mean window,
/// or the growth of snd_nxt per second if the trace has it; windows in which nothing was sent have
/// no relative error and are left out.
///
/// # Errors
/// [`EvaluateError`] if no window fits or an option is no positive time.
pub fn evaluate(series: &Series, options: &EvaluateOptions) -> Result<Evaluation, EvaluateError> {
    let shortest_s = options
        .horizons_s
        .iter()
        .copied()
        .fold(f64::INFINITY, f64::min);
    if options.horizons_s.is_empty() {
        return Err(EvaluateError::NoHorizon);
    }
    let duration_s = series.duration_s();
    let start_s = series.start_s();
    if duration_s > MAX_DURATION_S {
        return Err(EvaluateError::TooLong { duration_s });
    }
    let first_s = TRAINING_S.min((duration_s / 3.0).floor()).max(1.0);
    if shortest_s > 0.0 && first_s + shortest_s > duration_s {
        return Err(EvaluateError::TooShort {
            duration_s,
            horizon_s: shortest_s,
        });
    }
    let cc = options.cc.unwrap_or_else(|| {
        part(series, start_s, start_s + first_s).map_or(Cc::Cubic, |past| guess_cc(&past))
    });
    let horizons_s = options.horizons_s.clone();
    let mut forecaster = Forecaster::new(&ForecasterOptions {
        cc,
        rtt_s: options.rtt_s,
        horizons_s,
    })?;
    let truth = Truth::new(series);
    let mut history = History::new(options.protocol);
    let mut predictions: Vec<Vec<Prediction>> = vec![Vec::new(); options.horizons_s.len()];
    let mut curve: Option<LossCurve> = None;
    let mut next = 0;
    let mut losses = 0;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive
    for second in 1..=duration_s as u32 {
        let past_s = f64::from(second) * EVERY_S;
        let now_s = start_s + past_s;
        while next < series.len() && series.time_s()[next] <= now_s {
            forecaster.observe(&observation(series, next))?;
            next += 1;
        }
        forecaster.advance(now_s);
        history.sample(&truth, start_s, second);
        if past_s < first_s {
            continue;
        }
        let rtt_s = forecaster.rtt_s();
        if curve.is_none() || second % 10 == 0 {
            let latest = part(series, now_s - TRAINING_S, now_s).map(|past| {
                let options = FitOptions {
                    cc: Some(cc),
                    rtt_s: Some(rtt_s),
                    ..FitOptions::default()
                };
                fit(&past, &options).curve
            });
            // a pause of the trace leaves the curve of before
            curve = latest.or(curve);
        }
        let cwnd = series.cwnd_packets()[next - 1];
        // without a curve what the window is worth
        let econ = curve.as_ref().map_or(cwnd / rtt_s, |curve| {
            econ::congestion_avoidance(cc, cwnd, rtt_s, |w| curve.loss_probability(w))
                .rate_packets_per_s
        });
        let econ = if truth.snd_nxt.is_some() {
            econ
        } else {
            econ * rtt_s
        };
        for (horizon_s, predictions) in options.horizons_s.iter().zip(&mut predictions) {
            if now_s + horizon_s > series.end_s() {
                continue;
            }
            let happened = truth.mean(now_s, now_s + horizon_s);
            if happened <= 0.0 {
                continue;
            }
            let forecast = forecaster.forecast(now_s, *horizon_s)?;
            losses = forecast.basis.losses;
            predictions.push(Prediction {
                time_s: now_s,
                truth: happened,
                forecast: history.forecast(forecast.point, econ),
                quantiles: forecast.quantiles,
            });
        }
    }
    Ok(Evaluation {
        protocol: options.protocol,
        truth: forecaster.quantity(),
        cc,
        rtt_s: forecaster.rtt_s(),
        first_prediction_s: first_s,
        losses,
        horizons: (options.horizons_s.iter().zip(predictions))
            .map(|(&horizon_s, predictions)| {
                score(horizon_s, predictions, options.keep_predictions)
            })
            .collect(),
    })
}

fn score(horizon_s: f64, predictions: Vec<Prediction>, keep: bool) -> HorizonScore {
    let error = |of: fn(&ByModel<f64>) -> f64| {
        let mut errors: Vec<f64> = (predictions.iter())
            .map(|p| 100.0 * (of(&p.forecast) / p.truth - 1.0).abs())
            .filter(|error| error.is_finite())
            .collect();
        errors.sort_by(f64::total_cmp);
        (!errors.is_empty()).then(|| crate::rtt::median(errors))
    };
    let inside = predictions
        .iter()
        .filter(|p| (p.quantiles[0]..=p.quantiles[QUANTILES.len() - 1]).contains(&p.truth))
        .count();
    let windows = predictions.len();
    HorizonScore {
        horizon_s,
        windows,
        median_error_pct: ByModel {
            pathcast: error(|f| f.pathcast),
            econ: error(|f| f.econ),
            last_sample: error(|f| f.last_sample),
            ewma: error(|f| f.ewma),
            holt_winters: error(|f| f.holt_winters),
            harmonic_mean: error(|f| f.harmonic_mean),
            window_mean: error(|f| f.window_mean),
        },
        coverage90: (windows > 0).then(|| inside as f64 / windows as f64),
        predictions: keep.then_some(predictions),
    }
}

fn observation(series: &Series, index: usize) -> Observation {
    Observation {
        time_s: series.time_s()[index],
        cwnd_packets: series.cwnd_packets()[index],
        snd_nxt_packets: series.snd_nxt_packets().map(|column| column[index]),
        srtt_s: series.srtt_s().map(|column| column[index]),
    }
}

/// The records of `from_s..=to_s`, if they make a series.
fn part(series: &Series, from_s: f64, to_s: f64) -> Option<Series> {
    let time_s = series.time_s();
    let from = time_s.partition_point(|&t| t < from_s);
    let to = time_s.partition_point(|&t| t <= to_s);
    Series::new(
        time_s[from..to].to_vec(),
        series.cwnd_packets()[from..to].to_vec(),
    )
    .ok()
}

/// What happened: mean window, or packets per second where the trace has sequence numbers.
struct Truth<'a> {
    cwnd: Integral,
    snd_nxt: Option<(&'a [f64], &'a [f64])>,
}

impl<'a> Truth<'a> {
    fn new(series: &'a Series) -> Self {
        Self {
            cwnd: Integral::new(series.time_s(), series.cwnd_packets()),
            snd_nxt: series
                .snd_nxt_packets()
                .map(|snd_nxt| (series.time_s(), snd_nxt)),
        }
    }

    fn mean(&self, from_s: f64, to_s: f64) -> f64 {
        let Some((time_s, snd_nxt)) = self.snd_nxt else {
            return self.cwnd.mean(from_s, to_s);
        };
        let at = |t: f64| snd_nxt[time_s.partition_point(|&x| x <= t).max(1) - 1];
        (at(to_s) - at(from_s)) / (to_s - from_s)
    }
}

/// The baselines' samples.
struct History {
    protocol: Protocol,
    samples: Vec<f64>,
    ewma: Ewma,
    holt_winters: HoltWinters,
}

impl History {
    fn new(protocol: Protocol) -> Self {
        let (ewma, holt_winters) = (Ewma::default(), HoltWinters::default());
        Self {
            protocol,
            samples: Vec::new(),
            ewma,
            holt_winters,
        }
    }

    /// Second `second` is over.
    fn sample(&mut self, truth: &Truth<'_>, start_s: f64, second: u32) {
        let length_s = match self.protocol {
            Protocol::Fair => SAMPLE_S,
            Protocol::Paper => PAPER_SAMPLE_S,
        };
        let now_s = f64::from(second) * EVERY_S;
        if now_s % length_s == 0.0 {
            let sample = truth.mean(start_s + now_s - length_s, start_s + now_s);
            self.samples.push(sample);
            self.ewma.push(sample);
            self.holt_winters.push(sample);
        }
    }

    /// The baselines beside the two models. NaN before the first sample.
    fn forecast(&self, pathcast: f64, econ: f64) -> ByModel<f64> {
        let training = match self.protocol {
            Protocol::Fair => (TRAINING_S / SAMPLE_S) as usize,
            Protocol::Paper => PAPER_SAMPLES,
        };
        let window = &self.samples[self.samples.len().saturating_sub(training)..];
        ByModel {
            pathcast,
            econ,
            last_sample: last_sample(window).unwrap_or(f64::NAN),
            ewma: self.ewma.forecast().unwrap_or(f64::NAN),
            holt_winters: self.holt_winters.forecast().unwrap_or(f64::NAN),
            harmonic_mean: harmonic_mean(window).unwrap_or(f64::NAN),
            window_mean: window_mean(window).unwrap_or(f64::NAN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sawtooth(seconds: u32) -> Series {
        let records = 0..=seconds * 10;
        let time_s = records.clone().map(|i| f64::from(i) * 0.1).collect();
        Series::new(time_s, records.map(|i| f64::from(100 + i % 101)).collect()).unwrap()
    }

    fn options(horizons_s: &[f64]) -> EvaluateOptions {
        EvaluateOptions {
            horizons_s: horizons_s.to_vec(),
            ..EvaluateOptions::default()
        }
    }

    #[test]
    fn every_second_from_the_end_of_training_is_a_window() {
        let evaluation = evaluate(&sawtooth(350), &options(&[1.0, 10.0])).unwrap();
        assert_eq!(evaluation.first_prediction_s, 100.0);
        assert_eq!(evaluation.horizons[0].windows, 250);
        assert_eq!(evaluation.horizons[1].windows, 241);
        assert_eq!(evaluation.truth, Quantity::MeanCwndPackets);
        assert_eq!(evaluation.cc, Cc::Reno);
    }

    #[test]
    fn a_short_trace_starts_at_a_third() {
        let evaluation = evaluate(&sawtooth(30), &options(&[1.0])).unwrap();
        assert_eq!(evaluation.first_prediction_s, 10.0);
        assert_eq!(evaluation.horizons[0].windows, 20);
    }

    #[test]
    fn a_horizon_that_never_fits_has_no_windows_and_no_errors() {
        let evaluation = evaluate(&sawtooth(30), &options(&[1.0, 60.0])).unwrap();
        assert_eq!(evaluation.horizons[1].windows, 0);
        assert_eq!(evaluation.horizons[1].median_error_pct.pathcast, None);
        assert_eq!(evaluation.horizons[1].coverage90, None);
        assert!(matches!(
            evaluate(&sawtooth(30), &options(&[60.0])),
            Err(EvaluateError::TooShort { .. })
        ));
        assert_eq!(
            evaluate(&sawtooth(30), &options(&[])),
            Err(EvaluateError::NoHorizon)
        );
    }

    #[test]
    fn times_in_milliseconds_are_noticed() {
        let series = Series::new(vec![0.0, 3.6e6 * 1000.0], vec![10.0, 20.0]).unwrap();
        let error = evaluate(&series, &options(&[1.0])).unwrap_err();
        assert!(
            error.to_string().contains("are times in seconds?"),
            "{error}"
        );
    }

    #[test]
    fn the_future_does_not_leak_into_the_past() {
        let whole = sawtooth(400);
        let cut = part(&whole, 0.0, 320.0).unwrap();
        let keep = EvaluateOptions {
            keep_predictions: true,
            ..options(&[1.0, 10.0])
        };
        let (whole, cut) = (
            evaluate(&whole, &keep).unwrap(),
            evaluate(&cut, &keep).unwrap(),
        );
        for (whole, cut) in whole.horizons.iter().zip(&cut.horizons) {
            let cut = cut.predictions.as_ref().unwrap();
            assert!(whole.predictions.as_ref().unwrap()[..cut.len()] == cut[..]);
        }
    }

    #[test]
    fn baselines_in_the_papers_protocol_are_stale() {
        let keep = EvaluateOptions {
            keep_predictions: true,
            protocol: Protocol::Paper,
            ..options(&[1.0])
        };
        let evaluation = evaluate(&sawtooth(320), &keep).unwrap();
        let predictions = evaluation.horizons[0].predictions.as_ref().unwrap();
        // nine seconds with one and the same last sample, the mean of 90..100 s
        let stale = predictions[0].forecast.last_sample;
        assert!(
            predictions[..10]
                .iter()
                .all(|p| p.forecast.last_sample == stale)
        );
        assert_ne!(predictions[10].forecast.last_sample, stale);
    }

    #[test]
    fn keys_are_those_of_the_interface() {
        let evaluation = evaluate(&sawtooth(30), &options(&[1.0])).unwrap();
        let json = serde_json::to_value(&evaluation).unwrap();
        assert_eq!(json["protocol"], "fair");
        assert_eq!(json["truth"], "mean_cwnd_packets");
        let horizon = &json["horizons"][0];
        for model in [
            "pathcast",
            "econ",
            "last_sample",
            "ewma",
            "holt_winters",
            "harmonic_mean",
            "window_mean",
        ] {
            assert!(horizon["median_error_pct"][model].is_number(), "{model}");
        }
        assert!(horizon["coverage90"].is_number());
        assert!(horizon.get("predictions").is_none());
    }
}
