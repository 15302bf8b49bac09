//! Loss curves of many clients, and estimates for a new one from its prefix, its network, its
//! region, and all clients. In the paper, a new client gets the mean or the median curve of the
//! closest cluster (section 4.1).
//!
//! Clients of one prefix resemble each other most, those of one network less, and so on. Each
//! level's losses and packets are smoothed over windows, with the level above as the prior of a
//! Gamma-Poisson model. So each level counts in proportion to its evidence. How much members of a
//! level differ is estimated from those members (empirical Bayes, by moments), and sets the weight
//! of the level above.

mod pooling;
mod prefix;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Serialize;
use thiserror::Error;

use crate::smoothing::Scales;

pub use prefix::{Prefix, PrefixError};
pub use store::Stored;

/// Bins from one packet up to e^(120 * 0.1) = 160,000 packets.
const BINS: usize = 120;
/// The bins, a tenth of ln cwnd each.
static SCALES: LazyLock<Scales> = LazyLock::new(|| Scales::new(0.1, BINS));
/// Time constant of forgetting, seconds: a week, so that last week's same day still counts.
const MEMORY_S: f64 = 7.0 * 86_400.0;
/// Most clients kept.
pub const CLIENTS: usize = 100_000;
/// Longest name of a network or region, bytes.
pub const NAME_BYTES: usize = 100;

/// Why clusters, or a query to them, were refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// An invalid address or prefix.
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
    /// Invalid evidence.
    #[error("{0}")]
    BadEvidence(String),
    /// The limit of clients is reached.
    #[error("{CLIENTS} prefixes are kept, which is the most: remove some first")]
    Full,
    /// An unknown prefix.
    #[error("nothing is known of {0}")]
    Unknown(Prefix),
    /// An invalid stored text.
    #[error("{0}")]
    BadStore(String),
}

/// The client that a curve describes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client {
    /// Its addresses.
    pub prefix: Prefix,
    /// Its network: the number of its autonomous system, or any label.
    pub network: Option<String>,
    /// Where it is.
    pub region: Option<String>,
}

/// How the curves of one level are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pooling {
    /// All levels, each weighted by its evidence.
    #[default]
    Posterior,
    /// The mean curve of the clients at the closest level that has any (paper, section 4.1).
    Mean,
    /// The median curve of those clients.
    Median,
}

/// The clients that a level holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The longest known prefix that contains the client.
    Prefix,
    /// Its network.
    Network,
    /// Its region.
    Region,
    /// Everyone.
    All,
}

/// The contribution of one level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelBasis {
    /// The level.
    pub level: Level,
    /// The prefix, network or region.
    pub name: String,
    /// Number of prefixes in it.
    pub prefixes: usize,
    /// Packets, weighed by age.
    pub packets: f64,
    /// Losses.
    pub losses: f64,
    /// Its share of the curve over all windows seen; the shares of all levels sum to 1.
    pub weight: f64,
}

/// The curve at one window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ClusterPoint {
    /// Window, packets.
    pub cwnd_packets: f64,
    /// Probability that a packet sent at it is lost.
    pub loss_probability: f64,
    /// 5 % quantile; with the mean or the median, the lowest of the clients' curves.
    pub low: f64,
    /// 95 % quantile; with the mean or the median, the highest of the clients' curves.
    pub high: f64,
}

/// The curve of a client, and its basis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClusterCurve {
    /// The closest level first.
    pub levels: Vec<LevelBasis>,
    /// Ascending by window, at the windows seen at any level.
    pub points: Vec<ClusterPoint>,
}

impl ClusterCurve {
    /// The loss probability of a packet sent at this window: that of the nearest point. `None`
    /// without points.
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

/// The evidence of one prefix.
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
/// use pathcast_analysis::clusters::{Client, Clusters, Pooling};
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
/// let p = |curve: &pathcast_analysis::clusters::ClusterCurve| curve.loss_probability(50.0).unwrap();
/// assert!(p(&known) > 2.5e-4 && p(&new) < 2.5e-4);
/// # Ok::<(), pathcast_analysis::clusters::ClusterError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Clusters {
    members: BTreeMap<Prefix, Member>,
}

impl Clusters {
    /// Adds evidence of a client: windows in packets, packets sent at them, losses there. `now_s`
    /// is any monotonic clock, the same for all calls. A known client keeps its older evidence,
    /// weighted by age; its network and region are replaced.
    ///
    /// # Errors
    /// [`ClusterError`] for an invalid name or evidence, or if [`CLIENTS`] are kept. Nothing is
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

    /// Removes a prefix and all its evidence.
    ///
    /// # Errors
    /// [`ClusterError::Unknown`] if the prefix is unknown.
    pub fn remove(&mut self, prefix: Prefix) -> Result<(), ClusterError> {
        let removed = self.members.remove(&prefix);
        removed.map(|_| ()).ok_or(ClusterError::Unknown(prefix))
    }

    /// Number of known prefixes.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether no prefix is known.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The longest known prefix that contains this one; at most one look-up for each length.
    pub fn closest(&self, client: Prefix) -> Option<Prefix> {
        (0..=client.length())
            .rev()
            .map(|length| client.truncated(length))
            .find(|prefix| self.members.contains_key(prefix))
    }

    /// The curve of a client, given any of its address (or prefix), network and region. Network and
    /// region default to those of the longest prefix that contains the address.
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
            Pooling::Posterior => pooling::posterior(&levels, now_s),
            Pooling::Mean | Pooling::Median => pooling::of_the_closest(&levels, now_s, pooling),
        }
    }
}

/// The weight of evidence after a time.
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
