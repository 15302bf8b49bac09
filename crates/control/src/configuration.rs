//! What the manager sends to agents: which template is in force for which clients.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{ControlError, FORMAT, invalid, read};
use crate::prefix::Prefix;
use crate::template::{Name, Template, by_name};

/// Which template is in force for which clients. The longest prefix wins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// Format of this text; at most [`FORMAT`].
    pub format: u32,
    /// Number of the configuration; a higher one is newer.
    pub version: u64,
    /// The templates that prefixes name.
    pub templates: Vec<Template>,
    /// Template by client prefix.
    #[serde(deserialize_with = "unique")]
    pub prefixes: BTreeMap<Prefix, Name>,
    /// Template of all other clients.
    pub default: Name,
    /// When it was made, milliseconds since 1970.
    pub made_at_ms: u64,
}

impl Configuration {
    /// The configuration without templates, version 0: all clients have the server's default.
    pub fn empty() -> Self {
        Self {
            format: FORMAT,
            version: 0,
            templates: Vec::new(),
            prefixes: BTreeMap::new(),
            default: Name::default_template(),
            made_at_ms: 0,
        }
    }

    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// [`ControlError`] if the format is newer, a key is unknown or missing, a template or prefix is invalid, a prefix
    /// occurs twice, or a template is named that is not there.
    ///
    /// # Example
    /// ```
    /// use pathcast_control::Configuration;
    /// let text = br#"{"format":1,"version":7,"templates":[{"name":"far","knobs":{"initial_window":40}}],
    ///     "prefixes":{"192.0.2.0/24":"far"},"default":"default","made_at_ms":1}"#;
    /// let read = Configuration::read(text)?;
    /// assert_eq!(read.template_of("192.0.2.7".parse().unwrap()).as_str(), "far");
    /// assert!(read.template_of("198.51.100.7".parse().unwrap()).is_default());
    /// # Ok::<(), pathcast_control::ControlError>(())
    /// ```
    pub fn read(bytes: &[u8]) -> Result<Self, ControlError> {
        let found: Self = read("configuration", bytes)?;
        found.check()?;
        Ok(found)
    }

    /// Checks templates and names.
    ///
    /// # Errors
    /// [`ControlError::Invalid`] as [`Self::read`].
    pub fn check(&self) -> Result<(), ControlError> {
        let named = by_name(&self.templates)?;
        let is_known = |name: &Name| name.is_default() || named.contains_key(name);
        if !is_known(&self.default) {
            let message = format!("got {}, expected a name among templates", self.default);
            return Err(invalid("default", message));
        }
        for (prefix, name) in &self.prefixes {
            if !is_known(name) {
                let message = format!("got {name}, expected a name among templates");
                return Err(invalid(format!("prefixes.{prefix}"), message));
            }
        }
        Ok(())
    }

    /// The text; the same configuration gives the same bytes.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("maps have text keys")
    }

    /// The template of a client: that of the longest prefix that holds it. One look-up for each length; many look-ups
    /// need a trie.
    pub fn template_of(&self, client: IpAddr) -> &Name {
        let client = client.to_canonical();
        let most = if client.is_ipv4() { 32 } else { 128 };
        let holding = |length: u8| {
            let net = ipnet::IpNet::new(client, length).ok()?.trunc();
            self.prefixes.get(&Prefix::new(net).ok()?)
        };
        (1..=most).rev().find_map(holding).unwrap_or(&self.default)
    }

    /// The template of a name; none for `default`, or if it is not there.
    pub fn template(&self, name: &Name) -> Option<&Template> {
        self.templates
            .iter()
            .find(|template| template.name == *name)
    }
}

/// A map whose keys occur once: JSON allows them twice, and the last would win unseen.
fn unique<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<Prefix, Name>, D::Error> {
    struct Unique;
    impl<'de> Visitor<'de> for Unique {
        type Value = BTreeMap<Prefix, Name>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("templates by prefix")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = BTreeMap::new();
            while let Some((prefix, name)) = map.next_entry::<Prefix, Name>()? {
                if found.insert(prefix, name).is_some() {
                    let message = format!("prefixes.{prefix} occurs twice, expected it once");
                    return Err(A::Error::custom(message));
                }
            }
            Ok(found)
        }
    }
    from.deserialize_map(Unique)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(prefixes: &str, default: &str, format: u32, more: &str) -> String {
        format!(
            r#"{{"format":{format},"version":3,"templates":[{{"name":"a","knobs":{{}}}},{{"name":"b","knobs":{{"initial_window":40}}}}],"prefixes":{{{prefixes}}},"default":"{default}","made_at_ms":5{more}}}"#
        )
    }

    #[test]
    fn the_longest_prefix_wins() {
        let prefixes =
            r#""10.0.0.0/8":"a","10.1.0.0/16":"b","10.1.2.0/24":"default","2001:db8::/32":"b""#;
        let read = Configuration::read(text(prefixes, "default", 1, "").as_bytes()).unwrap();
        for (client, name) in [
            ("10.2.0.1", "a"),
            ("10.1.0.1", "b"),
            ("10.1.2.1", "default"),
            ("::ffff:10.1.0.1", "b"),
            ("11.0.0.1", "default"),
            ("2001:db8::1", "b"),
        ] {
            assert_eq!(
                read.template_of(client.parse().unwrap()).as_str(),
                name,
                "{client}"
            );
        }
        assert_eq!(Configuration::read(&read.to_json()).unwrap(), read);
    }

    #[test]
    fn what_does_not_fit_is_refused_whole() {
        for (text, said) in [
            (text("", "default", 2, r#","new_key":1"#), "format is 2"),
            (text("", "default", 0, ""), "format is 0"),
            (text("", "default", 1, r#","more":1"#), "unknown field"),
            (text("", "c", 1, ""), "default: got c"),
            (text(r#""10.0.0.0/8":"c""#, "a", 1, ""), "10.0.0.0/8: got c"),
            (
                text(r#""10.0.0.0/8":"a","10.0.0.0/8":"b""#, "a", 1, ""),
                "twice",
            ),
            (text(r#""10.0.0.1/8":"a""#, "a", 1, ""), "bits beyond"),
            (text(r#""0.0.0.0/0":"a""#, "a", 1, ""), "key default"),
            (
                text(r#""::ffff:10.0.0.0/104":"a""#, "a", 1, ""),
                "IPv4-mapped",
            ),
            ("{".into(), "EOF"),
        ] {
            let error = Configuration::read(text.as_bytes())
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
