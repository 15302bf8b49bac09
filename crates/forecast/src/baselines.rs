//! History-based forecasts: what Pathcast has to beat.
//!
//! Each takes samples of equal length, oldest first, and forecasts the next ones. Constants
//! are those that the paper found best (section 5.1): weight 0.8 on the newest sample.

use std::collections::VecDeque;

/// Weight of the newest sample in EWMA and Holt-Winters (paper, section 5.1).
pub const ALPHA: f64 = 0.8;
/// Weight of the newest trend in Holt-Winters (paper, section 5.1).
pub const BETA: f64 = 0.8;
/// Samples in the harmonic mean (Yin 2015, as in the paper).
pub const HARMONIC_SAMPLES: usize = 5;

/// The newest sample (Sun 2016). `None` without samples.
pub fn last_sample(samples: &[f64]) -> Option<f64> {
    samples.last().copied()
}

/// Exponentially weighted moving average, started at the first sample (He 2005).
pub fn ewma(samples: &[f64]) -> Option<f64> {
    let mut state = Ewma::default();
    samples.iter().for_each(|&sample| state.push(sample));
    state.forecast()
}

/// Holt-Winters without season (He 2005): level plus trend, one step ahead, never below 0.
///
/// As in the paper the one-step forecast stands for every horizon; [`HoltWinters::extrapolate`]
/// is the mean over more steps.
pub fn holt_winters(samples: &[f64]) -> Option<f64> {
    let mut state = HoltWinters::default();
    samples.iter().for_each(|&sample| state.push(sample));
    state.forecast()
}

/// Harmonic mean of the last five samples (Yin 2015); 0 if one of them is 0.
pub fn harmonic_mean(samples: &[f64]) -> Option<f64> {
    let last = &samples[samples.len().saturating_sub(HARMONIC_SAMPLES)..];
    if last.is_empty() {
        return None;
    }
    if last.contains(&0.0) {
        return Some(0.0);
    }
    Some(last.len() as f64 / last.iter().map(|sample| 1.0 / sample).sum::<f64>())
}

/// Arithmetic mean of the samples given: those of the training window.
pub fn window_mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

/// [`ewma`], one sample at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ewma {
    level: Option<f64>,
}

impl Ewma {
    /// Takes the next sample.
    pub fn push(&mut self, sample: f64) {
        self.level = Some(match self.level {
            Some(level) => ALPHA * sample + (1.0 - ALPHA) * level,
            None => sample,
        });
    }

    /// The forecast; `None` before the first sample.
    pub fn forecast(&self) -> Option<f64> {
        self.level
    }
}

/// Weights of the newest sample among which [`EwmaTuned`] chooses; 0 is the mean of all samples.
pub const TUNED_ALPHAS: [f64; 9] = [0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.8, 1.0];
/// The one taken before the first error is known: [`ALPHA`].
const UNTUNED: usize = 7;

/// [`ewma`] with the weight, of [`TUNED_ALPHAS`], whose forecasts had the least error so far at the same horizon.
///
/// The error is |forecast - truth| / (forecast + truth), which is defined where nothing was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct EwmaTuned {
    levels: [f64; TUNED_ALPHAS.len()],
    samples: u32,
    horizons: Vec<Tuning>,
}

/// What is known about the weights at one horizon.
#[derive(Debug, Clone, PartialEq)]
struct Tuning {
    horizon_s: f64,
    /// Samples in a horizon.
    steps: usize,
    /// The newest samples, at most `steps`, and their sum.
    newest: VecDeque<f64>,
    sum: f64,
    /// Levels after each of the last `steps` samples, oldest first.
    pending: VecDeque<[f64; TUNED_ALPHAS.len()]>,
    errors: [f64; TUNED_ALPHAS.len()],
}

impl EwmaTuned {
    /// For horizons in seconds and samples of `sample_s` seconds.
    pub fn new(horizons_s: &[f64], sample_s: f64) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, at least 1
        let tuning = |&horizon_s: &f64| Tuning {
            horizon_s,
            steps: (horizon_s / sample_s).round().clamp(1.0, 1e6) as usize,
            newest: VecDeque::new(),
            sum: 0.0,
            pending: VecDeque::new(),
            errors: [0.0; TUNED_ALPHAS.len()],
        };
        Self {
            levels: [0.0; TUNED_ALPHAS.len()],
            samples: 0,
            horizons: horizons_s.iter().map(tuning).collect(),
        }
    }

    /// Takes the next sample.
    pub fn push(&mut self, sample: f64) {
        self.samples += 1;
        for (level, alpha) in self.levels.iter_mut().zip(TUNED_ALPHAS) {
            // until 1/n is below the weight, the level is the mean
            *level += (sample - *level) * alpha.max(1.0 / f64::from(self.samples));
        }
        for tuning in &mut self.horizons {
            tuning.push(sample, self.levels);
        }
    }

    /// The forecast at a horizon given at the start; `None` at others, and before the first sample.
    pub fn forecast(&self, horizon_s: f64) -> Option<f64> {
        let tuning = self.horizons.iter().find(|t| t.horizon_s == horizon_s)?;
        let least = tuning.errors.iter().copied().fold(f64::INFINITY, f64::min);
        let is_least = |error: &f64| *error == least;
        let chosen = if tuning.errors.iter().all(is_least) {
            UNTUNED
        } else {
            tuning.errors.iter().position(is_least)?
        };
        (self.samples > 0).then(|| self.levels[chosen])
    }
}

impl Tuning {
    fn push(&mut self, sample: f64, levels: [f64; TUNED_ALPHAS.len()]) {
        self.newest.push_back(sample);
        self.sum += sample;
        if self.newest.len() > self.steps {
            self.sum -= self.newest.pop_front().unwrap_or(0.0);
        }
        if self.pending.len() == self.steps
            && let Some(said) = self.pending.pop_front()
        {
            let truth = (self.sum / self.steps as f64).max(0.0);
            for (error, said) in self.errors.iter_mut().zip(said) {
                let total = said + truth;
                *error += if total > 0.0 {
                    (said - truth).abs() / total
                } else {
                    0.0
                };
            }
        }
        self.pending.push_back(levels);
    }
}

/// [`holt_winters`], one sample at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HoltWinters {
    level: Option<f64>,
    trend: f64,
}

impl HoltWinters {
    /// Takes the next sample.
    pub fn push(&mut self, sample: f64) {
        match self.level {
            Some(level) => {
                let next = ALPHA * sample + (1.0 - ALPHA) * (level + self.trend);
                self.trend = BETA * (next - level) + (1.0 - BETA) * self.trend;
                self.level = Some(next);
            }
            None => self.level = Some(sample),
        }
    }

    /// Level plus trend, never below 0; `None` before the first sample.
    pub fn forecast(&self) -> Option<f64> {
        self.level.map(|level| (level + self.trend).max(0.0))
    }

    /// The mean of the next `steps` samples if the trend continues, never below 0.
    pub fn extrapolate(&self, steps: f64) -> Option<f64> {
        self.level
            .map(|level| (level + self.trend * (steps + 1.0) / 2.0).max(0.0))
    }
}

/// RobustMPC's estimate (Yin 2015, as the authors' successors code it): the harmonic mean of five samples,
/// divided by one plus the largest of the last five relative errors that it made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RobustMpc {
    samples: VecDeque<f64>,
    errors: VecDeque<f64>,
}

impl RobustMpc {
    /// Takes the next sample, and with it the error of the mean before it.
    pub fn push(&mut self, sample: f64) {
        if let Some(mean) = self.mean()
            && sample > 0.0
        {
            push_bounded(&mut self.errors, (mean - sample).abs() / sample);
        }
        push_bounded(&mut self.samples, sample);
    }

    /// The forecast; `None` before the first sample.
    pub fn forecast(&self) -> Option<f64> {
        let worst = self.errors.iter().copied().fold(0.0, f64::max);
        self.mean().map(|mean| mean / (1.0 + worst))
    }

    fn mean(&self) -> Option<f64> {
        let samples: Vec<f64> = self.samples.iter().copied().collect();
        harmonic_mean(&samples)
    }
}

fn push_bounded(values: &mut VecDeque<f64>, value: f64) {
    if values.len() == HARMONIC_SAMPLES {
        values.pop_front();
    }
    values.push_back(value);
}

/// What players estimate: the smaller of two averages that forget at different speeds, each corrected for
/// having begun at zero. Without the share of it that the player then dares to use (dash.js 0.9, hls.js
/// 0.95 or 0.7): that belongs to the choice of a bitrate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TwoSpeeds {
    half_lives_s: (f64, f64),
    sums: (f64, f64),
    seconds: f64,
}

impl TwoSpeeds {
    /// dash.js 5: half-lives of 3 and 8 s.
    pub fn dash_js() -> Self {
        Self::new((3.0, 8.0))
    }

    /// hls.js, on demand: half-lives of 3 and 9 s.
    pub fn hls_js() -> Self {
        Self::new((3.0, 9.0))
    }

    fn new(half_lives_s: (f64, f64)) -> Self {
        Self {
            half_lives_s,
            sums: (0.0, 0.0),
            seconds: 0.0,
        }
    }

    /// Takes the next sample, a mean over `seconds`.
    pub fn push(&mut self, sample: f64, seconds: f64) {
        let after = |sum: f64, half_life_s: f64| {
            let keep = (-seconds / half_life_s).exp2();
            keep * sum + (1.0 - keep) * sample
        };
        self.sums = (
            after(self.sums.0, self.half_lives_s.0),
            after(self.sums.1, self.half_lives_s.1),
        );
        self.seconds += seconds;
    }

    /// The forecast; `None` before the first sample.
    pub fn forecast(&self) -> Option<f64> {
        let corrected =
            |sum: f64, half_life_s: f64| sum / (1.0 - (-self.seconds / half_life_s).exp2());
        (self.seconds > 0.0).then(|| {
            corrected(self.sums.0, self.half_lives_s.0)
                .min(corrected(self.sums.1, self.half_lives_s.1))
        })
    }
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{RngCore, SeedableRng};

    use super::*;

    #[test]
    fn no_samples_no_forecast() {
        for model in [last_sample, ewma, holt_winters, harmonic_mean, window_mean] {
            assert_eq!(model(&[]), None);
        }
    }

    #[test]
    fn all_agree_on_a_constant() {
        for model in [last_sample, ewma, holt_winters, harmonic_mean, window_mean] {
            assert!((model(&[7.0; 20]).unwrap() - 7.0).abs() < 1e-12);
        }
    }

    #[test]
    fn known_answers() {
        assert_eq!(last_sample(&[1.0, 2.0]), Some(2.0));
        assert!((ewma(&[10.0, 20.0]).unwrap() - 18.0).abs() < 1e-12);
        // level 18, trend 6.4
        assert!((holt_winters(&[10.0, 20.0]).unwrap() - 24.4).abs() < 1e-12);
        assert!(
            (harmonic_mean(&[100.0, 1.0, 2.0, 4.0, 4.0, 4.0]).unwrap() - 5.0 / 2.25).abs() < 1e-12
        );
        assert_eq!(harmonic_mean(&[0.0, 2.0]), Some(0.0));
        assert_eq!(window_mean(&[1.0, 2.0, 6.0]), Some(3.0));
    }

    #[test]
    fn the_tuned_weight_suits_the_flow_and_the_horizon() {
        // a random walk: the newest sample is best
        let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
        let mut step = move || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 - 0.5;
        let mut walk = EwmaTuned::new(&[1.0, 10.0], 1.0);
        assert_eq!(walk.forecast(1.0), None);
        let mut value = 1000.0;
        for _ in 0..400 {
            value += 40.0 * step();
            walk.push(value);
        }
        assert!((walk.forecast(1.0).unwrap() / value - 1.0).abs() < 1e-9);
        // noise around 100: the mean is best at all horizons
        let mut noise = EwmaTuned::new(&[1.0, 10.0], 1.0);
        (0..400).for_each(|_| noise.push(100.0 + 80.0 * step()));
        for horizon_s in [1.0, 10.0] {
            assert!((noise.forecast(horizon_s).unwrap() - 100.0).abs() < 8.0);
        }
        assert_eq!(noise.forecast(2.0), None);
        // a flow that stops: nothing to divide by
        (0..400).for_each(|_| noise.push(0.0));
        assert!(noise.forecast(1.0).unwrap() < 1e-6);
    }

    #[test]
    fn holt_winters_follows_a_line() {
        let mut state = HoltWinters::default();
        (0..200).for_each(|i| state.push(f64::from(i)));
        assert!((state.forecast().unwrap() - 200.0).abs() < 1e-6);
        assert!((state.extrapolate(5.0).unwrap() - 202.0).abs() < 1e-6);
    }

    #[test]
    fn robust_mpc_divides_by_its_worst_recent_error() {
        let mut state = RobustMpc::default();
        assert_eq!(state.forecast(), None);
        [10.0, 10.0, 20.0].iter().for_each(|&s| state.push(s));
        // the mean said 10 before 20 came: half wrong; the mean of 10, 10, 20 is 12
        assert!((state.forecast().unwrap() - 12.0 / 1.5).abs() < 1e-12);
        (0..10).for_each(|_| state.push(20.0));
        assert!((state.forecast().unwrap() - 20.0).abs() < 1e-12);
    }

    #[test]
    fn players_take_the_slower_of_two_averages() {
        for mut state in [TwoSpeeds::dash_js(), TwoSpeeds::hls_js()] {
            assert_eq!(state.forecast(), None);
            state.push(8.0, 1.0);
            assert!((state.forecast().unwrap() - 8.0).abs() < 1e-12);
            (0..200).for_each(|_| state.push(8.0, 1.0));
            state.push(0.0, 3.0);
            // a fall is followed at the fast one's half-life, a rise at the slow one's
            assert!((state.forecast().unwrap() - 4.0).abs() < 1e-6);
            (0..200).for_each(|_| state.push(8.0, 1.0));
            state.push(16.0, 3.0);
            assert!(state.forecast().unwrap() < 10.0);
        }
    }
}
