//! The text form of a path: what each key of a path file may be, and how it is written.
//!
//! `docs/path-file.md` is the reference.

use std::fmt::{Display, Write};

use toml::de::DeTable;

use crate::aggregation::AggregationSpec;
use crate::delay::{DelaySpec, Distribution, Jitter};
use crate::link::{LinkSpec, MahimahiTrace, Steps, TraceError};
use crate::loss::{Bursts, GilbertElliott, LossSpec, Periodic};
use crate::path::{Change, Direction, Path};
use crate::policer::PolicerSpec;
use crate::queue::{CoDelSpec, Discipline, FqCoDelSpec, PieSpec, QueueSpec, RedSpec};
use crate::reader::{Field, Read, Table};
use crate::units::{Bandwidth, Probability, QueueLimit, Span, Time};

/// Hands over the content of a file that a path file names, or says why not.
pub type Loader<'a> = dyn FnMut(&str) -> Result<Vec<u8>, String> + 'a;

const RATE: &str = "a rate with its unit, such as \"12 Mbit/s\"";
const TIME: &str = "a time with its unit, such as \"30 ms\"";
const SIZE: &str = "a queue size with its unit, such as \"90 kB\", \"60 packets\" or \"1 BDP\"";

const DIRECTION_KEYS: [&str; 7] = [
    "rate",
    "delay",
    "loss",
    "queue",
    "policer",
    "aggregation",
    "schedule",
];

/// The path of a table that begins at byte `at`.
pub(crate) fn path(root: &DeTable<'_>, at: usize, load: &mut Loader<'_>) -> Read<Path> {
    let keys = [&["name", "reverse"], &DIRECTION_KEYS[..]].concat();
    let root = Table::new(root, at, &keys)?;
    let name = root.or("name", String::new(), |field| {
        Ok(field.text("text")?.to_string())
    })?;
    let forward = Direction {
        rate: match root.get("rate") {
            Some(field) => rate_if_any(field, load)?,
            None => None,
        },
        delay: delay(root.need("delay")?)?,
        loss: root.or("loss", LossSpec::default(), loss)?,
        queue: queue(root.get("queue"), QueueLimit::Bdp(1.0))?,
        policer: root.get("policer").map(policer).transpose()?,
        aggregation: root.get("aggregation").map(aggregation).transpose()?,
        schedule: root.or("schedule", Vec::new(), schedule)?,
    };
    let Some(field) = root.get("reverse") else {
        let reverse = Direction {
            rate: forward.rate.clone(),
            delay: forward.delay,
            loss: LossSpec::default(),
            queue: queue(None, QueueLimit::Unlimited)?,
            policer: None,
            aggregation: None,
            schedule: inherited(&forward.schedule, true, true),
        };
        return Ok(Path {
            name,
            forward,
            reverse,
        });
    };
    let back = field.table("a table", &DIRECTION_KEYS)?;
    let (own_rate, own_delay) = (back.get("rate"), back.get("delay"));
    let changes = inherited(&forward.schedule, own_rate.is_none(), own_delay.is_none());
    let reverse = Direction {
        rate: match own_rate {
            Some(field) => rate_if_any(field, load)?,
            None => forward.rate.clone(),
        },
        delay: own_delay.map_or(Ok(forward.delay), delay)?,
        loss: back.or("loss", LossSpec::default(), loss)?,
        queue: queue(back.get("queue"), QueueLimit::Unlimited)?,
        policer: back.get("policer").map(policer).transpose()?,
        aggregation: back.get("aggregation").map(aggregation).transpose()?,
        schedule: back.or("schedule", changes, schedule)?,
    };
    Ok(Path {
        name,
        forward,
        reverse,
    })
}

/// The changes that also hold for the way back, as far as its rate and delay are those of forward.
fn inherited(forward: &[Change], rate: bool, delay: bool) -> Vec<Change> {
    forward
        .iter()
        .map(|change| Change {
            at: change.at,
            rate: change.rate.filter(|_| rate),
            delay: change.delay.filter(|_| delay),
            loss: None,
        })
        .filter(|change| change.rate.is_some() || change.delay.is_some())
        .collect()
}

/// A rate, or none where it is `unlimited`: a way back has that of forward otherwise.
fn rate_if_any(field: Field<'_, '_>, load: &mut Loader<'_>) -> Read<Option<LinkSpec>> {
    match field.text("a rate") {
        Ok("unlimited") => Ok(None),
        _ => rate(field, load).map(Some),
    }
}

fn rate(field: Field<'_, '_>, load: &mut Loader<'_>) -> Read<LinkSpec> {
    if !field.is_table() {
        return Ok(LinkSpec::Constant(field.quantity(RATE)?));
    }
    let (kind, table) = field.kind(&[
        ("constant", &["rate"]),
        ("poisson", &["rate"]),
        ("mahimahi", &["file", "opportunities_ms"]),
        ("steps", &["steps", "period"]),
    ])?;
    Ok(match kind {
        "constant" => LinkSpec::Constant(table.need("rate")?.quantity(RATE)?),
        "poisson" => LinkSpec::Poisson(table.need("rate")?.quantity(RATE)?),
        "mahimahi" => LinkSpec::Mahimahi(mahimahi(field, table, load)?),
        _ => LinkSpec::Steps(steps(table)?),
    })
}

fn mahimahi(
    field: Field<'_, '_>,
    table: Table<'_, '_>,
    load: &mut Loader<'_>,
) -> Read<MahimahiTrace> {
    match (table.get("file"), table.get("opportunities_ms")) {
        (Some(file), None) => {
            let name = file.text("the name of a trace file")?;
            let content = match load(name) {
                Ok(content) => content,
                Err(why) => return file.wrong(format_args!("{name}: {why}")),
            };
            match MahimahiTrace::parse(&content) {
                Ok(trace) => Ok(trace),
                Err(TraceError::Line { line, message }) => {
                    file.wrong(format_args!("{name}:{line}: {message}"))
                }
                Err(TraceError::Whole(message)) => file.wrong(format_args!("{name}: {message}")),
            }
        }
        (None, Some(list)) => {
            let moments: Vec<u32> = list
                .list("a list of milliseconds")?
                .map(|item| Ok(item.whole(0, u64::from(u32::MAX))? as u32))
                .collect::<Read<_>>()?;
            match MahimahiTrace::new(&moments) {
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

fn steps(table: Table<'_, '_>) -> Read<Steps> {
    const EXPECTED: &str = "a list of steps such as [\"10 s\", \"12 Mbit/s\"]";
    let list = table.need("steps")?;
    let mut steps = Vec::new();
    for item in list.list(EXPECTED)? {
        let [at, rate] = item.pair("a step such as [\"10 s\", \"12 Mbit/s\"]")?;
        let text = rate.text(RATE)?;
        let rate = match Bandwidth::parse_or_zero(text) {
            Ok(bandwidth) => bandwidth,
            Err(error) => return rate.wrong(error),
        };
        steps.push((Time::ZERO + at.quantity(TIME)?, rate));
    }
    let period = table
        .get("period")
        .map(|field| field.quantity(TIME))
        .transpose()?;
    match Steps::new(steps, period) {
        Ok(steps) => Ok(steps),
        Err(message) => list.wrong(message),
    }
}

fn delay(field: Field<'_, '_>) -> Read<DelaySpec> {
    if !field.is_table() {
        return Ok(DelaySpec::Fixed(field.quantity(TIME)?));
    }
    let (kind, table) = field.kind(&[
        ("fixed", &["delay"]),
        ("jitter", &["base", "jitter", "distribution", "reorder"]),
    ])?;
    if kind == "fixed" {
        return Ok(DelaySpec::Fixed(table.need("delay")?.quantity(TIME)?));
    }
    let distribution = table.or("distribution", Distribution::Uniform, |field| {
        match field.text("\"uniform\" or \"exponential\"")? {
            "uniform" => Ok(Distribution::Uniform),
            "exponential" => Ok(Distribution::Exponential),
            other => field.wrong(format_args!(
                "got {other:?}, expected \"uniform\" or \"exponential\""
            )),
        }
    })?;
    Ok(DelaySpec::Jitter(Jitter {
        base: table.need("base")?.quantity(TIME)?,
        jitter: table.need("jitter")?.quantity(TIME)?,
        distribution,
        reorder: table.or("reorder", false, |field| field.boolean())?,
    }))
}

fn loss(field: Field<'_, '_>) -> Read<LossSpec> {
    let spec = if field.is_table() {
        let (kind, table) = field.kind(&[
            ("iid", &["probability"]),
            (
                "gilbert-elliott",
                &["good_to_bad", "bad_to_good", "loss_good", "loss_bad"],
            ),
            ("periodic", &["every", "first"]),
            ("bursts", &["packets", "times"]),
        ])?;
        match kind {
            "iid" => LossSpec::Iid(table.need("probability")?.probability()?),
            "gilbert-elliott" => {
                let or = |key, default: f64| {
                    let default = Probability::new(default).expect("0 and 1 are probabilities");
                    table.or(key, default, |field| field.probability())
                };
                LossSpec::GilbertElliott(GilbertElliott {
                    good_to_bad: table.need("good_to_bad")?.probability()?,
                    bad_to_good: table.need("bad_to_good")?.probability()?,
                    loss_good: or("loss_good", 0.0)?,
                    loss_bad: or("loss_bad", 1.0)?,
                })
            }
            "periodic" => {
                let every = table.need("every")?.whole(2, 1 << 53)?;
                let first = table.or("first", every, |field| field.whole(1, 1 << 53))?;
                LossSpec::Periodic(Periodic { every, first })
            }
            _ => LossSpec::Bursts(bursts(field, table)?),
        }
    } else {
        LossSpec::Iid(field.probability()?)
    };
    if spec.mean() >= 1.0 {
        return field.wrong("is 1: no packet would ever arrive");
    }
    Ok(spec)
}

fn bursts(field: Field<'_, '_>, table: Table<'_, '_>) -> Read<Bursts> {
    const PACKETS: &str = "bursts in order such as [10, 20], from the first packet to the last";
    const TIMES: &str = "bursts in order such as [\"1 s\", \"1.5 s\"], from begin to end";
    let mut bursts = Bursts::default();
    for item in table
        .get("packets")
        .map(|list| list.list(PACKETS))
        .into_iter()
    {
        for item in item? {
            let [first, last] = item.pair(PACKETS)?;
            let (first, last) = (first.whole(1, 1 << 53)?, last.whole(1, 1 << 53)?);
            let after = bursts.packets.last().map_or(0, |(_, last)| *last);
            if first > last || first <= after {
                return item.wrong(format_args!("got [{first}, {last}], expected {PACKETS}"));
            }
            bursts.packets.push((first, last));
        }
    }
    for item in table.get("times").map(|list| list.list(TIMES)).into_iter() {
        for item in item? {
            let [begin, end] = item.pair(TIMES)?;
            let (begin, end): (Span, Span) = (begin.quantity(TIME)?, end.quantity(TIME)?);
            let after = bursts.times.last().map_or(Time::ZERO, |(_, end)| *end);
            if begin >= end || Time::ZERO + begin < after {
                return item.wrong(format_args!(
                    "got [\"{begin}\", \"{end}\"], expected {TIMES}"
                ));
            }
            bursts.times.push((Time::ZERO + begin, Time::ZERO + end));
        }
    }
    if bursts == Bursts::default() {
        return field.wrong("got no burst, expected some in `packets` or `times`");
    }
    Ok(bursts)
}

/// Linux's default limit of `codel` and `pie` (RFC 8033, section 5.3, leaves it open).
const AQM_LIMIT: QueueLimit = QueueLimit::Packets(1000);
/// RFC 8290, section 5.2.3.
const FQ_CODEL_LIMIT: QueueLimit = QueueLimit::Packets(10_240);

fn queue(field: Option<Field<'_, '_>>, default: QueueLimit) -> Read<QueueSpec> {
    let Some(field) = field else {
        return Ok(QueueSpec {
            limit: default,
            discipline: Discipline::DropTail,
        });
    };
    if !field.is_table() {
        return Ok(QueueSpec {
            limit: field.quantity(SIZE)?,
            discipline: Discipline::DropTail,
        });
    }
    let (kind, table) = field.kind(&[
        ("droptail", &["limit"]),
        ("drophead", &["limit"]),
        (
            "red",
            &[
                "limit",
                "min",
                "max",
                "max_probability",
                "weight",
                "gentle",
                "ecn",
            ],
        ),
        (
            "adaptive-red",
            &[
                "limit",
                "target",
                "min",
                "max",
                "max_probability",
                "weight",
                "gentle",
                "ecn",
            ],
        ),
        ("codel", &["limit", "target", "interval", "ecn"]),
        (
            "pie",
            &[
                "limit",
                "target",
                "update",
                "max_burst",
                "alpha",
                "beta",
                "ecn",
                "mark_below",
            ],
        ),
        (
            "fq-codel",
            &["limit", "target", "interval", "ecn", "flows", "quantum"],
        ),
    ])?;
    let limit = |default| table.or("limit", default, |field| field.quantity(SIZE));
    let (limit, discipline) = match kind {
        "droptail" => (limit(default)?, Discipline::DropTail),
        "drophead" => (limit(default)?, Discipline::DropHead),
        "red" => (
            limit(default)?,
            Discipline::Red(red(table, RedSpec::classic())?),
        ),
        "adaptive-red" => (
            limit(default)?,
            Discipline::Red(red(table, RedSpec::adaptive())?),
        ),
        "codel" => (
            limit(AQM_LIMIT)?,
            Discipline::CoDel(codel(table, CoDelSpec::default())?),
        ),
        "pie" => (limit(AQM_LIMIT)?, Discipline::Pie(pie(table)?)),
        _ => {
            let default = FqCoDelSpec::default();
            let spec = FqCoDelSpec {
                codel: codel(table, default.codel)?,
                flows: table.or("flows", default.flows, |field| {
                    Ok(field.whole(1, 65_536)? as u32)
                })?,
                quantum_bytes: table.or("quantum", default.quantum_bytes, |field| {
                    match field.quantity("a size such as \"1514 B\"")? {
                        QueueLimit::Bytes(bytes @ 1..=1_000_000) => Ok(bytes as u32),
                        _ => field.wrong("expected 1 B to 1 MB"),
                    }
                })?,
            };
            (limit(FQ_CODEL_LIMIT)?, Discipline::FqCoDel(spec))
        }
    };
    Ok(QueueSpec { limit, discipline })
}

/// A span of more than nothing.
fn some_time(field: Field<'_, '_>) -> Read<Span> {
    match field.quantity(TIME)? {
        Span::ZERO => field.wrong("expected more than no time"),
        span => Ok(span),
    }
}

fn red(table: Table<'_, '_>, default: RedSpec) -> Read<RedSpec> {
    let size = |key| {
        table
            .get(key)
            .map(|field| field.quantity::<QueueLimit>(SIZE))
            .transpose()
    };
    let min = size("min")?;
    let max = size("max")?.or(match min {
        Some(QueueLimit::Packets(min)) => Some(QueueLimit::Packets(min.saturating_mul(3))),
        Some(QueueLimit::Bytes(min)) => Some(QueueLimit::Bytes(min.saturating_mul(3))),
        _ => None,
    });
    let thresholds = match (min, max) {
        (None, None) => default.thresholds,
        (Some(min), Some(max))
            if matches!(
                (min, max),
                (QueueLimit::Packets(a), QueueLimit::Packets(b))
                | (QueueLimit::Bytes(a), QueueLimit::Bytes(b)) if a < b
            ) =>
        {
            Some((min, max))
        }
        _ => {
            return table
                .get("max")
                .or(table.get("min"))
                .expect("one is there")
                .wrong("expected `min` less than `max`, both in packets or both in bytes");
        }
    };
    let more_than_none = |field: Field<'_, '_>| match field.probability()? {
        Probability::ZERO => field.wrong("got 0, expected more"),
        probability => Ok(probability),
    };
    Ok(RedSpec {
        thresholds,
        max_probability: table.or("max_probability", default.max_probability, more_than_none)?,
        weight: table.or("weight", default.weight, |field| {
            more_than_none(field).map(Some)
        })?,
        gentle: table.or("gentle", default.gentle, |field| field.boolean())?,
        target: table.or("target", default.target, some_time)?,
        ecn: table.or("ecn", default.ecn, |field| field.boolean())?,
        ..default
    })
}

fn codel(table: Table<'_, '_>, default: CoDelSpec) -> Read<CoDelSpec> {
    Ok(CoDelSpec {
        target: table.or("target", default.target, some_time)?,
        interval: table.or("interval", default.interval, some_time)?,
        ecn: table.or("ecn", default.ecn, |field| field.boolean())?,
    })
}

fn pie(table: Table<'_, '_>) -> Read<PieSpec> {
    let default = PieSpec::default();
    let weight = |key, default| {
        table.or(key, default, |field| {
            match field.number("a number from 0 to 1000")? {
                weight if (0.0..=1000.0).contains(&weight) => Ok(weight),
                weight => field.wrong(format_args!("got {weight}, expected 0 to 1000")),
            }
        })
    };
    Ok(PieSpec {
        target: table.or("target", default.target, some_time)?,
        update: table.or("update", default.update, some_time)?,
        max_burst: table.or("max_burst", default.max_burst, |field| field.quantity(TIME))?,
        alpha: weight("alpha", default.alpha)?,
        beta: weight("beta", default.beta)?,
        ecn: table.or("ecn", default.ecn, |field| field.boolean())?,
        mark_below: table.or("mark_below", default.mark_below, |field| {
            field.probability()
        })?,
    })
}

fn policer(field: Field<'_, '_>) -> Read<PolicerSpec> {
    let table = field.table(
        "a table such as { rate = \"12 Mbit/s\", burst = \"30 kB\" }",
        &["rate", "burst"],
    )?;
    let burst = table.need("burst")?;
    let burst_bytes = match burst.quantity("a size such as \"30 kB\"")? {
        QueueLimit::Bytes(bytes) if bytes >= crate::path::FULL_PACKET_BYTES => bytes,
        QueueLimit::Packets(packets) => packets.saturating_mul(crate::path::FULL_PACKET_BYTES),
        _ => return burst.wrong("expected at least one packet of 1500 bytes, such as \"30 kB\""),
    };
    Ok(PolicerSpec {
        rate: table.need("rate")?.quantity(RATE)?,
        burst_bytes,
    })
}

fn aggregation(field: Field<'_, '_>) -> Read<AggregationSpec> {
    let (kind, table) = field.kind(&[
        ("interval", &["interval"]),
        ("count", &["packets", "within"]),
    ])?;
    if kind == "interval" {
        return Ok(AggregationSpec::Interval(some_time(
            table.need("interval")?,
        )?));
    }
    Ok(AggregationSpec::Count {
        packets: table.need("packets")?.whole(1, 1_000_000)?,
        within: some_time(table.need("within")?)?,
    })
}

fn schedule(field: Field<'_, '_>) -> Read<Vec<Change>> {
    let mut changes: Vec<Change> = Vec::new();
    for item in field.list("tables, each under [[schedule]]")? {
        let table = item.table("a table", &["at", "rate", "delay", "loss"])?;
        let at = table.need("at")?;
        let change = Change {
            at: some_time(at)?,
            rate: table
                .get("rate")
                .map(|field| field.quantity(RATE))
                .transpose()?,
            delay: table.get("delay").map(delay).transpose()?,
            loss: table.get("loss").map(loss).transpose()?,
        };
        if changes.last().is_some_and(|last| change.at <= last.at) {
            return at.wrong("expected changes in the order of their time, no two at once");
        }
        if change.rate.is_none() && change.delay.is_none() && change.loss.is_none() {
            return item.wrong("got nothing that changes, expected `rate`, `delay` or `loss`");
        }
        changes.push(change);
    }
    Ok(changes)
}

/// The path as TOML, every default written out; tables within it are called `prefix` and their name.
pub(crate) fn write(path: &Path, prefix: &str) -> String {
    let name = toml::Value::from(path.name.as_str());
    // without a rate of its own, the way back has that of forward
    let unlimited = match (&path.forward.rate, &path.reverse.rate) {
        (Some(_), None) => "rate = \"unlimited\"\n",
        _ => "",
    };
    format!(
        "name = {name}\n{}{}\n[{prefix}reverse]\n{unlimited}{}{}",
        write_direction(&path.forward),
        write_schedule(&format!("{prefix}schedule"), &path.forward.schedule),
        write_direction(&path.reverse),
        write_schedule(&format!("{prefix}reverse.schedule"), &path.reverse.schedule),
    )
}

fn write_direction(direction: &Direction) -> String {
    let mut text = String::new();
    if let Some(rate) = &direction.rate {
        text += &format!("rate = {}\n", write_rate(rate));
    }
    text += &format!(
        "delay = {}\nloss = {}\nqueue = {}\n",
        write_delay(&direction.delay),
        write_loss(&direction.loss),
        write_queue(&direction.queue),
    );
    if let Some(PolicerSpec { rate, burst_bytes }) = &direction.policer {
        text += &format!("policer = {{ rate = \"{rate}\", burst = \"{burst_bytes} B\" }}\n");
    }
    match &direction.aggregation {
        None => {}
        Some(AggregationSpec::Interval(interval)) => {
            text +=
                &format!("aggregation = {{ kind = \"interval\", interval = \"{interval}\" }}\n");
        }
        Some(AggregationSpec::Count { packets, within }) => {
            text += &format!(
                "aggregation = {{ kind = \"count\", packets = {packets}, within = \"{within}\" }}\n"
            );
        }
    }
    text
}

fn write_rate(rate: &LinkSpec) -> String {
    match rate {
        LinkSpec::Constant(rate) => format!("\"{rate}\""),
        LinkSpec::Poisson(rate) => format!("{{ kind = \"poisson\", rate = \"{rate}\" }}"),
        LinkSpec::Mahimahi(trace) => {
            let moments = join(trace.opportunities_ms().iter());
            format!("{{ kind = \"mahimahi\", opportunities_ms = [{moments}] }}")
        }
        LinkSpec::Steps(steps) => {
            let items = join(steps.steps().iter().map(|(at, rate)| {
                let rate = rate.map_or("0 bit/s".into(), |rate| rate.to_string());
                format!("[\"{}\", \"{rate}\"]", at.since(Time::ZERO))
            }));
            let period = steps
                .period()
                .map_or(String::new(), |period| format!(", period = \"{period}\""));
            format!("{{ kind = \"steps\", steps = [{items}]{period} }}")
        }
    }
}

fn write_delay(delay: &DelaySpec) -> String {
    match delay {
        DelaySpec::Fixed(delay) => format!("\"{delay}\""),
        DelaySpec::Jitter(Jitter {
            base,
            jitter,
            distribution,
            reorder,
        }) => {
            let distribution = match distribution {
                Distribution::Uniform => "uniform",
                Distribution::Exponential => "exponential",
            };
            format!(
                "{{ kind = \"jitter\", base = \"{base}\", jitter = \"{jitter}\", \
                 distribution = \"{distribution}\", reorder = {reorder} }}"
            )
        }
    }
}

fn write_loss(loss: &LossSpec) -> String {
    match loss {
        LossSpec::Iid(probability) => format!("{:?}", probability.value()),
        LossSpec::GilbertElliott(spec) => format!(
            "{{ kind = \"gilbert-elliott\", good_to_bad = {:?}, bad_to_good = {:?}, \
             loss_good = {:?}, loss_bad = {:?} }}",
            spec.good_to_bad.value(),
            spec.bad_to_good.value(),
            spec.loss_good.value(),
            spec.loss_bad.value()
        ),
        LossSpec::Periodic(Periodic { every, first }) => {
            format!("{{ kind = \"periodic\", every = {every}, first = {first} }}")
        }
        LossSpec::Bursts(bursts) => {
            let packets = bursts.packets.iter().map(|(a, b)| format!("[{a}, {b}]"));
            let times = bursts.times.iter().map(|(a, b)| {
                format!("[\"{}\", \"{}\"]", a.since(Time::ZERO), b.since(Time::ZERO))
            });
            let (packets, times) = (join(packets), join(times));
            format!("{{ kind = \"bursts\", packets = [{packets}], times = [{times}] }}")
        }
    }
}

fn write_queue(queue: &QueueSpec) -> String {
    let limit = queue.limit;
    match &queue.discipline {
        Discipline::DropTail => format!("\"{limit}\""),
        Discipline::DropHead => format!("{{ kind = \"drophead\", limit = \"{limit}\" }}"),
        Discipline::Red(spec) => {
            let mut text = if spec.adaptive {
                format!(
                    "{{ kind = \"adaptive-red\", limit = \"{limit}\", target = \"{}\"",
                    spec.target
                )
            } else {
                format!("{{ kind = \"red\", limit = \"{limit}\"")
            };
            if let Some((min, max)) = &spec.thresholds {
                let _ = write!(text, ", min = \"{min}\", max = \"{max}\"");
            }
            if let Some(weight) = &spec.weight {
                let _ = write!(text, ", weight = {:?}", weight.value());
            }
            let (p, gentle, ecn) = (spec.max_probability.value(), spec.gentle, spec.ecn);
            text + &format!(", max_probability = {p:?}, gentle = {gentle}, ecn = {ecn} }}")
        }
        Discipline::CoDel(spec) => {
            format!(
                "{{ kind = \"codel\", limit = \"{limit}\", {} }}",
                write_codel(spec)
            )
        }
        Discipline::Pie(spec) => format!(
            "{{ kind = \"pie\", limit = \"{limit}\", target = \"{}\", update = \"{}\", \
             max_burst = \"{}\", alpha = {:?}, beta = {:?}, ecn = {}, mark_below = {:?} }}",
            spec.target,
            spec.update,
            spec.max_burst,
            spec.alpha,
            spec.beta,
            spec.ecn,
            spec.mark_below.value()
        ),
        Discipline::FqCoDel(spec) => format!(
            "{{ kind = \"fq-codel\", limit = \"{limit}\", {}, flows = {}, quantum = \"{} B\" }}",
            write_codel(&spec.codel),
            spec.flows,
            spec.quantum_bytes
        ),
    }
}

fn write_codel(spec: &CoDelSpec) -> String {
    let CoDelSpec {
        target,
        interval,
        ecn,
    } = spec;
    format!("target = \"{target}\", interval = \"{interval}\", ecn = {ecn}")
}

fn write_schedule(name: &str, changes: &[Change]) -> String {
    let mut text = String::new();
    for change in changes {
        text += &format!("\n[[{name}]]\nat = \"{}\"\n", change.at);
        if let Some(rate) = &change.rate {
            text += &format!("rate = \"{rate}\"\n");
        }
        if let Some(delay) = &change.delay {
            text += &format!("delay = {}\n", write_delay(delay));
        }
        if let Some(loss) = &change.loss {
            text += &format!("loss = {}\n", write_loss(loss));
        }
    }
    text
}

/// Written one by one, for a trace may have millions.
fn join(items: impl Iterator<Item = impl Display>) -> String {
    let mut text = String::new();
    for (index, item) in items.enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}{item}");
    }
    text
}
