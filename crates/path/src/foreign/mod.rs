//! Paths as other tools describe them: their command lines and files, read and written.
//!
//! What another tool cannot express is left out or approximated. Each such case is reported.

pub mod mahimahi;
pub mod netem;
pub mod rattan;

use pathcast_base::{Bandwidth, Span};

use crate::delay::DelaySpec;
use crate::link::LinkSpec;
use crate::loss::LossSpec;
use crate::path::{Direction, Path};

/// A path in the words of another tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    /// The command line, or the file.
    pub text: String,
    /// Files that it names, by their names.
    pub files: Vec<(String, String)>,
    /// What of the path it does not say, or not as it is, in words.
    pub lost: Vec<String>,
}

impl Foreign {
    fn lose(&mut self, what: impl Into<String>) {
        self.lost.push(what.into());
    }

    /// Notes what none of the other tools has.
    fn lose_what_nobody_has(&mut self, name: &str, direction: &Direction) {
        if direction.aggregation.is_some() {
            self.lose(format!("{name} aggregation: left out"));
        }
        if !direction.schedule.is_empty() {
            let changes = direction.schedule.len();
            self.lose(format!("{name} schedule: {changes} changes left out"));
        }
    }

    /// A fixed delay in place of any.
    fn fixed_delay(&mut self, name: &str, delay: &DelaySpec) -> Span {
        if let DelaySpec::Jitter(jitter) = delay {
            let (base, jitter) = (jitter.base, jitter.jitter);
            self.lose(format!(
                "{name} delay: jitter of \"{jitter}\" left out, \"{base}\" remains"
            ));
        }
        delay.base()
    }

    /// Approximates any loss by independent loss; 0 if there is none.
    fn independent_loss(&mut self, name: &str, loss: &LossSpec) -> f64 {
        let mean = loss.mean();
        match loss {
            LossSpec::Iid(_) => {}
            LossSpec::Bursts(_) => self.lose(format!("{name} loss: bursts left out")),
            LossSpec::GilbertElliott(_) | LossSpec::Periodic(_) => self.lose(format!(
                "{name} loss: written as independent losses of the same share, {mean}"
            )),
        }
        mean
    }

    /// A constant rate in place of any.
    fn constant_rate(&mut self, name: &str, rate: &LinkSpec) -> Bandwidth {
        let mean = rate.mean_rate();
        if !matches!(rate, LinkSpec::Constant(_)) {
            self.lose(format!(
                "{name} rate: varies; written as its mean, \"{mean}\""
            ));
        }
        mean
    }
}

/// Both directions and what to call them.
fn directions(path: &Path) -> [(&'static str, &Direction); 2] {
    [("forward", &path.forward), ("reverse", &path.reverse)]
}

/// A span in the largest of milliseconds, microseconds and nanoseconds in which it is a whole number.
fn time(span: Span) -> String {
    match span.as_nanos() {
        nanos if nanos % 1_000_000 == 0 => format!("{}ms", nanos / 1_000_000),
        nanos if nanos % 1000 == 0 => format!("{}us", nanos / 1000),
        nanos => format!("{nanos}ns"),
    }
}
