//! How long a transfer takes: the longer one of two times, at each level. One is that of the crate transfer, with the
//! path's losses and the highest rate that was seen: it governs short transfers. The other has no losses, and the
//! rates that are forecast: they were achieved with the path's losses, and govern long transfers.

use pathcast_transfer::latency::{
    LatencyError, LatencyPath, Loss, Opening, Start, Transfer, latency,
};
use pathcast_window_law::Cc;

use super::{PACKET_BITS, cell};
use crate::path_state::{LEVELS, PathState, Quantiles};

/// The least rate that is taken, bit/s: a transfer at none would never end.
const LEAST_BPS: f64 = 1000.0;
/// Widths of cells in logarithms: of sizes, windows and losses, and of round-trip times, by which times are scaled.
const WIDTH: f64 = 0.1;
const LOSS_WIDTH: f64 = 0.3;
const RTT_WIDTH: f64 = 0.4;
/// At each level, the part of the way from the least round-trip time to the median, in logarithms.
const QUEUED: [f64; 5] = [0.0, 0.0, 0.1, 0.4, 1.0];
/// At each level, how much of the link's headroom there is, as an exponent, and by what the rate is multiplied: a flow that
/// begins may find more than one that recovers from a loss, or less. Of a transfer that takes as long as `SHORT_S`, half of
/// this is left. All constants here were chosen by `benches/serve_truth.py` on paths 1 to 120.
const ROOM: [f64; 5] = [0.0, 0.1, 0.3, 0.6, 1.0];
const DIFFERS: [f64; 5] = [0.85, 0.95, 1.0, 1.1, 1.5];
const SHORT_S: f64 = 10.0;
/// By what times are multiplied, as they differ from formulas even where all is known.
const SURELY: [f64; 5] = [0.94, 0.98, 1.0, 1.02, 1.06];
/// At each level, after how many losses a flow has come down to its usual rate.
const LOSSES: [f64; 5] = [3.0, 2.0, 1.0, 0.5, 0.2];
/// At each level, the round trips that a flow loses as slow start overflows the queue.
const OVERFLOW: [f64; 5] = [0.0, 0.0, 0.5, 1.5, 3.0];
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
                .map_or(0, |rates| cell(most_bps(state, rates) * rtt_s, WIDTH)),
            cell(loss, LOSS_WIDTH),
            cell(rtt_s, RTT_WIDTH),
        ]
    })
}

/// The round-trip time of a transfer in whose way no queue stands.
fn rtt_s(state: &PathState) -> f64 {
    state.least_rtt_s.or(state.rtt_s).unwrap_or(0.1)
}

/// The highest rate that the link may have.
fn most_bps(state: &PathState, rates: Quantiles) -> f64 {
    rates.q95.max(LEAST_BPS) * state.headroom()
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
        capacity_packets_per_s: state
            .rates_bps
            .map_or(f64::INFINITY, |rates| most_bps(state, rates) / PACKET_BITS),
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
    let loss = state.base_loss.unwrap_or(0.0).max(1e-9);
    for (level, time) in times.iter_mut().enumerate() {
        // the slowest rate makes the longest time
        let slow = LEVELS.len() - 1 - level;
        let usual = rates[slow].max(LEAST_BPS) / PACKET_BITS;
        let capacity = usual * DIFFERS[slow].powf(SHORT_S / (SHORT_S + packets / usual));
        let room = state.headroom().powf(ROOM[slow]);
        let beginning = packets.min(LOSSES[level] / loss);
        let mut took = without_losses(beginning, rtts_s[level], room * capacity);
        took += (packets - beginning) / capacity;
        if packets > 2.0 * capacity * rtts_s[level] {
            took += OVERFLOW[level] * rtts_s[level];
        }
        *time = SURELY[level] * time.max(took);
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
    use crate::group::Group;
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
        assert!((50.0..58.0).contains(&times.q95), "{times:?}");
        assert!((28.0..33.0).contains(&times.q05), "{times:?}");
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
    fn where_losses_limited_the_rate_a_short_transfer_may_find_a_faster_link() {
        // a queue of 40 % of the round trip, and none
        let [filled, empty] = [0.05, 0.07].map(|least_rtt_s| PathState {
            least_rtt_s: Some(least_rtt_s),
            ..state(Some([4e6; 5]), 0.07, 2e-3)
        });
        assert_eq!((filled.headroom(), empty.headroom()), (1.0, 4.0));
        let [filled, empty] = [filled, empty].map(|state| found(&state, 500_000));
        assert!(empty.q05 < 0.6 * filled.q05, "{empty:?} {filled:?}");
        assert!(empty.q95 > 0.8, "{empty:?}");
        let group = PathState {
            basis: Basis {
                group: Some(Group::All),
                ..state(None, 0.07, 0.0).basis
            },
            ..state(Some([4e6; 5]), 0.07, 2e-3)
        };
        assert_eq!(group.headroom(), 1.0, "a group has no queue");
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
