//! The text form of a path: reads and writes its keys. The module of each element defines the values of its
//! key.
//!
//! `docs/reference/path-file.md` is the reference.

use toml::de::DeTable;

use crate::aggregation::AggregationSpec;
use crate::delay::DelaySpec;
use crate::link::LinkSpec;
use crate::loss::LossSpec;
use crate::path::{Change, Direction, Path};
use crate::policer::PolicerSpec;
use crate::queue::QueueLimit;
use crate::queue::QueueSpec;
use crate::reader::{Field, Loader, RATE, Read, Table};

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
        delay: DelaySpec::read(root.need("delay")?)?,
        loss: root.or("loss", LossSpec::default(), LossSpec::read)?,
        queue: QueueSpec::read(root.get("queue"), QueueLimit::Bdp(1.0))?,
        policer: root.get("policer").map(PolicerSpec::read).transpose()?,
        aggregation: root
            .get("aggregation")
            .map(AggregationSpec::read)
            .transpose()?,
        schedule: root.or("schedule", Vec::new(), schedule)?,
    };
    let Some(field) = root.get("reverse") else {
        let reverse = Direction {
            rate: forward.rate.clone(),
            delay: forward.delay,
            loss: LossSpec::default(),
            queue: QueueSpec::read(None, QueueLimit::Unlimited)?,
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
        delay: own_delay.map_or(Ok(forward.delay), DelaySpec::read)?,
        loss: back.or("loss", LossSpec::default(), LossSpec::read)?,
        queue: QueueSpec::read(back.get("queue"), QueueLimit::Unlimited)?,
        policer: back.get("policer").map(PolicerSpec::read).transpose()?,
        aggregation: back
            .get("aggregation")
            .map(AggregationSpec::read)
            .transpose()?,
        schedule: back.or("schedule", changes, schedule)?,
    };
    Ok(Path {
        name,
        forward,
        reverse,
    })
}

/// The changes that the reverse direction inherits: of its rate and its delay, where these are the forward
/// direction's.
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

/// A rate, or none if it is `unlimited`. Without the key, the reverse direction has the forward rate.
fn rate_if_any(field: Field<'_, '_>, load: &mut Loader<'_>) -> Read<Option<LinkSpec>> {
    match field.text("a rate") {
        Ok("unlimited") => Ok(None),
        _ => LinkSpec::read(field, load).map(Some),
    }
}

fn schedule(field: Field<'_, '_>) -> Read<Vec<Change>> {
    let mut changes: Vec<Change> = Vec::new();
    for item in field.list("tables, each under [[schedule]]")? {
        let table = item.table("a table", &["at", "rate", "delay", "loss"])?;
        let at = table.need("at")?;
        let change = Change {
            at: at.some_time()?,
            rate: table
                .get("rate")
                .map(|field| field.quantity(RATE))
                .transpose()?,
            delay: table.get("delay").map(DelaySpec::read).transpose()?,
            loss: table.get("loss").map(LossSpec::read).transpose()?,
        };
        if changes.last().is_some_and(|last| change.at <= last.at) {
            return at
                .wrong("expected changes in the order of their time, no two at the same time");
        }
        if change.rate.is_none() && change.delay.is_none() && change.loss.is_none() {
            return item.wrong("got nothing that changes, expected `rate`, `delay` or `loss`");
        }
        changes.push(change);
    }
    Ok(changes)
}

/// Which defaults are written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defaults {
    /// All: the text states everything.
    All,
    /// Only those that depend on no other key. A key that is changed in this text changes what depends on it.
    Independent,
}

/// The path as TOML; tables within it are called `prefix` and their name.
pub(crate) fn write(path: &Path, prefix: &str, defaults: Defaults) -> String {
    let name = toml::Value::from(path.name.as_str());
    let (forward, reverse) = (&path.forward, &path.reverse);
    let all = defaults == Defaults::All;
    let (own_rate, own_delay) = (reverse.rate != forward.rate, reverse.delay != forward.delay);
    let rate = match &reverse.rate {
        // without a rate of its own, the reverse direction has the forward rate
        None if forward.rate.is_some() => "rate = \"unlimited\"\n".into(),
        rate if all || own_rate => write_rate(rate.as_ref()),
        _ => String::new(),
    };
    let delay = match all || own_delay {
        true => write_delay(reverse.delay),
        false => String::new(),
    };
    let derived = inherited(&forward.schedule, !own_rate, !own_delay);
    let schedule = match &reverse.schedule[..] {
        schedule if !all && schedule == derived => String::new(),
        [] if !all => "schedule = []\n".into(),
        schedule => write_schedule(&format!("{prefix}reverse.schedule"), schedule),
    };
    format!(
        "name = {name}\n{}{}{}{}\n[{prefix}reverse]\n{rate}{delay}{}{schedule}",
        write_rate(forward.rate.as_ref()),
        write_delay(forward.delay),
        write_elements(forward),
        write_schedule(&format!("{prefix}schedule"), &forward.schedule),
        write_elements(reverse),
    )
}

fn write_rate(rate: Option<&LinkSpec>) -> String {
    rate.map_or_else(String::new, |rate| format!("rate = {}\n", rate.to_toml()))
}

fn write_delay(delay: DelaySpec) -> String {
    format!("delay = {}\n", delay.to_toml())
}

fn write_elements(direction: &Direction) -> String {
    let mut text = format!(
        "loss = {}\nqueue = {}\n",
        direction.loss.to_toml(),
        direction.queue.to_toml(),
    );
    if let Some(policer) = direction.policer {
        text += &format!("policer = {}\n", policer.to_toml());
    }
    if let Some(aggregation) = direction.aggregation {
        text += &format!("aggregation = {}\n", aggregation.to_toml());
    }
    text
}

fn write_schedule(name: &str, changes: &[Change]) -> String {
    let mut text = String::new();
    for change in changes {
        text += &format!("\n[[{name}]]\nat = \"{}\"\n", change.at);
        if let Some(rate) = &change.rate {
            text += &format!("rate = \"{rate}\"\n");
        }
        if let Some(delay) = &change.delay {
            text += &format!("delay = {}\n", delay.to_toml());
        }
        if let Some(loss) = &change.loss {
            text += &format!("loss = {}\n", loss.to_toml());
        }
    }
    text
}
