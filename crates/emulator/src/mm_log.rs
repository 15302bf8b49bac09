//! A log in the format of mahimahi's mm-link, which its users' tools read: what reached one direction
//! of the links, what left it, what it dropped, and when it could have sent.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufWriter, Write};

use pathcast_path::link::{LinkSpec, OPPORTUNITY_BYTES};
use pathcast_path::{Direction, Span};

use crate::packet_log::{Entry, Event};

/// Bytes of the TUN device's own that mahimahi counts with each packet.
const HEADER_BYTES: u32 = 4;
/// What an opportunity is for: one packet of full size.
const FULL_PACKET_BITS: f64 = 1500.0 * 8.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    Opportunity,
    Arrival(u32),
    Drop(u32),
    Departure { size_bytes: u32, delay_ms: u64 },
}

/// When the links could send.
enum Opportunities {
    Unknown,
    Every { interval_ns: f64, count: u64 },
    Trace { moments_ms: Vec<u32>, count: usize },
}

impl Opportunities {
    fn of(directions: &[&Direction]) -> Self {
        let mut limited = directions.iter().filter(|one| one.rate.is_some());
        let (Some(one), None) = (limited.next(), limited.next()) else {
            return Self::Unknown;
        };
        let changes = one.schedule.iter().any(|change| change.rate.is_some());
        match &one.rate {
            Some(LinkSpec::Constant(rate)) if !changes => Self::Every {
                interval_ns: FULL_PACKET_BITS / rate.as_bps() * 1e9,
                count: 1,
            },
            Some(LinkSpec::Mahimahi(trace)) => Self::Trace {
                moments_ms: trace.opportunities_ms().to_vec(),
                count: 0,
            },
            _ => Self::Unknown,
        }
    }

    /// The next one, in nanoseconds since the beginning.
    fn peek(&self) -> Option<u64> {
        match self {
            Self::Unknown => None,
            Self::Every { interval_ns, count } => Some((interval_ns * *count as f64) as u64),
            Self::Trace { moments_ms, count } => {
                let (round, index) = (count / moments_ms.len(), count % moments_ms.len());
                let period_ms = u64::from(*moments_ms.last()?);
                let at_ms = round as u64 * period_ms + u64::from(moments_ms[index]);
                Some(at_ms * 1_000_000)
            }
        }
    }

    fn advance(&mut self) {
        match self {
            Self::Unknown => {}
            Self::Every { count, .. } => *count += 1,
            Self::Trace { count, .. } => *count += 1,
        }
    }
}

/// The log of one direction, written to a file as it comes, a little later.
pub(crate) struct MmLog<'a> {
    out: BufWriter<&'a mut File>,
    /// The delays of packets outside the links and their queues, which mm-link does not know.
    base: Span,
    opportunities: Opportunities,
    /// Lines that others may yet come before.
    waiting: BinaryHeap<Reverse<(u64, Line)>>,
    began_ns: u64,
    failed: Option<String>,
}

impl<'a> MmLog<'a> {
    /// Begins a log of the direction called `name` of links in a row.
    pub(crate) fn new(
        file: &'a mut File,
        name: &str,
        directions: &[&Direction],
        began_ns: u64,
        epoch_ms: u128,
    ) -> Self {
        let base = directions.iter().map(|one| one.delay.base());
        let mut log = Self {
            out: BufWriter::new(file),
            base: base.fold(Span::ZERO, |sum, delay| sum + delay),
            opportunities: Opportunities::of(directions),
            waiting: BinaryHeap::new(),
            began_ns,
            failed: None,
        };
        let known = match log.opportunities {
            Opportunities::Unknown => "not known",
            _ => "lines with #",
        };
        log.write(format_args!(
            "# pathcast shell ({name}), as mm-link's log; opportunities: {known}\n\
             # init timestamp: {epoch_ms}\n# base timestamp: 0\n"
        ));
        log
    }

    fn write(&mut self, line: std::fmt::Arguments<'_>) {
        if let Err(error) = self.out.write_fmt(line) {
            self.failed.get_or_insert(error.to_string());
        }
    }

    /// Notes one event of this direction.
    pub(crate) fn push(&mut self, entry: &Entry) {
        let at_ns = entry.at_ns.saturating_sub(self.began_ns);
        let size_bytes = entry.size_bytes + HEADER_BYTES;
        let left = |at_ns: u64| {
            let entered_ns = entry.entered_ns.saturating_sub(self.began_ns);
            let delay_ms = (at_ns / 1_000_000).saturating_sub(entered_ns / 1_000_000);
            let line = Line::Departure {
                size_bytes,
                delay_ms,
            };
            (at_ns, line)
        };
        let line = match entry.event {
            Event::Sent => (at_ns, Line::Arrival(size_bytes)),
            Event::DroppedByQueue => (at_ns, Line::Drop(size_bytes)),
            // what the wire loses has left the link
            Event::DroppedByLoss => left(at_ns),
            Event::Delivered { .. } => left(at_ns.saturating_sub(self.base.as_nanos())),
        };
        self.waiting.push(Reverse(line));
        self.flush(at_ns.saturating_sub(self.base.as_nanos()));
    }

    /// Writes all that happened before `until_ns`.
    fn flush(&mut self, until_ns: u64) {
        loop {
            let next = self.waiting.peek().map(|Reverse((at_ns, _))| *at_ns);
            let opportunity = self.opportunities.peek();
            let (at_ns, line) = match (opportunity, next) {
                (Some(at_ns), next)
                    if at_ns < until_ns && next.is_none_or(|next| at_ns <= next) =>
                {
                    self.opportunities.advance();
                    (at_ns, Line::Opportunity)
                }
                (_, Some(at_ns)) if at_ns < until_ns => {
                    let Some(Reverse(first)) = self.waiting.pop() else {
                        return;
                    };
                    first
                }
                _ => return,
            };
            let at_ms = at_ns / 1_000_000;
            match line {
                Line::Opportunity => self.write(format_args!("{at_ms} # {OPPORTUNITY_BYTES}\n")),
                Line::Arrival(size_bytes) => self.write(format_args!("{at_ms} + {size_bytes}\n")),
                Line::Drop(size_bytes) => self.write(format_args!("{at_ms} d 1 {size_bytes}\n")),
                Line::Departure {
                    size_bytes,
                    delay_ms,
                } => self.write(format_args!("{at_ms} - {size_bytes} {delay_ms}\n")),
            }
        }
    }

    /// Writes what is left, up to `ended_ns`.
    ///
    /// # Errors
    /// What kept any part of the log from being written.
    pub(crate) fn finish(mut self, ended_ns: u64) -> Result<(), String> {
        self.flush(ended_ns.saturating_sub(self.began_ns));
        if let Err(error) = self.out.flush() {
            self.failed.get_or_insert(error.to_string());
        }
        self.failed.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use pathcast_path::Path;

    use super::*;

    fn first(text: &str, count: usize) -> Vec<u64> {
        let path = Path::parse(text, "test.toml").unwrap();
        let mut opportunities = Opportunities::of(&[&path.reverse, &path.forward]);
        let next = || {
            let at_ns = opportunities.peek()?;
            opportunities.advance();
            Some(at_ns / 1_000_000)
        };
        std::iter::from_fn(next).take(count).collect()
    }

    #[test]
    fn opportunities_are_those_of_the_only_link_with_a_rate() {
        let alone = "delay = '10 ms'\n[reverse]\nrate = ";
        let trace = "{ kind = 'mahimahi', opportunities_ms = [0, 2, 5] }\n";
        assert_eq!(
            first(&format!("{alone}{trace}"), 8),
            [0, 2, 5, 5, 7, 10, 10, 12]
        );
        assert_eq!(first(&format!("{alone}'4 Mbit/s'\n"), 4), [3, 6, 9, 12]);
        let poisson = "{ kind = 'poisson', rate = '4 Mbit/s' }\n";
        assert!(first(&format!("{alone}{poisson}"), 4).is_empty());
        assert!(first("rate = '4 Mbit/s'\ndelay = '10 ms'\n", 4).is_empty());
        assert!(first("delay = '10 ms'\n", 4).is_empty());
    }
}
