//! Recorded writes.

use pathcast_path::reader::{Field, Loader, Read, SIZE, TIME, Table};
use pathcast_path::{Size, Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::kind::{Kind, Next, Pace, Write};

/// Recorded writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    writes: Vec<(Span, Size)>,
    /// Whether the recording begins anew when it has ended, its last gap after its last write.
    pub repeat: bool,
}

impl Replay {
    /// Most writes of a recording.
    pub const MAX_WRITES: usize = 10_000_000;

    /// Writes at these times since the flow's start, of these sizes.
    ///
    /// # Errors
    /// What is wrong and at which write, from 1: none at all, times that fall, or repeated ones that
    /// all lie at one moment.
    pub fn new(writes: Vec<(Span, Size)>, repeat: bool) -> Result<Self, (usize, String)> {
        if writes.is_empty() {
            return Err((1, "got no write, expected at least one".into()));
        }
        if writes.len() > Self::MAX_WRITES {
            let most = Self::MAX_WRITES;
            return Err((most + 1, format!("expected at most {most} writes")));
        }
        for (i, pair) in writes.windows(2).enumerate() {
            if pair[1].0 < pair[0].0 {
                let (got, before) = (pair[1].0, pair[0].0);
                return Err((i + 2, format!("got a time of {got} after {before}")));
            }
        }
        let replay = Self { writes, repeat };
        if repeat && replay.period() == Span::ZERO {
            let why = "all writes lie at one moment, which cannot be repeated";
            return Err((1, why.into()));
        }
        Ok(replay)
    }

    /// Reads lines of a time in seconds and a size in bytes, with blanks or a comma between them;
    /// `#` begins a comment.
    ///
    /// # Errors
    /// What is wrong and in which line, from 1.
    pub fn parse(content: &[u8], repeat: bool) -> Result<Self, (usize, String)> {
        let text = std::str::from_utf8(content).map_err(|error| {
            let line = content[..error.valid_up_to()]
                .split(|b| *b == b'\n')
                .count();
            (line, "is not text".to_string())
        })?;
        let (mut writes, mut lines) = (Vec::new(), Vec::new());
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let mut words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
            let wrong = || {
                let wanted = "expected a time in seconds up to 1e6 and a size in bytes, such as \
                              \"0.033 1200\"";
                (number, format!("got {line:?}, {wanted}"))
            };
            let (Some(at), Some(size), None) = (words.next(), words.next(), words.next()) else {
                return Err(wrong());
            };
            let at: f64 = at.parse().map_err(|_| wrong())?;
            let size: u64 = size.parse().map_err(|_| wrong())?;
            if !(0.0..=1e6).contains(&at) || size > 1_000_000_000_000 {
                return Err(wrong());
            }
            // skip empty writes
            if let Some(size) = Size::from_bytes(size) {
                writes.push((Span::from_secs(at), size));
                lines.push(number);
            }
        }
        Self::new(writes, repeat)
            .map_err(|(write, message)| (lines.get(write - 1).copied().unwrap_or(1), message))
    }

    /// Times since the beginning and sizes.
    pub fn writes(&self) -> &[(Span, Size)] {
        &self.writes
    }

    /// From the beginning of the recording to that of its repetition: its last gap follows it.
    pub fn period(&self) -> Span {
        let last = self.writes[self.writes.len() - 1].0;
        let before = self.writes[self.writes.len().saturating_sub(2)].0;
        let gap = if self.writes.len() > 1 {
            last - before
        } else {
            last
        };
        last + gap
    }
}

impl Kind for Replay {
    const NAME: &'static str = "replay";
    const KEYS: &'static [&'static str] = &["file", "writes", "repeat"];
    /// When the recording began, the last time, and the number of the next write.
    type State = Option<(Time, usize)>;

    fn read(field: Field<'_, '_>, table: Table<'_, '_>, load: &mut Loader<'_>) -> Read<Self> {
        let repeat = table.or("repeat", false, |field| field.boolean())?;
        match (table.get("file"), table.get("writes")) {
            (Some(file), None) => {
                let name = file.text("the name of a file with a time and a size a line")?;
                let content = match load(name) {
                    Ok(content) => content,
                    Err(why) => return file.wrong(format_args!("{name}: {why}")),
                };
                Self::parse(&content, repeat)
                    .or_else(|(line, message)| file.wrong(format_args!("{name}:{line}: {message}")))
            }
            (None, Some(list)) => {
                const WRITE: &str = "a write such as [\"33 ms\", \"1200 B\"]";
                let items = list.list("a list of writes such as [\"33 ms\", \"1200 B\"]")?;
                let writes = items.map(|item| {
                    let [at, size] = item.pair(WRITE)?;
                    Ok((long_time(at)?, size.quantity(SIZE)?))
                });
                let writes = writes.collect::<Read<Vec<_>>>()?;
                Self::new(writes, repeat)
                    .or_else(|(item, message)| list.wrong(format_args!("item {item}: {message}")))
            }
            _ => field.wrong("expected either `file` or `writes`"),
        }
    }

    fn keys_to_toml(&self) -> String {
        let writes: Vec<String> = (self.writes.iter())
            .map(|(at, size)| format!("[\"{at}\", \"{size}\"]"))
            .collect();
        let (writes, repeat) = (writes.join(", "), self.repeat);
        format!("writes = [{writes}], repeat = {repeat}")
    }

    fn pace(&self) -> Pace {
        Pace::Open
    }

    fn largest_write(&self) -> Option<Size> {
        self.writes.iter().map(|(_, size)| *size).max()
    }

    fn step(
        &self,
        state: &mut Self::State,
        at: Time,
        _: &mut Xoshiro256PlusPlus,
    ) -> (Option<Write>, Next) {
        let Some((begin, number)) = state else {
            *state = Some((at, 0));
            return (None, Next::At(at + self.writes[0].0));
        };
        let write = Some(Write::Message(self.writes[*number].1.as_bytes()));
        *number += 1;
        if *number == self.writes.len() {
            if !self.repeat {
                return (write, Next::Finished);
            }
            *number = 0;
            *begin += self.period();
        }
        (write, Next::At(*begin + self.writes[*number].0))
    }
}

/// A time that may be longer than the hour which other times are held to.
fn long_time(field: Field<'_, '_>) -> Read<Span> {
    match field.quantity(TIME) {
        Ok(span) => Ok(span),
        Err(trouble) => {
            let seconds = field
                .text(TIME)?
                .strip_suffix(" s")
                .and_then(|s| s.parse::<f64>().ok());
            match seconds {
                Some(seconds) if (0.0..=1e6).contains(&seconds) => Ok(Span::from_secs(seconds)),
                _ => Err(trouble),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_read_with_blanks_or_commas_and_comments() {
        let text = b"# frame times\n0.0 1000\n0.04, 0\n0.04,500 # small\n\n0.1\t900\n";
        let replay = Replay::parse(text, true).unwrap();
        let sizes: Vec<u64> = replay
            .writes()
            .iter()
            .map(|(_, size)| size.as_bytes())
            .collect();
        assert_eq!(sizes, [1000, 500, 900]);
        assert_eq!(replay.period(), Span::from_millis(160));
    }

    #[test]
    fn a_recording_that_cannot_be_is_refused_with_its_line() {
        for (text, line) in [
            (&b""[..], 1),
            (b"0.1 100\n\n0.05 100\n", 3),
            (b"0 100\nx 1\n", 2),
            (b"0 100 7\n", 1),
            (b"0 -1\n", 1),
            (b"-1 5\n", 1),
            (b"nan 5\n", 1),
            (b"0 5\n\xff\xfe", 2),
        ] {
            assert_eq!(Replay::parse(text, false).unwrap_err().0, line, "{text:?}");
        }
        assert!(Replay::parse(b"0 5\n", true).is_err());
    }
}
