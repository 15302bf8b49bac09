//! Loss curves of many clients, and that of a new one: from its prefix, its network, its region, all
//! (paper, section 4.1: clients are clustered, and a new one gets the mean or the median curve of the
//! cluster that it is closest to).
//!
//! Clients of a prefix are alike, those of a network less so, and so on. Each level's losses and packets
//! are smoothed over windows with the level above as the prior of a Gamma-Poisson model, so that a
//! level speaks as loudly as it has evidence: how far members of a level differ, and so how much the
//! level above is worth, is learned from the members there are (empirical Bayes, by moments).

mod prefix;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Serialize;
use thiserror::Error;

use crate::gamma::{BOUNDS, Gamma};
use crate::smoothing::{SHRINK, Scales};

pub use prefix::{Prefix, PrefixError};
pub use store::Stored;

/// Bins from one packet up to e^(120 * 0.1) = 160,000 packets.
const BINS: usize = 120;
/// The bins, a tenth of ln cwnd each.
static SCALES: LazyLock<Scales> = LazyLock::new(|| Scales::new(0.1, BINS));
/// Evidence counts 1/e after this long, seconds: a week, so that last week's same day still counts.
const MEMORY_S: f64 = 7.0 * 86_400.0;
/// Pseudo-losses by which a level counts in the one below, before that is learned, and its bounds.
const WORTH: f64 = 2.0;
const WORTH_RANGE: (f64, f64) = (0.3, 300.0);
/// Pseudo-losses by which the shape of a curve over windows counts in the level below.
const SHAPE_WORTH: f64 = 8.0;
/// Bandwidth at which a level's own shape is looked at, in bins, and how far that reaches.
const SHAPE_BINS: f64 = 2.5;
const SHAPE_REACH: usize = 8;
/// Clients kept, at most.
pub const CLIENTS: usize = 100_000;
/// Longest name of a network or region, bytes.
pub const NAME_BYTES: usize = 100;

/// Why clusters, or a question to them, were refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// An address or a prefix that is none.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// A name that is empty, too long, or has control characters.
    #[error("{what} is {got:?}, expected 1 to {NAME_BYTES} bytes without control characters")]
    BadName {
        /// `network` or `region`.
        what: &'static str,
        /// What was given, shortened.
        got: String,
    },
    /// Evidence that is none.
    #[error("{0}")]
    BadEvidence(String),
    /// One client too many.
    #[error("{CLIENTS} prefixes are kept, which is the most: remove some first")]
    Full,
    /// A prefix of which nothing is known.
    #[error("nothing is known of {0}")]
    Unknown(Prefix),
    /// A store that cannot be one.
    #[error("{0}")]
    BadStore(String),
}

/// Who a curve is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client {
    /// Its addresses.
    pub prefix: Prefix,
    /// Its network: the number of its autonomous system, or any label.
    pub network: Option<String>,
    /// Where it is.
    pub region: Option<String>,
}

/// How curves of one level are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pooling {
    /// All levels, each weighed by its evidence.
    #[default]
    Posterior,
    /// The mean curve of the clients of the closest level that has any (paper, section 4.1).
    Mean,
    /// The median curve of these.
    Median,
}

/// Which clients a level holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The longest prefix that the client is in.
    Prefix,
    /// Its network.
    Network,
    /// Its region.
    Region,
    /// Everyone.
    All,
}

/// What one level added.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelBasis {
    /// Which.
    pub level: Level,
    /// The prefix, network or region.
    pub name: String,
    /// Prefixes in it.
    pub prefixes: usize,
    /// Packets, weighed by age.
    pub packets: f64,
    /// Losses.
    pub losses: f64,
    /// Its part in the curve, over all windows seen: all levels' parts sum to 1.
    pub weight: f64,
}

/// The curve at one window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ClusterPoint {
    /// Window, packets.
    pub cwnd_packets: f64,
    /// Probability that a packet sent at it is lost.
    pub loss_probability: f64,
    /// It is below this with 5 % chance; with the mean or the median, the lowest of the clients'.
    pub low: f64,
    /// It is above this with 5 % chance; with the mean or the median, the highest of the clients'.
    pub high: f64,
}

/// The curve of a client, and what it rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClusterCurve {
    /// The closest level first.
    pub levels: Vec<LevelBasis>,
    /// Ascending by window, at the windows that any of the levels has seen.
    pub points: Vec<ClusterPoint>,
}

impl ClusterCurve {
    /// Probability that a packet sent at a window is lost: that of the nearest point. `None` without
    /// points.
    pub fn loss_probability(&self, cwnd_packets: f64) -> Option<f64> {
        let ln = cwnd_packets.max(1.0).ln();
        let off = |point: &&ClusterPoint| (point.cwnd_packets.ln() - ln).abs();
        let nearest = (self.points.iter()).min_by(|a, b| off(a).total_cmp(&off(b)))?;
        Some(nearest.loss_probability)
    }
}

/// Packets and losses by bin.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Counts(BTreeMap<u8, (f64, f64)>);

impl Counts {
    fn add(&mut self, other: &Self, factor: f64) {
        for (&bin, &(packets, losses)) in &other.0 {
            let count = self.0.entry(bin).or_default();
            count.0 += factor * packets;
            count.1 += factor * losses;
        }
    }

    fn totals(&self) -> (f64, f64) {
        (self.0.values()).fold((0.0, 0.0), |sum, count| (sum.0 + count.0, sum.1 + count.1))
    }

    fn at(&self, bin: usize) -> (f64, f64) {
        u8::try_from(bin)
            .ok()
            .and_then(|bin| self.0.get(&bin))
            .copied()
            .unwrap_or_default()
    }

    fn seen(&self) -> Option<(usize, usize)> {
        let first = self.0.keys().next()?;
        Some((
            usize::from(*first),
            usize::from(*self.0.keys().next_back()?),
        ))
    }
}

/// What is known of one prefix.
#[derive(Debug, Clone, PartialEq)]
struct Member {
    network: Option<String>,
    region: Option<String>,
    counts: Counts,
    updated_s: f64,
}

/// Curves of many clients.
///
/// ```
/// use pathcast_models::clusters::{Client, Clusters, Pooling};
/// let mut clusters = Clusters::default();
/// for (prefix, losses) in [("192.0.2.0/24", 30.0), ("198.51.100.0/24", 3.0)] {
///     let client = Client {
///         prefix: prefix.parse()?,
///         network: Some("AS64500".into()),
///         region: None,
///     };
///     clusters.add(&client, [(50.0, 1e5, losses)], 0.0)?;
/// }
/// let known = clusters.curve(Some("192.0.2.7".parse()?), None, None, 0.0, Pooling::Posterior);
/// let new = clusters.curve(None, Some("AS64500"), None, 0.0, Pooling::Posterior);
/// let p = |curve: &pathcast_models::clusters::ClusterCurve| curve.loss_probability(50.0).unwrap();
/// assert!(p(&known) > 2.5e-4 && p(&new) < 2.5e-4);
/// # Ok::<(), pathcast_models::clusters::ClusterError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Clusters {
    members: BTreeMap<Prefix, Member>,
}

impl Clusters {
    /// Adds evidence of a client: windows in packets, packets sent at them, losses met there; `now_s` is
    /// any clock that goes on, the same for all calls. A client that is known keeps its older evidence,
    /// weighed by age; its network and region are those given last.
    ///
    /// # Errors
    /// [`ClusterError`] on a name or evidence that is none, and when [`CLIENTS`] are kept; nothing is
    /// added then.
    pub fn add(
        &mut self,
        client: &Client,
        evidence: impl IntoIterator<Item = (f64, f64, f64)>,
        now_s: f64,
    ) -> Result<(), ClusterError> {
        check_name("network", client.network.as_deref())?;
        check_name("region", client.region.as_deref())?;
        let mut counts = Counts::default();
        for (cwnd, packets, losses) in evidence {
            let whole = cwnd.is_finite() && packets.is_finite() && losses.is_finite();
            if !(whole && cwnd > 0.0 && packets > 0.0 && losses >= 0.0) {
                let message = format!(
                    "evidence is {losses} losses in {packets} packets at a window of {cwnd}, expected \
                     finite numbers, window and packets > 0, losses >= 0"
                );
                return Err(ClusterError::BadEvidence(message));
            }
            #[allow(clippy::cast_possible_truncation)] // BINS < 256
            let count = counts.0.entry(SCALES.bin(cwnd) as u8).or_default();
            count.0 += packets;
            count.1 += losses;
        }
        if self.members.len() >= CLIENTS && !self.members.contains_key(&client.prefix) {
            return Err(ClusterError::Full);
        }
        let member = self.members.entry(client.prefix).or_insert_with(|| Member {
            network: None,
            region: None,
            counts: Counts::default(),
            updated_s: now_s,
        });
        let mut all = Counts::default();
        all.add(&member.counts, kept(member.updated_s, now_s));
        all.add(&counts, 1.0);
        member.counts = all;
        member.updated_s = member.updated_s.max(now_s);
        member.network.clone_from(&client.network);
        member.region.clone_from(&client.region);
        Ok(())
    }

    /// Takes a prefix and all its evidence away.
    ///
    /// # Errors
    /// [`ClusterError::Unknown`] if there is none.
    pub fn remove(&mut self, prefix: Prefix) -> Result<(), ClusterError> {
        let removed = self.members.remove(&prefix);
        removed.map(|_| ()).ok_or(ClusterError::Unknown(prefix))
    }

    /// Prefixes known.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The longest known prefix that holds all of this one. At most one look-up for each length.
    pub fn closest(&self, client: Prefix) -> Option<Prefix> {
        (0..=client.length())
            .rev()
            .map(|length| client.truncated(length))
            .find(|prefix| self.members.contains_key(prefix))
    }

    /// The curve of a client of which some is known: its address (or prefix), its network, its region.
    /// Network and region are those of the longest prefix that it is in, unless given.
    pub fn curve(
        &self,
        client: Option<Prefix>,
        network: Option<&str>,
        region: Option<&str>,
        now_s: f64,
        pooling: Pooling,
    ) -> ClusterCurve {
        let closest = client.and_then(|client| self.closest(client));
        let member = closest.and_then(|prefix| self.members.get(&prefix));
        let network = network.or(member.and_then(|member| member.network.as_deref()));
        let region = region.or(member.and_then(|member| member.region.as_deref()));
        let everyone = || self.members.iter();
        type Named<'a> = (Level, String, Vec<&'a Member>);
        let mut levels: Vec<Named<'_>> = vec![(
            Level::All,
            "all".into(),
            everyone().map(|(_, member)| member).collect(),
        )];
        let within = |chosen: &dyn Fn(&Member) -> bool| -> Vec<&Member> {
            everyone().map(|(_, m)| m).filter(|m| chosen(m)).collect()
        };
        if let Some(name) = region {
            let members = within(&|member| member.region.as_deref() == Some(name));
            levels.push((Level::Region, name.into(), members));
        }
        if let Some(name) = network {
            let members = within(&|member| member.network.as_deref() == Some(name));
            levels.push((Level::Network, name.into(), members));
        }
        if let (Some(prefix), Some(member)) = (closest, member) {
            levels.push((Level::Prefix, prefix.to_string(), vec![member]));
        }
        levels.retain(|level| !level.2.is_empty());
        match pooling {
            Pooling::Posterior => posterior(&levels, now_s),
            Pooling::Mean | Pooling::Median => of_the_closest(&levels, now_s, pooling),
        }
    }
}

/// Levels widest first, each with the next wider one as its prior.
fn posterior(levels: &[(Level, String, Vec<&Member>)], now_s: f64) -> ClusterCurve {
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
    // how much a level is worth to the one below: by how far its parts differ
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
    let (packets, losses) = counts[0].totals();
    let overall = (losses + SHRINK) / packets.max(1.0);
    // the widest level by itself: mean, and how well it is known as the shape of a gamma law
    let mut mean = vec![];
    let mut known = vec![];
    for bin in first..=last {
        let posterior = SCALES.posterior(|b| counts[0].at(b), (first, last), bin, overall);
        mean.push(posterior.mean());
        known.push(posterior.shape);
    }
    let mut weights = vec![1.0];
    for (level, worth) in counts.iter().zip([f64::NAN].iter().chain(&worths)).skip(1) {
        // how high it lies: its losses over those that the level above would have had
        let expected: f64 = (level.0.iter())
            .map(|(&bin, &(packets, _))| packets * mean[usize::from(bin) - first])
            .sum();
        let (_, losses) = level.totals();
        let height = (losses + worth) / (expected + worth);
        let trust = expected / (expected + worth);
        weights.iter_mut().for_each(|above| *above *= 1.0 - trust);
        weights.push(trust);
        // and its own shape, where it has losses enough to show one
        let local: Vec<(f64, f64)> = (first..=last)
            .map(|bin| {
                let near =
                    bin.saturating_sub(SHAPE_REACH).max(first)..=(bin + SHAPE_REACH).min(last);
                near.fold((0.0, 0.0), |sum, b| {
                    let off = bin.abs_diff(b) as f64 / SHAPE_BINS;
                    let kernel = (-0.5 * off * off).exp();
                    let (packets, losses) = level.at(b);
                    let expected = packets * mean[b - first] * height;
                    (sum.0 + kernel * losses, sum.1 + kernel * expected)
                })
            })
            .collect();
        for (i, (losses_near, expected_near)) in local.into_iter().enumerate() {
            mean[i] *= height * (losses_near + SHAPE_WORTH) / (expected_near + SHAPE_WORTH);
            // both factors are uncertain: relative variances add
            known[i] = 1.0 / (1.0 / (losses + worth) + 1.0 / (2.0 * (losses_near + SHAPE_WORTH)));
        }
    }
    // where the closest level is no prefix of the client, clients in it differ
    let of_others = levels.last().is_some_and(|level| level.0 != Level::Prefix);
    let spread = worths.last().copied().unwrap_or(WORTH);
    let points = (first..=last).map(|bin| {
        let (mean, known) = (mean[bin - first], known[bin - first]);
        let shape = if of_others {
            1.0 / (1.0 / known + 1.0 / spread)
        } else {
            known
        };
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
    });
    let points = points.collect();
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

/// A level's members in groups as the level below has them.
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

/// Pseudo-losses that a level is worth to a part of it: the shape of the gamma law of the parts' rates, by
/// its moments (variance of losses beyond Poisson's).
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
    // two parts tell little: as if two more lay as far apart as assumed
    let assumed = 2.0 * (losses / parts.len() as f64).powi(2);
    let variance = ((beyond.max(0.0) + assumed / WORTH) / (scale + assumed)).max(1e-9);
    (1.0 / variance).clamp(WORTH_RANGE.0, WORTH_RANGE.1)
}

/// The mean or the median of the smoothed curves of the closest level's prefixes.
fn of_the_closest(
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

/// What is left of evidence after a time.
fn kept(then_s: f64, now_s: f64) -> f64 {
    (-(now_s - then_s).max(0.0) / MEMORY_S).exp()
}

fn check_name(what: &'static str, name: Option<&str>) -> Result<(), ClusterError> {
    match name {
        Some(name)
            if name.is_empty() || name.len() > NAME_BYTES || name.chars().any(char::is_control) =>
        {
            let got = name.chars().take(40).collect();
            Err(ClusterError::BadName { what, got })
        }
        _ => Ok(()),
    }
}
