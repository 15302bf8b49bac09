//! Traces of Chromium in JSON: what DevTools saves as a profile, and what Lighthouse, Puppeteer and WebPageTest record.
//!
//! Requests become the entries of an archive, from which [`crate::har`] makes the graph of resources. Tasks of the main
//! thread become tasks of the page. Source: the trace event format of Chromium, its categories `devtools.timeline` and
//! `disabled-by-default-devtools.timeline`.
//!
//! A trace does not say how large requests are, nor anything of the responses that redirect.

mod events;
mod network;
mod tasks;

use std::ops::Range;

use crate::compute;
use crate::har::date::date;
use crate::har::graph::{self, Recorded, Times};
use crate::har::raw::{Number, Or, PageTimings, RawPage};
use crate::har::{HarError, HarPage};
use events::Trace;
use network::Requests;

/// Reads a trace as one page: that of its first navigation.
///
/// # Errors
/// A [`HarError`] with the number of the event, if it is one's fault: it is no trace, or no request of it was answered.
pub fn read(text: &[u8]) -> Result<Vec<HarPage>, HarError> {
    let mut trace = events::read(text)?;
    let window = window(&trace);
    let events = std::mem::take(&mut trace.requests);
    let mut requests = network::read(events, &window);
    if requests.archive.entries.is_empty() {
        return Err(HarError {
            entry: None,
            message: "no request of the trace was finished".into(),
        });
    }
    describe(&mut requests, &trace, &window);
    let first = requests.first.as_ref().map(|(_, thread)| *thread);
    let thread = tasks::main_thread(&trace.is_main, first, &requests.asked);
    let begin = trace.work.partition_point(|one| one.ts_us < window.start);
    let end = trace.work.partition_point(|one| one.ts_us < window.end);
    let slices = tasks::slices(&trace.work[begin..end], thread);
    tasks::name_initiators(&slices, thread, &mut requests);
    let mut pages = graph::recorded(&requests.archive).map_err(|error| HarError {
        message: match error.entry.and_then(|entry| requests.asked.get(entry - 1)) {
            Some(asked) => format!("event {}: {}", asked.event, error.message),
            None => error.message,
        },
        entry: None,
    })?;
    // an archive of one page
    let Recorded { mut page, times } = pages.swap_remove(0);
    let asked = |one: &Times| &requests.asked[one.entry - 1];
    let tasks = tasks::of_slices(&slices, asked(&times[0]).at_s);
    let by_thread: Vec<_> = times
        .iter()
        .map(|one| thread.is_some() && asked(one).thread == thread)
        .collect();
    let on_load_s = page.on_load_ms.map(|ms| ms / 1e3);
    let graph = tasks::graph(tasks, &mut page.page, &times, &by_thread, on_load_s);
    compute::add(&mut page.page, &graph.computations, &graph.dependencies);
    page.page.check().map_err(|error| HarError {
        entry: None,
        message: error.message,
    })?;
    warn(&mut page.warnings, &graph, &requests);
    if window.end.is_finite() {
        let message = "the trace has several navigations: the page of the first one is read";
        page.warnings.push(message.into());
    }
    Ok(vec![page])
}

/// From the first navigation of the page to the second, in microseconds; all of a trace without navigations.
fn window(trace: &Trace) -> Range<f64> {
    let Some((begin_us, _)) = trace.navigations.first() else {
        return 0.0..f64::INFINITY;
    };
    let mut later = trace.navigations.iter().map(|(at_us, _)| *at_us);
    *begin_us
        ..later
            .find(|at_us| at_us > begin_us)
            .unwrap_or(f64::INFINITY)
}

/// Says of the archive what is not in its entries.
fn describe(requests: &mut Requests, trace: &Trace, window: &Range<f64>) {
    let archive = &mut requests.archive;
    archive.cut.clone_from(&trace.cut);
    archive.more += trace.more;
    let asked = requests.asked.iter().map(|one| one.at_s);
    let begin_s = asked.fold(f64::INFINITY, f64::min);
    let navigated = trace.navigations.first().map(|(_, frame)| frame);
    let sent = requests.first.as_ref().map(|(frame, _)| frame);
    let frame = navigated.or(sent).and_then(|frame| frame.get());
    let mut loads = trace.loads.iter();
    let load = loads.find(|(at_us, of)| {
        let is_ours = of.get().is_none() || frame.is_none() || of.get() == frame;
        is_ours && window.contains(at_us)
    });
    let on_load = Number::of(load.map(|(at_us, _)| 1e3 * (at_us / 1e6 - begin_s)));
    archive.pages.push(RawPage {
        started_date_time: date(begin_s),
        page_timings: Or(PageTimings { on_load }),
        ..RawPage::default()
    });
}

fn warn(warnings: &mut Vec<String>, graph: &tasks::Graph, requests: &Requests) {
    if graph.computations.is_empty() {
        warnings.push(
            "the trace has no tasks of at least 10 ms of the page's main thread: the page computes nothing".into(),
        );
    }
    if graph.inferred > 0 {
        warnings.push(format!(
            "what {} of {} tasks wait for is inferred from times, for the trace names no script or document of them",
            graph.inferred,
            graph.computations.len()
        ));
    }
    if graph.more > 0 {
        warnings.push(format!(
            "{} tasks were left out, for there are too many",
            graph.more
        ));
    }
    if requests.unfinished > 0 {
        warnings.push(format!(
            "{} requests were left out, for the trace does not have their end",
            requests.unfinished
        ));
    }
    if requests.redirected > 0 {
        warnings.push(format!(
            "{} responses redirect: their sizes are taken to be 0, for the trace has no more than their times",
            requests.redirected
        ));
    }
}

#[cfg(test)]
mod tests;
