//! Templates: server configurations by name.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{ControlError, invalid, shown};
use crate::knobs::Knobs;

/// Longest name, bytes.
const LONGEST: usize = 32;
/// Most templates of one configuration or model.
const MOST: usize = 1000;
/// The name of the server's own configuration.
const DEFAULT: &str = "default";

/// Name of a template: 1 to 32 lower-case letters, digits or `-`. `default` is the server's own configuration.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

impl Name {
    /// The name `default`: no knob is set.
    pub fn default_template() -> Self {
        Self(DEFAULT.into())
    }

    /// Whether it is `default`.
    pub fn is_default(&self) -> bool {
        &*self.0 == DEFAULT
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Name {
    fn default() -> Self {
        Self::default_template()
    }
}

impl FromStr for Name {
    type Err = ControlError;

    fn from_str(text: &str) -> Result<Self, ControlError> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if (1..=LONGEST).contains(&text.len()) && text.bytes().all(fits) {
            return Ok(Self(text.into()));
        }
        let message = format!(
            "got {:?}, expected 1 to {LONGEST} lower-case letters, digits or -",
            shown(text)
        );
        Err(invalid("name of a template", message))
    }
}

impl TryFrom<String> for Name {
    type Error = ControlError;

    fn try_from(text: String) -> Result<Self, ControlError> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.as_ref().into()
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// One server configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Its name; not `default`.
    pub name: Name,
    /// What it sets.
    pub knobs: Knobs,
}

impl Template {
    /// Checks the name and all ranges.
    ///
    /// # Errors
    /// [`ControlError::Invalid`] names the first that does not fit.
    pub fn check(&self) -> Result<(), ControlError> {
        if self.name.is_default() {
            let message = "the name default is the server's own configuration, expected another";
            return Err(invalid("templates", message));
        }
        self.knobs.check(&format!("template {}", self.name))
    }
}

/// Checks templates, and returns them by name.
///
/// # Errors
/// [`ControlError::Invalid`] if one is invalid, a name occurs twice, or there are more than 1000.
pub fn by_name(templates: &[Template]) -> Result<BTreeMap<Name, &Template>, ControlError> {
    if templates.len() > MOST {
        let got = templates.len();
        return Err(invalid(
            "templates",
            format!("got {got}, expected at most {MOST}"),
        ));
    }
    let mut named = BTreeMap::new();
    for template in templates {
        template.check()?;
        if named.insert(template.name.clone(), template).is_some() {
            let message = format!("{} occurs twice, expected each name once", template.name);
            return Err(invalid("templates", message));
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Result<Template, String> {
        let read: Template = serde_json::from_str(text).map_err(|error| error.to_string())?;
        read.check().map_err(|error| error.to_string())?;
        Ok(read)
    }

    #[test]
    fn a_template_is_written_as_it_is_read() {
        let text = r#"{"name":"lossy-far","knobs":{"congestion_control":"bbr","initial_window":40,"slow_start_after_idle":false,"http_version":"h2","autocorking":true,"pacing":"on","receive_buffer_bytes":6291456,"send_buffer_bytes":4194304,"unsent_bytes":16384,"initial_receive_window":20,"tls_version":"1.3","tls_record_bytes":4096,"keep_alive_s":75}}"#;
        let read = template(text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        assert!(
            template(r#"{"name":"plain","knobs":{}}"#)
                .unwrap()
                .knobs
                .is_empty()
        );
    }

    #[test]
    fn invalid_templates_are_refused_with_the_place() {
        for (text, said) in [
            (r#"{"name":"default","knobs":{}}"#, "server's own"),
            (r#"{"name":"Far","knobs":{}}"#, "lower-case"),
            (r#"{"name":"","knobs":{}}"#, "lower-case"),
            (
                r#"{"name":"a-name-of-more-than-thirty-two-by","knobs":{}}"#,
                "1 to 32",
            ),
            (
                r#"{"name":"a","knobs":{"initial_windw":4}}"#,
                "unknown field",
            ),
            (r#"{"name":"a","knobs":{},"more":1}"#, "unknown field"),
            (
                r#"{"name":"a","knobs":{"initial_window":0}}"#,
                "template a.initial_window: got 0",
            ),
            (
                r#"{"name":"a","knobs":{"initial_window":-1}}"#,
                "invalid value",
            ),
            (
                r#"{"name":"a","knobs":{"congestion_control":"bbr; reboot"}}"#,
                "such as bbr",
            ),
            (
                r#"{"name":"a","knobs":{"congestion_control":"-bbr"}}"#,
                "such as bbr",
            ),
            (
                r#"{"name":"a","knobs":{"http_version":"h4"}}"#,
                "unknown variant",
            ),
            (
                r#"{"name":"a","knobs":{"tls_record_bytes":20000}}"#,
                "512 to 16384",
            ),
        ] {
            let error = template(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_name_occurs_once() {
        let one = template(r#"{"name":"a","knobs":{}}"#).unwrap();
        assert!(
            by_name(&[one.clone(), one])
                .unwrap_err()
                .to_string()
                .contains("twice")
        );
    }
}
