//! The loss curve p(cwnd, npc) of one path, online: in a sliding window, O(1) a record, a few KB
//! (paper, sections 3.2 and 4.1).
//!
//! [`OnlineCurve`] takes packets and losses at a window and provides p(cwnd) with bounds at any
//! time. [`CurveFeed`] derives them from one flow's records. Flows of the same path share one
//! curve. A stored curve is exact to the bit, so a restarted service continues where it stopped.

mod counts;
mod feed;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::gamma::{BOUNDS, Gamma};
use crate::smoothing::{SHRINK, Scales};
use counts::{BINS, Counts, SLOTS, StoredCounts, bin};

pub use feed::{CurveFeed, Fed, FlowRecord};

/// Default length of the sliding window, seconds: the training window of the paper's section 5.1.
pub const WINDOW_S: f64 = 100.0;
/// Numbers of parallel connections that are distinguished at the same time. A further one replaces
/// the least recently seen.
pub const NPCS: usize = 4;

/// The bins, a twentieth of ln cwnd each.
static SCALES: LazyLock<Scales> = LazyLock::new(|| Scales::new(0.05, BINS));

/// Why a curve was refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum CurveError {
    /// An invalid length of the sliding window.
    #[error("window is {got} s, must be a finite number > 0")]
    BadWindow {
        /// The given value, seconds.
        got: f64,
    },
    /// An invalid stored curve.
    #[error("stored curve: {0}")]
    BadStore(String),
}

/// How windows of flows with other numbers of parallel connections map to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Across {
    /// The same window of each connection, for losses that do not depend on the load.
    SameWindow,
    /// The same total window of all connections, for losses of a queue that they fill together.
    #[default]
    SameTotal,
}

/// The evidence of an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CurveSource {
    /// Losses seen with the same number of connections.
    Own,
    /// No loss or no packet was seen with this number of connections: the evidence is that of
    /// others.
    OtherNpc,
    /// No loss was seen at all.
    NoLoss,
}

/// The loss probability at one window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurveEstimate {
    /// Window, packets.
    pub cwnd_packets: f64,
    /// Loss probability of a packet sent at it: the posterior mean. Without any loss, `ln 2 /
    /// packets`, as in [`crate::LossCurve`].
    pub loss_probability: f64,
    /// 5 % quantile.
    pub low: f64,
    /// 95 % quantile. Without any loss, `3 / packets` (rule of three).
    pub high: f64,
    /// Packets that count as evidence for this window; those at nearby windows have less weight.
    pub packets: f64,
    /// Losses that count as evidence for it, without pseudo-losses.
    pub losses: f64,
    /// The evidence of the estimate.
    pub source: CurveSource,
}

/// The evidence of a curve, for one number of parallel connections.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurveBasis {
    /// Parallel connections.
    pub npc: u32,
    /// Packets in the sliding window.
    pub packets: f64,
    /// Losses in it.
    pub losses: u32,
    /// Without losses: the probability that is exceeded with 5 % chance, 3 / packets.
    pub upper_bound: Option<f64>,
}

/// p(cwnd, npc) over a sliding window.
///
/// A record costs O(1): one addition, and once in a tenth of the window a pass over 624 cells.
/// Memory is [`OnlineCurve::memory_bytes`]: 6.4 KB for each number of connections, however many
/// packets come. The window slides by tenths, so forgotten records are between one and 1.1 windows
/// old.
///
/// ```
/// use pathcast_analysis::online_curve::OnlineCurve;
/// let mut curve = OnlineCurve::new(100.0)?;
/// for second in 0..60 {
///     curve.sent(f64::from(second), 50.0, 1, 1000.0);
/// }
/// curve.lost(59.5, 50.0, 1);
/// let seen = curve.at(50.0, 1).expect("packets were seen");
/// assert!(seen.low < 1.0 / 60_000.0 && 1.0 / 60_000.0 < seen.high);
/// curve.sent(300.0, 50.0, 1, 1000.0); // all else is forgotten
/// assert_eq!(curve.basis(1).map(|basis| basis.packets), Some(1000.0));
/// # Ok::<(), pathcast_analysis::online_curve::CurveError>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct OnlineCurve {
    window_s: f64,
    across: Across,
    /// By npc, the most recently used first.
    curves: Vec<(u32, Counts)>,
    slot: Option<i64>,
}

impl OnlineCurve {
    /// An empty curve over the last `window_s` seconds.
    ///
    /// # Errors
    /// [`CurveError::BadWindow`] if `window_s` is not a positive time.
    pub fn new(window_s: f64) -> Result<Self, CurveError> {
        if !(window_s.is_finite() && window_s > 0.0) {
            return Err(CurveError::BadWindow { got: window_s });
        }
        Ok(Self {
            window_s,
            across: Across::default(),
            curves: Vec::with_capacity(NPCS),
            slot: None,
        })
    }

    /// The same curve, with another mapping between numbers of connections.
    #[must_use]
    pub fn across(mut self, across: Across) -> Self {
        self.across = across;
        self
    }

    /// Bytes of memory, including the heap.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.curves.len() * (Counts::memory_bytes() + size_of::<u32>())
    }

    /// Takes `packets` sent at a window by one of `npc` connections. An earlier time than the
    /// newest counts as the newest. A time more than a window earlier means that the clock was set
    /// back, and resets the curve. Numbers that are not finite or not positive are ignored.
    pub fn sent(&mut self, time_s: f64, cwnd_packets: f64, npc: u32, packets: f64) {
        // limit: 1e6 packets in one record are 1.5 GB
        let finite = time_s.is_finite() && cwnd_packets.is_finite() && packets.is_finite();
        if finite && packets > 0.0 {
            self.of(time_s, npc)
                .sent(bin(cwnd_packets), packets.min(1e6));
        }
    }

    /// Takes a loss event at a window of one of `npc` connections.
    pub fn lost(&mut self, time_s: f64, cwnd_packets: f64, npc: u32) {
        if time_s.is_finite() && cwnd_packets.is_finite() {
            self.of(time_s, npc).lost(bin(cwnd_packets));
        }
    }

    /// Withdraws the newest loss event at a window, which proved spurious.
    pub fn not_lost(&mut self, time_s: f64, cwnd_packets: f64, npc: u32) {
        if time_s.is_finite() && cwnd_packets.is_finite() {
            self.of(time_s, npc).not_lost(bin(cwnd_packets));
        }
    }

    /// Forgets everything before `time_s`, to a tenth of the sliding window. For use after a change
    /// of the path ([`crate::change`]).
    pub fn forget_before(&mut self, time_s: f64) {
        let slot = self.slot_of(time_s);
        for (_, counts) in &mut self.curves {
            counts.forget_before(slot);
        }
    }

    /// p(cwnd, npc) with its bounds; `None` before the first packet.
    ///
    /// The prior is half a pseudo-loss at the rate of flows with other numbers of connections
    /// ([`Across`]), or else at the whole curve's mean. The bounds are 5 and 95 % quantiles as in
    /// Garwood (1936: one event more above), after smoothing.
    pub fn at(&self, cwnd_packets: f64, npc: u32) -> Option<CurveEstimate> {
        let own = self.curves.iter().find(|curve| curve.0 == npc);
        let own = own.map(|curve| &curve.1).filter(|own| own.packets() > 0.0);
        let all_packets: f64 = self.curves.iter().map(|curve| curve.1.packets()).sum();
        let all_losses: u32 = self.curves.iter().map(|curve| curve.1.losses()).sum();
        if all_packets <= 0.0 {
            return None;
        }
        if all_losses == 0 {
            let packets = own.map_or(all_packets, Counts::packets).max(1.0);
            return Some(CurveEstimate {
                cwnd_packets,
                loss_probability: (std::f64::consts::LN_2 / packets).min(1.0),
                low: 0.0,
                high: (3.0 / packets).min(1.0),
                packets,
                losses: 0.0,
                source: CurveSource::NoLoss,
            });
        }
        let b = bin(cwnd_packets);
        let others = self.others(npc, b);
        let posterior = match own {
            None => others?,
            Some(own) => {
                let overall = (f64::from(own.losses()) + SHRINK) / own.packets().max(1.0);
                let prior = others.map_or(overall, Gamma::mean);
                let seen = own.seen()?;
                // outside the range seen the edge value applies, unless flows with other npc were
                // there
                let b = if others.is_some() {
                    b
                } else {
                    b.clamp(seen.0, seen.1)
                };
                SCALES.posterior(|c| own.at(c), seen, b, prior)
            }
        };
        let above = Gamma {
            shape: posterior.shape + SHRINK,
            ..posterior
        };
        let mean = posterior.mean();
        let losses = posterior.shape - SHRINK;
        Some(CurveEstimate {
            cwnd_packets,
            loss_probability: mean.min(1.0),
            low: posterior.quantile(BOUNDS[0]).min(1.0),
            high: above.quantile(BOUNDS[1]).min(1.0),
            packets: posterior.rate,
            losses,
            source: if own.is_some_and(|own| own.losses() > 0) {
                CurveSource::Own
            } else {
                CurveSource::OtherNpc
            },
        })
    }

    /// The evidence for each number of connections, the most recently used first.
    pub fn bases(&self) -> Vec<CurveBasis> {
        let basis = |&(npc, ref counts): &(u32, Counts)| CurveBasis {
            npc,
            packets: counts.packets(),
            losses: counts.losses(),
            upper_bound: (counts.losses() == 0 && counts.packets() > 0.0)
                .then(|| (3.0 / counts.packets().max(1.0)).min(1.0)),
        };
        self.curves.iter().map(basis).collect()
    }

    /// The evidence for one number of connections.
    pub fn basis(&self, npc: u32) -> Option<CurveBasis> {
        self.bases().into_iter().find(|basis| basis.npc == npc)
    }

    /// The counts of the curve by window: window in packets, packets sent, losses. For
    /// [`crate::clusters`].
    pub fn counted(&self, npc: u32) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        let counts = self.curves.iter().find(|curve| curve.0 == npc);
        counts.into_iter().flat_map(|(_, counts)| {
            (0..BINS)
                .map(|b| (SCALES.cwnd_packets(b), counts.at(b).0, counts.at(b).1))
                .filter(|&(_, packets, _)| packets > 0.0)
        })
    }

    /// The evidence of flows with other numbers of connections for a bin.
    fn others(&self, npc: u32, b: usize) -> Option<Gamma> {
        // offset in bins of the other flows' windows
        #[allow(clippy::cast_possible_truncation)] // at most 22 / 0.05
        let shift = |other: u32| match self.across {
            Across::SameWindow => 0,
            Across::SameTotal => {
                let ratio = f64::from(npc.max(1)) / f64::from(other.max(1));
                (ratio.ln() * 20.0).round() as isize
            }
        };
        let others: Vec<(&Counts, isize)> = (self.curves.iter())
            .filter(|(other, counts)| *other != npc && counts.packets() > 0.0)
            .map(|(other, counts)| (counts, shift(*other)))
            .collect();
        let losses: u32 = others.iter().map(|other| other.0.losses()).sum();
        let packets: f64 = others.iter().map(|other| other.0.packets()).sum();
        let back = |c: usize, shift: isize| c.saturating_add_signed(-shift).min(BINS - 1);
        let seen = others.iter().filter_map(|&(counts, shift)| {
            let (first, last) = counts.seen()?;
            Some((back(first, shift), back(last, shift)))
        });
        let seen = seen.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        let counts = |c: usize| {
            others.iter().fold((0.0, 0.0), |sum, &(counts, shift)| {
                match c.checked_add_signed(shift).filter(|&c| c < BINS) {
                    Some(c) => (sum.0 + counts.at(c).0, sum.1 + counts.at(c).1),
                    None => sum,
                }
            })
        };
        let overall = (f64::from(losses) + SHRINK) / packets.max(1.0);
        Some(SCALES.posterior(counts, seen, b.clamp(seen.0, seen.1), overall))
    }

    fn slot_of(&self, time_s: f64) -> i64 {
        #[allow(clippy::cast_possible_truncation)] // saturates
        let slot = (time_s / self.window_s * SLOTS as f64).floor() as i64;
        slot
    }

    /// The counts of one npc, updated to a time.
    fn of(&mut self, time_s: f64, npc: u32) -> &mut Counts {
        let slot = self.slot_of(time_s);
        if self
            .slot
            .is_some_and(|newest| slot < newest.saturating_sub(SLOTS))
        {
            self.curves.clear();
            self.slot = None;
        }
        if self.slot.is_none_or(|newest| slot > newest) {
            self.slot = Some(slot);
            for (_, counts) in &mut self.curves {
                counts.go_on(slot);
            }
        }
        match self.curves.iter().position(|curve| curve.0 == npc) {
            Some(at) => self.curves[..=at].rotate_right(1),
            None => {
                let fresh = Counts::new(self.slot.unwrap_or(slot));
                if self.curves.len() == NPCS {
                    self.curves.pop();
                }
                self.curves.insert(0, (npc, fresh));
            }
        }
        &mut self.curves[0].1
    }
}

/// The stored form of a curve: its non-empty cells.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    window_s: f64,
    across: Across,
    curves: Vec<StoredCounts>,
}

impl From<OnlineCurve> for Stored {
    fn from(curve: OnlineCurve) -> Self {
        let slot = curve.slot.unwrap_or(0);
        Self {
            window_s: curve.window_s,
            across: curve.across,
            curves: (curve.curves.iter())
                .map(|(npc, counts)| StoredCounts {
                    npc: *npc,
                    slot,
                    cells: counts.store(),
                })
                .collect(),
        }
    }
}

impl TryFrom<Stored> for OnlineCurve {
    type Error = CurveError;

    fn try_from(stored: Stored) -> Result<Self, CurveError> {
        let mut curve = Self::new(stored.window_s)?.across(stored.across);
        if stored.curves.len() > NPCS {
            let got = stored.curves.len();
            let message = format!("{got} numbers of connections, expected at most {NPCS}");
            return Err(CurveError::BadStore(message));
        }
        for part in &stored.curves {
            if part.slot != stored.curves[0].slot
                || curve.curves.iter().any(|seen| seen.0 == part.npc)
            {
                let message = format!("npc {} twice, or of another time", part.npc);
                return Err(CurveError::BadStore(message));
            }
            let counts = Counts::restore(part.slot, &part.cells).map_err(CurveError::BadStore)?;
            curve.curves.push((part.npc, counts));
        }
        curve.slot = stored.curves.first().map(|part| part.slot);
        Ok(curve)
    }
}
