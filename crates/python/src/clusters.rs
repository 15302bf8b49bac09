//! Loss curves of many clients.

use pathcast_analysis::clusters::{Client, Clusters, Pooling, Prefix, Stored};
use pathcast_analysis::{Counting, FitOptions, LossCurve};
use pathcast_window_law::Cc;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::models::{Columns, congestion_control, model_error};

fn prefix(text: &str) -> PyResult<Prefix> {
    text.parse().map_err(model_error)
}

/// Curves of many clients, held in Rust.
#[pyclass(module = "pathcast._internal")]
#[derive(Default)]
pub struct LossClusters(Clusters);

#[pymethods]
impl LossClusters {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Out of the text of a store.
    #[classmethod]
    fn from_json(_class: &Bound<'_, PyType>, text: &str) -> PyResult<Self> {
        let stored: Stored = serde_json::from_str(text).map_err(model_error)?;
        Clusters::try_from(stored).map(Self).map_err(model_error)
    }

    fn to_json(&self) -> String {
        serde_json::to_string(&Stored::from(&self.0)).expect("plain data")
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Adds what flows of a client did; packets are those really sent.
    #[pyo3(signature = (flows, client, network, region, now_s, cc=None, rtt_s=None))]
    #[allow(clippy::too_many_arguments)] // by keyword in Python
    fn add(
        &mut self,
        flows: Vec<Columns<'_>>,
        client: &str,
        network: Option<String>,
        region: Option<String>,
        now_s: f64,
        cc: Option<&str>,
        rtt_s: Option<f64>,
    ) -> PyResult<()> {
        if let Some(name) = cc
            && Cc::from_name(name).is_none()
        {
            return Err(model_error(format!(
                "cc is {name:?}, expected cubic or reno: a store's curves are of flows whose window law is known"
            )));
        }
        let cc = congestion_control(cc)?;
        let client = Client {
            prefix: prefix(client)?,
            network,
            region,
        };
        let mut evidence = vec![];
        for flow in &flows {
            let series = flow.series().map_err(model_error)?;
            let counting = if series.snd_nxt_packets().is_some() {
                Counting::Sent
            } else {
                Counting::Time
            };
            let options = FitOptions {
                cc,
                rtt_s,
                counting: Some(counting),
                ..FitOptions::default()
            };
            let LossCurve { points, .. } = pathcast_analysis::fit(&series, &options).curve;
            evidence.extend(
                (points.iter())
                    .filter(|point| point.packets > 0.0)
                    .map(|point| {
                        let (cwnd, losses) = (point.cwnd_packets.into(), point.losses.into());
                        (cwnd, point.packets, losses)
                    }),
            );
        }
        self.0.add(&client, evidence, now_s).map_err(model_error)
    }

    /// Takes a prefix away.
    fn remove(&mut self, client: &str) -> PyResult<()> {
        self.0.remove(prefix(client)?).map_err(model_error)
    }

    /// The curve of a client; JSON.
    #[pyo3(signature = (client, network, region, now_s, pooling))]
    fn curve(
        &self,
        client: Option<&str>,
        network: Option<&str>,
        region: Option<&str>,
        now_s: f64,
        pooling: &str,
    ) -> PyResult<String> {
        let pooling = match pooling {
            "posterior" => Pooling::Posterior,
            "mean" => Pooling::Mean,
            "median" => Pooling::Median,
            _ => {
                let message = format!("pooling is {pooling:?}, expected posterior, mean or median");
                return Err(model_error(message));
            }
        };
        let client = client.map(prefix).transpose()?;
        let curve = self.0.curve(client, network, region, now_s, pooling);
        Ok(serde_json::to_string(&curve).expect("plain data"))
    }
}
