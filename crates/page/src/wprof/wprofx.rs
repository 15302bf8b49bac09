//! Graphs that WProfX writes (<https://github.com/jnejati/WProfX>), the successor of WProf (Wang et al., NSDI 2013).
//!
//! A list of groups, one for each URL, with activities that have `activityId`, such as `Networking_0`, and `startTime`
//! and `endTime` in milliseconds after the page began. The group `Deps` has the dependencies: `time` is -1 if `a2` waits
//! for all of `a1`, else the moment, in the same milliseconds, when `a2` began in the course of `a1`. An activity may
//! also be written as a pair of its name and the rest, or stand under its name in an object.
//!
//! Work nests: a parser runs scripts, which force layouts. The time of an activity is that of its own, without what runs
//! within it. What `Rendering` and `Painting` wait for is not in the file: those of at least 10 ms wait for what ended
//! last before them, others are left out. Nor is known when the load event came.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use super::{Activities, Link};
use crate::compute::{Activity, Computation, Dependency, Ends};
use crate::har::date::date;
use crate::har::graph::Recorded;
use crate::har::raw::{Content, Entry, Number, Or, Request, Response, Text, Timings};
use crate::har::{HarError, HarPage};

/// The kinds of activities, which their names begin with.
const KINDS: [&str; 5] = [
    "Networking",
    "Loading",
    "Scripting",
    "Rendering",
    "Painting",
];
/// Rendering and painting that is shorter is left out.
const SHORTEST_MS: f64 = 10.0;
const LONGEST_MS: f64 = 1e9;

/// An activity, a dependency or a group of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Record {
    activity_id: Text,
    url: Text,
    start_time: Number,
    end_time: Number,
    response_received_time: Number,
    transfer_size: Number,
    mime_type: Text,
    status_code: Number,
    a1: Text,
    a2: Text,
    time: Number,
    objs: Item,
    deps: Item,
}

#[derive(Debug, Default)]
enum Item {
    Record(Box<Record>),
    List(Vec<Self>),
    Name(String),
    #[default]
    Other,
}

struct AnyItem;

impl<'de> Visitor<'de> for AnyItem {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, items: A) -> Result<Item, A::Error> {
        let record = Record::deserialize(MapAccessDeserializer::new(items))?;
        Ok(Item::Record(Box::new(record)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Item, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Item::List(list))
    }

    fn visit_str<E>(self, text: &str) -> Result<Item, E> {
        Ok(kind(text).map_or(Item::Other, |_| Item::Name(text.into())))
    }

    fn visit_unit<E>(self) -> Result<Item, E> {
        Ok(Item::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Item, E> {
        Ok(Item::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Item, E> {
        Ok(Item::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Item, E> {
        Ok(Item::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Item, E> {
        Ok(Item::Other)
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyItem)
    }
}

/// All of a file, without its groups.
#[derive(Default)]
struct Found {
    downloads: Vec<Record>,
    computations: Vec<Record>,
    links: Vec<Link>,
    /// Rendering and painting that was left out.
    short: usize,
}

impl Found {
    /// Takes what is in an item; `name` is what it stands under.
    fn take(&mut self, item: Item, name: Option<&str>) {
        match item {
            Item::Record(record) => self.take_record(*record, name),
            Item::List(mut items) => {
                let pair = match &items[..] {
                    [Item::Name(name), Item::Record(_)] => Some(name.clone()),
                    _ => None,
                };
                if let Some(name) = pair {
                    let record = items.pop().unwrap_or_default();
                    return self.take(record, Some(&name));
                }
                for item in items {
                    self.take(item, None);
                }
            }
            Item::Name(_) | Item::Other => {}
        }
    }

    fn take_record(&mut self, mut record: Record, name: Option<&str>) {
        let (objs, deps) = (
            std::mem::take(&mut record.objs),
            std::mem::take(&mut record.deps),
        );
        self.take(objs, None);
        self.take(deps, None);
        if record.activity_id.get().is_none() {
            record.activity_id = Text::of(name);
        }
        if record.a1.get().is_some() && record.a2.get().is_some() {
            self.links.push(Link {
                a1: record.a1,
                a2: record.a2,
                time: record.time,
            });
            return;
        }
        match record.activity_id.get().and_then(kind) {
            Some("Networking") => self.downloads.push(record),
            Some("Rendering" | "Painting") if time_ms(&record) < SHORTEST_MS => self.short += 1,
            Some(_) => self.computations.push(record),
            None => {}
        }
    }
}

/// The kind of an activity, if it is a name of one.
pub fn kind(name: &str) -> Option<&'static str> {
    let (kind, _) = name.split_once('_')?;
    KINDS.into_iter().find(|one| *one == kind)
}

/// A time of the file, not longer than is believed.
fn ms(number: Number) -> f64 {
    number.positive().min(LONGEST_MS)
}

fn time_ms(record: &Record) -> f64 {
    (ms(record.end_time) - ms(record.start_time)).max(0.0)
}

/// Reads a graph as one page.
///
/// # Errors
/// A [`HarError`] if it is no such graph or is cut off, for the dependencies stand at its end; if it has no download;
/// if an activity waits for itself.
pub fn read(text: &[u8]) -> Result<Vec<HarPage>, HarError> {
    let wrong = |message: String| HarError {
        entry: None,
        message,
    };
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut found = Found::default();
    let cut = |error: serde_json::Error| wrong(format!("is not a graph of WProfX: {error}"));
    if text.trim_ascii_start().starts_with(b"{") {
        let items: BTreeMap<String, Item> = serde_json::from_slice(text).map_err(cut)?;
        for (name, item) in items {
            found.take(item, Some(&name));
        }
    } else {
        found.take(serde_json::from_slice(text).map_err(cut)?, None);
    }
    if found.downloads.is_empty() {
        return Err(wrong(
            "the graph has no downloads (activities such as Networking_0)".into(),
        ));
    }
    let start = |one: &Record| ms(one.start_time);
    found
        .downloads
        .sort_by(|a, b| start(a).total_cmp(&start(b)));
    // what contains others comes before them
    found.computations.sort_by(|a, b| {
        let by_start = start(a).total_cmp(&start(b));
        by_start.then(time_ms(b).total_cmp(&time_ms(a)))
    });
    let short = found.short;
    let mut made = activities(&found).page(|recorded| painted(&found, recorded))?;
    if short > 0 {
        let message = format!(
            "{short} activities of rendering and painting were left out: each is shorter than 10 ms"
        );
        made.page.warnings.push(message);
    }
    Ok(vec![made.page])
}

fn activities(found: &Found) -> Activities {
    let mut activities = Activities::default();
    for (entry, record) in found.downloads.iter().enumerate() {
        activities.archive.entries.push(request(record));
        activities.without_size += usize::from(record.transfer_size.get().is_none());
        activities.name(&record.activity_id, Activity::Resource(entry));
    }
    let times_ms = own_times_ms(&found.computations);
    for (number, (record, ms)) in found.computations.iter().zip(times_ms).enumerate() {
        activities.name(&record.activity_id, Activity::Computation(number));
        activities.computations.push(Computation {
            time_s: ms / 1e3,
            blocks_load: true,
        });
    }
    for link in &found.links {
        if let Some((of, then)) = activities.ends_of(link) {
            let record = match of {
                Activity::Resource(entry) => &found.downloads[entry],
                Activity::Computation(number) => &found.computations[number],
            };
            activities
                .dependencies
                .push(dependency(link.time, record, of, then));
        }
    }
    activities
}

/// Of each activity, the time without what runs within it; they are in the order in which they begin.
fn own_times_ms(records: &[Record]) -> Vec<f64> {
    let mut own_ms: Vec<f64> = records.iter().map(time_ms).collect();
    let mut around: Vec<(usize, f64)> = Vec::new();
    for (number, record) in records.iter().enumerate() {
        let begin_ms = ms(record.start_time);
        let end_ms = begin_ms + time_ms(record);
        while around
            .pop_if(|(_, until_ms)| *until_ms <= begin_ms)
            .is_some()
        {}
        if let Some((outer, until_ms)) = around.last() {
            own_ms[*outer] = (own_ms[*outer] - (end_ms.min(*until_ms) - begin_ms)).max(0.0);
        }
        around.push((number, end_ms));
    }
    own_ms
}

/// When the first byte of a response came, and the last.
fn first_and_last_ms(record: &Record) -> (f64, f64) {
    let asked_ms = ms(record.start_time);
    let last_ms = asked_ms + time_ms(record);
    let first_ms = record.response_received_time.get().unwrap_or(last_ms);
    (first_ms.clamp(asked_ms, last_ms), last_ms)
}

fn request(record: &Record) -> Entry {
    let asked_ms = ms(record.start_time);
    let (first_ms, last_ms) = first_and_last_ms(record);
    let timings = Timings {
        wait: Number::of(Some(first_ms - asked_ms)),
        receive: Number::of(Some(last_ms - first_ms)),
        ..Timings::default()
    };
    let content = Content {
        mime_type: record.mime_type.clone(),
        ..Content::default()
    };
    let status = record.status_code.get().unwrap_or(200.0);
    Entry {
        started_date_time: date(asked_ms / 1e3),
        time: Number::of(Some(last_ms - asked_ms)),
        request: Or(Request {
            url: record.url.clone(),
            ..Request::default()
        }),
        response: Or(Response {
            status: Number::of(Some(status)),
            body_size: record.transfer_size,
            content: Or(content),
            ..Response::default()
        }),
        timings: Or(timings),
        ..Entry::default()
    }
}

/// That `then` waits for what `record` is of: for all of it, or until a moment in the course of it.
fn dependency(time: Number, record: &Record, of: Activity, then: Activity) -> Dependency {
    let (first_ms, end_ms) = match of {
        Activity::Resource(_) => first_and_last_ms(record),
        Activity::Computation(_) => {
            let begin_ms = ms(record.start_time);
            (begin_ms, begin_ms + time_ms(record))
        }
    };
    let (at, wait_ms) = match time.get().filter(|ms| *ms >= 0.0) {
        None => (1.0, 0.0),
        Some(at_ms) if at_ms >= end_ms => (1.0, at_ms - end_ms),
        Some(at_ms) => (
            ((at_ms - first_ms) / (end_ms - first_ms)).clamp(0.0, 1.0),
            0.0,
        ),
    };
    Dependency {
        of,
        at,
        wait_s: wait_ms / 1e3,
        then,
    }
}

/// What rendering and painting waits for, of which the file has no dependency.
fn painted(found: &Found, recorded: &Recorded) -> Vec<Dependency> {
    let first = &found.downloads[recorded.times[0].entry - 1];
    let computations = found.computations.iter();
    let moments = computations.map(|one| {
        let begin_s = (ms(one.start_time) - ms(first.start_time)) / 1e3;
        (begin_s, begin_s + time_ms(one) / 1e3)
    });
    let moments: Vec<_> = moments.collect();
    let ends = Ends::new(&recorded.times, &moments);
    let named: HashSet<_> = found
        .links
        .iter()
        .filter_map(|link| link.a2.get())
        .collect();
    let computations = found.computations.iter().enumerate();
    let causes = computations.filter_map(|(number, record)| {
        let name = record.activity_id.get()?;
        if !matches!(kind(name), Some("Rendering" | "Painting")) || named.contains(name) {
            return None;
        }
        let (begin_s, then) = (moments[number].0, Activity::Computation(number));
        // before anything has ended, there is only the document
        let document = || Dependency {
            of: Activity::Resource(0),
            at: recorded.times[0].share_at(begin_s),
            wait_s: 0.0,
            then,
        };
        Some(ends.before(begin_s, then).unwrap_or_else(document))
    });
    causes.collect()
}
