//! Traces of other tools: read with what is to be said of them, and written in other formats.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pathcast_trace::{
    Damage, Format, Metadata, ReadOptions, Source, merge_tunnel_ends, packets_of_bytes, read_bytes,
    write_delivery_trace, write_mm_link_log, write_packets, write_perf_csv, write_rows,
};
use pyo3::prelude::*;

use crate::trace::{Trace, trace_error};

/// What is to be said of a conversion, as JSON.
fn said(
    format: Format,
    rows: usize,
    warnings: &[String],
    goodput_bps: &BTreeMap<u32, f64>,
) -> String {
    serde_json::json!({
        "format": format.to_string(),
        "rows": rows,
        "warnings": warnings,
        "goodput_bps": goodput_bps,
    })
    .to_string()
}

fn options(keep_prefix: bool, flow: Option<u32>) -> ReadOptions {
    ReadOptions {
        damage: if keep_prefix {
            Damage::KeepPrefix
        } else {
            Damage::Refuse
        },
        flow,
        ..ReadOptions::default()
    }
}

/// A file or pipe, opened once and read as often as needed; `-` is the standard input.
#[pyclass(frozen, module = "pathcast._internal")]
pub struct TraceFile {
    path: PathBuf,
    file: pathcast_trace::TraceFile,
}

#[pymethods]
impl TraceFile {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        // the opening of a named pipe waits for who writes it
        let file = py
            .detach(|| pathcast_trace::TraceFile::open(&path))
            .map_err(|error| trace_error(&error))?;
        Ok(Self { path, file })
    }

    /// The format, by content.
    fn format(&self, py: Python<'_>) -> PyResult<String> {
        let format = py.detach(|| self.file.format());
        Ok(format.map_err(|error| trace_error(&error))?.to_string())
    }
}

/// Reads a trace in any known format, or of what entered and what left a Pantheon tunnel; with what is
/// to be said of it.
#[pyfunction]
#[pyo3(signature = (file, keep_prefix, flow=None, egress=None))]
pub fn import_trace(
    py: Python<'_>,
    file: &TraceFile,
    keep_prefix: bool,
    flow: Option<u32>,
    egress: Option<&TraceFile>,
) -> PyResult<(Trace, String)> {
    let options = options(keep_prefix, flow);
    let imported = py
        .detach(|| match egress {
            None => file.file.read(&options),
            Some(egress) => {
                let (log, warnings) = merge_tunnel_ends(&file.file, &egress.file, &options)?;
                let mut imported = read_bytes(&file.path, &log, &options)?;
                imported.warnings.splice(..0, warnings);
                Ok(imported)
            }
        })
        .map_err(|error| trace_error(&error))?;
    let rows = imported.trace.records.len();
    let said = said(
        imported.format,
        rows,
        &imported.warnings,
        &imported.goodput_bps,
    );
    Ok((Trace(imported.trace), said))
}

/// Writes the windows of a trace of one flow as CSV.
#[pyfunction]
pub fn export_csv(py: Python<'_>, trace: &Trace, file: PathBuf) -> PyResult<()> {
    py.detach(|| pathcast_trace::write_csv(&file, &trace.0))
        .map_err(|error| trace_error(&error))
}

/// Reads packets and writes them as the ending of `output` says: `.log` of mm-link, `.trace` of
/// mahimahi, else Parquet.
#[pyfunction]
#[pyo3(signature = (file, output, keep_prefix, flow=None, egress=None))]
pub fn convert_packets(
    py: Python<'_>,
    file: &TraceFile,
    output: PathBuf,
    keep_prefix: bool,
    flow: Option<u32>,
    egress: Option<&TraceFile>,
) -> PyResult<String> {
    let options = options(keep_prefix, flow);
    py.detach(|| {
        let packets = match egress {
            None => file.file.packets(&options)?,
            Some(egress) => {
                let (log, warnings) = merge_tunnel_ends(&file.file, &egress.file, &options)?;
                let mut packets = packets_of_bytes(&file.path, &log, &options)?;
                packets.warnings.splice(..0, warnings);
                packets
            }
        };
        match output.extension().and_then(|ending| ending.to_str()) {
            Some("log") => write_mm_link_log(&output, &packets.records)?,
            Some("trace") => _ = write_delivery_trace(&output, &packets.records)?,
            _ => write_packets(&output, &packets.metadata, &packets.records)?,
        }
        let rows = packets.records.len();
        Ok(said(
            packets.format,
            rows,
            &packets.warnings,
            &BTreeMap::new(),
        ))
    })
    .map_err(|error| trace_error(&error))
}

/// Writes the rows of a `pantheon_perf.json` as Parquet, or as CSV if `output` ends in `.csv`.
#[pyfunction]
pub fn convert_pantheon_perf(
    py: Python<'_>,
    file: &TraceFile,
    output: PathBuf,
    keep_prefix: bool,
) -> PyResult<String> {
    py.detach(|| {
        let (rows, warnings) = file.file.pantheon_perf(&options(keep_prefix, None))?;
        let count = rows.len();
        match output.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => write_perf_csv(&output, &rows)?,
            _ => write_rows(&output, &Metadata::new(Source::Pantheon), rows)?,
        }
        Ok(said(
            Format::PantheonPerf,
            count,
            &warnings,
            &BTreeMap::new(),
        ))
    })
    .map_err(|error| trace_error(&error))
}
