//! What is known of a prefix, and the template that its conditions call for.

use serde::{Deserialize, Serialize};

use crate::model::{Conditions, Model};
use crate::report::PrefixReport;
use crate::settings::Settings;
use crate::template::Name;

/// Reports whose median counts.
pub const REPORTS: usize = 7;

/// Conditions of a prefix: the last reports, and how many flows they rest on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// Bandwidth, round-trip time, loss and jitter of the last reports; NaN: not measured.
    recent: [[f32; 4]; REPORTS],
    reports: u32,
    flows: u32,
    /// Reports in a row that call for another template than the target.
    agreeing: u8,
}

impl Default for Observed {
    fn default() -> Self {
        Self {
            recent: [[f32::NAN; 4]; REPORTS],
            reports: 0,
            flows: 0,
            agreeing: 0,
        }
    }
}

/// Medians of a prefix, as far as they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Medians {
    /// Bandwidth, Mbit/s.
    pub bandwidth_mbps: Option<f64>,
    /// Round-trip time, milliseconds.
    pub rtt_ms: Option<f64>,
    /// Share of packets lost.
    pub loss: Option<f64>,
    /// Variation of the round-trip time, milliseconds.
    pub jitter_ms: Option<f64>,
}

impl Observed {
    /// Adds a report.
    #[allow(clippy::cast_possible_truncation)] // seven digits do
    pub fn add(&mut self, report: &PrefixReport) {
        let value = |value: Option<f64>| value.map_or(f32::NAN, |value| value as f32);
        let all = [
            report.bandwidth_mbps,
            report.rtt_ms,
            report.loss,
            report.jitter_ms,
        ];
        if all.iter().any(Option::is_some) {
            self.recent[self.reports as usize % REPORTS] = all.map(value);
            self.reports = self.reports.saturating_add(1);
            let flows = u32::try_from(report.flows).unwrap_or(u32::MAX);
            self.flows = self.flows.saturating_add(flows);
        }
    }

    /// Reports with any condition, and their flows.
    pub fn totals(&self) -> (u32, u32) {
        (self.reports, self.flows)
    }

    /// Medians over the last reports.
    pub fn medians(&self) -> Medians {
        let median = |which: usize| {
            let mut values: Vec<f32> = self
                .recent
                .iter()
                .map(|one| one[which])
                .filter(|value| !value.is_nan())
                .collect();
            values.sort_by(f32::total_cmp);
            let middle = values.len().checked_sub(1)? / 2;
            Some(f64::from((values[middle] + values[values.len() / 2]) / 2.0))
        };
        Medians {
            bandwidth_mbps: median(0),
            rtt_ms: median(1),
            loss: median(2),
            jitter_ms: median(3),
        }
    }

    /// The conditions that a model decides by; none if one was not measured, or reports or flows are too few.
    pub fn conditions(&self, settings: &Settings) -> Option<Conditions> {
        if self.reports < settings.least_reports || self.flows < settings.least_flows {
            return None;
        }
        let medians = self.medians();
        Some(Conditions {
            bandwidth_mbps: medians.bandwidth_mbps?,
            rtt_ms: medians.rtt_ms?,
            loss: medians.loss?,
        })
    }

    /// The template that the conditions call for, given the target until now. To leave a target, the conditions must be
    /// beyond the margin of a threshold in several reports in a row.
    pub fn target(&mut self, model: &Model, now: &Name, settings: &Settings) -> Name {
        let Some(conditions) = self.conditions(settings) else {
            self.agreeing = 0;
            return Name::default_template();
        };
        if model.allows(now, &conditions, settings.margin) {
            self.agreeing = 0;
            return now.clone();
        }
        self.agreeing = self.agreeing.saturating_add(1);
        if u32::from(self.agreeing) < settings.agreeing_reports {
            return now.clone();
        }
        self.agreeing = 0;
        model.decide(&conditions).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let text = r#"{"format":1,"templates":[{"name":"lossy","knobs":{"congestion_control":"bbr"}}],"features":["loss"],
            "tree":{"feature":"loss","threshold":0.01,"below":{"template":"default"},"otherwise":{"template":"lossy"}}}"#;
        Model::read(text.as_bytes()).unwrap()
    }

    fn targets(losses: &[f64]) -> Vec<bool> {
        let (mut observed, mut now) = (Observed::default(), Name::default_template());
        let target = |loss: &f64| {
            observed.add(&PrefixReport {
                prefix: "192.0.2.0/24".parse().unwrap(),
                flows: 10,
                rtt_ms: Some(50.0),
                loss: Some(*loss),
                bandwidth_mbps: Some(5.0),
                jitter_ms: None,
                completions: vec![],
            });
            now = observed.target(&model(), &now, &Settings::default());
            !now.is_default()
        };
        losses.iter().map(target).collect()
    }

    #[test]
    fn a_prefix_is_placed_after_enough_reports_that_agree() {
        assert_eq!(
            targets(&[0.05; 6]),
            [false, false, false, false, true, true]
        );
        // one outlier changes no median
        assert_eq!(
            targets(&[0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]),
            [false; 8]
        );
    }

    #[test]
    fn conditions_near_a_threshold_move_nothing() {
        let mut losses = vec![0.02; 8];
        losses.extend([0.0095; 12]);
        let all = targets(&losses);
        assert!(all[7..].iter().all(|is_lossy| *is_lossy), "{all:?}");
        losses.extend([0.001; 12]);
        assert_eq!(targets(&losses).last(), Some(&false));
    }
}
