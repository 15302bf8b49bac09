//! What changed since a configuration that an agent has, and a digest by which both know that they mean the same one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::configuration::Configuration;
use crate::error::{ControlError, FORMAT, invalid, read};
use crate::prefix::Prefix;
use crate::signature::hex;
use crate::template::{Name, Template};

/// The kind of body that has a [`Delta`] instead of a whole configuration.
pub const CONTENT_TYPE: &str = "application/vnd.pathcast.delta+json";

/// A configuration as the changes since an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delta {
    /// Format of this text; at most [`FORMAT`].
    pub format: u32,
    /// The version that it changes.
    pub base: u64,
    /// The version that it leads to.
    pub version: u64,
    /// All templates that prefixes name then.
    pub templates: Vec<Template>,
    /// Template by client prefix, where it changed; none: the prefix has no template of its own.
    pub changes: BTreeMap<Prefix, Option<Name>>,
    /// Template of all other clients.
    pub default: Name,
    /// When the version was made, milliseconds since 1970.
    pub made_at_ms: u64,
    /// Digest of the configuration that it leads to, [`Tracked::digest`].
    pub digest: String,
}

impl Delta {
    /// Reads changes.
    ///
    /// # Errors
    /// [`ControlError`] if the format is newer, a key is unknown or missing, or a name or prefix is invalid.
    pub fn read(bytes: &[u8]) -> Result<Self, ControlError> {
        read("delta", bytes)
    }

    /// The text.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("maps have text keys")
    }
}

/// A configuration whose digest costs as much as what changes, not as much as the whole.
///
/// ```
/// use pathcast_control::{Configuration, delta::Tracked};
/// let mut one = Tracked::of(Configuration::empty());
/// let before = one.digest();
/// one.set("192.0.2.0/24".parse()?, Some("far".parse()?));
/// assert_ne!(one.digest(), before);
/// one.set("192.0.2.0/24".parse()?, None);
/// assert_eq!(one.digest(), before);
/// # Ok::<(), pathcast_control::ControlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Tracked {
    configuration: Configuration,
    /// The sum of the digests of all prefixes with their templates, in four parts that wrap.
    sum: [u64; 4],
    /// Prefixes by template.
    used: BTreeMap<Name, usize>,
}

/// SHA-256 of a prefix with its template, in four parts.
fn parts(prefix: Prefix, name: &Name) -> [u64; 4] {
    let whole = Sha256::digest(format!("{prefix} {name}"));
    let mut parts = [0; 4];
    for (part, bytes) in parts.iter_mut().zip(whole.chunks_exact(8)) {
        *part = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    parts
}

impl Tracked {
    /// Follows a configuration from now on: reads all its prefixes once.
    pub fn of(configuration: Configuration) -> Self {
        let mut found = Self {
            configuration: Configuration::empty(),
            sum: [0; 4],
            used: BTreeMap::new(),
        };
        for (prefix, name) in &configuration.prefixes {
            found.count(*prefix, name, true);
        }
        found.configuration = configuration;
        found
    }

    /// The configuration.
    pub const fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// The configuration.
    pub fn into_configuration(self) -> Configuration {
        self.configuration
    }

    fn count(&mut self, prefix: Prefix, name: &Name, is_there: bool) {
        for (sum, part) in self.sum.iter_mut().zip(parts(prefix, name)) {
            *sum = match is_there {
                true => sum.wrapping_add(part),
                false => sum.wrapping_sub(part),
            };
        }
        let known = self.used.get_mut(name);
        match (known, is_there) {
            (Some(count), true) => *count += 1,
            (None, true) => drop(self.used.insert(name.clone(), 1)),
            (Some(count), false) if *count > 1 => *count -= 1,
            (_, false) => drop(self.used.remove(name)),
        }
    }

    /// Sets the template of a prefix, or removes it.
    pub fn set(&mut self, prefix: Prefix, name: Option<Name>) {
        let before = match &name {
            Some(name) => self.configuration.prefixes.insert(prefix, name.clone()),
            None => self.configuration.prefixes.remove(&prefix),
        };
        if let Some(before) = before {
            self.count(prefix, &before, false);
        }
        if let Some(name) = name {
            self.count(prefix, &name, true);
        }
    }

    /// Goes on to a version, with those of the templates that prefixes name.
    pub fn go_on(&mut self, version: u64, made_at_ms: u64, templates: &[Template]) {
        let used = |one: &&Template| self.used.contains_key(&one.name);
        self.configuration.templates = templates.iter().filter(used).cloned().collect();
        self.configuration.version = version;
        self.configuration.made_at_ms = made_at_ms;
    }

    /// The changes of some prefixes since a version, as they are sent.
    pub fn delta(&self, base: u64, changed: impl IntoIterator<Item = Prefix>) -> Delta {
        let of = |prefix| (prefix, self.configuration.prefixes.get(&prefix).cloned());
        Delta {
            format: FORMAT,
            base,
            version: self.configuration.version,
            templates: self.configuration.templates.clone(),
            changes: changed.into_iter().map(of).collect(),
            default: self.configuration.default.clone(),
            made_at_ms: self.configuration.made_at_ms,
            digest: self.digest(),
        }
    }

    /// The configuration that changes lead to.
    ///
    /// # Errors
    /// [`ControlError::Invalid`] if the changes are of another version, a template is named that is not there, or the
    /// digest of the result is another.
    pub fn changed_by(&self, delta: Delta) -> Result<Self, ControlError> {
        let ours = self.configuration.version;
        if delta.base != ours {
            let message = format!("got changes of version {}, expected {ours}", delta.base);
            return Err(invalid("base", message));
        }
        let mut found = self.clone();
        for (prefix, name) in delta.changes {
            found.set(prefix, name);
        }
        found.configuration.templates = delta.templates;
        found.configuration.default = delta.default;
        found.configuration.version = delta.version;
        found.configuration.made_at_ms = delta.made_at_ms;
        found.configuration.check()?;
        let digest = found.digest();
        if digest != delta.digest {
            let message = format!("got {}, but the changes lead to {digest}", delta.digest);
            return Err(invalid("digest", message));
        }
        Ok(found)
    }

    /// The digest of version, templates and prefixes, in hexadecimal digits. It finds that two sides differ; that nobody
    /// else made a text is for its signature to say.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        let of = &self.configuration;
        hash.update(of.version.to_le_bytes());
        hash.update(of.made_at_ms.to_le_bytes());
        for part in self.sum {
            hash.update(part.to_le_bytes());
        }
        hash.update(serde_json::to_vec(&(&of.default, &of.templates)).expect("keys are texts"));
        hex(&hash.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn prefix(number: u8) -> Prefix {
        format!("10.0.{number}.0/24").parse().unwrap()
    }

    fn base() -> Tracked {
        let text = br#"{"format":1,"version":7,"templates":[{"name":"far","knobs":{"initial_window":40}}],
            "prefixes":{"10.0.1.0/24":"far","10.0.2.0/24":"far"},"default":"default","made_at_ms":1}"#;
        Tracked::of(Configuration::read(text).unwrap())
    }

    fn next(before: &Tracked) -> (Tracked, Delta) {
        let mut next = before.clone();
        next.set(prefix(1), None);
        next.set(prefix(2), Some(Name::default_template()));
        next.set(prefix(3), Some(name("far")));
        next.go_on(8, 2, &before.configuration().templates);
        let delta = next.delta(7, [1, 2, 3].map(prefix));
        (next, delta)
    }

    #[test]
    fn changes_lead_to_the_same_configuration_as_the_whole_text() {
        let before = base();
        let (next, delta) = next(&before);
        let delta = Delta::read(&delta.to_json()).unwrap();
        let found = before.changed_by(delta).unwrap();
        assert_eq!(found.configuration(), next.configuration());
        let whole = Configuration::read(&next.configuration().to_json()).unwrap();
        assert_eq!(Tracked::of(whole).digest(), found.digest());
        assert_eq!(found.configuration().prefixes.len(), 2);
    }

    #[test]
    fn changes_that_do_not_fit_are_refused() {
        let before = base();
        let (_, delta) = next(&before);
        let refused = |delta: Delta| before.changed_by(delta).unwrap_err().to_string();
        let other = Delta {
            base: 6,
            ..delta.clone()
        };
        assert!(refused(other).contains("expected 7"));
        let mut short = delta.clone();
        short.changes.remove(&prefix(1));
        assert!(refused(short).contains("digest"));
        let mut unknown = delta.clone();
        unknown.changes.insert(prefix(9), Some(name("near")));
        assert!(refused(unknown).contains("got near"));
        // one that has drifted finds out by the digest
        let mut drifted = before.clone();
        drifted.set(prefix(200), Some(name("far")));
        assert_ne!(drifted.digest(), before.digest());
        let error = drifted.changed_by(delta).unwrap_err().to_string();
        assert!(error.contains("digest"), "{error}");
    }

    #[test]
    fn templates_that_nothing_names_any_more_are_left_out() {
        let mut one = base();
        let templates = one.configuration().templates.clone();
        for number in [1, 2] {
            one.set(prefix(number), None);
        }
        one.go_on(8, 2, &templates);
        assert_eq!(one.configuration().templates, []);
        one.set(prefix(1), Some(name("far")));
        one.go_on(9, 2, &templates);
        assert_eq!(one.configuration().templates, templates);
    }
}
