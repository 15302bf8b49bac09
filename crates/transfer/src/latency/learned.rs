//! Latency on a path that is learned from a running flow.

use super::{
    Latency, LatencyError, LatencyPath, Loss, Opening, Start, Transfer, Until, checked_transfer,
    latency,
};
use pathcast_analysis::epochs::FlowState;
use pathcast_analysis::hazard::Hazard;
use pathcast_analysis::series::Series;
use pathcast_forecast::forecast::{Forecaster, ForecasterOptions, Observation};
use pathcast_forecast::types::{ForecastError, QUANTILES, Quantity};
use pathcast_window_law::Cc;

/// Horizons at which packets sent are forecast, seconds; between them times are interpolated.
const HORIZONS_S: [f64; 11] = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0];

/// The number of losses from which the largest window seen counts as the path's limit.
const ENOUGH_LOSSES: f64 = 3.0;

/// A rate below this counts as this, in the unit of the forecast: no time is infinite.
const RATE_FLOOR: f64 = 1e-3;

/// Learns a path from one flow, record by record, and says how long transfers take: the next bytes of
/// the flow itself, or those of a new connection on the same path.
///
/// ```
/// use pathcast_transfer::latency::{LatencyForecaster, Transfer, Until};
/// use pathcast_forecast::Observation;
/// use pathcast_window_law::Cc;
/// let mut learned = LatencyForecaster::new(Cc::Reno, Some(0.1))?;
/// for i in 0..3000 {
///     learned.observe(&Observation {
///         time_s: f64::from(i) * 0.1,
///         cwnd_packets: f64::from(100 + i % 101),
///         snd_nxt_packets: None,
///         srtt_s: None,
///     })?;
/// }
/// // 1500 packets/s by and large: 20,000 packets in 13 s
/// let next = Transfer { until: Until::Sent, ..Transfer::of(20_000 * 1448) };
/// let time = learned.next_bytes(299.9, &next)?;
/// assert!((time.point_s() / 13.3 - 1.0).abs() < 0.1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct LatencyForecaster {
    inner: Forecaster,
    cc: Cc,
}

impl LatencyForecaster {
    /// A forecaster that has seen nothing yet. Without `rtt_s`, the round-trip time is that of srtt, or
    /// estimated.
    ///
    /// # Errors
    /// [`ForecastError::BadRtt`] for a time that is not positive.
    pub fn new(cc: Cc, rtt_s: Option<f64>) -> Result<Self, ForecastError> {
        let inner = Forecaster::new(&ForecasterOptions {
            cc,
            rtt_s,
            horizons_s: HORIZONS_S.to_vec(),
        })?;
        Ok(Self { inner, cc })
    }

    /// The same, of a flow of which it is known whether its records carry sequence numbers.
    #[must_use]
    pub fn of_quantity(self, quantity: Quantity) -> Self {
        Self {
            inner: self.inner.of_quantity(quantity),
            ..self
        }
    }

    /// Takes record `index` of a series, with what it counts as sent again.
    ///
    /// # Errors
    /// As [`Forecaster::observe`].
    pub fn observe_record(&mut self, series: &Series, index: usize) -> Result<(), ForecastError> {
        self.inner.observe_record(series, index)
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// As [`Forecaster::observe`].
    pub fn observe(&mut self, record: &Observation) -> Result<(), ForecastError> {
        self.inner.observe(record)
    }

    /// Declares that no record came up to `now_s`.
    pub fn advance(&mut self, now_s: f64) {
        self.inner.advance(now_s);
    }

    /// Round-trip time used, seconds.
    pub fn rtt_s(&self) -> f64 {
        self.inner.rtt_s()
    }

    /// The congestion control.
    pub fn cc(&self) -> Cc {
        self.cc
    }

    /// The flow's state at `now_s`, at or after the last record.
    pub fn state(&self, now_s: f64) -> FlowState {
        self.inner.state(now_s)
    }

    /// The losses learned so far.
    pub fn hazard(&self) -> &Hazard {
        self.inner.hazard()
    }

    /// What is known about the path by now. The queue's losses are in its curve of losses; where no window
    /// law is known, losses do not count and the largest rate seen is the link's.
    pub fn path(&self) -> LatencyPath<'_> {
        let reward = self.inner.reward();
        let (rtt_s, capacity) = match self.inner.quantity() {
            Quantity::PacketsPerS => (1.0 / reward.per_packet, reward.limit),
            Quantity::MeanCwndPackets => (self.inner.rtt_s(), f64::INFINITY),
        };
        if !self.cc.has_law() {
            // what it makes of losses is not known; it is not known to send faster than it did
            let unit = match self.inner.quantity() {
                Quantity::PacketsPerS => 1.0,
                Quantity::MeanCwndPackets => 1.0 / rtt_s,
            };
            let largest = self
                .inner
                .largest_sample()
                .map_or(f64::INFINITY, |v| v * unit);
            return LatencyPath {
                rtt_s,
                capacity_packets_per_s: capacity.min(largest),
                ..LatencyPath::unlimited(self.cc)
            };
        }
        LatencyPath {
            rtt_s,
            loss: Loss::Hazard(self.inner.hazard()),
            capacity_packets_per_s: capacity,
            ..LatencyPath::unlimited(self.cc)
        }
    }

    /// The flow's next bytes, sent from `now_s` on: by the pooled, calibrated forecasts of what it
    /// sends within several horizons. That `N` packets take at most `t` is the same as that at least
    /// `N` are sent within `t`, so the quantiles of one are those of the other.
    ///
    /// # Errors
    /// [`LatencyError::OutOfRange`]; [`LatencyError::Forecast`] before the first record.
    pub fn next_bytes(&self, now_s: f64, transfer: &Transfer) -> Result<Latency, LatencyError> {
        checked_transfer(transfer)?;
        let packets = transfer.bytes as f64 / f64::from(transfer.mss_bytes);
        let rtt_s = self.path().rtt_s;
        let unit = match self.inner.quantity() {
            Quantity::PacketsPerS => 1.0,
            Quantity::MeanCwndPackets => 1.0 / rtt_s,
        };
        // by level: packets within each horizon, never decreasing
        let mut sent = [[0.0; HORIZONS_S_LEN]; 6];
        for (h, &horizon_s) in HORIZONS_S.iter().enumerate() {
            let forecast = self.inner.forecast(now_s, horizon_s)?;
            let [q05, q25, q50, q75, q95] = forecast.quantiles;
            for (level, rate) in [q05, q25, q50, q75, q95, forecast.point]
                .into_iter()
                .enumerate()
            {
                let before = if h > 0 { sent[level][h - 1] } else { 0.0 };
                // a flow that may stop takes long, but not infinitely long
                sent[level][h] = (rate.max(RATE_FLOOR) * unit * horizon_s).max(before);
            }
        }
        let fixed_s = match transfer.until {
            Until::Sent => 0.0,
            Until::Arrived => 0.5 * rtt_s,
            Until::Answered => rtt_s,
        };
        // the fewest packets take longest
        let mut quantiles_s = [4, 3, 2, 1, 0].map(|level| time_until(&sent[level], packets));
        quantiles_s[2] = time_until(&sent[5], packets);
        quantiles_s[1] = quantiles_s[1].min(quantiles_s[2]);
        quantiles_s[0] = quantiles_s[0].min(quantiles_s[1]);
        quantiles_s[3] = quantiles_s[3].max(quantiles_s[2]);
        quantiles_s[4] = quantiles_s[4].max(quantiles_s[3]);
        let quantiles_s = quantiles_s.map(|s| s + fixed_s);
        let state = self.inner.state(now_s);
        let p = self.inner.hazard().base(state.cwnd_packets).min(1.0);
        Ok(Latency {
            bytes: transfer.bytes,
            // a piecewise linear distribution function between the quantiles
            mean_s: mean_of(&quantiles_s),
            quantiles_s,
            no_loss_probability: (packets * (-p).ln_1p()).exp(),
        })
    }

    /// The flow's next bytes by its state alone: [`latency`] mid-flow, with the losses learned.
    ///
    /// # Errors
    /// [`LatencyError::OutOfRange`]; [`LatencyError::Forecast`] before the first record.
    pub fn from_state(&self, now_s: f64, transfer: &Transfer) -> Result<Latency, LatencyError> {
        if !self.inner.has_records() {
            return Err(ForecastError::NothingObserved.into());
        }
        let state = self.inner.state(now_s);
        let start = Start::MidFlow {
            state: &state,
            now_s,
        };
        latency(&self.path(), start, transfer)
    }

    /// A new connection on the same path.
    ///
    /// # Errors
    /// [`LatencyError::OutOfRange`]; [`LatencyError::Forecast`] before the first record.
    pub fn new_connection(
        &self,
        opening: Opening,
        transfer: &Transfer,
    ) -> Result<Latency, LatencyError> {
        if !self.inner.has_records() {
            return Err(ForecastError::NothingObserved.into());
        }
        let mut path = self.path();
        if self.cc.has_law() && self.inner.hazard().losses() >= ENOUGH_LOSSES {
            // beyond the largest window ever seen the curve of losses says nothing
            path.max_window_packets = self.inner.largest_window_packets();
        }
        latency(&path, Start::New(opening), transfer)
    }
}

/// When `packets` packets have been sent, given how many have been by each of [`HORIZONS_S`]. The mean rate
/// up to a moment is interpolated linearly, as a steadily growing window has it.
fn time_until(sent: &[f64; HORIZONS_S_LEN], packets: f64) -> f64 {
    let after = sent.partition_point(|&sent| sent < packets);
    if after == HORIZONS_S_LEN {
        let last = HORIZONS_S_LEN - 1;
        return packets / (sent[last] / HORIZONS_S[last]).max(1e-9);
    }
    // before the first horizon as between the first two
    let h = after.max(1);
    let rate = |h: usize| sent[h] / HORIZONS_S[h];
    let slope = (rate(h) - rate(h - 1)) / (HORIZONS_S[h] - HORIZONS_S[h - 1]);
    let start = rate(h - 1) - slope * HORIZONS_S[h - 1];
    // packets = t (start + slope t)
    let root = (start * start + 4.0 * slope * packets).max(0.0).sqrt();
    let t = 2.0 * packets / (start + root).max(1e-9);
    let low = if after == 0 { 0.0 } else { HORIZONS_S[h - 1] };
    if after > 0 || t <= HORIZONS_S[0] {
        t.clamp(low, HORIZONS_S[after])
    } else {
        packets / rate(0).max(1e-9)
    }
}

const HORIZONS_S_LEN: usize = HORIZONS_S.len();

/// Mean of a distribution that is linear between its quantiles and ends with the outermost.
fn mean_of(quantiles: &[f64; QUANTILES.len()]) -> f64 {
    let last = QUANTILES.len() - 1;
    let inner: f64 = (0..last)
        .map(|i| (QUANTILES[i + 1] - QUANTILES[i]) * 0.5 * (quantiles[i] + quantiles[i + 1]))
        .sum();
    inner + QUANTILES[0] * quantiles[0] + (1.0 - QUANTILES[last]) * quantiles[last]
}
