//! Reads the values of a TOML file, each with its place in the file, for errors.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use pathcast_base::{Probability, Span, UnitError};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A rate, in errors.
pub const RATE: &str = "a rate with its unit, such as \"12 Mbit/s\"";
/// A time, in errors.
pub const TIME: &str = "a time with its unit, such as \"30 ms\"";
/// A size, in errors.
pub const SIZE: &str = "a size with its unit, such as \"500 kB\"";

/// Returns the content of a file that a path file names, or why it cannot.
pub type Loader<'a> = dyn FnMut(&str) -> Result<Vec<u8>, String> + 'a;

/// What is wrong, and the byte at which.
#[derive(Debug)]
pub struct Trouble {
    /// The byte of the file, from 0.
    pub at: usize,
    /// What was got and what was wanted.
    pub message: String,
}

/// What was read, or what is wrong.
pub type Read<T> = Result<T, Trouble>;

/// Why a path file, or another file that describes a run, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError {
    /// The file, as the caller named it.
    pub file: String,
    /// Line and column of the error, from 1; none if the error has no single place.
    pub place: Option<(usize, usize)>,
    /// What was got and what was wanted.
    pub message: String,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some((line, column)) => write!(f, "{}:{line}:{column}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for PathError {}

/// Reads a whole file, of which `file` is the name in errors, by `read`, which gets the root table.
///
/// # Errors
/// The text is not TOML, or `read` fails; with line and column.
pub fn document<T>(
    text: &str,
    file: &str,
    read: impl FnOnce(&DeTable<'_>) -> Read<T>,
) -> Result<T, PathError> {
    let fail = |at: Option<usize>, message: String| PathError {
        file: file.to_string(),
        place: at.map(|at| place_of(text, at)),
        message,
    };
    let root = DeTable::parse(text).map_err(|error| {
        // a message of several lines reads better as one
        let message = error.message().split_whitespace().collect::<Vec<_>>();
        fail(error.span().map(|span| span.start), message.join(" "))
    })?;
    read(root.get_ref()).map_err(|trouble| fail(Some(trouble.at), trouble.message))
}

/// `text` as a string of TOML, which may also be a key.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            character if character.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(character));
            }
            character => quoted.push(character),
        }
    }
    quoted + "\""
}

/// What `text` names in a list.
///
/// # Errors
/// It names nothing: says what it may be.
pub fn by_name<T: Copy>(names: &[(T, &str)], text: &str) -> Result<T, String> {
    let found = names.iter().find(|(_, name)| *name == text);
    found.map(|(value, _)| *value).ok_or_else(|| {
        let names: Vec<_> = names.iter().map(|(_, name)| *name).collect();
        format!("got {text:?}, expected one of {}", names.join(", "))
    })
}

/// Line and column, from 1, of the byte at `offset`.
fn place_of(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

/// A table of the file.
#[derive(Clone, Copy)]
pub struct Table<'t, 'i> {
    entries: &'t DeTable<'i>,
    at: usize,
}

/// A key and its value.
#[derive(Clone, Copy)]
pub struct Field<'t, 'i> {
    key: &'t str,
    value: &'t Spanned<DeValue<'i>>,
}

impl<'t, 'i> Table<'t, 'i> {
    /// A table that begins at byte `at`, if all its keys are among `keys`.
    ///
    /// # Errors
    /// A key that is not among them.
    pub fn new(entries: &'t DeTable<'i>, at: usize, keys: &[&str]) -> Read<Self> {
        for (key, _) in entries {
            let name: &str = key.get_ref();
            if !keys.contains(&name) {
                let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
                return Err(Trouble {
                    at: key.span().start,
                    message: format!(
                        "unknown field `{name}`, expected one of {}",
                        keys.join(", ")
                    ),
                });
            }
        }
        Ok(Self { entries, at })
    }

    /// The field of this key, if there is one.
    pub fn get(&self, key: &str) -> Option<Field<'t, 'i>> {
        let (key, value) = self.entries.get_key_value(key)?;
        let key: &str = key.get_ref();
        Some(Field { key, value })
    }

    /// The field of this key.
    ///
    /// # Errors
    /// The table has no such field.
    pub fn need(&self, key: &str) -> Read<Field<'t, 'i>> {
        self.get(key).ok_or_else(|| Trouble {
            at: self.at,
            message: format!("missing field `{key}`"),
        })
    }

    /// A field that may be left out, read by `read`.
    ///
    /// # Errors
    /// That of `read`.
    pub fn or<T>(
        &self,
        key: &str,
        default: T,
        read: impl FnOnce(Field<'t, 'i>) -> Read<T>,
    ) -> Read<T> {
        self.get(key).map_or(Ok(default), read)
    }
}

impl<'t, 'i> Field<'t, 'i> {
    /// Where the value stands.
    pub fn at(&self) -> usize {
        self.value.span().start
    }

    /// This field is wrong.
    ///
    /// # Errors
    /// Always.
    pub fn wrong<T>(&self, message: impl std::fmt::Display) -> Read<T> {
        Err(Trouble {
            at: self.at(),
            message: format!("{}: {message}", self.key),
        })
    }

    fn wrong_type<T>(&self, expected: &str) -> Read<T> {
        self.wrong(format_args!(
            "got {} {}, expected {expected}",
            if matches!(
                self.value.get_ref(),
                DeValue::Integer(_) | DeValue::Array(_)
            ) {
                "an"
            } else {
                "a"
            },
            self.value.get_ref().type_str()
        ))
    }

    /// Text.
    ///
    /// # Errors
    /// Another type.
    pub fn text(&self, expected: &str) -> Read<&'t str> {
        match self.value.get_ref().as_str() {
            Some(text) => Ok(text),
            None => self.wrong_type(expected),
        }
    }

    /// Text with a unit.
    ///
    /// # Errors
    /// Another type, no unit, or a value out of range.
    pub fn quantity<T: FromStr<Err = UnitError>>(&self, expected: &str) -> Read<T> {
        self.parsed(expected)
    }

    /// What text stands for, such as a name of a list.
    ///
    /// # Errors
    /// Another type, or text that stands for nothing.
    pub fn parsed<T: FromStr<Err: fmt::Display>>(&self, expected: &str) -> Read<T> {
        match self.text(expected)?.parse() {
            Ok(value) => Ok(value),
            Err(error) => self.wrong(error),
        }
    }

    /// A span greater than zero.
    ///
    /// # Errors
    /// As [`Field::quantity`], or the span is zero.
    pub fn some_time(&self) -> Read<Span> {
        match self.quantity(TIME)? {
            Span::ZERO => self.wrong("expected more than no time"),
            span => Ok(span),
        }
    }

    /// A number, whole or not.
    ///
    /// # Errors
    /// Another type.
    pub fn number(&self, expected: &str) -> Read<f64> {
        let number = match self.value.get_ref() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
                .ok()
                .map(|number| number as f64),
            _ => return self.wrong_type(expected),
        };
        match number {
            Some(number) => Ok(number),
            None => self.wrong(format_args!("expected {expected}")),
        }
    }

    /// A whole number from `least` to `most`.
    ///
    /// # Errors
    /// Another type, or out of range.
    pub fn whole(&self, least: u64, most: u64) -> Read<u64> {
        let expected = format!("a whole number from {least} to {most}");
        let DeValue::Integer(integer) = self.value.get_ref() else {
            return self.wrong_type(&expected);
        };
        match u64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => self.wrong(format_args!(
                "got {}, expected {expected}",
                integer.as_str()
            )),
        }
    }

    /// A probability.
    ///
    /// # Errors
    /// Another type, or out of range.
    pub fn probability(&self) -> Read<Probability> {
        const EXPECTED: &str = "a probability from 0 to 1 such as 0.001";
        let number = self.number(EXPECTED)?;
        match Probability::new(number) {
            Some(probability) => Ok(probability),
            None => self.wrong(format_args!("got {number}, expected {EXPECTED}")),
        }
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// Another type.
    pub fn boolean(&self) -> Read<bool> {
        match self.value.get_ref().as_bool() {
            Some(boolean) => Ok(boolean),
            None => self.wrong_type("true or false"),
        }
    }

    /// The items of a list, each under the key of the list.
    ///
    /// # Errors
    /// Another type.
    pub fn list(&self, expected: &str) -> Read<impl Iterator<Item = Field<'t, 'i>> + use<'t, 'i>> {
        let key = self.key;
        match self.value.get_ref().as_array() {
            Some(items) => Ok(items.iter().map(move |value| Field { key, value })),
            None => self.wrong_type(expected),
        }
    }

    /// The items of a list of two.
    ///
    /// # Errors
    /// Another type or length.
    pub fn pair(&self, expected: &str) -> Read<[Field<'t, 'i>; 2]> {
        let items: Vec<_> = self.list(expected)?.collect();
        match items.try_into() {
            Ok(pair) => Ok(pair),
            Err(_) => self.wrong(format_args!("expected {expected}")),
        }
    }

    /// A table with some of these keys.
    ///
    /// # Errors
    /// Another type, or a key that is not among them.
    pub fn table(&self, expected: &str, keys: &[&str]) -> Read<Table<'t, 'i>> {
        match self.value.get_ref().as_table() {
            Some(entries) => Table::new(entries, self.at(), keys),
            None => self.wrong_type(expected),
        }
    }

    /// The entries of a table with any keys, in the order of the file.
    ///
    /// # Errors
    /// Another type.
    pub fn entries(&self, expected: &str) -> Read<Vec<Field<'t, 'i>>> {
        let Some(entries) = self.value.get_ref().as_table() else {
            return self.wrong_type(expected);
        };
        let mut fields: Vec<(usize, Field<'t, 'i>)> = entries
            .iter()
            .map(|(key, value)| {
                let at = key.span().start;
                let key: &str = key.get_ref();
                (at, Field { key, value })
            })
            .collect();
        fields.sort_by_key(|(at, _)| *at);
        Ok(fields.into_iter().map(|(_, field)| field).collect())
    }

    /// The key.
    pub fn key(&self) -> &'t str {
        self.key
    }

    /// The table that the value is, if it is one.
    pub fn as_table(&self) -> Option<&'t DeTable<'i>> {
        self.value.get_ref().as_table()
    }

    /// Whether the value is a table: the long form of a key.
    pub fn is_table(&self) -> bool {
        self.value.get_ref().is_table()
    }

    /// The long form of a key: a table whose `kind` is one of `kinds`, with the other keys of that kind.
    ///
    /// # Errors
    /// Another type, another kind, or a key that the kind lacks.
    pub fn kind(&self, kinds: &[(&'static str, &[&str])]) -> Read<(&'static str, Table<'t, 'i>)> {
        let expected = || {
            let names: Vec<String> = kinds
                .iter()
                .map(|(name, _)| format!("\"{name}\""))
                .collect();
            format!("one of {}", names.join(", "))
        };
        let Some(entries) = self.value.get_ref().as_table() else {
            return self.wrong_type(&format!("a table with `kind`, {}", expected()));
        };
        let Some((key, value)) = entries.get_key_value("kind") else {
            return self.wrong(format_args!(
                "missing field `kind`, expected {}",
                expected()
            ));
        };
        let field = Field {
            key: key.get_ref(),
            value,
        };
        let kind = field.text(&expected())?;
        let Some((kind, keys)) = kinds.iter().find(|(name, _)| *name == kind) else {
            return field.wrong(format_args!("got {kind:?}, expected {}", expected()));
        };
        let keys: Vec<&str> = ["kind"].iter().chain(keys.iter()).copied().collect();
        Ok((*kind, Table::new(entries, self.at(), &keys)?))
    }
}
