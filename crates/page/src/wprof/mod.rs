//! Graphs of the WProf family: what a browser downloads and computes for a page, and what each activity waits for.
//!
//! [`epload`] reads the graphs that EPLOAD replays, [`wprofx`] those that WProfX writes. Both name activities and list
//! the dependencies among them: `a2` waits for `a1`, for all of it or until it has run for a time. Downloads become the
//! entries of an archive, and computations tasks of the page.
//!
//! Neither has the priorities of requests, nor the sizes of requests and headers.

pub mod epload;
pub mod wprofx;

use std::collections::HashMap;

use serde::Deserialize;

use crate::compute::{Activity, Added, Computation, Dependency, add};
use crate::har::graph::{self, Recorded};
use crate::har::raw::{Archive, Number, Text};
use crate::har::{HarError, HarPage};

/// That an activity waits for another one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Link {
    a1: Text,
    a2: Text,
    time: Number,
}

/// What a file says of a page.
#[derive(Default)]
struct Activities {
    /// Of the downloads, in the order of the file.
    archive: Archive,
    computations: Vec<Computation>,
    /// By name; a resource is an entry, from 0.
    names: HashMap<String, Activity>,
    /// Dependencies among them; a resource is an entry, from 0.
    dependencies: Vec<Dependency>,
    /// Dependencies that name an activity that the file does not have.
    unknown: usize,
    /// Downloads without a size.
    without_size: usize,
}

/// A page of a graph.
struct Made {
    page: HarPage,
    added: Added,
    /// The resource of each entry, if it is part of the page.
    of_entry: Vec<Option<usize>>,
}

impl Activities {
    /// Names an activity; the first of a name keeps it.
    fn name(&mut self, name: &Text, activity: Activity) {
        if let Some(name) = name.get() {
            self.names.entry(name.to_string()).or_insert(activity);
        }
    }

    /// The activities of a dependency, if the file has them.
    fn ends_of(&mut self, link: &Link) -> Option<(Activity, Activity)> {
        let find = |name: &Text| self.names.get(name.get()?).copied();
        let found = find(&link.a1).zip(find(&link.a2));
        self.unknown += usize::from(found.is_none());
        found
    }

    /// The graph of the page; `infer` adds dependencies of computations that the file does not have.
    fn page(mut self, infer: impl FnOnce(&Recorded) -> Vec<Dependency>) -> Result<Made, HarError> {
        for one in &self.dependencies {
            if let Activity::Resource(entry) = one.then {
                self.archive.entries[entry].has_causes = true;
            }
        }
        let mut pages = graph::recorded(&self.archive)?;
        // an archive without pages is one page
        let mut recorded = pages.swap_remove(0);
        let mut of_entry = vec![None; self.archive.entries.len()];
        for (resource, times) in recorded.times.iter().enumerate() {
            of_entry[times.entry - 1] = Some(resource);
        }
        let on_page = |activity| match activity {
            Activity::Resource(entry) => of_entry[entry].map(Activity::Resource),
            Activity::Computation(_) => Some(activity),
        };
        let known = self.dependencies.iter().filter_map(|one| {
            let (of, then) = on_page(one.of).zip(on_page(one.then))?;
            Some(Dependency { of, then, ..*one })
        });
        let mut dependencies: Vec<_> = known.collect();
        dependencies.extend(infer(&recorded));
        let added = add(&mut recorded.page.page, &self.computations, &dependencies);
        recorded.page.page.check().map_err(|error| HarError {
            entry: None,
            message: error.message,
        })?;
        self.warn(&mut recorded.page, &added);
        Ok(Made {
            page: recorded.page,
            added,
            of_entry,
        })
    }

    fn warn(&self, page: &mut HarPage, added: &Added) {
        let resources = page.page.resources.len();
        let activities = resources + self.computations.len();
        let warnings = &mut page.warnings;
        warnings.push(
            "the priorities are those of Chromium for each type, for the file has none".into(),
        );
        if self.without_size > 0 {
            warnings.push(format!(
                "{} of {resources} resources have no size and are taken to be empty: give them sizes in a page file",
                self.without_size
            ));
        }
        if self.unknown > 0 {
            warnings.push(format!(
                "{} dependencies were left out: they name activities that the file does not have",
                self.unknown
            ));
        }
        if added.without_cause > 0 {
            warnings.push(format!(
                "{} of {activities} activities have no dependency: they are taken to wait for the first resource",
                added.without_cause
            ));
        }
    }
}

#[cfg(test)]
mod tests;
