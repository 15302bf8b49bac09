//! Which format a recording of a page has.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::har::{self, HarError, HarPage};
use crate::{chrome_trace, wprof};

/// A format in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// An archive, or a log of the DevTools protocol.
    Har,
    ChromeTrace,
    Epload,
    Wprofx,
}

impl Format {
    /// That of the object that has such a key, if a key decides it.
    fn of_key(key: &str) -> Option<Self> {
        match key {
            "log" | "method" | "params" | "message" => Some(Self::Har),
            "traceEvents" | "ph" | "pid" | "ts" => Some(Self::ChromeTrace),
            "activityId" | "criticalPath" => Some(Self::Wprofx),
            key if wprof::wprofx::kind(key).is_some() => Some(Self::Wprofx),
            _ => None,
        }
    }
}

/// Whether a file looks like what [`read`] reads: an object or a list of objects in JSON.
pub fn is_one(text: &[u8]) -> bool {
    har::is_one(text)
}

/// Reads the pages of a recording, whatever its format is.
///
/// # Errors
/// A [`HarError`] if it has none of the formats, or no page can be made of it.
pub fn read(text: &[u8]) -> Result<Vec<HarPage>, HarError> {
    match format(text) {
        Some(Format::ChromeTrace) => chrome_trace::read(text),
        Some(Format::Epload) => wprof::epload::read(text),
        Some(Format::Wprofx) => wprof::wprofx::read(text),
        Some(Format::Har) | None => har::read(text),
    }
}

/// The format of a file, by the first key that decides it.
fn format(text: &[u8]) -> Option<Format> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut found = None;
    let mut from = serde_json::Deserializer::from_slice(text);
    // ends with an error as soon as it is known
    let _ = Look(&mut found, true).deserialize(&mut from);
    found
}

/// Looks for a key that decides the format in an object, or in the objects of a list; whether it is the whole file.
struct Look<'a>(&'a mut Option<Format>, bool);

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(key) = items.next_key::<String>()? {
            *self.0 = match (key.as_str(), self.1) {
                // a graph of EPLOAD, or a group of activities in a list of WProfX
                ("objs", true) => Some(Format::Epload),
                ("objs", false) => Some(Format::Wprofx),
                (key, _) => Format::of_key(key),
            };
            if self.0.is_some() {
                return Err(A::Error::custom("it is known"));
            }
            items.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Look(self.0, false))?.is_some() {}
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_that_is_of_one_format_decides() {
        let of = |text: &str| format(text.as_bytes());
        let har = Some(Format::Har);
        assert_eq!(
            of(r#"{"version": 1, "log": {"traceEvents": 0}, "traceEvents": []}"#),
            har
        );
        assert_eq!(
            of(r#"[{}, {"method": "Network.enable", "params": {"pid": 1}}]"#),
            har
        );
        assert_eq!(of(r#"[{"message": {"method": "Page.enable"}}]"#), har);
        let trace = Some(Format::ChromeTrace);
        assert_eq!(
            of("\u{feff}{\"metadata\": {\"log\": 1}, \"traceEvents\": [oops"),
            trace
        );
        assert_eq!(
            of(r#"[{"args": {"method": "GET"}, "cat": "x", "ts": 1}"#),
            trace
        );
        assert_eq!(
            of(r#"{"name": "log", "deps": [], "objs": ["#),
            Some(Format::Epload)
        );
        let wprofx = Some(Format::Wprofx);
        assert_eq!(of(r#"[{"id": "Deps", "objs": []}]"#), wprofx);
        assert_eq!(of(r#"[["Networking_0", {"activityId": 1}]]"#), wprofx);
        assert_eq!(of(r#"{"Loading_3": {}}"#), wprofx);
        for other in [
            "",
            "{",
            "[]",
            "[{}, 3, null, 1.5, true, -1, \"log\"]",
            "{\"a\": 1}",
            "Loading_3",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        let error = read(b"{}").unwrap_err().to_string();
        assert!(error.starts_with("is not a HAR"), "{error}");
    }
}
