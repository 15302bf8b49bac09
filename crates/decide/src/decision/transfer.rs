//! How long a transfer takes: the longer one of two times, at each level. One is that of the crate transfer, with the
//! path's losses and the highest rate that was seen: it governs short transfers. The other has no losses, and the
//! rates that are forecast: they were achieved with the path's losses, and govern long transfers.

use pathcast_transfer::latency::{
    LatencyError, LatencyPath, Loss, Opening, Start, Transfer, latency,
};
use pathcast_window_law::Cc;

use super::cell;
use crate::path_state::{PathState, Quantiles};

/// Payload of a packet, bits.
const PACKET_BITS: f64 = 8.0 * 1448.0;
/// The least rate that is taken, bit/s: a transfer at none would never end.
const LEAST_BPS: f64 = 1000.0;
/// Widths of cells in logarithms: of sizes, windows and losses, and of round-trip times, by which times are scaled.
const WIDTH: f64 = 0.1;
const LOSS_WIDTH: f64 = 0.3;
const RTT_WIDTH: f64 = 0.4;
/// At each level, the part of the way from the least round-trip time to the median, in logarithms.
const QUEUED: [f64; 5] = [0.0, 0.0, 0.1, 0.4, 1.0];
/// Transfers that lose a packet less often have no losses.
const UNLIKELY: f64 = 1e-3;
const INITIAL_WINDOW: f64 = 10.0;

/// What transfers have in common that share the times of [`with_losses`].
pub type Key = [u16; 4];

/// The key of a transfer over a path; none if losses are unlikely.
pub fn key(state: &PathState, bytes: u64) -> Option<Key> {
    let (loss, rtt_s) = (state.base_loss.unwrap_or(0.0), rtt_s(state));
    let packets = 8.0 * bytes as f64 / PACKET_BITS;
    (loss * (packets + 1.0) > UNLIKELY).then(|| {
        [
            cell(packets, WIDTH),
            state
                .rates_bps
                .map_or(0, |rates| cell(rates.q95.max(LEAST_BPS) * rtt_s, WIDTH)),
            cell(loss, LOSS_WIDTH),
            cell(rtt_s, RTT_WIDTH),
        ]
    })
}

/// The round-trip time of a transfer in whose way no queue stands.
fn rtt_s(state: &PathState) -> f64 {
    state.least_rtt_s.or(state.rtt_s).unwrap_or(0.1)
}

/// Round-trip times at the levels. Samples were taken while flows filled queues, which may be there or not.
fn rtts_s(state: &PathState) -> [f64; 5] {
    let (least, median) = (rtt_s(state), state.rtt_s.unwrap_or(0.1));
    QUEUED.map(|part| least * (median / least).max(1.0).powf(part))
}

/// About how long it takes, seconds: the horizon over which its rate is to be forecast.
pub fn about_s(state: &PathState, bytes: u64) -> f64 {
    let rate = state
        .rates_bps
        .map_or(1e7, |rates| rates.q50.max(LEAST_BPS));
    (8.0 * bytes as f64 / rate + 2.0 * state.rtt_s.unwrap_or(0.1)).clamp(1.0, 600.0)
}

/// Quantiles of the time from the request to the last byte with the path's losses, at the highest rate that was seen, in
/// round trips: what transfers with one [`Key`] share.
///
/// # Errors
/// [`LatencyError`] if a number of the state is out of range.
pub fn with_losses(state: &PathState, bytes: u64, cc: Cc) -> Result<[f64; 5], LatencyError> {
    let start = Start::New(Opening {
        handshake_round_trips: 0.0,
        ..Opening::default()
    });
    let path = LatencyPath {
        rtt_s: rtt_s(state),
        loss: Loss::Constant(state.base_loss.unwrap_or(0.0)),
        capacity_packets_per_s: state.rates_bps.map_or(f64::INFINITY, |rates| {
            rates.q95.max(LEAST_BPS) / PACKET_BITS
        }),
        ..LatencyPath::unlimited(cc)
    };
    let found = latency(&path, start, &Transfer::of(bytes))?;
    Ok(found.quantiles_s.map(|time_s| time_s / path.rtt_s))
}

/// Quantiles of the time from the request to the last byte over an open connection that has sent nothing yet, seconds;
/// `with_losses` is that of [`with_losses`], if the transfer has a key.
pub fn times(state: &PathState, bytes: u64, with_losses: Option<[f64; 5]>) -> Quantiles {
    let rtts_s = rtts_s(state);
    let mut times = with_losses.unwrap_or([0.0; 5]);
    for (time, rtt_s) in times.iter_mut().zip(rtts_s) {
        *time *= rtt_s;
    }
    let packets = (8.0 * bytes as f64 / PACKET_BITS).max(1.0);
    let unlimited = Quantiles::from([f64::INFINITY; 5]);
    let rates = state.rates_bps.unwrap_or(unlimited).values();
    // the slowest rate makes the longest time
    for ((time, rate_bps), rtt_s) in times.iter_mut().zip(rates.into_iter().rev()).zip(rtts_s) {
        let capacity = rate_bps.max(LEAST_BPS) / PACKET_BITS;
        *time = time.max(without_losses(packets, rtt_s, capacity));
    }
    times.into()
}

/// Slow start doubles the window in each round trip until it fills the link, which then sends without a pause.
fn without_losses(packets: f64, rtt_s: f64, capacity: f64) -> f64 {
    let (mut window, mut left, mut now_s) = (INITIAL_WINDOW, packets, 0.0);
    while window < left && window < capacity * rtt_s {
        left -= window;
        window *= 2.0;
        now_s += rtt_s;
    }
    now_s + rtt_s + left / capacity
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path_state::Basis;

    fn state(rates: Option<[f64; 5]>, rtt_s: f64, loss: f64) -> PathState {
        PathState {
            basis: Basis {
                group: None,
                samples: 10,
                age_s: 0.0,
                assumed_rtt: false,
            },
            rates_bps: rates.map(Quantiles::from),
            rate: None,
            rtt_s: Some(rtt_s),
            least_rtt_s: None,
            loss: Some(loss),
            base_loss: Some(loss),
        }
    }

    fn found(state: &PathState, bytes: u64) -> Quantiles {
        let lossy = key(state, bytes).map(|_| with_losses(state, bytes, Cc::Cubic).unwrap());
        times(state, bytes, lossy)
    }

    #[test]
    fn a_long_transfer_takes_its_bytes_over_the_rate() {
        let state = state(Some([8e6, 9e6, 1e7, 11e6, 12e6]), 0.05, 0.0);
        let times = found(&state, 50_000_000);
        assert!((39.0..43.0).contains(&times.q50), "{times:?}");
        assert!((48.0..54.0).contains(&times.q95), "{times:?}");
        assert!((32.0..36.0).contains(&times.q05), "{times:?}");
    }

    #[test]
    fn a_short_transfer_takes_round_trips_and_losses_make_its_tail() {
        let rates = Some([5e7; 5]);
        let clean = found(&state(rates, 0.1, 0.0), 10_000);
        assert!((0.1..0.12).contains(&clean.q95), "{clean:?}");
        let lossy = found(&state(rates, 0.1, 0.05), 10_000);
        assert!(lossy.q95 > 1.5 * clean.q95, "{lossy:?}");
    }

    #[test]
    fn a_rate_of_zero_takes_long_but_ends() {
        let times = found(&state(Some([0.0; 5]), 0.1, 0.01), 1000);
        assert!(times.q50.is_finite() && times.q50 > 5.0);
    }

    #[test]
    fn neighbors_share_a_key() {
        let rates = Some([8e6, 9e6, 1e7, 11e6, 12e6]);
        let one = key(&state(rates, 0.0501, 0.01), 1_000_000);
        assert_eq!(one, key(&state(rates, 0.0502, 0.01), 1_000_100));
        assert_ne!(one, key(&state(rates, 0.1, 0.01), 1_000_000));
        assert_eq!(key(&state(rates, 0.1, 1e-9), 1_000_000), None);
    }
}
