//! Combines levels of clients into one curve.

use std::collections::BTreeMap;

use super::{
    BINS, ClusterCurve, ClusterPoint, Counts, Level, LevelBasis, Member, Pooling, SCALES, kept,
};
use crate::gamma::{BOUNDS, Gamma};
use crate::smoothing::SHRINK;

/// Pseudo-losses by which a level counts in the one below, before they are estimated, and their
/// bounds.
const WORTH: f64 = 2.0;
const WORTH_RANGE: (f64, f64) = (0.3, 300.0);
/// Pseudo-losses by which the shape of a curve counts in the level below.
const SHAPE_WORTH: f64 = 8.0;
/// Bandwidth of a level's own shape, in bins, and its reach.
const SHAPE_BINS: f64 = 2.5;
const SHAPE_REACH: usize = 8;

/// Combines levels, the widest first. Each level has the next wider one as its prior.
pub(super) fn posterior(levels: &[(Level, String, Vec<&Member>)], now_s: f64) -> ClusterCurve {
    let pooled = |members: &[&Member]| {
        let mut counts = Counts::default();
        for member in members {
            counts.add(&member.counts, kept(member.updated_s, now_s));
        }
        counts
    };
    let counts: Vec<Counts> = levels.iter().map(|level| pooled(&level.2)).collect();
    let Some((first, last)) = counts.first().and_then(Counts::seen) else {
        return ClusterCurve {
            levels: vec![],
            points: vec![],
        };
    };
    // how much a level counts in the one below depends on how much its parts differ
    let worths: Vec<f64> = (levels.iter().enumerate())
        .map(|(i, level)| {
            let parts = parts(
                level,
                levels.get(i + 1).map_or(Level::Prefix, |below| below.0),
            );
            worth(
                &parts
                    .iter()
                    .map(|part| pooled(part).totals())
                    .collect::<Vec<_>>(),
            )
        })
        .collect();
    let mut belief = Belief::of(&counts[0], (first, last));
    let mut weights = vec![1.0];
    for (level, &worth) in counts.iter().skip(1).zip(&worths) {
        let trust = belief.narrow(level, worth);
        weights.iter_mut().for_each(|above| *above *= 1.0 - trust);
        weights.push(trust);
    }
    // unless the closest level is the client's own prefix, clients in it differ
    let of_others = levels.last().is_some_and(|level| level.0 != Level::Prefix);
    let points = belief.points(of_others.then(|| worths.last().copied().unwrap_or(WORTH)));
    let sum: f64 = weights.iter().sum();
    let basis = |i: usize| {
        let (packets, losses) = counts[i].totals();
        LevelBasis {
            level: levels[i].0,
            name: levels[i].1.clone(),
            prefixes: levels[i].2.len(),
            packets,
            losses,
            weight: weights[i] / sum,
        }
    };
    ClusterCurve {
        levels: (0..levels.len()).rev().map(basis).collect(),
        points,
    }
}

/// The posterior of a curve in each bin: its mean, and its precision as the shape of a gamma law.
struct Belief {
    first: usize,
    last: usize,
    mean: Vec<f64>,
    known: Vec<f64>,
}

impl Belief {
    /// The posterior of the widest level alone.
    fn of(counts: &Counts, (first, last): (usize, usize)) -> Self {
        let (packets, losses) = counts.totals();
        let overall = (losses + SHRINK) / packets.max(1.0);
        let (mean, known) = (first..=last)
            .map(|bin| {
                let posterior = SCALES.posterior(|b| counts.at(b), (first, last), bin, overall);
                (posterior.mean(), posterior.shape)
            })
            .unzip();
        Self {
            first,
            last,
            mean,
            known,
        }
    }

    /// Narrows the posterior to a level within, and returns the weight of that level.
    fn narrow(&mut self, level: &Counts, worth: f64) -> f64 {
        let (first, last) = (self.first, self.last);
        // its height: its losses over those expected from the level above
        let expected: f64 = (level.0.iter())
            .map(|(&bin, &(packets, _))| packets * self.mean[usize::from(bin) - first])
            .sum();
        let (_, losses) = level.totals();
        let height = (losses + worth) / (expected + worth);
        // its own shape, where it has enough losses
        let local: Vec<(f64, f64)> = (first..=last)
            .map(|bin| {
                let near =
                    bin.saturating_sub(SHAPE_REACH).max(first)..=(bin + SHAPE_REACH).min(last);
                near.fold((0.0, 0.0), |sum, b| {
                    let off = bin.abs_diff(b) as f64 / SHAPE_BINS;
                    let kernel = (-0.5 * off * off).exp();
                    let (packets, losses) = level.at(b);
                    let expected = packets * self.mean[b - first] * height;
                    (sum.0 + kernel * losses, sum.1 + kernel * expected)
                })
            })
            .collect();
        for (i, (losses_near, expected_near)) in local.into_iter().enumerate() {
            self.mean[i] *= height * (losses_near + SHAPE_WORTH) / (expected_near + SHAPE_WORTH);
            // both factors are uncertain: relative variances add
            self.known[i] =
                1.0 / (1.0 / (losses + worth) + 1.0 / (2.0 * (losses_near + SHAPE_WORTH)));
        }
        expected / (expected + worth)
    }

    /// The points of a curve for a client that differs from the level by `spread`, if given.
    fn points(&self, spread: Option<f64>) -> Vec<ClusterPoint> {
        let known = self.mean.iter().zip(&self.known);
        (self.first..=self.last)
            .zip(known)
            .map(|(bin, (&mean, &known))| {
                let shape = spread.map_or(known, |spread| 1.0 / (1.0 / known + 1.0 / spread));
                let belief = Gamma {
                    shape,
                    rate: shape / mean,
                };
                ClusterPoint {
                    cwnd_packets: SCALES.cwnd_packets(bin),
                    loss_probability: mean.min(1.0),
                    low: belief.quantile(BOUNDS[0]).min(1.0),
                    high: belief.quantile(BOUNDS[1]).min(1.0),
                }
            })
            .collect()
    }
}

/// Groups a level's members as in the level below.
fn parts<'a>(level: &(Level, String, Vec<&'a Member>), below: Level) -> Vec<Vec<&'a Member>> {
    let mut groups: BTreeMap<Option<&str>, Vec<&Member>> = BTreeMap::new();
    let mut single = vec![];
    for &member in &level.2 {
        let name = match below {
            Level::Network => member.network.as_deref(),
            Level::Region => member.region.as_deref(),
            Level::Prefix | Level::All => None,
        };
        match name {
            Some(name) => groups.entry(Some(name)).or_default().push(member),
            None => single.push(vec![member]),
        }
    }
    groups.into_values().chain(single).collect()
}

/// Pseudo-losses by which a level counts in its parts: the shape of the gamma law of the parts'
/// rates. It is estimated by moments (variance of losses beyond Poisson's).
fn worth(parts: &[(f64, f64)]) -> f64 {
    let (packets, losses) = (parts.iter()).fold((0.0, 0.0), |s, p| (s.0 + p.0, s.1 + p.1));
    if parts.len() < 2 || losses <= 0.0 || packets <= 0.0 {
        return WORTH;
    }
    let rate = losses / packets;
    let (mut beyond, mut scale) = (0.0, 0.0);
    for &(packets, losses) in parts {
        let expected = packets * rate;
        beyond += (losses - expected).powi(2) - expected;
        scale += expected * expected;
    }
    // few parts give little information: add two that differ by the assumed amount
    let assumed = 2.0 * (losses / parts.len() as f64).powi(2);
    let variance = ((beyond.max(0.0) + assumed / WORTH) / (scale + assumed)).max(1e-9);
    (1.0 / variance).clamp(WORTH_RANGE.0, WORTH_RANGE.1)
}

/// The mean or the median of the smoothed curves of the prefixes in the closest level.
pub(super) fn of_the_closest(
    levels: &[(Level, String, Vec<&Member>)],
    now_s: f64,
    pooling: Pooling,
) -> ClusterCurve {
    let Some((level, name, members)) = levels.last() else {
        return ClusterCurve {
            levels: vec![],
            points: vec![],
        };
    };
    let mut totals = (0.0, 0.0);
    let mut curves = vec![];
    let (mut first, mut last) = (BINS, 0);
    for member in members {
        let mut counts = Counts::default();
        counts.add(&member.counts, kept(member.updated_s, now_s));
        let (packets, losses) = counts.totals();
        totals = (totals.0 + packets, totals.1 + losses);
        if let Some(seen) = counts.seen() {
            (first, last) = (first.min(seen.0), last.max(seen.1));
            curves.push((counts, seen, (losses + SHRINK) / packets.max(1.0)));
        }
    }
    let point = |bin: usize| {
        let mut values: Vec<f64> = (curves.iter())
            .map(|(counts, seen, overall)| {
                let at = bin.clamp(seen.0, seen.1);
                SCALES
                    .posterior(|b| counts.at(b), *seen, at, *overall)
                    .mean()
                    .min(1.0)
            })
            .collect();
        values.sort_by(f64::total_cmp);
        let loss_probability = if pooling == Pooling::Mean {
            values.iter().sum::<f64>() / values.len() as f64
        } else {
            crate::rtt::median(values.clone())
        };
        ClusterPoint {
            cwnd_packets: SCALES.cwnd_packets(bin),
            loss_probability,
            low: values[0],
            high: values[values.len() - 1],
        }
    };
    ClusterCurve {
        levels: vec![LevelBasis {
            level: *level,
            name: name.clone(),
            prefixes: members.len(),
            packets: totals.0,
            losses: totals.1,
            weight: 1.0,
        }],
        points: if curves.is_empty() {
            vec![]
        } else {
            (first..=last).map(point).collect()
        },
    }
}
