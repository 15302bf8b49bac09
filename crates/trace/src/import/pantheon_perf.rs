//! `pantheon_perf.json`, Pantheon's analysis of all runs: throughput, 95th percentile of one-way
//! delay, and loss for each scheme, run and flow.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, StringArray};
use arrow_schema::{DataType, Field, Schema};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

use crate::error::TraceError;
use crate::import::input::{Budget, Input, Metered, json_error};
use crate::import::kind::{Kind, Windows};
use crate::import::{Damage, ReadOptions, TraceFile, most_rows};
use crate::parquet_file::Row;

pub(super) const KIND: Kind = Kind {
    known: Some("pantheon_perf.json"),
    windows: Windows::None("it has sums of whole runs and no series"),
    ..Kind::called("pantheon_perf.json")
};

/// One flow of a run, or all of its flows together.
#[derive(Clone, Debug, PartialEq)]
pub struct PerfRow {
    /// The congestion control, by Pantheon's name.
    pub scheme: String,
    /// The run's number.
    pub run: String,
    /// The flow's number, or `all`.
    pub flow: String,
    /// Received rate in bit/s.
    pub throughput_bps: Option<f64>,
    /// 95th percentile of one-way delays.
    pub one_way_delay_p95_s: Option<f64>,
    /// Share of bytes that had not arrived by the end, whether lost or queued.
    pub loss_rate: Option<f64>,
}

impl Row for PerfRow {
    fn schema() -> Schema {
        use DataType::{Float64, Utf8};
        Schema::new(vec![
            Field::new("scheme", Utf8, false),
            Field::new("run", Utf8, false),
            Field::new("flow", Utf8, false),
            Field::new("throughput_bps", Float64, true),
            Field::new("one_way_delay_p95_s", Float64, true),
            Field::new("loss_rate", Float64, true),
        ])
    }

    fn columns(rows: &[Self]) -> Vec<ArrayRef> {
        let texts = |text: fn(&Self) -> &String| -> ArrayRef {
            Arc::new(
                rows.iter()
                    .map(|row| Some(text(row)))
                    .collect::<StringArray>(),
            )
        };
        let numbers = |number: fn(&Self) -> Option<f64>| -> ArrayRef {
            Arc::new(rows.iter().map(number).collect::<Float64Array>())
        };
        vec![
            texts(|row| &row.scheme),
            texts(|row| &row.run),
            texts(|row| &row.flow),
            numbers(|row| row.throughput_bps),
            numbers(|row| row.one_way_delay_p95_s),
            numbers(|row| row.loss_rate),
        ]
    }
}

#[derive(Deserialize)]
struct Stats {
    /// Mbit/s.
    tput: Option<f64>,
    /// Milliseconds.
    delay: Option<f64>,
    loss: Option<f64>,
}

/// Nested objects: schemes, runs, then flows.
struct Level<'a> {
    names: Vec<String>,
    rows: &'a mut Vec<PerfRow>,
    budget: &'a Budget,
    most: usize,
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.names.len() {
            0 => "an object of schemes",
            1 => "an object of runs",
            _ => "an object of flows",
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            self.budget.renew();
            if self.names.len() < 2 {
                let mut names = self.names.clone();
                names.push(name);
                map.next_value_seed(Level {
                    names,
                    rows: &mut *self.rows,
                    budget: self.budget,
                    most: self.most,
                })?;
                continue;
            }
            // a run that Pantheon left out is empty
            let Some(stats) = map.next_value::<Option<Stats>>()? else {
                continue;
            };
            if self.rows.len() == self.most {
                return Err(A::Error::custom(format!("more than {} rows", self.most)));
            }
            self.rows.push(PerfRow {
                scheme: self.names[0].clone(),
                run: self.names[1].clone(),
                flow: name,
                throughput_bps: stats.tput.map(|mbps| mbps * 1e6),
                one_way_delay_p95_s: stats.delay.map(|ms| ms / 1e3),
                loss_rate: stats.loss,
            });
        }
        Ok(())
    }
}

/// Reads `pantheon_perf.json`, packed or not, and returns its rows in file order, with warnings.
///
/// # Errors
/// A [`TraceError`] if the file cannot be read, is not such JSON, or has no rows. Also if it is
/// damaged, unless `options` keep the rows before the damage.
pub fn read_pantheon_perf(
    path: &Path,
    options: &ReadOptions,
) -> Result<(Vec<PerfRow>, Vec<String>), TraceError> {
    TraceFile::open(path)?.pantheon_perf(options)
}

pub(super) fn read(
    input: Input<'_>,
    options: &ReadOptions,
) -> Result<(Vec<PerfRow>, Vec<String>), TraceError> {
    let budget = Budget::new();
    let source = Metered {
        source: input.open()?,
        budget: budget.clone(),
    };
    let mut json = serde_json::Deserializer::from_reader(std::io::BufReader::new(source));
    let mut rows = Vec::new();
    let level = Level {
        names: Vec::new(),
        rows: &mut rows,
        budget: &budget,
        most: most_rows(input, options)?,
    };
    let outcome = level.deserialize(&mut json).and_then(|()| json.end());
    let mut warnings = Vec::new();
    if let Err(error) = outcome {
        let error = json_error(input.path, &error, 1);
        if options.damage == Damage::Refuse || rows.is_empty() {
            return Err(error);
        }
        warnings.push(format!(
            "{error}; the {} rows before it are kept",
            rows.len()
        ));
    }
    if rows.is_empty() {
        return Err(TraceError::new(input.path, "has no runs"));
    }
    Ok((rows, warnings))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::import::testing::{harmed, harms};

    const PERF: &str = r#"{"bbr": {"1": {"all": {"tput": 10.5, "delay": 52.25, "loss": 0.01},
  "1": {"tput": 10.5, "delay": 52.25, "loss": 0.01}}, "2": {"all": null}},
 "cubic": {"1": {"all": {"tput": 9, "delay": null, "loss": 0}}}}"#;

    fn read_text(text: &[u8], damage: Damage) -> Result<(Vec<PerfRow>, Vec<String>), String> {
        let options = ReadOptions {
            damage,
            ..ReadOptions::default()
        };
        read(Input::bytes(Path::new("f"), text), &options).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_are_flows_of_runs_of_schemes() {
        let (rows, _) = read_text(PERF.as_bytes(), Damage::Refuse).unwrap();
        let names: Vec<_> = rows
            .iter()
            .map(|r| (&*r.scheme, &*r.run, &*r.flow))
            .collect();
        assert_eq!(
            names,
            [
                ("bbr", "1", "all"),
                ("bbr", "1", "1"),
                ("cubic", "1", "all")
            ]
        );
        assert_eq!(rows[0].throughput_bps, Some(10.5e6));
        assert_eq!(rows[0].one_way_delay_p95_s, Some(0.05225));
        assert_eq!(rows[2].one_way_delay_p95_s, None);
        assert_eq!(rows[2].loss_rate, Some(0.0));
    }

    #[test]
    fn a_cut_file_is_refused_by_line_or_kept_so_far() {
        let cut = &PERF.as_bytes()[..PERF.len() - 20];
        let error = read_text(cut, Damage::Refuse).unwrap_err();
        assert!(error.starts_with("f:3: column "), "{error}");
        let (rows, warnings) = read_text(cut, Damage::KeepPrefix).unwrap();
        assert_eq!((rows.len(), warnings.len()), (2, 1));
    }

    proptest! {
        #[test]
        fn damaged_input_is_read_or_refused(harms in harms()) {
            let content = harmed(PERF.as_bytes(), &harms);
            let _ = read_text(&content, Damage::Refuse);
            let _ = read_text(&content, Damage::KeepPrefix);
        }
    }
}
