//! What an operator or the learner does.

use thiserror::Error;

use super::{Fleet, Mode};
use crate::history::{Cause, Change};
use crate::model::Model;
use crate::prefix::Prefix;
use crate::template::{Name, Template};
use crate::trial::{Stage, Verdict};

/// Why something an operator or the learner asks for is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OperateError {
    /// A template of this name has other knobs.
    #[error(
        "template {0} exists with other knobs; expected a new name, because agents know templates by name"
    )]
    Changed(Name),
    /// No such template.
    #[error("there is no template {0}; expected a name that /v1/templates lists")]
    Template(Name),
    /// No such trial.
    #[error("there is no trial {0}; expected a number that /v1/trials lists")]
    Trial(u64),
    /// The trial's stage does not allow it.
    #[error("trial {0} is {1:?}; expected one that is not over")]
    Stage(u64, Stage),
    /// The prefix is not pinned.
    #[error("{0} is not pinned")]
    Pin(Prefix),
}

impl Fleet {
    /// Adds templates that no model has yet, to be pinned.
    ///
    /// # Errors
    /// [`OperateError::Changed`] if a name exists with other knobs; nothing is added then.
    pub fn add_templates(&mut self, templates: &[Template]) -> Result<(), OperateError> {
        let known = |template: &Template| {
            self.head
                .templates
                .iter()
                .find(|one| one.name == template.name)
        };
        let mut new = Vec::new();
        for template in templates {
            match known(template) {
                Some(one) if one.knobs != template.knobs => {
                    return Err(OperateError::Changed(template.name.clone()));
                }
                Some(_) => {}
                None => new.push(template.clone()),
            }
        }
        self.head.templates.extend(new);
        Ok(())
    }

    /// Puts a model in use. Trials of the former one end, if they are not over; what they promoted stays in force until
    /// prefixes call for another template.
    ///
    /// # Errors
    /// [`OperateError::Changed`] if one of its templates exists with other knobs; nothing changes then.
    pub fn set_model(&mut self, model: Model, now_ms: u64) -> Result<(), OperateError> {
        self.add_templates(&model.templates)?;
        let open = |stage| matches!(stage, Stage::Shadow | Stage::Canary | Stage::Passed);
        let ids: Vec<u64> = self
            .trials
            .values()
            .filter(|one| open(one.stage))
            .map(|one| one.id)
            .collect();
        for id in ids {
            self.conclude(id, verdict(Stage::Cancelled, "a newer model"), now_ms);
        }
        self.head.model_number += 1;
        self.head.model = Some(model);
        self.candidates.clear();
        self.replace_all(now_ms);
        self.say(Cause::Operator, format!("model {}", self.head.model_number));
        Ok(())
    }

    /// Places all prefixes anew by what is known of their conditions.
    fn replace_all(&mut self, now_ms: u64) {
        self.reduced = None;
        self.reduce_model(now_ms);
        let reduced = self.reduced.as_ref().map(|(model, _)| model);
        let Some(model) = reduced.or(self.head.model.as_ref()).cloned() else {
            return;
        };
        for number in 0..self.entries.len() {
            let (prefix, entry) = &mut self.entries[number];
            let prefix = *prefix;
            if matches!(entry.mode, Mode::RolledBack { .. }) || self.head.pins.contains_key(&prefix)
            {
                continue;
            }
            let conditions = entry.observed.conditions(&self.settings);
            let target = conditions
                .map(|conditions| model.decide(&conditions).clone())
                .unwrap_or_default();
            let is_same = entry.mode == Mode::Placed && self.map.get(&prefix) == Some(&target);
            if entry.target != target {
                entry.target = target.clone();
                self.changed.insert(prefix);
            }
            if !is_same && !self.head.is_frozen {
                self.place(prefix, &target, now_ms);
            }
        }
    }

    /// Takes a trial on: from the shadow to its canary, from there to the promotion.
    ///
    /// # Errors
    /// [`OperateError`] if there is no such trial, or a newer model replaced it.
    pub fn approve(&mut self, id: u64, by: &str, now_ms: u64) -> Result<(), OperateError> {
        let stage = self.trials.get(&id).ok_or(OperateError::Trial(id))?.stage;
        match stage {
            Stage::Shadow => self.start_canary(id, format!("approved by {by}"), now_ms),
            Stage::Canary | Stage::Passed => {
                self.conclude(
                    id,
                    verdict(Stage::Promoted, &format!("approved by {by}")),
                    now_ms,
                );
            }
            Stage::Promoted | Stage::RolledBack | Stage::NoDifference | Stage::Cancelled => {
                return Err(OperateError::Stage(id, stage));
            }
        }
        self.say(Cause::Operator, format!("trial {id} approved by {by}"));
        Ok(())
    }

    /// Rolls a trial back, or what it promoted.
    ///
    /// # Errors
    /// [`OperateError`] if there is no such trial, or it is over without a promotion.
    pub fn revert(&mut self, id: u64, by: &str, now_ms: u64) -> Result<(), OperateError> {
        let stage = self.trials.get(&id).ok_or(OperateError::Trial(id))?.stage;
        if matches!(
            stage,
            Stage::RolledBack | Stage::NoDifference | Stage::Cancelled
        ) {
            return Err(OperateError::Stage(id, stage));
        }
        self.conclude(
            id,
            verdict(Stage::RolledBack, &format!("reverted by {by}")),
            now_ms,
        );
        self.say(Cause::Operator, format!("trial {id} reverted by {by}"));
        Ok(())
    }

    /// Puts a template in force for a prefix until it is unpinned; reports and trials change nothing of it.
    ///
    /// # Errors
    /// [`OperateError::Template`] if there is no such template.
    pub fn pin(&mut self, prefix: Prefix, template: &Name, by: &str) -> Result<(), OperateError> {
        if !template.is_default() && !self.head.templates.iter().any(|one| one.name == *template) {
            return Err(OperateError::Template(template.clone()));
        }
        if let Some(target) = self.entry(prefix).map(|entry| entry.target.clone()) {
            self.forget_candidate_of(prefix, &target);
            self.set_mode(prefix, Mode::Observed, None);
        }
        self.head.pins.insert(prefix, template.clone());
        self.apply(prefix, Some(template.clone()));
        self.say(
            Cause::Operator,
            format!("{prefix} pinned to {template} by {by}"),
        );
        Ok(())
    }

    /// Ends a pin: the prefix is placed by its conditions again.
    ///
    /// # Errors
    /// [`OperateError::Pin`] if it is not pinned.
    pub fn unpin(&mut self, prefix: Prefix, by: &str) -> Result<(), OperateError> {
        self.head
            .pins
            .remove(&prefix)
            .ok_or(OperateError::Pin(prefix))?;
        self.apply(prefix, None);
        if let Some(entry) = self.entry_mut(prefix) {
            // the next reports place it
            entry.target = Name::default_template();
        }
        self.say(Cause::Operator, format!("{prefix} unpinned by {by}"));
        Ok(())
    }

    /// Undoes changes, those since a version, and places nothing until [`Self::resume`].
    pub fn undo(&mut self, version: u64, since: &[Change], by: &str, now_ms: u64) {
        let open = |stage| matches!(stage, Stage::Shadow | Stage::Canary | Stage::Passed);
        let ids: Vec<u64> = self
            .trials
            .values()
            .filter(|one| open(one.stage))
            .map(|one| one.id)
            .collect();
        for id in ids {
            let reason = format!("{by} reverted to version {version}");
            self.conclude(id, verdict(Stage::Cancelled, &reason), now_ms);
        }
        // what the end of trials changed was the same at that version, unless a change says otherwise
        let mut desired = self.pending.clone();
        desired.extend(
            since
                .iter()
                .map(|change| (change.prefix, change.before.clone())),
        );
        for (prefix, template) in desired {
            if self.map.get(&prefix) == template.as_ref() {
                continue;
            }
            self.head.pins.remove(&prefix);
            let placed = template.as_ref().filter(|name| !name.is_default());
            let mode = if placed.is_some() {
                Mode::Placed
            } else {
                Mode::Observed
            };
            self.set_mode(prefix, mode, placed);
            self.apply(prefix, template.clone());
        }
        self.head.is_frozen = true;
        self.say(
            Cause::Operator,
            format!("reverted to version {version} by {by}"),
        );
    }

    /// Places prefixes again after [`Self::undo`].
    pub fn resume(&mut self, by: &str, now_ms: u64) {
        self.head.is_frozen = false;
        // trials that ended by the revert begin anew
        self.head.model_number += 1;
        self.candidates.clear();
        self.replace_all(now_ms);
        self.say(Cause::Operator, format!("resumed by {by}"));
    }
}

fn verdict(stage: Stage, reason: &str) -> Verdict {
    Verdict {
        stage,
        reason: reason.into(),
    }
}
