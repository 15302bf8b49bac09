//! Versions of the configuration, and what changed between them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::prefix::Prefix;
use crate::template::Name;

/// What made a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A time slot of a trial began.
    Slot,
    /// Prefixes were placed by their conditions.
    Placement,
    /// A trial changed its stage.
    Stage,
    /// A guard rolled a prefix back.
    Guard,
    /// An operator.
    Operator,
}

/// The change of one prefix; none: the template of a shorter prefix, or the default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The prefix.
    pub prefix: Prefix,
    /// Template before.
    pub before: Option<Name>,
    /// Template after.
    pub after: Option<Name>,
}

/// A version of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Its number.
    pub version: u64,
    /// When it was made, milliseconds since 1970.
    pub made_at_ms: u64,
    /// What made it; the weightiest of several.
    pub cause: Cause,
    /// Why, the first twenty reasons.
    pub reasons: Vec<String>,
    /// What changed.
    pub changes: Vec<Change>,
}

/// What changed over several versions, in their order: for each prefix the first state and the last, if they differ.
pub fn diff<'a>(versions: impl IntoIterator<Item = &'a Version>) -> Vec<Change> {
    let mut all: BTreeMap<Prefix, Change> = BTreeMap::new();
    for change in versions.into_iter().flat_map(|version| &version.changes) {
        all.entry(change.prefix)
            .and_modify(|known| known.after.clone_from(&change.after))
            .or_insert_with(|| change.clone());
    }
    all.into_values()
        .filter(|change| change.before != change.after)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_has_the_first_and_the_last_state() {
        let name = |text: &str| Some(text.parse::<Name>().unwrap());
        let version = |version, prefix: &str, before, after| Version {
            version,
            made_at_ms: 0,
            cause: Cause::Placement,
            reasons: vec![],
            changes: vec![Change {
                prefix: prefix.parse().unwrap(),
                before,
                after,
            }],
        };
        let all = [
            version(1, "10.0.0.0/24", None, name("a")),
            version(2, "10.0.1.0/24", None, name("a")),
            version(3, "10.0.0.0/24", name("a"), name("b")),
            version(4, "10.0.1.0/24", name("a"), None),
        ];
        let changes = diff(&all);
        assert_eq!(changes.len(), 1);
        assert_eq!(
            (changes[0].before.clone(), changes[0].after.clone()),
            (None, name("b"))
        );
    }
}
