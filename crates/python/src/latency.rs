//! The time that transfers take.

use pathcast_analysis::{LossCurve, Series, guess_cc};
use pathcast_forecast::Quantity;
use pathcast_transfer::latency::literature::{self, Literature};
use pathcast_transfer::latency::{
    Latency, LatencyForecaster, LatencyOptions, LatencyPath, Loss, Opening, Start, Transfer, Until,
    evaluate_latency as evaluate_flow, latency as latency_of,
};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use crate::models::{Columns, congestion_control, model_error};

/// What Python asks about a path.
#[derive(Deserialize)]
struct PathAsked {
    cc: String,
    rtt_s: f64,
    loss: Option<f64>,
    curve: Option<LossCurve>,
    capacity_packets_per_s: Option<f64>,
    buffer_packets: Option<f64>,
    max_window_packets: Option<f64>,
    hystart: Option<bool>,
}

/// What Python asks about transfers.
#[derive(Deserialize)]
struct TransfersAsked {
    sizes_bytes: Vec<u64>,
    mss_bytes: u32,
    connections: u32,
    until: String,
    initial_window_packets: f64,
    handshake_round_trips: f64,
    think_s: f64,
}

#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    latency: Latency,
    #[serde(skip_serializing_if = "Option::is_none")]
    literature: Option<Literature>,
}

#[derive(Serialize)]
struct Learned {
    cc: &'static str,
    rtt_s: f64,
    capacity_packets_per_s: Option<f64>,
    loss: f64,
    losses: f64,
    cwnd_packets: f64,
    transfers: Vec<Latency>,
}

impl TransfersAsked {
    fn parse(text: &str) -> PyResult<Self> {
        serde_json::from_str(text).map_err(model_error)
    }

    fn transfers(&self) -> PyResult<Vec<Transfer>> {
        let until = match self.until.as_str() {
            "sent" => Until::Sent,
            "arrived" => Until::Arrived,
            "answered" => Until::Answered,
            got => {
                return Err(model_error(format!(
                    "until is {got:?}, expected sent, arrived or answered"
                )));
            }
        };
        let transfer = |&bytes: &u64| Transfer {
            bytes,
            mss_bytes: self.mss_bytes,
            connections: self.connections,
            until,
        };
        Ok(self.sizes_bytes.iter().map(transfer).collect())
    }

    fn opening(&self) -> Opening {
        Opening {
            initial_window_packets: self.initial_window_packets,
            handshake_round_trips: self.handshake_round_trips,
            think_s: self.think_s,
        }
    }
}

/// New connections on a path known by numbers; both arguments and what comes back are JSON.
#[pyfunction]
pub fn latency(path: &str, transfers: &str) -> PyResult<String> {
    let asked: PathAsked = serde_json::from_str(path).map_err(model_error)?;
    let transfers = TransfersAsked::parse(transfers)?;
    let cc = congestion_control(Some(&asked.cc))?.expect("was some");
    let unlimited = LatencyPath::unlimited(cc);
    let has_law = cc.has_law();
    let path = LatencyPath {
        rtt_s: asked.rtt_s,
        // without a window law, the effect of losses and a full queue on the flow is unknown
        loss: match &asked.curve {
            Some(curve) if has_law => Loss::Curve(curve),
            None if has_law => Loss::Constant(asked.loss.unwrap_or(0.0)),
            _ => Loss::Constant(0.0),
        },
        capacity_packets_per_s: asked.capacity_packets_per_s.unwrap_or(f64::INFINITY),
        buffer_packets: (asked.buffer_packets)
            .filter(|_| has_law)
            .unwrap_or(f64::INFINITY),
        max_window_packets: asked.max_window_packets.unwrap_or(f64::INFINITY),
        hystart: asked.hystart.unwrap_or(unlimited.hystart),
        ..unlimited
    };
    let opening = transfers.opening();
    let answers = (transfers.transfers()?.iter())
        .map(|transfer| {
            let latency = latency_of(&path, Start::New(opening), transfer).map_err(model_error)?;
            let packets = (transfer.bytes as f64 / f64::from(transfer.mss_bytes)).ceil();
            let literature = (transfer.connections == 1).then(|| {
                let window = opening.initial_window_packets;
                literature::new_connection(&path, packets, window, transfer.until)
            });
            Ok(Answer {
                latency,
                literature,
            })
        })
        .collect::<PyResult<Vec<_>>>()?;
    Ok(serde_json::to_string(&answers).expect("plain data"))
}

/// Transfers on a path learned from a flow up to `at_s`: the flow's own next bytes, or those of a new
/// connection; JSON.
#[pyfunction]
#[pyo3(signature = (flow, transfers, at_s=None, new=false, cc=None, rtt_s=None))]
pub fn latency_on_trace(
    py: Python<'_>,
    flow: Columns<'_>,
    transfers: &str,
    at_s: Option<f64>,
    new: bool,
    cc: Option<&str>,
    rtt_s: Option<f64>,
) -> PyResult<String> {
    let series = flow.series().map_err(model_error)?;
    let asked = TransfersAsked::parse(transfers)?;
    let transfers = asked.transfers()?;
    let cc = congestion_control(cc)?;
    let at_s = at_s.unwrap_or(series.end_s());
    if !(series.start_s()..=series.end_s()).contains(&at_s) {
        return Err(model_error(format!(
            "at is {at_s} s, expected a time within the trace, {} to {} s",
            series.start_s(),
            series.end_s()
        )));
    }
    let learned = py.detach(|| {
        let cc = cc.unwrap_or_else(|| guess_cc(&series));
        let learned = learn(&series, cc, rtt_s, at_s).map_err(|error| error.to_string())?;
        let latencies = (transfers.iter())
            .map(|transfer| {
                if new {
                    learned.new_connection(asked.opening(), transfer)
                } else {
                    learned.next_bytes(at_s, transfer)
                }
                .map_err(|error| error.to_string())
            })
            .collect::<Result<Vec<_>, _>>()?;
        let path = learned.path();
        let state = learned.state(at_s);
        let hazard = learned.hazard();
        let known = path.capacity_packets_per_s.is_finite();
        Ok(Learned {
            cc: cc.name(),
            rtt_s: path.rtt_s,
            capacity_packets_per_s: known.then_some(path.capacity_packets_per_s),
            loss: hazard.base(state.cwnd_packets).min(1.0),
            losses: hazard.losses(),
            cwnd_packets: state.cwnd_packets,
            transfers: latencies,
        })
    });
    let learned = learned.map_err(|message: String| model_error(message))?;
    Ok(serde_json::to_string(&learned).expect("plain data"))
}

fn learn(
    series: &Series,
    cc: pathcast_window_law::Cc,
    rtt_s: Option<f64>,
    at_s: f64,
) -> Result<LatencyForecaster, pathcast_forecast::ForecastError> {
    let quantity = match series.snd_nxt_packets() {
        Some(_) => Quantity::PacketsPerS,
        None => Quantity::MeanCwndPackets,
    };
    let mut learned = LatencyForecaster::new(cc, rtt_s)?.of_quantity(quantity);
    for (i, &time_s) in series.time_s().iter().enumerate() {
        if time_s > at_s {
            break;
        }
        learned.observe_record(series, i)?;
    }
    learned.advance(at_s);
    Ok(learned)
}

/// Latency forecasts of a flow's own transfers against what happened; JSON.
#[pyfunction]
#[pyo3(signature = (flow, sizes_bytes, every_s, cc=None, rtt_s=None, mss_bytes=1448))]
pub fn evaluate_latency(
    py: Python<'_>,
    flow: Columns<'_>,
    sizes_bytes: Vec<u64>,
    every_s: u32,
    cc: Option<&str>,
    rtt_s: Option<f64>,
    mss_bytes: u32,
) -> PyResult<String> {
    let series = flow.series().map_err(model_error)?;
    let options = LatencyOptions {
        cc: congestion_control(cc)?,
        rtt_s,
        sizes_bytes,
        mss_bytes,
        every_s,
        keep_predictions: true,
    };
    let evaluation = py
        .detach(|| evaluate_flow(&series, &options))
        .map_err(model_error)?;
    Ok(serde_json::to_string(&evaluation).expect("plain data"))
}
