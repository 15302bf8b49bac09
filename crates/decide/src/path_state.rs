//! What is known of the path to a client when a decision is made, and what that rests on.

use serde::Serialize;

use crate::curve::{Counts, Points};
use crate::distribution::RateDistribution;
use crate::entry::Entry;
use crate::group::{Group, Members};

/// Levels of the quantiles that an answer carries.
pub const LEVELS: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];
/// Assumed of a path whose round-trip time is not known, seconds.
const ASSUMED_RTT_S: f64 = 0.1;

/// Where a flow did not fill its queue, the link may carry this many times its rate.
const LINK_FACTOR: f64 = 4.0;
/// A flow fills its queue if its median round-trip time is longer than the least by the second part, and leaves it empty if
/// by the first.
const FILLED: [f64; 2] = [0.05, 0.2];

/// Quantiles at [`LEVELS`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quantiles {
    /// 5 %.
    #[serde(rename = "0.05")]
    pub q05: f64,
    /// 25 %.
    #[serde(rename = "0.25")]
    pub q25: f64,
    /// The median.
    #[serde(rename = "0.5")]
    pub q50: f64,
    /// 75 %.
    #[serde(rename = "0.75")]
    pub q75: f64,
    /// 95 %.
    #[serde(rename = "0.95")]
    pub q95: f64,
}

impl From<[f64; 5]> for Quantiles {
    fn from([q05, q25, q50, q75, q95]: [f64; 5]) -> Self {
        Self {
            q05,
            q25,
            q50,
            q75,
            q95,
        }
    }
}

impl From<&RateDistribution> for Quantiles {
    fn from(rates: &RateDistribution) -> Self {
        LEVELS.map(|level| rates.quantile_bps(level)).into()
    }
}

impl Quantiles {
    /// Ascending.
    pub fn values(&self) -> [f64; 5] {
        [self.q05, self.q25, self.q50, self.q75, self.q95]
    }

    /// 5 %, median, 95 %.
    pub fn band(&self) -> [f64; 3] {
        [self.q05, self.q50, self.q95]
    }
}

/// Whose samples an answer rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BasisKind {
    /// The client's own prefix.
    Prefix,
    /// A wider prefix: the client is new.
    WiderPrefix,
    /// Its network.
    Network,
    /// Its region.
    Region,
    /// All clients.
    All,
}

/// What an answer rests on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Basis {
    /// Whose samples; none: the client's own prefix.
    pub group: Option<Group>,
    /// Their number: the rates in the sliding window.
    pub samples: usize,
    /// Age of the newest one, seconds.
    pub age_s: f64,
    /// The round-trip time is not known, and assumed.
    pub assumed_rtt: bool,
}

impl Basis {
    /// Whose samples.
    pub fn kind(&self) -> BasisKind {
        match self.group {
            None => BasisKind::Prefix,
            Some(Group::Prefix(_)) => BasisKind::WiderPrefix,
            Some(Group::Network(_)) => BasisKind::Network,
            Some(Group::Region(_)) => BasisKind::Region,
            Some(Group::All) => BasisKind::All,
        }
    }
}

/// What is known of a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathState {
    /// What it rests on.
    pub basis: Basis,
    /// The distribution of the mean rate over the horizon, bit/s of payload.
    pub rate: Option<RateDistribution>,
    /// Its quantiles.
    pub rates_bps: Option<Quantiles>,
    /// Round-trip time: its median, seconds.
    pub rtt_s: Option<f64>,
    /// The least round-trip time, seconds.
    pub least_rtt_s: Option<f64>,
    /// Loss events a packet, over all windows.
    pub loss: Option<f64>,
    /// The same at small windows: see [`crate::curve::Counts::base_loss`].
    pub base_loss: Option<f64>,
}

/// What is to be known of a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asked {
    /// The moment, seconds.
    pub now_s: f64,
    /// The sliding window, seconds.
    pub window_s: f64,
    /// Over which the mean rate is forecast, seconds.
    pub horizon_s: f64,
}

impl PathState {
    /// From a client's own samples; none if all are older than the sliding window.
    pub fn own(entry: &Entry, asked: &Asked) -> Option<Self> {
        let age_s = (asked.now_s - entry.newest_s).max(0.0);
        if age_s > asked.window_s {
            return None;
        }
        let newest_s = entry.rates.newest_s();
        let rates = newest_s
            .filter(|at_s| asked.now_s - at_s <= asked.window_s)
            .and_then(|_| entry.rates.forecast(asked.now_s, asked.horizon_s));
        let state = Self::of(rates, &entry.counts);
        Some(Self {
            basis: Basis {
                group: None,
                samples: entry.rates.len(),
                age_s,
                assumed_rtt: false,
            },
            rtt_s: entry.rtts.median_s(),
            least_rtt_s: entry.rtts.least_s(),
            ..state
        })
    }

    /// From the samples of a group.
    pub fn of_group(group: Group, members: &Members, asked: &Asked) -> Self {
        let from_s = asked.now_s - asked.window_s;
        let state = Self::of(members.rates(from_s), &members.counts);
        let rtt_s = members.rtt_s(from_s);
        Self {
            basis: Basis {
                group: Some(group),
                samples: members.len(from_s),
                age_s: (asked.now_s - members.newest_s).max(0.0),
                assumed_rtt: false,
            },
            rtt_s,
            least_rtt_s: rtt_s,
            ..state
        }
    }

    fn of(rate: Option<RateDistribution>, counts: &Counts) -> Self {
        let basis = Basis {
            group: None,
            samples: 0,
            age_s: 0.0,
            assumed_rtt: false,
        };
        Self {
            basis,
            rates_bps: rate.as_ref().map(Quantiles::from),
            rate,
            rtt_s: None,
            least_rtt_s: None,
            loss: counts.loss(),
            base_loss: counts.base_loss(),
        }
    }

    /// Whether it is enough for an answer: a rate, or, where rates are not needed, a round-trip time.
    pub fn answers(&self, needs_rate: bool) -> bool {
        self.rates_bps.is_some() || (!needs_rate && self.rtt_s.is_some())
    }

    /// Takes what it lacks from another state.
    pub fn fill(&mut self, other: &Self) {
        self.rtt_s = self.rtt_s.or(other.rtt_s);
        self.least_rtt_s = self.least_rtt_s.or(other.least_rtt_s);
        self.loss = self.loss.or(other.loss);
        self.base_loss = self.base_loss.or(other.base_loss);
    }

    /// The round-trip time; the usual one if it is not known, which the basis says then.
    pub fn rtt_or_assumed(&mut self) -> f64 {
        self.basis.assumed_rtt = self.rtt_s.is_none();
        *self.rtt_s.get_or_insert(ASSUMED_RTT_S)
    }

    /// How far the flows that were measured filled the link's queue, from 0 to 1, which shows in their round-trip times; 1 if
    /// these are not known.
    pub(crate) fn filled(&self) -> f64 {
        let (None, Some(median), Some(least)) = (self.basis.group, self.rtt_s, self.least_rtt_s)
        else {
            return 1.0;
        };
        let queued = median / least.max(1e-6) - 1.0;
        ((queued - FILLED[0]) / (FILLED[1] - FILLED[0])).clamp(0.0, 1.0)
    }

    /// How many times the measured rate the link may carry: 1 if the flows that were measured filled its queue, and up to 4
    /// if losses or senders limited them.
    pub fn headroom(&self) -> f64 {
        LINK_FACTOR.powf(1.0 - self.filled())
    }

    /// What a request takes of the time for its answer, seconds: the round trip in which a link carries nothing that was busy
    /// while its rate was measured. A flow that losses limit sends a window in each round trip, in the first one too, and its
    /// rate is that of such windows.
    pub fn request_s(&self) -> f64 {
        self.filled() * self.rtt_s.unwrap_or(0.0)
    }

    /// The curve of a path of which only the loss rate is known.
    pub fn flat_curve(&self) -> Points {
        vec![(1, vec![(1.0, self.base_loss.unwrap_or(0.0))])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_costs_a_round_trip_where_the_link_was_busy_and_none_where_losses_limit() {
        let filled = PathState {
            rtt_s: Some(0.2),
            least_rtt_s: Some(0.1),
            ..PathState::of(None, &Counts::default())
        };
        assert_eq!(filled.request_s(), 0.2);
        let empty = PathState {
            least_rtt_s: Some(0.195),
            ..filled
        };
        assert_eq!(empty.request_s(), 0.0);
        let unknown = PathState {
            least_rtt_s: None,
            ..filled
        };
        assert_eq!(unknown.request_s(), 0.2);
        let neither = PathState {
            rtt_s: None,
            ..filled
        };
        assert_eq!(neither.request_s(), 0.0);
    }
}
