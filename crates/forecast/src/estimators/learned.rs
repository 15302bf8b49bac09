//! What models know at a moment of a trace, and the walk along it.

use super::{EstimatorOptions, State};
use crate::baselines::{
    Ewma, EwmaTuned, HoltWinters, RobustMpc, TwoSpeeds, harmonic_mean, last_sample, window_mean,
};
use crate::econ;
use crate::forecast::{Ablation, Forecast, Forecaster, ForecasterOptions, Observation};
use crate::formulas::{
    PathNumbers, cardwell, chen, dunaytsev, mathis, pftk, pftk_without_timeouts, rfc9438, tfrc,
};
use crate::types::{ForecastError, Model, Protocol, Quantity, SAMPLE_S, TRAINING_S};
use pathcast_analysis::counter::Counter;
use pathcast_analysis::epochs::Phase;
use pathcast_analysis::fit::{FitOptions, fit};
use pathcast_analysis::loss_curve::{LossCurve, LossCurveBuilder};
use pathcast_analysis::rtt::guess_cc;
use pathcast_analysis::series::{Integral, Series};
use pathcast_window_law::Cc;

#[path = "training.rs"]
mod training;

/// Seconds between refits of what is learned on the training window (paper, section 5.1); before the
/// window is full, each second.
const REFIT_S: u32 = 10;

/// What models are without of Pathcast's forecast.
const ABLATED: [(Model, Ablation); 5] = [
    (Model::FlatCurve, Ablation::Curve),
    (Model::NoState, Ablation::Law),
    (Model::NoAnalogs, Ablation::Analogs),
    (Model::NoWindow, Ablation::Window),
    (Model::HistoryPool, Ablation::WindowAndAnalogs),
];

/// Pathcast's forecaster, whole or without a part.
#[derive(Debug, Clone)]
struct Own {
    model: Model,
    ablation: Ablation,
    forecaster: Forecaster,
    /// With a training window that is asked for: of that window alone, once there was more.
    recent: Option<Forecaster>,
}

/// Everything that the models forecast from; the walk keeps it up to date.
#[derive(Debug, Clone)]
pub(crate) struct Learned {
    cc: Cc,
    protocol: Protocol,
    /// Pathcast's first; then what is asked for of the ablated ones.
    own: Vec<Own>,
    /// Rate of the last round trip, packets per second, if it is known.
    rate_now: Option<f64>,
    /// The newest round-trip time, seconds.
    srtt_s: Option<f64>,
    samples: Vec<f64>,
    ewma: Ewma,
    ewma_tuned: EwmaTuned,
    holt_winters: HoltWinters,
    robust_mpc: RobustMpc,
    dash_js: TwoSpeeds,
    hls_js: TwoSpeeds,
    /// The training window, in samples.
    training_samples: usize,
    /// Of the training window.
    curve: Option<LossCurve>,
    /// Loss events by packets sent, in the training window.
    loss: f64,
}

impl Learned {
    /// Unit of what is forecast.
    pub(crate) fn quantity(&self) -> Quantity {
        self.forecaster().quantity()
    }

    /// Congestion control, given or guessed.
    pub(crate) fn cc(&self) -> Cc {
        self.cc
    }

    /// Round-trip time, seconds.
    pub(crate) fn rtt_s(&self) -> f64 {
        self.forecaster().rtt_s()
    }

    /// Loss events that Pathcast's forecast of now rests on.
    pub(crate) fn losses(&self) -> u32 {
        self.own[0].newest().losses()
    }

    fn forecaster(&self) -> &Forecaster {
        &self.own[0].forecaster
    }

    /// Pathcast's forecast, whole.
    pub(crate) fn pathcast(
        &self,
        state: &State,
        horizon_s: f64,
    ) -> Result<Forecast, ForecastError> {
        self.own[0].forecast(state, horizon_s)
    }

    /// The forecast of a model that is Pathcast's or what is left of it without a part; `None` for others.
    pub(crate) fn own(&self, model: Model, state: &State, horizon_s: f64) -> Option<Forecast> {
        let own = self.own.iter().find(|own| own.model == model)?;
        own.forecast(state, horizon_s).ok()
    }

    /// What a model expects of the `horizon_s` seconds from a state on, in the unit of
    /// [`Learned::quantity`]. NaN if it does not suit the congestion control or has seen too little.
    pub(crate) fn forecast(&self, model: Model, state: &State, horizon_s: f64) -> f64 {
        if !model.suits(self.cc) {
            return f64::NAN;
        }
        let or_nan = |value: Option<f64>| value.unwrap_or(f64::NAN);
        match model {
            Model::Pathcast
            | Model::FlatCurve
            | Model::NoState
            | Model::NoAnalogs
            | Model::NoWindow
            | Model::HistoryPool => or_nan(self.own(model, state, horizon_s).map(|own| own.point)),
            Model::Econ => self.econ(state),
            Model::WindowNow => self.window_now(state),
            Model::RateNow => self.rate_now(state),
            Model::LastSample => or_nan(last_sample(self.training())),
            Model::Ewma => or_nan(self.ewma.forecast()),
            Model::EwmaTuned => or_nan(self.ewma_tuned.forecast(horizon_s)),
            Model::HoltWinters => or_nan(self.holt_winters.forecast()),
            Model::HoltWintersExtrapolated => {
                let steps = (horizon_s / self.protocol.sample_s()).max(1.0);
                or_nan(self.holt_winters.extrapolate(steps))
            }
            Model::HarmonicMean => or_nan(harmonic_mean(self.training())),
            Model::WindowMean => or_nan(window_mean(self.training())),
            Model::RobustMpc => or_nan(self.robust_mpc.forecast()),
            Model::DashJs => or_nan(self.dash_js.forecast()),
            Model::HlsJs => or_nan(self.hls_js.forecast()),
            Model::Mathis => self.formula(mathis),
            Model::PftkWithoutTimeouts => self.formula(pftk_without_timeouts),
            Model::Pftk => self.formula(pftk),
            Model::Chen => self.formula(chen),
            Model::Dunaytsev => self.formula(dunaytsev),
            Model::Cardwell => self.cardwell(state, horizon_s),
            Model::Tfrc => self.formula(tfrc),
            Model::Rfc9438 => self.formula(rfc9438),
        }
    }

    fn take_sample(&mut self, sample: f64, length_s: f64) {
        if sample.is_nan() {
            return; // the trace does not know it
        }
        self.samples.push(sample);
        self.ewma.push(sample);
        self.ewma_tuned.push(sample);
        self.holt_winters.push(sample);
        self.robust_mpc.push(sample);
        self.dash_js.push(sample, length_s);
        self.hls_js.push(sample, length_s);
    }

    fn training(&self) -> &[f64] {
        &self.samples[self.samples.len().saturating_sub(self.training_samples)..]
    }

    /// Packets per second, in the unit of what is forecast.
    fn in_unit(&self, packets_per_s: f64) -> f64 {
        match self.quantity() {
            Quantity::PacketsPerS => packets_per_s,
            Quantity::MeanCwndPackets => packets_per_s * self.rtt_s(),
        }
    }

    fn window_now(&self, state: &State) -> f64 {
        let cwnd_packets = state.flow.cwnd_packets;
        match self.quantity() {
            Quantity::PacketsPerS => cwnd_packets / self.srtt_s.unwrap_or(self.rtt_s()),
            Quantity::MeanCwndPackets => cwnd_packets,
        }
    }

    fn rate_now(&self, state: &State) -> f64 {
        match self.quantity() {
            Quantity::PacketsPerS => {
                let newest = || last_sample(&self.samples);
                self.rate_now.or_else(newest).unwrap_or(f64::NAN)
            }
            Quantity::MeanCwndPackets => self.window_now(state),
        }
    }

    fn econ(&self, state: &State) -> f64 {
        let (flow, rtt_s) = (state.flow, self.rtt_s());
        let Some(curve) = &self.curve else {
            // without a curve what the window is worth
            return self.in_unit(flow.cwnd_packets / rtt_s);
        };
        let loss = |w: f64| curve.loss_probability(w);
        let econ = if flow.phase == Phase::SlowStart {
            econ::slow_start(flow.cwnd_packets, flow.ssthresh_packets, rtt_s, loss)
        } else {
            econ::congestion_avoidance(self.cc, flow.cwnd_packets, rtt_s, loss)
        };
        self.in_unit(econ.rate_packets_per_s)
    }

    /// Round-trip time and loss of the training window. Linux counts acknowledged bytes, so that its window
    /// grows as if every packet were acknowledged.
    fn path_numbers(&self) -> PathNumbers {
        PathNumbers {
            packets_per_ack: 1.0,
            ..PathNumbers::new(self.rtt_s(), self.loss)
        }
    }

    fn formula(&self, rate: fn(&PathNumbers) -> f64) -> f64 {
        self.in_unit(rate(&self.path_numbers()))
    }

    /// In slow start the packets that a transfer could have by the end of the horizon, else PFTK.
    fn cardwell(&self, state: &State, horizon_s: f64) -> f64 {
        let path = self.path_numbers();
        if state.flow.phase != Phase::SlowStart {
            return self.in_unit(pftk(&path));
        }
        let takes_s = |packets: f64| cardwell(&path, packets, state.flow.cwnd_packets, 2.0);
        let (mut low, mut high) = (0.0, 1e12);
        for _ in 0..100 {
            let middle = 0.5 * (low + high);
            if takes_s(middle) > horizon_s {
                high = middle;
            } else {
                low = middle;
            }
        }
        self.in_unit(low / horizon_s)
    }
}

impl Own {
    fn newest(&self) -> &Forecaster {
        self.recent.as_ref().unwrap_or(&self.forecaster)
    }

    fn forecast(&self, state: &State, horizon_s: f64) -> Result<Forecast, ForecastError> {
        (self.newest()).forecast_from(&state.flow, state.time_s, horizon_s)
    }

    /// Takes a record of the series.
    fn take(&mut self, series: &Series, index: usize) -> Result<(), ForecastError> {
        self.forecaster.observe_record(series, index)?;
        if let Some(recent) = &mut self.recent {
            recent.observe_record(series, index)?;
        }
        Ok(())
    }
}

/// A walk along a trace, second by second: what is known at each.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    series: &'a Series,
    /// Connections in parallel with this one, over the same path.
    siblings: Vec<Sibling<'a>>,
    truth: Truth<'a>,
    learned: Learned,
    /// The training window if it is not the protocol's, seconds.
    window_s: Option<f64>,
    rtt_s: Option<f64>,
    horizons_s: Vec<f64>,
    /// Records already taken.
    taken: usize,
    second: u32,
}

impl<'a> Walk<'a> {
    /// Learns what `models` need; Pathcast's whole forecaster always.
    pub(crate) fn new(
        series: &'a Series,
        options: &EstimatorOptions,
        models: &[Model],
    ) -> Result<Self, ForecastError> {
        training::check(options.window_s)?;
        let cc = options.cc.unwrap_or_else(|| guess_cc(series));
        let forecaster = Forecaster::new(&ForecasterOptions {
            cc,
            rtt_s: options.rtt_s,
            horizons_s: options.horizons_s.clone(),
        })?;
        let truth = Truth::new(series);
        let forecaster = forecaster.of_quantity(truth.quantity());
        let ablated =
            (ABLATED.into_iter()).filter(|(model, _)| models.contains(model) && model.suits(cc));
        let own = std::iter::once((Model::Pathcast, Ablation::None)).chain(ablated);
        let own = own.map(|(model, ablation)| Own {
            model,
            ablation,
            forecaster: forecaster.clone().without(ablation),
            recent: None,
        });
        Ok(Self {
            series,
            siblings: Vec::new(),
            truth,
            learned: Learned {
                cc,
                protocol: options.protocol,
                own: own.collect(),
                rate_now: None,
                srtt_s: None,
                samples: Vec::new(),
                ewma: Ewma::default(),
                ewma_tuned: EwmaTuned::new(&options.horizons_s, options.protocol.sample_s()),
                holt_winters: HoltWinters::default(),
                robust_mpc: RobustMpc::default(),
                dash_js: TwoSpeeds::dash_js(),
                hls_js: TwoSpeeds::hls_js(),
                training_samples: match options.window_s {
                    None => (TRAINING_S / options.protocol.sample_s()) as usize,
                    // they are sampled anew from the window
                    Some(_) => usize::MAX,
                },
                curve: None,
                loss: 0.0,
            },
            window_s: options.window_s,
            rtt_s: options.rtt_s,
            horizons_s: options.horizons_s.clone(),
            taken: 0,
            second: 0,
        })
    }

    /// Lets ECON and the formulas learn from connections in parallel with this one too: p(cwnd, npc) is of all of
    /// them (paper, section 3.2).
    pub(crate) fn beside(mut self, siblings: &'a [Series]) -> Self {
        self.siblings = siblings.iter().map(Sibling::new).collect();
        self
    }

    /// Advances to the next whole second after the first record; false at the end of the trace.
    pub(crate) fn next_second(&mut self) -> Result<bool, ForecastError> {
        let now_s = self.series.start_s() + f64::from(self.second + 1) * SAMPLE_S;
        if now_s > self.series.end_s() {
            return Ok(false);
        }
        self.second += 1;
        self.take_until(now_s)?;
        for own in &mut self.learned.own {
            own.forecaster.advance(now_s);
        }
        self.learned.rate_now = self.learned.forecaster().rate_now(now_s);
        if let Some(window_s) = self.window_s {
            self.learn_window(now_s, window_s)?;
        } else {
            let length_s = self.learned.protocol.sample_s();
            if self.past_s() % length_s == 0.0 {
                let sample = self.truth.mean(now_s - length_s, now_s);
                self.learned.take_sample(sample, length_s);
            }
        }
        if self.learned.curve.is_none()
            || self.past_s() <= self.training_s()
            || self.second.is_multiple_of(REFIT_S)
        {
            self.refit(now_s);
        }
        Ok(true)
    }

    /// Takes the records behind the last whole second too.
    pub(crate) fn finish(&mut self) -> Result<(), ForecastError> {
        self.take_until(self.series.end_s())
    }

    fn take_until(&mut self, now_s: f64) -> Result<(), ForecastError> {
        while self.taken < self.series.len() && self.series.time_s()[self.taken] <= now_s {
            for own in &mut self.learned.own {
                own.take(self.series, self.taken)?;
            }
            let srtt_s = Observation::of(self.series, self.taken).srtt_s;
            self.learned.srtt_s = srtt_s.or(self.learned.srtt_s);
            self.taken += 1;
        }
        Ok(())
    }

    fn refit(&mut self, now_s: f64) {
        let rtt_s = self.learned.rtt_s();
        let from_s = (now_s - self.training_s()).max(self.series.start_s());
        let Some(past) = self.series.windows_between(from_s, now_s) else {
            return;
        };
        let options = FitOptions {
            cc: Some(self.learned.cc),
            rtt_s: Some(rtt_s),
            ..FitOptions::default()
        };
        let own = fit(&past, &options);
        let packets = self.truth.packets(from_s, now_s, rtt_s);
        let (mut losses, mut packets, mut curve) = (own.losses.len(), packets, own.curve.clone());
        if !self.siblings.is_empty() {
            let npc = u32::try_from(self.siblings.len() + 1).unwrap_or(u32::MAX);
            let mut all = LossCurveBuilder::new(npc, own.curve.counting);
            all.add(&past, &own.detection(), rtt_s);
            for sibling in &self.siblings {
                let Some(past) = sibling.series.windows_between(from_s, now_s) else {
                    continue;
                };
                // one whose trace does not have its round-trip time has about this one's
                let options = FitOptions {
                    rtt_s: Some(sibling.rtt_s(now_s).unwrap_or(rtt_s)),
                    ..options
                };
                let fit = fit(&past, &options);
                losses += fit.losses.len();
                packets += sibling
                    .truth
                    .packets(past.start_s(), past.end_s(), fit.rtt_s);
                all.add(&past, &fit.detection(), fit.rtt_s);
            }
            curve = all.build();
        }
        // without a loss, the rate at which no loss in this many packets has even odds, as in the curve
        let losses = (losses as f64).max(std::f64::consts::LN_2);
        self.learned.loss = (losses / packets.max(1.0)).min(1.0);
        self.learned.curve = Some(curve);
    }

    fn training_s(&self) -> f64 {
        self.window_s.unwrap_or(TRAINING_S)
    }

    /// Seconds since the first record.
    pub(crate) fn past_s(&self) -> f64 {
        f64::from(self.second) * SAMPLE_S
    }

    /// The moment that the walk is at, seconds, in the trace's time.
    pub(crate) fn now_s(&self) -> f64 {
        self.series.start_s() + self.past_s()
    }

    /// Where the flow is now.
    pub(crate) fn state(&self) -> State {
        let time_s = self.series.time_s()[self.taken.max(1) - 1].max(self.now_s());
        State {
            time_s,
            flow: self.learned.forecaster().state(time_s),
        }
    }

    /// What is known now.
    pub(crate) fn learned(&self) -> &Learned {
        &self.learned
    }

    /// What is known now, to keep.
    pub(crate) fn into_learned(self) -> Learned {
        self.learned
    }

    /// What happened: the time-weighted mean window, packets, or packets per second.
    pub(crate) fn truth(&self, from_s: f64, to_s: f64) -> f64 {
        self.truth.mean(from_s, to_s)
    }
}

/// A connection in parallel with the one that is forecast.
#[derive(Debug)]
struct Sibling<'a> {
    series: &'a Series,
    truth: Truth<'a>,
}

impl<'a> Sibling<'a> {
    fn new(series: &'a Series) -> Self {
        Self {
            series,
            truth: Truth::new(series),
        }
    }

    /// Its newest round-trip time that is known by then, seconds.
    fn rtt_s(&self, now_s: f64) -> Option<f64> {
        let upto = self.series.time_s().partition_point(|&t| t <= now_s);
        (0..upto).rev().find_map(|index| self.series.srtt_at(index))
    }
}

/// What happened: mean window, or packets per second where the trace has sequence numbers.
#[derive(Debug)]
struct Truth<'a> {
    cwnd: Integral,
    snd_nxt: Option<Counter<'a>>,
}

impl<'a> Truth<'a> {
    fn new(series: &'a Series) -> Self {
        Self {
            cwnd: Integral::new(series.time_s(), series.cwnd_packets()),
            snd_nxt: Counter::of(series),
        }
    }

    fn quantity(&self) -> Quantity {
        match self.snd_nxt {
            Some(_) => Quantity::PacketsPerS,
            None => Quantity::MeanCwndPackets,
        }
    }

    /// Packets sent, about: where the trace does not know, a window each round trip.
    fn packets(&self, from_s: f64, to_s: f64, rtt_s: f64) -> f64 {
        let known = self
            .snd_nxt
            .as_ref()
            .map(|counter| counter.rate(from_s, to_s));
        let rate = known.filter(|rate| !rate.is_nan());
        rate.unwrap_or_else(|| self.cwnd.mean(from_s, to_s) / rtt_s) * (to_s - from_s)
    }

    /// NaN where the trace does not know.
    fn mean(&self, from_s: f64, to_s: f64) -> f64 {
        match &self.snd_nxt {
            Some(counter) => counter.rate(from_s, to_s),
            None => self.cwnd.mean(from_s, to_s),
        }
    }
}
