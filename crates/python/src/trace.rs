//! Traces: columns as NumPy arrays, NaN where a source could not tell.

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
        let (time, cwnd) = (required("time_s")?, required("cwnd_packets")?);
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
                let message = format!("column {name} has {got} rows, time_s has {wanted}");
                return Err(TraceError::new_err(message));
            }
            for (record, value) in records.iter_mut().zip(values) {
                if !value.is_nan() {
                    set(record, value);
                }
            }
            Ok(())
        };
        fill("flow", column("flow")?, |r, v| {
            r.flow = v as u32;
        })?;
        fill("ssthresh_packets", column("ssthresh_packets")?, |r, v| {
            r.ssthresh_packets = Some(v);
        })?;
        fill("srtt_s", column("srtt_s")?, |r, v| r.srtt_s = Some(v))?;
        fill("snd_nxt_bytes", column("snd_nxt_bytes")?, |r, v| {
            r.snd_nxt_bytes = Some(v as u64);
        })?;
        fill("snd_una_bytes", column("snd_una_bytes")?, |r, v| {
            r.snd_una_bytes = Some(v as u64);
        })?;
        fill("rwnd_bytes", column("rwnd_bytes")?, |r, v| {
            r.rwnd_bytes = Some(v as u64);
        })?;
        fill("retransmits", column("retransmits")?, |r, v| {
            r.retransmits = Some(v as u64);
        })?;
        fill("min_rtt_s", column("min_rtt_s")?, |r, v| {
            r.min_rtt_s = Some(v);
        })?;
        fill("bandwidth_bps", column("bandwidth_bps")?, |r, v| {
            r.bandwidth_bps = Some(v);
        })?;
        fill("pacing_bps", column("pacing_bps")?, |r, v| {
            r.pacing_bps = Some(v);
        })?;
        fill("delivery_bps", column("delivery_bps")?, |r, v| {
            r.delivery_bps = Some(v);
        })?;
        fill("mode", column("mode")?, |r, v| {
            r.mode = Mode::from_number(v as u8);
        })?;
        fill("cwnd_packets", Some(cwnd), |r, v| {
            r.cwnd_packets = v;
        })?;
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
        column("time_s", |r| Some(r.time_s))?;
        column("flow", |r| Some(f64::from(r.flow)))?;
        column("cwnd_packets", |r| Some(r.cwnd_packets))?;
        column("ssthresh_packets", |r| r.ssthresh_packets)?;
        column("srtt_s", |r| r.srtt_s)?;
        column("snd_nxt_bytes", |r| r.snd_nxt_bytes.map(|v| v as f64))?;
        column("snd_una_bytes", |r| r.snd_una_bytes.map(|v| v as f64))?;
        column("rwnd_bytes", |r| r.rwnd_bytes.map(|v| v as f64))?;
        column("retransmits", |r| r.retransmits.map(|v| v as f64))?;
        column("min_rtt_s", |r| r.min_rtt_s)?;
        column("bandwidth_bps", |r| r.bandwidth_bps)?;
        column("pacing_bps", |r| r.pacing_bps)?;
        column("delivery_bps", |r| r.delivery_bps)?;
        column("mode", |r| r.mode.map(|mode| f64::from(mode as u8)))?;
        Ok(columns)
    }

    /// What is known of the run, as JSON.
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
