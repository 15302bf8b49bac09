//! Traces: columns as NumPy arrays, NaN where a source has no value.

use std::path::PathBuf;

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pathcast_trace::{Metadata, Mode, Record};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::TraceError;

/// A trace, held in Rust.
#[pyclass(frozen, module = "pathcast._internal")]
pub struct Trace(pub pathcast_trace::Trace);

pub fn trace_error(error: &pathcast_trace::TraceError) -> PyErr {
    TraceError::new_err(error.to_string())
}

/// A column: its name, a row's value in it, and how to set that.
type Column = (
    &'static str,
    fn(&Record) -> Option<f64>,
    fn(&mut Record, f64),
);

const COLUMNS: [Column; 14] = [
    ("time_s", |r| Some(r.time_s), |r, v| r.time_s = v),
    (
        "flow",
        |r| Some(f64::from(r.flow)),
        |r, v| r.flow = v as u32,
    ),
    (
        "cwnd_packets",
        |r| Some(r.cwnd_packets),
        |r, v| r.cwnd_packets = v,
    ),
    (
        "ssthresh_packets",
        |r| r.ssthresh_packets,
        |r, v| r.ssthresh_packets = Some(v),
    ),
    ("srtt_s", |r| r.srtt_s, |r, v| r.srtt_s = Some(v)),
    (
        "snd_nxt_bytes",
        |r| r.snd_nxt_bytes.map(|v| v as f64),
        |r, v| r.snd_nxt_bytes = Some(v as u64),
    ),
    (
        "snd_una_bytes",
        |r| r.snd_una_bytes.map(|v| v as f64),
        |r, v| r.snd_una_bytes = Some(v as u64),
    ),
    (
        "rwnd_bytes",
        |r| r.rwnd_bytes.map(|v| v as f64),
        |r, v| r.rwnd_bytes = Some(v as u64),
    ),
    (
        "retransmits",
        |r| r.retransmits.map(|v| v as f64),
        |r, v| r.retransmits = Some(v as u64),
    ),
    ("min_rtt_s", |r| r.min_rtt_s, |r, v| r.min_rtt_s = Some(v)),
    (
        "bandwidth_bps",
        |r| r.bandwidth_bps,
        |r, v| r.bandwidth_bps = Some(v),
    ),
    (
        "pacing_bps",
        |r| r.pacing_bps,
        |r, v| r.pacing_bps = Some(v),
    ),
    (
        "delivery_bps",
        |r| r.delivery_bps,
        |r, v| r.delivery_bps = Some(v),
    ),
    (
        "mode",
        |r| r.mode.map(|mode| f64::from(mode as u8)),
        |r, v| r.mode = Mode::from_number(v as u8),
    ),
];

#[pymethods]
impl Trace {
    /// A trace out of columns of equal length and metadata as JSON; NaN for what is not known.
    #[new]
    fn new(columns: &Bound<'_, PyDict>, metadata_json: &str) -> PyResult<Self> {
        let metadata: Metadata = serde_json::from_str(metadata_json)
            .map_err(|error| TraceError::new_err(format!("metadata: {error}")))?;
        let column = |name: &str| -> PyResult<Option<Vec<f64>>> {
            let Some(values) = columns.get_item(name)? else {
                return Ok(None);
            };
            let array: PyReadonlyArray1<'_, f64> = values.extract()?;
            Ok(Some(array.as_array().to_vec()))
        };
        let required = |name: &str| {
            column(name)?
                .ok_or_else(|| TraceError::new_err(format!("the column {name} is missing")))
        };
        let time = required("time_s")?;
        required("cwnd_packets")?;
        let mut records: Vec<Record> = time
            .iter()
            .map(|&time_s| Record {
                time_s,
                cwnd_packets: f64::NAN, // where it is not known
                ..Record::default()
            })
            .collect();
        let mut fill = |name: &str, values: Option<Vec<f64>>, set: fn(&mut Record, f64)| {
            let Some(values) = values else { return Ok(()) };
            if values.len() != time.len() {
                let (got, wanted) = (values.len(), time.len());
                let message =
                    format!("column {name} has {got} rows, expected {wanted} as in time_s");
                return Err(TraceError::new_err(message));
            }
            for (record, value) in records.iter_mut().zip(values) {
                if !value.is_nan() {
                    set(record, value);
                }
            }
            Ok(())
        };
        for (name, _, set) in COLUMNS {
            fill(name, column(name)?, set)?;
        }
        let mut trace = pathcast_trace::Trace { metadata, records };
        trace.unwrap_counters();
        Ok(Self(trace))
    }

    /// All columns by name, each an array of float64, NaN for what is not known.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        let column = |name: &str, value: fn(&Record) -> Option<f64>| {
            let values: Vec<f64> = self
                .0
                .records
                .iter()
                .map(|r| value(r).unwrap_or(f64::NAN))
                .collect();
            let array: Bound<'_, PyArray1<f64>> = values.into_pyarray(py);
            columns.set_item(name, array)
        };
        for (name, value, _) in COLUMNS {
            column(name, value)?;
        }
        Ok(columns)
    }

    /// What is known about the run, as JSON.
    fn metadata_json(&self) -> String {
        serde_json::to_string(&self.0.metadata).expect("metadata is plain data")
    }

    /// Writes the trace as Parquet, whole or not at all.
    fn write(&self, py: Python<'_>, file: PathBuf) -> PyResult<()> {
        py.detach(|| pathcast_trace::write_parquet(&file, &self.0))
            .map_err(|error| trace_error(&error))
    }

    fn __len__(&self) -> usize {
        self.0.records.len()
    }
}
