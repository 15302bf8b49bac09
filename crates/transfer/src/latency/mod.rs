//! The time that a transfer of a given size takes, as a distribution.
//!
//! A flow without losses is a known function of time: rounds of slow start, then congestion avoidance,
//! never faster than the link (`walk`). Each packet may be the first to be lost; the rest then takes a time
//! whose mean and variance obey a renewal equation over (window at the loss) x (packets left)
//! (`after_loss`). The mixture over the first lost packet, with the extra cost of a lost last packet, gives
//! the quantiles (`mixture`). There is no simulation and no randomness.
//!
//! The paper's method, `RTT x N / B` with `B` from a model of the rate (section 4.2), and others of the
//! literature are in [`literature`]. [`LatencyForecaster`] learns the path from a running flow, and
//! [`evaluate`] judges all of them on a trace.

pub mod evaluate;
pub mod literature;

mod after_loss;
mod avoidance;
mod learned;
mod long_run;
mod mixture;
mod walk;

use serde::Serialize;
use thiserror::Error;

use pathcast_analysis::epochs::FlowState;
use pathcast_analysis::hazard::Hazard;
use pathcast_analysis::loss_curve::LossCurve;
use pathcast_forecast::types::{ForecastError, QUANTILES};
use pathcast_window_law::Cc;

pub use evaluate::{LatencyEvaluation, LatencyOptions, evaluate_latency};
pub use learned::LatencyForecaster;
pub use long_run::long_run_packets_per_s;

use after_loss::AfterLoss;
use mixture::{Mixture, Piece};

/// The least retransmission timeout beyond a round trip, seconds (Linux's `TCP_RTO_MIN`).
pub const RTO_MIN_S: f64 = 0.2;
/// The timeout of a first SYN, seconds (RFC 6298, section 2).
pub const SYN_TIMEOUT_S: f64 = 1.0;
/// First window, packets (RFC 6928).
pub const INITIAL_WINDOW: f64 = 10.0;
/// The most that one transfer may have, packets: 15 TB.
pub const MAX_PACKETS: f64 = 1e10;

/// The chance that a packet begins a loss event.
#[derive(Debug, Clone, Copy)]
pub enum Loss<'a> {
    /// The same at every window, 0 to 1.
    Constant(f64),
    /// The paper's curve; for parallel connections, that of their number.
    Curve(&'a LossCurve),
    /// The smoothed curve of a [`pathcast_forecast::Forecaster`].
    Hazard(&'a Hazard),
}

impl Loss<'_> {
    fn at(&self, cwnd_packets: f64) -> f64 {
        let p = match self {
            Self::Constant(p) => *p,
            Self::Curve(curve) => curve.loss_probability(cwnd_packets),
            Self::Hazard(hazard) => hazard.base(cwnd_packets),
        };
        p.clamp(0.0, 1.0)
    }
}

/// What is known about a path and its TCP.
#[derive(Debug, Clone, Copy)]
pub struct LatencyPath<'a> {
    /// Window law.
    pub cc: Cc,
    /// Round-trip time of the empty path, seconds, > 0.
    pub rtt_s: f64,
    /// Chance of losses that are not the queue's.
    pub loss: Loss<'a>,
    /// What the link carries, full packets/s, > 0; infinite if unknown.
    pub capacity_packets_per_s: f64,
    /// What may wait before the link, packets, >= 1; infinite if nothing is dropped there.
    pub buffer_packets: f64,
    /// The receive window, packets, >= 1; infinite if it is never in the way.
    pub max_window_packets: f64,
    /// Whether slow start ends as soon as the round trip grows (HyStart; Linux's CUBIC has it).
    pub hystart: bool,
}

impl LatencyPath<'_> {
    /// The window at which the link is busy all the time, packets.
    fn bdp(&self) -> f64 {
        self.capacity_packets_per_s * self.rtt_s
    }

    /// The window that overflows the queue, packets.
    fn full(&self) -> f64 {
        self.bdp() + self.buffer_packets
    }

    /// Loss events a packet at a window, in logarithms: `-ln(1 - p)`.
    fn hazard(&self, window: f64) -> f64 {
        let p = self.loss.at(window);
        if p < 0.01 {
            // ln's series is quicker, and exact to 3e-7 here
            p * (1.0 + p * (0.5 + p / 3.0))
        } else {
            -(-p).ln_1p().max(-50.0)
        }
    }

    /// Round-trip time at a window, with the queue that it makes, seconds.
    fn rtt_at(&self, window: f64) -> f64 {
        (window.min(self.full()) / self.capacity_packets_per_s).max(self.rtt_s)
    }
}

/// How a connection begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Opening {
    /// First window, packets, >= 1.
    pub initial_window_packets: f64,
    /// Round trips before the request can be sent: 0 on an open connection, 1 for TCP, one more for
    /// TLS 1.3, two more for TLS 1.2.
    pub handshake_round_trips: f64,
    /// What the server takes to begin its answer, seconds.
    pub think_s: f64,
}

impl Default for Opening {
    fn default() -> Self {
        Self {
            initial_window_packets: INITIAL_WINDOW,
            handshake_round_trips: 1.0,
            think_s: 0.0,
        }
    }
}

/// Where the flow stands when the transfer begins.
#[derive(Debug, Clone, Copy)]
pub enum Start<'a> {
    /// A new connection, or one that has sent nothing yet.
    New(Opening),
    /// A running flow whose state is known at `now_s`.
    MidFlow {
        /// Its state, as [`pathcast_analysis::EpochDetector`] has it.
        state: &'a FlowState,
        /// The moment, in the state's seconds.
        now_s: f64,
    },
}

/// When the time is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// The last byte has left the bottleneck; from the first that is sent. As growth of `snd_nxt`
    /// over time counts it.
    Sent,
    /// The last byte has arrived: half a round trip more.
    Arrived,
    /// From the request to the last byte of its answer, or from the first byte sent to the last
    /// acknowledgment: a round trip more than [`Until::Sent`].
    Answered,
}

/// What is transferred.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// Bytes in all.
    pub bytes: u64,
    /// Payload of a full packet, bytes.
    pub mss_bytes: u32,
    /// Connections that share the bytes in equal parts; all have to be done.
    pub connections: u32,
    /// When the time is up.
    pub until: Until,
}

impl Transfer {
    /// One connection, packets of 1448 bytes, from the request to the end of its answer.
    pub fn of(bytes: u64) -> Self {
        Self {
            bytes,
            mss_bytes: 1448,
            connections: 1,
            until: Until::Answered,
        }
    }
}

/// How long a transfer takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Bytes in all.
    pub bytes: u64,
    /// Mean, seconds.
    pub mean_s: f64,
    /// Quantiles at the levels of [`QUANTILES`], seconds, never decreasing.
    pub quantiles_s: [f64; QUANTILES.len()],
    /// How likely it is that no packet of it is lost by chance.
    pub no_loss_probability: f64,
}

impl Latency {
    /// The one number to use: the median, seconds.
    pub fn point_s(&self) -> f64 {
        self.quantiles_s[QUANTILES.len() / 2]
    }
}

/// Why a latency was refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum LatencyError {
    /// A number outside its range.
    #[error("{what} is {got}, expected {wanted}")]
    OutOfRange {
        /// Which.
        what: &'static str,
        /// What was given.
        got: f64,
        /// What would do.
        wanted: &'static str,
    },
    /// A flow of which nothing is known yet.
    #[error(transparent)]
    Forecast(#[from] ForecastError),
}

/// The time that a transfer takes: a distribution.
///
/// Exact for the process described in the module, with two exceptions. Rounds of congestion avoidance
/// beyond the 40th are a fluid. The time after a first loss is known by mean and variance on a grid:
/// compared with simulations of the process on many kinds of paths (a test), means agree within 8 %,
/// medians within 10 %, and most of both within 3 %.
///
/// ```
/// use pathcast_transfer::latency::{LatencyPath, Loss, Opening, Start, Transfer, latency};
/// let path = LatencyPath {
///     rtt_s: 0.1,
///     ..LatencyPath::unlimited(pathcast_window_law::Cc::Cubic)
/// };
/// // 10 + 20 + 40 packets after a handshake: four round trips
/// let open = Opening::default();
/// let time = latency(&path, Start::New(open), &Transfer::of(70 * 1448))?;
/// assert!((time.point_s() - 0.4).abs() < 1e-9);
/// # Ok::<(), pathcast_transfer::latency::LatencyError>(())
/// ```
///
/// # Errors
/// [`LatencyError::OutOfRange`] names the number that is outside its range.
pub fn latency(
    path: &LatencyPath<'_>,
    start: Start<'_>,
    transfer: &Transfer,
) -> Result<Latency, LatencyError> {
    check(path, start, transfer)?;
    let n = f64::from(transfer.connections);
    // each connection has its share of the bytes, the link and its queue
    let share = LatencyPath {
        capacity_packets_per_s: path.capacity_packets_per_s / n,
        buffer_packets: (path.buffer_packets / n).max(1.0),
        ..*path
    };
    let bytes = transfer.bytes as f64 / n;
    let mss = f64::from(transfer.mss_bytes);
    let packets = (bytes / mss).ceil().max(1.0);
    // the last packet may be short: it takes the less on the link
    let short_s = (1.0 - (bytes / mss - (packets - 1.0)).clamp(0.0, 1.0))
        / path.capacity_packets_per_s
        * HEADERLESS;
    let mixture = one(&share, start, packets);
    let p = share.loss.at(INITIAL_WINDOW);
    let mut fixed_s = match transfer.until {
        Until::Sent => 0.0,
        Until::Arrived => 0.5 * path.rtt_s,
        Until::Answered => path.rtt_s,
    };
    let mut handshake_loss = 0.0;
    if let Start::New(opening) = start {
        fixed_s += opening.handshake_round_trips * path.rtt_s + opening.think_s;
        if opening.handshake_round_trips > 0.0 {
            handshake_loss = p;
        }
    }
    let fixed_s = fixed_s - short_s;
    let distribution = mixture.delayed(&[(handshake_loss, SYN_TIMEOUT_S)]);
    let (mean, quantiles) = distribution.summary(n);
    Ok(Latency {
        bytes: transfer.bytes,
        mean_s: mean + fixed_s,
        quantiles_s: quantiles.map(|q| q + fixed_s),
        no_loss_probability: distribution.no_loss.powf(n),
    })
}

/// The part of a full packet's time on the link that its payload takes: 1448 of 1500 bytes.
const HEADERLESS: f64 = 1448.0 / 1500.0;

impl LatencyPath<'_> {
    /// A path of 100 ms without limits, to which known values are added.
    pub fn unlimited(cc: Cc) -> Self {
        Self {
            cc,
            rtt_s: 0.1,
            loss: Loss::Constant(0.0),
            capacity_packets_per_s: f64::INFINITY,
            buffer_packets: f64::INFINITY,
            max_window_packets: f64::INFINITY,
            hystart: cc == Cc::Cubic,
        }
    }
}

/// One connection: the time in which its packets leave the bottleneck, the last three never lost; and
/// the window when the last is sent.
fn but_for_the_last(path: &LatencyPath<'_>, start: Start<'_>, packets: f64) -> (Mixture, f64) {
    let cells = match start {
        Start::New(opening) => walk::opening(path, opening.initial_window_packets, packets),
        Start::MidFlow { state, now_s } => walk::mid_flow(path, state, now_s, packets),
    };
    let end_s = walk::time_of(&cells, packets);
    let ordinary = (packets - LAST).max(0.0);
    let hazards: Vec<f64> = (cells.iter())
        .map(|cell| path.hazard(cell.window))
        .collect();
    let after = AfterFirst {
        path,
        table: AfterLoss::new(path, &cells, &hazards, packets),
        packets,
        end_s,
        reached: !cells.iter().any(|cell| cell.overflows),
        clumped: matches!(start, Start::New(_)),
    };
    let mut pieces = Vec::with_capacity(cells.len() + 1);
    let (mut survival, mut sent, mut by_chance) = (1.0, 0.0, 1.0);
    for (cell, hazard) in cells.iter().zip(&hazards) {
        let inside = (ordinary - sent).min(cell.packets).max(0.0);
        if inside > 0.0 && *hazard > 0.0 {
            let lost = survival * -(-hazard * inside).exp_m1();
            let at = sent + 0.5 * inside;
            let when_s = cell.at(0.5 * inside);
            after.push(&mut pieces, (lost, at, when_s, cell.at_loss));
            survival -= lost;
            by_chance *= (-hazard * inside).exp();
        }
        sent += cell.packets;
        if cell.overflows && sent < packets {
            after.push(&mut pieces, (survival, sent, cell.end_s, cell.at_loss));
            survival = 0.0;
            by_chance *= (-path.hazard(cell.at_loss) * (packets - sent)).exp();
        }
        if survival < 1e-9 {
            break;
        }
    }
    pieces.push(Piece::certain(survival, end_s));
    let last_window = walk::window_at(&cells, packets);
    (Mixture::new(&pieces, by_chance), last_window)
}

/// One connection: the time in which its packets leave the bottleneck.
fn one(path: &LatencyPath<'_>, start: Start<'_>, packets: f64) -> Mixture {
    let (mixture, last_window) = but_for_the_last(path, start, packets);
    let p = path.loss.at(last_window);
    let rto_s = match start {
        // RTTVAR begins at half the first RTT (RFC 6298) and has not come down yet
        Start::New(_) => (path.rtt_s + RTO_MIN_S).max(3.0 * path.rtt_s),
        Start::MidFlow { .. } => path.rtt_s + RTO_MIN_S,
    };
    let last_s = if packets <= 1.0 {
        (2.0 * path.rtt_s + RTO_MIN_S).min(rto_s)
    } else {
        // the acknowledgment of those before it, then a probe after two round trips (RFC 8985)
        (3.0 * path.rtt_s).min(rto_s)
    };
    // one or two packets after the lost one: noticed a quarter of a round trip late
    let near_last = (packets - 1.0).clamp(0.0, LAST - 1.0);
    let near = -(near_last * (-p).ln_1p()).exp_m1();
    mixture.delayed(&[(p, last_s), (near * (1.0 - p), 1.25 * path.rtt_s)])
}

/// Packets at the end whose loss is not noticed by three that come after.
const LAST: f64 = 3.0;

/// Likelier pieces are cut further, by where the loss after the first comes.
const LIKELY: f64 = 0.05;

/// What comes after a first lost packet, in pieces of a mixture.
struct AfterFirst<'a> {
    path: &'a LatencyPath<'a>,
    table: AfterLoss,
    packets: f64,
    end_s: f64,
    /// Whether the walk without losses reaches the end, and no queue overflows before.
    reached: bool,
    /// Whether packets stay in the clumps of slow start.
    clumped: bool,
}

impl AfterFirst<'_> {
    /// Packet `at` is the first to be lost, `weight` likely.
    fn push(&self, pieces: &mut Vec<Piece>, (weight, at, when_s, at_loss): (f64, f64, f64, f64)) {
        let path = self.path;
        let left = self.packets - at;
        let rtt_s = path.rtt_at(at_loss);
        let least_s = when_s + rtt_s;
        if self.reached && left <= at_loss.min(path.capacity_packets_per_s * rtt_s) {
            // all were sent before the loss was noticed: the last, or the one sent again, ends it
            pieces.push(Piece::certain(weight, self.end_s.max(least_s)));
            return;
        }
        let early_s = if self.clumped {
            walk::clumped_s(path, at_loss * path.cc.beta())
        } else {
            0.0
        };
        let least_s = least_s.max(left / path.capacity_packets_per_s + when_s);
        let piece = |weight: f64, mean: f64, variance: f64| Piece {
            weight,
            mean_s: (when_s + mean - early_s).max(least_s),
            variance,
            least_s,
        };
        if weight < LIKELY {
            let (mean, variance) = self.table.time(at_loss, left);
            pieces.push(piece(weight, mean, variance));
        } else {
            let ways = self.table.ways(path, at_loss, left);
            pieces.extend((ways.into_iter()).map(|(part, mean, v)| piece(weight * part, mean, v)));
        }
    }
}

fn check(
    path: &LatencyPath<'_>,
    start: Start<'_>,
    transfer: &Transfer,
) -> Result<(), LatencyError> {
    let refuse = |what, got, wanted| Err(LatencyError::OutOfRange { what, got, wanted });
    let time = |t: f64| t.is_finite() && t > 0.0;
    if !time(path.rtt_s) || path.rtt_s > 60.0 {
        return refuse("rtt_s", path.rtt_s, "> 0 and <= 60");
    }
    if let Loss::Constant(p) = path.loss
        && !(0.0..1.0).contains(&p)
    {
        return refuse("loss", p, ">= 0 and < 1");
    }
    if path.capacity_packets_per_s.is_nan() || path.capacity_packets_per_s <= 0.0 {
        return refuse("capacity_packets_per_s", path.capacity_packets_per_s, "> 0");
    }
    for (what, got) in [
        ("buffer_packets", path.buffer_packets),
        ("max_window_packets", path.max_window_packets),
    ] {
        if got.is_nan() || got < 1.0 {
            return refuse(what, got, ">= 1");
        }
    }
    match start {
        Start::New(opening) => {
            let w = opening.initial_window_packets;
            if !(1.0..=1e6).contains(&w) {
                return refuse("initial_window_packets", w, "1 to 1e6");
            }
            let round_trips = opening.handshake_round_trips;
            if !(0.0..=100.0).contains(&round_trips) {
                return refuse("handshake_round_trips", round_trips, "0 to 100");
            }
            if !(0.0..=1e6).contains(&opening.think_s) {
                return refuse("think_s", opening.think_s, "0 to 1e6");
            }
        }
        Start::MidFlow { state, now_s } => {
            if !now_s.is_finite() {
                return refuse("now_s", now_s, "finite");
            }
            if !time(state.cwnd_packets) {
                return refuse("cwnd_packets", state.cwnd_packets, "> 0");
            }
        }
    }
    checked_transfer(transfer)
}

fn checked_transfer(transfer: &Transfer) -> Result<(), LatencyError> {
    let refuse = |what, got, wanted| Err(LatencyError::OutOfRange { what, got, wanted });
    if transfer.bytes == 0 {
        return refuse("bytes", 0.0, ">= 1");
    }
    if !(1..=65_535).contains(&transfer.mss_bytes) {
        return refuse("mss_bytes", f64::from(transfer.mss_bytes), "1 to 65535");
    }
    if transfer.bytes as f64 / f64::from(transfer.mss_bytes) > MAX_PACKETS {
        return refuse("bytes", transfer.bytes as f64, "at most 1e10 packets");
    }
    if !(1..=10_000).contains(&transfer.connections) {
        return refuse(
            "connections",
            f64::from(transfer.connections),
            "1 to 10,000",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
