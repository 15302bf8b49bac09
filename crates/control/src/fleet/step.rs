//! What time changes: stages and slots of trials.

use super::Fleet;
use crate::history::{Cause, Version};
use crate::prefix::Prefix;
use crate::trial::{Stage, Verdict, draw};

impl Fleet {
    /// Goes on to a time, and returns the version of the configuration that is new, if any. To be called each second or
    /// so, with a clock that does not go back.
    pub fn step(&mut self, now_ms: u64) -> Option<Version> {
        self.reduce_model(now_ms);
        if !self.head.is_frozen {
            for id in self.running() {
                self.advance(id, now_ms);
            }
            for id in self.running() {
                self.begin_slot(id, now_ms);
            }
        }
        self.commit(now_ms)
    }

    fn running(&self) -> Vec<u64> {
        let runs = |stage| matches!(stage, Stage::Shadow | Stage::Canary);
        self.trials
            .values()
            .filter(|trial| runs(trial.stage))
            .map(|trial| trial.id)
            .collect()
    }

    /// Takes a trial to its next stage, if it is time.
    fn advance(&mut self, id: u64, now_ms: u64) {
        let settings = self.settings.clone();
        let Some(trial) = self.trial_mut(id) else {
            return;
        };
        if trial.stage == Stage::Shadow {
            let waited_s = now_ms.saturating_sub(trial.since_ms) as f64 / 1000.0;
            if waited_s >= settings.shadow_s {
                let reason = format!("{waited_s:.0} s in the shadow");
                self.start_canary(id, reason, now_ms);
            }
        } else if let Some(verdict) = trial.judge(now_ms, &settings) {
            self.conclude(id, verdict, now_ms);
        } else if trial.prefixes() == 0 {
            self.draw_members(id);
        }
    }

    /// Begins the canary of a trial.
    pub(super) fn start_canary(&mut self, id: u64, reason: String, now_ms: u64) {
        if let Some(trial) = self.trial_mut(id) {
            trial.enter(
                Verdict {
                    stage: Stage::Canary,
                    reason,
                },
                now_ms,
            );
        }
        self.draw_members(id);
    }

    /// Draws the prefixes of a canary: a share of those that call for its template, at least one.
    fn draw_members(&mut self, id: u64) {
        let Some(template) = self.trials.get(&id).map(|trial| trial.template.clone()) else {
            return;
        };
        let waiting = self.candidates.get(&template);
        let mut drawn: Vec<(f64, Prefix)> = waiting
            .into_iter()
            .flatten()
            .map(|prefix| (draw(*prefix, id), *prefix))
            .collect();
        drawn.sort_by(|a, b| a.0.total_cmp(&b.0));
        let share = drawn
            .partition_point(|one| one.0 < self.settings.canary)
            .max(1);
        let most = self.settings.canary_prefixes as usize;
        for (_, prefix) in drawn.into_iter().take(share.min(most)) {
            self.join(id, prefix);
        }
    }

    /// Puts the arms of a new slot in force.
    fn begin_slot(&mut self, id: u64, now_ms: u64) {
        let next = self.head.version + 1;
        let settings = self.settings.clone();
        let Some(trial) = self.trial_mut(id) else {
            return;
        };
        let slot = trial.slot_at(now_ms, &settings);
        if trial.stage != Stage::Canary || trial.members.is_empty() || trial.slot == Some(slot) {
            return;
        }
        let template = trial.template.clone();
        let arms: Vec<_> = (trial.members.iter())
            .map(|(prefix, control)| {
                let is_treated = trial.is_treated(*prefix, slot);
                (
                    *prefix,
                    if is_treated {
                        Some(template.clone())
                    } else {
                        control.clone()
                    },
                )
            })
            .collect();
        let changes = arms
            .iter()
            .any(|(prefix, name)| self.map.get(prefix) != name.as_ref());
        // without a change there is no version of its own: what is in force goes on
        let version = if changes || !self.pending.is_empty() {
            next
        } else {
            self.head.version
        };
        if let Some(trial) = self.trial_mut(id) {
            trial.begin_slot(slot, version);
        }
        for (prefix, name) in arms {
            if self.map.get(&prefix) != name.as_ref() {
                self.apply(prefix, name);
            }
        }
        self.say(Cause::Slot, format!("slot {slot} of trial {id}"));
    }
}
