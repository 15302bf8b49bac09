//! The forecaster: takes records, learns each second, forecasts when asked.

use crate::types::{ForecastError, Quantity, SAMPLE_S, TRAINING_S};
use std::collections::VecDeque;

use super::horizon::{Horizon, Pending, Summary, summarise};
use super::{Basis, Forecast, ForecasterOptions, Note, Notes, Observation, Weight, reward};
use crate::baselines::{Ewma, HoltWinters, harmonic_mean, last_sample, window_mean};
use crate::experts::{ByExpert, EXPERTS, Expert, middle};
use crate::renewal::{Law, Renewal, Reward};
use pathcast_analysis::change::ChangeDetector;
use pathcast_analysis::counter::Steps;
use pathcast_analysis::epochs::{EpochDetector, FlowState};
use pathcast_analysis::hazard::Hazard;
use pathcast_analysis::rtt::{ASSUMED_RTT_S, RttSource, estimate_rtt_s, median};
use pathcast_analysis::series::{Integral, Interleaving, MAX_CWND_PACKETS, Series, SeriesError};
use pathcast_window_law::Cc;

#[path = "breaks.rs"]
mod breaks;
#[path = "changes.rs"]
mod changes;
pub use breaks::OnBreak;

/// Seconds between refits (paper, section 5.1); each second while the flow is younger than this.
const REFIT_S: f64 = 10.0;
/// Seconds after which losses and packets count 1/e. Four training windows: long enough for some
/// tens of losses, short enough to follow a path through the day.
const LOSS_MEMORY_S: f64 = 400.0;
/// Samples in the mean between the harmonic mean's five and the training window's 100.
const SHORT_SAMPLES: usize = 30;
/// Spread in ln before the first table.
const ASSUMED_SPREAD: f64 = 0.1;
/// Values are not told apart below this (logarithms need > 0), packets or packets/s.
pub(super) const VALUE_FLOOR: f64 = 1e-3;
/// The round-trip time is averaged over this long, and the newest holds as long where records lack it, seconds.
const SRTT_MEMORY_S: f64 = 5.0;
/// Seconds without a record after which history is dropped.
const SILENCE_S: f64 = 3600.0;
/// No forecast is above this, packets or packets/s: 10^10 packets/s are 100 Tbit/s.
const VALUE_CEILING: f64 = 1e10;
/// Quantiles stay within this factor of what was seen and is expected.
const BELIEVABLE: f64 = 8.0;
/// Estimates of the round-trip time that the median is taken of: those of the last five minutes.
const RTT_ESTIMATES: usize = 30;

/// Forecasts one flow, record by record. Holds no clock: time comes with the records.
///
/// Memory is bounded: some hundred seconds of records and of forecasts.
///
/// ```
/// use pathcast_forecast::{Forecaster, ForecasterOptions, Observation};
/// use pathcast_window_law::Cc;
/// let mut forecaster = Forecaster::new(&ForecasterOptions {
///     cc: Cc::Reno,
///     rtt_s: Some(0.1),
///     horizons_s: vec![1.0, 5.0],
/// })?;
/// for i in 0..300 {
///     forecaster.observe(&Observation {
///         time_s: f64::from(i) * 0.1,
///         cwnd_packets: f64::from(100 + i),
///         snd_nxt_packets: None,
///         srtt_s: None,
///     })?;
/// }
/// let forecast = forecaster.forecast(29.9, 5.0)?;
/// assert!((forecast.point - 424.5).abs() < 1.0); // 399 now, one packet more each 0.1 s
/// # Ok::<(), pathcast_forecast::ForecastError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Forecaster {
    cc: Cc,
    rtt_s: f64,
    rtt_source: RttSource,
    detector: EpochDetector,
    hazard: Hazard,
    changes_of_path: ChangeDetector,
    /// With the newest sequence number and round-trip time that are known.
    last: Option<Observation>,
    /// When the round-trip time was last known, seconds.
    srtt_at_s: f64,
    last_level: f64,
    records: usize,
    quantity: Quantity,
    /// Of the window, and of the quantity forecast when that is a rate.
    cwnd: Integral,
    snd_nxt: Steps,
    /// Recent changes of the window, to estimate the round-trip time from.
    changes: VecDeque<(f64, f64)>,
    rtt_estimates_s: VecDeque<f64>,
    /// Losses in the hazard that may still be withdrawn: time, window, age of the epoch.
    counted: VecDeque<(f64, f64, f64)>,
    losses: u32,
    /// Of these, those that ended no slow start.
    avoidance_losses: u32,
    on_break: OnBreak,
    notes: Notes,
    interleaving: Interleaving,
    range: (f64, f64),
    start_s: f64,
    ticks: u32,
    samples: VecDeque<f64>,
    sample_windows: VecDeque<f64>,
    /// Of the samples since the path last changed, and how many they are.
    sum_of_all: (f64, u32),
    /// Until this second everything is fitted anew each second.
    refit_until: u32,
    /// Least and greatest sample so far.
    sample_range: (f64, f64),
    ewma: Ewma,
    holt_winters: HoltWinters,
    reward: Reward,
    ceiling_packets: f64,
    horizons: Vec<Horizon>,
}

impl Forecaster {
    /// A forecaster that has seen nothing yet.
    ///
    /// # Errors
    /// [`ForecastError::BadHorizon`] and [`ForecastError::BadRtt`] on what is no positive time.
    pub fn new(options: &ForecasterOptions) -> Result<Self, ForecastError> {
        let bad = |time: f64| !(time.is_finite() && time > 0.0);
        if let Some(&got) = options.horizons_s.iter().find(|&&horizon| bad(horizon)) {
            return Err(ForecastError::BadHorizon { got });
        }
        if let Some(got) = options.rtt_s.filter(|&rtt| bad(rtt)) {
            return Err(ForecastError::BadRtt { got });
        }
        let rtt_s = options.rtt_s.unwrap_or(ASSUMED_RTT_S);
        let rtt_source = if options.rtt_s.is_some() {
            RttSource::Given
        } else {
            RttSource::Assumed
        };
        Ok(Self {
            cc: options.cc,
            rtt_s,
            rtt_source,
            detector: EpochDetector::new(options.cc, rtt_s),
            hazard: Hazard::default(),
            changes_of_path: ChangeDetector::default(),
            last: None,
            srtt_at_s: f64::NEG_INFINITY,
            last_level: 0.0,
            records: 0,
            quantity: Quantity::MeanCwndPackets,
            cwnd: Integral::default(),
            snd_nxt: Steps::default(),
            changes: VecDeque::new(),
            rtt_estimates_s: VecDeque::new(),
            counted: VecDeque::new(),
            losses: 0,
            avoidance_losses: 0,
            on_break: OnBreak::default(),
            notes: Notes::default(),
            interleaving: Interleaving::default(),
            range: (f64::INFINITY, 0.0),
            start_s: 0.0,
            ticks: 0,
            samples: VecDeque::new(),
            sample_windows: VecDeque::new(),
            sum_of_all: (0.0, 0),
            refit_until: (REFIT_S / SAMPLE_S) as u32,
            sample_range: (f64::INFINITY, 0.0),
            ewma: Ewma::default(),
            holt_winters: HoltWinters::default(),
            reward: Reward {
                per_packet: 1.0,
                limit: f64::INFINITY,
            },
            ceiling_packets: f64::INFINITY,
            horizons: options
                .horizons_s
                .iter()
                .map(|&horizon_s| Horizon::new(horizon_s))
                .collect(),
        })
    }

    /// The round-trip time used now, seconds.
    pub fn rtt_s(&self) -> f64 {
        self.rtt_s
    }

    /// The losses learned so far.
    pub fn hazard(&self) -> &Hazard {
        &self.hazard
    }

    /// What a window is worth on this path.
    pub fn reward(&self) -> Reward {
        self.reward
    }

    /// The flow's state at `now_s`, at or after the last record.
    pub fn state(&self, now_s: f64) -> FlowState {
        self.detector.state(now_s)
    }

    /// The largest window seen, packets.
    pub fn largest_window_packets(&self) -> f64 {
        self.range.1
    }

    /// The largest mean of a second so far, in the unit of [`Forecaster::quantity`]; `None` before the first.
    pub fn largest_sample(&self) -> Option<f64> {
        Some(self.sample_range.1).filter(|&largest| largest > 0.0)
    }

    /// Whether anything was observed yet.
    pub fn has_records(&self) -> bool {
        self.last.is_some()
    }

    /// What is forecast: a rate once records carry sequence numbers, else the mean window.
    pub fn quantity(&self) -> Quantity {
        self.quantity
    }

    /// Forecasts this from the first record on, whether or not that carries a sequence number: for a flow of which
    /// it is known whether its records will.
    #[must_use]
    pub fn of_quantity(mut self, quantity: Quantity) -> Self {
        self.quantity = quantity;
        self
    }

    /// Takes the counter of packets sent again of the record that [`Forecaster::observe`] takes next; from then on
    /// losses are what it counts.
    pub fn count(&mut self, time_s: f64, sent_again: f64) {
        self.detector.count(time_s, sent_again);
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// [`ForecastError::Record`] names the record (counted from 0) that is not finite, not positive
    /// or out of order; it is then not taken.
    pub fn observe(&mut self, record: &Observation) -> Result<(), ForecastError> {
        let record = &self.mended(record)?;
        let t = record.time_s;
        self.interleaving.push(record.cwnd_packets);
        if self.last.is_none() {
            self.start_s = t;
        }
        if record.snd_nxt_packets.is_some() && self.ticks == 0 {
            self.quantity = Quantity::PacketsPerS;
        }
        // samples end at whole seconds after the first record; a record at the end still belongs to it
        self.tick_until(t, false);
        if let Some(srtt_s) = record.srtt_s
            && self.rtt_source != RttSource::Given
        {
            // the law needs the typical round trip: a slow average of the kernel's quick one
            let keep = if self.rtt_source == RttSource::Srtt {
                (-(t - self.srtt_at_s) / SRTT_MEMORY_S).exp()
            } else {
                0.0
            };
            self.rtt_s = keep * self.rtt_s + (1.0 - keep) * srtt_s;
            self.rtt_source = RttSource::Srtt;
            self.detector.set_rtt_s(self.rtt_s);
        }
        if record.srtt_s.is_some() {
            self.srtt_at_s = t;
        }
        if (self.detector).observe(t, record.cwnd_packets, record.snd_nxt_packets) {
            self.notes.add(Note::IdleRestart);
        }
        let level = self.detector.level_packets();
        if let Some(last) = self.last
            && t - last.time_s <= SILENCE_S
        {
            let age_s = self
                .detector
                .last_loss_s()
                .map_or(f64::INFINITY, |loss| t - loss);
            let packets = self.last_level * (t - last.time_s) / self.rtt_s;
            // while a loss is being repaired there is no other: no exposure
            if age_s >= self.rtt_s {
                self.hazard.sent(self.last_level, packets, age_s);
            }
        }
        let losses = self.losses;
        self.count_losses();
        self.follow_changes(record, self.losses.saturating_sub(losses));
        self.range = (self.range.0.min(level), self.range.1.max(level));
        self.cwnd.push(t, record.cwnd_packets);
        self.snd_nxt.push(t, record.snd_nxt_packets);
        if matches!(self.rtt_source, RttSource::Assumed | RttSource::Estimated)
            && self
                .changes
                .back()
                .is_none_or(|change| change.1 != record.cwnd_packets)
        {
            self.changes.push_back((t, record.cwnd_packets));
        }
        self.last_level = level;
        let before = self.last;
        self.last = Some(Observation {
            snd_nxt_packets: (record.snd_nxt_packets)
                .or(before.and_then(|before| before.snd_nxt_packets)),
            srtt_s: record.srtt_s.or(before
                .filter(|_| t - self.srtt_at_s <= SRTT_MEMORY_S)
                .and_then(|before| before.srtt_s)),
            ..*record
        });
        self.records += 1;
        Ok(())
    }

    /// Takes record `index` of a series, with what it counts as sent again.
    ///
    /// # Errors
    /// As [`Forecaster::observe`].
    pub fn observe_record(&mut self, series: &Series, index: usize) -> Result<(), ForecastError> {
        let record = Observation::of(series, index);
        if let Some(sent_again) = series.retransmits_at(index) {
            self.count(record.time_s, sent_again);
        }
        self.observe(&record)
    }

    /// Tells that no record came up to and at `now_s`: samples are closed and forecasts resolved.
    pub fn advance(&mut self, now_s: f64) {
        if self.last.is_some() {
            self.tick_until(now_s, true);
        }
    }

    /// Forecasts the next `horizon_s` seconds from `now_s`, at or after the last record.
    /// Changes nothing: asking twice gives the same.
    ///
    /// # Errors
    /// [`ForecastError::UnknownHorizon`] if it was not given at the start;
    /// [`ForecastError::NothingObserved`] before the first record.
    pub fn forecast(&self, now_s: f64, horizon_s: f64) -> Result<Forecast, ForecastError> {
        let now_s = self.last.map_or(now_s, |last| now_s.max(last.time_s));
        self.forecast_from(&self.detector.state(now_s), now_s, horizon_s)
    }

    /// Forecasts as [`Forecaster::forecast`] does, but from a state that the caller gives: what would a
    /// flow do here that has, say, half the window?
    ///
    /// # Errors
    /// As [`Forecaster::forecast`].
    pub fn forecast_from(
        &self,
        state: &FlowState,
        now_s: f64,
        horizon_s: f64,
    ) -> Result<Forecast, ForecastError> {
        let Some(horizon) = self.horizons.iter().find(|h| h.horizon_s == horizon_s) else {
            let known = self.horizons.iter().map(|h| h.horizon_s).collect();
            return Err(ForecastError::UnknownHorizon {
                got: horizon_s,
                known,
            });
        };
        let Some(last) = self.last else {
            return Err(ForecastError::NothingObserved);
        };
        let now_s = now_s.max(last.time_s);
        let (guess, weights) = self.guess(horizon, state, now_s);
        let believable = self.believable(guess.ln_point.exp());
        let at = |cut: f64| {
            let value = (guess.ln_point + guess.spread * cut).exp();
            value.clamp(believable.0, believable.1)
        };
        let losses_remembered = self.hazard.losses();
        let packets_remembered = self.hazard.packets();
        Ok(Forecast {
            time_s: now_s,
            horizon_s,
            quantity: self.quantity,
            point: guess.ln_point.exp(),
            mean: horizon.residuals.mean(now_s, at),
            quantiles: horizon.residuals.cut().map(at),
            weights: (0..EXPERTS.len())
                .map(|e| Weight {
                    expert: EXPERTS[e],
                    weight: weights[e],
                    value: guess.ln_value[e].exp(),
                })
                .collect(),
            basis: Basis {
                losses: self.losses,
                losses_remembered,
                packets_remembered,
                loss_upper_bound: (losses_remembered < 0.5)
                    .then(|| (3.0 / packets_remembered.max(1.0)).min(1.0)),
                resolved: horizon.resolved,
                rtt_s: self.rtt_s,
                rtt_source: self.rtt_source,
                capacity_packets_per_s: self.reward.limit.is_finite().then_some(self.reward.limit),
                notes: (self.notes)
                    .with(Note::NoLoss, self.losses == 0)
                    .with(Note::OneLoss, self.losses == 1)
                    .with(
                        Note::SlowStartLossesOnly,
                        self.losses > 0 && self.avoidance_losses == 0,
                    )
                    .with(Note::Held, state.held_s > 0.0)
                    .with(Note::MixedFlows, self.interleaving.is_mixed()),
            },
            state: *state,
        })
    }

    fn check(&self, record: &Observation) -> Result<(), SeriesError> {
        let index = self.records;
        let srtt_s = record.srtt_s.unwrap_or(1.0);
        let snd_nxt = record.snd_nxt_packets.unwrap_or(0.0);
        for (column, got) in [
            ("time_s", record.time_s),
            ("cwnd_packets", record.cwnd_packets),
            ("srtt_s", srtt_s),
            ("snd_nxt_packets", snd_nxt),
        ] {
            if !got.is_finite() {
                return Err(SeriesError::NotFinite { index, column, got });
            }
        }
        for (column, got) in [("cwnd_packets", record.cwnd_packets), ("srtt_s", srtt_s)] {
            if got <= 0.0 {
                return Err(SeriesError::NotPositive { index, column, got });
            }
        }
        if record.cwnd_packets > MAX_CWND_PACKETS {
            return Err(SeriesError::TooLarge {
                index,
                got: record.cwnd_packets,
            });
        }
        if let Some(last) = self.last {
            let before = match record.snd_nxt_packets {
                Some(_) => last.snd_nxt_packets.unwrap_or(snd_nxt),
                None => snd_nxt,
            };
            for (column, got, previous) in [
                ("time_s", record.time_s, last.time_s),
                ("snd_nxt_packets", snd_nxt, before),
            ] {
                if got < previous {
                    return Err(SeriesError::Unsorted {
                        index,
                        column,
                        got,
                        previous,
                    });
                }
            }
        }
        Ok(())
    }

    /// Brings the hazard's losses in line with the detector's, which may withdraw the newest.
    fn count_losses(&mut self) {
        let newest = self
            .detector
            .losses()
            .last()
            .map(|loss| (loss.time_s, loss.cwnd_packets));
        let newest_s = newest.map_or(f64::NEG_INFINITY, |loss| loss.0);
        while let Some(&(time_s, cwnd, age_s)) = self.counted.back()
            && time_s > newest_s
        {
            self.hazard.not_lost(cwnd, age_s);
            self.losses -= 1;
            self.avoidance_losses = self.avoidance_losses.min(self.losses);
            self.counted.pop_back();
        }
        let counted_s = self.counted.back().map_or(f64::NEG_INFINITY, |loss| loss.0);
        if let Some((time_s, cwnd)) = newest
            && time_s > counted_s
        {
            let age_s = time_s - counted_s;
            self.hazard.lost(cwnd, age_s);
            self.losses += 1;
            self.avoidance_losses += u32::from(!self.detector.lost_in_slow_start());
            self.counted.push_back((time_s, cwnd, age_s));
            if self.counted.len() > 4 {
                self.counted.pop_front();
            }
        }
    }

    fn tick_until(&mut self, now_s: f64, inclusive: bool) {
        self.skip_silence(now_s);
        loop {
            let tick_s = self.start_s + f64::from(self.ticks + 1) * SAMPLE_S;
            if tick_s > now_s || (tick_s == now_s && !inclusive) {
                return;
            }
            self.ticks += 1;
            self.tick(tick_s);
        }
    }

    /// After a long silence what was pending and sampled is stale, and ticking through it would take
    /// for ever: go on near its end, with what was learned of losses and errors.
    fn skip_silence(&mut self, now_s: f64) {
        let due = ((now_s - self.start_s) / SAMPLE_S).floor();
        if due - f64::from(self.ticks) <= SILENCE_S / SAMPLE_S {
            return;
        }
        let keep = (-(due - f64::from(self.ticks)) * SAMPLE_S / LOSS_MEMORY_S).exp();
        self.hazard.forget(keep);
        // time restarts shortly before now, so that whole seconds stay whole
        self.start_s += (due - 1.0) * SAMPLE_S;
        self.ticks = 0;
        self.samples.clear();
        self.sample_windows.clear();
        self.sum_of_all = (0.0, 0);
        self.refit_until = (REFIT_S / SAMPLE_S) as u32;
        self.ewma = Ewma::default();
        self.holt_winters = HoltWinters::default();
        self.horizons
            .iter_mut()
            .for_each(|horizon| horizon.pending.clear());
    }

    /// A second is over: sample, resolve, learn, refit, and forecast for later scoring.
    fn tick(&mut self, now_s: f64) {
        let from_s = now_s - SAMPLE_S;
        self.take_sample(self.truth(from_s, now_s), self.cwnd.mean(from_s, now_s));
        self.hazard.forget((-SAMPLE_S / LOSS_MEMORY_S).exp());
        let refit_ticks = (REFIT_S / SAMPLE_S) as u32;
        if self.ticks <= self.refit_until || self.ticks.is_multiple_of(refit_ticks) {
            self.refit(now_s);
        }
        let mut horizons = std::mem::take(&mut self.horizons);
        for horizon in &mut horizons {
            while let Some(&first) = horizon.pending.front()
                && first.time_s + horizon.horizon_s <= now_s
            {
                horizon.pending.pop_front();
                let truth = self.truth(first.time_s, first.time_s + horizon.horizon_s);
                if !truth.is_nan() {
                    horizon.learn(&first, truth.max(VALUE_FLOOR).ln(), now_s);
                }
            }
            horizon.residuals.recut(now_s);
            let state = self.detector.state(now_s);
            let (guess, _) = self.guess(horizon, &state, now_s);
            horizon.pending.push_back(guess);
        }
        self.horizons = horizons;
    }

    /// A second's value, with its mean window; one that is not known is none.
    fn take_sample(&mut self, sample: f64, window: f64) {
        if sample.is_nan() {
            return;
        }
        self.samples.push_back(sample);
        self.sample_windows.push_back(window);
        self.sum_of_all.0 += sample;
        self.sum_of_all.1 += 1;
        self.ewma.push(sample);
        self.holt_winters.push(sample);
        self.sample_range = (
            self.sample_range.0.min(sample),
            self.sample_range.1.max(sample),
        );
        let keep = (TRAINING_S / SAMPLE_S) as usize;
        if self.samples.len() > keep {
            self.samples.pop_front();
            self.sample_windows.pop_front();
        }
    }

    /// What happened; NaN if it is not known.
    fn truth(&self, from_s: f64, to_s: f64) -> f64 {
        match self.quantity {
            Quantity::MeanCwndPackets => self.cwnd.mean(from_s, to_s),
            Quantity::PacketsPerS => self.snd_nxt.rate(from_s, to_s),
        }
    }

    fn refit(&mut self, now_s: f64) {
        let longest_s = self
            .horizons
            .iter()
            .map(|h| h.horizon_s)
            .fold(TRAINING_S, f64::max);
        let past_s = now_s - longest_s - 2.0 * SAMPLE_S;
        self.cwnd.forget_before(past_s);
        self.snd_nxt.forget_before(past_s);
        self.detector.forget_before(past_s);
        if matches!(self.rtt_source, RttSource::Assumed | RttSource::Estimated) {
            self.estimate_rtt(now_s);
        }
        if self.quantity == Quantity::PacketsPerS {
            let windows = self.sample_windows.iter().copied();
            self.reward = reward::learn(windows.zip(self.samples.iter().copied()), self.rtt_s);
        }
        self.hazard.smooth();
        let range = (0.5 * self.range.0, 2.0 * self.range.1);
        self.ceiling_packets = self.detector.ceiling_packets(now_s);
        let seen_s = (now_s - self.start_s).min(LOSS_MEMORY_S);
        let loss_gap_s = seen_s / (self.hazard.losses() + 0.5);
        if !self.cc.has_law() {
            return; // the window is worth what it is worth now, and the past says the rest
        }
        let mut horizons = std::mem::take(&mut self.horizons);
        for horizon in &mut horizons {
            horizon.table = Some(Renewal::new(
                self.law(),
                horizon.horizon_s,
                range,
                loss_gap_s,
            ));
        }
        self.horizons = horizons;
    }

    fn estimate_rtt(&mut self, now_s: f64) {
        while self
            .changes
            .front()
            .is_some_and(|change| change.0 < now_s - TRAINING_S)
        {
            self.changes.pop_front();
        }
        let (time_s, cwnd) = self.changes.iter().copied().unzip();
        if let Ok(series) = Series::new(time_s, cwnd)
            && let Some(rtt_s) = estimate_rtt_s(&series, self.cc)
        {
            // one window with few losses may mislead: the median of the windows so far does not
            self.rtt_estimates_s.push_back(rtt_s);
            if self.rtt_estimates_s.len() > RTT_ESTIMATES {
                self.rtt_estimates_s.pop_front();
            }
            let rtt_s = median(self.rtt_estimates_s.iter().copied().collect());
            self.rtt_s = rtt_s;
            self.rtt_source = RttSource::Estimated;
            self.detector.set_rtt_s(rtt_s);
        }
    }

    /// What quantiles are kept within: a few times beyond what the flow has done and is expected to
    /// do. After a standstill the spread in ln may be beyond all reason.
    fn believable(&self, point: f64) -> (f64, f64) {
        let (low, high) = self.sample_range;
        (
            low.min(point) / BELIEVABLE,
            (high.max(point) * BELIEVABLE).min(VALUE_CEILING),
        )
    }

    /// The rate by the window and the newest round-trip time, packets/s; `None` if either is not known or
    /// a window is forecast.
    fn now_packets_per_s(&self, state: &FlowState) -> Option<f64> {
        let srtt_s = self.last?.srtt_s?;
        (self.quantity == Quantity::PacketsPerS).then(|| state.cwnd_packets / srtt_s)
    }

    fn law(&self) -> Law<'_> {
        Law {
            cc: self.cc,
            rtt_s: self.rtt_s,
            hazard: &self.hazard,
            reward: self.reward,
            ceiling_packets: self.ceiling_packets,
        }
    }

    /// All experts' forecasts for one horizon, pooled.
    fn guess(&self, horizon: &Horizon, state: &FlowState, now_s: f64) -> (Pending, ByExpert) {
        let now_worth = self.reward.of(state.cwnd_packets);
        let by_state = match &horizon.table {
            Some(table) => summarise(&table.forecast(self.law(), state, now_s)),
            None => Summary {
                median: now_worth,
                likely: now_worth,
                spread: ASSUMED_SPREAD,
            },
        };
        let (front, back) = self.samples.as_slices();
        let samples: Vec<f64>;
        let samples = if back.is_empty() {
            front
        } else {
            samples = [front, back].concat();
            &samples
        };
        // before the first sample everything is what the window is worth now
        let or_now = |value: Option<f64>| value.unwrap_or(now_worth);
        let mean_of_all =
            (self.sum_of_all.1 > 0).then(|| self.sum_of_all.0 / f64::from(self.sum_of_all.1));
        let short = &samples[samples.len().saturating_sub(SHORT_SAMPLES)..];
        let value: ByExpert = [
            by_state.median,
            by_state.median * horizon.pool.bias().exp(),
            by_state.likely,
            // of the others: below
            1.0,
            or_now(last_sample(samples)),
            or_now(self.ewma.forecast()),
            or_now(self.holt_winters.forecast()),
            or_now(harmonic_mean(samples)),
            or_now(window_mean(short)),
            or_now(window_mean(samples)),
            or_now(mean_of_all),
            self.now_packets_per_s(state).unwrap_or(now_worth),
        ];
        let mut ln_value = value.map(|value| value.max(VALUE_FLOOR).ln());
        let ln_queue = ln_value[Expert::Now as usize] - now_worth.max(VALUE_FLOOR).ln();
        ln_value[Expert::Regression as usize] = horizon.regression.ln_value(&ln_value, ln_queue);
        let weights = horizon.pool.weights();
        let ln_point = middle(&ln_value, &weights);
        let disagreement: f64 = ln_value
            .iter()
            .zip(&weights)
            .map(|(v, w)| w * (v - ln_point).powi(2))
            .sum();
        let own = weights[0] * by_state.spread;
        let spread = (own * own + disagreement + horizon.pool.usual_error().powi(2)).sqrt();
        (
            Pending {
                time_s: now_s,
                ln_value,
                ln_queue,
                ln_point,
                spread,
            },
            weights,
        )
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
