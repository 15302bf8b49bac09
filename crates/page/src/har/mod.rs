//! HTTP archives (HAR 1.2) as browsers, chrome-har and WebPageTest write them, and logs of the DevTools protocol.

mod coalesced;
pub(crate) mod date;
pub(crate) mod devtools;
pub(crate) mod graph;
pub(crate) mod raw;

use std::fmt;

use crate::page::Page;

/// The most entries of an archive that are read.
pub const MAX_ENTRIES: usize = Page::MAX_RESOURCES;

/// A page of an archive.
#[derive(Clone, Debug, PartialEq)]
pub struct HarPage {
    /// Its graph.
    pub page: Page,
    /// When the load event came in the recording, in milliseconds after the beginning.
    pub on_load_ms: Option<f64>,
    /// What the archive lacks, and what was inferred in its place.
    pub warnings: Vec<String>,
}

/// An archive that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HarError {
    /// The entry at fault, from 1, if it is one's.
    pub entry: Option<usize>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for HarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entry {
            Some(entry) => write!(f, "entry {entry}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for HarError {}

/// Whether a file looks like what [`read`] reads: an object or a list of objects in JSON.
pub fn is_one(text: &[u8]) -> bool {
    let start = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    start.trim_ascii_start().starts_with(b"{") || is_list(text)
}

/// Whether a file looks like a list of objects in JSON; a page file in TOML may begin with two brackets.
fn is_list(text: &[u8]) -> bool {
    let inside = text.trim_ascii_start().strip_prefix(b"[");
    inside.is_some_and(|rest| rest.trim_ascii_start().starts_with(b"{"))
}

/// Reads the pages of an archive, in its order; one page of all entries if it names none. A list of events of the
/// DevTools protocol is one page.
///
/// Headers, cookies, bodies, queries of URLs and whatever else may be secret are left out.
///
/// # Errors
/// A [`HarError`] if it is no HAR, is cut off before the first entry ends, or no entry of any page was transferred.
pub fn read(text: &[u8]) -> Result<Vec<HarPage>, HarError> {
    let archive = match is_list(text) {
        true => devtools::read(text)?,
        false => raw::read(text)?,
    };
    graph::pages(&archive)
}

#[cfg(test)]
mod tests;
