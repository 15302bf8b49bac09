//! What agents get: the configuration in the database as a whole, or what changed since the version that they have.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use pathcast_control::{Configuration, Prefix, Template, Tracked, Version};

/// Versions that are kept, and prefixes that changed in all of them together.
const VERSIONS: usize = 100;
const CHANGES: usize = 100_000;

/// A configuration, or changes to one, as they are sent.
#[derive(Debug, Clone)]
pub struct Body {
    /// Whether it has what changed alone.
    pub is_delta: bool,
    /// The text.
    pub text: Arc<[u8]>,
}

/// A version that agents may have.
struct Former {
    version: u64,
    digest: String,
    /// What the next version changed.
    changed: Vec<Prefix>,
}

/// A copy of the configuration that is in the database. It is changed as that is, and nothing that reports need is locked.
pub struct Publisher {
    current: Tracked,
    former: VecDeque<Former>,
    whole: Option<Body>,
    /// The changes that were asked for last, with the version that they change.
    last: Option<(u64, Body)>,
}

impl Publisher {
    /// Begins with a configuration.
    pub fn new(configuration: Configuration) -> Self {
        Self {
            current: Tracked::of(configuration),
            former: VecDeque::new(),
            whole: None,
            last: None,
        }
    }

    /// Goes on to a version; `templates` are all that there are.
    pub fn publish(&mut self, version: &Version, templates: &[Template]) {
        self.former.push_back(Former {
            version: self.current.configuration().version,
            digest: self.current.digest(),
            changed: version.changes.iter().map(|one| one.prefix).collect(),
        });
        let mut changes: usize = self.former.iter().map(|one| one.changed.len()).sum();
        while self.former.len() > VERSIONS || changes > CHANGES {
            let oldest = self.former.pop_front();
            changes -= oldest.map_or(0, |one| one.changed.len());
        }
        for change in &version.changes {
            self.current.set(change.prefix, change.after.clone());
        }
        self.current
            .go_on(version.version, version.made_at_ms, templates);
        (self.whole, self.last) = (None, None);
    }

    /// What an agent gets that has a version with a digest: changes if both are known here, or else the whole. The whole
    /// takes about half a second for a million prefixes the first time.
    pub fn body(&mut self, have: u64, digest: Option<&str>) -> Body {
        let known = digest.and_then(|digest| {
            (self.former.iter()).position(|one| one.version == have && one.digest == digest)
        });
        let Some(place) = known else {
            return self.whole();
        };
        if let Some((_, body)) = self.last.as_ref().filter(|(base, _)| *base == have) {
            return body.clone();
        }
        let since = self.former.iter().skip(place);
        let changed: BTreeSet<Prefix> = since.flat_map(|one| one.changed.iter().copied()).collect();
        let delta = self.current.delta(have, changed);
        let body = Body {
            is_delta: true,
            text: delta.to_json().into(),
        };
        self.last = Some((have, body.clone()));
        body
    }

    fn whole(&mut self) -> Body {
        let configuration = self.current.configuration();
        let of = || Body {
            is_delta: false,
            text: configuration.to_json().into(),
        };
        self.whole.get_or_insert_with(of).clone()
    }
}

#[cfg(test)]
mod tests {
    use pathcast_control::{Cause, Change, Delta, Name};

    use super::*;

    fn prefix(number: usize) -> Prefix {
        let bits = u32::try_from(number).unwrap() << 8;
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + bits);
        format!("{address}/24").parse().unwrap()
    }

    fn template() -> Template {
        serde_json::from_str(r#"{"name":"far","knobs":{"initial_window":40}}"#).unwrap()
    }

    /// A version that gives prefixes a template.
    fn version(number: u64, prefixes: impl IntoIterator<Item = usize>) -> Version {
        let of = |number| Change {
            prefix: prefix(number),
            before: None,
            after: Some("far".parse::<Name>().unwrap()),
        };
        Version {
            version: number,
            made_at_ms: number,
            cause: Cause::Placement,
            reasons: vec![],
            changes: prefixes.into_iter().map(of).collect(),
        }
    }

    fn read(body: &Body) -> Tracked {
        assert!(!body.is_delta);
        Tracked::of(Configuration::read(&body.text).unwrap())
    }

    #[test]
    fn an_agent_with_a_known_version_gets_what_changed_since() {
        let mut publisher = Publisher::new(Configuration::empty());
        publisher.publish(&version(1, 0..1000), &[template()]);
        let agent = read(&publisher.body(0, None));
        publisher.publish(&version(2, [7, 1000]), &[template()]);
        publisher.publish(&version(3, [7, 1001]), &[template()]);
        let sent = publisher.body(1, Some(&agent.digest()));
        assert!(sent.is_delta);
        let delta = Delta::read(&sent.text).unwrap();
        assert_eq!((delta.base, delta.version), (1, 3));
        assert_eq!(delta.changes.len(), 3);
        let agent = agent.changed_by(delta).unwrap();
        let whole = read(&publisher.body(0, None));
        assert_eq!(agent.configuration(), whole.configuration());
        assert!(sent.text.len() < publisher.body(0, None).text.len() / 20);
    }

    #[test]
    fn all_others_get_the_whole() {
        let mut publisher = Publisher::new(Configuration::empty());
        publisher.publish(&version(1, 0..10), &[template()]);
        let digest = read(&publisher.body(0, None)).digest();
        publisher.publish(&version(2, [11]), &[template()]);
        assert!(publisher.body(1, Some(&digest)).is_delta);
        for (have, digest) in [
            (1, None),
            (1, Some("00")),
            (2, Some(digest.as_str())),
            (9, Some(digest.as_str())),
        ] {
            assert!(!publisher.body(have, digest).is_delta, "{have} {digest:?}");
        }
        // a version of long ago, by number or by the amount of what changed
        publisher.publish(&version(3, 0..CHANGES), &[template()]);
        assert!(!publisher.body(1, Some(&digest)).is_delta);
        for number in 4..200 {
            publisher.publish(&version(number, [number as usize]), &[template()]);
        }
        assert!(publisher.former.len() <= VERSIONS);
    }
}
