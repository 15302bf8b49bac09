//! Many simulations in parallel; results as an Arrow table.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray, UInt32Array,
    UInt64Array,
};
use numpy::{IntoPyArray, PyArray1};
use pathcast_scenario::Flow;
use pathcast_sim::{Ended, SimError, Simulation, check_many, run_many};
use pathcast_trace::{FlowReport, GroupReport, Latency, MessageReport, RunReport};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors::{SchemeError, TraceError, of_simulation};
use crate::runs::tell;
use crate::specs::What;

/// A table that any Arrow library takes over without a copy.
#[pyclass(frozen, module = "pathcast._internal")]
pub struct ArrowTable(RecordBatch);

#[pymethods]
impl ArrowTable {
    /// The Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // the interface allows a producer to hand over its own schema
        drop(requested_schema);
        let reader = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    /// Writes the table as Parquet, whole or not at all.
    fn write(&self, py: Python<'_>, file: PathBuf) -> PyResult<()> {
        py.detach(|| pathcast_trace::write_batch(&file, &self.0))
            .map_err(|error| TraceError::new_err(error.to_string()))
    }

    /// A column of numbers as float64, NaN where there is none.
    fn numbers<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let missing = || TraceError::new_err(format!("there is no column of numbers {name}"));
        let column = self.0.column_by_name(name).ok_or_else(missing)?;
        let values: Vec<f64> = if let Some(floats) = column.as_primitive_opt::<Float64Type>() {
            floats
                .iter()
                .map(|value| value.unwrap_or(f64::NAN))
                .collect()
        } else if let Some(counts) = column.as_primitive_opt::<UInt64Type>() {
            counts
                .iter()
                .map(|count| count.map_or(f64::NAN, |count| count as f64))
                .collect()
        } else if let Some(counts) = column.as_primitive_opt::<UInt32Type>() {
            counts
                .values()
                .iter()
                .map(|&count| f64::from(count))
                .collect()
        } else {
            return Err(missing());
        };
        Ok(values.into_pyarray(py))
    }
}

/// What runs, schemes for a path, duration in seconds, seed.
pub type Spec<'py> = (What<'py>, Option<Vec<String>>, f64, u64);

pub fn simulations(specs: Vec<Spec<'_>>) -> Vec<Simulation> {
    let made = specs
        .into_iter()
        .map(|(what, schemes, duration_s, seed)| what.simulation(schemes, duration_s, seed));
    made.collect()
}

fn wrong((index, error): (usize, SimError)) -> PyErr {
    of_simulation(&format!("simulation {index}: "), &error)
}

/// Raises what `simulate_many` raises before it runs anything.
#[pyfunction]
pub fn check_simulations(specs: Vec<Spec<'_>>) -> PyResult<()> {
    check_many(&simulations(specs)).map_err(wrong)
}

/// Runs many simulations over `threads` threads (0: one for each core); a row for each flow.
/// `progress` receives how many runs have ended.
#[pyfunction]
#[pyo3(signature = (specs, threads=0, progress=None))]
pub fn simulate_many(
    py: Python<'_>,
    specs: Vec<Spec<'_>>,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<ArrowTable> {
    let simulations = simulations(specs);
    let outcomes = run_all(py, &simulations, run_many, threads, progress)?;
    Ok(ArrowTable(table(&simulations, &outcomes)))
}

/// [`run_many`] or [`load_many`](pathcast_sim::load_many).
pub type RunAll =
    fn(&[Simulation], &AtomicUsize, &AtomicBool) -> Result<Vec<Ended>, (usize, SimError)>;

/// Runs simulations by `run` over `threads` threads (0: one for each core), while `progress` receives how many have ended.
pub fn run_all(
    py: Python<'_>,
    simulations: &[Simulation],
    run: RunAll,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<Ended>> {
    let (done, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut raised = None;
    let outcomes = py.detach(|| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        std::thread::scope(|scope| {
            let work =
                scope.spawn(|| pool.map(|pool| pool.install(|| run(simulations, &done, &stop))));
            while !work.is_finished() {
                std::thread::sleep(Duration::from_millis(20));
                let ended = done.load(Ordering::Relaxed) as f64;
                if raised.is_none() && !tell(progress.as_ref(), ended, &mut raised) {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            work.join().expect("a simulation does not panic")
        })
    });
    if let Some(error) = raised {
        return Err(error);
    }
    outcomes
        .map_err(|error| SchemeError::new_err(error.to_string()))?
        .map_err(wrong)
}

/// A flow of a simulation: what became of it, or why the simulation came to nothing.
struct Row<'a> {
    simulation: u32,
    number: u32,
    spec: &'a Simulation,
    report: Option<Arc<RunReport>>,
    /// What is known about a simulation that failed.
    flow: FlowReport,
    error: Option<String>,
}

impl Row<'_> {
    fn run<T>(&self, value: impl Fn(&RunReport) -> T) -> Option<T> {
        self.report.as_deref().map(value)
    }

    fn group<T>(&self, value: impl Fn(&GroupReport) -> T) -> Option<T> {
        self.run(|run| value(&run.group_of(self.number)))
    }

    fn message<T>(&self, value: impl Fn(&MessageReport) -> T) -> Option<T> {
        self.flow.messages.as_ref().map(value)
    }

    fn latency(&self, value: impl Fn(&Latency) -> f64) -> Option<f64> {
        let messages = self.flow.messages.as_ref();
        let some = messages.filter(|messages| messages.delivered > 0)?;
        Some(value(&some.latency_ms))
    }
}

fn rows<'a>(simulations: &'a [Simulation], outcomes: &[Ended]) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for ((simulation, spec), outcome) in (0..).zip(simulations).zip(outcomes) {
        let Some(outcome) = outcome else { continue };
        let (report, error) = match outcome {
            Ok(outcome) => (Some(Arc::new(outcome.report(0.0, 0.0))), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let flows = match &report {
            Some(report) => report.flows.clone(),
            None => spec.scenario.flows().map(nothing).collect(),
        };
        for (number, flow) in (0..).zip(flows) {
            rows.push(Row {
                simulation,
                number,
                spec,
                report: report.clone(),
                flow,
                error: error.clone(),
            });
        }
    }
    rows
}

/// The report of a flow that came to nothing.
fn nothing(flow: Flow<'_>) -> FlowReport {
    FlowReport {
        scheme: flow.spec.transport.scheme().to_string(),
        workload: flow.spec.workload.kind().to_string(),
        ..FlowReport::default()
    }
}

fn table(simulations: &[Simulation], outcomes: &[Ended]) -> RecordBatch {
    let rows = rows(simulations, outcomes);
    let mut table = Columns {
        rows: &rows,
        columns: Vec::new(),
    };
    table.number("simulation", |row| row.simulation);
    table.count("seed", |row| row.spec.seed);
    table.float("duration_s", |row| row.spec.duration.as_secs());
    table.number("flow", |row| row.number);
    table.text("scheme", |row| row.flow.scheme.clone());
    table.float("goodput_bps", |row| row.flow.goodput_bps);
    table.count("retransmits", |row| row.flow.retransmits);
    table.count("packets_delivered", |row| {
        row.run(|run| run.packets_delivered).unwrap_or(0)
    });
    table.some_float("loss_rate", |row| row.run(|run| run.loss_rate));
    table.some_float("one_way_delay_mean_ms", |row| {
        row.run(|run| run.one_way_delay_ms.mean)
    });
    table.some_float("one_way_delay_p50_ms", |row| {
        row.run(|run| run.one_way_delay_ms.p50)
    });
    table.some_float("one_way_delay_p95_ms", |row| {
        row.run(|run| run.one_way_delay_ms.p95)
    });
    table.some_float("group_loss_rate", |row| row.group(|group| group.loss_rate));
    table.some_float("group_one_way_delay_p95_ms", |row| {
        row.group(|group| group.one_way_delay_ms.p95)
    });
    table.text("workload", |row| row.flow.workload.clone());
    table.float("start_s", |row| row.flow.start_s);
    table.some_float("completed_s", |row| row.flow.completed_s);
    table.count("delivered_bytes", |row| row.flow.delivered_bytes);
    table.some_count("messages_written", |row| row.message(|m| m.written));
    table.some_count("messages_delivered", |row| row.message(|m| m.delivered));
    table.some_float("latency_mean_ms", |row| row.latency(|latency| latency.mean));
    table.some_float("latency_p50_ms", |row| row.latency(|latency| latency.p50));
    table.some_float("latency_p95_ms", |row| row.latency(|latency| latency.p95));
    table.some_float("latency_p99_ms", |row| row.latency(|latency| latency.p99));
    table.some_text("error", |row| row.error.clone());
    RecordBatch::try_from_iter_with_nullable(table.columns).expect("columns have one length")
}

/// Columns of a table, by name, and whether values may be missing.
struct Columns<'a> {
    rows: &'a [Row<'a>],
    columns: Vec<(&'static str, ArrayRef, bool)>,
}

impl Columns<'_> {
    fn push<A: Array + FromIterator<Option<T>> + 'static, T>(
        &mut self,
        name: &'static str,
        nullable: bool,
        value: impl Fn(&Row<'_>) -> Option<T>,
    ) {
        let column: A = self.rows.iter().map(value).collect();
        self.columns.push((name, Arc::new(column), nullable));
    }

    fn number(&mut self, name: &'static str, value: fn(&Row<'_>) -> u32) {
        self.push::<UInt32Array, _>(name, false, |row| Some(value(row)));
    }

    fn count(&mut self, name: &'static str, value: fn(&Row<'_>) -> u64) {
        self.push::<UInt64Array, _>(name, false, |row| Some(value(row)));
    }

    fn some_count(&mut self, name: &'static str, value: fn(&Row<'_>) -> Option<u64>) {
        self.push::<UInt64Array, _>(name, true, value);
    }

    fn float(&mut self, name: &'static str, value: fn(&Row<'_>) -> f64) {
        self.push::<Float64Array, _>(name, false, |row| Some(value(row)));
    }

    fn some_float(&mut self, name: &'static str, value: fn(&Row<'_>) -> Option<f64>) {
        self.push::<Float64Array, _>(name, true, value);
    }

    fn text(&mut self, name: &'static str, value: fn(&Row<'_>) -> String) {
        self.push::<StringArray, _>(name, false, |row| Some(value(row)));
    }

    fn some_text(&mut self, name: &'static str, value: fn(&Row<'_>) -> Option<String>) {
        self.push::<StringArray, _>(name, true, value);
    }
}
