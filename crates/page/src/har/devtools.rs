//! Logs of the Chrome DevTools protocol: a list of events, as Lighthouse, Puppeteer and browsers' own logs have them.

use std::collections::HashMap;

use serde::Deserialize;

use super::HarError;
use super::date::date;
use super::raw::{self, Archive, Entry, Initiator, Number, Or, PageTimings, RawPage, Text};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    method: Text,
    params: Or<Params>,
    /// Some wrap events.
    message: Or<Wrapped>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wrapped {
    method: Text,
    params: Or<Params>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Params {
    request_id: Text,
    timestamp: Number,
    request: Or<Request>,
    response: Or<Response>,
    redirect_response: Or<Response>,
    initiator: Or<Initiator>,
    #[serde(rename = "type")]
    kind: Text,
    encoded_data_length: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Request {
    url: Text,
    method: Text,
    initial_priority: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Response {
    pub status: Number,
    pub mime_type: Text,
    pub protocol: Text,
    pub encoded_data_length: Number,
    pub from_disk_cache: Text,
    pub connection_id: Number,
    pub timing: Or<Timing>,
}

/// In milliseconds after `request_time`, which is in seconds.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Timing {
    pub request_time: Number,
    connect_start: Number,
    connect_end: Number,
    ssl_start: Number,
    ssl_end: Number,
    send_end: Number,
    receive_headers_end: Number,
}

raw::of_no_url!(Params, Wrapped, Request, Response, Timing);

/// A request whose end has not been read.
pub struct Pending {
    pub began_s: f64,
    pub entry: Entry,
    pub first_s: Option<f64>,
    pub header_bytes: f64,
}

/// Reads the requests of a log as an archive of one page.
pub fn read(text: &[u8]) -> Result<Archive, HarError> {
    let wrong = |message: String| HarError {
        entry: None,
        message,
    };
    let events: Vec<Event> = serde_json::from_slice(text).map_err(|error| {
        wrong(format!(
            "is neither a HAR nor a log of the DevTools protocol: {error}"
        ))
    })?;
    let mut archive = Archive::default();
    let mut pending: HashMap<String, Pending> = HashMap::new();
    let (mut first_s, mut load_s) = (None, None);
    for event in events {
        let (method, params) = match event.method.get() {
            Some(_) => (event.method, event.params.0),
            None => (event.message.0.method, event.message.0.params.0),
        };
        let Some(at_s) = params.timestamp.get() else {
            continue;
        };
        let id = params.request_id.get().unwrap_or_default().to_string();
        match method.get().unwrap_or_default() {
            "Network.requestWillBeSent" => {
                first_s.get_or_insert(at_s);
                if let Some(mut before) = pending.remove(&id) {
                    // the same request goes on at another place
                    note(&mut before, &params.redirect_response.0);
                    before.entry.response.0.redirect_url = Text::of(params.request.0.url.get());
                    end(before, at_s, 0.0, &mut archive);
                }
                pending.insert(id, begin(at_s, params));
            }
            "Network.responseReceived" => {
                if let Some(one) = pending.get_mut(&id) {
                    note(one, &params.response.0);
                    one.first_s.get_or_insert(at_s);
                }
            }
            "Network.loadingFinished" => {
                if let Some(one) = pending.remove(&id) {
                    end(
                        one,
                        at_s,
                        params.encoded_data_length.positive(),
                        &mut archive,
                    );
                }
            }
            "Network.loadingFailed" => drop(pending.remove(&id)),
            "Page.loadEventFired" => drop(load_s.get_or_insert(at_s)),
            _ => {}
        }
    }
    let Some(first_s) = first_s else {
        return Err(wrong(
            "the log of the DevTools protocol has no request".into(),
        ));
    };
    if archive.entries.is_empty() {
        return Err(wrong("no request of the log was finished".into()));
    }
    let on_load = Number::of(load_s.map(|at_s: f64| 1e3 * (at_s - first_s)));
    archive.pages.push(RawPage {
        started_date_time: date(first_s),
        page_timings: Or(PageTimings { on_load }),
        ..RawPage::default()
    });
    Ok(archive)
}

fn begin(at_s: f64, params: Params) -> Pending {
    let asked = params.request.0;
    let request = raw::Request {
        url: asked.url,
        method: asked.method,
        ..raw::Request::default()
    };
    Pending {
        began_s: at_s,
        entry: Entry {
            started_date_time: date(at_s),
            initiator: params.initiator,
            priority: asked.initial_priority,
            resource_type: params.kind,
            request: Or(request),
            ..Entry::default()
        },
        first_s: None,
        header_bytes: 0.0,
    }
}

/// What a response says of a request.
pub fn note(one: &mut Pending, response: &Response) {
    let into = &mut one.entry.response.0;
    into.status = response.status;
    into.http_version = response.protocol.clone();
    into.content.0.mime_type = response.mime_type.clone();
    one.entry.from_cache = response.from_disk_cache.clone();
    let connection = response.connection_id.get().map(|id| id.to_string());
    one.entry.connection = Text::of(connection.as_deref());
    one.header_bytes = response.encoded_data_length.positive();
    let timing = &response.timing.0;
    let timings = &mut one.entry.timings.0;
    let between = |from: Number, to: Number| Number::of(Some(to.positive() - from.positive()));
    timings.connect = between(timing.connect_start, timing.connect_end);
    timings.ssl = between(timing.ssl_start, timing.ssl_end);
    timings.wait = between(timing.send_end, timing.receive_headers_end);
    if let Some(asked_s) = timing.request_time.get() {
        one.first_s = Some(asked_s + timing.receive_headers_end.positive() / 1e3);
    }
}

/// The last of `bytes` came: the request becomes an entry.
pub fn end(mut one: Pending, at_s: f64, bytes: f64, archive: &mut Archive) {
    let first_s = one
        .first_s
        .unwrap_or(at_s)
        .clamp(one.began_s, at_s.max(one.began_s));
    let timings = &mut one.entry.timings.0;
    let before_ms = 1e3 * (first_s - one.began_s);
    let known_ms = timings.connect.positive() + timings.wait.positive();
    timings.blocked = Number::of(Some((before_ms - known_ms).max(0.0)));
    timings.receive = Number::of(Some(1e3 * (at_s - first_s)));
    one.entry.time = Number::of(Some(1e3 * (at_s - one.began_s)));
    let response = &mut one.entry.response.0;
    response.headers_size = Number::of(Some(one.header_bytes).filter(|bytes| *bytes > 0.0));
    response.body_size = Number::of(Some((bytes - one.header_bytes).max(0.0)));
    archive.entries.push(one.entry);
}
