//! Why something received is refused, and how it is read.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// The newest format that this version reads, and the one that it writes.
pub const FORMAT: u32 = 1;

/// Why a configuration, report, model or secret is refused. It is refused whole.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The text is no JSON, lacks a key, or has an unknown one.
    #[error("{what}: {message}")]
    Json {
        /// What was read.
        what: &'static str,
        /// What is wrong, with line and column.
        message: String,
    },
    /// The format is not known here.
    #[error(
        "{what}: format is {got}, expected 1 to {FORMAT}; update this program, or send format {FORMAT}"
    )]
    Format {
        /// What was read.
        what: &'static str,
        /// The format that it has.
        got: u64,
    },
    /// A value is out of range, or does not fit the others.
    #[error("{at}: {message}")]
    Invalid {
        /// Where it is.
        at: String,
        /// What was got, and what is expected.
        message: String,
    },
    /// The signature is missing, or was made with another secret or of other bytes.
    #[error(
        "the signature does not match the body; expected Pathcast-Signature: hmac-sha256=HEX with the secret of this agent"
    )]
    Signature,
}

/// An [`ControlError::Invalid`].
pub(crate) fn invalid(at: impl Into<String>, message: impl Into<String>) -> ControlError {
    ControlError::Invalid {
        at: at.into(),
        message: message.into(),
    }
}

/// Reads JSON of a known format: the format first, because a newer one may have other keys.
pub(crate) fn read<T: DeserializeOwned>(
    what: &'static str,
    bytes: &[u8],
) -> Result<T, ControlError> {
    #[derive(Deserialize)]
    struct Head {
        format: u64,
    }
    let wrong = |error: serde_json::Error| ControlError::Json {
        what,
        message: error.to_string(),
    };
    let head: Head = serde_json::from_slice(bytes).map_err(wrong)?;
    if head.format == 0 || head.format > u64::from(FORMAT) {
        let got = head.format;
        return Err(ControlError::Format { what, got });
    }
    serde_json::from_slice(bytes).map_err(wrong)
}

/// A number within a range, ends included; NaN is in none.
pub(crate) fn within(
    at: impl FnOnce() -> String,
    value: f64,
    least: f64,
    most: f64,
) -> Result<(), ControlError> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(invalid(
            at(),
            format!("got {value}, expected {least} to {most}"),
        )),
    }
}

/// The beginning of a text that somebody sent, for a message.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}
