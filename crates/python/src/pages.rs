//! Web pages: their files, and their loads.

use std::sync::Arc;

use numpy::{IntoPyArray, PyArray2, ndarray::Array2};
use pathcast_page_model::{LossCurve, Model, load as model_load};
use pathcast_path::{Span, Time};
use pathcast_scenario::{Browser, Cause, Http, Node, Page, Protocol, read_pages as read};
use pathcast_sim::load_many;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};

use crate::batch::{Spec, run_all, simulations};
use crate::errors::{ModelError, PathFileError, SimulationError};

/// A page that was read.
#[pyclass(frozen, module = "pathcast._internal")]
pub struct PageSpec {
    page: Arc<Page>,
    /// When the load event came in a recording, in milliseconds.
    #[pyo3(get)]
    on_load_ms: Option<f64>,
    /// What the file lacks, and what was inferred in its place.
    #[pyo3(get)]
    warnings: Vec<String>,
}

#[pymethods]
impl PageSpec {
    /// The pages of a page file or of a recording; `file` names it in errors.
    #[staticmethod]
    fn parse(py: Python<'_>, content: &[u8], file: &str) -> PyResult<Vec<Self>> {
        let pages = py.detach(|| read(content, file));
        let pages = pages.map_err(|error| PathFileError::new_err(error.to_string()))?;
        let specs = pages.into_iter().map(|one| Self {
            page: Arc::new(one.page),
            on_load_ms: one.on_load_ms,
            warnings: one.warnings,
        });
        Ok(specs.collect())
    }

    /// The text of a page file, every default written out.
    fn to_toml(&self) -> String {
        self.page.to_toml()
    }

    /// The page as a value of TOML in one line.
    fn to_inline_toml(&self) -> String {
        self.page.to_inline_toml()
    }

    /// The page as static files of one server.
    fn as_replica(&self) -> Self {
        Self {
            page: Arc::new((*self.page).clone().as_replica()),
            on_load_ms: None,
            warnings: self.warnings.clone(),
        }
    }

    /// Name, resources and tasks, as JSON.
    fn summary(&self) -> String {
        let cause = |cause: &Cause| {
            let (key, number) = match cause.of {
                Node::Resource(number) => ("resource", number),
                Node::Task(number) => ("task", number),
            };
            json!({key: number, "at": cause.at, "wait_ms": cause.wait.as_secs() * 1e3})
        };
        let causes = |all: &[Cause]| all.iter().map(cause).collect::<Vec<Value>>();
        let resources = self.page.resources.iter().map(|one| {
            json!({
                "id": one.id,
                "url": one.url,
                "type": one.kind.name(),
                "priority": one.priority.name(),
                "request_bytes": one.request_bytes,
                "header_bytes": one.header_bytes,
                "body_bytes": one.body_bytes,
                "server_ms": one.server_time.as_secs() * 1e3,
                "causes": causes(&one.causes),
                "blocks_load": one.blocks_load,
            })
        });
        let tasks = self.page.tasks.iter().map(|one| {
            json!({
                "id": one.id,
                "ms": one.time.as_secs() * 1e3,
                "causes": causes(&one.causes),
                "blocks_load": one.blocks_load,
            })
        });
        json!({
            "name": self.page.name,
            "resources": resources.collect::<Vec<_>>(),
            "tasks": tasks.collect::<Vec<_>>(),
        })
        .to_string()
    }
}

/// Points of p(cwnd) with so many connections.
type Curve = (usize, Vec<(f64, f64)>);

/// A path for the model: its round-trip time in seconds, its rate in bit/s, what may wait in bytes, and its loss curves.
type ModelPath = (f64, Option<f64>, Option<f64>, Vec<Curve>);

/// Loads a page by the model over each of `paths`, with a seed more each time; the tables of [`load_pages`]. A page ends
/// with its load event: what comes later is NaN.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn model_pages<'py>(
    py: Python<'py>,
    page: &PageSpec,
    protocol: &str,
    tls: &str,
    certificate_bytes: u64,
    dns_s: f64,
    streams: Option<&str>,
    early_data: bool,
    browser_s: [f64; 3],
    scheme: &str,
    initial_window: f64,
    paths: Vec<ModelPath>,
    seed: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let wrong = |message: String| ModelError::new_err(message);
    let protocol: Protocol = protocol
        .parse()
        .map_err(|error: pathcast_scenario::UnknownProtocol| wrong(error.to_string()))?;
    let defaults = Http::new(protocol);
    let [navigation, network_thread, main_thread] = browser_s.map(Span::from_secs);
    let http = Http {
        tls: tls.parse().map_err(wrong)?,
        certificate_bytes,
        dns: Span::from_secs(dns_s),
        streams: match streams {
            Some(order) => order.parse().map_err(wrong)?,
            None => defaults.streams,
        },
        early_data: early_data && protocol.is_over_quic(),
        browser: Browser {
            navigation,
            network_thread,
            main_thread,
        },
        ..defaults
    };
    let mut loaded = Vec::new();
    for (number, (rtt_s, rate_bps, queue_bytes, curves)) in (0..).zip(paths) {
        let curves = curves.into_iter().map(|(connections, points)| {
            let curve = LossCurve::of_points(points);
            let curve = curve.ok_or_else(|| wrong("the loss curve has no valid points".into()));
            Ok((connections, curve?))
        });
        let curves = curves.collect::<PyResult<Vec<_>>>()?;
        if curves.is_empty() {
            return Err(wrong("got no loss curve, expected at least one".into()));
        }
        let none = LossCurve::constant(0.0);
        let model = Model::new(scheme, Span::from_secs(rtt_s), rate_bps, none);
        let model = Model {
            curves,
            initial_window,
            queue_bytes: queue_bytes.unwrap_or(model.queue_bytes),
            ..model
        };
        loaded.push(py.detach(|| model_load(&page.page, http, &model, seed + number)));
    }
    let rows = loaded.iter().map(|one| Row {
        load_ms: one.load_ms,
        connections: one.connections as f64,
        moments: Box::new(one.times.iter().map(|times| times.steps_ms(Time::ZERO))),
    });
    tables(py, rows)
}

/// A load as a row of the tables.
struct Row<'a> {
    load_ms: Option<f64>,
    connections: f64,
    /// Of each resource, in milliseconds: wanted, asked, first byte, finished.
    moments: Box<dyn Iterator<Item = [Option<f64>; 4]> + 'a>,
}

/// The tables of loads of one page, so that all rows have as many resources, by their names, NaN for what did not happen: see [`load_pages`].
fn tables<'py, 'a>(
    py: Python<'py>,
    rows: impl Iterator<Item = Row<'a>>,
) -> PyResult<Bound<'py, PyDict>> {
    let known = |value: Option<f64>| value.unwrap_or(f64::NAN);
    let (mut load, mut connections) = (Vec::new(), Vec::new());
    let mut moments: [Vec<f64>; 4] = Default::default();
    for row in rows {
        load.push(known(row.load_ms));
        connections.push(row.connections);
        for of_resource in row.moments {
            for (table, moment) in moments.iter_mut().zip(of_resource) {
                table.push(known(moment));
            }
        }
    }
    let found = PyDict::new(py);
    let count = load.len();
    let put = |name, values: Vec<f64>| -> PyResult<()> {
        let columns = values.len() / count.max(1);
        let table = Array2::from_shape_vec((count, columns), values).expect("rows are alike");
        let table: Bound<'_, PyArray2<f64>> = table.into_pyarray(py);
        found.set_item(name, table)
    };
    put("load", load)?;
    put("connections", connections)?;
    for (name, values) in ["wanted", "asked", "first_byte", "finished"]
        .into_iter()
        .zip(moments)
    {
        put(name, values)?;
    }
    Ok(found)
}

/// Runs scenarios that each load one and the same page first. Each quantity in milliseconds since the load began, NaN
/// where it did not happen: `load` and `connections` of each run, in a table of one column; `wanted`, `asked`,
/// `first_byte` and `finished` of each run (a row) and resource (a column).
#[pyfunction]
#[pyo3(signature = (specs, threads=0, progress=None))]
pub fn load_pages<'py>(
    py: Python<'py>,
    specs: Vec<Spec<'_>>,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let simulations = simulations(specs);
    let outcomes = run_all(py, &simulations, load_many, threads, progress)?;
    let mut pages = Vec::new();
    for (number, ended) in outcomes.iter().enumerate() {
        let page = match ended {
            Some(Ok(outcome)) => outcome.pages().first(),
            Some(Err(error)) => {
                return Err(SimulationError::new_err(format!("load {number}: {error}")));
            }
            None => None,
        };
        let missing = || SimulationError::new_err(format!("run {number} loads no page"));
        pages.push(page.ok_or_else(missing)?);
    }
    if pages
        .windows(2)
        .any(|two| two[0].resources.len() != two[1].resources.len())
    {
        return Err(SimulationError::new_err("the runs load different pages"));
    }
    let rows = pages.iter().map(|page| Row {
        load_ms: page.load_ms,
        connections: f64::from(page.connections),
        moments: Box::new(page.resources.iter().map(|one| {
            [
                one.wanted_ms,
                one.asked_ms,
                one.first_byte_ms,
                one.finished_ms,
            ]
        })),
    });
    tables(py, rows)
}
