//! How long larger downloads take, from one small one: short flows of CUBIC.
//!
//! [`published`] has the two algorithms of De Silva et al. 2016. [`estimate`] is Pathcast's own: a fluid
//! model of Linux's CUBIC (`flow`) over links of many rates, with slow start ended in many ways, is
//! compared with the measurement (`scenarios`). Links that explain it are continued to the requested sizes
//! (`ahead`), with possible losses and rates. Nothing is random: the same figures give the same answer.

mod ahead;
mod evolution;
mod flow;
mod outcome;
pub mod published;
mod scenarios;
#[cfg(test)]
mod tests;
mod timeline;

use serde::Serialize;

use ahead::{Future, Now};
use outcome::{quantile, size_estimate, weighted};
use scenarios::{Scenario, Seen};
use timeline::Timeline;

pub use evolution::{WindowAt, WindowQuantiles, Windows, windows};

/// Levels of the quantiles of an estimate.
pub const LEVELS: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];
/// Largest measured transfer and largest size asked for, bytes.
pub const MOST_BYTES: (f64, f64) = (1e8, 1e12);
/// The number of explanations that are continued; further ones are too unlikely to count.
const MOST_SCENARIOS: usize = 12;
/// Arrivals that are off by so much on average may be the radio's jitter (LTE sends again after 8 ms),
/// seconds.
const JITTER_S: f64 = 8e-3;
/// Misfit beyond that at which a rate counts as half wandering.
const WANDERING_MISFIT: f64 = 0.005;
/// The last seconds that show the present value of a varying rate.
const LAST_S: f64 = 0.5;

/// A measured transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Payload that arrived.
    pub bytes: f64,
    /// From its first byte to its last, seconds.
    pub time_s: f64,
    /// What passed before the first byte and counts too, in what is estimated as well, seconds: a round
    /// trip where the clock begins with the request.
    pub before_s: f64,
    /// Round-trip times of probes, before or after, seconds; the least counts.
    pub rtts_s: Vec<f64>,
    /// What the receiver saw: seconds since the first byte, bytes in order; neither ever falls. May be
    /// empty.
    pub timeline: Vec<(f64, f64)>,
    /// Payload of a full packet, bytes.
    pub mss_bytes: f64,
    /// The sender's first window, packets.
    pub initial_window_packets: f64,
    /// The largest window that the receiver offers, bytes.
    pub receive_window_bytes: Option<f64>,
    /// Packets lost meanwhile, if known; else they are looked for in the timeline.
    pub losses: Option<u32>,
}

impl Measured {
    /// A transfer of which only size, time and round-trip time are known, with Linux's first window of 10
    /// packets and packets of 1448 bytes.
    pub fn new(bytes: f64, time_s: f64, rtt_s: f64) -> Self {
        Self {
            bytes,
            time_s,
            before_s: 0.0,
            rtts_s: vec![rtt_s],
            timeline: Vec::new(),
            mss_bytes: 1448.0,
            initial_window_packets: 10.0,
            receive_window_bytes: None,
            losses: None,
        }
    }
}

/// What the flow was limited by at the end of what was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Still in slow start: what limits it has not been seen.
    SlowStart,
    /// Its window grows, and the path is not full yet.
    Growing,
    /// The path is full.
    PathLimited,
    /// The receiver's window holds it back.
    WindowLimited,
}

/// How likely a state is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// Which.
    pub state: State,
    /// From 0 to 1.
    pub share: f64,
}

/// One size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SizeEstimate {
    /// Bytes in all, those measured included.
    pub size_bytes: f64,
    /// From first byte to last, and what passed before, seconds: that whose throughput is off by least on average.
    pub time_s: f64,
    /// Size over that time, bit/s.
    pub throughput_bps: f64,
    /// Quantiles of the time at [`LEVELS`], seconds, never falling.
    pub time_quantiles_s: [f64; LEVELS.len()],
    /// Quantiles of the throughput at [`LEVELS`], bit/s, never falling.
    pub throughput_quantiles_bps: [f64; LEVELS.len()],
}

/// What larger transfers would take, and what that rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimate {
    /// In the order asked for.
    pub sizes: Vec<SizeEstimate>,
    /// States at the end of what was seen, the likeliest first; shares sum to 1.
    pub states: Vec<Share>,
    /// Least round-trip time, seconds.
    pub rtt_s: f64,
    /// Rate of the path, median over the explanations, payload bit/s.
    pub rate_bps: f64,
    /// Window at the end, median over the explanations, packets.
    pub window_packets: f64,
    /// Loss events seen, or given.
    pub losses: u32,
    /// Whether there was a timeline to go by.
    pub detailed: bool,
    /// What the best explanation's arrivals are off by, before the first loss, over the time measured.
    pub misfit: f64,
}

/// What the two published algorithms make of the same transfer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Published {
    /// Algorithm 1's.
    #[serde(flatten)]
    pub slow_start_end: published::SlowStartEnd,
    /// Mean round-trip time, as the paper takes it, seconds.
    pub rtt_s: f64,
    /// Algorithm 2's times of the sizes asked for, seconds.
    pub times_s: Vec<f64>,
}

/// The published algorithms on a transfer, with the paper's clamp of 800 packets unless the receive
/// window is given.
pub fn published_estimate(
    measured: &Measured,
    sizes_bytes: &[f64],
) -> Result<Published, ShortFlowError> {
    seen(measured)?;
    let (constants, rtt_s, end) = published_flow(measured);
    let time = |&size: &f64| {
        measured.before_s + published::estimator(size, rtt_s, end.window_packets, &constants)
    };
    Ok(Published {
        slow_start_end: end,
        rtt_s,
        times_s: sizes_bytes.iter().map(time).collect(),
    })
}

/// The published algorithms' constants, mean round-trip time in seconds, and end of slow start.
fn published_flow(measured: &Measured) -> (published::Constants, f64, published::SlowStartEnd) {
    let mut constants = published::Constants {
        mss_bytes: measured.mss_bytes,
        initial_window_packets: measured.initial_window_packets,
        ..published::Constants::default()
    };
    if let Some(window) = measured.receive_window_bytes {
        constants.clamp_packets = window / measured.mss_bytes;
    }
    let rtt_s = measured.rtts_s.iter().sum::<f64>() / measured.rtts_s.len() as f64;
    let end = published::slow_start_end(measured.bytes, measured.time_s, rtt_s, &constants);
    (constants, rtt_s, end)
}

/// Input that no estimate can be made from.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ShortFlowError {
    /// A number out of range.
    #[error("{what} is {got}, expected {wanted}")]
    OutOfRange {
        /// Which.
        what: String,
        /// Its value.
        got: f64,
        /// What would do.
        wanted: String,
    },
    /// The transfer was over before a round trip could have shown anything.
    #[error(
        "{bytes} bytes took {time_s} s, less than the round-trip time of {rtt_s} s, and more than the first window of {window} bytes: expected the time from the first byte to the last"
    )]
    TooFast {
        /// Measured.
        bytes: f64,
        /// Measured, seconds.
        time_s: f64,
        /// Measured, seconds.
        rtt_s: f64,
        /// Bytes of the first window.
        window: f64,
    },
    /// A timeline that falls.
    #[error("timeline, point {point}: {what} falls from {before} to {after}")]
    TimelineFalls {
        /// From 0.
        point: usize,
        /// Time or bytes.
        what: &'static str,
        /// Before.
        before: f64,
        /// Then.
        after: f64,
    },
}

fn check(what: &str, got: f64, good: bool, wanted: &str) -> Result<(), ShortFlowError> {
    if good && got.is_finite() {
        return Ok(());
    }
    Err(ShortFlowError::OutOfRange {
        what: what.to_owned(),
        got,
        wanted: wanted.to_owned(),
    })
}

/// Checks what was measured and puts it into packets.
fn seen(measured: &Measured) -> Result<Seen, ShortFlowError> {
    check_numbers(measured)?;
    let Measured {
        bytes,
        time_s,
        mss_bytes: mss,
        initial_window_packets: initial_window,
        ..
    } = *measured;
    let rtt_s = measured
        .rtts_s
        .iter()
        .copied()
        .fold(f64::INFINITY, f64::min);
    if time_s < rtt_s {
        return Err(ShortFlowError::TooFast {
            bytes,
            time_s,
            rtt_s,
            window: initial_window * mss,
        });
    }
    let window_limit = match measured.receive_window_bytes {
        None => f64::INFINITY,
        Some(window) => {
            check(
                "receive window",
                window,
                window >= mss,
                "a packet or more, in bytes",
            )?;
            window / mss
        }
    };
    let timeline = checked_timeline(measured)?;
    let losses = losses(measured, timeline.losses(rtt_s));
    Ok(Seen {
        timeline,
        rtt_s,
        initial_window,
        window_limit,
        losses,
        losses_are_guessed: measured.losses.is_none(),
    })
}

/// Where packets were lost, by what was found in the timeline.
fn losses(measured: &Measured, found: Vec<f64>) -> Vec<f64> {
    let Some(count) = measured.losses else {
        return found;
    };
    // their number is known, but not their places: those found first, then evenly
    let packets = measured.bytes / measured.mss_bytes;
    let count = (count as usize).min(1000);
    let mut losses: Vec<f64> = found.into_iter().take(count).collect();
    let rest = count - losses.len();
    losses.extend((0..rest).map(|i| packets * (i as f64 + 0.5) / rest as f64));
    losses.sort_by(f64::total_cmp);
    losses
}

fn check_numbers(measured: &Measured) -> Result<(), ShortFlowError> {
    let Measured {
        bytes,
        time_s,
        mss_bytes: mss,
        initial_window_packets: initial_window,
        ..
    } = *measured;
    check(
        "mss",
        mss,
        (88.0..=65_535.0).contains(&mss),
        "88 to 65535 bytes",
    )?;
    let least = 2.0 * initial_window * mss;
    check(
        "initial window",
        initial_window,
        (1.0..=1000.0).contains(&initial_window),
        "1 to 1000 packets",
    )?;
    check(
        "bytes",
        bytes,
        bytes >= least && bytes <= MOST_BYTES.0,
        &format!("{least} (two first windows) to {} bytes", MOST_BYTES.0),
    )?;
    check(
        "time",
        time_s,
        time_s > 0.0 && time_s <= 86_400.0,
        "more than 0, to 86400 s",
    )?;
    check(
        "time before the first byte",
        measured.before_s,
        measured.before_s >= 0.0,
        "0 or more",
    )?;
    check(
        "number of round-trip times",
        measured.rtts_s.len() as f64,
        !measured.rtts_s.is_empty(),
        "at least one",
    )?;
    for &rtt_s in &measured.rtts_s {
        check(
            "rtt",
            rtt_s,
            rtt_s > 0.0 && rtt_s <= 60.0,
            "more than 0, to 60 s",
        )?;
    }
    Ok(())
}

fn checked_timeline(measured: &Measured) -> Result<Timeline, ShortFlowError> {
    let packets = measured.bytes / measured.mss_bytes;
    let mut points = Vec::with_capacity(measured.timeline.len() + 1);
    let mut before = (0.0, 0.0);
    for (point, &(time_s, bytes)) in measured.timeline.iter().enumerate() {
        check(
            "time in the timeline",
            time_s,
            time_s >= 0.0,
            "0 or more seconds",
        )?;
        check(
            "bytes in the timeline",
            bytes,
            bytes >= 0.0,
            "0 or more bytes",
        )?;
        for (what, before, after) in [("time", before.0, time_s), ("bytes", before.1, bytes)] {
            if after < before {
                return Err(ShortFlowError::TimelineFalls {
                    point,
                    what,
                    before,
                    after,
                });
            }
        }
        before = (time_s, bytes);
        if time_s < measured.time_s && bytes < measured.bytes {
            points.push((time_s, bytes / measured.mss_bytes));
        }
    }
    points.push((measured.time_s, packets));
    Ok(if points.len() > 2 {
        Timeline::new(points)
    } else {
        Timeline::of_end(packets, measured.time_s)
    })
}

/// How long transfers of `sizes_bytes` take in all, each at least what was measured.
pub fn estimate(measured: &Measured, sizes_bytes: &[f64]) -> Result<Estimate, ShortFlowError> {
    let Explained {
        seen,
        scenarios,
        now,
    } = explained(measured, sizes_bytes)?;
    let mut order: Vec<usize> = (0..sizes_bytes.len()).collect();
    order.sort_by(|&a, &b| sizes_bytes[a].total_cmp(&sizes_bytes[b]));
    let rising: Vec<f64> = order
        .iter()
        .map(|&i| sizes_bytes[i] / measured.mss_bytes)
        .collect();
    let futures: Vec<Future> = scenarios
        .iter()
        .take(MOST_SCENARIOS)
        .zip(0..)
        .flat_map(|(scenario, number)| ahead::futures(scenario, number, &now, &rising))
        .collect();
    let mut sizes = vec![None; sizes_bytes.len()];
    for (rank, &i) in order.iter().enumerate() {
        let times: Vec<(f64, f64)> = futures
            .iter()
            .map(|future| (measured.before_s + future.times_s[rank], future.weight))
            .collect();
        sizes[i] = Some(size_estimate(sizes_bytes[i], &times));
    }
    let of_scenarios = |value: fn(&Scenario) -> f64| {
        quantile(
            &weighted(scenarios.iter().map(|one| (value(one), one.weight))),
            0.5,
        )
    };
    Ok(Estimate {
        sizes: sizes.into_iter().flatten().collect(),
        states: states(&scenarios),
        rtt_s: seen.rtt_s,
        rate_bps: of_scenarios(|one| one.link.rate) * measured.mss_bytes * 8.0,
        window_packets: of_scenarios(|one| one.flow.in_flight(&one.link)),
        losses: of_scenarios(|one| one.losses) as u32,
        detailed: seen.timeline.is_detailed,
        misfit: now.misfit,
    })
}

fn check_sizes(measured: &Measured, sizes_bytes: &[f64]) -> Result<(), ShortFlowError> {
    for &size in sizes_bytes {
        check(
            "size",
            size,
            size >= measured.bytes && size <= MOST_BYTES.1,
            &format!(
                "the {} bytes measured, to {} bytes",
                measured.bytes, MOST_BYTES.1
            ),
        )?;
    }
    Ok(())
}

/// What was seen, and what explains it.
struct Explained {
    seen: Seen,
    /// The likeliest first.
    scenarios: Vec<Scenario>,
    now: Now,
}

/// Explains what was seen, if that and the sizes asked for will do.
fn explained(measured: &Measured, sizes_bytes: &[f64]) -> Result<Explained, ShortFlowError> {
    let seen = seen(measured)?;
    check_sizes(measured, sizes_bytes)?;
    let scenarios = scenarios::explain(&seen);
    let (time_s, packets) = seen.timeline.end();
    let now = Now {
        time_s,
        packets,
        wandering: wandering(&seen, &scenarios[0]),
        misfit: scenarios[0].misfit,
        last_rate: seen.timeline.last_rate(LAST_S),
    };
    Ok(Explained {
        seen,
        scenarios,
        now,
    })
}

/// How much the path's rate wanders, 0 to 1, by how far even the best explanation is off.
fn wandering(seen: &Seen, best: &Scenario) -> f64 {
    let off_s = best.misfit * seen.timeline.end().0 - JITTER_S;
    let off = off_s.max(0.0) / seen.timeline.end().0;
    off / (off + WANDERING_MISFIT)
}

fn states(scenarios: &[Scenario]) -> Vec<Share> {
    let mut shares: Vec<Share> = [
        State::SlowStart,
        State::Growing,
        State::PathLimited,
        State::WindowLimited,
    ]
    .map(|state| Share { state, share: 0.0 })
    .to_vec();
    for Scenario {
        link, flow, weight, ..
    } in scenarios
    {
        let state = if flow.is_full(link) {
            State::PathLimited
        } else if flow.window.cwnd >= link.window_limit {
            State::WindowLimited
        } else if flow.window.in_slow_start {
            State::SlowStart
        } else {
            State::Growing
        };
        for one in shares.iter_mut().filter(|one| one.state == state) {
            one.share += weight;
        }
    }
    shares.sort_by(|a, b| b.share.total_cmp(&a.share));
    shares
}
