//! Forecasts against what happened, by the paper's protocol and by a fair one.

use crate::types::{
    ByModel, ForecastError, MODELS, Model, Protocol, QUANTILES, Quantity, TRAINING_S,
};
use serde::Serialize;
use thiserror::Error;

use crate::conformal::Conformal;
use crate::estimators::{EstimatorOptions, State, Walk};
use crate::forecast::Forecast;
use crate::score::{BandScore, FLOOR_PART, Skill, Summary, coverage, error_pct, skills};
use pathcast_analysis::rtt::guess_cc;
use pathcast_analysis::series::Series;
use pathcast_window_law::Cc;

/// The longest trace that is evaluated: 30 days.
pub const MAX_DURATION_S: f64 = 2_592_000.0;

/// What to evaluate.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluateOptions {
    /// Congestion control; guessed from what precedes the first prediction if `None`.
    pub cc: Option<Cc>,
    /// Round-trip time, seconds; `None`: from srtt, or estimated during the flow.
    pub rtt_s: Option<f64>,
    /// Horizons, seconds.
    pub horizons_s: Vec<f64>,
    /// Protocol.
    pub protocol: Protocol,
    /// Seconds of the past that all models learn on, [`WINDOWS_S`](crate::types::WINDOWS_S); `None`: each
    /// on what suits it, 100 s for ECON and the formulas (paper, section 5.1).
    pub window_s: Option<f64>,
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
            window_s: None,
            keep_predictions: false,
        }
    }
}

/// Why an evaluation was refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// A horizon or round-trip time that is not positive, or a training window out of range.
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
    #[error("got no horizon, expected at least one")]
    NoHorizon,
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
    /// Each model's 5-95 % band: Pathcast's and what is left of it have their own, others what they were lately
    /// off by.
    #[serde(skip)]
    pub bands: ByModel<[f64; 2]>,
}

/// One row of the table: one horizon.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HorizonScore {
    /// Seconds ahead.
    pub horizon_s: f64,
    /// Predictions judged.
    pub windows: usize,
    /// Of these, windows in which nothing was sent.
    pub zero_windows: usize,
    /// Truths count as at least this in errors: [`FLOOR_PART`] of their mean, in the truth's unit.
    pub error_floor: f64,
    /// Median of |forecast - truth| / max(truth, floor), per cent; `None` without windows.
    pub median_error_pct: ByModel<Option<f64>>,
    /// Part of the truths in Pathcast's 5-95 % band; `None` without windows.
    pub coverage90: Option<f64>,
    /// Coverage, width and interval score of each model's 5-95 % bands; `None` without windows, or if nothing was
    /// sent in any.
    pub bands: ByModel<Option<BandScore>>,
    /// Pathcast's errors compared with those of the best other model, and of Pathcast without one of its parts.
    pub skill: Vec<Skill>,
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

/// Forecasts a flow at many moments, and compares with what the flow then did.
///
/// Moments of prediction are each second after the first record, from 100 s on (from a third of the
/// trace on if that is earlier), as long as the horizon fits. Truth is the time-weighted mean window,
/// or the growth of snd_nxt per second if the trace has it. Windows that begin or end in a hole of snd_nxt longer than
/// a quarter of them are left out. Windows in which nothing was sent count: in errors a truth is at least
/// [`FLOOR_PART`] of the mean truth.
///
/// # Errors
/// [`EvaluateError`] if no window fits, or an option is not a positive time.
pub fn evaluate(series: &Series, options: &EvaluateOptions) -> Result<Evaluation, EvaluateError> {
    evaluate_beside(series, &[], options)
}

/// As [`evaluate`], where ECON and the formulas learn from connections in parallel with this one too: the paper's
/// p(cwnd, npc) is of all of them (section 3.2). All have the same clock.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_beside(
    series: &Series,
    siblings: &[Series],
    options: &EvaluateOptions,
) -> Result<Evaluation, EvaluateError> {
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
    let first_s = first_prediction_s(series);
    if shortest_s > 0.0 && first_s + shortest_s > duration_s {
        return Err(EvaluateError::TooShort {
            duration_s,
            horizon_s: shortest_s,
        });
    }
    let cc = options
        .cc
        .unwrap_or_else(|| cc_before(series, start_s + first_s));
    let mut walk = Walk::new(
        series,
        &EstimatorOptions {
            cc: Some(cc),
            rtt_s: options.rtt_s,
            horizons_s: options.horizons_s.clone(),
            protocol: options.protocol,
            window_s: options.window_s,
        },
        &MODELS,
    )?
    .beside(siblings);
    let mut judges: Vec<Judge> = options.horizons_s.iter().map(|&h| Judge::new(h)).collect();
    while walk.next_second()? {
        let now_s = walk.now_s();
        let state = walk.state();
        for judge in &mut judges {
            if now_s + judge.horizon_s > series.end_s() {
                continue;
            }
            let prediction = judge.predict(&walk, &state)?;
            if walk.past_s() < first_s || prediction.truth.is_nan() {
                continue;
            }
            judge.predictions.push(prediction);
        }
    }
    let learned = walk.into_learned();
    Ok(Evaluation {
        protocol: options.protocol,
        truth: learned.quantity(),
        cc: learned.cc(),
        rtt_s: learned.rtt_s(),
        first_prediction_s: first_s,
        losses: learned.losses(),
        horizons: (judges.into_iter())
            .map(|judge| judge.score(options.keep_predictions))
            .collect(),
    })
}

/// All forecasts of one horizon.
#[derive(Debug)]
struct Judge {
    horizon_s: f64,
    /// Bands of the models without their own.
    conformal: ByModel<Conformal>,
    predictions: Vec<Prediction>,
}

impl Judge {
    fn new(horizon_s: f64) -> Self {
        Self {
            horizon_s,
            conformal: ByModel::from_fn(|_| Conformal::new(horizon_s)),
            predictions: Vec::new(),
        }
    }

    /// Asks all models at the moment that the walk is at; the truth is NaN where the trace does not know it.
    fn predict(&mut self, walk: &Walk<'_>, state: &State) -> Result<Prediction, ForecastError> {
        let (now_s, horizon_s) = (walk.now_s(), self.horizon_s);
        let learned = walk.learned();
        let pathcast = learned.pathcast(state, horizon_s)?;
        let mut bands = ByModel::from_fn(|_| [f64::NAN; 2]);
        let with_band = |own: &Forecast| {
            let band = [own.quantiles[0], own.quantiles[QUANTILES.len() - 1]];
            (own.point, band)
        };
        let forecast = ByModel::from_fn(|model| {
            let (point, band) = if model == Model::Pathcast {
                with_band(&pathcast)
            } else if let Some(own) = learned.own(model, state, horizon_s) {
                with_band(&own)
            } else {
                let point = learned.forecast(model, state, horizon_s);
                let truth = |from_s, to_s| walk.truth(from_s, to_s);
                (point, self.conformal[model].band(now_s, point, truth))
            };
            bands[model] = band;
            point
        });
        Ok(Prediction {
            time_s: now_s,
            truth: walk.truth(now_s, now_s + horizon_s),
            forecast,
            quantiles: pathcast.quantiles,
            bands,
        })
    }

    fn score(self, keep: bool) -> HorizonScore {
        let (predictions, horizon_s) = (self.predictions, self.horizon_s);
        let sent = predictions.iter().map(|p| p.truth).sum::<f64>();
        let error_floor = match predictions.len() {
            0 => 0.0,
            windows => FLOOR_PART * sent / windows as f64,
        };
        let errors = MODELS.map(|model| {
            let errors = predictions
                .iter()
                .map(|p| error_pct(p.forecast[model], p.truth, error_floor));
            (model, errors.collect::<Vec<f64>>())
        });
        let median = |model: Model| {
            let errors = errors[model as usize].1.iter().copied();
            Summary::of(errors).map(|summary| summary.median)
        };
        let bands = ByModel::from_fn(|model| {
            BandScore::of(predictions.iter().map(|p| (p.bands[model], p.truth)))
        });
        let in_band = predictions
            .iter()
            .map(|p| (p.quantiles[0]..=p.quantiles[QUANTILES.len() - 1]).contains(&p.truth));
        HorizonScore {
            horizon_s,
            windows: predictions.len(),
            zero_windows: predictions.iter().filter(|p| p.truth == 0.0).count(),
            error_floor,
            median_error_pct: ByModel::from_fn(median),
            coverage90: coverage(in_band),
            bands,
            skill: skills(&errors, horizon_s),
            predictions: keep.then_some(predictions),
        }
    }
}

/// The first moment of prediction, seconds after the first record: the end of the training window, or a third
/// of the trace.
pub fn first_prediction_s(series: &Series) -> f64 {
    TRAINING_S.min((series.duration_s() / 3.0).floor()).max(1.0)
}

/// The congestion control that a flow seems to have until a moment, seconds.
pub fn cc_before(series: &Series, time_s: f64) -> Cc {
    (series.windows_between(series.start_s(), time_s)).map_or(Cc::Cubic, |past| guess_cc(&past))
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
        assert_eq!(
            evaluation.horizons[1].median_error_pct[Model::Pathcast],
            None
        );
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

    /// A sawtooth of 400 s that collapses after `change_s`; with all columns, or windows alone.
    fn sawtooth_until(change_s: f64, has_all: bool) -> Series {
        let whole = sawtooth(400);
        let time_s = whole.time_s();
        let cwnd: Vec<f64> = (time_s.iter().zip(whole.cwnd_packets()))
            .map(|(&at_s, cwnd)| if at_s > change_s { cwnd / 20.0 } else { *cwnd })
            .collect();
        let series = Series::new(time_s.to_vec(), cwnd.clone()).unwrap();
        if !has_all {
            return series;
        }
        let sent = cwnd.iter().scan(0.0, |sent, cwnd| {
            *sent += cwnd;
            Some(*sent)
        });
        let srtt = time_s
            .iter()
            .map(|&at_s| if at_s > change_s { 0.3 } else { 0.1 });
        let lost = cwnd.windows(2).scan(0.0, |lost, pair| {
            *lost += f64::from(u8::from(pair[1] < pair[0]));
            Some(*lost)
        });
        (series.with_snd_nxt(sent.collect()).unwrap())
            .with_srtt(srtt.collect())
            .unwrap()
            .with_retransmits(std::iter::once(0.0).chain(lost).collect())
            .unwrap()
    }

    /// The forecasts up to a moment, as text: what does not suit is NaN, which differs from itself.
    fn forecasts_until(
        end_s: f64,
        evaluation: &Evaluation,
        forecasts: impl Fn(&Prediction) -> Vec<f64>,
    ) -> Vec<String> {
        (evaluation.horizons.iter())
            .flat_map(|horizon| horizon.predictions.as_ref().unwrap())
            .filter(|prediction| prediction.time_s <= end_s)
            .map(|prediction| format!("{} {:?}", prediction.time_s, forecasts(prediction)))
            .collect()
    }

    #[test]
    fn another_future_changes_no_forecast_before_it() {
        const CHANGE_S: f64 = 320.0;
        let all = |prediction: &Prediction| {
            let points = MODELS.map(|model| prediction.forecast[model]);
            let bands = MODELS.map(|model| prediction.bands[model]).concat();
            [&points[..], &prediction.quantiles, &bands].concat()
        };
        let oracle = |prediction: &Prediction| vec![prediction.truth];
        let cases = [Protocol::Fair, Protocol::Paper]
            .into_iter()
            .flat_map(|protocol| [Cc::Reno, Cc::Cubic].map(|cc| (protocol, cc)))
            .flat_map(|(protocol, cc)| [false, true].map(|has_all| (protocol, cc, has_all)));
        for (protocol, cc, has_all) in cases {
            let options = EvaluateOptions {
                cc: Some(cc),
                protocol,
                keep_predictions: true,
                ..options(&[1.0, 10.0, 30.0])
            };
            let [one, other] = [f64::INFINITY, CHANGE_S]
                .map(|change_s| evaluate(&sawtooth_until(change_s, has_all), &options).unwrap());
            let [one_all, other_all] =
                [&one, &other].map(|evaluation| forecasts_until(CHANGE_S, evaluation, all));
            assert_eq!(one_all.len(), 3 * 221);
            assert_eq!(one_all, other_all, "{protocol:?} {cc:?} {has_all}");
            // a model that looks ahead would fail here: from a horizon before the change on, truths differ
            let [one, other] =
                [&one, &other].map(|evaluation| forecasts_until(CHANGE_S, evaluation, oracle));
            let differing = one.iter().zip(&other).filter(|(a, b)| a != b).count();
            assert_eq!(differing, 1 + 10 + 30, "{protocol:?} {cc:?} {has_all}");
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
        let stale = predictions[0].forecast[Model::LastSample];
        assert!(
            predictions[..10]
                .iter()
                .all(|p| p.forecast[Model::LastSample] == stale)
        );
        assert_ne!(predictions[10].forecast[Model::LastSample], stale);
    }

    #[test]
    fn keys_are_those_of_the_interface() {
        let evaluation = evaluate(&sawtooth(30), &options(&[1.0])).unwrap();
        let json = serde_json::to_value(&evaluation).unwrap();
        assert_eq!(json["protocol"], "fair");
        assert_eq!(json["truth"], "mean_cwnd_packets");
        let horizon = &json["horizons"][0];
        for model in MODELS {
            let error = &horizon["median_error_pct"][model.name()];
            assert_eq!(error.is_number(), model.suits(Cc::Reno), "{model:?}");
        }
        assert!(horizon["coverage90"].is_number());
        assert!(horizon.get("predictions").is_none());
    }

    /// What each model says of the next second, with a connection in parallel.
    fn said_beside(sibling: &Series) -> Vec<Prediction> {
        let options = EvaluateOptions {
            cc: Some(Cc::Reno),
            rtt_s: Some(0.1),
            keep_predictions: true,
            ..options(&[1.0])
        };
        let evaluation =
            evaluate_beside(&sawtooth(300), std::slice::from_ref(sibling), &options).unwrap();
        let (mut horizons, all) = (evaluation.horizons, |score: HorizonScore| score.predictions);
        all(horizons.remove(0)).unwrap()
    }

    #[test]
    fn econ_and_formulas_learn_from_connections_in_parallel() {
        // one loses each 2 s at 120 packets, the other as the flow itself
        let often = (0..=3000_u32).map(|i| f64::from(100 + i % 21)).collect();
        let often = Series::new((0..=3000).map(|i| f64::from(i) * 0.1).collect(), often).unwrap();
        let (same, often) = (said_beside(&sawtooth(300)), said_beside(&often));
        let differ = |model| {
            let pairs = same.iter().zip(&often);
            pairs
                .filter(|(a, b)| a.forecast[model] != b.forecast[model])
                .count()
        };
        for model in [Model::Econ, Model::Mathis, Model::Pftk] {
            // above its losses the other one says nothing to ECON
            assert!(differ(model) >= same.len() / 2, "{model:?}");
        }
        for model in [Model::Pathcast, Model::WindowMean, Model::WindowNow] {
            assert_eq!(differ(model), 0, "{model:?}");
        }
    }

    #[test]
    fn what_a_connection_in_parallel_will_do_changes_no_forecast_before() {
        let now_s = 200.0;
        let changed = (0..=3000_u32).map(|i| match f64::from(i) * 0.1 <= now_s {
            true => f64::from(100 + i % 101),
            false => f64::from(2 + i % 3),
        });
        let times = (0..=3000).map(|i| f64::from(i) * 0.1).collect();
        let changed = said_beside(&Series::new(times, changed.collect()).unwrap());
        let same = said_beside(&sawtooth(300));
        let (mut before, mut after) = (0, 0);
        for (one, other) in same.iter().zip(&changed) {
            let econ = |said: &Prediction| said.forecast[Model::Econ];
            if one.time_s <= now_s {
                assert_eq!(econ(one), econ(other), "{}", one.time_s);
                before += 1;
            } else if econ(one) != econ(other) {
                after += 1;
            }
        }
        assert!(before > 90 && after > 60, "{before} {after}");
    }
}
