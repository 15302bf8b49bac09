//! The path file: what lies between two hosts, in both directions.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::channel::Channel;
use crate::link::ConstantLink;
use crate::loss::{IidLoss, Loss};
use crate::queue::DropTail;
use crate::seed::generator;
use crate::units::{Bandwidth, Probability, QueueLimit, Span};

/// One direction of a path, as written in a path file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Direction {
    /// Rate of the bottleneck link in bits of whole packets, headers included; none: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bandwidth>,
    /// One-way delay, time on the link and in the queue not counted.
    pub delay: Span,
    /// Probability that a packet is lost on the wire, independent of all others.
    pub loss: Probability,
    /// What may wait before the link; droptail.
    pub queue: QueueLimit,
}

/// A path between two hosts: `forward` from the sender to the receiver of data, `reverse` back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Path {
    /// For people; empty if the file gives none.
    pub name: String,
    /// From sender to receiver: data.
    pub forward: Direction,
    /// From receiver to sender: acknowledgments.
    pub reverse: Direction,
}

/// The keys of a path file, before defaults are filled in. See `docs/path-file.md`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PathFile {
    #[serde(default)]
    name: String,
    rate: Option<Bandwidth>,
    delay: Span,
    #[serde(default)]
    loss: Probability,
    queue: Option<QueueLimit>,
    reverse: Option<ReverseFile>,
}

/// What differs on the way back.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReverseFile {
    rate: Option<Bandwidth>,
    delay: Option<Span>,
    loss: Option<Probability>,
    queue: Option<QueueLimit>,
}

/// A path file that cannot be used: which, where and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError {
    /// The file, as the caller named it.
    pub file: String,
    /// Line and column, from 1, where the trouble is; none if it is no single place.
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

impl Path {
    /// Reads a path file's text; `file` names it in errors.
    ///
    /// # Errors
    /// A [`PathError`] with line and column if the text is no TOML, a key is missing, unknown or of
    /// the wrong type, or a quantity lacks its unit or is out of range.
    pub fn parse(text: &str, file: &str) -> Result<Self, PathError> {
        let parsed: PathFile = toml::from_str(text).map_err(|error| {
            // a message of several lines (expected one of ...) reads better as one
            let message = error
                .message()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            let place = error.span().map(|span| place_of(text, span.start));
            let message = match error.span().and_then(|span| key_at(text, span.start)) {
                Some(key) if !message.starts_with("unknown field") => format!("{key}: {message}"),
                _ => message,
            };
            PathError {
                file: file.to_string(),
                place,
                message,
            }
        })?;
        let forward = Direction {
            rate: parsed.rate,
            delay: parsed.delay,
            loss: parsed.loss,
            queue: parsed.queue.unwrap_or(QueueLimit::Bdp(1.0)),
        };
        let back = parsed.reverse.unwrap_or_default();
        let reverse = Direction {
            rate: back.rate.or(parsed.rate),
            delay: back.delay.unwrap_or(parsed.delay),
            loss: back.loss.unwrap_or_default(),
            queue: back.queue.unwrap_or(QueueLimit::Unlimited),
        };
        let path = Self {
            name: parsed.name,
            forward,
            reverse,
        };
        path.check().map_err(|message| PathError {
            file: file.to_string(),
            place: None,
            message,
        })?;
        Ok(path)
    }

    /// What no single key shows.
    fn check(&self) -> Result<(), String> {
        for (name, direction) in [("forward", &self.forward), ("reverse", &self.reverse)] {
            if direction.loss.value() >= 1.0 {
                return Err(format!("{name} loss is 1: no packet would ever arrive"));
            }
            if let (Some(rate), QueueLimit::Bdp(times)) = (direction.rate, direction.queue)
                && self.queue_bytes(rate, times) < FULL_PACKET_BYTES
            {
                return Err(format!(
                    "{name} queue is \"{times} BDP\", {} bytes here, less than one packet of \
                     {FULL_PACKET_BYTES} bytes; give it in packets or bytes",
                    self.queue_bytes(rate, times)
                ));
            }
            if let QueueLimit::Bytes(bytes) = direction.queue
                && bytes < FULL_PACKET_BYTES
            {
                return Err(format!(
                    "{name} queue is \"{bytes} B\", less than one packet of {FULL_PACKET_BYTES} bytes"
                ));
            }
        }
        Ok(())
    }

    /// Both delays together: the round-trip time of an empty path.
    pub fn base_rtt(&self) -> Span {
        self.forward.delay + self.reverse.delay
    }

    fn queue_bytes(&self, rate: Bandwidth, times: f64) -> u64 {
        (times * rate.as_bps() * self.base_rtt().as_secs() / 8.0).round() as u64
    }

    /// The bytes and packets that may wait before the link of `direction`.
    pub fn queue_limits(&self, direction: &Direction) -> (u64, u64) {
        match (direction.queue, direction.rate) {
            (QueueLimit::Bytes(bytes), _) => (bytes, u64::MAX),
            (QueueLimit::Packets(packets), _) => (u64::MAX, packets),
            (QueueLimit::Bdp(times), Some(rate)) => (self.queue_bytes(rate, times), u64::MAX),
            // nothing ever waits where there is no link
            (QueueLimit::Bdp(_), None) | (QueueLimit::Unlimited, _) => (u64::MAX, u64::MAX),
        }
    }

    /// The two directions, ready to run: forward for packets that carry an `F`, reverse for an `R`.
    /// The same seed gives the same losses.
    pub fn channels<F, R>(&self, seed: u64) -> (Channel<F>, Channel<R>) {
        let (forward, reverse) = (&self.forward, &self.reverse);
        (
            self.channel("forward", forward, seed),
            self.channel("reverse", reverse, seed),
        )
    }

    fn channel<P>(&self, name: &str, direction: &Direction, seed: u64) -> Channel<P> {
        let (limit_bytes, limit_packets) = self.queue_limits(direction);
        let loss = if direction.loss.value() > 0.0 {
            Loss::Iid(IidLoss::new(
                direction.loss,
                generator(seed, &format!("{name}.loss")),
            ))
        } else {
            Loss::None
        };
        let link = direction.rate.map(ConstantLink::new);
        Channel::new(
            DropTail::new(limit_bytes, limit_packets),
            link,
            loss,
            direction.delay,
        )
    }

    /// The path as TOML, every default written out. `Path::parse` reads it back.
    pub fn to_toml(&self) -> String {
        let name = toml::Value::from(self.name.as_str());
        format!(
            "name = {name}\n{}\n[reverse]\n{}",
            self.forward.keys(),
            self.reverse.keys()
        )
    }
}

impl Direction {
    /// The direction's keys as lines of TOML.
    fn keys(&self) -> String {
        let rate = self
            .rate
            .map_or(String::new(), |rate| format!("rate = \"{rate}\"\n"));
        let Self {
            delay, loss, queue, ..
        } = self;
        format!(
            "{rate}delay = \"{delay}\"\nloss = {:?}\nqueue = \"{queue}\"\n",
            loss.value()
        )
    }
}

/// An Ethernet payload: the largest packet that the project's hosts send.
const FULL_PACKET_BYTES: u64 = 1500;

/// The key whose value stands at `offset`, if that line is `key = value`.
fn key_at(text: &str, offset: usize) -> Option<&str> {
    let end = offset.min(text.len());
    let line_start = text.get(..end)?.rfind('\n').map_or(0, |at| at + 1);
    let (key, _) = text.get(line_start..end)?.split_once('=')?;
    Some(key.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Path::parse(text, "path.toml").unwrap_err().to_string()
    }

    #[test]
    fn defaults_are_those_of_the_forward_direction() {
        let text = "rate = '12 Mbit/s'\ndelay = '30 ms'\nqueue = '60 packets'\nloss = 0.01\n";
        let path = Path::parse(text, "path.toml").unwrap();
        assert_eq!(path.base_rtt(), Span::from_millis(60));
        assert_eq!(path.reverse.rate, path.forward.rate);
        assert_eq!(path.reverse.loss, Probability::ZERO);
        assert_eq!(path.reverse.queue, QueueLimit::Unlimited);
        assert_eq!(path.queue_limits(&path.forward), (u64::MAX, 60));
    }

    #[test]
    fn one_bdp_is_the_rate_times_both_delays() {
        let text =
            "rate = '100 Mbit/s'\ndelay = '30 ms'\nqueue = '1 BDP'\n[reverse]\ndelay = '10 ms'\n";
        let path = Path::parse(text, "path.toml").unwrap();
        assert_eq!(path.queue_limits(&path.forward).0, 500_000);
    }

    #[test]
    fn errors_name_file_line_column_and_what_was_expected() {
        assert_eq!(
            error("delay = '30 ms'\nrate = '-3 Mbit/s'\n"),
            "path.toml:2:8: rate: got \"-3 Mbit/s\", expected a rate greater than zero such as \
             \"12 Mbit/s\""
        );
        assert!(error("delay = '30 ms'\nrate = 12\n").starts_with("path.toml:2:8: rate: "));
        assert!(error("delay = '30 ms'\nrate = 12\n").contains("a rate with its unit"));
        assert!(error("delay = '3 lightyears'\n").contains("units: ns, us, ms, s"));
        assert!(error("delay = '3 ms'\nspeed = 3\n").starts_with("path.toml:2:1: unknown field"));
        assert!(error("rate = '3 Mbit/s'\n").contains("missing field `delay`"));
        assert!(error("delay = '3 ms'\nloss = -0.1\n").contains("a probability from 0 to 1"));
        assert!(error("delay = '3 ms'\nloss = 'some'\n").starts_with("path.toml:2:8: loss: "));
        assert!(error("delay = '3 ms'\nloss = 1.0\n").contains("no packet would ever arrive"));
        assert!(error("delay = '3 ms'\n[reverse]\nloss = 2\n").starts_with("path.toml:3:8: loss"));
        assert!(error("delay = '3 ms\n").starts_with("path.toml:1:"));
        assert!(error("delay = '1 us'\nrate = '1 Mbit/s'\n").contains("less than one packet"));
        assert!(error("delay = '1 ms'\nqueue = '40 B'\n").contains("less than one packet"));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = "name = 'a \"path\"'\nrate = '1.5 Gbit/s'\ndelay = '30.5 ms'\nloss = 0.001\n\
                    [reverse]\nrate = '3 Mbit/s'\nqueue = '9 kB'\n";
        let path = Path::parse(text, "path.toml").unwrap();
        assert_eq!(Path::parse(&path.to_toml(), "again.toml").unwrap(), path);
    }
}
