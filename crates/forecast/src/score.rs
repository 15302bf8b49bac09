//! How good forecasts were: errors, bands and comparisons in a few numbers. Every table and every page takes them from
//! here.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use serde::Serialize;

use crate::types::Model;
use pathcast_analysis::rtt::median;

/// A truth counts as at least this part of the flow's mean: the error of a window in which nothing was sent is finite.
pub const FLOOR_PART: f64 = 0.01;
/// The part of truths that a band leaves out on both sides together: it is the 5-95 % one.
const BAND_LEAVES_OUT: f64 = 0.1;
/// Medians below this, per cent, count as this: smaller errors make no practical difference.
const NO_ERROR_PCT: f64 = 0.05;
/// The values that a bootstrap draws in total. The number of resamples follows, within the bounds.
const DRAWN: usize = 2_000_000;
const RESAMPLES: (usize, usize) = (200, 1000);
/// Blocks of a bootstrap are this many horizons long, and at least `BLOCK_S` seconds: forecasts within a
/// horizon share their truth, and beyond it the flow's state.
const BLOCK_HORIZONS: f64 = 2.0;
const BLOCK_S: f64 = 10.0;
/// Of fewer windows no verdict is given: resamples of one are all the same.
const FEWEST_WINDOWS: usize = 20;
/// The same forecasts give the same intervals.
const SEED: u64 = 18;

/// The distribution of errors in four numbers, in the unit of the errors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// 10 % quantile.
    pub p10: f64,
    /// 90 % quantile.
    pub p90: f64,
}

impl Summary {
    /// Summarizes those of `errors` that are not NaN; `None` if there is none.
    ///
    /// Quantiles between two errors are interpolated linearly (Hyndman and Fan 1996, definition 7).
    pub fn of(errors: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut errors: Vec<f64> = errors.into_iter().filter(|e| !e.is_nan()).collect();
        if errors.is_empty() {
            return None;
        }
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        errors.sort_unstable_by(f64::total_cmp);
        Some(Self {
            mean,
            median: quantile(&errors, 0.5),
            p10: quantile(&errors, 0.1),
            p90: quantile(&errors, 0.9),
        })
    }
}

/// A quantile of sorted values; there must be one at least.
fn quantile(sorted: &[f64], level: f64) -> f64 {
    let at = level * (sorted.len() - 1) as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let part = at - at.floor();
    if part == 0.0 {
        return sorted[below]; // its neighbor may be infinite
    }
    sorted[below] * (1.0 - part) + sorted[above] * part
}

/// Relative error of a forecast, |forecast - truth| / max(truth, floor), per cent; infinite where only the forecast
/// is not 0.
pub fn error_pct(forecast: f64, truth: f64, floor: f64) -> f64 {
    let off = (forecast - truth).abs();
    if off == 0.0 {
        return 0.0;
    }
    100.0 * off / truth.max(floor)
}

/// The interval score of a 5-95 % band (Gneiting and Raftery 2007): its width, and 20 times what the truth is beyond
/// it. Smaller is better: a band that is wider than it needs to be pays for it, and so does one that misses.
pub fn interval_score(band: [f64; 2], truth: f64) -> f64 {
    let beyond = (band[0] - truth).max(truth - band[1]).max(0.0);
    band[1] - band[0] + 2.0 / BAND_LEAVES_OUT * beyond
}

/// How good one model's 5-95 % bands were.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BandScore {
    /// Part of the truths within their bands, ends included.
    pub coverage90: f64,
    /// Mean width, per cent of the mean truth.
    pub width_pct: f64,
    /// Mean [`interval_score`], per cent of the mean truth.
    pub interval_score_pct: f64,
}

impl BandScore {
    /// Of bands and their truths; `None` without one, or if nothing was sent in any.
    pub fn of(bands: impl IntoIterator<Item = ([f64; 2], f64)>) -> Option<Self> {
        let (mut count, mut inside) = (0.0, 0.0);
        let (mut width, mut score, mut sent) = (0.0, 0.0, 0.0);
        for (band, truth) in bands.into_iter().filter(|(band, _)| !band[0].is_nan()) {
            count += 1.0;
            inside += f64::from(u8::from((band[0]..=band[1]).contains(&truth)));
            width += band[1] - band[0];
            score += interval_score(band, truth);
            sent += truth;
        }
        (sent > 0.0).then(|| Self {
            coverage90: inside / count,
            width_pct: 100.0 * width / sent,
            interval_score_pct: 100.0 * score / sent,
        })
    }
}

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval is below 1.
    Better,
    /// The interval contains 1, or there are too few windows for a verdict.
    Level,
    /// The whole interval is above 1.
    Worse,
}

/// Why a model is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The opponent with the smallest median error on these very forecasts, known only afterwards.
    BestByHindsight,
    /// The best of the other models of history that need no choice afterwards: Pathcast's pool of them.
    HistoryPool,
    /// What the loss curve contributes.
    FlatCurve,
    /// What the window law and the flow's state contribute.
    NoState,
    /// What the comparison with the flow's own past contributes.
    NoAnalogs,
    /// What window, law and loss curve contribute beside the flow's own past.
    NoWindow,
}

/// The ratio of two models' median errors on the same windows, with the interval that a block bootstrap gives it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// Median error over the other's; below 1 the first is better. Medians below 0.05 % count as this.
    pub error_ratio: f64,
    /// 2.5 and 97.5 % quantiles of the ratio over resamples.
    pub interval95: [f64; 2],
    /// What that says.
    pub verdict: Verdict,
}

/// Pathcast's forecasts compared with those of another model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Skill {
    /// Why it is compared with.
    pub role: Role,
    /// The other model.
    pub opponent: Model,
    /// How the errors compare.
    #[serde(flatten)]
    pub ratio: Ratio,
}

impl Ratio {
    /// Compares errors, per cent, of forecasts made each second, oldest first; NaN where there is none, infinite for a
    /// flow that never sends. `None` if no window has a finite error of both.
    ///
    /// Blocks of windows are drawn together, for both models the same (circular block bootstrap, Politis and Romano
    /// 1992): errors of overlapping horizons are not independent.
    pub fn of(ours: &[f64], theirs: &[f64], horizon_s: f64) -> Option<Self> {
        let both = ours.iter().zip(theirs);
        let (ours, theirs): (Vec<f64>, Vec<f64>) = both
            .filter(|(ours, theirs)| ours.is_finite() && theirs.is_finite())
            .unzip();
        let count = ours.len();
        if count == 0 {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
        let block = (BLOCK_HORIZONS * horizon_s).max(BLOCK_S).ceil() as usize;
        // of one block there would be no spread
        let block = block.min(count / 4).max(1);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut ratios: Vec<f64> = (0..(DRAWN / count).clamp(RESAMPLES.0, RESAMPLES.1))
            .map(|_| {
                let starts: Vec<usize> = (0..count.div_ceil(block))
                    .map(|_| (random.next_u64() % count as u64) as usize)
                    .collect();
                let drawn = || {
                    let windows = |&start: &usize| (start..start + block).map(|w| w % count);
                    starts.iter().flat_map(windows).take(count)
                };
                ratio(
                    drawn().map(|w| ours[w]).collect(),
                    drawn().map(|w| theirs[w]).collect(),
                )
            })
            .collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let interval95 = [0.025, 0.975].map(|level| quantile(&ratios, level));
        let verdict = match interval95 {
            _ if count < FEWEST_WINDOWS => Verdict::Level,
            [_, high] if high < 1.0 => Verdict::Better,
            [low, _] if low > 1.0 => Verdict::Worse,
            _ => Verdict::Level,
        };
        Some(Self {
            error_ratio: ratio(ours, theirs),
            interval95,
            verdict,
        })
    }
}

/// Ratio of the medians; of two that are infinite it is 1.
fn ratio(ours: Vec<f64>, theirs: Vec<f64>) -> f64 {
    let [ours, theirs] = [ours, theirs].map(|errors| median(errors).max(NO_ERROR_PCT));
    if ours == theirs { 1.0 } else { ours / theirs }
}

/// Compares Pathcast's errors, per cent, with those of the others on the same windows; the best of the opponents is
/// looked up in the errors themselves.
pub fn skills(errors: &[(Model, Vec<f64>)], horizon_s: f64) -> Vec<Skill> {
    let of = |model: Model| errors.iter().find(|of| of.0 == model).map(|of| &of.1);
    let Some(ours) = of(Model::Pathcast) else {
        return Vec::new();
    };
    let best = (errors.iter())
        .filter(|(model, _)| model.is_opponent())
        .filter_map(|(model, errors)| Some((Summary::of(errors.iter().copied())?, *model)))
        .min_by(|a, b| a.0.median.total_cmp(&b.0.median));
    let roles = [
        (Role::BestByHindsight, best.map(|(_, model)| model)),
        (Role::HistoryPool, Some(Model::HistoryPool)),
        (Role::FlatCurve, Some(Model::FlatCurve)),
        (Role::NoState, Some(Model::NoState)),
        (Role::NoAnalogs, Some(Model::NoAnalogs)),
        (Role::NoWindow, Some(Model::NoWindow)),
    ];
    (roles.into_iter())
        .filter_map(|(role, opponent)| {
            let opponent = opponent?;
            let ratio = Ratio::of(ours, of(opponent)?, horizon_s)?;
            Some(Skill {
                role,
                opponent,
                ratio,
            })
        })
        .collect()
}

/// Part of the truths that lie in their bands, ends included; `None` without a band.
pub fn coverage(in_band: impl IntoIterator<Item = bool>) -> Option<f64> {
    let (mut inside, mut all) = (0_u64, 0_u64);
    for held in in_band {
        inside += u64::from(held);
        all += 1;
    }
    (all > 0).then(|| inside as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_flow_that_never_sends_are_not_compared() {
        let (none, infinite) = ([0.0; 30], [f64::INFINITY; 30]);
        assert!(Ratio::of(&infinite, &none, 1.0).is_none());
        assert!(Ratio::of(&none, &infinite, 1.0).is_none());
    }

    #[test]
    fn quantiles_are_interpolated_and_what_is_not_known_is_left_out() {
        let errors = [f64::NAN, 4.0, 1.0, 3.0, 2.0];
        let summary = Summary::of(errors).unwrap();
        assert_eq!((summary.mean, summary.median), (2.5, 2.5));
        assert!((summary.p10 - 1.3).abs() < 1e-12, "{summary:?}");
        assert!((summary.p90 - 3.7).abs() < 1e-12, "{summary:?}");
        let one = Summary::of([7.0]).unwrap();
        assert_eq!([one.mean, one.median, one.p10, one.p90], [7.0; 4]);
        assert_eq!(Summary::of([f64::NAN]), None);
        assert_eq!(Summary::of([1.0, f64::INFINITY, 2.0]).unwrap().median, 2.0);
    }

    #[test]
    fn coverage_is_the_part_within() {
        assert_eq!(coverage([true, false, true, true]), Some(0.75));
        assert_eq!(coverage([]), None);
        assert_eq!(error_pct(3.0, 4.0, 0.1), 25.0);
    }

    #[test]
    fn a_window_without_a_packet_has_an_error() {
        assert_eq!(error_pct(3.0, 0.0, 0.5), 600.0);
        assert_eq!(error_pct(0.0, 0.0, 0.0), 0.0);
        assert_eq!(error_pct(0.1, 0.0, 0.0), f64::INFINITY);
    }

    #[test]
    fn a_band_pays_for_its_width_and_for_what_is_beyond_it() {
        assert_eq!(interval_score([2.0, 5.0], 3.0), 3.0);
        assert_eq!(interval_score([2.0, 5.0], 1.5), 13.0);
        assert_eq!(interval_score([2.0, 5.0], 6.0), 23.0);
        let bands = [([2.0, 5.0], 3.0), ([2.0, 5.0], 6.0), ([0.0, 0.0], 0.0)];
        let score = BandScore::of(bands).unwrap();
        assert!((score.coverage90 - 2.0 / 3.0).abs() < 1e-12);
        assert!((score.width_pct - 100.0 * 6.0 / 9.0).abs() < 1e-9);
        assert!((score.interval_score_pct - 100.0 * 26.0 / 9.0).abs() < 1e-9);
        assert_eq!(BandScore::of([([0.0, 1.0], 0.0)]), None);
    }

    /// Errors between 0 and `size`, each the same for `run` seconds.
    fn errors(seed: u64, count: usize, run: usize, size: f64) -> Vec<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut value = 0.0;
        let draw = |i: usize| {
            if i.is_multiple_of(run) {
                value = size * (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            }
            value
        };
        (0..count).map(draw).collect()
    }

    #[test]
    fn a_smaller_error_is_better_and_an_equal_one_level() {
        let (small, large) = (errors(1, 400, 1, 5.0), errors(2, 400, 1, 10.0));
        let ratio = Ratio::of(&small, &large, 1.0).unwrap();
        assert_eq!(ratio.verdict, Verdict::Better);
        assert!((ratio.error_ratio - 0.5).abs() < 0.1, "{ratio:?}");
        let [low, high] = ratio.interval95;
        assert!(low < ratio.error_ratio && ratio.error_ratio < high);
        let ratio = Ratio::of(&large, &small, 1.0).unwrap();
        assert_eq!(ratio.verdict, Verdict::Worse);
        let ratio = Ratio::of(&small, &small, 1.0).unwrap();
        assert_eq!((ratio.error_ratio, ratio.verdict), (1.0, Verdict::Level));
        // a thousandth of a per cent makes no difference
        let tiny = Ratio::of(&[1e-4; 400], &[1e-3; 400], 1.0).unwrap();
        assert_eq!((tiny.error_ratio, tiny.verdict), (1.0, Verdict::Level));
        assert_eq!(Ratio::of(&[f64::NAN], &[1.0], 1.0), None);
    }

    #[test]
    fn of_few_windows_there_is_no_verdict() {
        for count in [1, 6, 19] {
            let ratio = Ratio::of(&vec![2.0; count], &vec![1.0; count], 1.0).unwrap();
            assert_eq!((ratio.error_ratio, ratio.verdict), (2.0, Verdict::Level));
        }
        let ratio = Ratio::of(&[2.0; 20], &[1.0; 20], 1.0).unwrap();
        assert_eq!(ratio.verdict, Verdict::Worse);
    }

    #[test]
    fn of_errors_that_hang_together_few_are_known() {
        // as many windows, but 20 of them at a time are one: a ratio that is level must not be called otherwise
        let wide = |horizon_s: f64| {
            let one = Ratio::of(
                &errors(3, 400, 20, 1.0),
                &errors(4, 400, 20, 1.0),
                horizon_s,
            );
            let [low, high] = one.unwrap().interval95;
            high / low
        };
        assert!(wide(10.0) > 1.5 * wide(0.5), "{} {}", wide(10.0), wide(0.5));
        // level models are called level about as often as the interval says
        let level = (0..200).filter(|i| {
            let (one, other) = (errors(5 + i, 400, 10, 1.0), errors(1005 + i, 400, 10, 1.0));
            Ratio::of(&one, &other, 10.0).unwrap().verdict == Verdict::Level
        });
        assert!(level.count() >= 180);
    }

    #[test]
    fn the_best_by_hindsight_is_no_ablation() {
        let errors = [
            (Model::Pathcast, vec![2.0; 50]),
            (Model::FlatCurve, vec![1.0; 50]),
            (Model::Ewma, vec![4.0; 50]),
            (Model::WindowMean, vec![3.0; 50]),
            (Model::Econ, vec![f64::NAN; 50]),
        ];
        let skills = skills(&errors, 1.0);
        let said: Vec<_> = (skills.iter())
            .map(|skill| (skill.role, skill.opponent, skill.ratio.verdict))
            .collect();
        assert_eq!(
            said,
            [
                (Role::BestByHindsight, Model::WindowMean, Verdict::Better),
                (Role::FlatCurve, Model::FlatCurve, Verdict::Worse),
            ]
        );
    }
}
