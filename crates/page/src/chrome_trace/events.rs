//! What of a trace is read: events of the network, of the work of threads, and of navigations, each in the order of
//! time.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::file::clean_url;
use crate::har::devtools::Timing;
use crate::har::raw::{CallFrame, Initiator, Number, Object, Or, Text};
use crate::har::{HarError, MAX_ENTRIES};

/// An event as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawEvent {
    name: Text,
    ph: Text,
    ts: Number,
    dur: Number,
    pid: Number,
    tid: Number,
    args: Object<Args>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Args {
    name: Text,
    frame: Text,
    data: Object<Data>,
    begin_data: Object<BeginData>,
    file_name: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BeginData {
    url: Text,
}

/// What events say of a request or of work.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Data {
    request_id: Text,
    pub frame: Text,
    pub url: Text,
    pub request_method: Text,
    pub priority: Text,
    pub resource_type: Text,
    pub initiator: Or<Initiator>,
    pub stack_trace: Or<Vec<CallFrame>>,
    pub status_code: Number,
    pub mime_type: Text,
    pub protocol: Text,
    pub connection_id: Number,
    pub from_cache: Text,
    pub encoded_data_length: Number,
    pub decoded_body_length: Number,
    pub timing: Or<Timing>,
    pub finish_time: Number,
    pub did_fail: Text,
    style_sheet_url: Text,
    #[serde(rename = "documentLoaderURL")]
    document_loader_url: Text,
    is_outermost_main_frame: Text,
    is_loading_main_frame: Text,
}

/// A process and a thread of it.
pub type Thread = (u64, u64);

/// Something at a moment, in microseconds.
pub struct At<T> {
    /// The event, from 1.
    pub event: usize,
    pub ts_us: f64,
    pub thread: Thread,
    pub what: T,
}

/// What happened to a request, which is a number of the reader's own.
pub enum Network {
    /// The browser's own process begins a navigation.
    WillSend,
    Send(Box<Data>),
    Response(Box<Data>),
    Received(f64),
    Finish(Box<Data>),
    /// It was answered from the cache in memory.
    Cached,
}

/// Work of a thread.
pub enum Work {
    /// For so many microseconds, on what came from a URL.
    Whole(f64, Option<String>),
    /// Until the end that belongs to it; false: work that is not read.
    Begin(bool, Option<String>),
    End,
}

/// A trace.
#[derive(Default)]
pub struct Trace {
    pub requests: Vec<At<(u32, Network)>>,
    pub work: Vec<At<Work>>,
    /// Navigations of the page itself to an URL of HTTP, with their frames.
    pub navigations: Vec<(f64, Text)>,
    /// Load events, with their frames.
    pub loads: Vec<(f64, Text)>,
    /// Which threads have names, and whether each is the main thread of a renderer.
    pub is_main: BTreeMap<Thread, bool>,
    /// Why the rest of the file could not be read, if it could not.
    pub cut: Option<String>,
    /// Requests that are more than are read.
    pub more: usize,
    ids: HashMap<String, u32>,
    /// How many events of requests with many fields are kept.
    large: usize,
    count: usize,
    has_events: bool,
}

/// Work shorter than that is left out, unless it is part of a longer task: as Lantern does.
pub const SHORTEST_US: f64 = 10_000.0;
/// Each request has few of them; more say the same again.
const MAX_LARGE: usize = 4 * MAX_ENTRIES;

/// The event of a task from its beginning to its end, by versions of Chromium.
fn is_task(name: &str) -> bool {
    matches!(
        name,
        "RunTask" | "ThreadControllerImpl::RunTask" | "TaskQueueManager::ProcessTaskFromWorkQueue"
    )
}

/// Work within a task; where a trace has no tasks, it stands for them.
fn is_work(name: &str) -> bool {
    matches!(
        name,
        "EvaluateScript"
            | "v8.compile"
            | "v8.compileModule"
            | "v8.evaluateModule"
            | "FunctionCall"
            | "TimerFire"
            | "EventDispatch"
            | "XHRReadyStateChange"
            | "XHRLoad"
            | "ParseHTML"
            | "ParseAuthorStyleSheet"
            | "UpdateLayoutTree"
            | "Layout"
    )
}

impl Trace {
    fn keep(&mut self, event: RawEvent) {
        let name = event.name.get().unwrap_or_default();
        let whole = |number: Number| number.positive() as u64;
        let thread = (whole(event.pid), whole(event.tid));
        let args = event.args.0;
        if name == "thread_name" {
            let is_main = args.name.get() == Some("CrRendererMain");
            self.is_main.insert(thread, is_main);
            return;
        }
        let Some(ts_us) = event.ts.get().filter(|ts_us| *ts_us >= 0.0) else {
            return;
        };
        if let Some(request) = name.strip_prefix("Resource") {
            self.keep_request(request, ts_us, thread, args.data.0);
            return;
        }
        let data = args.data.0;
        if let "navigationStart" | "MarkLoad" | "loadEventStart" = name {
            self.keep_mark(name, ts_us, args.frame, data);
            return;
        }
        let is_read = is_task(name) || is_work(name);
        let url = || {
            let urls = [
                &data.url,
                &args.begin_data.0.url,
                &data.style_sheet_url,
                &args.file_name,
            ];
            let url = urls.into_iter().find_map(Text::get);
            url.filter(|_| is_work(name)).and_then(clean_url)
        };
        let what = match event.ph.get().unwrap_or_default() {
            "X" => {
                let (dur_us, url) = (event.dur.positive(), url());
                if !is_read || dur_us < SHORTEST_US && url.is_none() {
                    return;
                }
                Work::Whole(dur_us, url)
            }
            "B" => Work::Begin(is_read, url()),
            "E" => Work::End,
            _ => return,
        };
        self.work.push(At {
            event: self.count,
            ts_us,
            thread,
            what,
        });
    }

    fn keep_mark(&mut self, name: &str, ts_us: f64, frame: Text, data: Data) {
        let url = data.document_loader_url.get().unwrap_or_default();
        let outermost = data.is_outermost_main_frame.get();
        let main = outermost.or(data.is_loading_main_frame.get());
        let is_page = main.is_some() && url.starts_with("http");
        let frame = match frame.get() {
            Some(_) => frame,
            None => data.frame,
        };
        if name != "navigationStart" {
            self.loads.push((ts_us, frame));
        } else if is_page {
            self.navigations.push((ts_us, frame));
        }
    }

    fn keep_request(&mut self, name: &str, ts_us: f64, thread: Thread, data: Data) {
        let Some(id) = data.request_id.get() else {
            return;
        };
        let next = self.ids.len() as u32;
        let request = *self.ids.entry(id.to_string()).or_insert(next);
        let what = match name {
            "WillSendRequest" => Network::WillSend,
            "ReceivedData" => Network::Received(data.encoded_data_length.positive()),
            "MarkAsCached" => Network::Cached,
            "SendRequest" | "ReceiveResponse" | "Finish" if self.large >= MAX_LARGE => {
                self.more += usize::from(name == "SendRequest");
                return;
            }
            "SendRequest" => Network::Send(Box::new(data)),
            "ReceiveResponse" => Network::Response(Box::new(data)),
            "Finish" => Network::Finish(Box::new(data)),
            _ => return,
        };
        self.large += usize::from(matches!(
            what,
            Network::Send(_) | Network::Response(_) | Network::Finish(_)
        ));
        self.requests.push(At {
            event: self.count,
            ts_us,
            thread,
            what: (request, what),
        });
    }
}

/// Reads as much of a trace as there is: browsers may leave out the end of a list of events.
pub fn read(text: &[u8]) -> Result<Trace, HarError> {
    let wrong = |message: String| HarError {
        entry: None,
        message,
    };
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut trace = Trace::default();
    let mut from = serde_json::Deserializer::from_slice(text);
    let outcome = Outer(&mut trace).deserialize(&mut from);
    if let Err(error) = outcome.and_then(|()| from.end()) {
        if !trace.has_events {
            return Err(wrong(format!("is not a Chrome trace: {error}")));
        }
        if trace.requests.is_empty() {
            return Err(wrong(format!("event {}: {error}", trace.count + 1)));
        }
        trace.cut = Some(error.to_string());
    }
    if !trace.has_events {
        return Err(wrong(
            "is not a Chrome trace: it has no list `traceEvents`".into(),
        ));
    }
    if trace.requests.is_empty() {
        return Err(wrong(
            "the trace has no requests (events such as ResourceSendRequest); record it with the category \
             devtools.timeline"
                .into(),
        ));
    }
    // stable: events of the same moment keep their order
    trace.requests.sort_by(|a, b| a.ts_us.total_cmp(&b.ts_us));
    trace.work.sort_by(|a, b| a.ts_us.total_cmp(&b.ts_us));
    trace.navigations.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    trace.loads.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    Ok(trace)
}

/// The whole file: an object with `traceEvents`, or the list of events alone.
struct Outer<'a>(&'a mut Trace);

/// The list of events, kept as they are read, so that what stands before an error is kept.
struct Events<'a>(&'a mut Trace);

impl<'de> DeserializeSeed<'de> for Outer<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Outer<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `traceEvents`, or a list of events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(key) = items.next_key::<String>()? {
            if key == "traceEvents" && !self.0.has_events {
                items.next_value_seed(Events(self.0))?;
            } else {
                items.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        Events(self.0).visit_seq(items)
    }
}

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.0.has_events = true;
        while let Some(Object(event)) = items.next_element()? {
            self.0.count += 1;
            self.0.keep(event);
        }
        Ok(())
    }
}
