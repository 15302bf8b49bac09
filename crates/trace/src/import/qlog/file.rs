//! The texts of a qlog file, one event at a time.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};
use std::rc::Rc;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::events::{Number, Object, RawEvent, Text, What};
use crate::error::TraceError;
use crate::import::input::{Budget, Input, Metered, json_error};
use crate::import::rows::FlowNames;

/// Traces of one file after this many count as the last of them.
const MAX_TRACES: usize = 65_536;

/// What is kept of an event.
pub struct Event {
    pub flow: u32,
    /// The event's own number, and the sum of all up to it, in milliseconds.
    time: f64,
    total: f64,
    trace: u32,
    pub what: What,
    /// Where it ended.
    pub line: u64,
}

/// How one of the file's traces counts time.
#[derive(Clone, Copy, Default)]
struct TraceClock {
    since_previous: bool,
    total: f64,
}

/// Everything of a file that matters.
#[derive(Default)]
pub struct Log {
    pub events: Vec<Event>,
    /// Who each flow is: the vantage point and the group.
    pub flows: Vec<String>,
    /// The size of a full datagram, told or seen.
    pub datagram_bytes: Option<u32>,
    clocks: Vec<TraceClock>,
}

impl Log {
    pub fn time_s(&self, event: &Event) -> f64 {
        let since_previous = self.clocks[event.trace as usize].since_previous;
        let milliseconds = if since_previous {
            event.total
        } else {
            event.time
        };
        milliseconds / 1e3
    }
}

#[derive(Default, Deserialize)]
struct CommonFields {
    #[serde(default)]
    time_format: Text,
    #[serde(default)]
    group_id: Text,
}

#[derive(Default, Deserialize)]
struct VantagePoint {
    #[serde(default)]
    r#type: Text,
    #[serde(default)]
    name: Text,
}

/// Who logs, as far as it was told before an event; names of flows are made of it.
#[derive(Clone, Default)]
struct Trace {
    vantage_point: String,
    group: String,
}

struct State {
    log: Log,
    names: FlowNames,
    trace: Trace,
    told_bytes: Option<u32>,
    seen_bytes: u32,
    budget: Budget,
    line: Rc<Cell<u64>>,
    most: usize,
}

impl State {
    fn begin_trace(&mut self) {
        if self.log.clocks.len() < MAX_TRACES {
            self.log.clocks.push(TraceClock::default());
        }
        self.trace = Trace::default();
    }

    fn take(&mut self, event: &RawEvent) -> Result<(), String> {
        self.budget.renew();
        if self.log.clocks.is_empty() {
            self.begin_trace(); // events without a header
        }
        let trace = self.log.clocks.len() - 1;
        let clock = &mut self.log.clocks[trace];
        let time = event.time.0.unwrap_or(0.0);
        clock.total += time;
        let total = clock.total;
        let (what, datagram_bytes) = event.what();
        self.told_bytes = self.told_bytes.max(datagram_bytes);
        let Some(what) = what else { return Ok(()) };
        if event.time.0.is_none() {
            return Err("an event has no time, expected a number".to_string());
        }
        if let What::Sent { size_bytes, .. } = what {
            self.seen_bytes = self.seen_bytes.max(size_bytes);
        }
        if self.log.events.len() == self.most {
            return Err(format!("more than {} events", self.most));
        }
        let group = match event.group_id.0.as_str() {
            "" => &self.trace.group,
            group => group,
        };
        let name = format!("{} {group}", self.trace.vantage_point);
        // traces of one name are different connections all the same
        let flow = self.names.number(&format!("{trace} {}", name.trim()))?;
        self.log.events.push(Event {
            flow,
            time,
            total,
            trace: trace as u32,
            what,
            line: self.line.get(),
        });
        Ok(())
    }
}

/// Counts lines, and takes the separators of a JSON text sequence (RFC 7464) for white space.
struct Counted<R> {
    source: R,
    line: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // one at a time, for the parser's line must be known at each event
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

/// Reads all events, up to the end or to what is wrong.
pub fn read(input: Input<'_>, most: usize) -> Result<(Log, Option<TraceError>), TraceError> {
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
        trace: Trace::default(),
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
    // without the trace's number
    let named = |name: &String| {
        name.split_once(' ')
            .map_or("", |(_, rest)| rest)
            .to_string()
    };
    log.flows = names.names.iter().map(named).collect();
    Ok((log, damage))
}

/// One text of the file: a whole log, the header of a sequence, or an event.
struct TopLevel<'a> {
    state: &'a mut State,
    entered: &'a mut bool,
}

/// A trace within a log, or the header of a sequence.
struct TraceText<'a>(&'a mut State);

/// `traces` or `events`.
struct List<'a> {
    state: &'a mut State,
    of_traces: bool,
}

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

impl<'de> Visitor<'de> for TopLevel<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a qlog or an event of one")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let state = self.state;
        *self.entered = true;
        let mut event = RawEvent::default();
        let mut any = false;
        while let Some(key) = map.next_key::<String>()? {
            state.budget.renew();
            match key.as_str() {
                "traces" => map.next_value_seed(List {
                    state: &mut *state,
                    of_traces: true,
                })?,
                "trace" => map.next_value_seed(TraceText(state))?,
                "time" => event.time = map.next_value::<Number>()?,
                "name" => (event.name, any) = (map.next_value::<Text>()?, true),
                "group_id" => event.group_id = map.next_value::<Text>()?,
                "data" => event.data = map.next_value()?,
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        if any {
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
                    if let Some(clock) = state.log.clocks.last_mut() {
                        clock.since_previous =
                            matches!(format, "delta" | "relative_to_previous_event");
                    }
                    state.trace.group = common.group_id.0;
                }
                "vantage_point" => {
                    let point = map.next_value::<Object<VantagePoint>>()?.0;
                    let known = [point.r#type.0, point.name.0];
                    state.trace.vantage_point = known
                        .into_iter()
                        .find(|name| !name.is_empty())
                        .unwrap_or_default();
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
        while let Some(event) = list.next_element::<RawEvent>()? {
            self.state.take(&event).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}
