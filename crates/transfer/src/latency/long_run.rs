//! The rate of a flow that goes on: what is left of long transfers once their beginning is taken off.

use super::{LatencyError, LatencyPath, Loss, MAX_PACKETS, Opening, Start, Transfer, latency};

/// Losses in the two transfers whose difference counts: slow start is forgotten after the first ones.
const LOSSES: [f64; 2] = [20.0, 60.0];

/// Packets per second of a flow in the long run, by the window law and the path's losses: the rate in ECON's sense (Cao et
/// al. 2019, section 3), without its beginning. Infinite where nothing limits it.
///
/// `loss` is the part of all packets that begin a loss event, which says how long transfers must be for some tens of them.
/// If no transfer would end by the path's curve, because there are windows from which no flow comes back, `loss` stands in
/// for it.
///
/// ```
/// use pathcast_transfer::latency::{LatencyPath, Loss, long_run_packets_per_s};
/// use pathcast_window_law::Cc;
/// let path = LatencyPath {
///     loss: Loss::Constant(1e-3),
///     ..LatencyPath::unlimited(Cc::Reno)
/// };
/// // sqrt(3/2) / RTT / sqrt(p) is 387 packets/s (Mathis et al. 1997)
/// let rate = long_run_packets_per_s(&path, 1e-3)?;
/// assert!((350.0..420.0).contains(&rate), "{rate}");
/// # Ok::<(), pathcast_transfer::latency::LatencyError>(())
/// ```
///
/// # Errors
/// [`LatencyError::OutOfRange`] names the number that is outside its range.
pub fn long_run_packets_per_s(path: &LatencyPath<'_>, loss: f64) -> Result<f64, LatencyError> {
    let most = (path.capacity_packets_per_s).min(path.max_window_packets / path.rtt_s);
    let mss = f64::from(Transfer::of(1).mss_bytes);
    if !(path.cc.has_law() && loss * MAX_PACKETS > LOSSES[1]) {
        return Ok(most);
    }
    let start = Start::New(Opening {
        handshake_round_trips: 0.0,
        ..Opening::default()
    });
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive, below 2^44
    let sizes = LOSSES.map(|losses| (losses / loss * mss).ceil() as u64);
    for loss_by_window in [path.loss, Loss::Constant(loss)] {
        let path = LatencyPath {
            loss: loss_by_window,
            ..*path
        };
        let short_s = latency(&path, start, &Transfer::of(sizes[0]))?.point_s();
        let long_s = latency(&path, start, &Transfer::of(sizes[1]))?.point_s();
        let rate = (sizes[1] - sizes[0]) as f64 / mss / (long_s - short_s);
        if rate.is_finite() && rate > 0.0 {
            return Ok(rate.min(most));
        }
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use pathcast_analysis::hazard::Hazard;
    use pathcast_window_law::Cc;

    use super::*;

    fn path(cc: Cc, loss: f64) -> LatencyPath<'static> {
        LatencyPath {
            loss: Loss::Constant(loss),
            ..LatencyPath::unlimited(cc)
        }
    }

    fn rate(path: &LatencyPath<'_>, loss: f64) -> f64 {
        long_run_packets_per_s(path, loss).unwrap()
    }

    #[test]
    fn reno_s_rate_falls_with_the_root_of_the_loss_and_cubic_s_faster() {
        let [often, seldom] = [1e-3, 1e-5].map(|loss| rate(&path(Cc::Reno, loss), loss));
        assert!((9.0..11.0).contains(&(seldom / often)), "{seldom} {often}");
        // beyond the Reno-friendly region: p to the power of 3/4
        let [often, seldom] = [1e-4, 1e-6].map(|loss| rate(&path(Cc::Cubic, loss), loss));
        assert!((28.0..36.0).contains(&(seldom / often)), "{seldom} {often}");
    }

    #[test]
    fn what_limits_a_flow_limits_its_rate() {
        let limited = LatencyPath {
            capacity_packets_per_s: 200.0,
            max_window_packets: 1e9,
            ..path(Cc::Cubic, 1e-4)
        };
        assert!((150.0..=200.0).contains(&rate(&limited, 1e-4)));
        let windowed = LatencyPath {
            max_window_packets: 10.0,
            ..path(Cc::Cubic, 1e-5)
        };
        assert!((90.0..=100.0).contains(&rate(&windowed, 1e-5)));
        assert_eq!(rate(&limited, 0.0), 200.0);
        assert!(rate(&path(Cc::Cubic, 0.0), 0.0).is_infinite());
        assert!(rate(&path(Cc::Other, 0.01), 0.01).is_infinite());
    }

    #[test]
    fn windows_from_which_no_flow_comes_back_do_not_end_the_answer() {
        let mut hazard = Hazard::default();
        for cwnd in 1..8 {
            hazard.sent(f64::from(cwnd), 1.0, 1e9);
            (0..10).for_each(|_| hazard.lost(f64::from(cwnd), 1e9));
        }
        hazard.smooth();
        let path = LatencyPath {
            loss: Loss::Hazard(&hazard),
            ..path(Cc::Cubic, 0.0)
        };
        let [certain, mean] = [rate(&path, 0.01), rate(&self::path(Cc::Cubic, 0.01), 0.01)];
        assert!(
            certain.is_finite() && certain <= mean * 1.001,
            "{certain} {mean}"
        );
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let bad = LatencyPath {
            rtt_s: -1.0,
            ..path(Cc::Cubic, 0.01)
        };
        assert!(long_run_packets_per_s(&bad, 0.01).is_err());
    }
}
