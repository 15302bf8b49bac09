//! Settings of placement and guardrails.

use serde::{Deserialize, Serialize};

use crate::error::{ControlError, within};

/// Settings of placement and guardrails. `docs/reference/manager.md` documents each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Reports of a prefix that its conditions need at least.
    pub least_reports: u32,
    /// Flows of a prefix that its conditions need at least.
    pub least_flows: u32,
    /// Reports in a row that must agree on another template.
    pub agreeing_reports: u32,
    /// Relative margin around thresholds within which a prefix keeps its template.
    pub margin: f64,
    /// Share of prefixes that always keep the default.
    pub hold_out: f64,
    /// How long a trial computes and applies nothing, seconds.
    pub shadow_s: f64,
    /// Share of the prefixes for a template that its trial uses.
    pub canary: f64,
    /// Most prefixes of one trial.
    pub canary_prefixes: u32,
    /// Length of a time slot of a trial, seconds.
    pub slot_s: f64,
    /// Chance with which a trial of an equal template may promote or roll back.
    pub alpha: f64,
    /// Loads after which a trial without a decision ends.
    pub most_loads: f64,
    /// Increase of the share of lost packets at which a trial rolls back.
    pub loss_increase: f64,
    /// Whether an operator must approve what passed its trial.
    pub approval: bool,
    /// Ratio of completion times, over those of before, from which on a prefix counts as worse.
    pub worse: f64,
    /// How long a prefix keeps the default after it rolled back, seconds.
    pub cool_down_s: f64,
    /// Share of the prefixes of a promoted template that roll back within five minutes until all do.
    pub bad_share: f64,
    /// Most prefixes that are kept; reports of further ones are not.
    pub prefixes: usize,
    /// Most templates in force; 0: as many as the model has.
    pub templates: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            least_reports: 3,
            least_flows: 20,
            agreeing_reports: 3,
            margin: 0.1,
            hold_out: 0.05,
            shadow_s: 60.0,
            canary: 0.1,
            canary_prefixes: 200,
            slot_s: 10.0,
            alpha: 0.04,
            most_loads: 20_000.0,
            loss_increase: 0.01,
            approval: false,
            worse: 1.5,
            cool_down_s: 1800.0,
            bad_share: 0.2,
            prefixes: 1_000_000,
            templates: 0,
        }
    }
}

impl Settings {
    /// Checks all ranges.
    ///
    /// # Errors
    /// [`ControlError::Invalid`] names the first that is out of range.
    pub fn check(&self) -> Result<(), ControlError> {
        for (name, value, least, most) in [
            ("least_reports", f64::from(self.least_reports), 1.0, 1000.0),
            ("least_flows", f64::from(self.least_flows), 1.0, 1e6),
            (
                "agreeing_reports",
                f64::from(self.agreeing_reports),
                1.0,
                255.0,
            ),
            ("margin", self.margin, 0.0, 1.0),
            ("hold_out", self.hold_out, 0.0, 0.5),
            ("shadow_s", self.shadow_s, 0.0, 1e7),
            ("canary", self.canary, 1e-6, 1.0),
            (
                "canary_prefixes",
                f64::from(self.canary_prefixes),
                1.0,
                100_000.0,
            ),
            ("slot_s", self.slot_s, 1.0, 3600.0),
            ("alpha", self.alpha, 1e-6, 0.5),
            ("most_loads", self.most_loads, 100.0, 1e9),
            ("loss_increase", self.loss_increase, 1e-4, 1.0),
            ("worse", self.worse, 1.01, 100.0),
            ("cool_down_s", self.cool_down_s, 1.0, 1e8),
            ("bad_share", self.bad_share, 0.01, 1.0),
            ("prefixes", self.prefixes as f64, 1.0, 1e7),
            ("templates", self.templates as f64, 0.0, 1000.0),
        ] {
            within(|| name.into(), value, least, most)?;
        }
        Ok(())
    }
}
