//! A path between two hosts, and the channels that run it.

use std::collections::VecDeque;

use pathcast_base::seed::generator;
use pathcast_base::{Bandwidth, Span, Time};
use toml::de::DeTable;

use crate::aggregation::{AggregationSpec, Aggregator};
use crate::channel::Channel;
use crate::delay::{Delay, DelaySpec};
use crate::fast::FastChannel;
use crate::file::{self, Defaults};
use crate::link::{
    ConstantLink, LinkSpec, OpportunityLink, PoissonClock, SteppedLink, Steps, WanderingClock,
};
use crate::loss::LossSpec;
use crate::packet::FULL_PACKET_BYTES;
use crate::policer::{Policer, PolicerSpec};
use crate::queue::QueueLimit;
use crate::queue::{Discipline, Limits, Queue, QueueSpec, VirtualDropTail};
use crate::reader::{Loader, PathError, Read, Trouble, document};
use crate::staged::{Link, StagedChannel, WireChange};

/// One direction of a path, as written in a path file.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// The bottleneck link, in bits of whole packets, headers included; none: no limit.
    pub rate: Option<LinkSpec>,
    /// One-way delay, time on the link and in the queue not counted.
    pub delay: DelaySpec,
    /// Which packets are lost on the wire.
    pub loss: LossSpec,
    /// What may wait before the link.
    pub queue: QueueSpec,
    /// What passes at all, before the queue; none: everything.
    pub policer: Option<PolicerSpec>,
    /// How packets are gathered at the far end; none: each is handed over when it arrives.
    pub aggregation: Option<AggregationSpec>,
    /// What changes, in the order of time.
    pub schedule: Vec<Change>,
}

/// What becomes of a direction at some moment of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Time since the beginning of the run.
    pub at: Span,
    /// The link's rate from then on; only of a link of constant rate.
    pub rate: Option<Bandwidth>,
    /// The delay of packets that leave the link from then on.
    pub delay: Option<DelaySpec>,
    /// The loss of packets that leave the link from then on.
    pub loss: Option<LossSpec>,
}

impl Direction {
    /// The link's rate in the long run, its schedule left aside; `None` without a link.
    pub fn mean_rate(&self) -> Option<Bandwidth> {
        self.rate.as_ref().map(LinkSpec::mean_rate)
    }

    /// The link's highest rate at any time; `None` without a link.
    pub fn peak_rate(&self) -> Option<Bandwidth> {
        let rate = self.rate.as_ref()?.peak_rate();
        let rates = self.schedule.iter().filter_map(|change| change.rate);
        Some(rates.fold(rate, |a, b| if b > a { b } else { a }))
    }

    /// The share of packets lost on the wire in the long run, its schedule left aside.
    pub fn mean_loss(&self) -> f64 {
        self.loss.mean()
    }

    /// The constant rate and its changes as steps; none if it never changes.
    fn rate_steps(&self) -> Option<Result<Steps, String>> {
        let changes = self.schedule.iter();
        let mut changes = changes
            .filter_map(|change| Some((Time::ZERO + change.at, Some(change.rate?))))
            .peekable();
        changes.peek()?;
        Some(match &self.rate {
            Some(LinkSpec::Constant(rate)) => Steps::new(
                std::iter::once((Time::ZERO, Some(*rate)))
                    .chain(changes)
                    .collect(),
                None,
            ),
            _ => Err("got a change of rate, expected a constant `rate` to begin with".into()),
        })
    }
}

/// A path between two hosts: `forward` from the sender to the receiver of data, `reverse` back.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// For people; empty if the file gives none.
    pub name: String,
    /// From sender to receiver: data.
    pub forward: Direction,
    /// From receiver to sender: acknowledgments.
    pub reverse: Direction,
}

impl Path {
    /// Reads a path file's text; `file` names it in errors. It must not name other files: see
    /// [`Path::parse_with`].
    ///
    /// # Errors
    /// A [`PathError`] with line and column: the text is not TOML, a key is missing, unknown or of the
    /// wrong type, a quantity lacks its unit or is out of range, or no packet could ever pass.
    pub fn parse(text: &str, file: &str) -> Result<Self, PathError> {
        Self::parse_with(text, file, &mut |_| {
            Err("expected no other files here, for the path was not read from a file".into())
        })
    }

    /// Reads a path file's text, and the trace files that it names by `load`, which is given the
    /// name as it stands in the path file.
    ///
    /// # Errors
    /// As [`Path::parse`], or a trace cannot be loaded or is not a trace.
    pub fn parse_with(text: &str, file: &str, load: &mut Loader<'_>) -> Result<Self, PathError> {
        document(text, file, |root| Self::read(root, 0, load))
    }

    /// Reads a path out of a table that begins at byte `at` of a larger file.
    ///
    /// # Errors
    /// As [`Path::parse_with`], with the place.
    pub fn read(root: &DeTable<'_>, at: usize, load: &mut Loader<'_>) -> Read<Self> {
        let path = file::path(root, at, load)?;
        path.check().map_err(|(direction, key, message)| {
            // the place of the key, if the file has it
            let table = match direction {
                "reverse" => root
                    .get(direction)
                    .and_then(|value| value.get_ref().as_table()),
                _ => Some(root),
            };
            let place = table
                .and_then(|table| table.get(key))
                .map_or(at, |value| value.span().start);
            let message = format!("{direction} {key}: {message}");
            Trouble { at: place, message }
        })?;
        Ok(path)
    }

    /// What no single key shows: the direction, the key and what is wrong.
    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str, String)> {
        for (name, direction) in [("forward", &self.forward), ("reverse", &self.reverse)] {
            if let Some(Err(message)) = direction.rate_steps() {
                return Err((name, "schedule", message));
            }
            let (limit_bytes, _) = self.queue_limits(direction);
            if limit_bytes < FULL_PACKET_BYTES {
                let limit = direction.queue.limit;
                let message = match limit {
                    QueueLimit::Bdp(_) => format!(
                        "got \"{limit}\", {limit_bytes} bytes here, less than one packet of \
                         {FULL_PACKET_BYTES} bytes; give it in packets or bytes"
                    ),
                    _ => format!(
                        "got \"{limit}\", less than one packet of {FULL_PACKET_BYTES} bytes"
                    ),
                };
                return Err((name, "queue", message));
            }
        }
        Ok(())
    }

    /// Both delays together: the round-trip time of an empty path, at the beginning and without
    /// jitter.
    pub fn base_rtt(&self) -> Span {
        self.forward.delay.base() + self.reverse.delay.base()
    }

    /// The bytes and packets that may wait before the link of `direction`.
    pub fn queue_limits(&self, direction: &Direction) -> (u64, u64) {
        match (direction.queue.limit, direction.mean_rate()) {
            (QueueLimit::Bytes(bytes), _) => (bytes, u64::MAX),
            (QueueLimit::Packets(packets), _) => (u64::MAX, packets),
            (QueueLimit::Bdp(times), Some(rate)) => {
                let bytes = times * rate.as_bps() * self.base_rtt().as_secs() / 8.0;
                (bytes.round() as u64, u64::MAX)
            }
            // nothing ever waits where there is no link
            (QueueLimit::Bdp(_), None) | (QueueLimit::Unlimited, _) => (u64::MAX, u64::MAX),
        }
    }

    /// The two directions, ready to run: forward for packets that carry an `F`, reverse for an `R`.
    /// The same seed gives the same run.
    pub fn channels<F, R>(&self, seed: u64) -> (Channel<F>, Channel<R>) {
        (
            self.channel("forward", &self.forward, seed),
            self.channel("reverse", &self.reverse, seed),
        )
    }

    fn channel<P>(&self, name: &str, direction: &Direction, seed: u64) -> Channel<P> {
        // an element that does not draw leaves its generator alone
        let rng = |element: &str| generator(seed, &format!("{name}.{element}"));
        let (bytes, packets) = self.queue_limits(direction);
        let loss = direction.loss.process(rng("loss"));
        if let (
            None | Some(LinkSpec::Constant(_)),
            Discipline::DropTail,
            DelaySpec::Fixed(delay),
            None,
            None,
            [],
        ) = (
            &direction.rate,
            &direction.queue.discipline,
            &direction.delay,
            &direction.policer,
            &direction.aggregation,
            &direction.schedule[..],
        ) {
            let link = direction.mean_rate().map(ConstantLink::new);
            let queue = VirtualDropTail::new(bytes, packets);
            return Channel::fast(FastChannel::new(queue, link, loss, *delay));
        }
        let link = match (direction.rate_steps(), &direction.rate) {
            (Some(steps), _) => {
                Link::Stepped(SteppedLink::new(steps.expect("checked when it was read")))
            }
            (None, None) => Link::None,
            (None, Some(LinkSpec::Constant(rate))) => Link::Constant(ConstantLink::new(*rate)),
            (None, Some(LinkSpec::Steps(steps))) => Link::Stepped(SteppedLink::new(steps.clone())),
            (None, Some(LinkSpec::Poisson(rate))) => Link::Opportunities(OpportunityLink::poisson(
                PoissonClock::new(*rate, rng("link")),
            )),
            (None, Some(LinkSpec::Wandering(wandering))) => Link::Opportunities(
                OpportunityLink::wandering(WanderingClock::new(*wandering, rng("link"))),
            ),
            (None, Some(LinkSpec::Mahimahi(trace))) => {
                Link::Opportunities(OpportunityLink::trace(trace.clone()))
            }
        };
        let changes: VecDeque<WireChange> = direction
            .schedule
            .iter()
            .map(|change| WireChange {
                at: Time::ZERO + change.at,
                loss: change
                    .loss
                    .as_ref()
                    .map(|loss| loss.process(rng(&format!("loss.{}", change.at.as_nanos())))),
                delay: change.delay,
            })
            .collect();
        let delays = direction.schedule.iter().filter_map(|change| change.delay);
        let reorders = direction.delay.reorders() || delays.into_iter().any(|d| d.reorders());
        let limits = Limits { bytes, packets };
        let queue = Queue::new(
            &direction.queue.discipline,
            limits,
            direction.mean_rate(),
            rng("queue"),
        );
        Channel::staged(StagedChannel::new(
            direction.policer.map(Policer::new),
            queue,
            link,
            loss,
            Delay::new(direction.delay, rng("delay")),
            changes,
            reorders,
            direction.aggregation.map(Aggregator::new),
        ))
    }

    /// The path as TOML, every default and every trace written out. [`Path::parse`] reads it back.
    pub fn to_toml(&self) -> String {
        self.to_toml_with(Defaults::All)
    }

    /// As [`Path::to_toml`], with these defaults written out.
    pub fn to_toml_with(&self, defaults: Defaults) -> String {
        file::write(self, "", defaults)
    }

    /// As [`Path::to_toml_with`], as the table `name` of a larger file.
    pub fn to_toml_table(&self, name: &str, defaults: Defaults) -> String {
        format!(
            "[{name}]\n{}",
            file::write(self, &format!("{name}."), defaults)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Path::parse(text, "path.toml").unwrap_err().to_string()
    }

    #[test]
    fn what_follows_the_forward_direction_still_does_after_a_change_of_the_text() {
        let changed =
            |text: &str| {
                let path = Path::parse(text, "path.toml").unwrap();
                let written = path.to_toml_with(Defaults::Independent);
                assert_eq!(
                    Path::parse(&written, "again.toml").unwrap(),
                    path,
                    "{written}"
                );
                let other = (written.replacen("delay = \"30 ms\"", "delay = \"70 ms\"", 1))
                    .replacen("rate = \"12 Mbit/s\"", "rate = \"24 Mbit/s\"", 1);
                Path::parse(&other, "other.toml").unwrap()
            };
        let link = "rate = '12 Mbit/s'\ndelay = '30 ms'\n";
        let rtt_ms = |path: &Path| path.base_rtt().as_secs() * 1e3;
        let both = changed(link);
        assert_eq!(both.reverse.rate, both.forward.rate);
        assert_eq!(rtt_ms(&both), 140.0);
        let own = changed(&format!(
            "{link}[reverse]\nrate = 'unlimited'\ndelay = '10 ms'\n"
        ));
        assert_eq!((own.reverse.rate.as_ref(), rtt_ms(&own)), (None, 80.0));
        let schedule = "[[schedule]]\nat = '1 s'\ndelay = '5 ms'\nloss = 0.1\n";
        let schedule = changed(&format!("{link}{schedule}"));
        assert_eq!(schedule.reverse.schedule.len(), 1);
        let fixed = changed(&format!(
            "{link}reverse = {{ schedule = [] }}\n[[schedule]]\nat = '1 s'\ndelay = '5 ms'\n"
        ));
        assert!(fixed.reverse.schedule.is_empty());
    }

    #[test]
    fn defaults_are_those_of_the_forward_direction() {
        let text = "rate = '12 Mbit/s'\ndelay = '30 ms'\nqueue = '60 packets'\nloss = 0.01\n";
        let path = Path::parse(text, "path.toml").unwrap();
        assert_eq!(path.base_rtt(), Span::from_millis(60));
        assert_eq!(path.reverse.rate, path.forward.rate);
        assert_eq!(path.reverse.loss, LossSpec::default());
        assert_eq!(path.reverse.queue.limit, QueueLimit::Unlimited);
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

    /// Each line is wrong, with this in the message.
    fn refuse(lines: &[(&str, &str)]) {
        for (line, expected) in lines {
            let message = error(&format!("{line}\ndelay = '3 ms'\n"));
            assert!(message.contains(expected), "{line}:\n{message}");
            assert!(message.starts_with("path.toml:1:"), "{message}");
        }
    }

    #[test]
    fn impossible_rates_and_losses_are_refused_with_their_place() {
        refuse(&[
            (
                "rate = { kind = 'warp' }",
                "1:17: kind: got \"warp\", expected one of \"constant\"",
            ),
            (
                "rate = { rate = '1 Mbit/s' }",
                "1:8: rate: missing field `kind`",
            ),
            (
                "rate = { kind = 'poisson', rate = '0 Mbit/s' }",
                "1:35: rate: got",
            ),
            (
                "rate = { kind = 'wandering', rate = '9 Mbit/s', spread = 3.5, correlation = '1 s' }",
                "1:58: spread: got 3.5, expected a number from 0 to 3",
            ),
            (
                "rate = { kind = 'wandering', rate = '9 Mbit/s', spread = 1, correlation = '1 ms' }",
                "correlation: got 1 ms, expected at least 20 ms",
            ),
            (
                "rate = { kind = 'wandering', rate = '9 bit/s', spread = 1, correlation = '1 s' }",
                "rate: got \"9 bit/s\", expected at least \"1 kbit/s\"",
            ),
            (
                "rate = { kind = 'mahimahi', opportunities_ms = [] }",
                "1:48: opportunities_ms: got an empty",
            ),
            (
                "rate = { kind = 'mahimahi', opportunities_ms = [3, 2] }",
                "item 2: got 2 after 3",
            ),
            (
                "rate = { kind = 'mahimahi', opportunities_ms = [3, -2] }",
                "got -2, expected a whole",
            ),
            (
                "rate = { kind = 'mahimahi' }",
                "either `file` or `opportunities_ms`",
            ),
            (
                "rate = { kind = 'mahimahi', file = 'x.trace' }",
                "1:36: file: x.trace: expected no other",
            ),
            (
                "rate = { kind = 'steps', steps = [['0 s', '0 bit/s']] }",
                "1:34: steps: got a rate of 0 for ever",
            ),
            (
                "loss = { kind = 'periodic', every = 1 }",
                "1:37: every: got 1, expected a whole number from 2",
            ),
            (
                "loss = { kind = 'gilbert-elliott', good_to_bad = 1, bad_to_good = 0 }",
                "no packet would ever",
            ),
            (
                "loss = { kind = 'bursts', packets = [[5, 4]] }",
                "1:38: packets: got [5, 4]",
            ),
            ("loss = { kind = 'bursts' }", "got no burst"),
        ]);
    }

    #[test]
    fn impossible_queues_and_schedules_are_refused_with_their_place() {
        refuse(&[
            (
                "queue = { kind = 'codel', target = '0 ms' }",
                "1:36: target: expected more than no time",
            ),
            (
                "queue = { kind = 'codel', taget = '5 ms' }",
                "1:27: unknown field `taget`, expected one of",
            ),
            (
                "queue = { kind = 'codel', limit = '0 B' }",
                "1:35: limit: got \"0 B\"",
            ),
            (
                "queue = { kind = 'red', min = '9 packets', max = '5 packets' }",
                "1:50: max: expected `min` less",
            ),
            (
                "queue = { kind = 'red', min = '1e300 packets' }", // nothing is three times this
                "1:31: min: expected `min` less",
            ),
            (
                "policer = { rate = '1 Mbit/s', burst = '100 B' }",
                "1:40: burst: expected at least one packet",
            ),
            (
                "policer = { rate = '1 Mbit/s' }",
                "1:11: missing field `burst`",
            ),
            (
                "aggregation = { kind = 'count', packets = 0, within = '1 ms' }",
                "1:43: packets: got 0",
            ),
            (
                "schedule = [{ at = '1 s' }]",
                "1:13: schedule: got nothing that changes",
            ),
            (
                "schedule = [{ at = '1 s', rate = '1 Mbit/s' }]",
                "1:12: forward schedule: got a change of rate",
            ),
            (
                "schedule = [{ at = '2 s', loss = 0 }, { at = '1 s', loss = 0.1 }]",
                "1:46: at: expected changes",
            ),
            (
                "schedule = [{ at = '2 s', loss = 1 }]",
                "no packet would ever",
            ),
        ]);
    }

    #[test]
    fn a_trace_is_loaded_by_the_name_in_the_file_and_its_lines_are_told() {
        let text = "delay = '3 ms'\nrate = { kind = 'mahimahi', file = 'x.trace' }\n";
        let parse = |content: &'static [u8]| {
            Path::parse_with(text, "path.toml", &mut |name| {
                assert_eq!(name, "x.trace");
                Ok(content.to_vec())
            })
        };
        assert_eq!(
            parse(b"1\n5\n")
                .unwrap()
                .forward
                .mean_rate()
                .unwrap()
                .as_bps(),
            4.8e6
        );
        assert_eq!(
            parse(b"1\nx\n").unwrap_err().to_string(),
            "path.toml:2:36: file: x.trace:2: got \"x\", expected a whole number of milliseconds \
             below 2^32"
        );
    }

    #[test]
    fn the_way_back_changes_with_the_way_there_unless_it_has_its_own() {
        let text = "rate = '9 Mbit/s'\ndelay = '3 ms'\nschedule = [{ at = '1 s', rate = '8 Mbit/s', \
                    delay = '9 ms', loss = 0.1 }]\n";
        let changes = |more: &str| {
            Path::parse(&format!("{text}{more}"), "path.toml")
                .unwrap()
                .reverse
                .schedule
        };
        let whole = changes("");
        assert!(whole[0].rate.is_some() && whole[0].delay.is_some() && whole[0].loss.is_none());
        assert_eq!(changes("[reverse]\nrate = '1 Mbit/s'\n")[0].rate, None);
        assert!(changes("[reverse]\nrate = '1 Mbit/s'\ndelay = '1 ms'\n").is_empty());
        let own = "[[reverse.schedule]]\nat = '4 s'\nloss = 0.2\n";
        assert_eq!(changes(own)[0].at, Span::from_millis(4000));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = "name = 'a \"path\"'\nrate = '1.5 Gbit/s'\ndelay = '30.5 ms'\nloss = 0.001\n\
                    [reverse]\nrate = '3 Mbit/s'\nqueue = '9 kB'\n";
        let path = Path::parse(text, "path.toml").unwrap();
        assert_eq!(Path::parse(&path.to_toml(), "again.toml").unwrap(), path);
    }
}
