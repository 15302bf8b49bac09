//! Metrics in Prometheus' text format.

use std::fmt::Write as _;

/// Samples of one metric.
#[derive(Debug)]
pub struct Family {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    /// Labels and values.
    samples: Vec<(String, f64)>,
}

impl Family {
    /// A counter.
    pub fn counter(name: &'static str, help: &'static str, samples: Vec<(String, f64)>) -> Self {
        Self {
            name,
            help,
            kind: "counter",
            samples,
        }
    }

    /// A gauge.
    pub fn gauge(name: &'static str, help: &'static str, samples: Vec<(String, f64)>) -> Self {
        Self {
            kind: "gauge",
            ..Self::counter(name, help, samples)
        }
    }

    /// Appends it to a text.
    pub fn write(&self, text: &mut String) {
        let name = self.name;
        let _ = writeln!(text, "# HELP pathcast_{name} {}", self.help);
        let _ = writeln!(text, "# TYPE pathcast_{name} {}", self.kind);
        for (labels, value) in &self.samples {
            let _ = match labels.as_str() {
                "" => writeln!(text, "pathcast_{name} {value}"),
                labels => writeln!(text, "pathcast_{name}{{{labels}}} {value}"),
            };
        }
    }
}

/// Bytes of memory that the process has.
pub fn memory_bytes() -> Option<f64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as f64)
}
