//! Text tables: `time_s,cwnd_packets`, which [`read_csv`](crate::read_csv) reads, and Pantheon's
//! run summaries.

use std::io::{BufWriter, Write};
use std::path::Path;

use crate::error::TraceError;
use crate::import::PerfRow;
use crate::output::write_beside;
use crate::record::Trace;

/// Writes the windows of a trace with one flow, completely or not at all. Reading the file back
/// gives exactly the same numbers.
///
/// # Errors
/// A [`TraceError`] if the trace has several flows, which the format cannot distinguish, or if the
/// file cannot be written.
pub fn write_csv(path: &Path, trace: &Trace) -> Result<(), TraceError> {
    let flows = trace.flows();
    if flows.len() > 1 {
        let message = format!("cannot be written: CSV is for one flow, and these are {flows:?}");
        return Err(TraceError::new(path, message));
    }
    write_beside(path, |file| {
        let mut out = BufWriter::new(file);
        let mut write = || -> std::io::Result<()> {
            writeln!(out, "time_s,cwnd_packets")?;
            for record in &trace.records {
                writeln!(out, "{},{}", record.time_s, record.cwnd_packets)?;
            }
            out.flush()
        };
        write().map_err(|error| error.to_string())
    })
}

/// Writes the rows of a `pantheon_perf.json` as CSV with a header. Unknown values are empty cells.
///
/// # Errors
/// A [`TraceError`] if the file cannot be written.
pub fn write_perf_csv(path: &Path, rows: &[PerfRow]) -> Result<(), TraceError> {
    write_beside(path, |file| {
        let mut out = csv::Writer::from_writer(BufWriter::new(file));
        let mut write = || -> Result<(), csv::Error> {
            out.write_record([
                "scheme",
                "run",
                "flow",
                "throughput_bps",
                "one_way_delay_p95_s",
                "loss_rate",
            ])?;
            let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
            for row in rows {
                out.write_record([
                    &row.scheme,
                    &row.run,
                    &row.flow,
                    &number(row.throughput_bps),
                    &number(row.one_way_delay_p95_s),
                    &number(row.loss_rate),
                ])?;
            }
            Ok(out.flush()?)
        };
        write().map_err(|error| error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Metadata, Record, Source};

    #[test]
    fn what_is_written_is_read_back_and_flows_are_not_mixed() {
        let record = |time_s: f64, flow: u32| Record {
            time_s,
            flow,
            cwnd_packets: 10.0 / 3.0 + time_s,
            ..Record::default()
        };
        let mut trace = Trace {
            metadata: Metadata::new(Source::Csv),
            records: (0..9).map(|i| record(f64::from(i) / 7.0, 0)).collect(),
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        write_csv(&path, &trace).unwrap();
        assert_eq!(crate::read(&path).unwrap(), trace);
        trace.records.push(record(9.0, 1));
        let error = write_csv(&path, &trace).unwrap_err().to_string();
        assert!(error.contains("these are [0, 1]"), "{error}");
    }
}
