//! The guard of one prefix after it was placed: it rolls back where completion times or losses get much worse than before.

use serde::{Deserialize, Serialize};

use crate::sequential::Sums;

/// Loads that the reference needs.
const LEAST_LOADS: f32 = 50.0;
/// Variance of ln(time) of one load: a spread of 0.3.
const VARIANCE: f32 = 0.09;
/// Variance of what all loads of a report share, over the long run: a spread of 0.15 that decays by a fifth with each
/// report, so 0.15^2 (1 + 0.8) / (1 - 0.8).
const SHARED: f32 = 0.2;
/// A false alarm has a chance of about e^-9 for each excursion of the sum (Siegmund, Sequential Analysis, 1985, ch. 2).
const EXPONENT: f32 = 9.0;
/// Loads that the reference remembers: so it follows slow changes.
const REMEMBERED: f32 = 400.0;
/// Reports in a row of which each has far more loss.
const LOSSY_REPORTS: u8 = 3;
/// An increase of loss that counts, above that of the reference, and its factor.
const LOSS_MORE: f32 = 0.02;
const LOSS_FACTOR: f32 = 3.0;

/// Why a prefix rolls back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Alarm {
    /// Completions take much longer.
    Completion,
    /// Far more packets are lost.
    Loss,
}

/// Cumulative sum (Page, Biometrika 41, 1954) of a prefix' completion times against those of before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Guard {
    loads: f32,
    /// Mean of ln(milliseconds) before.
    reference: f32,
    sum: f32,
    loss: f32,
    loss_reports: u8,
    lossy: u8,
}

impl Guard {
    /// Learns from what was in force before: this is the reference.
    #[allow(clippy::cast_possible_truncation)] // seven digits do
    pub fn learn(&mut self, times: Option<&Sums>, loss: Option<f64>) {
        if let Some(mean) = times.and_then(Sums::mean) {
            let loads = times.map_or(0.0, |times| times.count) as f32;
            let kept = self.loads.min(REMEMBERED);
            self.reference = (self.reference * kept + mean as f32 * loads) / (kept + loads);
            self.loads = kept + loads;
        }
        if let Some(loss) = loss {
            let step = (1.0 / f32::from(self.loss_reports.saturating_add(1))).max(0.1);
            self.loss += step * (loss as f32 - self.loss);
            self.loss_reports = self.loss_reports.saturating_add(1);
        }
    }

    /// Forgets the sum: another template is in force.
    pub fn restart(&mut self) {
        self.sum = 0.0;
        self.lossy = 0;
    }

    /// Judges a report: times are logarithms of milliseconds. `worse` is the ratio from which on times count as worse.
    #[allow(clippy::cast_possible_truncation)] // seven digits do
    pub fn judge(&mut self, times: Option<&Sums>, loss: Option<f64>, worse: f64) -> Option<Alarm> {
        if let Some(loss) = loss.map(|loss| loss as f32) {
            let most = (LOSS_FACTOR * self.loss).max(self.loss + LOSS_MORE);
            let is_lossy = self.loss_reports >= 3 && loss > most;
            self.lossy = if is_lossy { self.lossy + 1 } else { 0 };
            if self.lossy >= LOSSY_REPORTS {
                return Some(Alarm::Loss);
            }
        }
        let times = times.filter(|times| times.count > 0.0)?;
        if self.loads < LEAST_LOADS {
            self.learn(Some(times), None);
            return None;
        }
        let (count, allowed) = (times.count as f32, worse.ln() as f32);
        let mean = (times.sum / times.count) as f32;
        // the precision of the report's mean, relative to that of infinitely many loads
        let weight = SHARED / (VARIANCE / count + SHARED);
        self.sum = (self.sum + weight * (mean - self.reference - allowed)).max(0.0);
        if self.sum == 0.0 {
            self.learn(Some(times), None);
        }
        (self.sum > EXPONENT * SHARED / (2.0 * allowed)).then_some(Alarm::Completion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(state: &mut u64) -> f64 {
        let mut uniform = || {
            *state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((*state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        };
        (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
    }

    /// Loads of one report: ln(ms) with what they share.
    fn report(state: &mut u64, mean: f64, shared: f64, count: usize) -> Sums {
        let mut sums = Sums::default();
        for _ in 0..count {
            let log = mean + shared + 0.3 * normal(state);
            sums.add(&Sums {
                count: 1.0,
                sum: log,
                squares: log * log,
            });
        }
        sums
    }

    /// Reports of 10 s until an alarm, of a prefix whose times get longer by a factor after `before` reports.
    fn alarm(state: &mut u64, factor: f64, reports: usize) -> Option<usize> {
        let (mut guard, mut shared) = (Guard::default(), 0.0);
        let mut next = |guard: &mut Guard, factor: f64| {
            shared = 0.8 * shared + 0.6 * 0.15 * normal(state);
            let sums = report(state, 7.0 + factor.ln(), shared, 5);
            guard.judge(Some(&sums), Some(0.01), 1.5)
        };
        for _ in 0..20 {
            assert_eq!(next(&mut guard, 1.0), None);
        }
        (1..=reports).find(|_| next(&mut guard, factor).is_some())
    }

    #[test]
    fn a_path_that_turns_bad_is_found_within_six_reports() {
        let mut state = 5;
        let found: Vec<_> = (0..200)
            .map(|_| alarm(&mut state, 3.0, 60).unwrap())
            .collect();
        let late = found.iter().filter(|reports| **reports > 6).count();
        println!("three times longer: {late} of 200 later than a minute");
        assert!(late <= 10, "{late} of 200 later than a minute: {found:?}");
    }

    #[test]
    fn a_path_that_stays_gives_no_alarm_in_a_day() {
        let mut state = 9;
        let false_alarms = (0..20)
            .filter(|_| alarm(&mut state, 1.0, 8640).is_some())
            .count();
        println!("as before: alarms in {false_alarms} of 20 days");
        assert!(false_alarms <= 4, "{false_alarms} of 20 days");
    }

    #[test]
    fn far_more_loss_in_three_reports_is_an_alarm() {
        let mut guard = Guard::default();
        (0..5).for_each(|_| guard.learn(None, Some(0.01)));
        let mut judge = |loss| guard.judge(None, Some(loss), 1.25);
        assert_eq!(
            [judge(0.08), judge(0.08), judge(0.01), judge(0.08)],
            [None; 4]
        );
        assert_eq!([judge(0.08), judge(0.08)], [None, Some(Alarm::Loss)]);
    }
}
