//! The text form of a scenario: what each key may be, and how it is written.
//!
//! `docs/scenario-file.md` is the reference.

use std::fmt::Display;
use std::fmt::Write as _;
use std::str::FromStr;

use pathcast_path::reader::{Field, Read, Table, Trouble, document};
use pathcast_path::{Bandwidth, Loader, Path, Size, Span, UnitError};
use toml::de::DeTable;

use crate::quic::QuicScheme;
use crate::scenario::{DEFAULT_MSS_BYTES, FlowSpec, Heading, Link, Scenario, Transport};
use crate::varying::{Shape, Varying};
use crate::workload::{Arrivals, Replay, Workload};

const TIME: &str = "a time with its unit, such as \"30 ms\"";
const SIZE: &str = "a size with its unit, such as \"500 kB\"";
const RATE: &str = "a rate with its unit, such as \"12 Mbit/s\"";

/// Payload of a full packet of TCP over IPv4 with timestamps, which is what probes send by default.
const FULL_PAYLOAD_BYTES: u64 = DEFAULT_MSS_BYTES as u64;
/// The smallest that Linux takes (TCP_MIN_MSS), less the timestamps.
const MIN_MSS_BYTES: u64 = 88 - 12;
/// The largest window that TCP can say (RFC 7323, section 2.3).
const MAX_WINDOW_BYTES: u64 = 1 << 30;
/// The most that is written at once as datagrams: a frame of a film is less.
const MAX_DATAGRAMS_BYTES: u64 = 1_000_000;

const FLOW_KEYS: [&str; 15] = [
    "scheme",
    "count",
    "workload",
    "route",
    "direction",
    "delay",
    "start",
    "every",
    "stop",
    "initial_window",
    "receive_window",
    "slow_start_after_idle",
    "ecn",
    "mss",
    "handshake",
];

/// The scenario of a file's root table.
pub fn read(root: &DeTable<'_>, load: &mut Loader<'_>) -> Read<Scenario> {
    let root = Table::new(root, 0, &["name", "duration", "links", "flows"])?;
    let name = root.or("name", String::new(), |field| {
        Ok(field.text("text")?.to_string())
    })?;
    let duration = root.get("duration").map(some_time).transpose()?;
    let links = links(root.need("links")?, load)?;
    let field = root.need("flows")?;
    let flows: Vec<FlowSpec> = field
        .list("tables, each under [[flows]]")?
        .map(|item| flow(item, &links, load))
        .collect::<Read<_>>()?;
    let count: u64 = flows.iter().map(|flow| u64::from(flow.count)).sum();
    if !(1..=Scenario::MAX_FLOWS).contains(&count) {
        let most = Scenario::MAX_FLOWS;
        return field.wrong(format_args!("got {count} flows, expected 1 to {most}"));
    }
    Ok(Scenario {
        name,
        duration,
        links,
        flows,
    })
}

fn links(field: Field<'_, '_>, load: &mut Loader<'_>) -> Read<Vec<Link>> {
    let mut links = Vec::new();
    for entry in field.entries("tables such as [links.bottleneck]")? {
        let name = entry.key().to_string();
        let Some(table) = entry.as_table() else {
            return entry.wrong("expected a table with a path's keys, or with `file`");
        };
        let path = if table.contains_key("file") {
            let table = Table::new(table, entry.at(), &["file"])?;
            path_of_file(table.need("file")?, load)?
        } else {
            Path::read(table, entry.at(), load).map_err(|trouble| Trouble {
                message: format!("link {name}: {}", trouble.message),
                ..trouble
            })?
        };
        links.push(Link { name, path });
    }
    if links.is_empty() {
        return field.wrong("got no link, expected at least one such as [links.bottleneck]");
    }
    Ok(links)
}

fn path_of_file(field: Field<'_, '_>, load: &mut Loader<'_>) -> Read<Path> {
    let name = field.text("the name of a path file")?;
    let content = match load(name) {
        Ok(content) => content,
        Err(why) => return field.wrong(format_args!("{name}: {why}")),
    };
    let Ok(text) = String::from_utf8(content) else {
        return field.wrong(format_args!("{name}: is not text"));
    };
    // traces lie beside the path file that names them
    let folder = name.rfind('/').map_or("", |slash| &name[..=slash]);
    let mut load = |trace: &str| load(&format!("{folder}{trace}"));
    match Path::parse_with(&text, name, &mut load) {
        Ok(path) => Ok(path),
        Err(error) => field.wrong(error),
    }
}

/// A span of more than nothing.
fn some_time(field: Field<'_, '_>) -> Read<Span> {
    match field.quantity(TIME)? {
        Span::ZERO => field.wrong("expected more than no time"),
        span => Ok(span),
    }
}

fn flow(field: Field<'_, '_>, links: &[Link], load: &mut Loader<'_>) -> Read<FlowSpec> {
    let table = field.table("a table", &FLOW_KEYS)?;
    let time = |key| {
        let field = table.get(key);
        field.map(|field| field.quantity::<Span>(TIME)).transpose()
    };
    let route = match table.get("route") {
        None => (0..links.len()).collect(),
        Some(route) => self::route(route, links)?,
    };
    let heading = table.or("direction", Heading::Forward, |field| {
        match field.text("\"forward\" or \"reverse\"")? {
            "forward" => Ok(Heading::Forward),
            "reverse" => Ok(Heading::Reverse),
            other => field.wrong(format_args!(
                "got {other:?}, expected \"forward\" or \"reverse\""
            )),
        }
    })?;
    let transport = transport(table)?;
    let workload = match table.get("workload") {
        None => Workload::Bulk,
        Some(field) => {
            let workload = workload(field, load)?;
            if transport == Transport::Udp {
                if !workload.is_open_loop() {
                    return udp_needs_a_rate(field, &workload);
                }
                if workload
                    .largest_write()
                    .is_some_and(|size| size > MAX_DATAGRAMS_BYTES)
                {
                    return field.wrong("expected at most 1 MB in a write over udp");
                }
            }
            workload
        }
    };
    if transport == Transport::Udp && workload == Workload::Bulk {
        return udp_needs_a_rate(field, &workload);
    }
    let (start, stop) = (time("start")?, time("stop")?);
    if let (Some(stop), Some(field)) = (stop, table.get("stop"))
        && stop <= start.unwrap_or(Span::ZERO)
    {
        return field.wrong("expected a time after the start");
    }
    Ok(FlowSpec {
        count: table.or("count", 1, |field| {
            Ok(field.whole(1, Scenario::MAX_FLOWS)? as u32)
        })?,
        transport,
        workload,
        route,
        heading,
        delay: time("delay")?.unwrap_or(Span::ZERO),
        start,
        every: time("every")?,
        stop,
    })
}

fn udp_needs_a_rate<T>(field: Field<'_, '_>, workload: &Workload) -> Read<T> {
    field.wrong(format_args!(
        "udp cannot carry {}, for nothing tells it how fast: expected a workload of \
         \"constant-rate\", \"replay\" or \"on-off\" with a rate",
        workload.kind()
    ))
}

fn route(field: Field<'_, '_>, links: &[Link]) -> Read<Vec<usize>> {
    let mut route = Vec::new();
    for item in field.list("a list of names of links")? {
        let name = item.text("the name of a link")?;
        match links.iter().position(|link| link.name == name) {
            Some(link) if route.contains(&link) => {
                return item.wrong(format_args!("got {name:?} twice"));
            }
            Some(link) => route.push(link),
            None => {
                let names: Vec<String> = links
                    .iter()
                    .map(|link| format!("{:?}", link.name))
                    .collect();
                let names = names.join(", ");
                return item.wrong(format_args!("got {name:?}, expected one of {names}"));
            }
        }
    }
    if route.is_empty() {
        return field.wrong("got no link, expected at least one");
    }
    Ok(route)
}

fn transport(table: Table<'_, '_>) -> Read<Transport> {
    let scheme = table
        .need("scheme")?
        .text("a congestion control, or \"udp\"")?;
    if let Err(why) = QuicScheme::check(scheme) {
        return table.need("scheme")?.wrong(format_args!("got {why}"));
    }
    let other = match QuicScheme::by_name(scheme) {
        Some(quic) => Some(Transport::Quic(quic)),
        None => (scheme == "udp").then_some(Transport::Udp),
    };
    if let Some(other) = other {
        for key in [
            "initial_window",
            "receive_window",
            "slow_start_after_idle",
            "ecn",
            "mss",
            "handshake",
        ] {
            if let Some(field) = table.get(key) {
                return field.wrong(format_args!("is of TCP; {scheme} has none"));
            }
        }
        return Ok(other);
    }
    let window = table.get("receive_window").map(|field| {
        let bytes = field.quantity::<Size>(SIZE)?.as_bytes();
        if bytes < FULL_PAYLOAD_BYTES {
            return field.wrong(format_args!(
                "expected at least {FULL_PAYLOAD_BYTES} B, a packet"
            ));
        }
        Ok(bytes.min(MAX_WINDOW_BYTES))
    });
    let first = table.get("initial_window");
    let yes_or_no = |key, default| table.or(key, default, |field| field.boolean());
    Ok(Transport::Tcp {
        scheme: scheme.to_string(),
        initial_window_packets: first
            .map(|field| Ok(field.whole(1, 10_000)? as u32))
            .transpose()?,
        receive_window_bytes: window.transpose()?,
        slow_start_after_idle: yes_or_no("slow_start_after_idle", true)?,
        ecn: yes_or_no("ecn", false)?,
        mss_bytes: table.or("mss", DEFAULT_MSS_BYTES, |field| {
            match field.quantity::<Size>(SIZE)?.as_bytes() {
                bytes @ MIN_MSS_BYTES..=FULL_PAYLOAD_BYTES => Ok(bytes as u32),
                bytes => field.wrong(format_args!(
                    "got {bytes} B, expected {MIN_MSS_BYTES} B to {FULL_PAYLOAD_BYTES} B: the payload of a \
                     full packet"
                )),
            }
        })?,
        handshake: yes_or_no("handshake", false)?,
    })
}

/// The workload of a TOML value by itself.
pub fn workload_of(text: &str) -> Result<Workload, String> {
    // one value and nothing after it: a document of one key
    if text.contains(['\n', '\r']) {
        return Err("expected one line".into());
    }
    let found = document(&format!("workload = {text}"), "", |root| {
        let root = Table::new(root, 0, &["workload"])?;
        let mut load = |_: &str| Err("expected no file here".to_string());
        workload(root.need("workload")?, &mut load)
    });
    // the place would be one in a file that nobody wrote
    found.map_err(|error| {
        let message = error.message;
        let example = "{ kind = 'transfer', size = '5 MB' }";
        format!("got {text:?}, expected a TOML value such as \"{example}\": {message}")
    })
}

fn workload(field: Field<'_, '_>, load: &mut Loader<'_>) -> Read<Workload> {
    if field.as_table().is_none() {
        return match field.text("\"bulk\" or a table with `kind`")? {
            "bulk" => Ok(Workload::Bulk),
            other => field.wrong(format_args!(
                "got {other:?}, expected \"bulk\" or a table with `kind`"
            )),
        };
    }
    let (kind, table) = field.kind(&[
        ("bulk", &[]),
        ("transfer", &["size", "pause", "count"]),
        ("on-off", &["on", "off", "rate", "portion"]),
        ("constant-rate", &["rate", "portion", "arrivals", "count"]),
        ("replay", &["file", "writes", "repeat"]),
        (
            "request-response",
            &["request", "response", "think", "count"],
        ),
    ])?;
    let count = |default| match table.get("count") {
        None => Ok(default),
        Some(field) => field.whole(1, 1 << 53).map(Some),
    };
    let portion = || {
        let full = Size::from_bytes(FULL_PAYLOAD_BYTES).expect("more than none");
        table.or("portion", full, |field| field.quantity(SIZE))
    };
    Ok(match kind {
        "bulk" => Workload::Bulk,
        "transfer" => Workload::Transfer {
            size: varying(table.need("size")?, SIZE)?,
            pause: table.or("pause", Varying::fixed(Span::ZERO), |field| {
                varying(field, TIME)
            })?,
            count: if table.get("pause").is_some() {
                count(None)?
            } else {
                count(Some(1))?
            },
        },
        "on-off" => {
            let rate = match table.get("rate") {
                Some(field) => Some((rate(field, portion()?)?, portion()?)),
                None => match table.get("portion") {
                    Some(field) => return field.wrong("needs a `rate` beside it"),
                    None => None,
                },
            };
            let (on, off) = (
                varying(table.need("on")?, TIME)?,
                varying(table.need("off")?, TIME)?,
            );
            if on.mean == Span::ZERO {
                return table.need("on")?.wrong("expected more than no time");
            }
            Workload::OnOff { on, off, rate }
        }
        "constant-rate" => Workload::ConstantRate {
            rate: rate(table.need("rate")?, portion()?)?,
            portion: portion()?,
            arrivals: table.or("arrivals", Arrivals::Periodic, |field| {
                match field.text("\"periodic\" or \"poisson\"")? {
                    "periodic" => Ok(Arrivals::Periodic),
                    "poisson" => Ok(Arrivals::Poisson),
                    other => field.wrong(format_args!(
                        "got {other:?}, expected \"periodic\" or \"poisson\""
                    )),
                }
            })?,
            count: count(None)?,
        },
        "replay" => Workload::Replay(replay(field, table, load)?),
        _ => Workload::RequestResponse {
            request: table.or("request", Varying::fixed(DEFAULT_REQUEST), |field| {
                varying(field, SIZE)
            })?,
            response: varying(table.need("response")?, SIZE)?,
            think: table.or("think", Varying::fixed(Span::ZERO), |field| {
                varying(field, TIME)
            })?,
            count: count(None)?,
        },
    })
}

/// A small HTTP request with its headers.
const DEFAULT_REQUEST: Size = Size::from_bytes(400).expect("more than none");

/// A rate at which portions can be told apart: at most one each 10 ns.
fn rate(field: Field<'_, '_>, portion: Size) -> Read<Bandwidth> {
    let rate: Bandwidth = field.quantity(RATE)?;
    if portion.as_bytes() as f64 * 8.0 / rate.as_bps() < 1e-8 {
        return field.wrong(format_args!(
            "got {rate} in portions of {portion}: too many a second"
        ));
    }
    Ok(rate)
}

fn replay(field: Field<'_, '_>, table: Table<'_, '_>, load: &mut Loader<'_>) -> Read<Replay> {
    let repeat = table.or("repeat", false, |field| field.boolean())?;
    match (table.get("file"), table.get("writes")) {
        (Some(file), None) => {
            let name = file.text("the name of a file with a time and a size a line")?;
            let content = match load(name) {
                Ok(content) => content,
                Err(why) => return file.wrong(format_args!("{name}: {why}")),
            };
            Replay::parse(&content, repeat)
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
            Replay::new(writes, repeat)
                .or_else(|(item, message)| list.wrong(format_args!("item {item}: {message}")))
        }
        _ => field.wrong("expected either `file` or `writes`"),
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

fn varying<T>(field: Field<'_, '_>, expected: &str) -> Read<Varying<T>>
where
    T: FromStr<Err = UnitError>,
{
    if field.as_table().is_none() {
        return Ok(Varying::fixed(field.quantity(expected)?));
    }
    let (kind, table) = field.kind(&[
        ("fixed", &["mean"]),
        ("exponential", &["mean"]),
        ("pareto", &["mean", "index"]),
    ])?;
    let mean = table.need("mean")?.quantity(expected)?;
    let shape = match kind {
        "fixed" => Shape::Fixed,
        "exponential" => Shape::Exponential,
        _ => Shape::Pareto(table.or("index", 1.2, |field| {
            match field.number("a number more than 1 such as 1.2")? {
                index if index > 1.0 && index <= 1000.0 => Ok(index),
                index => field.wrong(format_args!(
                    "got {index}, expected more than 1 and at most 1000: below there is no mean"
                )),
            }
        })?),
    };
    Ok(Varying { mean, shape })
}

/// The scenario as TOML, every default written out.
pub fn write(scenario: &Scenario) -> String {
    let mut text = format!("name = {}\n", quoted(&scenario.name));
    if let Some(duration) = scenario.duration {
        let _ = writeln!(text, "duration = \"{duration}\"");
    }
    for Link { name, path } in &scenario.links {
        let _ = write!(
            text,
            "\n{}",
            path.to_toml_table(&format!("links.{}", quoted(name)))
        );
    }
    for flow in &scenario.flows {
        let _ = write!(text, "\n[[flows]]\n{}", write_flow(flow, &scenario.links));
    }
    text
}

fn quoted(text: &str) -> String {
    // a basic string, which may also be a key
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            character if character.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(character));
            }
            character => quoted.push(character),
        }
    }
    quoted + "\""
}

fn write_flow(flow: &FlowSpec, links: &[Link]) -> String {
    let mut text = format!("scheme = {}\n", quoted(flow.transport.scheme()));
    let mut line = |key: &str, value: &dyn Display| {
        let _ = writeln!(text, "{key} = {value}");
    };
    line("count", &flow.count);
    line("workload", &write_workload(&flow.workload));
    let route: Vec<String> = flow
        .route
        .iter()
        .map(|&link| quoted(&links[link].name))
        .collect();
    line("route", &format_args!("[{}]", route.join(", ")));
    if flow.heading == Heading::Reverse {
        line("direction", &"\"reverse\"");
    }
    let times = [
        ("start", flow.start),
        ("every", flow.every),
        ("stop", flow.stop),
    ];
    for (key, span) in [("delay", Some(flow.delay))].into_iter().chain(times) {
        if let Some(span) = span {
            line(key, &format_args!("\"{span}\""));
        }
    }
    if let Transport::Tcp {
        initial_window_packets,
        receive_window_bytes,
        slow_start_after_idle,
        ecn,
        mss_bytes,
        handshake,
        ..
    } = &flow.transport
    {
        if let Some(packets) = initial_window_packets {
            line("initial_window", packets);
        }
        if let Some(bytes) = receive_window_bytes {
            line("receive_window", &format_args!("\"{bytes} B\""));
        }
        line("slow_start_after_idle", slow_start_after_idle);
        line("ecn", ecn);
        line("mss", &format_args!("\"{mss_bytes} B\""));
        line("handshake", handshake);
    }
    text
}

fn write_workload(workload: &Workload) -> String {
    let counted = |count: &Option<u64>| count.map_or(String::new(), |n| format!(", count = {n}"));
    let rest = match workload {
        Workload::Bulk => return "\"bulk\"".into(),
        Workload::Transfer { size, pause, count } => format!(
            "size = {}, pause = {}{}",
            write_varying(size),
            write_varying(pause),
            counted(count)
        ),
        Workload::OnOff { on, off, rate } => {
            let rate = rate.map_or(String::new(), |(rate, portion)| {
                format!(", rate = \"{rate}\", portion = \"{portion}\"")
            });
            format!(
                "on = {}, off = {}{rate}",
                write_varying(on),
                write_varying(off)
            )
        }
        Workload::ConstantRate {
            rate,
            portion,
            arrivals,
            count,
        } => {
            let arrivals = match arrivals {
                Arrivals::Periodic => "periodic",
                Arrivals::Poisson => "poisson",
            };
            let count = counted(count);
            format!("rate = \"{rate}\", portion = \"{portion}\", arrivals = \"{arrivals}\"{count}")
        }
        Workload::Replay(replay) => {
            let writes: Vec<String> = replay
                .writes()
                .iter()
                .map(|(at, size)| format!("[\"{at}\", \"{size}\"]"))
                .collect();
            format!(
                "writes = [{}], repeat = {}",
                writes.join(", "),
                replay.repeat
            )
        }
        Workload::RequestResponse {
            request,
            response,
            think,
            count,
        } => format!(
            "request = {}, response = {}, think = {}{}",
            write_varying(request),
            write_varying(response),
            write_varying(think),
            counted(count)
        ),
    };
    format!("{{ kind = \"{}\", {rest} }}", workload.kind())
}

fn write_varying<T: Display>(varying: &Varying<T>) -> String {
    let mean = &varying.mean;
    match varying.shape {
        Shape::Fixed => format!("\"{mean}\""),
        Shape::Exponential => format!("{{ kind = \"exponential\", mean = \"{mean}\" }}"),
        Shape::Pareto(index) => {
            format!("{{ kind = \"pareto\", mean = \"{mean}\", index = {index:?} }}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: &str = "[links.core]\nrate = '12 Mbit/s'\ndelay = '30 ms'\n";

    fn error(text: &str) -> String {
        Scenario::parse(text, "s.toml").unwrap_err().to_string()
    }

    fn with_flow(flow: &str) -> String {
        format!("{LINK}[[flows]]\n{flow}\n")
    }

    #[test]
    fn every_workload_is_written_and_read_back() {
        let text = format!(
            "name = 'a \"b\"'\nduration = '30 s'\n{LINK}\
             [links.'last mile']\ndelay = '5 ms'\n[links.'last mile'.reverse]\nloss = 0.01\n\
             [[links.'last mile'.schedule]]\nat = '1 s'\nloss = 0.2\n\
             [[flows]]\nscheme = 'cubic'\ncount = 3\nevery = '1 s'\nroute = ['last mile', 'core']\n\
             [[flows]]\nscheme = 'reno'\necn = true\ninitial_window = 4\nreceive_window = '64 kB'\n\
             slow_start_after_idle = false\nstart = '2 s'\nstop = '9 s'\ndelay = '10 ms'\n\
             direction = 'reverse'\nworkload = {{ kind = 'transfer', size = '1 MB' }}\n\
             [[flows]]\nscheme = 'udp'\nworkload = {{ kind = 'constant-rate', rate = '1 Mbit/s', \
             portion = '200 B', arrivals = 'poisson', count = 5 }}\n\
             [[flows]]\nscheme = 'udp'\nworkload = {{ kind = 'on-off', on = '1 s', \
             off = {{ kind = 'exponential', mean = '2 s' }}, rate = '1 Mbit/s' }}\n\
             [[flows]]\nscheme = 'quic-cubic'\n\
             [[flows]]\nscheme = 'bbr'\nworkload = {{ kind = 'on-off', on = '1 s', off = '1 s' }}\n\
             [[flows]]\nscheme = 'vegas'\nworkload = {{ kind = 'replay', repeat = true, \
             writes = [['0 s', '100 B'], ['7200 s', '3 kB']] }}\n\
             [[flows]]\nscheme = 'vegas'\nworkload = {{ kind = 'request-response', \
             response = {{ kind = 'pareto', mean = '20 kB' }}, think = '1 s' }}\n"
        );
        let scenario = Scenario::parse(&text, "s.toml").unwrap();
        let written = scenario.to_toml();
        let again = Scenario::parse(&written, "again.toml").unwrap();
        assert_eq!(again, scenario, "{written}");
        assert_eq!(again.flows().count(), 10);
        assert_eq!(scenario.flows[0].route, [1, 0]);
        let transfer = &scenario.flows[1];
        assert!(matches!(
            transfer.workload,
            Workload::Transfer { count: Some(1), .. }
        ));
        assert_eq!(scenario.base_rtt(transfer), Span::from_millis(90));
    }

    #[test]
    fn wrong_scenarios_are_refused_with_their_place() {
        let wrong = |flow: &str, line: usize, expected: &str| {
            let message = error(&with_flow(flow));
            assert!(message.contains(expected), "{flow}:\n{message}");
            assert!(
                message.starts_with(&format!("s.toml:{line}:")),
                "{flow}:\n{message}"
            );
        };
        wrong("count = 1", 4, "missing field `scheme`");
        wrong("scheme = 'cubic'\nrate = 1", 6, "unknown field `rate`");
        wrong(
            "scheme = 'cubic'\ncount = 0",
            6,
            "got 0, expected a whole number from 1",
        );
        wrong(
            "scheme = 'cubic'\nroute = ['edge']",
            6,
            "got \"edge\", expected one of \"core\"",
        );
        wrong(
            "scheme = 'cubic'\nroute = ['core', 'core']",
            6,
            "got \"core\" twice",
        );
        wrong("scheme = 'cubic'\nroute = []", 6, "got no link");
        wrong("scheme = 'udp'", 4, "udp cannot carry bulk");
        wrong(
            "scheme = 'quic-foo'",
            5,
            "expected one of QUIC's: quic-cubic, quic-reno, quic-bbr3",
        );
        wrong(
            "scheme = 'quic-reno'\necn = true",
            6,
            "is of TCP; quic-reno has none",
        );
        wrong(
            "scheme = 'udp'\necn = true\nworkload = 'bulk'",
            6,
            "is of TCP",
        );
        wrong(
            "scheme = 'cubic'\nstart = '2 s'\nstop = '1 s'",
            7,
            "after the start",
        );
        wrong(
            "scheme = 'cubic'\nreceive_window = '1 kB'",
            6,
            "at least 1448 B",
        );
        wrong("scheme = 'cubic'\nworkload = 'web'", 6, "expected \"bulk\"");
        for (workload, expected) in [
            ("kind = 'transfer'", "missing field `size`"),
            ("kind = 'transfer', size = '0 B'", "a size from 1 B"),
            (
                "kind = 'transfer', size = { kind = 'pareto', mean = '1 kB', index = 1 }",
                "no mean",
            ),
            (
                "kind = 'on-off', on = '0 s', off = '1 s'",
                "more than no time",
            ),
            (
                "kind = 'on-off', on = '1 s', off = '1 s', portion = '1 B'",
                "needs a `rate`",
            ),
            (
                "kind = 'constant-rate', rate = '1000 Gbit/s', portion = '1 B'",
                "too many a second",
            ),
            ("kind = 'replay'", "either `file` or `writes`"),
            ("kind = 'replay', writes = []", "got no write"),
            (
                "kind = 'replay', writes = [['1 s', '1 B'], ['0 s', '1 B']]",
                "item 2: got a time",
            ),
            ("kind = 'replay', file = 'x'", "expected no other files"),
            ("kind = 'request-response'", "missing field `response`"),
        ] {
            wrong(
                &format!("scheme = 'reno'\nworkload = {{ {workload} }}"),
                6,
                expected,
            );
        }
        assert!(error("[[flows]]\nscheme = 'cubic'\n").contains("missing field `links`"));
        assert!(error("flows = []\n[links]\n").contains("got no link"));
        assert!(error(&format!("flows = []\n{LINK}")).contains("got 0 flows"));
        assert!(error(LINK).contains("missing field `flows`"));
        let many = "scheme = 'cubic'\ncount = 60000\n[[flows]]\nscheme = 'reno'\ncount = 60000";
        assert!(error(&with_flow(many)).contains("got 120000 flows"));
        let message =
            error("[links.a]\nrate = '-1 Mbit/s'\ndelay = '1 ms'\n[[flows]]\nscheme = 'x'\n");
        assert!(
            message.starts_with("s.toml:2:8: link a: rate: got \"-1 Mbit/s\""),
            "{message}"
        );
    }

    #[test]
    fn a_workload_may_stand_by_itself() {
        let workload = workload_of("{ kind = 'transfer', size = '5 MB' }").unwrap();
        assert_eq!(workload.kind(), "transfer");
        assert_eq!(workload_of("'bulk'").unwrap(), Workload::Bulk);
        for (text, expected) in [
            ("{ kind = 'transfer' }", "missing field `size`"),
            ("'bulk'\nx = 1", "expected one line"),
            ("bulk", ""),
            ("", ""),
        ] {
            let error = workload_of(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn links_and_recordings_may_be_files_of_their_own() {
        let text = "[links.a]\nfile = 'paths/lte.toml'\n[[flows]]\nscheme = 'udp'\n\
                    workload = { kind = 'replay', file = 'call.txt' }\n";
        let mut asked = Vec::new();
        let mut load = |name: &str| {
            asked.push(name.to_string());
            Ok(match name {
                "paths/lte.toml" => {
                    b"delay = '30 ms'\nrate = { kind = 'mahimahi', file = 'up' }\n".to_vec()
                }
                "paths/up" => b"1\n5\n".to_vec(),
                _ => b"0.5 100\n".to_vec(),
            })
        };
        let scenario = Scenario::parse_with(text, "s.toml", &mut load).unwrap();
        assert_eq!(asked, ["paths/lte.toml", "paths/up", "call.txt"]);
        assert_eq!(
            Scenario::parse(&scenario.to_toml(), "again.toml").unwrap(),
            scenario
        );
        let wrong = |_: &str| Ok(b"delay = 3\n".to_vec());
        let message = Scenario::parse_with(text, "s.toml", &mut { wrong }).unwrap_err();
        assert!(
            message
                .to_string()
                .starts_with("s.toml:2:8: file: paths/lte.toml:1:9: delay: got"),
            "{message}"
        );
    }

    #[test]
    fn flows_begin_when_they_are_told_or_within_a_round_trip() {
        let text = with_flow(
            "scheme = 'cubic'\ncount = 2\n[[flows]]\nscheme = 'reno'\nstart = '5 s'\ncount = 2\n\
             [[flows]]\nscheme = 'reno'\nevery = '2 s'\ncount = 3",
        );
        let scenario = Scenario::parse(&text, "s.toml").unwrap();
        let starts: Vec<f64> = scenario
            .flows_with_seed(3)
            .map(|flow| flow.start.as_secs())
            .collect();
        assert_eq!(starts[0], 0.0);
        assert!(starts[1] > 0.0 && starts[1] <= 0.06);
        assert_eq!(starts[2], 5.0);
        assert!(starts[3] > 5.0 && starts[3] <= 5.06);
        assert_eq!(starts[4..], [0.0, 2.0, 4.0]);
        let again: Vec<f64> = scenario
            .flows_with_seed(3)
            .map(|flow| flow.start.as_secs())
            .collect();
        assert_eq!(again, starts);
    }
}
