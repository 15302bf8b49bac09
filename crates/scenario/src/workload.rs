//! What the application of a flow writes, and when.

use pathcast_path::{Bandwidth, Size, Span};

use crate::varying::Varying;

/// What waits unsent at most in the socket of an application that writes as much as is taken; it writes
/// again when half of that has left (TCP_NOTSENT_LOWAT). When it stops, what waits is still sent.
pub const UNSENT_BYTES: u32 = 128 << 10;

/// What an application sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// As much as the network takes, for ever.
    Bulk,
    /// One transfer after another over the same connection, each some time after the one before has
    /// arrived.
    Transfer {
        /// Of each.
        size: Varying<Size>,
        /// From the arrival of one to the beginning of the next.
        pause: Varying<Span>,
        /// How many; none: no end of them.
        count: Option<u64>,
    },
    /// Times of sending and times of silence, whatever the network does.
    OnOff {
        /// How long it sends.
        on: Varying<Span>,
        /// How long it is silent.
        off: Varying<Span>,
        /// At which rate and in which portions; none: as much as the network takes.
        rate: Option<(Bandwidth, Size)>,
    },
    /// A portion now and then, whatever the network does: a probe, a call, a game.
    ConstantRate {
        /// Payload bits a second, in the mean.
        rate: Bandwidth,
        /// Payload of each write.
        portion: Size,
        /// How writes lie in time.
        arrivals: Arrivals,
        /// How many writes; none: no end of them.
        count: Option<u64>,
    },
    /// Writes at given times, such as the frames of a recorded call or film.
    Replay(Replay),
    /// The far end answers requests; the next is asked some time after an answer is there.
    RequestResponse {
        /// Of a request, which goes the other way than the data.
        request: Varying<Size>,
        /// Of an answer.
        response: Varying<Size>,
        /// From an answer to the next request.
        think: Varying<Span>,
        /// How many; none: no end of them.
        count: Option<u64>,
    },
}

/// How the writes of a source of constant rate lie in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// One interval apart.
    Periodic,
    /// A Poisson process.
    Poisson,
}

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
            // an empty write is none
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

impl Workload {
    /// Its name in a scenario file.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Transfer { .. } => "transfer",
            Self::OnOff { .. } => "on-off",
            Self::ConstantRate { .. } => "constant-rate",
            Self::Replay(_) => "replay",
            Self::RequestResponse { .. } => "request-response",
        }
    }

    /// Whether it writes as much as the network takes, not messages.
    pub const fn is_greedy(&self) -> bool {
        matches!(self, Self::Bulk | Self::OnOff { rate: None, .. })
    }

    /// The most bytes that it writes at once, if that is the same whatever it draws.
    pub fn largest_write(&self) -> Option<u64> {
        let size = match self {
            Self::OnOff { rate, .. } => rate.as_ref().map(|(_, portion)| *portion),
            Self::ConstantRate { portion, .. } => Some(*portion),
            Self::Replay(replay) => replay.writes().iter().map(|(_, size)| *size).max(),
            Self::Bulk | Self::Transfer { .. } | Self::RequestResponse { .. } => None,
        };
        size.map(Size::as_bytes)
    }

    /// Whether what it writes does not depend on what arrives, so that it needs no transport that
    /// answers.
    pub const fn is_open_loop(&self) -> bool {
        match self {
            Self::OnOff { rate, .. } => rate.is_some(),
            Self::ConstantRate { .. } | Self::Replay(_) => true,
            Self::Bulk | Self::Transfer { .. } | Self::RequestResponse { .. } => false,
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
