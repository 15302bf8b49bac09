//! Samples from the bodies of requests: lines of JSON, or a trace as Parquet.

pub mod trace;

use std::io::Read;
use std::sync::atomic::Ordering::Relaxed;

use pathcast_decide::{Client, Report, Sample, SampleError};
use serde::{Deserialize, Serialize};

use crate::app::App;

/// Errors that a response names; the others are counted.
const NAMED: usize = 10;

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// It is not.
    None,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

impl Packing {
    /// By the name of the header Content-Encoding.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "" | "identity" => Some(Self::None),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Unpacks a body of at most `most` bytes.
    ///
    /// # Errors
    /// What is wrong: it is damaged, or too large; whether it is the latter.
    pub fn unpack(self, body: &[u8], most: usize) -> Result<Vec<u8>, (String, bool)> {
        let mut unpacked = Vec::new();
        let limit = most as u64 + 1;
        let read = match self {
            Self::None => {
                unpacked.extend_from_slice(body);
                Ok(body.len())
            }
            Self::Gzip => {
                (flate2::read::MultiGzDecoder::new(body).take(limit)).read_to_end(&mut unpacked)
            }
            Self::Zstd => match ruzstd::decoding::StreamingDecoder::new(body) {
                Ok(decoder) => decoder.take(limit).read_to_end(&mut unpacked),
                Err(error) => return Err((format!("the body is no Zstandard: {error}"), false)),
            },
        };
        read.map_err(|error| (format!("the body cannot be unpacked: {error}"), false))?;
        if unpacked.len() > most {
            return Err((
                format!("the body has more than {most} bytes once unpacked"),
                true,
            ));
        }
        Ok(unpacked)
    }
}

/// What became of a body.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Intake {
    /// Lines that were taken.
    pub accepted: u64,
    /// Lines that were not.
    pub refused: u64,
    /// The first errors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<LineError>,
}

/// What is wrong with a line.
#[derive(Debug, PartialEq, Serialize)]
pub struct LineError {
    line: u64,
    error: String,
}

impl Intake {
    fn refuse(&mut self, line: u64, error: String) {
        self.refused += 1;
        if self.errors.len() < NAMED {
            self.errors.push(LineError { line, error });
        }
    }
}

/// What happened after a decision.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutcomeReport<'a> {
    /// The decision, as its answer names it.
    decision: &'a str,
    /// The client that it was for.
    client: &'a str,
    /// The mean rate, bit/s: of throughput and bitrate.
    rate_bps: Option<f64>,
    /// The time of a transfer, seconds.
    time_s: Option<f64>,
    /// The time of a page load, milliseconds.
    load_ms: Option<f64>,
}

/// Numbered lines that are not empty.
fn lines(body: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    (1..)
        .zip(body.split(|byte| *byte == b'\n'))
        .filter(|(_, line)| !line.iter().all(u8::is_ascii_whitespace))
}

impl App {
    /// Takes samples, a line each.
    pub fn take_lines(&self, body: &[u8]) -> Intake {
        let mut intake = Intake::default();
        let now_s = self.clock.now_s();
        let mut samples: Vec<Sample> = Vec::new();
        for (number, line) in lines(body) {
            let report = serde_json::from_slice::<Report<'_>>(line);
            let sample = match report {
                Ok(report) => report.sample(now_s, self.config.window_s),
                Err(error) => {
                    self.metrics.refused[0].fetch_add(1, Relaxed);
                    intake.refuse(number, error.to_string());
                    continue;
                }
            };
            match sample {
                Ok(sample) => samples.push(sample),
                Err(error) => {
                    self.refuse(&error);
                    intake.refuse(number, error.to_string());
                }
            }
        }
        intake.accepted = samples.len() as u64;
        self.take(&samples);
        intake
    }

    /// Takes a trace of our schema as Parquet. `client` is the far end of its flows, if the trace does not say it; the
    /// trace began at `begun_s`, if it does not say that.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn take_trace(
        &self,
        body: &[u8],
        client: Option<&str>,
        begun_s: Option<f64>,
    ) -> Result<Intake, String> {
        let client = client
            .map(Client::parse)
            .transpose()
            .map_err(|error| error.to_string())?;
        let trace = trace::read(body)?;
        let now_s = self.clock.now_s();
        let mut intake = Intake::default();
        let mut samples = Vec::new();
        for (number, made) in (1..).zip(trace::samples(&trace, client, begun_s, now_s)) {
            match made.and_then(|report| report.sample(now_s, self.config.window_s)) {
                Ok(sample) => samples.push(sample),
                Err(error) => {
                    self.refuse(&error);
                    intake.refuse(number, error.to_string());
                }
            }
        }
        intake.accepted = samples.len() as u64;
        self.take(&samples);
        Ok(intake)
    }

    /// Takes what happened after decisions, a line each.
    pub fn take_outcomes(&self, body: &[u8]) -> Intake {
        let mut intake = Intake::default();
        for (number, line) in lines(body) {
            match self.take_outcome(line) {
                Ok(()) => intake.accepted += 1,
                Err(error) => intake.refuse(number, error),
            }
        }
        intake
    }

    fn take_outcome(&self, line: &[u8]) -> Result<(), String> {
        let report: OutcomeReport<'_> =
            serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let client = Client::parse(report.client).map_err(|error| error.to_string())?;
        let id = u64::from_str_radix(report.decision, 16)
            .map_err(|_| "decision is no number that an answer had".to_string())?;
        let truth = match (report.rate_bps, report.time_s, report.load_ms) {
            (Some(truth), None, None) | (None, Some(truth), None) | (None, None, Some(truth)) => {
                truth
            }
            _ => return Err("expected one of rate_bps, time_s and load_ms".into()),
        };
        if !(0.0..1e15).contains(&truth) {
            return Err(format!(
                "the outcome is {truth}, expected a number of at least 0"
            ));
        }
        let outcome = self.knowledge.outcome(client.prefix, id, truth);
        let outcome = outcome.ok_or("the decision does not wait for its outcome any more")?;
        self.log_outcome(&client.prefix.to_string(), self.clock.now_s(), &outcome);
        Ok(())
    }
}

impl App {
    /// Counts a sample that was refused.
    pub fn refuse(&self, error: &SampleError) {
        self.metrics.refused[reason(error)].fetch_add(1, Relaxed);
    }
}

/// The place of an error in [`crate::metrics::REASONS`].
fn reason(error: &SampleError) -> usize {
    match error {
        SampleError::Client(_) | SampleError::TooWide { .. } => 1,
        SampleError::Future { .. } => 2,
        SampleError::Late { .. } => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::config::Config;

    fn app() -> App {
        App::open(Config::default()).unwrap().0
    }

    #[test]
    fn lines_are_taken_one_by_one() {
        let app = app();
        let body = b"{\"client\": \"192.0.2.7\", \"rate_bps\": 1e6}\n\n\
            {\"client\": \"192.0.2.7\", \"rate_bps\": NaN}\n\
            {\"client\": \"192.0.2.7/24\", \"rate_bps\": 1e6}\n\
            {\"client\": \"192.0.2.7\", \"rate_bps\": 1e6, \"time_s\": 4e9}\n\
            {\"client\": \"192.0.2.7\", \"rate\": 1}\n\xff\n\
            {\"client\": \"2001:db8::1\", \"rtt_s\": 0.1}\r\n";
        let intake = app.take_lines(body);
        assert_eq!((intake.accepted, intake.refused), (2, 5));
        let lines: Vec<u64> = intake.errors.iter().map(|error| error.line).collect();
        assert_eq!(lines, [3, 4, 5, 6, 7]);
        assert_eq!(app.knowledge.totals().0, 2);
    }

    #[test]
    fn deep_json_is_refused() {
        let deep = [b"{\"client\":".repeat(10_000), b"1".to_vec()].concat();
        assert_eq!(app().take_lines(&deep).refused, 1);
    }

    #[test]
    fn packed_bodies_are_unpacked_up_to_a_limit() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(&[b'x'; 100_000]).unwrap();
        let packed = packer.finish().unwrap();
        assert_eq!(
            Packing::Gzip.unpack(&packed, 100_000).unwrap().len(),
            100_000
        );
        assert!(Packing::Gzip.unpack(&packed, 99_999).unwrap_err().1);
        assert!(!Packing::Gzip.unpack(b"none", 10).unwrap_err().1);
        assert!(Packing::Zstd.unpack(b"none", 10).is_err());
    }
}
