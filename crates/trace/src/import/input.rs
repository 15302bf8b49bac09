//! Input of importers: an opened file or bytes, packed or not, readable repeatedly. Lines and JSON
//! are read in bounded memory.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use super::opened::{FromStart, TraceFile};
use super::packed::{self, Packing};
use crate::error::TraceError;

/// Longer lines are refused; no supported format has them.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// A file, or bytes in place of one.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    /// The name for errors, and the place where companion files may be.
    pub path: &'a Path,
    content: Content<'a>,
}

#[derive(Clone, Copy)]
enum Content<'a> {
    Bytes(&'a [u8]),
    Opened(&'a TraceFile),
}

impl<'a> Input<'a> {
    pub fn opened(path: &'a Path, file: &'a TraceFile) -> Self {
        let content = Content::Opened(file);
        Self { path, content }
    }

    pub fn bytes(name: &'a Path, bytes: &'a [u8]) -> Self {
        Self {
            path: name,
            content: Content::Bytes(bytes),
        }
    }

    /// The whole file as stored, or `None` for bytes. Of a pipe, everything up to its end.
    pub fn whole(&self) -> Option<Result<File, TraceError>> {
        match self.content {
            Content::Bytes(_) => None,
            Content::Opened(file) => Some(file.whole().map_err(|error| self.error(&error))),
        }
    }

    fn error(&self, error: &io::Error) -> TraceError {
        TraceError::new(self.path, format!("cannot be read: {error}"))
    }

    /// Reads from the start, without unpacking.
    fn as_it_is(&self) -> Box<dyn Read + 'a> {
        match self.content {
            Content::Bytes(bytes) => Box::new(bytes),
            Content::Opened(file) => Box::new(FromStart::new(file)),
        }
    }

    fn packing(&self) -> Result<Option<Packing>, TraceError> {
        // a pipe may give its first bytes one at a time
        let mut head = Vec::new();
        let mut start = self.as_it_is().take(Packing::HEAD_BYTES as u64);
        start
            .read_to_end(&mut head)
            .map_err(|error| self.error(&error))?;
        Ok(Packing::of(&head))
    }

    /// The most rows that a file of this size may have, whatever the options say.
    pub fn most_rows(&self) -> Result<usize, TraceError> {
        if self.packing()?.is_none() {
            return Ok(usize::MAX);
        }
        let packed_bytes = match self.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Opened(file) => file.length().map_err(|error| self.error(&error))?,
        };
        Ok(packed::most_rows(packed_bytes))
    }

    /// Begins to read from the start; packed data is unpacked.
    pub fn open(&self) -> Result<Box<dyn Read + 'a>, TraceError> {
        Ok(match self.packing()? {
            Some(packing) => packing.unpack(self.as_it_is()),
            None => self.as_it_is(),
        })
    }

    /// The first unpacked bytes, at most `count`. An error in packed data ends them.
    pub fn head(&self, count: usize) -> Result<Vec<u8>, TraceError> {
        let mut head = Vec::new();
        let outcome = self.open()?.take(count as u64).read_to_end(&mut head);
        match outcome {
            Err(error) if head.is_empty() => Err(TraceError::new(
                self.path,
                format!("cannot be read: {error}"),
            )),
            _ => Ok(head),
        }
    }

    pub fn lines(&self) -> Result<Lines<'a>, TraceError> {
        Ok(Lines {
            source: BufReader::new(self.open()?),
            path: self.path,
            number: 0,
            line: Vec::new(),
            unended: false,
        })
    }
}

/// The lines of a text, one at a time.
pub(crate) struct Lines<'a> {
    source: BufReader<Box<dyn Read + 'a>>,
    path: &'a Path,
    number: u64,
    line: Vec<u8>,
    /// Whether the last line lacked its end.
    unended: bool,
}

impl Lines<'_> {
    /// Returns the next line without its end, and its number, from 1.
    ///
    /// # Errors
    /// If the line cannot be read, is too long, or is not UTF-8.
    pub fn next(&mut self) -> Result<Option<(u64, &str)>, TraceError> {
        self.line.clear();
        let number = self.number + 1;
        let wrong = |message: String| TraceError::at(self.path, number, "", message);
        let mut limited = self.source.by_ref().take(MAX_LINE_BYTES);
        let count = limited
            .read_until(b'\n', &mut self.line)
            .map_err(|error| wrong(format!("cannot be read: {error}")))?;
        if count == 0 {
            return Ok(None);
        }
        if count as u64 == MAX_LINE_BYTES {
            return Err(wrong(format!(
                "the line has more than {MAX_LINE_BYTES} bytes"
            )));
        }
        self.number = number;
        self.unended = self.line.last() != Some(&b'\n');
        let line = std::str::from_utf8(&self.line)
            .map_err(|_| wrong(format!("got {}, expected UTF-8", shown(&self.line))))?;
        Ok(Some((number, line.trim_end_matches(['\n', '\r']))))
    }

    /// A warning if the last line has no end: complete programs terminate their last line.
    pub fn warning(&self) -> Option<String> {
        self.unended.then(|| {
            let (file, line) = (self.path.display(), self.number);
            format!("{file}:{line}: the last line has no end; it may have been cut short")
        })
    }
}

/// The beginning of a text, for an error message.
pub(crate) fn shown(text: impl AsRef<[u8]>) -> String {
    let text = String::from_utf8_lossy(text.as_ref());
    let start: String = text.chars().take(60).collect();
    format!("{start:?}")
}

/// Bytes that may be read before [`Budget::renew`] is called again.
#[derive(Clone)]
pub(crate) struct Budget(Rc<Cell<usize>>);

impl Budget {
    /// The limit for one element of a JSON file: about a thousand times the usual size.
    const BYTES: usize = 16 << 20;

    pub fn new() -> Self {
        Self(Rc::new(Cell::new(Self::BYTES)))
    }

    pub fn renew(&self) {
        self.0.set(Self::BYTES);
    }
}

/// A source that fails when more than its budget is read. No element can take up more memory,
/// however long its texts are.
pub(crate) struct Metered<R> {
    pub source: R,
    pub budget: Budget,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.budget.0.get();
        let most = buffer.len().min(left);
        if most == 0 && !buffer.is_empty() {
            let message = format!("an element has more than {} bytes", Budget::BYTES);
            return Err(io::Error::other(message));
        }
        let count = self.source.read(&mut buffer[..most])?;
        self.budget.0.set(left - count);
        Ok(count)
    }
}

/// Converts an error of serde_json to a [`TraceError`]; the JSON text begins at line `first_line`,
/// from 1.
pub(crate) fn json_error(path: &Path, error: &serde_json::Error, first_line: u64) -> TraceError {
    let text = error.to_string();
    let message = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(message, _)| message);
    let (line, column) = (error.line() as u64, error.column());
    TraceError::at(
        path,
        line.saturating_sub(1) + first_line,
        "",
        format!("column {column}: {message}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_without_end_are_refused_and_numbered() {
        let long = [b"a\n".as_slice(), &vec![b'x'; 2 << 20]].concat();
        let input = Input::bytes(Path::new("f"), &long);
        let mut lines = input.lines().unwrap();
        assert_eq!(lines.next().unwrap(), Some((1, "a")));
        let error = lines.next().unwrap_err().to_string();
        assert_eq!(error, "f:2: the line has more than 1048576 bytes");
    }

    #[test]
    fn a_missing_line_end_is_told() {
        let input = Input::bytes(Path::new("f"), b"a\r\nb");
        let mut lines = input.lines().unwrap();
        assert_eq!(lines.next().unwrap(), Some((1, "a")));
        assert_eq!(lines.next().unwrap(), Some((2, "b")));
        assert_eq!(lines.next().unwrap(), None);
        assert!(lines.warning().unwrap().starts_with("f:2: the last line"));
    }

    #[test]
    fn a_budget_bounds_what_is_read_until_it_is_renewed() {
        let budget = Budget::new();
        let mut source = Metered {
            source: io::repeat(b' '),
            budget: budget.clone(),
        };
        let mut buffer = vec![0; Budget::BYTES];
        source.read_exact(&mut buffer).unwrap();
        assert!(source.read_exact(&mut buffer[..1]).is_err());
        budget.renew();
        source.read_exact(&mut buffer[..1]).unwrap();
    }
}
