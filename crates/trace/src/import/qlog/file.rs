//! Reads a qlog file, one event at a time.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};
use std::rc::Rc;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::events::{Object, RawEvent, Text, Time, What};
use super::rtt_unit::RttCheck;
use crate::error::TraceError;
use crate::import::input::{Budget, Input, Metered, json_error};
use crate::import::rows::FlowNames;

/// Further traces of one file count as the last of them.
const MAX_TRACES: usize = 65_536;
/// The part of a file that shows whether it predates the drafts.
const HEAD_BYTES: usize = 4 << 10;

/// What is kept of an event.
pub struct Event {
    pub flow: u32,
    /// The event's own time, and the running sum, in the trace's unit.
    time: f64,
    total: f64,
    trace: u32,
    pub what: What,
    /// The line where it ended.
    pub line: u64,
}

/// One of the file's traces: its endpoint and its time units.
struct Trace {
    since_previous: bool,
    total: f64,
    /// The unit of time.
    unit_s: f64,
    vantage_point: String,
    group: String,
    /// The meaning of each position in events that are lists.
    fields: Rc<[Field]>,
    rtts: RttCheck,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            since_previous: false,
            total: 0.0,
            unit_s: 1e-3,
            vantage_point: String::new(),
            group: String::new(),
            fields: Rc::new([Field::Time, Field::Other, Field::Name, Field::Data]),
            rtts: RttCheck::default(),
        }
    }
}

/// The meaning of an element of an event that is a list (drafts 00 and 01).
#[derive(Clone, Copy, PartialEq)]
enum Field {
    Time,
    Name,
    Group,
    Path,
    Data,
    Other,
}

impl Field {
    fn of(name: &str) -> Self {
        match name {
            "time" | "relative_time" | "delta_time" | "reference_time" | "absolute_time" => {
                Self::Time
            }
            "event" | "event_type" | "name" | "type" => Self::Name,
            "group_id" => Self::Group,
            "path" | "path_id" => Self::Path,
            "data" => Self::Data,
            _ => Self::Other,
        }
    }
}

/// Everything relevant in a file.
#[derive(Default)]
pub struct Log {
    pub events: Vec<Event>,
    /// The name of each flow: the vantage point, the group and the path.
    pub flows: Vec<String>,
    /// The size of a full datagram, reported or observed.
    pub datagram_bytes: Option<u32>,
    /// Number of events of all kinds.
    pub seen: u64,
    traces: Vec<Trace>,
}

impl Log {
    pub fn time_s(&self, event: &Event) -> f64 {
        let trace = &self.traces[event.trace as usize];
        let time = if trace.since_previous {
            event.total
        } else {
            event.time
        };
        time * trace.unit_s
    }

    /// The factor that converts a round-trip time of the event to seconds.
    pub fn rtt_unit_s(&self, event: &Event) -> f64 {
        let trace = &self.traces[event.trace as usize];
        trace.unit_s * trace.rtts.factor()
    }

    /// The unit of round-trip times, if it differs from that of the trace's times.
    pub fn odd_rtt_unit(&self) -> Option<String> {
        let mut factors = self.traces.iter().map(|t| (t.rtts.factor(), t.unit_s));
        let (factor, unit_s) = factors.find(|(factor, _)| *factor != 1.0)?;
        let unit = match (factor * unit_s * 1e6).round() as u64 {
            1_000_000 => "seconds",
            1000 => "milliseconds",
            _ => "microseconds",
        };
        Some(unit.to_string())
    }

    /// The events in time order; a file may hold traces one after another.
    pub fn in_order(&self) -> Vec<&Event> {
        let mut events: Vec<&Event> = self.events.iter().collect();
        events.sort_by(|a, b| self.time_s(a).total_cmp(&self.time_s(b)));
        events
    }
}

#[derive(Default, Deserialize)]
struct CommonFields {
    #[serde(default)]
    time_format: Text,
    #[serde(default)]
    group_id: Text,
    #[serde(default, rename = "ODCID")]
    odcid: Text,
}

#[derive(Default, Deserialize)]
struct Configuration {
    #[serde(default)]
    time_units: Text,
}

#[derive(Default, Deserialize)]
struct VantagePoint {
    #[serde(default)]
    r#type: Text,
    #[serde(default)]
    name: Text,
}

struct State {
    log: Log,
    names: FlowNames,
    told_bytes: Option<u32>,
    seen_bytes: u32,
    budget: Budget,
    line: Rc<Cell<u64>>,
    most: usize,
}

impl State {
    fn begin_trace(&mut self) {
        if self.log.traces.len() < MAX_TRACES {
            self.log.traces.push(Trace::default());
        }
    }

    /// The trace being read; events may come without a header.
    fn trace(&mut self) -> &mut Trace {
        if self.log.traces.is_empty() {
            self.begin_trace();
        }
        self.log.traces.last_mut().expect("there is one")
    }

    fn take(&mut self, event: &RawEvent) -> Result<(), String> {
        self.budget.renew();
        self.log.seen += 1;
        self.trace();
        let number = self.log.traces.len() - 1;
        let trace = &mut self.log.traces[number];
        let time = event.time.0.unwrap_or(0.0);
        trace.total += time;
        let total = trace.total;
        let (what, datagram_bytes) = event.what();
        self.told_bytes = self.told_bytes.max(datagram_bytes);
        let Some(what) = what else { return Ok(()) };
        if event.time.0.is_none() {
            return Err("an event has no time, expected a number".to_string());
        }
        let group = match event.group_id.0.as_str() {
            "" => &trace.group,
            group => group,
        };
        // most connections have one path, and not all of their events name it
        let path = Some(event.path()).filter(|path| !["", "0"].contains(path));
        let path = path.map_or(String::new(), |path| format!("path {path}"));
        // traces with the same name are still different connections
        let flow = self.names.number(&format!("{number}\n{group} {path}"))?;
        let now = if trace.since_previous { total } else { time };
        match what {
            What::Sent { number, size_bytes } => {
                self.seen_bytes = self.seen_bytes.max(size_bytes);
                trace.rtts.sent(flow, number, now);
            }
            What::Acknowledged { number } => {
                trace.rtts.acknowledged(flow, number, now);
                return Ok(());
            }
            What::Metrics {
                srtt, least_rtt, ..
            } => {
                srtt.into_iter()
                    .chain(least_rtt)
                    .for_each(|rtt| trace.rtts.told(rtt));
            }
            What::Lost { .. } => {}
        }
        if self.log.events.len() == self.most {
            return Err(format!("more than {} events", self.most));
        }
        self.log.events.push(Event {
            flow,
            time,
            total,
            trace: number as u32,
            what,
            line: self.line.get(),
        });
        Ok(())
    }
}

/// Counts lines, and replaces the separators of a JSON text sequence (RFC 7464) by white space.
struct Counted<R> {
    source: R,
    line: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // one byte at a time, because the parser's line must be known at each event
        let Some(first) = buffer.first_mut() else {
            return Ok(0);
        };
        let count = self.source.read(std::slice::from_mut(first))?;
        if count > 0 {
            match *first {
                0x1e => *first = b' ',
                b'\n' => self.line.set(self.line.get() + 1),
                _ => {}
            }
        }
        Ok(count)
    }
}

/// The reason why a file with this head cannot be read.
fn refusal(head: &str) -> Option<String> {
    let (_, after) = head.split_once("qlog_version")?;
    let version: String = after
        .chars()
        .skip_while(|c| "\"': ".contains(*c))
        .take_while(|c| c.is_ascii_alphanumeric() || ".-".contains(*c))
        .take(20)
        .collect();
    let expected = "expected JSON of draft-00 to the newest (qlog_version draft-00 to 0.4)";
    if head.contains("\"connections\"") && !head.contains("\"traces\"") {
        let what = format!("is a qlog of before the drafts (qlog_version {version})");
        return Some(format!("{what}, which is not read; {expected}"));
    }
    let json = head.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{1e}');
    let script = !json.trim_start_matches('\u{feff}').starts_with('{');
    script.then(|| format!("is a qlog within a script (qlog_version {version}); {expected}"))
}

/// Reads all events, up to the end or the first error.
pub fn read(input: Input<'_>, most: usize) -> Result<(Log, Option<TraceError>), TraceError> {
    let head = input.head(HEAD_BYTES)?;
    if let Some(refusal) = refusal(&String::from_utf8_lossy(&head)) {
        return Err(TraceError::new(input.path, refusal));
    }
    let (budget, line) = (Budget::new(), Rc::new(Cell::new(1)));
    let source = Counted {
        source: io::BufReader::new(Metered {
            source: input.open()?,
            budget: budget.clone(),
        }),
        line: Rc::clone(&line),
    };
    let mut state = State {
        log: Log::default(),
        names: FlowNames::default(),
        told_bytes: None,
        seen_bytes: 0,
        budget,
        line,
        most,
    };
    let mut json = serde_json::Deserializer::from_reader(source);
    let damage = loop {
        let mut entered = false;
        let text = TopLevel {
            state: &mut state,
            entered: &mut entered,
        };
        match text.deserialize(&mut json) {
            Ok(()) => {}
            Err(error) if error.is_eof() && !entered => break None,
            Err(error) => break Some(json_error(input.path, &error, 1)),
        }
    };
    let State {
        mut log,
        names,
        told_bytes,
        seen_bytes,
        ..
    } = state;
    let sane = |bytes: &u32| (64..=65_535).contains(bytes);
    log.datagram_bytes = told_bytes.filter(sane).or(Some(seen_bytes).filter(sane));
    // the vantage point may come after the events, so it replaces the trace's number here
    let named = |name: &String| {
        let (trace, rest) = name.split_once('\n').unwrap_or_default();
        let trace = trace.parse().ok().and_then(|at: usize| log.traces.get(at));
        let vantage_point = trace.map_or("", |trace| &trace.vantage_point);
        format!("{vantage_point} {}", rest.trim())
            .trim()
            .to_string()
    };
    log.flows = names.names.iter().map(named).collect();
    Ok((log, damage))
}

/// One text of the file: a whole log, a sequence header, or an event.
struct TopLevel<'a> {
    state: &'a mut State,
    entered: &'a mut bool,
}

/// A trace within a log, or a sequence header.
struct TraceText<'a>(&'a mut State);

/// `traces` or `events`.
struct List<'a> {
    state: &'a mut State,
    of_traces: bool,
}

/// One event: an object, or a list as `event_fields` describes.
struct EventText<'a>(&'a mut State);

macro_rules! seed {
    ($kind:ident, $deserialize:ident) => {
        impl<'de> DeserializeSeed<'de> for $kind<'_> {
            type Value = ();

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.$deserialize(self)
            }
        }
    };
}

seed!(TopLevel, deserialize_map);
seed!(TraceText, deserialize_map);
seed!(List, deserialize_seq);
seed!(EventText, deserialize_any);

/// Reads the value of `key`, if an event has such a field.
fn event_field<'de, A: MapAccess<'de>>(
    event: &mut RawEvent,
    key: &str,
    map: &mut A,
) -> Result<(), A::Error> {
    match Field::of(key) {
        Field::Time => event.time = map.next_value::<Time>()?,
        Field::Name => event.name = map.next_value()?,
        Field::Group => event.group_id = map.next_value()?,
        Field::Path => event.path = map.next_value()?,
        Field::Data => event.data = map.next_value()?,
        Field::Other => _ = map.next_value::<IgnoredAny>()?,
    }
    Ok(())
}

impl<'de> Visitor<'de> for EventText<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event, as an object or a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut event = RawEvent::default();
        while let Some(key) = map.next_key::<String>()? {
            event_field(&mut event, &key, &mut map)?;
        }
        self.0.take(&event).map_err(A::Error::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut event = RawEvent::default();
        let fields = Rc::clone(&self.0.trace().fields);
        let mut count = 0;
        loop {
            let there = match fields.get(count).unwrap_or(&Field::Other) {
                Field::Time => list.next_element()?.map(|time| event.time = time),
                Field::Name => list.next_element()?.map(|name| event.name = name),
                Field::Group => list.next_element()?.map(|group| event.group_id = group),
                Field::Path => list.next_element()?.map(|path| event.path = path),
                Field::Data => list.next_element()?.map(|data| event.data = data),
                Field::Other => list.next_element::<IgnoredAny>()?.map(|_| ()),
            };
            if there.is_none() {
                break;
            }
            count += 1;
        }
        if count == 0 {
            return Ok(()); // some logs end with an empty list
        }
        self.0.take(&event).map_err(A::Error::custom)
    }
}

impl<'de> Visitor<'de> for TopLevel<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a qlog or an event of one")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let state = self.state;
        *self.entered = true;
        let mut event = RawEvent::default();
        let mut header = false;
        while let Some(key) = map.next_key::<String>()? {
            state.budget.renew();
            match key.as_str() {
                "traces" => map.next_value_seed(List {
                    state: &mut *state,
                    of_traces: true,
                })?,
                "trace" => map.next_value_seed(TraceText(state))?,
                "qlog_version" | "qlog_format" | "file_schema" => {
                    header = true;
                    map.next_value::<IgnoredAny>()?;
                }
                key => event_field(&mut event, key, &mut map)?,
            }
        }
        if !header && !event.name.0.is_empty() {
            state.take(&event).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for TraceText<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trace")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let state = self.0;
        state.begin_trace();
        while let Some(key) = map.next_key::<String>()? {
            state.budget.renew();
            match key.as_str() {
                "common_fields" => {
                    let common = map.next_value::<Object<CommonFields>>()?.0;
                    let format = common.time_format.0.as_str();
                    let trace = state.trace();
                    trace.since_previous |=
                        matches!(format, "delta" | "relative_to_previous_event");
                    let groups = [common.group_id.0, common.odcid.0];
                    let group = groups.into_iter().find(|group| !group.is_empty());
                    trace.group = group.unwrap_or_default();
                }
                "configuration" => {
                    let configuration = map.next_value::<Object<Configuration>>()?.0;
                    state.trace().unit_s = match configuration.time_units.0.as_str() {
                        "us" => 1e-6,
                        "ns" => 1e-9,
                        "s" => 1.0,
                        _ => 1e-3,
                    };
                }
                "event_fields" => {
                    let names = map.next_value::<Vec<Text>>()?;
                    let trace = state.trace();
                    trace.since_previous |= names.iter().any(|name| name.0 == "delta_time");
                    trace.fields = names.iter().map(|name| Field::of(&name.0)).collect();
                }
                "vantage_point" => {
                    let point = map.next_value::<Object<VantagePoint>>()?.0;
                    let known = [point.r#type.0, point.name.0];
                    let name = known.into_iter().find(|name| !name.is_empty());
                    state.trace().vantage_point = name.unwrap_or_default();
                }
                "events" => map.next_value_seed(List {
                    state: &mut *state,
                    of_traces: false,
                })?,
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of traces or events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.of_traces {
            while list
                .next_element_seed(TraceText(&mut *self.state))?
                .is_some()
            {}
            return Ok(());
        }
        while list
            .next_element_seed(EventText(&mut *self.state))?
            .is_some()
        {}
        Ok(())
    }
}
