//! cwnd series as CSV: `time_s,cwnd_packets`, the form in which others publish them.

use std::cell::Cell;
use std::io::{self, Read};
use std::path::Path;

use crate::error::TraceError;
use crate::record::{MAX_ROWS, Metadata, Record, Source, Trace};

/// Refuses larger rows: a gzipped row could unpack to any size.
const MAX_ROW_BYTES: usize = 1 << 20;

/// A reader that fails after `left` bytes.
struct Metered<'a, R> {
    source: R,
    left: &'a Cell<usize>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.left.get());
        if most == 0 {
            let message = format!("a row of more than {MAX_ROW_BYTES} bytes");
            return Err(io::Error::other(message));
        }
        let count = self.source.read(&mut buffer[..most])?;
        self.left.set(self.left.get() - count);
        Ok(count)
    }
}

/// Reads a CSV file with the columns `time_s` and `cwnd_packets` in any order. Other columns are
/// ignored; `path` names the file in errors.
///
/// # Errors
/// A [`TraceError`] with line and column if a column is missing, a cell is not a number, or a cwnd
/// is not greater than zero. Also if time goes backwards, a row is too large, or there are no rows
/// or too many.
pub fn read_csv(source: impl Read, path: &Path) -> Result<Trace, TraceError> {
    let mut records = Vec::new();
    read_rows(source, path, MAX_ROWS, &mut records)?;
    Ok(Trace {
        metadata: Metadata::new(Source::Csv),
        records,
    })
}

/// Adds rows to `records` up to the first wrong one, at most `most`.
pub(crate) fn read_rows(
    source: impl Read,
    path: &Path,
    most: usize,
    records: &mut Vec<Record>,
) -> Result<(), TraceError> {
    let left = &Cell::new(MAX_ROW_BYTES);
    let source = Metered { source, left };
    let mut reader = csv::ReaderBuilder::new()
        .flexible(false)
        .from_reader(source);
    let headers = reader
        .byte_headers()
        .map_err(|error| csv_error(path, &error))?
        .clone();
    let column = |name: &str| {
        headers
            .iter()
            .position(|header| header.trim_ascii() == name.as_bytes())
            .ok_or_else(|| {
                let got: Vec<_> = headers
                    .iter()
                    .take(8)
                    .map(|h| {
                        String::from_utf8_lossy(h)
                            .chars()
                            .take(40)
                            .collect::<String>()
                    })
                    .collect();
                let message = format!("the columns are {got:?}, expected time_s and cwnd_packets");
                TraceError::at(path, 1, "", message)
            })
    };
    let (time_column, cwnd_column) = (column("time_s")?, column("cwnd_packets")?);

    let mut row = csv::ByteRecord::new();
    while reader
        .read_byte_record(&mut row)
        .map_err(|error| csv_error(path, &error))?
    {
        left.set(MAX_ROW_BYTES);
        let line = row.position().map_or(0, csv::Position::line);
        let number = |column: usize, name: &str| -> Result<f64, TraceError> {
            let cell = std::str::from_utf8(&row[column])
                .unwrap_or("(not UTF-8)")
                .trim();
            cell.parse::<f64>()
                .ok()
                .filter(|value| value.is_finite())
                .ok_or_else(|| {
                    let cell: String = cell.chars().take(40).collect();
                    TraceError::at(
                        path,
                        line,
                        name,
                        format!("got {cell:?}, expected a finite number"),
                    )
                })
        };
        let time_s = number(time_column, "time_s")?;
        let cwnd_packets = number(cwnd_column, "cwnd_packets")?;
        if let Some(last) = records.last()
            && time_s < last.time_s
        {
            let message = format!(
                "got {time_s}, expected at least {}: rows must be sorted by time",
                last.time_s
            );
            return Err(TraceError::at(path, line, "time_s", message));
        }
        if cwnd_packets <= 0.0 {
            let message = format!("got {cwnd_packets}, expected a window greater than 0");
            return Err(TraceError::at(path, line, "cwnd_packets", message));
        }
        if records.len() == most {
            return Err(TraceError::at(
                path,
                line,
                "",
                format!("more than {most} rows"),
            ));
        }
        records.push(Record {
            time_s,
            cwnd_packets,
            ..Record::default()
        });
    }
    if records.is_empty() {
        return Err(TraceError::new(
            path,
            "has no rows, expected time_s,cwnd_packets and numbers",
        ));
    }
    Ok(())
}

fn csv_error(path: &Path, error: &csv::Error) -> TraceError {
    let message = match error.kind() {
        csv::ErrorKind::Io(error) => format!("cannot be read: {error}"),
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => {
            format!("got {len} cells, expected {expected_len}")
        }
        _ => error.to_string(),
    };
    match error.position() {
        Some(position) => TraceError::at(path, position.line(), "", message),
        None => TraceError::new(path, message),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Trace, String> {
        read_csv(text.as_bytes(), Path::new("t.csv")).map_err(|error| error.to_string())
    }

    #[test]
    fn columns_are_found_by_name() {
        let trace = read("cwnd_packets,x,time_s\n10,a,0.5\n11,b,0.75\n").unwrap();
        let rows: Vec<_> = trace
            .records
            .iter()
            .map(|r| (r.time_s, r.cwnd_packets))
            .collect();
        assert_eq!(rows, [(0.5, 10.0), (0.75, 11.0)]);
    }

    #[test]
    fn errors_name_line_column_and_what_was_expected() {
        for (text, wanted) in [
            (
                "",
                "t.csv:1: the columns are [], expected time_s and cwnd_packets",
            ),
            (
                "a,b\n1,2\n",
                "t.csv:1: the columns are [\"a\", \"b\"], expected time_s and cwnd_packets",
            ),
            (
                "time_s,cwnd_packets\n",
                "t.csv: has no rows, expected time_s,cwnd_packets and numbers",
            ),
            (
                "time_s,cwnd_packets\n1,NaN\n",
                "t.csv:2: cwnd_packets: got \"NaN\", expected a finite number",
            ),
            (
                "time_s,cwnd_packets\n1,2\n1,x\n",
                "t.csv:3: cwnd_packets: got \"x\", expected a finite number",
            ),
            (
                "time_s,cwnd_packets\n1,2\n0.5,3\n",
                "t.csv:3: time_s: got 0.5, expected at least 1: rows must be sorted by time",
            ),
            (
                "time_s,cwnd_packets\n1,0\n",
                "t.csv:2: cwnd_packets: got 0, expected a window greater than 0",
            ),
            (
                "time_s,cwnd_packets\n1\n",
                "t.csv:2: got 1 cells, expected 2",
            ),
        ] {
            assert_eq!(read(text).unwrap_err(), wanted, "{text:?}");
        }
    }

    #[test]
    fn rows_without_end_are_refused_in_bounded_memory() {
        let start = "time_s,cwnd_packets\n1,2\n";
        for endless in [b'1', b'"', b',', b'\n'] {
            for start in ["", start] {
                let source = start.as_bytes().chain(io::repeat(endless));
                let error = read_csv(source, Path::new("t.csv")).unwrap_err();
                assert!(error.message.contains("more than 1048576 bytes"), "{error}");
            }
        }
        let rows = format!("{start}{}", "1,2\n".repeat(MAX_ROW_BYTES));
        assert_eq!(read(&rows).unwrap().records.len(), 1 + MAX_ROW_BYTES);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_csv(&bytes[..], Path::new("t.csv"));
        }

        #[test]
        fn any_numbers_come_back(cwnds in prop::collection::vec(1e-3..1e6f64, 1..50)) {
            let mut text = String::from("time_s,cwnd_packets\n");
            for (i, cwnd) in cwnds.iter().enumerate() {
                text += &format!("{i},{cwnd}\n");
            }
            let trace = read(&text).unwrap();
            let back: Vec<f64> = trace.records.iter().map(|r| r.cwnd_packets).collect();
            prop_assert_eq!(back, cwnds);
        }
    }
}
