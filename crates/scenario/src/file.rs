//! The text form of a scenario: reads and writes its keys. Those of transports and workloads are in their
//! modules.
//!
//! `docs/reference/scenario-file.md` is the reference.

use std::fmt::Display;
use std::fmt::Write as _;

use pathcast_path::reader::{Field, Loader, Read, TIME, Table, Trouble, quoted};
use pathcast_path::{Defaults, Heading, Path, Span};
use toml::de::DeTable;

use crate::scenario::{FlowSpec, Link, Scenario};
use crate::transport::Transport;
use crate::workload::{Bulk, Workload};

/// The most bytes of one write as datagrams: a frame of a film is smaller.
const MAX_DATAGRAMS_BYTES: u64 = 1_000_000;

const FLOW_KEYS: [&str; 9] = [
    "scheme",
    "count",
    "workload",
    "route",
    "direction",
    "delay",
    "start",
    "every",
    "stop",
];

/// The scenario of a file's root table.
pub fn read(root: &DeTable<'_>, load: &mut Loader<'_>) -> Read<Scenario> {
    let root = Table::new(root, 0, &["name", "duration", "links", "flows"])?;
    let name = root.or("name", String::new(), |field| {
        Ok(field.text("text")?.to_string())
    })?;
    let duration = root
        .get("duration")
        .map(|field| field.some_time())
        .transpose()?;
    let links = links(root.need("links")?, load)?;
    let field = root.need("flows")?;
    let flows: Vec<FlowSpec> = field
        .list("tables, each under [[flows]]")?
        .map(|item| flow(item, &links, load))
        .collect::<Read<_>>()?;
    let count: u64 = flows.iter().map(FlowSpec::connections).sum();
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
    // trace files are in the folder of the path file that names them
    let folder = name.rfind('/').map_or("", |slash| &name[..=slash]);
    let mut load = |trace: &str| load(&format!("{folder}{trace}"));
    match Path::parse_with(&text, name, &mut load) {
        Ok(path) => Ok(path),
        Err(error) => field.wrong(error),
    }
}

fn flow(field: Field<'_, '_>, links: &[Link], load: &mut Loader<'_>) -> Read<FlowSpec> {
    let keys = [&FLOW_KEYS[..], &Transport::TCP_KEYS, &Transport::QUIC_KEYS].concat();
    let table = field.table("a table", &keys)?;
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
    let transport = Transport::read(table)?;
    let workload = match table.get("workload") {
        None => Workload::Bulk(Bulk),
        Some(field) => {
            let workload = Workload::read(field, load)?;
            if transport == Transport::Udp {
                if !workload.is_open_loop() {
                    return udp_needs_a_rate(field, &workload);
                }
                if workload
                    .largest_write()
                    .is_some_and(|size| size.as_bytes() > MAX_DATAGRAMS_BYTES)
                {
                    return field.wrong("expected at most 1 MB in a write over udp");
                }
            }
            workload
        }
    };
    if transport == Transport::Udp && !workload.is_open_loop() {
        return udp_needs_a_rate(field, &workload);
    }
    if let Err(why) = workload.check(&transport) {
        return field.wrong(why);
    }
    // a browser opens connections when it needs them
    let transport = match workload.is_page() {
        true => transport.opening(),
        false => transport,
    };
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

/// The scenario as TOML.
pub fn write(scenario: &Scenario, defaults: Defaults) -> String {
    let mut text = format!("name = {}\n", quoted(&scenario.name));
    if let Some(duration) = scenario.duration {
        let _ = writeln!(text, "duration = \"{duration}\"");
    }
    for Link { name, path } in &scenario.links {
        let _ = write!(
            text,
            "\n{}",
            path.to_toml_table(&format!("links.{}", quoted(name)), defaults)
        );
    }
    for flow in &scenario.flows {
        let flow = write_flow(flow, &scenario.links, defaults);
        let _ = write!(text, "\n[[flows]]\n{flow}");
    }
    text
}

fn write_flow(flow: &FlowSpec, links: &[Link], defaults: Defaults) -> String {
    let mut text = format!("scheme = {}\n", quoted(flow.transport.scheme()));
    let mut line = |key: &str, value: &dyn Display| {
        let _ = writeln!(text, "{key} = {value}");
    };
    line("count", &flow.count);
    line("workload", &flow.workload.to_toml());
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
    flow.transport.write_keys(defaults, &mut line);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Transfer;

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
             [[flows]]\nscheme = 'reno'\nreceive_window = 'auto'\n\
             [[flows]]\nscheme = 'reno'\nreceive_window = {{ kind = 'auto', buffer = '1 MB' }}\n\
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
        assert_eq!(again.flows().count(), 12);
        assert_eq!(scenario.flows[0].route, [1, 0]);
        let transfer = &scenario.flows[1];
        assert!(matches!(
            transfer.workload,
            Workload::Transfer(Transfer { count: Some(1), .. })
        ));
        assert_eq!(scenario.base_rtt(transfer), Span::from_millis(90));
    }

    fn wrong(flow: &str, line: usize, expected: &str) {
        let message = error(&with_flow(flow));
        assert!(message.contains(expected), "{flow}:\n{message}");
        assert!(
            message.starts_with(&format!("s.toml:{line}:")),
            "{flow}:\n{message}"
        );
    }

    #[test]
    fn wrong_scenarios_are_refused_with_their_place() {
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
        for scheme in ["cubic", "udp"] {
            wrong(
                &format!("scheme = '{scheme}'\nmtu_discovery = true"),
                6,
                &format!("is of QUIC; {scheme} has none"),
            );
        }
        wrong(
            "scheme = 'quic-bbr3'\nmtu_discovery = 1452",
            6,
            "expected true or false",
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
        wrong(
            "scheme = 'cubic'\nreceive_window = 'large'",
            6,
            "got \"large\"",
        );
        wrong(
            "scheme = 'cubic'\nreceive_window = { kind = 'auto', buffer = '100 kB' }",
            6,
            "buffer: got 100000 B, expected 131072 B",
        );
        wrong("scheme = 'cubic'\nworkload = 'web'", 6, "expected \"bulk\"");
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
    fn wrong_workloads_are_refused_with_their_place() {
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
    }

    #[test]
    fn a_workload_may_stand_by_itself() {
        let workload = Workload::of_value("{ kind = 'transfer', size = '5 MB' }").unwrap();
        assert_eq!(workload.kind(), "transfer");
        assert_eq!(Workload::of_value("'bulk'").unwrap(), Workload::Bulk(Bulk));
        for (text, expected) in [
            ("{ kind = 'transfer' }", "missing field `size`"),
            ("'bulk'\nx = 1", "expected one line"),
            ("bulk", ""),
            ("", ""),
        ] {
            let error = Workload::of_value(text).unwrap_err();
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
