//! What a window is worth, learned from what windows lately were.

use crate::renewal::Reward;
use pathcast_analysis::rtt::median;

/// From mean windows (packets) and rates (packets/s) of the last seconds. Below the path's capacity the
/// rate is window over RTT; above it the queue grows and the rate does not. `least_rtt_s` is the shortest round-trip
/// time that was measured, infinite if none was: a queue that never empties hides it from windows and rates.
pub(super) fn learn(
    seconds: impl Iterator<Item = (f64, f64)>,
    rtt_s: f64,
    least_rtt_s: f64,
) -> Reward {
    let mut seconds: Vec<(f64, f64)> = seconds.collect();
    seconds.retain(|&(window, rate)| window > 0.0 && rate > 0.0);
    if seconds.len() < 3 {
        return Reward {
            per_packet: 1.0 / rtt_s,
            limit: f64::INFINITY,
        };
    }
    let mut trips: Vec<f64> = seconds.iter().map(|(window, rate)| window / rate).collect();
    trips.sort_by(f64::total_cmp);
    // the lower quartile has the shorter queues
    let mut short_s = trips[trips.len() / 4];
    let mut queued: Vec<f64> = (seconds.iter())
        .filter(|(window, rate)| window / rate > 1.15 * short_s)
        .map(|&(_, rate)| rate)
        .collect();
    queued.sort_by(f64::total_cmp);
    let limit = if queued.len() >= 3 && queued.len() * 10 >= seconds.len() {
        queued[queued.len() * 9 / 10]
    } else {
        f64::INFINITY
    };
    if limit.is_finite() {
        // with a standing queue, only the shortest round trips show the path without it
        short_s = trips[trips.len() / 20].min(least_rtt_s);
    }
    // what is left over (headers of the trace, pacing) is taken up by one factor
    let off = median(
        seconds
            .iter()
            .map(|(window, rate)| rate / (window / short_s).min(limit))
            .collect(),
    );
    Reward {
        per_packet: off / short_s,
        limit: off * limit,
    }
}
