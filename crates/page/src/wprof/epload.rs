//! Dependency graphs that EPLOAD replays (Wang et al., "How speedy is SPDY?", NSDI 2014), and that WProf's analysis
//! writes.
//!
//! An object has a download and computations (`comps`), which run one after another: the first when all of the object
//! has come, or its first chunk if `when_comp_start` is positive. Among activities, `time` is -1 if `a2` waits for all
//! of `a1`, else the milliseconds after the beginning of `a1`.
//!
//! A file may not say
//!
//! - the size of an object (`len`), which the graphs that come with EPLOAD lack;
//! - when a download without times allows an activity to begin midway: this is taken to be at its first byte;
//! - what the load event waits for. EPLOAD ends with the last activity, and so does the load event here, unless
//!   `load_activity` names the activity that it comes after. What a number there means is unknown.

use serde::Deserialize;

use super::{Activities, Link};
use crate::compute::{Activity, Computation, Dependency};
use crate::har::date::date;
use crate::har::raw::{Content, Entry, Number, Object, Or, Request, Response, Text, Timings};
use crate::har::{HarError, HarPage};
use crate::page::{Node, Page};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Graph {
    objs: Vec<Object<Obj>>,
    deps: Vec<Object<Link>>,
    start_activity: Text,
    load_activity: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Obj {
    url: Text,
    host: Text,
    path: Text,
    when_comp_start: Number,
    download: Object<Download>,
    comps: Vec<Object<Comp>>,
}

/// Times in milliseconds: `s_time` and `receivedTime` after the page began, others after the request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Download {
    id: Text,
    #[serde(rename = "type")]
    mime_type: Text,
    len: Number,
    s_time: Number,
    #[serde(rename = "connectStart")]
    connect_start: Number,
    #[serde(rename = "connectEnd")]
    connect_end: Number,
    #[serde(rename = "sslStart")]
    ssl_start: Number,
    #[serde(rename = "sslEnd")]
    ssl_end: Number,
    #[serde(rename = "sendEnd")]
    send_end: Number,
    #[serde(rename = "receiveHeadersEnd")]
    headers_end: Number,
    #[serde(rename = "receivedTime")]
    received_time: Number,
}

/// Times in milliseconds.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Comp {
    id: Text,
    #[serde(rename = "type")]
    kind: Text,
    time: Number,
    s_time: Number,
    e_time: Number,
}

impl Comp {
    fn time_s(&self) -> f64 {
        let said_ms = self.time.get();
        let ms = said_ms.unwrap_or_else(|| self.e_time.positive() - self.s_time.positive());
        ms.max(0.0) / 1e3
    }
}

/// Reads a graph as one page.
///
/// # Errors
/// A [`HarError`] if it is no such graph or is cut off, for a part of a graph is none; if it has no object with a URL;
/// if an activity waits for itself.
pub fn read(text: &[u8]) -> Result<Vec<HarPage>, HarError> {
    let wrong = |message: String| HarError {
        entry: None,
        message,
    };
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let graph: Graph = serde_json::from_slice(text)
        .map_err(|error| wrong(format!("is not a graph of EPLOAD: {error}")))?;
    if graph.objs.is_empty() {
        return Err(wrong("the graph has no objects (`objs`)".into()));
    }
    let mut activities = Activities::default();
    let start = start(&graph);
    for (entry, Object(obj)) in graph.objs.iter().enumerate() {
        activities
            .archive
            .entries
            .push(request(obj, entry == start));
        activities.without_size += usize::from(obj.download.0.len.get().is_none());
        activities.name(&obj.download.0.id, Activity::Resource(entry));
        add_comps(obj, entry, &mut activities);
    }
    for Object(link) in &graph.deps {
        if let Some((of, then)) = activities.ends_of(link) {
            let dependency = dependency(link.time, of, then, &activities, &graph.objs);
            activities.dependencies.push(dependency);
        }
    }
    let load = graph.load_activity.get();
    let load = load.and_then(|name| activities.names.get(name)).copied();
    activities.archive.knows_load = load.is_some();
    let mut made = activities.page(|_| Vec::new())?;
    let load = match load {
        Some(Activity::Resource(entry)) => made.of_entry[entry].map(Node::Resource),
        Some(Activity::Computation(number)) => Some(made.added.ends[number]),
        None => None,
    };
    if let Some(load) = load {
        block_before(load, &mut made.page.page);
    }
    Ok(vec![made.page])
}

/// The object that the load begins with.
fn start(graph: &Graph) -> usize {
    let mut objs = graph.objs.iter();
    let name = graph.start_activity.get();
    let named = objs.position(|Object(obj)| name.is_some() && obj.download.0.id.get() == name);
    named.unwrap_or(0)
}

/// The download of an object as an entry. All others come after the first.
fn request(obj: &Obj, is_first: bool) -> Entry {
    let download = &obj.download.0;
    let url = match (obj.url.get(), obj.host.get()) {
        (Some(url), _) => Some(url.to_string()),
        // EPLOAD asks by HTTP
        (None, Some(host)) => Some(format!("http://{host}{}", obj.path.get().unwrap_or("/"))),
        (None, None) => None,
    };
    let between = |from: Number, to: Number| Number::of(Some(to.positive() - from.positive()));
    let connect = between(download.connect_start, download.connect_end);
    let wait = between(download.send_end, download.headers_end);
    let first_ms = download.headers_end.positive();
    let last_ms = download.received_time.positive() - download.s_time.positive();
    let known_ms = connect.positive() + wait.positive();
    let timings = Timings {
        blocked: Number::of(Some((first_ms - known_ms).max(0.0))),
        connect,
        ssl: between(download.ssl_start, download.ssl_end),
        wait,
        receive: Number::of(Some((last_ms - first_ms).max(0.0))),
        ..Timings::default()
    };
    // a microsecond later than what is first
    let asked_s = match is_first {
        true => 0.0,
        false => download.s_time.positive() / 1e3 + 1e-6,
    };
    let comps = obj.comps.iter().map(|Object(comp)| comp.kind.get());
    let kind = comps.flatten().find_map(|kind| match kind {
        "evalhtml" => Some("document"),
        "evaljs" => Some("script"),
        "evalcss" => Some("stylesheet"),
        _ => None,
    });
    // EPLOAD's own graphs have "download" there
    let mime_type = download.mime_type.get().filter(|one| one.contains('/'));
    let content = Content {
        mime_type: Text::of(mime_type),
        ..Content::default()
    };
    Entry {
        started_date_time: date(asked_s),
        time: Number::of(Some(last_ms)),
        request: Or(Request {
            url: Text::of(url.as_deref()),
            ..Request::default()
        }),
        response: Or(Response {
            status: Number::of(Some(200.0)),
            body_size: download.len,
            content: Or(content),
            ..Response::default()
        }),
        timings: Or(timings),
        resource_type: Text::of(kind.filter(|_| mime_type.is_none())),
        ..Entry::default()
    }
}

/// The computations of an object: one after another, after its download.
fn add_comps(obj: &Obj, entry: usize, activities: &mut Activities) {
    let mut before = Activity::Resource(entry);
    for Object(comp) in &obj.comps {
        let then = Activity::Computation(activities.computations.len());
        activities.name(&comp.id, then);
        activities.computations.push(Computation {
            time_s: comp.time_s(),
            blocks_load: true,
        });
        let is_early = before == Activity::Resource(entry) && obj.when_comp_start.positive() > 0.0;
        activities.dependencies.push(Dependency {
            of: before,
            at: if is_early { 0.0 } else { 1.0 },
            wait_s: 0.0,
            then,
        });
        before = then;
    }
}

fn dependency(
    time: Number,
    of: Activity,
    then: Activity,
    activities: &Activities,
    objs: &[Object<Obj>],
) -> Dependency {
    let after = |at, wait_s| Dependency {
        of,
        at,
        wait_s,
        then,
    };
    let Some(time_s) = time
        .get()
        .map(|ms| ms / 1e3)
        .filter(|time_s| *time_s >= 0.0)
    else {
        return after(1.0, 0.0);
    };
    let (first_s, last_s) = match of {
        Activity::Computation(number) => (0.0, activities.computations[number].time_s),
        Activity::Resource(entry) => {
            let download = &objs[entry].0.download.0;
            let last_ms = download.received_time.positive() - download.s_time.positive();
            match last_ms > 0.0 {
                true => (
                    download.headers_end.positive().min(last_ms) / 1e3,
                    last_ms / 1e3,
                ),
                false => return after(0.0, 0.0),
            }
        }
    };
    match time_s < last_s {
        true => after(
            ((time_s - first_s) / (last_s - first_s)).clamp(0.0, 1.0),
            0.0,
        ),
        false => after(1.0, time_s - last_s),
    }
}

/// Only what `load` waits for, and itself, blocks the load event.
fn block_before(load: Node, page: &mut Page) {
    for resource in &mut page.resources {
        resource.blocks_load = false;
    }
    for task in &mut page.tasks {
        task.blocks_load = false;
    }
    page.resources[0].blocks_load = true;
    let mut left = vec![load];
    while let Some(node) = left.pop() {
        let (blocks, causes) = match node {
            Node::Resource(number) => {
                let one = &mut page.resources[number];
                (&mut one.blocks_load, &one.causes)
            }
            Node::Task(number) => {
                let one = &mut page.tasks[number];
                (&mut one.blocks_load, &one.causes)
            }
        };
        // the first resource is marked, but has no causes
        if !std::mem::replace(blocks, true) {
            left.extend(causes.iter().map(|cause| cause.of));
        }
    }
}
