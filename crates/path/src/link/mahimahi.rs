//! Packet-delivery traces of mahimahi (Netravali et al., USENIX ATC 2015): a whole number of
//! milliseconds on each line, the moment at which a packet can be sent.

use std::sync::Arc;

use pathcast_base::Bandwidth;
use thiserror::Error;

use crate::reader::{Field, Loader, Read, Table};
use crate::writer::join;

/// The largest trace file that is read: two hours at 100 Mbit/s.
pub const MAX_TRACE_BYTES: usize = 32 << 20;

/// A trace that cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TraceError {
    /// Something on one line.
    #[error("{line}: {message}")]
    Line {
        /// From 1.
        line: usize,
        /// What was got and what was expected.
        message: String,
    },
    /// Something of the whole.
    #[error("{0}")]
    Whole(String),
}

/// Moments in milliseconds, never falling. After the last one the trace begins anew, counted from
/// there: a trace that ends with 60000 has a period of one minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MahimahiTrace {
    opportunities_ms: Arc<[u32]>,
}

impl MahimahiTrace {
    /// A trace of these moments.
    ///
    /// # Errors
    /// There are no moments, they are not in order, or the last is zero, so the trace would have no
    /// duration. The line is the number of the moment, from 1.
    pub fn new(opportunities_ms: &[u32]) -> Result<Self, TraceError> {
        let Some(last) = opportunities_ms.last() else {
            return Err(TraceError::Whole(
                "got an empty trace, expected one whole number of milliseconds a line".into(),
            ));
        };
        if let Some(index) = opportunities_ms
            .windows(2)
            .position(|pair| pair[1] < pair[0])
        {
            let (before, after) = (opportunities_ms[index], opportunities_ms[index + 1]);
            return Err(TraceError::Line {
                line: index + 2,
                message: format!("got {after} after {before}, expected moments in order"),
            });
        }
        if *last == 0 {
            return Err(TraceError::Whole(
                "got a trace that ends at 0 ms, expected that it takes time".into(),
            ));
        }
        Ok(Self {
            opportunities_ms: opportunities_ms.into(),
        })
    }

    /// Reads a trace file.
    ///
    /// # Errors
    /// A line is not a whole number of milliseconds, or as [`MahimahiTrace::new`]; with the line.
    pub fn parse(content: &[u8]) -> Result<Self, TraceError> {
        if content.len() > MAX_TRACE_BYTES {
            return Err(TraceError::Whole(format!(
                "got a trace of {} bytes, expected at most {MAX_TRACE_BYTES}",
                content.len()
            )));
        }
        let content = content.strip_suffix(b"\n").unwrap_or(content);
        if content.is_empty() {
            return Self::new(&[]);
        }
        let opportunities_ms: Vec<u32> = content
            .split(|byte| *byte == b'\n')
            .enumerate()
            .map(|(index, line)| {
                let text = line.strip_suffix(b"\r").unwrap_or(line);
                let number = std::str::from_utf8(text).ok().filter(|text| {
                    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
                });
                number
                    .and_then(|text| text.parse().ok())
                    .ok_or_else(|| TraceError::Line {
                        line: index + 1,
                        message: format!(
                            "got {:?}, expected a whole number of milliseconds below 2^32",
                            String::from_utf8_lossy(&text[..text.len().min(40)])
                        ),
                    })
            })
            .collect::<Result<_, _>>()?;
        Self::new(&opportunities_ms)
    }

    /// The moments in milliseconds.
    pub fn opportunities_ms(&self) -> &[u32] {
        &self.opportunities_ms
    }

    /// The period in milliseconds: the last moment.
    pub fn period_ms(&self) -> u32 {
        *self.opportunities_ms.last().expect("not empty")
    }

    /// The mean over a period, in packets of 1500 bytes.
    pub fn mean_rate(&self) -> Bandwidth {
        let packets = self.opportunities_ms.len() as f64;
        let rate = packets * 1500.0 * 8.0 * 1000.0 / f64::from(self.period_ms());
        Bandwidth::from_bps(rate).expect("more than no packet in more than no time")
    }
}

impl MahimahiTrace {
    pub(super) const KEYS: &[&str] = &["file", "opportunities_ms"];

    pub(super) fn read(
        field: Field<'_, '_>,
        table: Table<'_, '_>,
        load: &mut Loader<'_>,
    ) -> Read<Self> {
        match (table.get("file"), table.get("opportunities_ms")) {
            (Some(file), None) => {
                let name = file.text("the name of a trace file")?;
                let content = match load(name) {
                    Ok(content) => content,
                    Err(why) => return file.wrong(format_args!("{name}: {why}")),
                };
                match Self::parse(&content) {
                    Ok(trace) => Ok(trace),
                    Err(TraceError::Line { line, message }) => {
                        file.wrong(format_args!("{name}:{line}: {message}"))
                    }
                    Err(TraceError::Whole(message)) => {
                        file.wrong(format_args!("{name}: {message}"))
                    }
                }
            }
            (None, Some(list)) => {
                let moments: Vec<u32> = list
                    .list("a list of milliseconds")?
                    .map(|item| Ok(item.whole(0, u64::from(u32::MAX))? as u32))
                    .collect::<Read<_>>()?;
                match Self::new(&moments) {
                    Ok(trace) => Ok(trace),
                    Err(TraceError::Line { line, message }) => {
                        list.wrong(format_args!("item {line}: {message}"))
                    }
                    Err(TraceError::Whole(message)) => list.wrong(message),
                }
            }
            _ => field.wrong("expected either `file` or `opportunities_ms`"),
        }
    }

    pub(super) fn to_toml(&self) -> String {
        let moments = join(self.opportunities_ms().iter());
        format!("{WRITTEN_OUT}{moments}] }}")
    }
}

/// How a trace begins that is written out.
const WRITTEN_OUT: &str = "{ kind = \"mahimahi\", opportunities_ms = [";

/// Moves the traces that a path or scenario has written out into files of their own.
///
/// Takes the text that `to_toml` of a path or a scenario returns. Returns the same with `file = "link1.trace"` and so
/// on in their place, and the names and contents of these files. Equal traces share a file.
pub fn traces_to_files(toml: &str) -> (String, Vec<(String, String)>) {
    let mut files: Vec<(String, String)> = Vec::new();
    let mut text = String::with_capacity(toml.len());
    for line in toml.lines() {
        // a name never starts a line, so a line that begins like this is a rate
        let moments = (line.strip_prefix("rate = "))
            .and_then(|value| value.strip_prefix(WRITTEN_OUT)?.strip_suffix("] }"));
        match moments {
            None => text += line,
            Some(moments) => {
                let content = moments.replace(", ", "\n") + "\n";
                let known = files.iter().position(|(_, known)| *known == content);
                let index = known.unwrap_or_else(|| {
                    let name = format!("link{}.trace", files.len() + 1);
                    files.push((name, content));
                    files.len() - 1
                });
                let name = &files[index].0;
                text += &format!("rate = {{ kind = \"mahimahi\", file = \"{name}\" }}");
            }
        }
        text.push('\n');
    }
    (text, files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(content: &[u8]) -> String {
        MahimahiTrace::parse(content).unwrap_err().to_string()
    }

    #[test]
    fn a_trace_is_read_line_by_line() {
        let trace = MahimahiTrace::parse(b"0\n0\n5\r\n10").unwrap();
        assert_eq!(trace.opportunities_ms(), [0, 0, 5, 10]);
        assert_eq!(trace.mean_rate().as_bps(), 4.0 * 12_000.0 / 0.010);
    }

    #[test]
    fn traces_move_into_files_and_back() {
        let toml = "rate = { kind = 'mahimahi', opportunities_ms = [1, 7] }\ndelay = '10 ms'\n\
                    reverse = { rate = { kind = 'mahimahi', opportunities_ms = [1, 7] } }\n";
        let path = crate::Path::parse(toml, "path.toml").unwrap();
        let (text, files) = traces_to_files(&path.to_toml());
        assert_eq!(files, [("link1.trace".to_string(), "1\n7\n".to_string())]);
        assert!(!text.contains("opportunities_ms"), "{text}");
        let mut load = |name: &str| {
            assert_eq!(name, files[0].0);
            Ok(files[0].1.clone().into_bytes())
        };
        let again = crate::Path::parse_with(&text, "path.toml", &mut load).unwrap();
        assert_eq!(again, path);
    }

    #[test]
    fn hostile_traces_are_refused_with_the_line() {
        assert!(error(b"").starts_with("got an empty trace"));
        assert!(error(b"\n").starts_with("got an empty trace"));
        assert!(error(b"0\n0\n").contains("ends at 0 ms"));
        assert!(error(b"1\n3\n2\n").starts_with("3: got 2 after 3, expected moments in order"));
        assert!(error(b"1\n\n2\n").starts_with("2: got \"\", expected a whole number"));
        assert!(error(b"1\n-2\n").starts_with("2: got \"-2\""));
        assert!(error(b"+1\n").starts_with("1: got \"+1\""));
        assert!(error(b"1\n4294967296\n").starts_with("2: got \"4294967296\""));
        assert!(error(&[0xff; 100]).starts_with("1: got "));
        assert!(error(&vec![b'1'; MAX_TRACE_BYTES + 1]).contains("expected at most"));
    }
}
