//! What a report changes.

use super::{Entry, Fleet, Mode};
use crate::guard::Alarm;
use crate::history::Cause;
use crate::prefix::Prefix;
use crate::report::{Completions, PrefixReport, Report};
use crate::sequential::Sums;
use crate::template::Name;
use crate::trial::{Stage, Trial, Verdict, draw};

fn sums(completions: &Completions) -> Sums {
    Sums {
        count: completions.count as f64,
        sum: completions.sum_log,
        squares: completions.sum_log2,
    }
}

impl Fleet {
    /// Takes what an agent saw. Changes come into force at the next [`Self::step`].
    pub fn report(&mut self, report: &Report, now_ms: u64) {
        for one in &report.prefixes {
            let Some(number) = self.ensure(one.prefix) else {
                self.beyond_limit += 1;
                continue;
            };
            self.observed.insert(number);
            self.learn(one);
            self.watch(one, now_ms);
            self.retarget(one, now_ms);
        }
    }

    /// The number of its entry, which is made if there is none; none beyond the limit of prefixes.
    fn ensure(&mut self, prefix: Prefix) -> Option<u32> {
        if let Some(number) = self.table.get(prefix) {
            return Some(*number);
        }
        if self.entries.len() >= self.settings.prefixes {
            return None;
        }
        let number = u32::try_from(self.entries.len()).ok()?;
        self.table.insert(prefix, number);
        self.entries.push((prefix, Entry::default()));
        Some(number)
    }

    /// Adds completion times to the prefix, and to the trial that it is in.
    fn learn(&mut self, one: &PrefixReport) {
        let mut trial = None;
        if let Some(entry) = self.entry_mut(one.prefix) {
            entry.observed.add(one);
            for completions in &one.completions {
                let which = usize::from(!completions.template.is_default());
                entry.times[which].add(&sums(completions));
            }
            if entry.mode == Mode::Trial {
                trial = Some(entry.target.clone());
            }
        }
        let Some(id) = trial.and_then(|template| self.trial_of(&template)) else {
            return;
        };
        let Some(trial) = self.trial_mut(id) else {
            return;
        };
        for completions in &one.completions {
            trial.add_times(
                one.prefix,
                &completions.template,
                completions.version,
                &sums(completions),
            );
        }
        // loss is of the prefix: it counts where all completions had one template
        if let ([completions], Some(loss)) = (&one.completions[..], one.loss) {
            trial.add_loss(one.prefix, &completions.template, completions.version, loss);
        }
    }

    /// The trial of a template under the model in use.
    pub(super) fn trial_of(&self, template: &Name) -> Option<u64> {
        let model = self.head.model_number;
        let of = |trial: &&Trial| trial.model == model && trial.template == *template;
        self.trials.values().rev().find(of).map(|trial| trial.id)
    }

    /// Compares a placed prefix with what it was before, and rolls it back if it got worse.
    fn watch(&mut self, one: &PrefixReport, now_ms: u64) {
        if self.head.pins.contains_key(&one.prefix) {
            return;
        }
        let in_force = self.map.get(&one.prefix).cloned().unwrap_or_default();
        let worse = self.settings.worse;
        let Some(entry) = self.entry_mut(one.prefix) else {
            return;
        };
        let of = |is_meant: &dyn Fn(&Name) -> bool| {
            let mut all = Sums::default();
            one.completions
                .iter()
                .filter(|one| is_meant(&one.template))
                .for_each(|one| all.add(&sums(one)));
            all
        };
        if entry.mode != Mode::Placed {
            // the reference is what was in force before: the control arm during a trial
            let target = entry.target.clone();
            let times = of(&|name| name.is_default() || *name != target);
            entry.guard.learn(Some(&times), one.loss);
            return;
        }
        let times = of(&|name| *name == in_force);
        if let Some(alarm) = entry.guard.judge(Some(&times), one.loss, worse) {
            self.roll_back(one.prefix, &in_force, alarm, now_ms);
        }
    }

    fn roll_back(&mut self, prefix: Prefix, in_force: &Name, alarm: Alarm, now_ms: u64) {
        let cool_down = std::time::Duration::from_secs_f64(self.settings.cool_down_s);
        let until_ms = now_ms + u64::try_from(cool_down.as_millis()).unwrap_or(u64::MAX / 2);
        self.alarms += 1;
        self.set_mode(prefix, Mode::RolledBack { until_ms, alarm }, None);
        self.forget_candidate(prefix);
        self.apply(prefix, Some(Name::default_template()));
        if let Some(entry) = self.entry_mut(prefix) {
            entry.target = Name::default_template();
            entry.guard = crate::guard::Guard::default();
        }
        let what = match alarm {
            Alarm::Completion => "completion times got longer",
            Alarm::Loss => "more packets are lost",
        };
        self.say(
            Cause::Guard,
            format!("{prefix} rolled back from {in_force}: {what}"),
        );
        let placed = self.placed.get(in_force).copied().unwrap_or(0);
        let settings = self.settings.clone();
        let trial = self.trial_of(in_force).and_then(|id| self.trial_mut(id));
        let verdict =
            trial.and_then(|trial| Some((trial.id, trial.alarm(placed, now_ms, &settings)?)));
        if let Some((id, verdict)) = verdict {
            self.conclude(id, verdict, now_ms);
        }
    }

    /// Looks what the conditions call for now.
    fn retarget(&mut self, one: &PrefixReport, now_ms: u64) {
        let prefix = one.prefix;
        if self.head.is_frozen || self.head.pins.contains_key(&prefix) {
            return;
        }
        let Some(number) = self.table.get(prefix).map(|number| *number as usize) else {
            return;
        };
        if let Mode::RolledBack { until_ms, .. } = self.entries[number].1.mode {
            if now_ms < until_ms {
                return;
            }
            self.set_mode(prefix, Mode::Observed, None);
            self.apply(prefix, None);
        }
        let reduced = self.reduced.as_ref().map(|(model, _)| model);
        let Some(model) = reduced.or(self.head.model.as_ref()) else {
            return;
        };
        let entry = &mut self.entries[number].1;
        let target = entry.observed.target(model, &entry.target, &self.settings);
        let before = std::mem::replace(&mut entry.target, target.clone());
        if before == target {
            return;
        }
        self.changed.insert(prefix);
        self.forget_candidate_of(prefix, &before);
        self.place(prefix, &target, now_ms);
    }

    /// Does for a prefix what the trial of its target allows.
    pub(super) fn place(&mut self, prefix: Prefix, target: &Name, now_ms: u64) {
        if self.is_held_out(prefix) || self.head.pins.contains_key(&prefix) {
            return;
        }
        if target.is_default() {
            self.release(prefix, "its conditions call for the default");
            return;
        }
        let id = self.trial_of(target).unwrap_or_else(|| {
            let id = self.head.next_trial.max(1);
            self.head.next_trial = id + 1;
            let trial = Trial::new(id, target.clone(), self.head.model_number, now_ms);
            self.trials.insert(id, trial);
            self.tried.insert(id);
            id
        });
        let Some(trial) = self.trials.get(&id) else {
            return;
        };
        match trial.stage {
            Stage::Promoted => self.put(prefix, target),
            Stage::Shadow | Stage::Canary | Stage::Passed => {
                self.candidates
                    .entry(target.clone())
                    .or_default()
                    .insert(prefix);
                let is_drawn = draw(prefix, id) < self.settings.canary;
                let has_room = trial.prefixes() < self.settings.canary_prefixes as usize;
                if trial.stage == Stage::Canary && is_drawn && has_room {
                    self.join(id, prefix);
                }
            }
            Stage::RolledBack | Stage::NoDifference | Stage::Cancelled => {
                self.release(prefix, "the template of its conditions is not in use");
            }
        }
    }

    /// Puts a promoted template in force.
    pub(super) fn put(&mut self, prefix: Prefix, target: &Name) {
        if self.map.get(&prefix) == Some(target)
            && self
                .entry(prefix)
                .is_some_and(|one| one.mode == Mode::Placed)
        {
            return;
        }
        self.set_mode(prefix, Mode::Placed, Some(target));
        self.apply(prefix, Some(target.clone()));
        if let Some(entry) = self.entry_mut(prefix) {
            entry.guard.restart();
        }
        self.say(Cause::Placement, format!("{prefix} gets {target}"));
    }

    /// Takes a prefix into the canary of a trial.
    pub(super) fn join(&mut self, id: u64, prefix: Prefix) {
        let control = self.map.get(&prefix).cloned();
        self.set_mode(prefix, Mode::Trial, None);
        if let Some(trial) = self.trial_mut(id) {
            trial.members.insert(prefix, control);
        }
    }

    /// Gives a prefix back to the default.
    fn release(&mut self, prefix: Prefix, why: &str) {
        let mode = self
            .entry(prefix)
            .map(|entry| entry.mode)
            .unwrap_or_default();
        if matches!(mode, Mode::Placed | Mode::Trial) {
            self.set_mode(prefix, Mode::Observed, None);
            self.apply(prefix, None);
            self.say(
                Cause::Placement,
                format!("{prefix} gets the default: {why}"),
            );
        }
    }

    fn forget_candidate(&mut self, prefix: Prefix) {
        if let Some(target) = self.entry(prefix).map(|entry| entry.target.clone()) {
            self.forget_candidate_of(prefix, &target);
        }
    }

    /// Takes a prefix out of what waits for a template, and of its trial.
    pub(super) fn forget_candidate_of(&mut self, prefix: Prefix, target: &Name) {
        if let Some(waiting) = self.candidates.get_mut(target) {
            waiting.remove(&prefix);
        }
        let trial = self.trial_of(target).and_then(|id| self.trial_mut(id));
        let member = trial.and_then(|trial| trial.members.remove(&prefix));
        if let Some(control) = member
            && self
                .entry(prefix)
                .is_some_and(|entry| entry.mode == Mode::Trial)
        {
            self.set_mode(prefix, Mode::Observed, None);
            self.apply(prefix, control);
        }
    }

    /// Ends a trial, or takes it to another stage, and does what follows for its prefixes.
    pub(super) fn conclude(&mut self, id: u64, verdict: Verdict, now_ms: u64) {
        let Some(trial) = self.trial_mut(id) else {
            return;
        };
        let (template, stage) = (trial.template.clone(), verdict.stage);
        let reason = format!("trial {id} of {template}: {stage:?}: {}", verdict.reason);
        trial.enter(verdict, now_ms);
        let members = std::mem::take(&mut trial.members);
        self.say(Cause::Stage, reason);
        for (prefix, control) in members {
            let mode = if control.as_ref().is_some_and(|name| !name.is_default()) {
                Mode::Placed
            } else {
                Mode::Observed
            };
            self.set_mode(
                prefix,
                mode,
                control.as_ref().filter(|_| mode == Mode::Placed),
            );
            self.apply(prefix, control);
        }
        match stage {
            Stage::Promoted => {
                for prefix in self.candidates.remove(&template).unwrap_or_default() {
                    self.put(prefix, &template);
                }
            }
            Stage::RolledBack => {
                self.candidates.remove(&template);
                self.withdraw(&template);
            }
            Stage::NoDifference | Stage::Cancelled => {
                self.candidates.remove(&template);
            }
            Stage::Shadow | Stage::Canary | Stage::Passed => {}
        }
    }

    /// Takes a template from all prefixes that were placed with it.
    fn withdraw(&mut self, template: &Name) {
        let with: Vec<Prefix> = (self.map.iter())
            .filter(|(prefix, name)| *name == template && !self.head.pins.contains_key(prefix))
            .map(|(prefix, _)| *prefix)
            .collect();
        for prefix in with {
            self.set_mode(prefix, Mode::Observed, None);
            self.apply(prefix, None);
        }
    }
}
