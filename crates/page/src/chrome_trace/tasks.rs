//! From the work of the page's main thread to computations, and what depends on them.
//!
//! A task waits for the scripts, styles and documents that it works on: for as much of them as had come when it began.
//! One that names none waits for what ended last before it. What the thread asked for within a task waits for the part
//! of the task before.

use std::collections::{BTreeMap, HashMap};

use pathcast_path::Span;

use super::events::{At, SHORTEST_US, Thread, Work};
use super::network::{Asked, Requests};
use crate::compute::{Activity, Computation, Dependency, Ends};
use crate::har::graph::{SOON_S, Times};
use crate::har::raw::Text;
use crate::page::{Page, Resource};

/// The most earlier loads of a URL among which the one that a task works on is looked for.
const MOST_LOADS: usize = 64;

/// A task of the main thread, in seconds after the first request.
pub struct Task {
    begin_s: f64,
    end_s: f64,
    urls: Vec<String>,
}

/// The thread of the trace that has most to do with the page: the main thread of a renderer, if threads have names;
/// that of the first request; the one that sent most requests.
pub fn main_thread(
    is_main: &BTreeMap<Thread, bool>,
    first: Option<Thread>,
    asked: &[Asked],
) -> Option<Thread> {
    let mut sent: BTreeMap<Thread, usize> = first.into_iter().map(|thread| (thread, 0)).collect();
    for thread in asked.iter().filter_map(|one| one.thread) {
        *sent.entry(thread).or_default() += 1;
    }
    let candidates = sent.into_iter().max_by_key(|(thread, count)| {
        let is_main = is_main.get(thread).copied().unwrap_or(false);
        (is_main, Some(*thread) == first, *count)
    });
    candidates.map(|(thread, _)| thread)
}

/// Work from one moment to another, on what came from a URL.
pub struct Slice<'a> {
    begin_us: f64,
    end_us: f64,
    url: Option<&'a str>,
}

/// The work of a thread, in the order in which it begins; `work` is in the order of time.
pub fn slices(work: &[At<Work>], thread: Option<Thread>) -> Vec<Slice<'_>> {
    let mut found = Vec::new();
    let mut open = Vec::new();
    for one in work.iter().filter(|one| Some(one.thread) == thread) {
        let (begin_us, end_us, url) = match &one.what {
            Work::Whole(dur_us, url) => (one.ts_us, one.ts_us + dur_us, url),
            Work::Begin(is_read, url) => {
                open.push((one.ts_us, *is_read, url));
                continue;
            }
            Work::End => match open.pop() {
                Some((begin_us, true, url)) => (begin_us, one.ts_us, url),
                _ => continue,
            },
        };
        found.push(Slice {
            begin_us,
            end_us,
            url: url.as_deref(),
        });
    }
    // what contains others comes before them
    found.sort_by(|a, b| {
        let by_begin = a.begin_us.total_cmp(&b.begin_us);
        by_begin.then(b.end_us.total_cmp(&a.end_us))
    });
    found
}

/// Names the initiators of requests of which the trace does not: the URL of the innermost work during which the thread
/// sent them.
pub fn name_initiators(slices: &[Slice<'_>], thread: Option<Thread>, requests: &mut Requests) {
    let entries = &mut requests.archive.entries;
    let mut sent: Vec<_> = entries.iter_mut().zip(&requests.asked).collect();
    sent.retain(|(entry, asked)| {
        asked.thread.is_some() && asked.thread == thread && entry.initiator.0.source().is_none()
    });
    sent.sort_by(|(_, a), (_, b)| a.at_s.total_cmp(&b.at_s));
    let mut open: Vec<&Slice<'_>> = Vec::new();
    let mut later = slices.iter().filter(|one| one.url.is_some()).peekable();
    for (entry, asked) in sent {
        let at_us = asked.at_s * 1e6;
        while let Some(one) = later.next_if(|one| one.begin_us <= at_us) {
            while open.pop_if(|outer| outer.end_us <= one.begin_us).is_some() {}
            open.push(one);
        }
        while open.pop_if(|outer| outer.end_us < at_us).is_some() {}
        if let Some(one) = open.last() {
            entry.initiator.0.url = Text::of(one.url);
        }
    }
}

/// The tasks of a thread, in order, each with all work within it; `begin_s` is the moment of the first request.
pub fn of_slices(slices: &[Slice<'_>], begin_s: f64) -> Vec<Task> {
    let mut tasks: Vec<(f64, f64, Vec<String>)> = Vec::new();
    for one in slices {
        let url = one.url.map(String::from);
        match tasks.last_mut() {
            Some((_, end_us, urls)) if one.begin_us < *end_us => urls.extend(url),
            _ => tasks.push((one.begin_us, one.end_us, url.into_iter().collect())),
        }
    }
    let long = tasks
        .into_iter()
        .filter(|(begin_us, end_us, _)| end_us - begin_us >= SHORTEST_US);
    let tasks = long.map(|(begin_us, end_us, mut urls)| {
        urls.sort_unstable();
        urls.dedup();
        Task {
            begin_s: begin_us / 1e6 - begin_s,
            end_s: end_us / 1e6 - begin_s,
            urls,
        }
    });
    tasks.collect()
}

/// The tasks as computations, what depends on what, and of how many tasks the causes are inferred from times alone.
pub struct Graph {
    pub computations: Vec<Computation>,
    pub dependencies: Vec<Dependency>,
    pub inferred: usize,
    /// Tasks that are more than a page may have.
    pub more: usize,
}

/// What of a page depends on tasks: `asked` has the thread that asked for each resource, if it is the tasks' one.
/// Waits of resources that tasks explain are removed.
pub fn graph(
    mut tasks: Vec<Task>,
    page: &mut Page,
    times: &[Times],
    asked: &[bool],
    on_load_s: Option<f64>,
) -> Graph {
    // what runs before anything of the page has come is not of the page
    tasks.retain(|task| task.begin_s >= times[0].first_s);
    // each resource may cut a task in two
    let most = Page::MAX_RESOURCES.saturating_sub(page.resources.len());
    let more = tasks.len().saturating_sub(most);
    tasks.truncate(most);
    let mut found = Graph {
        computations: Vec::new(),
        dependencies: Vec::new(),
        inferred: 0,
        more,
    };
    let mut loads: HashMap<&str, Vec<usize>> = HashMap::new();
    for (number, resource) in page.resources.iter().enumerate() {
        loads.entry(&resource.url).or_default().push(number);
    }
    let moments: Vec<_> = tasks
        .iter()
        .map(|task| (task.begin_s, task.end_s))
        .collect();
    let ends = Ends::new(times, &moments);
    let mut idle_since_s = 0.0;
    for (number, task) in tasks.iter().enumerate() {
        let then = Activity::Computation(number);
        let mut causes: Vec<_> = task
            .urls
            .iter()
            .filter_map(|url| load_before(loads.get(url.as_str())?, times, task.begin_s))
            .map(|of| worked_on(of, times, task.begin_s, then))
            .collect();
        if causes.is_empty() {
            found.inferred += 1;
            let before = ends.before(task.begin_s, then);
            causes.push(before.unwrap_or_else(|| worked_on(0, times, task.begin_s, then)));
        }
        wait(&mut causes, task.begin_s - idle_since_s);
        idle_since_s = task.end_s;
        found.dependencies.append(&mut causes);
        found.computations.push(Computation {
            time_s: task.end_s - task.begin_s,
            blocks_load: on_load_s.is_none_or(|load_s| task.begin_s < load_s),
        });
    }
    for (number, resource) in page.resources.iter_mut().enumerate().skip(1) {
        if asked[number] {
            let cause = started(number, resource, &moments, times[number].asked_s);
            found.dependencies.extend(cause);
        }
    }
    found
}

/// The last load of a URL of which something had come at a moment.
fn load_before(loads: &[usize], times: &[Times], at_s: f64) -> Option<usize> {
    let count = loads.partition_point(|&one| times[one].asked_s < at_s);
    let mut latest = loads[..count].iter().rev().copied().take(MOST_LOADS);
    latest.find(|&one| times[one].first_s <= at_s + SOON_S)
}

/// That a task works on a resource; the wait is the time since it came.
fn worked_on(of: usize, times: &[Times], at_s: f64, then: Activity) -> Dependency {
    Dependency {
        of: Activity::Resource(of),
        at: times[of].share_at(at_s),
        wait_s: (at_s - times[of].last_s).max(0.0),
        then,
    }
}

/// Leaves a wait only after what came last, and no longer than the thread was idle: the tasks before explain the rest.
fn wait(causes: &mut [Dependency], idle_s: f64) {
    let least_s = causes
        .iter()
        .map(|one| one.wait_s)
        .fold(f64::INFINITY, f64::min);
    let wait_s = least_s.min(idle_s);
    let mut left_s = if wait_s > SOON_S { wait_s } else { 0.0 };
    for one in causes {
        let is_last = one.wait_s <= least_s;
        one.wait_s = 0.0;
        if is_last {
            one.wait_s = std::mem::take(&mut left_s);
        }
    }
}

/// That a task asked for a resource midway.
fn started(
    number: usize,
    resource: &mut Resource,
    moments: &[(f64, f64)],
    asked_s: f64,
) -> Option<Dependency> {
    // the last task that had begun; strictly, for what it works on may have been asked for at its beginning
    let task = moments
        .partition_point(|(begin_s, _)| *begin_s < asked_s)
        .checked_sub(1)?;
    let (begin_s, end_s) = moments[task];
    if asked_s > end_s {
        return None;
    }
    for cause in &mut resource.causes {
        cause.wait = Span::ZERO;
    }
    Some(Dependency {
        of: Activity::Computation(task),
        at: (asked_s - begin_s) / (end_s - begin_s),
        wait_s: 0.0,
        then: Activity::Resource(number),
    })
}
