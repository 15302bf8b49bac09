//! All prefixes, their placement and trials: takes reports and time, makes versions of the configuration.

mod operate;
mod reports;
mod step;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::cluster::reduce;
use crate::configuration::Configuration;
use crate::error::FORMAT;
use crate::guard::{Alarm, Guard};
use crate::history::{Cause, Change, Version};
use crate::model::Model;
use crate::placement::Observed;
use crate::prefix::Prefix;
use crate::sequential::{Interval, Sums, difference};
use crate::settings::Settings;
use crate::table::Table;
use crate::template::{Name, Template};
use crate::trial::{Trial, draw};
use waiting::Waiting;

pub use operate::OperateError;

/// Salt of the hold-out group: it never changes.
const HOLD_OUT: u64 = 0x686f_6c64;
/// Most reasons of one version.
const REASONS: usize = 20;
/// A model of fewer templates is made anew so often, milliseconds.
const REDUCED_EACH_MS: u64 = 600_000;
/// The conditions of about so many prefixes tell how often each template is called for.
const REDUCED_BY: usize = 50_000;
/// 95 % of the normal law.
const Z: f64 = 1.96;

/// How a prefix comes to its template.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It has the default, or that of a shorter prefix, and is observed.
    #[default]
    Observed,
    /// It is in the canary of a trial.
    Trial,
    /// It has the template that its conditions call for.
    Placed,
    /// It rolled back, and keeps the default until a time in milliseconds since 1970.
    RolledBack {
        /// Until when.
        until_ms: u64,
        /// Why.
        alarm: Alarm,
    },
}

/// What is known of a prefix.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its conditions.
    pub observed: Observed,
    /// The template that its conditions call for.
    pub target: Name,
    /// How it comes to its template.
    pub mode: Mode,
    guard: Guard,
    /// Logarithms of completion times, milliseconds: under the default, and under other templates.
    times: [Sums; 2],
}

impl Entry {
    /// Loads under the default, and under other templates.
    pub fn loads(&self) -> [f64; 2] {
        self.times.map(|times| times.count)
    }

    /// How much longer completions take under other templates than under the default, as a ratio less 1, with its
    /// interval of 95 % at one time. Before and after differ in more than the template.
    pub fn gain(&self) -> Option<Interval> {
        difference(&self.times[1], &self.times[0], Z).map(Interval::ratio)
    }
}

/// What a fleet is made of, as it is stored. Entries are stored beside.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Version of the configuration.
    pub version: u64,
    /// When it was made, milliseconds since 1970.
    pub made_at_ms: u64,
    /// Whether an operator put an earlier version in force: nothing is placed until it is resumed.
    pub is_frozen: bool,
    /// Number of the model.
    pub model_number: u64,
    /// Number of the next trial.
    pub next_trial: u64,
    /// All templates ever; a name keeps its knobs.
    pub templates: Vec<Template>,
    /// The model in use.
    pub model: Option<Model>,
    /// Prefixes that an operator pinned.
    pub pins: BTreeMap<Prefix, Name>,
}

/// All prefixes, their placement and trials.
#[derive(Debug, Default)]
pub struct Fleet {
    settings: Settings,
    head: Head,
    table: Table<u32>,
    entries: Vec<(Prefix, Entry)>,
    map: BTreeMap<Prefix, Name>,
    trials: BTreeMap<u64, Trial>,
    /// Prefixes that call for a template they do not have.
    candidates: BTreeMap<Name, BTreeSet<Prefix>>,
    /// Prefixes placed, by template.
    placed: BTreeMap<Name, usize>,
    /// Changes since the last version: the state before.
    pending: BTreeMap<Prefix, Option<Name>>,
    cause: Option<Cause>,
    reasons: Vec<String>,
    /// Entries whose mode changed, and those that were only observed, since they were last drained.
    changed: BTreeSet<Prefix>,
    observed: Waiting,
    /// Trials that changed since they were last drained.
    tried: BTreeSet<u64>,
    /// The model in use, with fewer templates if the settings ask for that, and when it was made.
    reduced: Option<(Model, u64)>,
    /// Reports of prefixes beyond the limit.
    pub beyond_limit: u64,
    /// Prefixes that rolled back.
    pub alarms: u64,
}

impl Fleet {
    /// An empty fleet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// The fleet as it was stored: entries with the template that they have, and trials.
    pub fn restore(
        settings: Settings,
        head: Head,
        entries: impl IntoIterator<Item = (Prefix, Entry)>,
        map: BTreeMap<Prefix, Name>,
        trials: impl IntoIterator<Item = Trial>,
    ) -> Self {
        let mut fleet = Self {
            settings,
            head,
            map,
            ..Self::default()
        };
        fleet.trials = trials.into_iter().map(|trial| (trial.id, trial)).collect();
        for (prefix, entry) in entries {
            let number = u32::try_from(fleet.entries.len()).unwrap_or(u32::MAX);
            if entry.mode == Mode::Placed {
                let name = fleet.map.get(&prefix).cloned().unwrap_or_default();
                *fleet.placed.entry(name).or_default() += 1;
            }
            let calls = !entry.target.is_default() && fleet.map.get(&prefix) != Some(&entry.target);
            if calls || entry.mode == Mode::Trial {
                fleet
                    .candidates
                    .entry(entry.target.clone())
                    .or_default()
                    .insert(prefix);
            }
            fleet.table.insert(prefix, number);
            fleet.entries.push((prefix, entry));
        }
        fleet
    }

    /// Settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What is stored beside entries, map and trials.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Trials by number.
    pub fn trials(&self) -> &BTreeMap<u64, Trial> {
        &self.trials
    }

    /// Number of prefixes that call for a template and do not have it.
    pub fn waiting(&self, template: &Name) -> usize {
        self.candidates.get(template).map_or(0, BTreeSet::len)
    }

    /// The templates in force by prefix.
    pub fn map(&self) -> &BTreeMap<Prefix, Name> {
        &self.map
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Prefixes and what is known of them, in the order in which they came.
    pub fn entries(&self) -> &[(Prefix, Entry)] {
        &self.entries
    }

    /// What is known of exactly this prefix.
    pub fn entry(&self, prefix: Prefix) -> Option<&Entry> {
        let number = *self.table.get(prefix)?;
        Some(&self.entries.get(number as usize)?.1)
    }

    /// The longest known prefix that holds an address.
    pub fn longest(&self, address: IpAddr) -> Option<(Prefix, &Entry)> {
        let (prefix, number) = self.table.longest(address)?;
        Some((prefix, &self.entries.get(*number as usize)?.1))
    }

    /// Whether a prefix always keeps the default.
    pub fn is_held_out(&self, prefix: Prefix) -> bool {
        draw(prefix, HOLD_OUT) < self.settings.hold_out
    }

    /// The configuration in force, for agents.
    pub fn configuration(&self) -> Configuration {
        let used: BTreeSet<&Name> = self.map.values().collect();
        let templates = &self.head.templates;
        Configuration {
            format: FORMAT,
            version: self.head.version,
            templates: templates
                .iter()
                .filter(|one| used.contains(&one.name))
                .cloned()
                .collect(),
            prefixes: self.map.clone(),
            default: Name::default_template(),
            made_at_ms: self.head.made_at_ms,
        }
    }

    /// How much longer completions take for placed prefixes than for those of the hold-out group that call for a
    /// template too, as a ratio less 1, with its interval of 95 %. Prefixes count equally.
    pub fn hold_out_gain(&self) -> Option<Interval> {
        let mut groups = [Sums::default(); 2];
        for (prefix, entry) in self
            .entries
            .iter()
            .filter(|(_, entry)| !entry.target.is_default())
        {
            let is_held_out = self.is_held_out(*prefix);
            let which = match entry.mode {
                _ if is_held_out => 0,
                Mode::Placed => 1,
                _ => continue,
            };
            if let Some(mean) = entry.times[which].mean() {
                groups[which].add(&Sums {
                    count: 1.0,
                    sum: mean,
                    squares: mean * mean,
                });
            }
        }
        difference(&groups[1], &groups[0], Z).map(Interval::ratio)
    }

    /// Entries to store: those whose mode changed, and so many of those that were only observed, the longest waiting first.
    /// They are returned once.
    pub fn drain_changed(&mut self, and_observed: usize) -> Vec<Prefix> {
        let mut drained: Vec<Prefix> = std::mem::take(&mut self.changed).into_iter().collect();
        for prefix in &drained {
            if let Some(number) = self.table.get(*prefix) {
                self.observed.remove(*number);
            }
        }
        let observed = std::iter::from_fn(|| self.observed.pop()).take(and_observed);
        drained.extend(observed.map(|number| self.entries[number as usize].0));
        drained
    }

    /// Trials to store, those that changed. They are returned once.
    pub fn drain_trials(&mut self) -> Vec<Trial> {
        let tried = std::mem::take(&mut self.tried);
        tried
            .iter()
            .filter_map(|id| self.trials.get(id))
            .cloned()
            .collect()
    }

    /// Makes the model of fewer templates anew each ten minutes, where the settings limit them. It takes milliseconds, so
    /// steps do it, not reports.
    fn reduce_model(&mut self, now_ms: u64) {
        let is_old = |made_ms: u64| now_ms.saturating_sub(made_ms) > REDUCED_EACH_MS;
        let is_due = self
            .reduced
            .as_ref()
            .is_none_or(|(_, made_ms)| is_old(*made_ms));
        if self.settings.templates > 0
            && is_due
            && let Some(model) = &self.head.model
        {
            let each = self.entries.len().div_ceil(REDUCED_BY).max(1);
            let entries = self.entries.iter().step_by(each);
            let known = entries.filter_map(|(_, entry)| entry.observed.conditions(&self.settings));
            self.reduced = Some((reduce(model, known, self.settings.templates), now_ms));
        }
    }

    fn trial_mut(&mut self, id: u64) -> Option<&mut Trial> {
        let trial = self.trials.get_mut(&id)?;
        self.tried.insert(id);
        Some(trial)
    }

    fn entry_mut(&mut self, prefix: Prefix) -> Option<&mut Entry> {
        let number = *self.table.get(prefix)?;
        Some(&mut self.entries.get_mut(number as usize)?.1)
    }

    /// Puts a template in force for a prefix; none: that of a shorter prefix, or the default.
    fn apply(&mut self, prefix: Prefix, template: Option<Name>) {
        let before = match template {
            Some(name) => self.map.insert(prefix, name),
            None => self.map.remove(&prefix),
        };
        self.pending.entry(prefix).or_insert(before);
        self.changed.insert(prefix);
    }

    fn set_mode(&mut self, prefix: Prefix, mode: Mode, placed: Option<&Name>) {
        let before = self
            .entry(prefix)
            .map(|entry| entry.mode)
            .unwrap_or_default();
        if before == Mode::Placed
            && let Some(count) = self
                .map
                .get(&prefix)
                .and_then(|name| self.placed.get_mut(name))
        {
            *count = count.saturating_sub(1);
        }
        if let Some(name) = placed {
            *self.placed.entry(name.clone()).or_default() += 1;
        }
        if let Some(entry) = self.entry_mut(prefix) {
            entry.mode = mode;
            self.changed.insert(prefix);
        }
    }

    fn say(&mut self, cause: Cause, reason: String) {
        self.cause = self.cause.max(Some(cause));
        if self.reasons.len() < REASONS {
            self.reasons.push(reason);
        }
    }

    /// The next version, if anything changed.
    fn commit(&mut self, now_ms: u64) -> Option<Version> {
        let pending = std::mem::take(&mut self.pending);
        let changes: Vec<Change> = pending
            .into_iter()
            .map(|(prefix, before)| Change {
                prefix,
                before,
                after: self.map.get(&prefix).cloned(),
            })
            .filter(|change| change.before != change.after)
            .collect();
        let cause = self.cause.take();
        let reasons = std::mem::take(&mut self.reasons);
        if changes.is_empty() {
            return None;
        }
        self.head.version += 1;
        self.head.made_at_ms = now_ms;
        Some(Version {
            version: self.head.version,
            made_at_ms: now_ms,
            cause: cause.unwrap_or(Cause::Placement),
            reasons,
            changes,
        })
    }
}
