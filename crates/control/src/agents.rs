//! Agents that a manager knows, and which of their reports it takes.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::report::{Applied, Report};

/// Farthest that a report's time may be from the manager's, milliseconds.
pub const FARTHEST_MS: u64 = 60_000;
/// Former boots that are remembered; older ones are too old by their time.
const BOOTS: usize = 64;

/// Why a report is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The report names another agent than its secret.
    #[error("the report is of another agent than its token; expected the agent's own token")]
    Agent,
    /// It was sent at another time.
    #[error(
        "sent_at_ms is more than 60 s from this clock; expected clocks that agree, and no old report"
    )]
    Time,
    /// A later start of the agent has reported.
    #[error("the agent started anew since; expected the boot of its last start")]
    Boot,
    /// It is not newer than the last one.
    #[error("the sequence is not above the last one; expected each report once")]
    Sequence,
}

/// What is known of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Its name.
    pub name: String,
    boot: String,
    sequence: u64,
    former: Vec<String>,
    /// When its last report came, milliseconds since 1970.
    pub seen_ms: u64,
    /// What it applied; none before its first report.
    pub applied: Option<Applied>,
    /// Reports taken.
    pub reports: u64,
}

impl Agent {
    /// An agent that has not reported.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Takes a report, or refuses it: each report counts once.
    ///
    /// # Errors
    /// [`Refusal`] if it is old, replayed, of a former boot, or of another agent.
    pub fn accept(&mut self, report: &Report, now_ms: u64) -> Result<(), Refusal> {
        if report.agent != self.name {
            return Err(Refusal::Agent);
        }
        if report.sent_at_ms.abs_diff(now_ms) > FARTHEST_MS {
            return Err(Refusal::Time);
        }
        if report.boot == self.boot {
            if report.sequence <= self.sequence {
                return Err(Refusal::Sequence);
            }
        } else {
            if self.former.contains(&report.boot) {
                return Err(Refusal::Boot);
            }
            if !self.boot.is_empty() {
                self.former.push(std::mem::take(&mut self.boot));
                let excess = self.former.len().saturating_sub(BOOTS);
                self.former.drain(..excess);
            }
            self.boot.clone_from(&report.boot);
        }
        self.sequence = report.sequence;
        self.seen_ms = now_ms;
        self.applied = Some(report.applied.clone());
        self.reports += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_report_counts_once() {
        let mut agent = Agent::new("edge");
        let report = |boot: &str, sequence, sent_at_ms| Report {
            format: 1,
            agent: "edge".into(),
            boot: boot.into(),
            sequence,
            sent_at_ms,
            applied: Applied {
                version: 0,
                ok: true,
                errors: vec![],
            },
            prefixes: vec![],
        };
        let now = 1_000_000;
        let mut accept =
            |boot: &str, sequence, sent| agent.accept(&report(boot, sequence, sent), now);
        assert_eq!(accept("aaaaaaaa", 1, now), Ok(()));
        assert_eq!(accept("aaaaaaaa", 1, now), Err(Refusal::Sequence));
        assert_eq!(accept("aaaaaaaa", 3, now), Ok(()));
        assert_eq!(accept("aaaaaaaa", 2, now), Err(Refusal::Sequence));
        assert_eq!(accept("aaaaaaaa", 4, now - 60_001), Err(Refusal::Time));
        assert_eq!(accept("aaaaaaaa", 4, now + 60_001), Err(Refusal::Time));
        assert_eq!(accept("bbbbbbbb", 1, now), Ok(()));
        assert_eq!(accept("aaaaaaaa", 9, now), Err(Refusal::Boot));
        let mut other = Agent::new("other");
        assert_eq!(
            other.accept(&report("aaaaaaaa", 1, now), now),
            Err(Refusal::Agent)
        );
    }
}
