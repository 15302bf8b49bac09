//! Command lines of mahimahi's nested shells (Netravali et al., USENIX ATC 2015): `mm-delay 20 mm-link
//! UPLINK DOWNLINK -- COMMAND`. The first shell is the outermost; uplink is forward.

use std::fmt::Write;

use pathcast_base::{Bandwidth, Probability, Span};

use crate::delay::DelaySpec;
use crate::foreign::{Foreign, directions};
use crate::link::{LinkSpec, MahimahiTrace, TraceError};
use crate::loss::LossSpec;
use crate::path::{Direction, Path};
use crate::queue::QueueLimit;
use crate::queue::{CoDelSpec, Discipline, PieSpec, QueueSpec};
use crate::reader::Loader;

/// How often mahimahi's PIE updates its probability.
const PIE_UPDATE: Span = Span::from_millis(30);

/// What a command line says.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandLine {
    /// What lies between the command and the outside, from the command outwards; at least one. One
    /// path, wherever one can do what the shells do.
    pub links: Vec<Path>,
    /// The command, which may be none.
    pub command: Vec<String>,
    /// Where mm-link was to write its log of the uplink.
    pub uplink_log: Option<String>,
    /// The same of the downlink.
    pub downlink_log: Option<String>,
    /// What was understood but left out, in words.
    pub left_out: Vec<String>,
}

/// One shell of a command line.
#[derive(Clone, Debug)]
enum Shell {
    Delay(Span),
    Loss { uplink: bool, share: f64 },
    Link([(MahimahiTrace, QueueSpec); 2]),
}

/// Reads the words of a command line; `load` gives the traces that it names.
///
/// # Errors
/// What was got and what is understood, if a shell, an option or a value is not.
pub fn read(words: &[String], load: &mut Loader<'_>) -> Result<CommandLine, String> {
    let (mut rest, mut shells) = (words, Vec::new());
    let mut line = CommandLine {
        links: Vec::new(),
        command: Vec::new(),
        uplink_log: None,
        downlink_log: None,
        left_out: Vec::new(),
    };
    while let Some((first, after)) = rest.split_first() {
        let name = first.rsplit('/').next().unwrap_or(first);
        rest = match name {
            "mm-delay" => {
                let [millis, after @ ..] = after else {
                    return Err(format!("{name}: got nothing, expected whole milliseconds"));
                };
                let span = millis.parse().ok().filter(|millis| *millis <= 3_600_000);
                let span = span.map(Span::from_millis).ok_or_else(|| {
                    format!("{name}: got {millis:?}, expected whole milliseconds, at most an hour")
                })?;
                shells.push(Shell::Delay(span));
                after
            }
            "mm-loss" => {
                const EXPECTED: &str =
                    "expected `uplink` or `downlink` and a share from 0 to less than 1";
                let [which, share, after @ ..] = after else {
                    return Err(format!("{name}: got {after:?}, {EXPECTED}"));
                };
                let parsed = share.parse().ok().filter(|p| (0.0..1.0).contains(p));
                match (which.as_str(), parsed) {
                    ("uplink" | "downlink", Some(share)) => shells.push(Shell::Loss {
                        uplink: which == "uplink",
                        share,
                    }),
                    _ => return Err(format!("{name}: got {which:?} {share:?}, {EXPECTED}")),
                }
                after
            }
            "mm-link" => {
                let (link, after) = link(after, &mut line, load)?;
                shells.push(link);
                after
            }
            "mm-onoff" => {
                return Err(
                    "mm-onoff: got a link that is switched off at random times, expected mm-delay, \
                     mm-loss or mm-link: a path file has no such loss; `bursts` with `times` and \
                     `gilbert-elliott` are near it"
                        .into(),
                );
            }
            "--" if !shells.is_empty() => after,
            name if name.starts_with("mm-") => {
                return Err(format!(
                    "got {name:?}, expected mm-delay, mm-loss or mm-link"
                ));
            }
            _ => break,
        };
    }
    if shells.is_empty() {
        let first = words.first().map_or("", String::as_str);
        return Err(format!(
            "got {first:?}, expected a command line that begins with mm-delay, mm-loss or mm-link"
        ));
    }
    line.command = rest.to_vec();
    line.links = paths(shells);
    for path in &line.links {
        let checked = path.check();
        checked.map_err(|(direction, key, message)| format!("{direction} {key}: {message}"))?;
    }
    Ok(line)
}

/// What follows `mm-link`, and the words after that.
fn link<'w>(
    words: &'w [String],
    line: &mut CommandLine,
    load: &mut Loader<'_>,
) -> Result<(Shell, &'w [String]), String> {
    let (mut rest, mut files) = (words, Vec::new());
    let (mut kinds, mut arguments) = ([None, None], [None, None]);
    while let Some((word, mut after)) = rest.split_first() {
        let Some(option) = word.strip_prefix("--") else {
            if files.len() == 2 {
                break;
            }
            files.push(word.as_str());
            rest = after;
            continue;
        };
        if option.is_empty() {
            break;
        }
        let (option, value) = match option.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (option, None),
        };
        match option {
            "meter-uplink"
            | "meter-downlink"
            | "meter-uplink-delay"
            | "meter-downlink-delay"
            | "meter-all" => line
                .left_out
                .push(format!("mm-link --{option}: no live graph is drawn")),
            "uplink-queue"
            | "downlink-queue"
            | "uplink-queue-args"
            | "downlink-queue-args"
            | "uplink-log"
            | "downlink-log" => {
                let value = match value {
                    Some(value) => value.to_string(),
                    None => {
                        let Some((value, more)) = after.split_first() else {
                            return Err(format!(
                                "mm-link --{option}: got nothing, expected a value"
                            ));
                        };
                        after = more;
                        value.clone()
                    }
                };
                let way = usize::from(option.starts_with("down"));
                match option.split_once('-').map_or("", |(_, what)| what) {
                    "queue" => kinds[way] = Some(value),
                    "queue-args" => arguments[way] = Some(value),
                    _ if way == 0 => line.uplink_log = Some(value),
                    _ => line.downlink_log = Some(value),
                }
            }
            _ => {
                return Err(format!(
                    "mm-link: got --{option}, expected options for queues and logs; what belongs to \
                     the command comes after --"
                ));
            }
        }
        rest = after;
    }
    let [uplink, downlink] = files[..] else {
        return Err(format!(
            "mm-link: got {} trace files, expected two: uplink and downlink",
            files.len()
        ));
    };
    let mut one = |file, way: usize| -> Result<_, String> {
        let content = load(file).map_err(|why| format!("{file}: {why}"))?;
        let trace = MahimahiTrace::parse(&content).map_err(|error| match error {
            TraceError::Line { line, message } => format!("{file}:{line}: {message}"),
            TraceError::Whole(message) => format!("{file}: {message}"),
        })?;
        let kind = kinds[way].as_deref().unwrap_or("infinite");
        let queue = queue(kind, arguments[way].as_deref().unwrap_or(""))?;
        Ok((trace, queue))
    };
    Ok((Shell::Link([one(uplink, 0)?, one(downlink, 1)?]), rest))
}

/// A queue by its kind and arguments such as `packets=100, target=5`.
fn queue(kind: &str, arguments: &str) -> Result<QueueSpec, String> {
    let wrong = |got: &str, wanted: &str| {
        Err(format!(
            "mm-link: got a {kind} queue with {got:?}, expected {wanted}"
        ))
    };
    let keys: &[&str] = match kind {
        "infinite" => &[],
        "droptail" | "drophead" => &["packets", "bytes"],
        "codel" => &["packets", "bytes", "target", "interval"],
        "pie" => &["packets", "bytes", "qdelay_ref", "max_burst"],
        _ => {
            return Err(format!(
                "mm-link: got the queue {kind:?}, expected infinite, droptail, drophead, codel or pie"
            ));
        }
    };
    let mut values = vec![None; keys.len()];
    for argument in arguments.split([',', ' ']).filter(|part| !part.is_empty()) {
        let pair = argument.split_once('=');
        let known = pair.and_then(|(key, value)| {
            let at = keys.iter().position(|known| *known == key)?;
            Some((at, value.parse::<u64>().ok().filter(|value| *value > 0)?))
        });
        match known {
            Some((at, value)) => values[at] = Some(value),
            None => return wrong(argument, &format!("whole numbers of {}", keys.join(", "))),
        }
    }
    let limit = match values.get(..2) {
        None => QueueLimit::Unlimited,
        Some([Some(packets), None]) => QueueLimit::Packets(*packets),
        Some([None, Some(bytes)]) => QueueLimit::Bytes(*bytes),
        Some(_) => return wrong(arguments, "either packets or bytes"),
    };
    let time = |at: usize| {
        let millis = values[at].filter(|millis| *millis <= 3_600_000);
        millis.map(Span::from_millis).ok_or(())
    };
    let discipline = match kind {
        "drophead" => Discipline::DropHead,
        "codel" => match (time(2), time(3)) {
            (Ok(target), Ok(interval)) => Discipline::CoDel(CoDelSpec {
                target,
                interval,
                ..CoDelSpec::default()
            }),
            _ => return wrong(arguments, "target and interval in milliseconds"),
        },
        "pie" => match (time(2), time(3)) {
            (Ok(target), Ok(max_burst)) => Discipline::Pie(PieSpec {
                target,
                max_burst,
                update: PIE_UPDATE,
                ..PieSpec::default()
            }),
            _ => return wrong(arguments, "qdelay_ref and max_burst in milliseconds"),
        },
        _ => Discipline::DropTail,
    };
    Ok(QueueSpec { limit, discipline })
}

/// What some shells do together, if one path can do it.
#[derive(Clone, Debug, Default)]
struct Group {
    delay: Span,
    uplink_loss: f64,
    downlink_loss: f64,
    link: Option<[(MahimahiTrace, QueueSpec); 2]>,
}

impl Group {
    /// Takes in the next shell inwards; hands it back if the path would do something else.
    ///
    /// In a path, packets meet the link before the loss, in either direction: a shell of uplink loss
    /// must be outside the link, one of downlink loss inside it. Delays may be anywhere, for none of
    /// the others looks at the time but the link, which only sees all of its time shifted.
    fn take(&mut self, shell: Shell) -> Option<Shell> {
        // of two such losses, as near to all as a share below it can be
        let both = |a: f64, b: f64| (a + b - a * b).min(1.0 - f64::EPSILON);
        match shell {
            Shell::Delay(delay) => self.delay = self.delay + delay,
            Shell::Loss {
                uplink: true,
                share,
            } if self.link.is_none() => {
                self.uplink_loss = both(self.uplink_loss, share);
            }
            Shell::Loss {
                uplink: false,
                share,
            } => {
                self.downlink_loss = both(self.downlink_loss, share);
            }
            Shell::Link(link) if self.link.is_none() && self.downlink_loss == 0.0 => {
                self.link = Some(link);
            }
            shell => return Some(shell),
        }
        None
    }

    fn path(self) -> Path {
        let [up, down] = self.link.map_or([None, None], |link| link.map(Some));
        let direction = |link: Option<(MahimahiTrace, QueueSpec)>, loss: f64| {
            let unlimited = QueueSpec {
                limit: QueueLimit::Unlimited,
                discipline: Discipline::DropTail,
            };
            let (rate, queue) = match link {
                Some((trace, queue)) => (Some(LinkSpec::Mahimahi(trace)), queue),
                None => (None, unlimited),
            };
            Direction {
                rate,
                delay: DelaySpec::Fixed(self.delay),
                loss: LossSpec::Iid(Probability::new(loss).expect("made of shares below 1")),
                queue,
                policer: None,
                aggregation: None,
                schedule: Vec::new(),
            }
        };
        Path {
            name: String::new(),
            forward: direction(up, self.uplink_loss),
            reverse: direction(down, self.downlink_loss),
        }
    }
}

/// As few paths as do what the shells do, from the inside out.
fn paths(shells: Vec<Shell>) -> Vec<Path> {
    let mut groups = vec![Group::default()];
    for shell in shells {
        let last = groups.last_mut().expect("never empty");
        if let Some(shell) = last.take(shell) {
            let mut next = Group::default();
            let refused = next.take(shell);
            debug_assert!(refused.is_none(), "any shell is a path of its own");
            groups.push(next);
        }
    }
    groups.into_iter().rev().map(Group::path).collect()
}

/// The path as a command line that the command is put behind, and the traces that it names.
pub fn write(path: &Path) -> Foreign {
    let mut foreign = Foreign::default();
    for (name, direction) in directions(path) {
        foreign.lose_what_nobody_has(name, direction);
        if direction.policer.is_some() {
            foreign.lose(format!("{name} policer: left out"));
        }
    }
    let delays = directions(path).map(|(name, direction)| {
        let delay = foreign.fixed_delay(name, &direction.delay);
        delay.as_nanos()
    });
    // rounded half up
    let millis = (delays[0] + delays[1] + 1_000_000) / 2_000_000;
    if delays != [millis * 1_000_000; 2] {
        let [forward, reverse] = delays.map(Span::from_nanos);
        foreign.lose(format!(
            "delay: \"{forward}\" forward and \"{reverse}\" reverse, mm-delay has the same whole \
             milliseconds both ways: {millis} ms"
        ));
    }
    let mut words = format!("mm-delay {millis}");
    let losses =
        directions(path).map(|(name, direction)| foreign.independent_loss(name, &direction.loss));
    if losses[0] > 0.0 {
        let _ = write!(words, " mm-loss uplink {}", losses[0]);
    }
    if path.forward.rate.is_some() || path.reverse.rate.is_some() {
        words += " mm-link uplink.trace downlink.trace";
        for ((name, direction), way) in directions(path).into_iter().zip(["uplink", "downlink"]) {
            let trace = write_trace(name, direction, &mut foreign);
            foreign.files.push((format!("{way}.trace"), trace));
            words += &write_queue(name, way, path, direction, &mut foreign);
        }
        words += " --";
    }
    if losses[1] > 0.0 {
        let _ = write!(words, " mm-loss downlink {}", losses[1]);
    }
    foreign.text = words;
    foreign
}

fn write_trace(name: &str, direction: &Direction, foreign: &mut Foreign) -> String {
    let fast = Bandwidth::from_bps(1e9).expect("more than 0");
    let rate = match &direction.rate {
        Some(LinkSpec::Mahimahi(trace)) => return lines(trace.opportunities_ms()),
        Some(rate) => foreign.constant_rate(name, rate),
        None => {
            foreign.lose(format!("{name} rate: no limit; written as \"{fast}\""));
            fast
        }
    };
    let (moments, exact) = constant_trace(rate);
    if !exact {
        foreign.lose(format!(
            "{name} rate: \"{rate}\" is no whole number of packets in any minute; the nearest is \
             written"
        ));
    }
    lines(&moments)
}

fn lines(moments: &[u32]) -> String {
    let mut text = String::new();
    for moment in moments {
        let _ = writeln!(text, "{moment}");
    }
    text
}

/// Opportunities of a constant rate, one for each 1500 bytes, evenly over as short a time as there is
/// up to a minute; and whether that is the rate itself.
pub fn constant_trace(rate: Bandwidth) -> (Vec<u32>, bool) {
    const LONGEST_MS: u32 = 60_000;
    let packets = |millis: u32| rate.as_bps() * f64::from(millis) / 12_000_000.0;
    let whole = |millis: &u32| {
        let packets = packets(*millis);
        packets.round() >= 1.0 && (packets - packets.round()).abs() < 1e-9 * packets
    };
    let exact = (1..=LONGEST_MS).find(whole);
    let (millis, count) = match exact {
        Some(millis) => (millis, packets(millis).round() as u64),
        None if packets(LONGEST_MS) >= 1.0 => (LONGEST_MS, packets(LONGEST_MS).round() as u64),
        // one packet in more than a minute
        None => ((12_000_000.0 / rate.as_bps()).round() as u32, 1),
    };
    let moments = (1..=count).map(|number| (number * u64::from(millis) / count) as u32);
    (moments.collect(), exact.is_some())
}

fn write_queue(
    name: &str,
    way: &str,
    path: &Path,
    direction: &Direction,
    foreign: &mut Foreign,
) -> String {
    const MUCH: u64 = 1_000_000;
    let limit = match path.queue_limits(direction) {
        (u64::MAX, u64::MAX) => None,
        (u64::MAX, packets) => Some(format!("packets={packets}")),
        (bytes, _) => Some(format!("bytes={bytes}")),
    };
    let mut millis = |what: &str, span: Span| {
        let millis = (span.as_nanos() + 500_000) / 1_000_000;
        if Span::from_millis(millis) != span || millis == 0 {
            foreign.lose(format!(
                "{name} queue: {what} of \"{span}\", mm-link has whole milliseconds: {}",
                millis.max(1)
            ));
        }
        millis.max(1)
    };
    let aqm = |limit: Option<String>| limit.unwrap_or(format!("packets={MUCH}"));
    let (kind, arguments) = match &direction.queue.discipline {
        Discipline::DropTail | Discipline::DropHead if limit.is_none() => ("infinite", None),
        Discipline::DropTail => ("droptail", limit),
        Discipline::DropHead => ("drophead", limit),
        Discipline::CoDel(spec) => {
            let target = millis("target", spec.target);
            let interval = millis("interval", spec.interval);
            if spec.ecn {
                foreign.lose(format!("{name} queue: mm-link marks no packets (ECN)"));
            }
            let arguments = format!("{},target={target},interval={interval}", aqm(limit));
            ("codel", Some(arguments))
        }
        Discipline::Pie(spec) => {
            let target = millis("target", spec.target);
            let burst = millis("max_burst", spec.max_burst);
            let theirs = PieSpec {
                target: spec.target,
                max_burst: spec.max_burst,
                update: PIE_UPDATE,
                ..PieSpec::default()
            };
            if *spec != theirs {
                foreign.lose(format!(
                    "{name} queue: mm-link's PIE has update 30 ms, alpha 0.125, beta 1.25, no ECN"
                ));
            }
            let arguments = format!("{},qdelay_ref={target},max_burst={burst}", aqm(limit));
            ("pie", Some(arguments))
        }
        _ => {
            foreign.lose(format!(
                "{name} queue: mm-link has no such queue; droptail is written"
            ));
            ("droptail", Some(aqm(limit)))
        }
    };
    let mut text = format!(" --{way}-queue={kind}");
    if let Some(arguments) = arguments {
        let _ = write!(text, " --{way}-queue-args={arguments}");
    }
    text
}

#[cfg(test)]
mod tests;
