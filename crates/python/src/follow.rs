//! One path followed online: its curve and its changes.

use pathcast_analysis::follow::{FlowChange, follow as follow_flows};
use pathcast_analysis::online_curve::{CurveBasis, CurveEstimate};
use pyo3::prelude::*;
use serde::Serialize;

use crate::models::{Columns, congestion_control, model_error};

/// What is known about a path at the end of its flows.
#[derive(Serialize)]
struct Followed {
    memory_bytes: usize,
    changes: Vec<FlowChange>,
    curves: Vec<Curve>,
}

#[derive(Serialize)]
struct Curve {
    #[serde(flatten)]
    basis: CurveBasis,
    points: Vec<CurveEstimate>,
}

/// Follows flows that ran in parallel; JSON with `changes` and `curves`.
#[pyfunction]
#[pyo3(signature = (flows, window_s, cc=None, rtt_s=None))]
pub fn follow(
    py: Python<'_>,
    flows: Vec<Columns<'_>>,
    window_s: f64,
    cc: Option<&str>,
    rtt_s: Option<f64>,
) -> PyResult<String> {
    let cc = congestion_control(cc)?;
    let flows = flows
        .iter()
        .map(|flow| flow.series().map_err(model_error))
        .collect::<PyResult<Vec<_>>>()?;
    py.detach(|| {
        let (follower, changes) = follow_flows(&flows, cc, rtt_s, window_s).map_err(model_error)?;
        let curve = &follower.curve;
        let curves = curve.bases().into_iter().map(|basis| Curve {
            basis,
            points: (curve.counted(basis.npc))
                .filter_map(|(cwnd_packets, ..)| curve.at(cwnd_packets, basis.npc))
                .collect(),
        });
        let followed = Followed {
            memory_bytes: curve.memory_bytes(),
            changes,
            curves: curves.collect(),
        };
        Ok(serde_json::to_string(&followed).expect("plain data"))
    })
}
