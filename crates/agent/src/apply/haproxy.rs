//! HAProxy's map of prefixes to pools, by its runtime API: a new version of the map is made, filled, and committed in
//! one step. HAProxy looks prefixes up longest first (`map_ip`), for new connections only.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use pathcast_control::Prefix;

use crate::hands::{Hands, ask_haproxy};
use crate::plan::Plan;
use crate::settings::Haproxy;

/// Bytes of one command: HAProxy's buffer (tune.bufsize) is 16 KiB, less some room.
const MOST_BYTES: usize = 12 << 10;

/// A map that is filled and not yet in use.
#[derive(Debug)]
pub(crate) struct Prepared {
    version: String,
    text: String,
}

/// The lines of a map.
fn text(map: &BTreeMap<Prefix, String>, whole: Option<&str>) -> String {
    let mut text = String::new();
    // HAProxy's configuration has the pool of unknown clients; another one takes both halves of all addresses
    if let Some(pool) = whole {
        for half in ["0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"] {
            text += &format!("{half} {pool}\n");
        }
    }
    for (prefix, pool) in map {
        text += &format!("{prefix} {pool}\n");
    }
    text
}

fn refused(command: &str, answer: &str) -> io::Error {
    let command = command.lines().next().unwrap_or("");
    let answer: Vec<&str> = answer.split_whitespace().collect();
    io::Error::other(format!("haproxy: {command}: {}", answer.join(" ")))
}

/// Makes a new version of the map. Nothing uses it yet; on failure it is emptied.
pub(crate) fn prepare(
    hands: &Hands,
    haproxy: &Haproxy,
    plan: &Plan,
    usual: &str,
) -> io::Result<Prepared> {
    let whole = plan.default_pool.as_deref().filter(|pool| *pool != usual);
    prepare_text(hands, haproxy, text(&plan.map, whole))
}

/// The same, from the lines of a map.
pub(crate) fn prepare_text(hands: &Hands, haproxy: &Haproxy, text: String) -> io::Result<Prepared> {
    let map = haproxy.map.display();
    let command = format!("prepare map {map}");
    let answer = hands.haproxy(&haproxy.socket, &command)?;
    let version = match (hands.dry, answer.strip_prefix("New version created: ")) {
        (true, _) => "VERSION".to_string(),
        (false, Some(number)) if number.trim().parse::<u64>().is_ok() => number.trim().to_string(),
        (false, _) => return Err(refused(&command, &answer)),
    };
    let mut chunk = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        chunk += line;
        chunk.push('\n');
        if lines
            .peek()
            .is_some_and(|next| chunk.len() + next.len() < MOST_BYTES)
        {
            continue;
        }
        let command = format!("add map @{version} {map} <<\n{chunk}");
        let answer = hands.haproxy(&haproxy.socket, &command)?;
        if !answer.is_empty() {
            let _ = hands.haproxy(&haproxy.socket, &format!("clear map @{version} {map}"));
            return Err(refused(&command, &answer));
        }
        chunk.clear();
    }
    Ok(Prepared { version, text })
}

/// Puts a prepared map into use, and writes its file for HAProxy's next start.
pub(crate) fn commit(hands: &Hands, haproxy: &Haproxy, prepared: &Prepared) -> io::Result<()> {
    let command = format!("commit map @{} {}", prepared.version, haproxy.map.display());
    let answer = hands.haproxy(&haproxy.socket, &command)?;
    if !answer.is_empty() {
        return Err(refused(&command, &answer));
    }
    hands.write(&haproxy.map, &prepared.text)
}

/// Gives a prepared map up.
pub(crate) fn abandon(hands: &Hands, haproxy: &Haproxy, prepared: &Prepared) {
    let clear = format!("clear map @{} {}", prepared.version, haproxy.map.display());
    // nothing uses it; HAProxy drops it with its next version
    let _ = hands.haproxy(&haproxy.socket, &clear);
}

/// The map in use, as lines of prefix and pool.
pub(crate) fn in_use(haproxy: &Haproxy) -> io::Result<Vec<String>> {
    show(&haproxy.socket, &haproxy.map)
}

fn show(socket: &Path, map: &Path) -> io::Result<Vec<String>> {
    let command = format!("show map {}", map.display());
    let answer = ask_haproxy(socket, &command)?;
    let mut lines = Vec::new();
    for line in answer.lines().filter(|line| !line.is_empty()) {
        // an entry begins with its address in memory
        match line
            .strip_prefix("0x")
            .and_then(|rest| rest.split_once(' '))
        {
            Some((_, entry)) => lines.push(entry.to_string()),
            None => return Err(refused(&command, line)),
        }
    }
    Ok(lines)
}

/// What differs between the map in use and the plan.
pub(crate) fn differences(haproxy: &Haproxy, plan: &Plan, usual: &str) -> io::Result<Vec<String>> {
    let whole = plan.default_pool.as_deref().filter(|pool| *pool != usual);
    let expected = text(&plan.map, whole);
    let mut expected: Vec<&str> = expected.lines().collect();
    let found = in_use(haproxy)?;
    let mut found: Vec<&str> = found.iter().map(String::as_str).collect();
    expected.sort_unstable();
    found.sort_unstable();
    match expected == found {
        true => Ok(Vec::new()),
        false => Ok(vec![format!(
            "haproxy's map has {} entries, expected {} with the configuration's pools",
            found.len(),
            expected.len()
        )]),
    }
}
