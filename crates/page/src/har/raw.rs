//! What of an archive is read: a value of another type than HAR says counts as missing.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{HarError, MAX_ENTRIES};

/// The log of an archive.
#[derive(Debug, Default)]
pub struct Archive {
    pub pages: Vec<RawPage>,
    pub entries: Vec<Entry>,
    /// Why the rest of the file could not be read, if it could not.
    pub cut: Option<String>,
    /// More entries than are read.
    pub more: usize,
    /// Whether the reader finds out itself what the load event waits for.
    pub knows_load: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RawPage {
    pub id: Text,
    pub title: Text,
    pub started_date_time: Text,
    pub page_timings: Or<PageTimings>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PageTimings {
    pub on_load: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Entry {
    pub pageref: Text,
    pub started_date_time: Text,
    pub time: Number,
    pub request: Or<Request>,
    pub response: Or<Response>,
    pub timings: Or<Timings>,
    #[serde(rename = "_initiator")]
    pub initiator: Or<Initiator>,
    #[serde(rename = "_initiator_type")]
    pub initiator_type: Text,
    #[serde(rename = "_priority")]
    pub priority: Text,
    #[serde(rename = "_resourceType")]
    pub resource_type: Text,
    #[serde(rename = "_fromCache")]
    pub from_cache: Text,
    pub connection: Text,
    /// Whether the reader adds its causes itself.
    #[serde(skip)]
    pub has_causes: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Request {
    pub method: Text,
    pub url: Text,
    pub headers: Or<Vec<Header>>,
    pub headers_size: Number,
    pub body_size: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Header {
    pub name: Text,
    pub value: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Response {
    pub status: Number,
    pub http_version: Text,
    pub headers: Or<Vec<Header>>,
    pub headers_size: Number,
    pub body_size: Number,
    #[serde(rename = "_transferSize")]
    pub transfer_size: Number,
    pub content: Or<Content>,
    #[serde(rename = "redirectURL")]
    pub redirect_url: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Content {
    pub size: Number,
    pub mime_type: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Timings {
    pub blocked: Number,
    pub dns: Number,
    pub connect: Number,
    pub ssl: Number,
    pub send: Number,
    pub wait: Number,
    pub receive: Number,
}

/// What made the browser ask: a URL, or an object with it or with a call stack.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Initiator {
    pub url: Text,
    #[serde(rename = "type")]
    pub kind: Text,
    pub stack: Or<Stack>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Stack {
    pub call_frames: Or<Vec<CallFrame>>,
    pub parent: Or<Option<Box<Self>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CallFrame {
    pub url: Text,
}

impl Initiator {
    /// The URL of what asked.
    pub fn source(&self) -> Option<&str> {
        if let Some(url) = self.url.get() {
            return Some(url);
        }
        let mut stack = Some(&self.stack.0);
        while let Some(frames) = stack {
            let mut urls = frames.call_frames.0.iter().map(|frame| frame.url.get());
            if let Some(url) = urls.find_map(|url| url) {
                return Some(url);
            }
            stack = frames.parent.0.as_deref();
        }
        None
    }
}

/// A number, or none where something else stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Number(Option<f64>);

impl Number {
    /// This, or none.
    pub const fn of(number: Option<f64>) -> Self {
        Self(number)
    }

    /// What is finite.
    pub fn get(self) -> Option<f64> {
        self.0.filter(|number| number.is_finite())
    }

    /// What is finite and more than nothing: archives write -1 for what does not apply.
    pub fn positive(self) -> f64 {
        self.get().unwrap_or(0.0).max(0.0)
    }
}

/// Text, or none where something else stands.
#[derive(Clone, Debug, Default)]
pub struct Text(Option<String>);

impl Text {
    /// This, or none.
    pub fn of(text: Option<&str>) -> Self {
        Self(text.map(String::from))
    }

    /// What is not empty.
    pub fn get(&self) -> Option<&str> {
        self.0.as_deref().filter(|text| !text.is_empty())
    }
}

/// A `T`, or its default where something of another type stands.
#[derive(Debug, Default)]
pub struct Or<T>(pub T);

/// Takes any value; the methods say which.
macro_rules! any_value {
    ($visitor:ident, $value:ty, { $($method:item)* }) => {
        impl<'de> Visitor<'de> for $visitor {
            type Value = $value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            $($method)*

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Default::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Default::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                while items.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Default::default())
            }
        }
    };
}

struct AnyNumber;

any_value!(AnyNumber, Number, {
    fn visit_bool<E>(self, _: bool) -> Result<Number, E> {
        Ok(Number(None))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Number, E> {
        Ok(Number(Some(number)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Number, E> {
        Ok(Number(Some(number as f64)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Number, E> {
        Ok(Number(Some(number as f64)))
    }

    // some write numbers in quotes
    fn visit_str<E>(self, text: &str) -> Result<Number, E> {
        Ok(Number(text.trim().parse().ok()))
    }
});

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyNumber)
    }
}

struct AnyText;

any_value!(AnyText, Text, {
    fn visit_bool<E>(self, value: bool) -> Result<Text, E> {
        Ok(Text(value.then(|| "true".into())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Text, E> {
        Ok(Text(Some(number.to_string())))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Text, E> {
        Ok(Text(Some(number.to_string())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Text, E> {
        Ok(Text(Some(number.to_string())))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text, E> {
        Ok(Text(Some(text.into())))
    }
});

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyText)
    }
}

/// An object of JSON, or the default where something else stands. Other than [`Or`], it copies nothing that `T` has no
/// field for; each field of `T` must accept any value.
#[derive(Debug, Default)]
pub struct Object<T>(pub T);

struct AnyObject<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for AnyObject<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Object<T>, E> {
        Ok(Object::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Object<T>, E> {
        Ok(Object::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Object<T>, E> {
        Ok(Object::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Object<T>, E> {
        Ok(Object::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Object<T>, E> {
        Ok(Object::default())
    }

    fn visit_unit<E>(self) -> Result<Object<T>, E> {
        Ok(Object::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Object<T>, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Object::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, items: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(items)).map(Object)
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyObject(PhantomData))
    }
}

/// Either what is expected, or anything.
#[derive(Deserialize)]
#[serde(untagged)]
enum Either<T> {
    Expected(T),
    // an initiator that is a URL alone
    Url(String),
    Any(IgnoredAny),
}

/// What is made of a URL alone.
pub trait OfUrl: Default {
    fn of_url(_url: String) -> Self {
        Self::default()
    }
}

/// For what is never a URL alone.
macro_rules! of_no_url {
    ($($name:ty),* $(,)?) => {
        $(impl $crate::har::raw::OfUrl for $name {})*
    };
}
pub(crate) use of_no_url;

of_no_url!(
    PageTimings,
    Request,
    Response,
    Timings,
    Content,
    Stack,
    Option<Box<Stack>>,
    Vec<Header>,
    Vec<CallFrame>,
);
impl OfUrl for Initiator {
    fn of_url(url: String) -> Self {
        Self {
            url: Text(Some(url)),
            ..Self::default()
        }
    }
}

impl<'de, T: Deserialize<'de> + OfUrl> Deserialize<'de> for Or<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match Either::deserialize(from)? {
            Either::Expected(value) => Self(value),
            Either::Url(url) => Self(T::of_url(url)),
            Either::Any(_) => Self(T::default()),
        })
    }
}

/// Reads as much of an archive as there is.
pub fn read(text: &[u8]) -> Result<Archive, HarError> {
    let wrong = |message: String| HarError {
        entry: None,
        message,
    };
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut archive = Archive::default();
    let mut has_log = false;
    let mut from = serde_json::Deserializer::from_slice(text);
    let outer = Outer {
        archive: &mut archive,
        has_log: &mut has_log,
    };
    let outcome = outer.deserialize(&mut from).and_then(|()| from.end());
    if let Err(error) = outcome {
        if !has_log {
            return Err(wrong(format!("is not a HAR: {error}")));
        }
        if archive.entries.is_empty() {
            return Err(HarError {
                entry: Some(1),
                message: error.to_string(),
            });
        }
        archive.cut = Some(error.to_string());
    }
    if !has_log {
        return Err(wrong("is not a HAR: it has no `log`".into()));
    }
    if archive.entries.is_empty() {
        return Err(wrong("the archive has no entries".into()));
    }
    Ok(archive)
}

/// The whole file: an object with `log`.
struct Outer<'a> {
    archive: &'a mut Archive,
    has_log: &'a mut bool,
}

/// The log, filled as it is read, so that what stands before an error is kept.
struct Log<'a>(&'a mut Archive);

struct Entries<'a>(&'a mut Archive);

/// What takes one type of value alone, and reads it into something that exists.
macro_rules! into_place {
    ($seed:ident, $call:ident, $expected:literal, $visit:item) => {
        impl<'de> DeserializeSeed<'de> for $seed<'_> {
            type Value = ();

            fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
                from.$call(self)
            }
        }

        impl<'de> Visitor<'de> for $seed<'_> {
            type Value = ();

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($expected)
            }

            $visit
        }
    };
}

into_place!(
    Outer,
    deserialize_map,
    "an object with `log`",
    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(key) = items.next_key::<String>()? {
            if key == "log" && !*self.has_log {
                *self.has_log = true;
                items.next_value_seed(Log(self.archive))?;
            } else {
                items.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
);

into_place!(
    Log,
    deserialize_map,
    "the object of `log`",
    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(key) = items.next_key::<String>()? {
            match key.as_str() {
                "pages" => self.0.pages = items.next_value()?,
                "entries" => items.next_value_seed(Entries(self.0))?,
                _ => drop(items.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
);

into_place!(
    Entries,
    deserialize_seq,
    "the list of `entries`",
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while self.0.entries.len() < MAX_ENTRIES {
            match items.next_element()? {
                Some(entry) => self.0.entries.push(entry),
                None => return Ok(()),
            }
        }
        while items.next_element::<IgnoredAny>()?.is_some() {
            self.0.more += 1;
        }
        Ok(())
    }
);
