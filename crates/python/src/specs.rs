//! Paths and scenarios as Python holds them: parsed once, and changed key by key.

use std::sync::Arc;

use pathcast_path::{Defaults, Path, Span};
use pathcast_scenario::Scenario;
use pathcast_sim::Simulation;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyTuple};
use toml::{Table, Value};

use crate::errors::{PathFileError, of_simulation};
use crate::path::beside;

fn refused(error: impl ToString) -> PyErr {
    PathFileError::new_err(error.to_string())
}

/// A path that was parsed.
#[pyclass(frozen, module = "pathcast._internal")]
pub struct PathSpec {
    pub path: Arc<Path>,
    file: String,
}

impl PathSpec {
    fn of(path: Path, file: &str) -> Self {
        let file = file.to_string();
        let path = Arc::new(path);
        Self { path, file }
    }
}

/// Name, rate (bit/s or None), base RTT (s), forward loss and queue (bytes or None, packets or None).
type PathSummary = (String, Option<f64>, f64, f64, Option<u64>, Option<u64>);

#[pymethods]
impl PathSpec {
    /// Reads a path's text; `file` names it in errors. With `load_files`, also the trace files that it
    /// names, from the folder of `file`.
    #[staticmethod]
    fn parse(text: &str, file: &str, load_files: bool) -> PyResult<Self> {
        let path = match load_files {
            true => Path::parse_with(text, file, &mut beside(file)),
            false => Path::parse(text, file),
        };
        Ok(Self::of(path.map_err(refused)?, file))
    }

    /// The text, every default and every trace file written out.
    fn to_toml(&self) -> String {
        self.path.to_toml()
    }

    /// What plots and models need.
    fn summary(&self) -> PathSummary {
        let path = &self.path;
        let (bytes, packets) = path.queue_limits(&path.forward);
        let limited = |limit: u64| (limit != u64::MAX).then_some(limit);
        (
            path.name.clone(),
            path.forward.mean_rate().map(|rate| rate.as_bps()),
            path.base_rtt().as_secs(),
            path.forward.mean_loss(),
            limited(bytes),
            limited(packets),
        )
    }

    /// The same with other values of some keys; None takes a key away.
    fn replaced(&self, keys: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut table = table_of(&self.path.to_toml_with(Defaults::Independent));
        set(&mut table, keys)?;
        Self::parse(&text_of(&table), &self.file, false)
    }
}

/// A scenario that was parsed.
#[pyclass(frozen, module = "pathcast._internal")]
pub struct ScenarioSpec {
    pub scenario: Arc<Scenario>,
    file: String,
}

impl ScenarioSpec {
    fn of(scenario: Scenario, file: &str) -> Self {
        let file = file.to_string();
        let scenario = Arc::new(scenario);
        Self { scenario, file }
    }

    fn changed(&self, change: impl FnOnce(&mut Table) -> PyResult<()>) -> PyResult<Self> {
        let mut table = table_of(&self.scenario.to_toml_with(Defaults::Independent));
        change(&mut table)?;
        Self::parse(&text_of(&table), &self.file, false)
    }
}

/// Name, duration (s or None), and of each flow its scheme and workload.
type ScenarioSummary = (String, Option<f64>, Vec<(String, String)>);

#[pymethods]
impl ScenarioSpec {
    /// Reads a scenario's text; `file` names it in errors. With `load_files`, also the files that it
    /// names, from the folder of `file`.
    #[staticmethod]
    fn parse(text: &str, file: &str, load_files: bool) -> PyResult<Self> {
        let scenario = match load_files {
            true => Scenario::parse_with(text, file, &mut beside(file)),
            false => Scenario::parse(text, file),
        };
        Ok(Self::of(scenario.map_err(refused)?, file))
    }

    /// One flow of each scheme over a path, all with the workload that the text says.
    #[staticmethod]
    fn over(path: &PathSpec, schemes: Vec<String>, workload: &str) -> PyResult<Self> {
        let mut scenario = Scenario::bulk((*path.path).clone(), schemes);
        scenario
            .set_workload(workload)
            .map_err(|error| refused(format!("workload: {error}")))?;
        Ok(Self::of(scenario, &path.file))
    }

    /// The text, every default and every file written out.
    fn to_toml(&self) -> String {
        self.scenario.to_toml()
    }

    /// What the command line and Python need.
    fn summary(&self) -> ScenarioSummary {
        let flows = self.scenario.flows().map(|flow| {
            let scheme = flow.spec.transport.scheme().to_string();
            (scheme, flow.spec.workload.kind().to_string())
        });
        let duration_s = self.scenario.duration.map(Span::as_secs);
        (self.scenario.name.clone(), duration_s, flows.collect())
    }

    /// The links that the first flow crosses, one by one, as paths.
    fn first_route(&self) -> Vec<PathSpec> {
        let first = self.scenario.flows.first();
        let route = first.map_or(&[][..], |flow| &flow.route);
        let paths = route.iter().map(|&link| &self.scenario.links[link].path);
        paths
            .map(|path| PathSpec::of(path.clone(), &self.file))
            .collect()
    }

    /// The keys of a flow by its number, as Python values; `count` says how many are alike.
    fn flow<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyAny>> {
        let mut table = table_of(&self.scenario.to_toml());
        let keys = std::mem::take(flow_of(&mut table, number)?);
        as_python(py, &Value::Table(keys))
    }

    /// The same with other values of some keys; None takes a key away.
    fn replaced(&self, keys: &Bound<'_, PyDict>) -> PyResult<Self> {
        self.changed(|table| set(table, keys))
    }

    /// The same with other values of some keys of a flow by its number, and of all that are alike.
    fn flow_replaced(&self, number: usize, keys: &Bound<'_, PyDict>) -> PyResult<Self> {
        self.changed(|table| set(flow_of(table, number)?, keys))
    }

    /// The same with other values of some keys of a link.
    fn link_replaced(&self, name: &str, keys: &Bound<'_, PyDict>) -> PyResult<Self> {
        self.changed(|table| {
            let links = table.get_mut("links").and_then(Value::as_table_mut);
            let link = links.and_then(|links| links.get_mut(name)?.as_table_mut());
            let missing = || refused(format!("{}: there is no link {name}", self.file));
            set(link.ok_or_else(missing)?, keys)
        })
    }

    /// The same with a flow more.
    fn with_flow(&self, keys: &Bound<'_, PyDict>) -> PyResult<Self> {
        self.changed(|table| {
            let mut flow = Table::new();
            set(&mut flow, keys)?;
            let flows = table.get_mut("flows").and_then(Value::as_array_mut);
            flows.expect("a scenario has flows").push(flow.into());
            Ok(())
        })
    }
}

/// What runs: a path, over which schemes send, or a scenario.
#[derive(FromPyObject)]
pub enum What<'py> {
    Path(PyRef<'py, PathSpec>),
    Scenario(PyRef<'py, ScenarioSpec>),
}

impl What<'_> {
    /// Bulk flows of the schemes over a path, or the scenario, which has its own.
    pub fn scenario(&self, schemes: Option<Vec<String>>) -> Scenario {
        match self {
            Self::Path(spec) => Scenario::bulk((*spec.path).clone(), schemes.unwrap_or_default()),
            Self::Scenario(spec) => (*spec.scenario).clone(),
        }
    }

    /// What to simulate.
    pub fn simulation(
        &self,
        schemes: Option<Vec<String>>,
        duration_s: f64,
        seed: u64,
    ) -> Simulation {
        Simulation {
            scenario: self.scenario(schemes),
            duration: Span::from_secs(duration_s),
            seed,
        }
    }

    /// As [`What::simulation`], if it can be run.
    pub fn checked_simulation(
        &self,
        schemes: Option<Vec<String>>,
        duration_s: f64,
        seed: u64,
    ) -> PyResult<Simulation> {
        let simulation = self.simulation(schemes, duration_s, seed);
        simulation
            .check()
            .map_err(|error| of_simulation("", &error))?;
        Ok(simulation)
    }
}

/// Whether a file's text is a scenario rather than a path.
#[pyfunction]
pub fn is_scenario(text: &str) -> bool {
    Scenario::is_scenario(text)
}

fn table_of(text: &str) -> Table {
    text.parse().expect("what we write is TOML")
}

fn text_of(table: &Table) -> String {
    toml::to_string(table).expect("a table is TOML")
}

/// The table of the flow of this number, or of the ones like it.
fn flow_of(table: &mut Table, number: usize) -> PyResult<&mut Table> {
    let flows = table.get_mut("flows").and_then(Value::as_array_mut);
    let mut from = 0;
    for flow in flows.into_iter().flatten().filter_map(Value::as_table_mut) {
        let count = flow.get("count").and_then(Value::as_integer).unwrap_or(1);
        from += usize::try_from(count).unwrap_or(1);
        if number < from {
            return Ok(flow);
        }
    }
    Err(PyIndexError::new_err(format!(
        "the scenario has no flow {number}, expected 0 to {}",
        from.saturating_sub(1)
    )))
}

fn set(table: &mut Table, keys: &Bound<'_, PyDict>) -> PyResult<()> {
    for (key, value) in keys {
        let key = key.extract()?;
        if value.is_none() {
            table.remove(&key);
        } else {
            table.insert(key, as_toml(&value)?);
        }
    }
    Ok(())
}

fn as_toml(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if value.is_instance_of::<PyBool>() {
        return Ok(Value::Boolean(value.extract()?));
    }
    if let Ok(number) = value.extract::<i64>() {
        return Ok(Value::Integer(number));
    }
    if let Ok(number) = value.extract::<f64>() {
        return Ok(Value::Float(number));
    }
    if let Ok(text) = value.extract::<String>() {
        return Ok(Value::String(text));
    }
    if let Ok(keys) = value.cast::<PyDict>() {
        let mut table = Table::new();
        set(&mut table, keys)?;
        return Ok(Value::Table(table));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let values: PyResult<_> = value.try_iter()?.map(|one| as_toml(&one?)).collect();
        return Ok(Value::Array(values?));
    }
    Err(PyTypeError::new_err(format!(
        "got {value}, expected a truth value, a number, a text, a list or a dict"
    )))
}

fn as_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::String(text) => text.into_pyobject(py)?.into_any(),
        Value::Integer(number) => number.into_pyobject(py)?.into_any(),
        Value::Float(number) => number.into_pyobject(py)?.into_any(),
        Value::Boolean(truth) => PyBool::new(py, *truth).to_owned().into_any(),
        Value::Datetime(moment) => moment.to_string().into_pyobject(py)?.into_any(),
        Value::Array(values) => {
            let values: PyResult<Vec<_>> = values.iter().map(|one| as_python(py, one)).collect();
            PyList::new(py, values?)?.into_any()
        }
        Value::Table(table) => {
            let keys = PyDict::new(py);
            for (key, value) in table {
                keys.set_item(key, as_python(py, value)?)?;
            }
            keys.into_any()
        }
    })
}
