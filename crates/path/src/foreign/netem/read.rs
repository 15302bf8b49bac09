//! Reads tc commands.
//!
//! A device is a direction: the first one is forward, a second one reverse. Of one device, packets leave netem
//! for the link and its queue, in whatever order the qdiscs are nested: a path puts the same delay behind them.

use std::collections::BTreeMap;

use pathcast_base::{Bandwidth, Probability, Span};

use super::qdisc::{Netem, TX_QUEUE, Words, netem, queue, tbf};
use super::quantity::{rate, size};
use crate::delay::DelaySpec;
use crate::link::LinkSpec;
use crate::loss::LossSpec;
use crate::packet::FULL_PACKET_BYTES;
use crate::path::{Direction, Path};
use crate::policer::PolicerSpec;
use crate::queue::QueueLimit;
use crate::queue::{Discipline, QueueSpec};

/// What tc commands say.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandLines {
    /// Forward is the first device that they name, reverse the second; without a second, reverse has no limits.
    pub path: Path,
    /// What was understood but left out, in words.
    pub left_out: Vec<String>,
}

/// netem's limit where none is given, in packets.
const NETEM_LIMIT: u64 = 1000;
/// A limit of at least this many packets counts as no limit.
const NO_LIMIT: u64 = 1_000_000;
/// What a device does with packets.
#[derive(Clone, Debug, Default)]
struct Device {
    netem: Option<Netem>,
    /// Of tbf: its rate and the bytes that may wait.
    tbf: Option<(Bandwidth, u64)>,
    queue: Option<QueueSpec>,
    policer: Option<PolicerSpec>,
    /// Classes of htb by name: parent and rate.
    classes: BTreeMap<String, (String, Bandwidth)>,
    /// Names that something may be put under.
    handles: Vec<String>,
    /// Classes that have qdiscs.
    used: Vec<String>,
}

/// Reads tc commands, one a line or separated by `;` or `&&`; also `netem ...` alone.
///
/// # Errors
/// What was got and what is understood, if a command, a qdisc or a value is not.
pub fn read(text: &str) -> Result<CommandLines, String> {
    let (mut devices, mut left_out) = (Vec::<(String, Device)>::new(), Vec::new());
    for command in commands(text) {
        let mut words = &command[..];
        while words.first().is_some_and(|word| word == "sudo") {
            words = &words[1..];
        }
        let name = words
            .first()
            .map_or("", |word| word.rsplit('/').next().unwrap_or(word));
        match name {
            "" => {}
            "tc" => tc(&words[1..], &mut devices, &mut left_out)?,
            "netem" => {
                let device = device_of(&mut devices, "netem")?;
                qdisc(device, "root", None, words, &mut left_out)?;
            }
            _ => {
                return Err(format!(
                    "got {:?}, expected tc commands such as `tc qdisc add dev eth0 root netem delay 20ms`",
                    words.join(" ")
                ));
            }
        }
    }
    if devices.is_empty() {
        return Err(
            "got no qdisc, expected tc commands such as `tc qdisc add dev eth0 root netem delay 20ms`".into(),
        );
    }
    let mut directions = Vec::new();
    for (name, device) in devices {
        directions.push(direction(&name, device, &mut left_out)?);
    }
    let mut directions = directions.into_iter();
    let forward = directions.next().unwrap_or_else(unlimited);
    let reverse = directions.next().unwrap_or_else(unlimited);
    let path = Path {
        name: String::new(),
        forward,
        reverse,
    };
    let checked = path.check();
    checked.map_err(|(direction, key, message)| format!("{direction} {key}: {message}"))?;
    Ok(CommandLines { path, left_out })
}

fn unlimited() -> Direction {
    Direction {
        rate: None,
        delay: DelaySpec::Fixed(Span::ZERO),
        loss: LossSpec::Iid(Probability::ZERO),
        queue: QueueSpec {
            limit: QueueLimit::Unlimited,
            discipline: Discipline::DropTail,
        },
        policer: None,
        aggregation: None,
        schedule: Vec::new(),
    }
}

/// The words of each command, without comments and quotes.
fn commands(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ");
    let mut commands = Vec::new();
    for line in text.lines() {
        let words = line.split_whitespace();
        let words: Vec<&str> = words.take_while(|word| !word.starts_with('#')).collect();
        let line = words.join(" ").replace("&&", ";");
        commands.extend(line.split(';').map(|command| {
            let words = command.split_whitespace();
            words
                .map(|word| word.trim_matches(['"', '\'']).to_string())
                .collect()
        }));
    }
    commands
}

fn device_of<'d>(
    devices: &'d mut Vec<(String, Device)>,
    name: &str,
) -> Result<&'d mut Device, String> {
    let at = match devices.iter().position(|(known, _)| known == name) {
        Some(at) => at,
        None if devices.len() < 2 => {
            devices.push((name.into(), Device::default()));
            devices.len() - 1
        }
        None => {
            let (first, second) = (&devices[0].0, &devices[1].0);
            return Err(format!(
                "got a third device, {name}, expected two at most: {first} is forward, {second} reverse"
            ));
        }
    };
    Ok(&mut devices[at].1)
}

fn tc(
    words: &[String],
    devices: &mut Vec<(String, Device)>,
    left_out: &mut Vec<String>,
) -> Result<(), String> {
    let line = format!("tc {}", words.join(" "));
    let mut words = Words {
        rest: words,
        of: line.clone(),
    };
    let (object, verb) = (words.take().unwrap_or(""), words.take().unwrap_or(""));
    if matches!(verb, "del" | "delete" | "show" | "list" | "ls") {
        left_out.push(format!("{line}: says nothing of a path"));
        return Ok(());
    }
    if !matches!(verb, "add" | "replace" | "change") {
        return Err(format!(
            "{line}: got {verb:?}, expected add, replace or change"
        ));
    }
    if !words.skip("dev") {
        return Err(format!(
            "{line}: got no device, expected `dev` and its name next"
        ));
    }
    let name = words.value("dev", |name| Ok(name.to_string()))?;
    let device = device_of(devices, &name)?;
    match object {
        "qdisc" => {
            let mut parent = None;
            let mut handle = None;
            loop {
                if words.skip("handle") {
                    handle = Some(words.value("handle", |word| Ok(word.to_string()))?);
                } else if words.skip("parent") {
                    parent = Some(words.value("parent", |word| Ok(word.to_string()))?);
                } else if let Some(word) =
                    words.take_if(|word| matches!(word, "root" | "clsact" | "ingress"))
                {
                    parent = Some(word.to_string());
                    if word != "root" {
                        return match word {
                            "clsact" => Ok(()), // holds filters, which are read
                            _ => Err(format!(
                                "{line}: got an ingress qdisc, expected what leaves a device: tc shapes nothing \
                                 that comes in"
                            )),
                        };
                    }
                } else {
                    break;
                }
            }
            let parent = parent.ok_or_else(|| format!("{line}: expected root or a parent"))?;
            qdisc(device, &parent, handle.as_deref(), words.rest, left_out)
                .map_err(|why| format!("{line}: {why}"))
        }
        "class" => class(device, &mut words, left_out),
        "filter" => filter(device, words.rest, &line, left_out),
        _ => Err(format!(
            "{line}: got {object:?}, expected qdisc, class or filter"
        )),
    }
}

/// `1:` of `1:` and of `1:10`.
fn major(handle: &str) -> &str {
    handle.split(':').next().unwrap_or(handle)
}

fn qdisc(
    device: &mut Device,
    parent: &str,
    handle: Option<&str>,
    words: &[String],
    left_out: &mut Vec<String>,
) -> Result<(), String> {
    if parent != "root" {
        let known = device.handles.iter().any(|known| known == major(parent));
        if !known {
            return Err(format!(
                "got the parent {parent}, expected the handle of a qdisc before"
            ));
        }
        if device.classes.contains_key(parent) {
            device.used.push(parent.to_string());
        }
    }
    device
        .handles
        .extend(handle.map(|handle| major(handle).to_string()));
    let Some((kind, rest)) = words.split_first() else {
        return Err("got no kind of qdisc, expected netem, tbf, htb or a queue".into());
    };
    let mut words = Words {
        rest,
        of: kind.clone(),
    };
    let twice = |there: bool| match there {
        true => Err(format!(
            "got {kind} where there is one already, expected one of a device"
        )),
        false => Ok(()),
    };
    match kind.as_str() {
        "netem" => {
            twice(device.netem.is_some())?;
            device.netem = Some(netem(&mut words, left_out)?);
        }
        "tbf" => {
            twice(device.tbf.is_some())?;
            device.tbf = Some(tbf(&mut words, left_out)?);
        }
        "htb" => {
            while let Some(word) = words.take() {
                match word {
                    "default" | "r2q" | "direct_qlen" => words.value(word, |_| Ok(()))?,
                    _ => return Err(format!("htb: got {word:?}, expected default")),
                }
            }
        }
        _ => {
            twice(device.queue.is_some())?;
            device.queue = Some(queue(kind, &mut words, left_out)?);
        }
    }
    Ok(())
}

fn class(
    device: &mut Device,
    words: &mut Words<'_>,
    left_out: &mut Vec<String>,
) -> Result<(), String> {
    let (mut parent, mut id) = (String::new(), String::new());
    let (mut least, mut most) = (None, None);
    while let Some(word) = words.take() {
        match word {
            "parent" => parent = words.value(word, |word| Ok(word.to_string()))?,
            "root" | "htb" => {}
            "classid" => id = words.value(word, |word| Ok(word.to_string()))?,
            "rate" => least = Some(words.value(word, rate)?),
            "ceil" => most = Some(words.value(word, rate)?),
            "burst" | "cburst" | "prio" | "quantum" | "mtu" | "mpu" | "overhead" => {
                words.value(word, |word| Ok(word.len()))?;
                left_out.push(format!("htb {word}: left out"));
            }
            _ => {
                return Err(format!(
                    "{}: got {word:?}, expected a class of htb",
                    words.of
                ));
            }
        }
    }
    let Some(rate) = most.or(least) else {
        return Err(format!("{}: expected the rate of a class of htb", words.of));
    };
    device.classes.insert(id, (parent, rate));
    Ok(())
}

/// A filter: of a policer, of all that leaves; others choose among classes.
fn filter(
    device: &mut Device,
    words: &[String],
    line: &str,
    left_out: &mut Vec<String>,
) -> Result<(), String> {
    let Some(at) = words.iter().position(|word| word == "police") else {
        left_out.push(format!("{line}: all packets take the same way here"));
        return Ok(());
    };
    if !words.iter().any(|word| word == "egress") {
        return Err(format!(
            "{line}: got a policer of what comes in, expected egress"
        ));
    }
    let mut words = Words {
        rest: &words[at + 1..],
        of: format!("{line}: police"),
    };
    let (mut bandwidth, mut burst) = (None, None);
    while let Some(word) = words.take() {
        match word {
            "rate" => bandwidth = Some(words.value(word, rate)?),
            "burst" | "buffer" | "maxburst" => burst = Some(words.value(word, size)?),
            "conform-exceed" => {
                let action = words.value(word, |word| Ok(word.to_string()))?;
                if !action.starts_with("drop") {
                    return Err(format!(
                        "{line}: got conform-exceed {action}, expected drop"
                    ));
                }
            }
            "drop" => {}
            _ => left_out.push(format!("{line}: {word} left out")),
        }
    }
    match (bandwidth, burst) {
        (Some(rate), Some(burst_bytes)) => {
            device.policer = Some(PolicerSpec { rate, burst_bytes });
            Ok(())
        }
        _ => Err(format!("{line}: expected rate and burst of the policer")),
    }
}

/// The rate of the one class that packets take, and of those around it.
fn class_rate(name: &str, device: &Device) -> Result<Option<Bandwidth>, String> {
    let is_leaf = |id: &&String| !device.classes.values().any(|(parent, _)| parent == *id);
    let mut leaves: Vec<&String> = device.classes.keys().filter(is_leaf).collect();
    if leaves.len() > 1 {
        // keep the devices that have netem or a queue
        leaves.retain(|leaf| device.used.contains(leaf));
    }
    let mut at = match leaves[..] {
        [] if device.classes.is_empty() => return Ok(None),
        [leaf] => leaf,
        _ => {
            return Err(format!(
                "{name}: got {} classes of htb, expected one that packets take: a path treats all alike",
                device.classes.len()
            ));
        }
    };
    let mut least: Option<Bandwidth> = None;
    for _ in 0..=device.classes.len() {
        let Some((parent, rate)) = device.classes.get(at) else {
            break;
        };
        least = Some(match least {
            Some(least) if least.as_bps() <= rate.as_bps() => least,
            _ => *rate,
        });
        at = parent;
    }
    Ok(least)
}

fn direction(name: &str, device: Device, left_out: &mut Vec<String>) -> Result<Direction, String> {
    let by_class = class_rate(name, &device)?;
    let Device {
        netem,
        tbf,
        queue,
        policer,
        ..
    } = device;
    let netem = netem.unwrap_or_default();
    let rates = [netem.rate, tbf.map(|(rate, _)| rate), by_class];
    let mut rates = rates.into_iter().flatten();
    let rate = rates.next();
    if rates.next().is_some() {
        return Err(format!(
            "{name}: got two rates, expected one of netem, tbf or htb: a path has one link; a scenario file has \
             several"
        ));
    }
    let delay = netem.delay.unwrap_or(DelaySpec::Fixed(Span::ZERO));
    let limit = netem.limit.unwrap_or(NETEM_LIMIT);
    let none = || QueueSpec {
        limit: QueueLimit::Unlimited,
        discipline: Discipline::DropTail,
    };
    let droptail = |limit| QueueSpec {
        limit,
        discipline: Discipline::DropTail,
    };
    let has_netem = netem.delay.is_some() || netem.loss.is_some() || netem.limit.is_some();
    let queue = match (rate, tbf, queue) {
        (None, _, Some(_)) => {
            left_out.push(format!(
                "{name} queue: without a rate nothing waits in it; left out"
            ));
            none()
        }
        (Some(_), Some((_, bytes)), Some(queue)) if bytes < u64::from(u32::MAX) => {
            left_out.push(format!(
                "{name} tbf limit: its own queue stands in its place"
            ));
            queue
        }
        (Some(_), _, Some(queue)) => queue,
        (Some(_), Some((_, bytes)), None) => droptail(match bytes < u64::from(u32::MAX) {
            true => QueueLimit::Bytes(bytes),
            false => QueueLimit::Unlimited,
        }),
        // the limit counts what the delay holds, too
        (Some(rate), None, None) if netem.rate.is_some() || has_netem => match limit < NO_LIMIT {
            true => {
                let mean_s = match delay {
                    DelaySpec::Fixed(delay) => delay.as_secs(),
                    DelaySpec::Jitter(jitter) => {
                        jitter.base.as_secs() + jitter.jitter.as_secs() / 2.0
                    }
                };
                let held = (rate.as_bps() * mean_s / 8.0 / FULL_PACKET_BYTES as f64).round() as u64;
                if held > 0 {
                    left_out.push(format!(
                        "{name} netem limit: {limit} packets, of which the delay holds {held} full ones; the queue \
                         has the rest"
                    ));
                }
                droptail(QueueLimit::Packets(limit.saturating_sub(held).max(1)))
            }
            false => none(),
        },
        (Some(_), None, None) => droptail(QueueLimit::Packets(TX_QUEUE)),
        (None, _, None) => none(),
    };
    if has_netem && (rate.is_none() || tbf.is_some()) && limit < NO_LIMIT {
        left_out.push(format!(
            "{name} netem limit: {limit} packets under way at most; as many as there are here"
        ));
    }
    Ok(Direction {
        rate: rate.map(LinkSpec::Constant),
        delay,
        loss: netem.loss.unwrap_or(LossSpec::Iid(Probability::ZERO)),
        queue,
        policer,
        aggregation: None,
        schedule: Vec::new(),
    })
}

#[cfg(test)]
mod tests;
