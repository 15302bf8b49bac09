//! Reads rattan's configuration.

use std::collections::BTreeSet;

use pathcast_base::{Bandwidth, Probability, Span};
use toml::{Table, Value};

use crate::delay::DelaySpec;
use crate::link::{LinkSpec, MahimahiTrace, TraceError};
use crate::loss::LossSpec;
use crate::path::{Direction, Path};
use crate::queue::QueueLimit;
use crate::queue::{CoDelSpec, Discipline, QueueSpec};
use crate::reader::Loader;

/// What a configuration says.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// Forward is from left to right.
    pub path: Path,
    /// What was understood but left out, in words.
    pub left_out: Vec<String>,
}

/// Reads a configuration file; `load` gives the traces that it names.
///
/// # Errors
/// The text is not TOML, the cells do not lead from one end to the other, or a cell or value is not
/// supported. The error states what was got and what is supported.
pub fn read(text: &str, load: &mut Loader<'_>) -> Result<Configuration, String> {
    let table: Table = text
        .parse()
        .map_err(|error: toml::de::Error| format!("is no TOML: {}", error.message()))?;
    let mut left_out = Vec::new();
    for key in table.keys() {
        match key.as_str() {
            "cells" | "links" | "env" => {}
            _ => left_out.push(format!("[{key}]: left out")),
        }
    }
    let section = |name: &str| {
        let section = table.get(name).and_then(Value::as_table);
        section.ok_or_else(|| format!("got no [{name}], expected cells and the links between them"))
    };
    let (cells, links) = (section("cells")?, section("links")?);
    let mut used = BTreeSet::new();
    let mut way = |from: &str, to: &str| -> Result<Direction, String> {
        let mut cells_of_way = Vec::new();
        let mut at = from;
        loop {
            let next = links.get(at).and_then(Value::as_str);
            let next =
                next.ok_or_else(|| format!("links: {at} leads nowhere, expected {to} at the end"))?;
            if next == to {
                return direction(&cells_of_way, load, &mut left_out);
            }
            let cell = cells.get(next).and_then(Value::as_table);
            let cell =
                cell.ok_or_else(|| format!("links: got {next:?}, expected a cell or {to}"))?;
            if !used.insert(next.to_string()) {
                return Err(format!("links: {next} stands in two places, expected one"));
            }
            cells_of_way.push((next, cell));
            at = next;
        }
    };
    let path = Path {
        name: String::new(),
        forward: way("left", "right")?,
        reverse: way("right", "left")?,
    };
    for name in cells.keys().filter(|name| !used.contains(*name)) {
        left_out.push(format!("cells.{name}: no link leads to it; left out"));
    }
    let checked = path.check();
    checked.map_err(|(direction, key, message)| format!("{direction} {key}: {message}"))?;
    Ok(Configuration { path, left_out })
}

/// One cell, and how its errors begin.
struct Cell<'a> {
    name: &'a str,
    table: &'a Table,
}

impl<'a> Cell<'a> {
    fn wrong(&self, key: &str, expected: &str) -> String {
        let got = self
            .table
            .get(key)
            .map_or("nothing".into(), Value::to_string);
        format!("cells.{} {key}: got {got}, expected {expected}", self.name)
    }

    fn text(&self, key: &str, expected: &str) -> Result<&'a str, String> {
        let value = self.table.get(key).and_then(Value::as_str);
        value.ok_or_else(|| self.wrong(key, expected))
    }

    /// Names keys that are not among `known`.
    fn leave_out(&self, known: &[&str], left_out: &mut Vec<String>) {
        for key in self
            .table
            .keys()
            .filter(|key| !known.contains(&key.as_str()))
        {
            left_out.push(format!("cells.{} {key}: left out", self.name));
        }
    }
}

fn direction(
    cells: &[(&str, &Table)],
    load: &mut Loader<'_>,
    left_out: &mut Vec<String>,
) -> Result<Direction, String> {
    let mut rate = None;
    let mut queue = QueueSpec {
        limit: QueueLimit::Unlimited,
        discipline: Discipline::DropTail,
    };
    let (mut delay, mut kept) = (Span::ZERO, 1.0);
    for &(name, table) in cells {
        let cell = Cell { name, table };
        let kind = cell.text("type", "Bw, BwReplay, Delay or Loss")?;
        match kind {
            "Bw" | "BwReplay" => {
                if rate.is_some() {
                    return Err(format!(
                        "cells.{name}: is a second link, expected one each way: a scenario file has several"
                    ));
                }
                if kept < 1.0 {
                    left_out.push(format!(
                        "cells.{name}: stands behind a loss; here the loss is behind it"
                    ));
                }
                rate = Some(match kind {
                    "Bw" => bandwidth(&cell)?,
                    _ => replayed(&cell, load, left_out)?,
                });
                queue = queue_of(&cell, left_out)?;
                let known = [
                    "type",
                    "bandwidth",
                    "trace",
                    "trace_type",
                    "queue",
                    "queue_config",
                ];
                cell.leave_out(&known, left_out);
            }
            "Delay" => {
                let expected = "a time such as \"20ms\"";
                let span = time(cell.text("delay", expected)?);
                delay = delay + span.ok_or_else(|| cell.wrong("delay", expected))?;
                cell.leave_out(&["type", "delay"], left_out);
            }
            "Loss" => {
                let expected = "one probability from 0 to 1 such as [0.01]: a path file has no loss that depends on \
                                losses before it but `gilbert-elliott` and `bursts`";
                let pattern = cell.table.get("pattern").and_then(Value::as_array);
                let share = match pattern.map(Vec::as_slice) {
                    Some([]) => Some(0.0),
                    Some([Value::Float(share)]) => Some(*share),
                    Some([Value::Integer(share)]) => Some(*share as f64),
                    _ => None,
                };
                let share = share.filter(|share| (0.0..=1.0).contains(share));
                kept *= 1.0 - share.ok_or_else(|| cell.wrong("pattern", expected))?;
                cell.leave_out(&["type", "pattern"], left_out);
            }
            _ => return Err(cell.wrong("type", "Bw, BwReplay, Delay or Loss")),
        }
    }
    // one share comes back as it is, not as what is left of 1
    let shares: Vec<f64> = cells
        .iter()
        .filter_map(|(_, table)| only_share(table))
        .collect();
    let loss = match shares[..] {
        [share] => share,
        _ => 1.0 - kept,
    };
    Ok(Direction {
        rate,
        delay: DelaySpec::Fixed(delay),
        loss: LossSpec::Iid(Probability::new(loss).unwrap_or(Probability::ZERO)),
        queue,
        policer: None,
        aggregation: None,
        schedule: Vec::new(),
    })
}

fn only_share(table: &Table) -> Option<f64> {
    let pattern = table.get("pattern")?.as_array()?;
    pattern.first()?.as_float()
}

/// A rate such as `12000000bps`, `12Mbps`, `1 Gbps`.
fn bandwidth(cell: &Cell<'_>) -> Result<LinkSpec, String> {
    const EXPECTED: &str = "a rate such as \"12Mbps\"";
    let text = cell.text("bandwidth", EXPECTED)?;
    let wrong = || cell.wrong("bandwidth", EXPECTED);
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .ok_or_else(wrong)?;
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let factor = match unit.trim() {
        "bps" => 1.0,
        "kbps" | "Kbps" => 1e3,
        "Mbps" | "mbps" => 1e6,
        "Gbps" | "gbps" => 1e9,
        _ => return Err(wrong()),
    };
    Bandwidth::from_bps(number * factor)
        .map(LinkSpec::Constant)
        .ok_or_else(wrong)
}

fn replayed(
    cell: &Cell<'_>,
    load: &mut Loader<'_>,
    left_out: &mut Vec<String>,
) -> Result<LinkSpec, String> {
    if let Some(kind) = cell.table.get("trace_type").and_then(Value::as_str)
        && !kind.eq_ignore_ascii_case("mahimahi")
    {
        return Err(cell.wrong("trace_type", "Mahimahi"));
    }
    let name = cell.text("trace", "the name of a trace of mahimahi")?;
    let content = load(name).map_err(|why| format!("{name}: {why}"))?;
    let trace = MahimahiTrace::parse(&content).map_err(|error| match error {
        TraceError::Line { line, message } => format!("{name}:{line}: {message}"),
        TraceError::Whole(message) => format!("{name}: {message}"),
    })?;
    if cell.table.contains_key("bandwidth") {
        left_out.push(format!(
            "cells.{} bandwidth: its trace stands in its place",
            cell.name
        ));
    }
    Ok(LinkSpec::Mahimahi(trace))
}

/// A time such as `20ms` or `1s 500ms`.
fn time(text: &str) -> Option<Span> {
    let mut nanos = 0.0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit = rest[end..].trim_start();
        let unit_end = unit
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(unit.len());
        nanos += number
            * match &unit[..unit_end] {
                "s" | "sec" => 1e9,
                "ms" | "msec" => 1e6,
                "us" | "usec" => 1e3,
                "ns" | "nsec" => 1.0,
                _ => return None,
            };
        rest = unit[unit_end..].trim_start();
    }
    (nanos <= 3600e9).then(|| Span::from_nanos(nanos.round() as u64))
}

fn queue_of(cell: &Cell<'_>, left_out: &mut Vec<String>) -> Result<QueueSpec, String> {
    const KINDS: &str = "Infinite, DropTail, DropHead or CoDel";
    let kind = match cell.table.get("queue") {
        None => "Infinite",
        Some(_) => cell.text("queue", KINDS)?,
    };
    let none = Table::new();
    let config = match cell.table.get("queue_config") {
        None => &none,
        Some(Value::Table(config)) => config,
        Some(_) => return Err(cell.wrong("queue_config", "a table such as { packet_limit = 60 }")),
    };
    let whole = |key: &str| match config.get(key) {
        None => Ok(None),
        Some(Value::Integer(number @ 1..)) => Ok(Some(*number as u64)),
        Some(got) => Err(format!(
            "cells.{} {key}: got {got}, expected a whole number of 1 or more",
            cell.name
        )),
    };
    let limit = match (whole("packet_limit")?, whole("byte_limit")?) {
        (None, None) => QueueLimit::Unlimited,
        (Some(packets), None) => QueueLimit::Packets(packets),
        (None, Some(bytes)) => QueueLimit::Bytes(bytes),
        (Some(packets), Some(bytes)) => {
            left_out.push(format!(
                "cells.{} byte_limit: {bytes} left out beside packet_limit",
                cell.name
            ));
            QueueLimit::Packets(packets)
        }
    };
    let span = |key: &str, default: Span| match config.get(key) {
        None => Ok(default),
        Some(value) => value.as_str().and_then(time).ok_or_else(|| {
            format!(
                "cells.{} {key}: got {value}, expected a time such as \"5ms\"",
                cell.name
            )
        }),
    };
    let discipline = match kind {
        "Infinite" | "DropTail" => Discipline::DropTail,
        "DropHead" => Discipline::DropHead,
        "CoDel" => {
            let default = CoDelSpec::default();
            Discipline::CoDel(CoDelSpec {
                target: span("target", default.target)?,
                interval: span("interval", default.interval)?,
                ecn: false,
            })
        }
        _ => return Err(cell.wrong("queue", KINDS)),
    };
    for key in config.keys() {
        if !["packet_limit", "byte_limit", "target", "interval"].contains(&key.as_str()) {
            left_out.push(format!("cells.{} {key}: left out", cell.name));
        }
    }
    Ok(QueueSpec { limit, discipline })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::foreign::rattan::write;

    fn again(path: &Path) -> (Configuration, Vec<String>) {
        let written = write(path);
        let mut load = |name: &str| {
            let file = written
                .files
                .iter()
                .find(|(file, _)| name == format!("./{file}"));
            Ok(file.unwrap().1.clone().into_bytes())
        };
        let read = read(&written.text, &mut load);
        (
            read.unwrap_or_else(|error| panic!("{}: {error}", written.text)),
            written.lost,
        )
    }

    fn error(text: &str) -> String {
        read(text, &mut |_| Err("no such file".into())).unwrap_err()
    }

    #[test]
    fn what_is_written_is_read_back() {
        for text in [
            "rate = '12 Mbit/s'\ndelay = '20 ms'\nloss = 0.01\nqueue = '60 packets'\n\
             [reverse]\nrate = { kind = 'mahimahi', opportunities_ms = [3, 5] }\nqueue = '9 kB'\n",
            "delay = '1.5 ms'\nqueue = 'unlimited'\n",
            "rate = '2 Mbit/s'\ndelay = '7 ms'\nqueue = { kind = 'codel', limit = '90 kB', target = '6 ms' }\n\
             [reverse]\nrate = '1 Mbit/s'\nqueue = { kind = 'drophead', limit = '9 packets' }\n",
        ] {
            let path = Path::parse(text, "path.toml").unwrap();
            let (read, lost) = again(&path);
            assert_eq!(
                (read.path, read.left_out, lost),
                (path, vec![], vec![]),
                "{text}"
            );
        }
    }

    const CELLS: &str = "[env]\nmode = 'Isolated'\n[http]\nport = 8086\n\
        [cells.a]\ntype = 'Bw'\nbandwidth = '1.5Mbps'\nqueue = 'DropTail'\n\
        queue_config = { packet_limit = 9, bw_type = 'NetworkLayer' }\n\
        [cells.b]\ntype = 'Delay'\ndelay = '1s 5ms'\n[cells.c]\ntype = 'Loss'\npattern = [0.5]\n\
        [cells.d]\ntype = 'Loss'\npattern = [0.5]\n[cells.e]\ntype = 'Delay'\ndelay = '1ms'\n";

    #[test]
    fn cells_that_people_write_are_a_path_and_the_rest_is_named() {
        let text = format!(
            "{CELLS}[links]\nleft = 'c'\nc = 'a'\na = 'b'\nb = 'd'\nd = 'right'\nright = 'left'\n"
        );
        let read = read(&text, &mut |_| unreachable!()).unwrap();
        let expected = "rate = '1.5 Mbit/s'\ndelay = '1005 ms'\nloss = 0.75\nqueue = '9 packets'\n\
                        [reverse]\nrate = 'unlimited'\ndelay = '0 ms'\nqueue = 'unlimited'\n";
        let expected = Path::parse(expected, "path.toml").unwrap();
        assert_eq!(read.path, expected);
        let all = read.left_out.join("\n");
        for what in [
            "[http]",
            "cells.a bw_type",
            "cells.e: no link",
            "cells.a: stands behind a loss",
        ] {
            assert!(all.contains(what), "{what}: {all}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_with_what_would_be() {
        let linked = |links: &str| format!("{CELLS}[links]\n{links}");
        let cell = |cell: &str| {
            format!("[cells.a]\n{cell}\n[links]\nleft = 'a'\na = 'right'\nright = 'left'\n")
        };
        for (text, expected) in [
            ("[".into(), "is no TOML"),
            (String::new(), "got no [cells]"),
            (
                linked("left = 'right'"),
                "right leads nowhere, expected left",
            ),
            (linked("left = 'z'"), "got \"z\", expected a cell or right"),
            (linked("left = 'a'\na = 'a'"), "a stands in two places"),
            (
                linked("left = 'a'\na = 'right'\nright = 'a'"),
                "a stands in two places",
            ),
            (cell("type = 'Router'"), "got \"Router\", expected Bw"),
            (
                cell("type = 'Bw'\nbandwidth = '1 furlong'"),
                "expected a rate such as",
            ),
            (
                cell("type = 'Bw'\nbandwidth = '1Mbps'\nqueue = 'Red'"),
                "expected Infinite",
            ),
            (
                cell("type = 'Bw'\nbandwidth = '1Mbps'\nqueue_config = { packet_limit = -1 }"),
                "expected a whole number",
            ),
            (cell("type = 'BwReplay'\ntrace = 'x'"), "x: no such file"),
            (
                cell("type = 'Delay'\ndelay = '5 fortnights'"),
                "expected a time such as",
            ),
            (
                cell("type = 'Loss'\npattern = [0.1, 0.2]"),
                "expected one probability",
            ),
            (
                cell("type = 'Loss'\npattern = [2.0]"),
                "expected one probability",
            ),
        ] {
            let error = error(&text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_path_of_cells_comes_back(
            delays in proptest::array::uniform2(0u64..3_000_000_000),
            rates in proptest::array::uniform2(1u64..10_000_000),
            loss in 0u32..1000,
            limit in 1u64..100_000,
        ) {
            let text = "rate = '1 Mbit/s'\ndelay = '1 ms'\nqueue = '1 packets'\n";
            let mut path = Path::parse(text, "path.toml").unwrap();
            let ends = [&mut path.forward, &mut path.reverse];
            for ((direction, delay), rate) in ends.into_iter().zip(delays).zip(rates) {
                direction.delay = DelaySpec::Fixed(Span::from_nanos(delay));
                direction.rate = Bandwidth::from_bps(rate as f64 * 1000.0).map(LinkSpec::Constant);
                direction.queue.limit = QueueLimit::Packets(limit);
            }
            path.forward.loss = LossSpec::Iid(Probability::new(f64::from(loss) / 1000.0).unwrap());
            let (read, lost) = again(&path);
            prop_assert!(lost.is_empty() && read.left_out.is_empty());
            prop_assert_eq!(read.path, path);
        }
    }
}
