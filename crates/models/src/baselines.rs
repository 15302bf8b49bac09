//! History-based forecasts: what Pathcast has to beat.
//!
//! Each takes samples of equal length, oldest first, and forecasts the next ones. Constants
//! are those that the paper found best (section 5.1): weight 0.8 on the newest sample.

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

    /// The mean of the next `steps` samples if the trend goes on, never below 0.
    pub fn extrapolate(&self, steps: f64) -> Option<f64> {
        self.level
            .map(|level| (level + self.trend * (steps + 1.0) / 2.0).max(0.0))
    }
}

#[cfg(test)]
mod tests {
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
    fn holt_winters_follows_a_line() {
        let mut state = HoltWinters::default();
        (0..200).for_each(|i| state.push(f64::from(i)));
        assert!((state.forecast().unwrap() - 200.0).abs() < 1e-6);
        assert!((state.extrapolate(5.0).unwrap() - 202.0).abs() < 1e-6);
    }
}
