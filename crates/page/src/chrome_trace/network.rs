//! From the events of requests to the entries of an archive.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use super::events::{At, Data, Network, Thread};
use crate::har::MAX_ENTRIES;
use crate::har::date::date;
use crate::har::devtools::{Pending, Response, end, note};
use crate::har::raw::{self, Archive, Entry, Initiator, Number, Or, Text};

/// Where and when an entry of the archive was asked for.
pub struct Asked {
    /// The event, from 1.
    pub event: usize,
    pub at_s: f64,
    /// The thread that asked; none if a redirection or the browser's own process did.
    pub thread: Option<Thread>,
}

/// The requests of a trace.
#[derive(Default)]
pub struct Requests {
    pub archive: Archive,
    /// Of each entry.
    pub asked: Vec<Asked>,
    /// The frame and the thread of the first request over HTTP.
    pub first: Option<(Text, Thread)>,
    /// Requests without an end.
    pub unfinished: usize,
    /// Requests that were redirected.
    pub redirected: usize,
}

/// A request whose end has not been read.
struct Open {
    asked: Asked,
    pending: Pending,
    response: Option<Box<Data>>,
    response_s: Option<f64>,
    received_bytes: f64,
    is_cached: bool,
}

/// What is known of a request before it is sent, and while it is open.
#[derive(Default)]
struct Progress {
    /// When the browser began to ask for it, and for what it was redirected to.
    began_us: VecDeque<f64>,
    open: Option<Open>,
}

/// Reads the requests that were sent within `window`, in microseconds; `events` are in the order of time.
pub fn read(events: Vec<At<(u32, Network)>>, window: &Range<f64>) -> Requests {
    let mut found = Requests::default();
    let mut all: HashMap<u32, Progress> = HashMap::new();
    for event in events {
        if !window.contains(&event.ts_us) {
            continue;
        }
        let at_s = event.ts_us / 1e6;
        let (request, what) = event.what;
        let progress = all.entry(request).or_default();
        match (what, &mut progress.open) {
            (Network::WillSend, _) => progress.began_us.push_back(event.ts_us),
            (Network::Send(data), open) => {
                let began_us = progress.began_us.pop_front();
                let asked = Asked {
                    event: event.event,
                    at_s: began_us.unwrap_or(event.ts_us).min(event.ts_us) / 1e6,
                    thread: (began_us.is_none() && open.is_none()).then_some(event.thread),
                };
                if data.url.get().is_some_and(|url| url.starts_with("http")) {
                    let first = (data.frame.clone(), event.thread);
                    found.first.get_or_insert(first);
                }
                if let Some(before) = open.take() {
                    redirect(before, asked.at_s, &data, &mut found);
                }
                *open = Some(begin(asked, *data));
            }
            (Network::Response(data), Some(open)) => {
                open.response = Some(data);
                open.response_s.get_or_insert(at_s);
            }
            (Network::Received(bytes), Some(open)) => open.received_bytes += bytes,
            (Network::Cached, Some(open)) => open.is_cached = true,
            (Network::Finish(data), open) => {
                if let Some(open) = open.take()
                    && data.did_fail.get().is_none()
                {
                    finish(open, at_s, &data, &mut found);
                }
            }
            (Network::Response(_) | Network::Received(_) | Network::Cached, None) => {}
        }
    }
    found.unfinished = all.values().filter(|one| one.open.is_some()).count();
    found
}

fn begin(asked: Asked, data: Data) -> Open {
    let mut initiator = data.initiator.0;
    if initiator.source().is_none() {
        let frames = data.stack_trace.0;
        let url = frames.iter().find_map(|frame| frame.url.get());
        initiator = Initiator {
            url: Text::of(url),
            ..initiator
        };
    }
    let request = raw::Request {
        url: data.url,
        method: data.request_method,
        ..raw::Request::default()
    };
    let entry = Entry {
        started_date_time: date(asked.at_s),
        initiator: Or(initiator),
        priority: data.priority,
        resource_type: data.resource_type,
        request: Or(request),
        ..Entry::default()
    };
    Open {
        pending: Pending {
            began_s: asked.at_s,
            entry,
            first_s: None,
            header_bytes: 0.0,
        },
        asked,
        response: None,
        response_s: None,
        received_bytes: 0.0,
        is_cached: false,
    }
}

/// A request goes on at another place. Traces have no event of the response that says so: nothing is known of it but
/// its end.
fn redirect(open: Open, at_s: f64, to: &Data, found: &mut Requests) {
    let mut pending = open.pending;
    let took_s = (at_s - pending.began_s).max(0.0);
    let response = &mut pending.entry.response.0;
    response.status = Number::of(Some(302.0));
    response.redirect_url = Text::of(to.url.get());
    pending.entry.timings.0.wait = Number::of(Some(took_s * 1e3));
    found.redirected += 1;
    push(open.asked, pending, at_s, 0.0, found);
}

fn finish(mut open: Open, at_s: f64, data: &Data, found: &mut Requests) {
    let mut pending = open.pending;
    if let Some(response) = open.response {
        let response = *response;
        let response = Response {
            status: response.status_code,
            mime_type: response.mime_type,
            protocol: response.protocol,
            encoded_data_length: response.encoded_data_length,
            from_disk_cache: response.from_cache,
            connection_id: response.connection_id,
            timing: response.timing,
        };
        note(&mut pending, &response);
        pending.first_s = pending.first_s.or(open.response_s);
        // the document's own event comes when its response does
        let sent_s = response.timing.0.request_time.positive();
        if sent_s > 0.0 && sent_s < pending.began_s {
            pending.began_s = sent_s;
            pending.entry.started_date_time = date(sent_s);
            open.asked.at_s = sent_s;
        }
    }
    if open.is_cached {
        pending.entry.from_cache = Text::of(Some("memory"));
    }
    pending.entry.response.0.content.0.size = data.decoded_body_length;
    let mut bytes = data.encoded_data_length.positive();
    if bytes <= 0.0 {
        // older versions count only what came with each piece of data
        bytes = pending.header_bytes + open.received_bytes;
    }
    // the event is of the thread, which may be late; the network was done before
    let done_s = data.finish_time.get().filter(|done_s| *done_s > 0.0);
    let done_s = done_s.map_or(at_s, |done_s| done_s.min(at_s));
    push(open.asked, pending, done_s, bytes, found);
}

fn push(asked: Asked, pending: Pending, at_s: f64, bytes: f64, found: &mut Requests) {
    if found.asked.len() < MAX_ENTRIES {
        end(pending, at_s.max(asked.at_s), bytes, &mut found.archive);
        found.asked.push(asked);
    } else {
        found.archive.more += 1;
    }
}
