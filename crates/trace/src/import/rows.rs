//! Rows of a file: bounded in number, ordered and checked.

use std::collections::HashMap;
use std::path::Path;

use crate::error::{Place, TraceError};
use crate::record::{PacketRecord, Record};

/// Logs of several processors may be out of order by this much; more is an error.
const DISORDER_S: f64 = 1.0;
/// Files with more flows are refused.
const MAX_FLOWS: usize = 65_536;

/// A row with a time.
pub(crate) trait Timed {
    fn time_s(&self) -> f64;
    fn time_mut(&mut self) -> &mut f64;
    /// The column and the error (got, expected), if the row has one.
    fn fault(&self) -> Option<(&'static str, String)>;
}

impl Timed for Record {
    fn time_s(&self) -> f64 {
        self.time_s
    }

    fn time_mut(&mut self) -> &mut f64 {
        &mut self.time_s
    }

    fn fault(&self) -> Option<(&'static str, String)> {
        let cwnd = self.cwnd_packets;
        if !(cwnd.is_finite() && cwnd > 0.0) {
            return Some((
                "cwnd",
                format!("got {cwnd}, expected a window greater than 0"),
            ));
        }
        let srtt_s = self.srtt_s.unwrap_or(0.0);
        if !(srtt_s.is_finite() && srtt_s >= 0.0) {
            return Some((
                "srtt",
                format!("got {srtt_s} s, expected a time of at least 0"),
            ));
        }
        None
    }
}

impl Timed for PacketRecord {
    fn time_s(&self) -> f64 {
        self.time_s
    }

    fn time_mut(&mut self) -> &mut f64 {
        &mut self.time_s
    }

    fn fault(&self) -> Option<(&'static str, String)> {
        None
    }
}

/// Rows of one file.
pub(crate) struct Rows<R> {
    rows: Vec<R>,
    most: usize,
    latest_s: f64,
    in_order: bool,
}

impl<R: Timed> Rows<R> {
    pub fn new(most: usize) -> Self {
        Self {
            rows: Vec::new(),
            most,
            latest_s: f64::NEG_INFINITY,
            in_order: true,
        }
    }

    /// Adds a row that came from `place`.
    ///
    /// # Errors
    /// If the row is invalid, lies far before an earlier one, or exceeds the limit.
    pub fn push(&mut self, path: &Path, place: Place, row: R) -> Result<(), TraceError> {
        let time_s = row.time_s();
        let wrong = |place: Place, column: &str, message: String| {
            let place = match place {
                Place::Line { line, .. } => Place::Line {
                    line,
                    column: column.to_string(),
                },
                Place::Byte(offset) => Place::Byte(offset),
            };
            Err(TraceError {
                place: Some(place),
                ..TraceError::new(path, message)
            })
        };
        if !time_s.is_finite() {
            return wrong(
                place,
                "time",
                format!("got {time_s}, expected a finite number"),
            );
        }
        if time_s < self.latest_s - DISORDER_S {
            let message = format!(
                "got {time_s} s after {} s, expected times in order",
                self.latest_s
            );
            return wrong(place, "time", message);
        }
        if let Some((column, message)) = row.fault() {
            return wrong(place, column, message);
        }
        if self.rows.len() == self.most {
            return wrong(place, "", format!("more than {} rows", self.most));
        }
        self.in_order &= time_s >= self.latest_s;
        self.latest_s = self.latest_s.max(time_s);
        self.rows.push(row);
        Ok(())
    }

    /// Takes rows that were already checked.
    pub fn adopt(&mut self, rows: Vec<R>) {
        self.rows = rows;
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// For values that are known only at the end of a file.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut R> {
        self.rows.iter_mut()
    }

    pub fn retain(&mut self, keep: impl FnMut(&R) -> bool) {
        self.rows.retain(keep);
    }

    /// Returns the rows in time order, and the time of the first, which becomes 0 if `from_zero`.
    pub fn finish(mut self, from_zero: bool) -> (Vec<R>, f64) {
        if !self.in_order {
            self.rows.sort_by(|a, b| a.time_s().total_cmp(&b.time_s()));
        }
        let start_s = self.rows.first().map_or(0.0, Timed::time_s);
        if from_zero {
            for row in &mut self.rows {
                *row.time_mut() -= start_s;
            }
        }
        (self.rows, start_s)
    }
}

/// Numbers for flows, in order of appearance.
#[derive(Default)]
pub(crate) struct FlowNames {
    numbers: HashMap<String, u32>,
    pub names: Vec<String>,
}

impl FlowNames {
    /// # Errors
    /// If there are too many flows.
    pub fn number(&mut self, name: &str) -> Result<u32, String> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        if self.names.len() == MAX_FLOWS {
            return Err(format!("more than {MAX_FLOWS} flows"));
        }
        let number = self.names.len() as u32;
        self.numbers.insert(name.to_string(), number);
        self.names.push(name.to_string());
        Ok(number)
    }
}
