//! Applies a plan: all of it, or nothing.
//!
//! First everything is made that nobody uses yet, and checked. Then each part is put into use, and a part that the
//! system refuses puts those before it back.

pub(crate) mod forward;
pub(crate) mod haproxy;
pub(crate) mod routes;
mod sysctls;

use std::collections::BTreeMap;
use std::io;

use pathcast_control::Configuration;

use crate::error::AgentError;
use crate::hands::Hands;
use crate::log::log;
use crate::plan::{Plan, Space};
use crate::record::Record;
use crate::settings::{Connections, Settings};
use crate::sock_ops::SockOps;
use routes::{Lines, Tables};

/// What was done, and how it is put back; the last first.
type Undo<'a> = Vec<Box<dyn FnOnce() -> io::Result<()> + 'a>>;

/// Applies plans, and looks at what is in force.
pub(crate) struct Applier {
    pub(crate) settings: Settings,
    pub(crate) hands: Hands,
    pub(crate) record: Record,
    /// What is in force.
    pub(crate) plan: Plan,
    /// Its routes, by namespace; the empty name is our own.
    lines: BTreeMap<String, Lines>,
    sock_ops: SockOps,
}

impl Applier {
    /// Reads the record of what was done before.
    pub(crate) fn new(settings: Settings, hands: Hands) -> Result<Self, AgentError> {
        let record = Record::read(&settings.state)?;
        Ok(Self {
            settings,
            hands,
            record,
            plan: Plan::default(),
            lines: BTreeMap::new(),
            sock_ops: SockOps::default(),
        })
    }

    fn tables(&self) -> Tables {
        Tables {
            first: self.settings.table,
            rule: self.settings.rule,
        }
    }

    /// The pool of unknown clients in HAProxy's own configuration.
    fn usual_pool(&self) -> &str {
        let default = self.settings.pools.iter().find(|pool| pool.default);
        default.map_or("", |pool| &pool.name)
    }

    /// Applies a configuration whole; `text` is kept for the next start.
    ///
    /// # Errors
    /// [`AgentError::Impossible`] if something cannot be set here, [`AgentError::Refused`] if the system refuses a part.
    /// Then what was in force before still is.
    pub(crate) fn apply(
        &mut self,
        configuration: &Configuration,
        text: &str,
    ) -> Result<(), AgentError> {
        let plan = Plan::of(configuration, &self.settings, &self.record.pools)?;
        let lines = self.lines_of(&plan)?;
        let mut record = self.record.clone();
        self.note(&plan, &mut record)?;
        if !self.hands.dry {
            record.write(&self.settings.state)?;
            self.record = record.clone();
        }
        self.put_into_force(&plan, &lines, &record)?;
        record.configuration = Some(text.into());
        record.pools.clone_from(&plan.pools);
        self.plan = plan;
        self.lines = lines;
        if !self.hands.dry {
            record.write(&self.settings.state)?;
            self.record = record;
        }
        Ok(())
    }

    /// What connections of a space get by routes: all, or what sock_ops cannot set.
    fn by_routes(&self, space: &Space) -> Space {
        let mut space = space.clone();
        if self.settings.connections == Connections::SockOps && space.namespace.is_none() {
            for beginning in space.beginnings.values_mut() {
                beginning.congestion_control = None;
                beginning.initial_window = None;
                beginning.paced = false;
            }
            if space
                .beginnings
                .values()
                .all(|one| one.initial_receive_window.is_none())
            {
                space.beginnings.clear();
            }
        }
        space
    }

    fn lines_of(&self, plan: &Plan) -> Result<BTreeMap<String, Lines>, AgentError> {
        let mut lines = BTreeMap::new();
        for name in &self.record.namespaces {
            lines.insert(name.clone(), Lines::default());
        }
        for space in &plan.spaces {
            let space = self.by_routes(space);
            let name = space.namespace.as_deref();
            let found =
                Lines::of(&self.hands, name, &space.beginnings).map_err(AgentError::refused)?;
            lines.insert(name.unwrap_or("").into(), found);
        }
        Ok(lines)
    }

    /// Notes what the plan will touch, and what is there now.
    fn note(&self, plan: &Plan, record: &mut Record) -> Result<(), AgentError> {
        for space in &plan.spaces {
            let name = space.namespace.clone().unwrap_or_default();
            if !record.namespaces.contains(&name) {
                record.namespaces.push(name);
            }
        }
        if let (Some(haproxy), None) = (&self.settings.haproxy, &record.map) {
            let lines = haproxy::in_use(haproxy).map_err(AgentError::refused)?;
            record.map = Some(lines.iter().map(|line| format!("{line}\n")).collect());
        }
        record.forwards |= self.settings.forward.is_some();
        sysctls::note(&self.hands, &plan.spaces, record).map_err(AgentError::refused)
    }

    fn put_into_force(
        &mut self,
        plan: &Plan,
        lines: &BTreeMap<String, Lines>,
        record: &Record,
    ) -> Result<(), AgentError> {
        let (hands, tables) = (self.hands.clone(), self.tables());
        let at = AgentError::refused;
        let mut prepared = Vec::new();
        for (name, lines) in lines {
            let name = Some(name.as_str()).filter(|name| !name.is_empty());
            for (v6, family) in [(false, &lines.v4), (true, &lines.v6)] {
                let table = match family.is_empty() {
                    true => None,
                    false => Some(tables.prepare(&hands, name, lines, v6).map_err(at)?),
                };
                prepared.push((name, v6, table));
            }
        }
        if let Some(forward) = &self.settings.forward {
            forward::check(&hands, plan, &self.settings, forward).map_err(at)?;
        }
        let usual = self.usual_pool().to_string();
        let map = match &self.settings.haproxy {
            Some(haproxy) => Some((
                haproxy,
                haproxy::prepare(&hands, haproxy, plan, &usual).map_err(at)?,
            )),
            None => None,
        };
        let mut undo: Undo<'_> = Vec::new();
        let mut old_tables = Vec::new();
        let done = (|| -> io::Result<()> {
            if self.settings.connections == Connections::SockOps {
                self.sock_ops
                    .set(&hands, &self.settings, &plan.spaces[0].beginnings)?;
            }
            sysctls::set(&hands, &plan.spaces, record, &mut undo)?;
            for (name, v6, table) in prepared {
                let before = tables.switch(&hands, name, v6, table)?;
                let hands = &hands;
                let last = before.last().copied();
                undo.push(Box::new(move || {
                    tables.switch(hands, name, v6, last).map(drop)
                }));
                old_tables.extend(
                    before
                        .into_iter()
                        .filter(|old| Some(*old) != table)
                        .map(|old| (name, v6, old)),
                );
            }
            if let Some(forward) = &self.settings.forward {
                forward::commit(&hands, plan, &self.settings, forward)?;
                let before = &self.plan;
                let settings = &self.settings;
                if before.default_pool.is_some() {
                    let hands = &hands;
                    undo.push(Box::new(move || {
                        forward::commit(hands, before, settings, forward)
                    }));
                }
            }
            // the last part: nothing after it can fail
            match &map {
                Some((haproxy, prepared)) => haproxy::commit(&hands, haproxy, prepared),
                None => Ok(()),
            }
        })();
        if let Err(error) = done {
            let mut message = error.to_string();
            for back in undo.into_iter().rev() {
                if let Err(error) = back() {
                    message += &format!("; putting back: {error}");
                }
            }
            if let Some((haproxy, prepared)) = &map {
                haproxy::abandon(&hands, haproxy, prepared);
            }
            return Err(AgentError::Refused(message));
        }
        drop(undo);
        for (name, v6, old) in old_tables {
            // nothing looks there any more: the next preparation empties it at the latest
            let _ = tables.flush(&hands, name, v6, old);
        }
        Ok(())
    }

    /// Whether the main table's routes are others now than when ours were made.
    pub(crate) fn routes_changed(&self) -> bool {
        self.lines_of(&self.plan).is_ok_and(|now| {
            let in_force = |name: &String| self.lines.get(name).cloned().unwrap_or_default();
            now.iter().any(|(name, lines)| in_force(name) != *lines)
        })
    }

    /// What differs between what is in force and what should be, read back from the system.
    pub(crate) fn differences(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut add = |what: io::Result<Vec<String>>| match what {
            Ok(more) => found.extend(more),
            Err(error) => found.push(error.to_string()),
        };
        for (name, lines) in &self.lines {
            let name = Some(name.as_str()).filter(|name| !name.is_empty());
            add(self.tables().differences(&self.hands, name, lines));
        }
        add(sysctls::differences(&self.hands, &self.plan.spaces));
        if let Some(haproxy) = &self.settings.haproxy {
            add(haproxy::differences(haproxy, &self.plan, self.usual_pool()));
        }
        if self.settings.forward.is_some() && self.plan.default_pool.is_some() {
            add(forward::differences(
                &self.hands,
                &self.plan,
                &self.settings,
            ));
        }
        if self.settings.connections == Connections::SockOps {
            add(self.sock_ops.differences());
        }
        found
    }

    /// Removes all that was set, and puts back what was there before. Gives what stays, and why.
    ///
    /// # Errors
    /// [`AgentError::File`] if the record cannot be removed.
    pub(crate) fn uninstall(&mut self) -> Result<Vec<String>, AgentError> {
        let (hands, tables) = (self.hands.clone(), self.tables());
        let mut stays = Vec::new();
        let mut note = |what: &str, done: io::Result<()>| {
            if let Err(error) = done {
                stays.push(format!("{what}: {error}"));
            }
        };
        for name in &self.record.namespaces {
            let name = Some(name.as_str()).filter(|name| !name.is_empty());
            for v6 in [false, true] {
                let what = format!("routes of {}", name.unwrap_or("this namespace"));
                note(&what, tables.switch(&hands, name, v6, None).map(drop));
                for table in [tables.first, tables.first + 1] {
                    note(&what, tables.flush(&hands, name, v6, table));
                }
            }
        }
        if self.record.forwards {
            note("forwarding", forward::remove(&hands));
        }
        if let (Some(haproxy), Some(text)) = (&self.settings.haproxy, &self.record.map) {
            let restored = haproxy::prepare_text(&hands, haproxy, text.clone())
                .and_then(|prepared| haproxy::commit(&hands, haproxy, &prepared));
            note("haproxy's map", restored);
        }
        note("sock_ops", self.sock_ops.remove(&hands, &self.settings));
        let (failed, others) = sysctls::restore(&hands, &self.record);
        stays.extend(failed);
        for one in others {
            log("warning", "not_ours", &[("what", one.into())]);
        }
        if stays.is_empty() && !hands.dry {
            Record::remove(&self.settings.state)?;
        }
        Ok(stays)
    }
}
