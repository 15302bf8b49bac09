//! The mean rate over a long session. What a flow did lately says little of it: over minutes, chance averages out. Where
//! losses limit the sender, its window law says the rate from all losses of the sliding window (ECON, Cao et al. 2019,
//! section 7); where the link does, the rates that were seen say it.

use pathcast_analysis::gamma::Gamma;
use pathcast_analysis::hazard::Hazard;
use pathcast_transfer::latency::{LatencyError, LatencyPath, Loss, long_run_packets_per_s};
use pathcast_window_law::Cc;

use super::PACKET_BITS;
use crate::curve::{Counts, enough};
use crate::distribution::{LEVELS, RateDistribution};
use crate::path_state::PathState;

/// Over which the rates that were seen are forecast, and the choice is judged, seconds.
pub const HORIZON_S: f64 = 60.0;
/// Losses assumed beside those that were seen (Jeffreys' prior).
const PSEUDO: f64 = 0.5;
/// More losses than these in all do not make the rate surer: flows differ from the law by some 8 %.
const SURE: f64 = 90.0;
/// The least part of the packets that a loss may follow.
const EXPOSED: f64 = 0.1;
/// The law is computed for so many times the losses that were seen; between them, the rate is a power of the losses.
const TIMES: [f64; 3] = [0.5, 1.0, 2.0];
/// Losses that come alone: they do not cluster.
const ALONE_S: f64 = 1e9;

/// The distribution of the mean rate over a long session; `state` is that of [`HORIZON_S`], and `counts` are the client's
/// own. None if no rate is known.
///
/// # Errors
/// [`LatencyError`] if a number of the state is out of range.
pub fn rate(
    state: &PathState,
    counts: Option<&Counts>,
    cc: Cc,
) -> Result<Option<RateDistribution>, LatencyError> {
    let Some(seen) = state.rate else {
        return Ok(None);
    };
    let filled = state.filled();
    let by_losses = match (counts, state.rtt_s) {
        (Some(counts), Some(rtt_s)) if cc.has_law() && filled < 1.0 => {
            by_losses(counts, rtt_s, cc)?
        }
        _ => None,
    };
    let Some(by_losses) = by_losses else {
        return Ok(Some(seen));
    };
    Ok(Some(RateDistribution::new(LEVELS.map(|level| {
        let seen_bps = seen.quantile_bps(level).max(1.0);
        let limited_bps = by_losses
            .quantile_bps(level)
            .min(seen_bps * state.headroom());
        (filled * seen_bps.ln() + (1.0 - filled) * limited_bps.max(1.0).ln()).exp()
    }))))
}

/// The rate that losses allow, of which as many were seen as chance has it.
fn by_losses(
    counts: &Counts,
    rtt_s: f64,
    cc: Cc,
) -> Result<Option<RateDistribution>, LatencyError> {
    let rows: Vec<(f64, f64, f64)> = (counts.busiest().into_iter())
        .map(|(cwnd_packets, packets, losses)| {
            // what is sent until a loss is noticed, and while it is repaired, begins no other event: a round trip each
            let of_event = (1.0 + cc.beta()) * cwnd_packets;
            let exposed = (packets - losses * of_event).max(EXPOSED * packets);
            (cwnd_packets, exposed, losses)
        })
        .collect();
    let (packets, losses) = rows.iter().fold((0.0, 0.0), |sum, (_, packets, losses)| {
        (sum.0 + packets, sum.1 + losses)
    });
    if packets <= 0.0 {
        return Ok(None);
    }
    let mut rates = [0.0; TIMES.len()];
    for (rate, times) in rates.iter_mut().zip(TIMES) {
        let hazard = hazard(&rows, times);
        let path = LatencyPath {
            rtt_s,
            loss: Loss::Hazard(&hazard),
            ..LatencyPath::unlimited(cc)
        };
        *rate = long_run_packets_per_s(&path, times * (losses + PSEUDO) / packets)?;
    }
    if !rates.iter().all(|rate| rate.is_finite()) {
        return Ok(None);
    }
    let power = (rates[2] / rates[0]).ln() / (TIMES[2] / TIMES[0]).ln();
    let known = 1.0 / (1.0 / (losses + PSEUDO) + 1.0 / SURE);
    let of_losses = Gamma {
        shape: known,
        rate: known,
    };
    Ok(Some(RateDistribution::new(LEVELS.map(|level| {
        // many losses make a low rate
        rates[1] * PACKET_BITS * of_losses.quantile(1.0 - level).powf(power)
    }))))
}

/// The smoothed loss curve, as if there had been so many times the losses.
fn hazard(rows: &[(f64, f64, f64)], times: f64) -> Hazard {
    let mut hazard = Hazard::default();
    for &(cwnd_packets, packets, losses) in rows {
        let (packets, losses) = enough(packets, losses);
        hazard.sent(cwnd_packets, packets / times, ALONE_S);
        for _ in 0..losses {
            hazard.lost(cwnd_packets, ALONE_S);
        }
    }
    hazard.smooth();
    hazard
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path_state::{Basis, Quantiles};
    use crate::sample::Sent;

    const RTT_S: f64 = 0.1;

    /// CUBIC at windows of about 12 packets: a loss in a hundred packets.
    fn counts(packets: f64, loss: f64) -> Counts {
        let mut counts = Counts::default();
        for cwnd in 6..22 {
            let sent = Sent {
                cwnd_packets: f64::from(cwnd),
                npc: 1,
                packets: packets / 16.0,
                losses: loss * packets / 16.0,
            };
            counts.update(0.0, 300.0, &sent);
        }
        counts
    }

    fn state(rate_bps: f64, least_rtt_s: f64) -> PathState {
        let rate = RateDistribution::new(LEVELS.map(|level| rate_bps * (0.8 + 0.4 * level)));
        PathState {
            basis: Basis {
                group: None,
                samples: 100,
                age_s: 0.0,
                assumed_rtt: false,
            },
            rates_bps: Some(Quantiles::from(&rate)),
            rate: Some(rate),
            rtt_s: Some(RTT_S),
            least_rtt_s: Some(least_rtt_s),
            loss: Some(0.01),
            base_loss: Some(0.01),
        }
    }

    fn found(state: &PathState, counts: Option<&Counts>, cc: Cc) -> [f64; 3] {
        let rate = rate(state, counts, cc).unwrap().unwrap();
        [0.05, 0.5, 0.95].map(|level| rate.quantile_bps(level))
    }

    #[test]
    fn where_losses_limit_the_law_says_the_rate_and_the_losses_how_sure() {
        // sqrt(1.5 / 0.01) / 0.1 s is 122 packets/s by Reno's law; CUBIC is near it there
        let [few, many] = [2000.0, 200_000.0].map(|packets| {
            let counts = counts(packets, 0.01);
            found(&state(5e5, RTT_S), Some(&counts), Cc::Cubic)
        });
        assert!((0.9e6..1.7e6).contains(&few[1]), "{few:?}");
        assert!((few[1] / many[1] - 1.0).abs() < 0.1, "{few:?} {many:?}");
        let width = |of: [f64; 3]| of[2] / of[0];
        assert!(width(few) > 1.4, "{few:?}");
        assert!((1.15..1.35).contains(&width(many)), "{many:?}");
    }

    #[test]
    fn no_session_is_faster_than_the_link_may_be() {
        let found = found(&state(1e5, RTT_S), Some(&counts(20_000.0, 0.01)), Cc::Cubic);
        assert!(found[2] <= 4.0 * 1.2e5 * 1.001, "{found:?}");
    }

    #[test]
    fn where_the_link_was_full_or_no_law_is_known_the_rates_that_were_seen_go_on() {
        let counts = counts(20_000.0, 0.01);
        let seen = found(&state(5e6, RTT_S), None, Cc::Cubic);
        // a queue of half the round trip
        assert_eq!(found(&state(5e6, 0.05), Some(&counts), Cc::Cubic), seen);
        assert_eq!(found(&state(5e6, RTT_S), Some(&counts), Cc::Other), seen);
        assert_eq!(
            found(&state(5e6, RTT_S), Some(&Counts::default()), Cc::Cubic),
            seen
        );
        let unknown = PathState {
            rate: None,
            ..state(5e6, RTT_S)
        };
        assert!(rate(&unknown, Some(&counts), Cc::Cubic).unwrap().is_none());
    }

    #[test]
    fn without_a_loss_the_law_allows_much_and_is_unsure() {
        let found = found(&state(5e6, RTT_S), Some(&counts(20_000.0, 0.0)), Cc::Cubic);
        assert!(found[0] > 4e6 && found[2] / found[0] > 1.4, "{found:?}");
    }
}
