//! HTTP archives (HAR 1.2) as browsers, chrome-har and WebPageTest write them.

mod date;
mod graph;
mod raw;

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

/// Reads the pages of an archive, in its order; one page of all entries if it names none.
///
/// Headers, cookies, bodies, queries of URLs and whatever else may be secret are left out.
///
/// # Errors
/// A [`HarError`] if it is no HAR, is cut off before the first entry ends, or no entry of any page was transferred.
pub fn read(text: &[u8]) -> Result<Vec<HarPage>, HarError> {
    let archive = raw::read(text)?;
    graph::pages(&archive)
}

#[cfg(test)]
mod tests;
