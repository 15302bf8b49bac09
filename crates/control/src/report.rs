//! What an agent reports: what it applied, and what it saw by client prefix.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::{ControlError, FORMAT, invalid, read, shown, within};
use crate::prefix::Prefix;
use crate::template::Name;

/// Most prefixes of one report.
const MOST_PREFIXES: usize = 100_000;
/// Most errors, and the longest of them in bytes.
const MOST_ERRORS: usize = 100;
const LONGEST_ERROR: usize = 2000;
/// Longest name of an agent.
const LONGEST_AGENT: usize = 64;

/// A report of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Format of this text; at most [`FORMAT`].
    pub format: u32,
    /// Name of the agent: 1 to 64 lower-case letters, digits, `-` or `.`.
    pub agent: String,
    /// Random for each start of the agent: 8 to 64 hexadecimal digits.
    pub boot: String,
    /// Rises with each report of a boot.
    pub sequence: u64,
    /// When it was sent, milliseconds since 1970.
    pub sent_at_ms: u64,
    /// What the agent applied.
    pub applied: Applied,
    /// What it saw since its last report.
    pub prefixes: Vec<PrefixReport>,
}

/// What an agent applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Applied {
    /// Version of the configuration in force; 0: none.
    pub version: u64,
    /// Whether all of the newest that it got is in force.
    pub ok: bool,
    /// What is not, and why.
    #[serde(default)]
    pub errors: Vec<String>,
}

/// What an agent saw of one prefix. A condition that was not measured is absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixReport {
    /// The prefix.
    pub prefix: Prefix,
    /// Flows measured.
    pub flows: u64,
    /// Round-trip time, milliseconds: above 0, to 120,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Share of packets lost: 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Bandwidth, Mbit/s: above 0, to 10^7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_mbps: Option<f64>,
    /// Variation of the round-trip time, milliseconds: 0 to 120,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<f64>,
    /// Completion times by template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completions: Vec<Completions>,
}

/// Completion times of requests or page loads under one template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Completions {
    /// The template in force when they began.
    pub template: Name,
    /// Version of the configuration in force then.
    pub version: u64,
    /// Their number, at least 1.
    pub count: u64,
    /// Sum of the times, milliseconds.
    pub sum_ms: f64,
    /// Sum of ln(milliseconds).
    pub sum_log: f64,
    /// Sum of ln(milliseconds)^2.
    pub sum_log2: f64,
    /// Quantiles 10, 50 and 90 %, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantiles_ms: Option<[f64; 3]>,
}

impl Completions {
    /// The sums of times in milliseconds; none if there are none, or one is not positive.
    pub fn of(template: Name, version: u64, times_ms: &[f64]) -> Option<Self> {
        if times_ms.is_empty() || !times_ms.iter().all(|ms| *ms > 0.0 && ms.is_finite()) {
            return None;
        }
        let mut sorted = times_ms.to_vec();
        sorted.sort_by(f64::total_cmp);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within the length
        let quantile = |q: f64| sorted[((sorted.len() - 1) as f64 * q).round() as usize];
        Some(Self {
            template,
            version,
            count: times_ms.len() as u64,
            sum_ms: times_ms.iter().sum(),
            sum_log: times_ms.iter().map(|ms| ms.ln()).sum(),
            sum_log2: times_ms.iter().map(|ms| ms.ln() * ms.ln()).sum(),
            quantiles_ms: Some([quantile(0.1), quantile(0.5), quantile(0.9)]),
        })
    }

    fn check(&self, at: &str) -> Result<(), ControlError> {
        let at = |name: &str| format!("{at}.completions.{name}");
        let count = self.count as f64;
        within(|| at("count"), count, 1.0, 1e9)?;
        within(|| at("sum_ms"), self.sum_ms, f64::MIN_POSITIVE, count * 1e8)?;
        // between a nanosecond and a day
        within(|| at("sum_log"), self.sum_log, count * -14.0, count * 18.5)?;
        // (sum x)^2 <= n sum x^2 (Cauchy-Schwarz), but for rounding
        let least = self.sum_log * self.sum_log / count;
        let rounding = 1e-6 * (1.0 + least);
        within(
            || at("sum_log2"),
            self.sum_log2,
            least - rounding,
            count * 400.0,
        )?;
        if let Some([low, median, high]) = self.quantiles_ms {
            let is_ascending = 0.0 < low && low <= median && median <= high && high.is_finite();
            if !is_ascending {
                let message = format!("got {low}, {median}, {high}, expected positive, ascending");
                return Err(invalid(at("quantiles_ms"), message));
            }
        }
        Ok(())
    }
}

impl Report {
    /// Reads and checks a report.
    ///
    /// # Errors
    /// [`ControlError`] if the format is newer, a key is unknown or missing, a value is out of range, a prefix or a
    /// prefix' template and version occurs twice, or there are more than 100,000 prefixes.
    pub fn read(bytes: &[u8]) -> Result<Self, ControlError> {
        let report: Self = read("report", bytes)?;
        report.check()?;
        Ok(report)
    }

    /// The text.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it has text keys")
    }

    /// Checks all values.
    ///
    /// # Errors
    /// [`ControlError::Invalid`] as [`Self::read`].
    pub fn check(&self) -> Result<(), ControlError> {
        if self.format == 0 || self.format > FORMAT {
            let got = u64::from(self.format);
            return Err(ControlError::Format {
                what: "report",
                got,
            });
        }
        check_agent(&self.agent)?;
        let is_boot = (8..=64).contains(&self.boot.len())
            && self.boot.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_boot {
            let message = format!(
                "got {:?}, expected 8 to 64 hexadecimal digits",
                shown(&self.boot)
            );
            return Err(invalid("boot", message));
        }
        let errors = &self.applied.errors;
        if errors.len() > MOST_ERRORS || errors.iter().any(|error| error.len() > LONGEST_ERROR) {
            let message = format!("expected at most {MOST_ERRORS} of {LONGEST_ERROR} bytes");
            return Err(invalid("applied.errors", message));
        }
        if self.prefixes.len() > MOST_PREFIXES {
            let message = format!(
                "got {}, expected at most {MOST_PREFIXES}; send several",
                self.prefixes.len()
            );
            return Err(invalid("prefixes", message));
        }
        let mut seen = BTreeSet::new();
        for one in &self.prefixes {
            if !seen.insert(one.prefix) {
                let message = format!("{} occurs twice, expected it once", one.prefix);
                return Err(invalid("prefixes", message));
            }
            one.check()?;
        }
        Ok(())
    }
}

impl PrefixReport {
    fn check(&self) -> Result<(), ControlError> {
        let at = || format!("prefixes.{}", self.prefix);
        let tiny = f64::MIN_POSITIVE;
        for (name, value, least, most) in [
            ("rtt_ms", self.rtt_ms, tiny, 120_000.0),
            ("loss", self.loss, 0.0, 1.0),
            ("bandwidth_mbps", self.bandwidth_mbps, tiny, 1e7),
            ("jitter_ms", self.jitter_ms, 0.0, 120_000.0),
        ] {
            if let Some(value) = value {
                within(|| format!("{}.{name}", at()), value, least, most)?;
            }
        }
        let mut seen = BTreeSet::new();
        for one in &self.completions {
            one.check(&at())?;
            if !seen.insert((&one.template, one.version)) {
                let message = format!(
                    "{} of version {} occurs twice, expected it once",
                    one.template, one.version
                );
                return Err(invalid(format!("{}.completions", at()), message));
            }
        }
        Ok(())
    }
}

/// Checks the name of an agent.
///
/// # Errors
/// [`ControlError::Invalid`] if it is not 1 to 64 lower-case letters, digits, `-` or `.`.
pub fn check_agent(name: &str) -> Result<(), ControlError> {
    let fits = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
    };
    if (1..=LONGEST_AGENT).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(());
    }
    let message = format!(
        "got {:?}, expected 1 to {LONGEST_AGENT} lower-case letters, digits, - or .",
        shown(name)
    );
    Err(invalid("agent", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let times = [90.0, 100.0, 250.0];
        Report {
            format: 1,
            agent: "edge-1".into(),
            boot: "0123456789abcdef".into(),
            sequence: 1,
            sent_at_ms: 1_700_000_000_000,
            applied: Applied {
                version: 3,
                ok: true,
                errors: vec![],
            },
            prefixes: vec![PrefixReport {
                prefix: "10.1.0.0/24".parse().unwrap(),
                flows: 4,
                rtt_ms: Some(80.0),
                loss: Some(0.01),
                bandwidth_mbps: None,
                jitter_ms: Some(3.0),
                completions: vec![Completions::of("lossy".parse().unwrap(), 3, &times).unwrap()],
            }],
        }
    }

    #[test]
    fn a_report_is_read_as_it_is_written() {
        let mut report = report();
        // digits that the reader of JSON keeps to the last bit
        report.prefixes[0].completions[0].sum_log = 14.625;
        report.prefixes[0].completions[0].sum_log2 = 72.0;
        assert_eq!(Report::read(&report.to_json()).unwrap(), report);
        let sums = &report.prefixes[0].completions[0];
        assert_eq!((sums.count, sums.sum_ms), (3, 440.0));
        assert_eq!(sums.quantiles_ms, Some([90.0, 100.0, 250.0]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        type Change = fn(&mut Report);
        let changes: [(Change, &str); 12] = [
            (|r| r.format = 2, "format is 2"),
            (|r| r.agent = "Edge 1".into(), "agent"),
            (|r| r.boot = "xyz".into(), "hexadecimal"),
            (
                |r| r.applied.errors = vec!["e".repeat(3000)],
                "applied.errors",
            ),
            (|r| r.prefixes.push(r.prefixes[0].clone()), "twice"),
            (
                |r| r.prefixes[0].loss = Some(1.5),
                "10.1.0.0/24.loss: got 1.5",
            ),
            (|r| r.prefixes[0].rtt_ms = Some(0.0), "rtt_ms"),
            (|r| r.prefixes[0].completions[0].count = 0, "count"),
            (|r| r.prefixes[0].completions[0].sum_log2 = 1.0, "sum_log2"),
            (|r| r.prefixes[0].completions[0].sum_log = 1e9, "sum_log"),
            (
                |r| r.prefixes[0].completions[0].quantiles_ms = Some([3.0, 2.0, 4.0]),
                "ascending",
            ),
            (
                |r| {
                    let one = r.prefixes[0].completions[0].clone();
                    r.prefixes[0].completions.push(one);
                },
                "twice",
            ),
        ];
        for (change, said) in changes {
            let mut changed = report();
            change(&mut changed);
            let error = Report::read(&changed.to_json()).unwrap_err().to_string();
            assert!(error.contains(said), "{said}: {error}");
        }
        let more = String::from_utf8(report().to_json())
            .unwrap()
            .replacen('{', r#"{"more":1,"#, 1);
        assert!(
            Report::read(more.as_bytes())
                .unwrap_err()
                .to_string()
                .contains("unknown field")
        );
    }
}
