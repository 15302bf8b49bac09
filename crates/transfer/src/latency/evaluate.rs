//! Latency forecasts of a running flow against what happened (paper, section 5.3).

use serde::Serialize;

use super::literature;
use super::{LatencyForecaster, LatencyPath, Loss, Transfer, Until};
use pathcast_analysis::counter::Counter;
use pathcast_analysis::fit::{FitOptions, fit};
use pathcast_analysis::loss_curve::LossCurve;
use pathcast_analysis::series::{Integral, Series};
use pathcast_forecast::baselines::{Ewma, HoltWinters, harmonic_mean, last_sample, window_mean};
use pathcast_forecast::evaluate::{EvaluateError, MAX_DURATION_S, cc_before, first_prediction_s};
use pathcast_forecast::score::{coverage, error_pct};
use pathcast_forecast::types::{QUANTILES, Quantity, SAMPLE_S, TRAINING_S};
use pathcast_window_law::Cc;

/// Models judged, in the order of all lists. `pathcast` pools the flow's state with what it lately did;
/// `state` is the recursion from its state alone; `econ` and `pftk` are the paper's and Padhye's rate,
/// the others are baselines.
pub const MODELS: [&str; 9] = [
    "pathcast",
    "state",
    "econ",
    "pftk",
    "last_sample",
    "ewma",
    "holt_winters",
    "harmonic_mean",
    "window_mean",
];
/// How many of them, from the front, have quantiles.
const WITH_QUANTILES: usize = 2;
/// Bounds of the ranges of sizes, bytes: the paper's figure 8.
pub const RANGES: [(u64, Option<u64>); 4] = [
    (0, Some(10_000_000)),
    (10_000_000, Some(50_000_001)),
    (50_000_001, None),
    (0, None),
];

/// What to evaluate.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyOptions {
    /// Congestion control; guessed from what precedes the first prediction if `None`.
    pub cc: Option<Cc>,
    /// Round-trip time, seconds; `None`: from srtt, or estimated during the flow.
    pub rtt_s: Option<f64>,
    /// Sizes, bytes, each > 0.
    pub sizes_bytes: Vec<u64>,
    /// Payload of a full packet, bytes.
    pub mss_bytes: u32,
    /// Seconds between moments of prediction, > 0.
    pub every_s: u32,
    /// Keep each prediction.
    pub keep_predictions: bool,
}

impl Default for LatencyOptions {
    fn default() -> Self {
        Self {
            cc: None,
            rtt_s: None,
            sizes_bytes: [1, 2, 5, 10, 20, 50, 100]
                .map(|size| size * 1_000_000)
                .to_vec(),
            mss_bytes: 1448,
            every_s: 10,
            keep_predictions: false,
        }
    }
}

/// One model at one size, or over a range of sizes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LatencyScore {
    /// Which model.
    pub model: &'static str,
    /// Smallest size, bytes.
    pub size_bytes: u64,
    /// The size that is too large; `None` where there is no bound. One more than `size_bytes` for a
    /// single size.
    pub below_bytes: Option<u64>,
    /// Transfers judged.
    pub transfers: usize,
    /// Median of |forecast / truth - 1|, per cent; `None` without transfers.
    pub median_error_pct: Option<f64>,
    /// Its lower quartile.
    pub p25_error_pct: Option<f64>,
    /// Its upper quartile.
    pub p75_error_pct: Option<f64>,
    /// Part of the truths within the 5-95 % band; `None` for models without one or that say nothing of the flow.
    pub coverage90: Option<f64>,
}

/// One transfer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LatencyPrediction {
    /// Moment of prediction, seconds, in the trace's time.
    pub time_s: f64,
    /// Size, bytes.
    pub size_bytes: u64,
    /// How long it took, seconds.
    pub truth_s: f64,
    /// What each of [`MODELS`] said, seconds.
    pub forecast_s: [f64; MODELS.len()],
    /// The quantiles of those that have any.
    pub quantiles_s: [[f64; QUANTILES.len()]; WITH_QUANTILES],
}

/// An evaluation of one flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LatencyEvaluation {
    /// How sizes were measured: growth of `snd_nxt`, or the window's integral over the round-trip time.
    pub truth: Quantity,
    /// Congestion control, given or guessed.
    pub cc: Cc,
    /// Round-trip time at the end, seconds.
    pub rtt_s: f64,
    /// By size, then by model.
    pub sizes: Vec<LatencyScore>,
    /// By range of sizes ([`RANGES`], the last of which is all), then by model.
    pub ranges: Vec<LatencyScore>,
    /// Each transfer, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predictions: Option<Vec<LatencyPrediction>>,
}

/// Forecasts at many moments how long the flow takes for its next bytes, and compares.
///
/// Moments of prediction are `every_s` apart, from 100 s on (from a third of the trace on if that is
/// earlier). A transfer of `size` bytes that starts there is over when `snd_nxt` has grown by it, or,
/// without sequence numbers, when the window's integral over the round-trip time has; transfers that
/// the trace ends before are left out. All models see the past only: samples of 1 s, the loss curve of
/// the last 100 s, the window at the moment of prediction.
///
/// # Errors
/// [`EvaluateError`] if the trace is too short or too long, or an option is not a positive number.
pub fn evaluate_latency(
    series: &Series,
    options: &LatencyOptions,
) -> Result<LatencyEvaluation, EvaluateError> {
    let (duration_s, start_s) = (series.duration_s(), series.start_s());
    if duration_s > MAX_DURATION_S {
        return Err(EvaluateError::TooLong { duration_s });
    }
    let first_s = first_prediction_s(series);
    if first_s >= duration_s {
        return Err(EvaluateError::TooShort {
            duration_s,
            horizon_s: first_s,
        });
    }
    if options.sizes_bytes.is_empty() {
        return Err(EvaluateError::NoHorizon);
    }
    let cc = options
        .cc
        .unwrap_or_else(|| cc_before(series, start_s + first_s));
    // without sequence numbers the round-trip time is the unit of sizes, the same for all models
    let unit_rtt_s = match (options.rtt_s, series.snd_nxt_packets()) {
        (Some(rtt_s), _) => rtt_s,
        (None, None) => {
            fit(
                series,
                &FitOptions {
                    cc: Some(cc),
                    ..FitOptions::default()
                },
            )
            .rtt_s
        }
        (None, Some(_)) => 1.0,
    };
    let sent = Sent::new(series, unit_rtt_s);
    let mut models = Models {
        series,
        options,
        cc,
        learned: LatencyForecaster::new(cc, options.rtt_s)?.of_quantity(sent.quantity()),
        samples: Vec::new(),
        ewma: Ewma::default(),
        holt_winters: HoltWinters::default(),
        next: 0,
    };
    let mut predictions = Vec::new();
    let every = options.every_s.max(1);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive, at most 30 days
    let (seconds, first) = (duration_s as u32, first_s as u32);
    for second in 1..=seconds {
        let now_s = start_s + f64::from(second);
        models.advance(&sent, now_s)?;
        if second >= first && (second - first).is_multiple_of(every) {
            models.predict(&sent, now_s, &mut predictions)?;
        }
    }
    let mut sizes = options.sizes_bytes.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let single: Vec<_> = sizes.iter().map(|&size| (size, Some(size + 1))).collect();
    Ok(LatencyEvaluation {
        truth: sent.quantity(),
        cc,
        rtt_s: models.learned.rtt_s(),
        sizes: scores(&predictions, &single),
        ranges: scores(&predictions, &RANGES),
        predictions: options.keep_predictions.then_some(predictions),
    })
}

/// All models, as far as the trace has been read.
struct Models<'a> {
    series: &'a Series,
    options: &'a LatencyOptions,
    cc: Cc,
    learned: LatencyForecaster,
    samples: Vec<f64>,
    ewma: Ewma,
    holt_winters: HoltWinters,
    /// The next record.
    next: usize,
}

impl Models<'_> {
    /// Advances by a second.
    fn advance(&mut self, sent: &Sent<'_>, now_s: f64) -> Result<(), EvaluateError> {
        while self.next < self.series.len() && self.series.time_s()[self.next] <= now_s {
            self.learned.observe_record(self.series, self.next)?;
            self.next += 1;
        }
        self.learned.advance(now_s);
        let sample = sent.rate(now_s - SAMPLE_S, now_s) * SAMPLE_S;
        if !sample.is_nan() {
            self.samples.push(sample);
            self.ewma.push(sample);
            self.holt_winters.push(sample);
        }
        Ok(())
    }

    /// What the baselines take the rate to be, packets/s, in the order of [`MODELS`].
    fn rates(&self) -> [f64; 5] {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 100
        let window = &self.samples[self.samples.len().saturating_sub(TRAINING_S as usize)..];
        [
            last_sample(window),
            self.ewma.forecast(),
            self.holt_winters.forecast(),
            harmonic_mean(window),
            window_mean(window),
        ]
        .map(|value| value.unwrap_or(f64::NAN))
    }

    /// Adds what the models say of each size.
    fn predict(
        &self,
        sent: &Sent<'_>,
        now_s: f64,
        predictions: &mut Vec<LatencyPrediction>,
    ) -> Result<(), EvaluateError> {
        let (learned, cc, mss_bytes) = (&self.learned, self.cc, self.options.mss_bytes);
        let rtt_s = learned.rtt_s();
        let unit = sent.unit(rtt_s);
        let curve = (self.series.windows_between(now_s - TRAINING_S, now_s)).map(|past| {
            let options = FitOptions {
                cc: Some(cc),
                rtt_s: Some(rtt_s),
                ..FitOptions::default()
            };
            fit(&past, &options).curve
        });
        let cwnd = self.series.cwnd_packets()[self.next - 1];
        let rates = self.rates();
        for &size_bytes in &self.options.sizes_bytes {
            let packets = size_bytes as f64 / f64::from(mss_bytes);
            let Some(truth_s) = sent.time_for(now_s, packets) else {
                continue;
            };
            // the same bytes in the models' own packets: one round trip of theirs is one of the unit's
            let own = packets * unit;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive
            let transfer = Transfer {
                bytes: ((own * f64::from(mss_bytes)).round() as u64).max(1),
                mss_bytes,
                connections: 1,
                until: Until::Sent,
            };
            let refused = |_| EvaluateError::NoHorizon;
            let pooled = learned.next_bytes(now_s, &transfer).map_err(refused)?;
            let (mut state_s, mut state_quantiles_s) = (f64::NAN, [f64::NAN; QUANTILES.len()]);
            if cc.has_law() {
                let state = learned.from_state(now_s, &transfer).map_err(refused)?;
                (state_s, state_quantiles_s) = (state.point_s(), state.quantiles_s);
            }
            let (econ_s, pftk_s) = by_curve(curve.as_ref(), cc, rtt_s, cwnd, own);
            let mut forecast_s = [0.0; MODELS.len()];
            forecast_s[..4].copy_from_slice(&[pooled.point_s(), state_s, econ_s, pftk_s]);
            for (forecast, rate) in forecast_s[4..].iter_mut().zip(rates) {
                *forecast = packets / rate;
            }
            predictions.push(LatencyPrediction {
                time_s: now_s,
                size_bytes,
                truth_s,
                forecast_s,
                quantiles_s: [pooled.quantiles_s, state_quantiles_s],
            });
        }
        Ok(())
    }
}

/// Scores of all models over ranges of sizes.
pub fn scores(
    predictions: &[LatencyPrediction],
    ranges: &[(u64, Option<u64>)],
) -> Vec<LatencyScore> {
    let mut scores = Vec::with_capacity(ranges.len() * MODELS.len());
    for &(from, below) in ranges {
        let inside: Vec<&LatencyPrediction> = (predictions.iter())
            .filter(|p| p.size_bytes >= from && below.is_none_or(|below| p.size_bytes < below))
            .collect();
        for (m, model) in MODELS.into_iter().enumerate() {
            let mut errors: Vec<f64> = (inside.iter())
                .map(|p| error_pct(p.forecast_s[m], p.truth_s, 0.0))
                .filter(|error| !error.is_nan())
                .collect();
            errors.sort_by(f64::total_cmp);
            let at = |part: f64| {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // an index
                let index = (part * errors.len() as f64) as usize;
                (errors.get(index).copied()).filter(|error| error.is_finite())
            };
            let covered = |p: &&LatencyPrediction| {
                let band = p.quantiles_s[m];
                (band[0]..=band[QUANTILES.len() - 1]).contains(&p.truth_s)
            };
            scores.push(LatencyScore {
                model,
                size_bytes: from,
                below_bytes: below,
                transfers: inside.len(),
                median_error_pct: at(0.5),
                p25_error_pct: at(0.25),
                p75_error_pct: at(0.75),
                coverage90: (m < WITH_QUANTILES && !errors.is_empty())
                    .then(|| coverage(inside.iter().map(covered)))
                    .flatten(),
            });
        }
    }
    scores
}

/// ECON's and PFTK's times for `packets` packets, seconds; NaN without a curve or a window law.
fn by_curve(curve: Option<&LossCurve>, cc: Cc, rtt_s: f64, cwnd: f64, packets: f64) -> (f64, f64) {
    let Some(curve) = curve.filter(|_| cc.has_law()) else {
        return (f64::NAN, f64::NAN);
    };
    let path = LatencyPath {
        rtt_s,
        loss: Loss::Curve(curve),
        ..LatencyPath::unlimited(cc)
    };
    (
        literature::econ_mid_flow(&path, cwnd, packets),
        literature::pftk(&path, packets),
    )
}

/// Packets sent by a moment.
struct Sent<'a> {
    time_s: &'a [f64],
    snd_nxt: Option<Vec<f64>>,
    counter: Option<Counter<'a>>,
    cwnd: Integral,
    rtt_s: f64,
}

/// A transfer is not judged where the sequence number is not known within this part of its time at its beginning
/// or end.
const HOLE_PART: f64 = 0.25;

impl<'a> Sent<'a> {
    fn new(series: &'a Series, rtt_s: f64) -> Self {
        Self {
            time_s: series.time_s(),
            snd_nxt: series.snd_nxt_filled(),
            counter: Counter::of(series),
            cwnd: Integral::new(series.time_s(), series.cwnd_packets()),
            rtt_s,
        }
    }

    /// Packets a second; NaN where the trace does not know.
    fn rate(&self, from_s: f64, to_s: f64) -> f64 {
        match &self.counter {
            Some(counter) => counter.rate(from_s, to_s),
            None => (self.by(to_s) - self.by(from_s)) / (to_s - from_s),
        }
    }

    /// How long before a moment the newest sequence number is known, seconds.
    fn age_s(&self, now_s: f64) -> f64 {
        match &self.counter {
            Some(counter) => (counter.at(now_s)).map_or(f64::INFINITY, |known| now_s - known.0),
            None => 0.0,
        }
    }

    fn quantity(&self) -> Quantity {
        match self.snd_nxt {
            Some(_) => Quantity::PacketsPerS,
            None => Quantity::MeanCwndPackets,
        }
    }

    /// What a packet is to a model that believes in another round-trip time.
    fn unit(&self, rtt_s: f64) -> f64 {
        match self.snd_nxt {
            Some(_) => 1.0,
            None => self.rtt_s / rtt_s,
        }
    }

    fn by(&self, now_s: f64) -> f64 {
        match &self.snd_nxt {
            Some(sent) => sent[self.time_s.partition_point(|&t| t <= now_s).max(1) - 1],
            None => self.cwnd.upto(now_s) / self.rtt_s,
        }
    }

    /// How long after `now_s` it takes to send `packets` more packets; `None` if the trace ends before.
    fn time_for(&self, now_s: f64, packets: f64) -> Option<f64> {
        let wanted = self.by(now_s) + packets;
        let after = match &self.snd_nxt {
            Some(sent) => sent.partition_point(|&sent| sent < wanted),
            None => {
                let (mut low, mut high) = (0, self.time_s.len());
                while low < high {
                    let middle = low.midpoint(high);
                    if self.by(self.time_s[middle]) < wanted {
                        low = middle + 1;
                    } else {
                        high = middle;
                    }
                }
                low
            }
        };
        let &end_s = self.time_s.get(after)?;
        // between two records at an even pace
        let from_s = self.time_s[after.max(1) - 1].max(now_s);
        let (from, to) = (self.by(from_s), self.by(end_s));
        let part = if to > from {
            (wanted - from) / (to - from)
        } else {
            1.0
        };
        let took_s = (from_s + part.clamp(0.0, 1.0) * (end_s - from_s) - now_s).max(1e-6);
        let known = self.age_s(now_s) <= HOLE_PART * took_s
            && self.age_s(now_s + took_s) <= HOLE_PART * took_s;
        known.then_some(took_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reno between 100 and 200 packets, one more each 0.1 s.
    fn sawtooth(seconds: u32) -> Series {
        let records = 0..=seconds * 10;
        let time_s = records.clone().map(|i| f64::from(i) * 0.1).collect();
        Series::new(time_s, records.map(|i| f64::from(100 + i % 101)).collect()).unwrap()
    }

    fn options() -> LatencyOptions {
        LatencyOptions {
            cc: Some(Cc::Reno),
            rtt_s: Some(0.1),
            sizes_bytes: vec![1_448_000, 14_480_000],
            keep_predictions: true,
            ..LatencyOptions::default()
        }
    }

    #[test]
    fn a_regular_flow_is_forecast_well() {
        let evaluation = evaluate_latency(&sawtooth(400), &options()).unwrap();
        let pathcast = &evaluation.sizes[0];
        assert_eq!(
            (pathcast.model, pathcast.size_bytes),
            ("pathcast", 1_448_000)
        );
        assert!(pathcast.transfers >= 29, "{pathcast:?}");
        assert!(pathcast.median_error_pct.unwrap() < 3.0, "{pathcast:?}");
        // truth by hand: from 170 packets at 120 s on, 170 + 171 + ... in round trips of 0.1 s
        let predictions = evaluation.predictions.unwrap();
        let prediction = predictions.iter().find(|p| p.time_s == 120.0).unwrap();
        let from = f64::from(100 + 1200 % 101);
        let rounds = ((from * from + 2.0 * 1000.0).sqrt() - from).round();
        assert!(
            (prediction.truth_s / (0.1 * rounds) - 1.0).abs() < 0.05,
            "{prediction:?}"
        );
    }

    #[test]
    fn another_future_changes_no_forecast_before_it() {
        const CHANGE_S: f64 = 320.0;
        let one = sawtooth(400);
        let slower = one.time_s().iter().zip(one.cwnd_packets());
        let slower = slower.map(|(&at_s, cwnd)| if at_s > CHANGE_S { cwnd / 2.0 } else { *cwnd });
        let other = Series::new(one.time_s().to_vec(), slower.collect()).unwrap();
        let [one, other] = [one, other].map(|series| {
            let predictions = evaluate_latency(&series, &options()).unwrap().predictions;
            let before = |p: &LatencyPrediction| p.time_s <= CHANGE_S;
            predictions
                .unwrap()
                .into_iter()
                .filter(before)
                .collect::<Vec<_>>()
        });
        // large transfers that begin late no longer end in the slower trace
        let pairs: Vec<_> = (one.iter())
            .filter_map(|p| {
                let same =
                    |q: &&LatencyPrediction| (q.time_s, q.size_bytes) == (p.time_s, p.size_bytes);
                Some((p, other.iter().find(same)?))
            })
            .collect();
        assert!(pairs.len() > 30);
        // as text: what does not suit is NaN, which differs from itself
        let said = |p: &LatencyPrediction| format!("{:?} {:?}", p.forecast_s, p.quantiles_s);
        for (p, q) in &pairs {
            assert_eq!(said(p), said(q), "{} B at {} s", p.size_bytes, p.time_s);
        }
        // a model that looks ahead would fail here: transfers in progress at the change take longer
        let oracles = pairs.iter().filter(|(p, q)| q.truth_s > 1.1 * p.truth_s);
        assert!(oracles.count() >= 1);
    }

    #[test]
    fn a_range_holds_its_sizes() {
        let evaluation = evaluate_latency(&sawtooth(400), &options()).unwrap();
        assert_eq!(evaluation.ranges.len(), RANGES.len() * MODELS.len());
        let transfers = |index: usize| evaluation.ranges[index * MODELS.len()].transfers;
        assert_eq!(transfers(0) + transfers(1), transfers(3));
        assert_eq!(transfers(2), 0);
        assert_eq!(evaluation.ranges[2 * MODELS.len()].median_error_pct, None);
    }

    #[test]
    fn a_trace_too_short_is_refused() {
        let short = sawtooth(1);
        assert!(matches!(
            evaluate_latency(&short, &options()),
            Err(EvaluateError::TooShort { .. })
        ));
    }
}
