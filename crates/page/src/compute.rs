//! Computations of a recording, and what depends on them, as tasks of a page.
//!
//! A task must have ended before anything that it causes begins. A computation that started something midway is
//! therefore cut there: its parts are tasks, one after another.

use pathcast_path::Span;

use crate::har::graph::{Times, span};
use crate::page::{Cause, Node, Page, Task};

/// What the browser computed without a pause.
#[derive(Clone, Copy, Debug)]
pub struct Computation {
    pub time_s: f64,
    pub blocks_load: bool,
}

/// A resource or a computation, by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    Resource(usize),
    Computation(usize),
}

/// Something after which an activity begins.
#[derive(Clone, Copy, Debug)]
pub struct Dependency {
    pub of: Activity,
    /// The share of it that must have come, or have been computed.
    pub at: f64,
    /// How much later.
    pub wait_s: f64,
    /// What waits for it.
    pub then: Activity,
}

/// What was added to a page.
pub struct Added {
    /// The last task of each computation.
    pub ends: Vec<Node>,
    /// How many activities had no dependency: they wait for the first resource.
    pub without_cause: usize,
}

/// Adds tasks and causes to a page. What has no cause afterwards waits for the first resource.
pub fn add(page: &mut Page, computations: &[Computation], dependencies: &[Dependency]) -> Added {
    // whole milliseconds: what was started at about the same moment needs one cut
    let cut_ms = |one: &Dependency| {
        let Activity::Computation(number) = one.of else {
            return None;
        };
        let time_ms = computations[number].time_s * 1e3;
        let ms = (share(one.at) * time_ms).round();
        (one.at < 1.0 && ms < time_ms).then_some((number, ms as u64))
    };
    let mut cuts = vec![Vec::new(); computations.len()];
    for (number, ms) in dependencies.iter().filter_map(cut_ms) {
        cuts[number].push(ms);
    }
    let (mut first_parts, mut ends) = (Vec::new(), Vec::new());
    for (number, computation) in computations.iter().enumerate() {
        cuts[number].sort_unstable();
        cuts[number].dedup();
        first_parts.push(page.tasks.len());
        add_parts(page, number, computation, &cuts[number]);
        ends.push(Node::Task(page.tasks.len() - 1));
    }
    for one in dependencies {
        let (of, at) = match (one.of, cut_ms(one)) {
            (Activity::Resource(number), _) => {
                // as exact as those of archives
                (
                    Node::Resource(number),
                    (share(one.at) * 1000.0).round() / 1000.0,
                )
            }
            (Activity::Computation(number), None) => (ends[number], 1.0),
            (Activity::Computation(number), Some((_, ms))) => {
                let part = cuts[number].partition_point(|cut| *cut < ms);
                (Node::Task(first_parts[number] + part), 1.0)
            }
        };
        let wait = span(one.wait_s);
        let causes = match one.then {
            Activity::Resource(number) => &mut page.resources[number].causes,
            Activity::Computation(number) => &mut page.tasks[first_parts[number]].causes,
        };
        causes.push(Cause { of, at, wait });
    }
    let resources = page.resources.iter_mut().skip(1).map(|one| &mut one.causes);
    let tasks = page.tasks.iter_mut().map(|one| &mut one.causes);
    let mut without_cause = 0;
    for causes in resources.chain(tasks).filter(|causes| causes.is_empty()) {
        causes.push(whole(Node::Resource(0)));
        without_cause += 1;
    }
    Added {
        ends,
        without_cause,
    }
}

/// Adds the tasks of a computation that is cut after these milliseconds.
fn add_parts(page: &mut Page, number: usize, computation: &Computation, cuts_ms: &[u64]) {
    let cuts = cuts_ms.iter().map(|ms| span(*ms as f64 / 1e3));
    let mut begin = Span::ZERO;
    for (part, end) in (1..).zip(cuts.chain([span(computation.time_s)])) {
        // the numbers of entries are the names of resources
        let (id, causes) = match part {
            1 if cuts_ms.is_empty() => (format!("task-{}", number + 1), Vec::new()),
            1 => (format!("task-{}.1", number + 1), Vec::new()),
            _ => {
                let before = whole(Node::Task(page.tasks.len() - 1));
                (format!("task-{}.{part}", number + 1), vec![before])
            }
        };
        page.tasks.push(Task {
            id,
            time: end - begin,
            causes,
            blocks_load: computation.blocks_load,
        });
        begin = end;
    }
}

/// From 0 to 1, also of what is no number.
fn share(at: f64) -> f64 {
    if at > 0.0 { at.min(1.0) } else { 0.0 }
}

const fn whole(of: Node) -> Cause {
    Cause {
        of,
        at: 1.0,
        wait: Span::ZERO,
    }
}

/// When activities ended in the recording, in order.
pub struct Ends(Vec<(f64, Activity)>);

impl Ends {
    /// Of resources, and of computations from and to these moments.
    pub fn new(times: &[Times], computations: &[(f64, f64)]) -> Self {
        let resources = times.iter().enumerate();
        let resources = resources.map(|(number, one)| (one.last_s, Activity::Resource(number)));
        let computed = computations.iter().enumerate();
        let computed = computed.map(|(number, (_, end_s))| (*end_s, Activity::Computation(number)));
        let mut ends: Vec<_> = resources.chain(computed).collect();
        ends.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        Self(ends)
    }

    /// What ended last before an activity that begins at `at_s`, and that it waits for this. None if nothing had
    /// ended.
    pub fn before(&self, at_s: f64, then: Activity) -> Option<Dependency> {
        let count = self.0.partition_point(|(end_s, _)| *end_s <= at_s);
        let (end_s, of) = *self.0[..count].last()?;
        Some(Dependency {
            of,
            at: 1.0,
            wait_s: at_s - end_s,
            then,
        })
    }
}
