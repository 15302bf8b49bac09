//! What the forecaster does each second: sample, resolve, learn, refit, and forecast for later scoring.

use super::cycle::usual_rate;
use super::forecaster::{Forecaster, REFIT_S, SILENCE_S};
use super::horizon::Horizon;
use super::reward::{self, Second};
use super::types::Ablation;
use crate::baselines::{Ewma, EwmaTuned, HoltWinters};
use crate::renewal::Renewal;
use crate::types::{Quantity, SAMPLE_S, TRAINING_S};
use pathcast_analysis::rtt::{RttSource, estimate_rtt_s, median};
use pathcast_analysis::series::Series;

/// Seconds after which losses and packets count 1/e. Four training windows: long enough for some
/// tens of losses, short enough to follow a path through the day.
const LOSS_MEMORY_S: f64 = 400.0;
/// Estimates of the round-trip time that the median is taken of: those of the last five minutes.
const RTT_ESTIMATES: usize = 30;

impl Forecaster {
    /// Declares that no record came up to `now_s`, so that samples are closed and forecasts resolved.
    pub fn advance(&mut self, now_s: f64) {
        if self.last.is_some() {
            self.tick_until(now_s, true);
        }
    }

    pub(super) fn tick_until(&mut self, now_s: f64, inclusive: bool) {
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

    /// After a long silence, pending forecasts and samples are stale, and processing each second would take
    /// too long. Continues near its end, with what was learned about losses and errors.
    fn skip_silence(&mut self, now_s: f64) {
        let due = ((now_s - self.start_s) / SAMPLE_S).floor();
        if due - f64::from(self.ticks) <= SILENCE_S / SAMPLE_S {
            return;
        }
        let keep = (-(due - f64::from(self.ticks)) * SAMPLE_S / LOSS_MEMORY_S).exp();
        self.hazard.forget(keep);
        self.known_s += f64::from(self.ticks) * SAMPLE_S;
        // time restarts shortly before now, so that whole seconds stay whole
        self.start_s += (due - 1.0) * SAMPLE_S;
        self.ticks = 0;
        self.samples.clear();
        self.sample_windows.clear();
        self.window_at_tick = f64::NAN;
        self.analogs.clear();
        self.bursts.clear();
        self.sum_of_all = (0.0, 0);
        self.refit_until = (REFIT_S / SAMPLE_S) as u32;
        self.ewma = Ewma::default();
        self.forget_tuning();
        self.holt_winters = HoltWinters::default();
        self.horizons
            .iter_mut()
            .for_each(|horizon| horizon.pending.clear());
    }

    pub(super) fn forget_tuning(&mut self) {
        let horizons_s: Vec<f64> = self.horizons.iter().map(|h| h.horizon_s).collect();
        self.ewma_tuned = EwmaTuned::new(&horizons_s, SAMPLE_S);
    }

    /// A second is over: sample, resolve, learn, refit, and forecast for later scoring.
    fn tick(&mut self, now_s: f64) {
        let from_s = now_s - SAMPLE_S;
        let sample = self.truth(from_s, now_s);
        self.analogs.second(sample);
        let window = self.last.map_or(f64::NAN, |last| last.cwnd_packets);
        let growth = window - std::mem::replace(&mut self.window_at_tick, window);
        self.take_sample(sample, self.cwnd.mean(from_s, now_s), growth);
        if !self.cc.has_law()
            && let Some(usual) = usual_rate(&self.samples)
        {
            let mut cycle = std::mem::take(&mut self.cycle);
            cycle.second(now_s, usual, |from_s, to_s| self.truth(from_s, to_s));
            self.cycle = cycle;
        }
        self.hazard.forget((-SAMPLE_S / LOSS_MEMORY_S).exp());
        let refit_ticks = (REFIT_S / SAMPLE_S) as u32;
        if self.ticks <= self.refit_until || self.ticks.is_multiple_of(refit_ticks) {
            self.refit(now_s);
        }
        let state = self.detector.state(now_s);
        let beginning = self.first_seconds(&state, now_s);
        let mut horizons = std::mem::take(&mut self.horizons);
        for index in 0..horizons.len() {
            let (shorter, longer) = horizons.split_at_mut(index);
            let horizon = &mut longer[0];
            while let Some(&(first, banded)) = horizon.pending.front()
                && first.time_s + horizon.horizon_s <= now_s
            {
                horizon.pending.pop_front();
                let truth = self.truth(first.time_s, first.time_s + horizon.horizon_s);
                if !truth.is_nan() {
                    horizon.learn(&first, &banded, truth, now_s);
                }
            }
            if let Some(shorter) = shorter.last() {
                (horizon.contest).expect_as(&shorter.contest, shorter.horizon_s);
                (horizon.pool).expect_as(&shorter.pool, self.cc.has_law());
            }
            horizon.bands.recut(now_s);
            let early = (beginning.as_ref()).map(|one| self.early(horizon, one, now_s));
            let (guess, _) = self.guess(horizon, &state, now_s, early.as_ref());
            let believable = self.believable(guess.ln_point.exp());
            horizon.keep(guess, believable);
        }
        self.horizons = horizons;
    }

    /// Takes a second's value with its mean window and by how much that grew; skips an unknown value.
    fn take_sample(&mut self, sample: f64, window: f64, growth: f64) {
        if sample.is_nan() {
            return;
        }
        self.samples.push_back(sample);
        self.sample_windows.push_back((window, growth));
        self.sum_of_all.0 += sample;
        self.sum_of_all.1 += 1;
        self.ewma.push(sample);
        self.ewma_tuned.push(sample);
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
            let seconds = (self.sample_windows.iter().zip(&self.samples)).map(
                |(&(window, growth), &rate)| Second {
                    window,
                    rate,
                    growth,
                },
            );
            // only a window law asks what windows below the queue's are worth
            let least_rtt_s = if self.cc.has_law() {
                self.least_srtt_s
            } else {
                f64::INFINITY
            };
            self.reward = reward::learn(seconds, self.rtt_s, least_rtt_s);
            if self.reward.limit.is_finite() && self.cc.has_law() && !self.knew_limit {
                self.knew_limit = true;
                self.horizons.iter_mut().for_each(Horizon::renew_law);
            }
        }
        self.hazard.smooth();
        let range = (0.5 * self.range.0, 2.0 * self.range.1);
        self.ceiling_packets = self.detector.ceiling_packets(now_s);
        let seen_s = (now_s - self.start_s).min(LOSS_MEMORY_S);
        let loss_gap_s = seen_s / (self.hazard.losses() + 0.5);
        if !self.cc.has_law() || self.ablation == Ablation::Law || self.ablation.has_no_window() {
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
}
