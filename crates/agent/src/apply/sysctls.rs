//! Sysctls of TCP, which hold for a network namespace.

use std::io;

use super::Undo;
use crate::hands::Hands;
use crate::plan::{Space, Value};
use crate::record::{Record, Setting};

/// A value as the kernel takes it, given the one before.
fn text(value: Value, before: &str) -> String {
    match value {
        Value::Flag(on) => u8::from(on).to_string(),
        Value::Number(number) => number.to_string(),
        Value::Third(third) => {
            let numbers = before
                .split_whitespace()
                .map(|word| word.parse::<u64>().unwrap_or(4096));
            let mut numbers: Vec<u64> = numbers.take(2).map(|number| number.min(third)).collect();
            numbers.resize(2, 4096.min(third));
            format!("{} {} {third}", numbers[0], numbers[1])
        }
    }
}

/// Notes the values before, and those that the plan is about to set.
pub(super) fn note(hands: &Hands, spaces: &[Space], record: &mut Record) -> io::Result<()> {
    for space in spaces {
        let key = space.namespace.clone().unwrap_or_default();
        for (name, value) in &space.sysctls {
            let settings = record.sysctls.entry(key.clone()).or_default();
            if !settings.contains_key(*name) {
                let before = hands.sysctl(space.namespace.as_deref(), name)?;
                let ours = Vec::new();
                settings.insert((*name).into(), Setting { before, ours });
            }
            if let Some(setting) = settings.get_mut(*name) {
                let ours = text(*value, &setting.before);
                if !setting.ours.contains(&ours) {
                    setting.ours.push(ours);
                }
            }
        }
    }
    Ok(())
}

/// Sets what the plan has, and puts back what an earlier one had.
pub(super) fn set<'a>(
    hands: &'a Hands,
    spaces: &[Space],
    record: &Record,
    undo: &mut Undo<'a>,
) -> io::Result<()> {
    for (namespace, settings) in &record.sysctls {
        let space = spaces
            .iter()
            .find(|space| space.namespace.as_deref().unwrap_or("") == namespace);
        let inside = Some(namespace.as_str()).filter(|name| !name.is_empty());
        for (name, setting) in settings {
            let asked = space.and_then(|space| space.sysctls.get(name.as_str()));
            let value = asked.map_or_else(
                || setting.before.clone(),
                |value| text(*value, &setting.before),
            );
            let now = match hands.sysctl(inside, name) {
                Ok(now) => now,
                // a namespace that is gone has nothing to be put back
                Err(_) if asked.is_none() => continue,
                Err(error) => return Err(error),
            };
            if now == value {
                continue;
            }
            hands.set_sysctl(inside, name, &value)?;
            let (inside, name) = (inside.map(String::from), name.clone());
            undo.push(Box::new(move || {
                hands.set_sysctl(inside.as_deref(), &name, &now)
            }));
        }
    }
    Ok(())
}

/// What differs between the values in force and the plan.
pub(super) fn differences(hands: &Hands, spaces: &[Space]) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for space in spaces {
        for (name, value) in &space.sysctls {
            let now = hands.sysctl(space.namespace.as_deref(), name)?;
            let same = match value {
                Value::Flag(_) | Value::Number(_) => now == text(*value, ""),
                Value::Third(third) => now.split(' ').nth(2) == Some(&third.to_string()),
            };
            if !same {
                let place = space.namespace.as_deref().unwrap_or("this namespace");
                found.push(format!("{place}: {name} is {now}, expected {value:?}"));
            }
        }
    }
    Ok(found)
}

/// Puts all values back that are still ours. Gives what failed, and what somebody else has changed since.
pub(super) fn restore(hands: &Hands, record: &Record) -> (Vec<String>, Vec<String>) {
    let (mut failed, mut others) = (Vec::new(), Vec::new());
    for (namespace, settings) in &record.sysctls {
        let inside = Some(namespace.as_str()).filter(|name| !name.is_empty());
        for (name, setting) in settings {
            let place = inside.unwrap_or("this namespace");
            match hands.sysctl(inside, name) {
                Ok(now) if now == setting.before => {}
                Ok(now) if setting.ours.contains(&now) => {
                    if let Err(error) = hands.set_sysctl(inside, name, &setting.before) {
                        failed.push(format!("{place}: {name}: {error}"));
                    }
                }
                Ok(now) => others.push(format!(
                    "{place}: {name} stays {now}, which somebody else has set; it was {}",
                    setting.before
                )),
                // a namespace that is gone has nothing to be put back
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => failed.push(format!("{place}: {name}: {error}")),
            }
        }
    }
    (failed, others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_of_three_is_set_and_the_others_are_not_above_it() {
        assert_eq!(
            text(Value::Third(65_536), "4096 131072 6291456"),
            "4096 65536 65536"
        );
        assert_eq!(
            text(Value::Third(1 << 20), "4096 131072 6291456"),
            "4096 131072 1048576"
        );
        assert_eq!(text(Value::Flag(false), "1"), "0");
        assert_eq!(text(Value::Number(16_384), "4294967295"), "16384");
    }
}
