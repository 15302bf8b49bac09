//! Many simulations at once; results as an Arrow table.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, UInt32Type, UInt64Type};
use arrow_array::{
    ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray, UInt32Array, UInt64Array,
};
use numpy::{IntoPyArray, PyArray1};
use pathcast_path::Span;
use pathcast_sim::{Outcome, Simulation, run_many};
use pathcast_trace::RunReport;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors::{SchemeError, TraceError};
use crate::path::parse;
use crate::runs::tell;

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

    /// A column of numbers as float64.
    fn numbers<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let missing = || TraceError::new_err(format!("there is no column of numbers {name}"));
        let column = self.0.column_by_name(name).ok_or_else(missing)?;
        let values: Vec<f64> = if let Some(floats) = column.as_primitive_opt::<Float64Type>() {
            floats.values().to_vec()
        } else if let Some(counts) = column.as_primitive_opt::<UInt64Type>() {
            counts.values().iter().map(|&count| count as f64).collect()
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

/// Path text, file name, schemes, duration in seconds, seed.
type Spec = (String, String, Vec<String>, f64, u64);

fn simulation(spec: Spec) -> PyResult<Simulation> {
    let (text, file, schemes, duration_s, seed) = spec;
    let path = parse(&text, &file)?;
    let schemes = schemes
        .iter()
        .map(|name| {
            name.parse()
                .map_err(|error| SchemeError::new_err(format!("{error}")))
        })
        .collect::<PyResult<_>>()?;
    Ok(Simulation {
        path,
        schemes,
        duration: Span::from_secs(duration_s),
        seed,
    })
}

/// Runs many simulations over `threads` threads (0: one for each core); a row for each flow.
/// `progress` is told how many runs have ended.
#[pyfunction]
#[pyo3(signature = (specs, threads=0, progress=None))]
pub fn simulate_many(
    py: Python<'_>,
    specs: Vec<Spec>,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<ArrowTable> {
    let simulations = specs
        .into_iter()
        .map(simulation)
        .collect::<PyResult<Vec<_>>>()?;
    let (done, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut raised = None;
    let outcomes = py.detach(|| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        std::thread::scope(|scope| {
            let work = scope
                .spawn(|| pool.map(|pool| pool.install(|| run_many(&simulations, &done, &stop))));
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
    let outcomes = outcomes
        .map_err(|error| SchemeError::new_err(error.to_string()))?
        .map_err(|(index, error)| SchemeError::new_err(format!("simulation {index}: {error}")))?;
    Ok(ArrowTable(table(&simulations, &outcomes)))
}

fn table(simulations: &[Simulation], outcomes: &[Option<Outcome>]) -> RecordBatch {
    struct Row<'a> {
        simulation: u32,
        flow: u32,
        spec: &'a Simulation,
        report: Arc<RunReport>,
    }
    let mut rows = Vec::new();
    for (index, (spec, outcome)) in simulations.iter().zip(outcomes).enumerate() {
        let Some(outcome) = outcome else { continue };
        let report = Arc::new(outcome.report(0.0, 0.0));
        for flow in 0..report.flows.len() as u32 {
            let simulation = index as u32;
            rows.push(Row {
                simulation,
                flow,
                spec,
                report: Arc::clone(&report),
            });
        }
    }
    let floats = |value: fn(&Row<'_>) -> f64| -> ArrayRef {
        Arc::new(
            rows.iter()
                .map(|row| Some(value(row)))
                .collect::<Float64Array>(),
        )
    };
    let counts = |value: fn(&Row<'_>) -> u64| -> ArrayRef {
        Arc::new(
            rows.iter()
                .map(|row| Some(value(row)))
                .collect::<UInt64Array>(),
        )
    };
    let numbers = |value: fn(&Row<'_>) -> u32| -> ArrayRef {
        Arc::new(
            rows.iter()
                .map(|row| Some(value(row)))
                .collect::<UInt32Array>(),
        )
    };
    let scheme = |row: &Row<'_>| Some(row.report.flows[row.flow as usize].scheme.clone());
    let schemes: ArrayRef = Arc::new(rows.iter().map(scheme).collect::<StringArray>());
    RecordBatch::try_from_iter([
        ("simulation", numbers(|row| row.simulation)),
        ("seed", counts(|row| row.spec.seed)),
        ("duration_s", floats(|row| row.spec.duration.as_secs())),
        ("flow", numbers(|row| row.flow)),
        ("scheme", schemes),
        (
            "goodput_bps",
            floats(|row| row.report.flows[row.flow as usize].goodput_bps),
        ),
        (
            "retransmits",
            counts(|row| row.report.flows[row.flow as usize].retransmits),
        ),
        (
            "packets_delivered",
            counts(|row| row.report.packets_delivered),
        ),
        ("loss_rate", floats(|row| row.report.loss_rate)),
        (
            "one_way_delay_mean_ms",
            floats(|row| row.report.one_way_delay_ms.mean),
        ),
        (
            "one_way_delay_p50_ms",
            floats(|row| row.report.one_way_delay_ms.p50),
        ),
        (
            "one_way_delay_p95_ms",
            floats(|row| row.report.one_way_delay_ms.p95),
        ),
    ])
    .expect("columns have one length")
}
