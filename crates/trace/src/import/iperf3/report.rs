//! The JSON of a report, read one interval at a time.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::import::input::Budget;

#[derive(Deserialize)]
pub struct Start {
    #[serde(default)]
    pub connected: Vec<Connected>,
    pub tcp_mss: Option<u64>,
    pub tcp_mss_default: Option<u64>,
    pub version: Option<String>,
    pub timestamp: Option<Timestamp>,
    pub test_start: Option<TestStart>,
}

#[derive(Deserialize)]
pub struct TestStart {
    pub protocol: Option<String>,
}

#[derive(Deserialize)]
pub struct Connected {
    pub local_host: String,
    pub local_port: u32,
    pub remote_host: String,
    pub remote_port: u32,
}

#[derive(Deserialize)]
pub struct Timestamp {
    pub timesecs: f64,
}

#[derive(Deserialize)]
struct Interval {
    #[serde(default)]
    streams: Vec<Stream>,
}

#[derive(Deserialize)]
struct Stream {
    socket: i64,
    end: f64,
    bytes: f64,
    retransmits: Option<f64>,
    snd_cwnd: Option<f64>,
    snd_wnd: Option<f64>,
    /// Round-trip time in microseconds.
    rtt: Option<f64>,
    pmtu: Option<f64>,
    #[serde(default)]
    omitted: bool,
}

#[derive(Deserialize)]
pub struct End {
    #[serde(default)]
    pub streams: Vec<EndStream>,
    pub sender_tcp_congestion: Option<String>,
}

#[derive(Deserialize)]
pub struct EndStream {
    pub receiver: Option<Sum>,
}

#[derive(Deserialize)]
pub struct Sum {
    pub socket: Option<i64>,
    pub bits_per_second: f64,
}

/// The sums over a stream's intervals.
pub struct StreamSum {
    pub socket: i64,
    pub bytes: f64,
    pub retransmits: f64,
    /// When the last interval ended.
    pub end_s: f64,
}

/// A row, before the packet size is known.
pub struct Raw {
    pub flow: u32,
    pub end_s: f64,
    pub cwnd_bytes: f64,
    pub srtt_s: Option<f64>,
    pub sent_bytes: u64,
    pub rwnd_bytes: Option<u64>,
    pub retransmits: Option<u64>,
}

/// One report: the client's, or the server's inside it.
#[derive(Default)]
pub struct Report {
    pub start: Option<Start>,
    pub end: Option<End>,
    pub error: Option<String>,
    pub raw: Vec<Raw>,
    /// Sums of each stream, in order of appearance.
    pub streams: Vec<StreamSum>,
    pub pmtu: Option<u64>,
    pub intervals: u64,
}

impl Report {
    fn take(&mut self, interval: Interval, most: usize) -> Result<(), String> {
        self.intervals += 1;
        for stream in interval.streams {
            // warm-up, after which iperf3 counts from 0 again
            if stream.omitted {
                continue;
            }
            let found = self
                .streams
                .iter()
                .position(|known| known.socket == stream.socket);
            let flow = match found {
                Some(flow) => flow,
                None if self.streams.len() == 1024 => {
                    return Err("more than 1024 streams".to_string());
                }
                None => {
                    self.streams.push(StreamSum {
                        socket: stream.socket,
                        bytes: 0.0,
                        retransmits: 0.0,
                        end_s: 0.0,
                    });
                    self.streams.len() - 1
                }
            };
            let sum = &mut self.streams[flow];
            sum.bytes += stream.bytes.max(0.0);
            sum.retransmits += stream.retransmits.unwrap_or(0.0).max(0.0);
            sum.end_s = stream.end;
            // a receiver has no window to report
            let Some(cwnd_bytes) = stream.snd_cwnd else {
                continue;
            };
            if self.raw.len() == most {
                return Err(format!("more than {most} rows"));
            }
            self.pmtu = stream.pmtu.map(|pmtu| pmtu as u64).or(self.pmtu);
            self.raw.push(Raw {
                flow: flow as u32,
                end_s: stream.end,
                cwnd_bytes,
                srtt_s: stream.rtt.filter(|&rtt| rtt > 0.0).map(|rtt| rtt / 1e6),
                sent_bytes: sum.bytes as u64,
                rwnd_bytes: stream.snd_wnd.filter(|&w| w > 0.0).map(|w| w as u64),
                retransmits: stream.retransmits.map(|_| sum.retransmits as u64),
            });
        }
        Ok(())
    }
}

pub struct State {
    pub client: Report,
    pub server: Report,
    pub budget: Budget,
    pub most: usize,
}

/// A report as a JSON object, or a line `{"event": ..., "data": ...}`.
pub struct Document<'a> {
    pub state: &'a mut State,
    pub server: bool,
    pub entered: &'a mut bool,
}

impl<'a> Document<'a> {
    fn report(&mut self) -> &mut Report {
        if self.server {
            &mut self.state.server
        } else {
            &mut self.state.client
        }
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Key {
    Start,
    Intervals,
    End,
    Error,
    ServerOutputJson,
    Event,
    Data,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a report of iperf3")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        *self.entered = true;
        let mut event = String::new();
        while let Some(key) = map.next_key::<Key>()? {
            self.state.budget.renew();
            match key {
                Key::Start => self.report().start = Some(map.next_value()?),
                Key::End => self.report().end = map.next_value().map(Some)?,
                Key::Error => self.report().error = map.next_value::<Option<String>>()?,
                Key::Event => event = map.next_value()?,
                Key::Intervals => map.next_value_seed(Intervals(&mut self))?,
                Key::ServerOutputJson if !self.server => map.next_value_seed(Document {
                    state: &mut *self.state,
                    server: true,
                    entered: &mut false,
                })?,
                Key::Data => match event.as_str() {
                    "start" => self.report().start = Some(map.next_value()?),
                    "end" => self.report().end = Some(map.next_value()?),
                    "interval" => {
                        let interval = map.next_value()?;
                        let most = self.state.most;
                        self.report()
                            .take(interval, most)
                            .map_err(A::Error::custom)?;
                    }
                    "error" => self.report().error = Some(map.next_value()?),
                    _ => _ = map.next_value::<IgnoredAny>()?,
                },
                Key::Other | Key::ServerOutputJson => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

struct Intervals<'a, 'b>(&'a mut Document<'b>);

impl<'de> DeserializeSeed<'de> for Intervals<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Intervals<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of intervals")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut intervals: A) -> Result<(), A::Error> {
        let (budget, most) = (self.0.state.budget.clone(), self.0.state.most);
        while let Some(interval) = intervals.next_element()? {
            budget.renew();
            let taken = self.0.report().take(interval, most);
            taken.map_err(A::Error::custom)?;
        }
        Ok(())
    }
}
