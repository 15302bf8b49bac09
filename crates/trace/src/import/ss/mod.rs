//! Repeated `ss -tin`: one row for each socket and sample.
//!
//! A sample begins with a time on its own line or before each line (as `ts` puts it), with the
//! table's header, or when a socket appears again. A time may also follow a sample, or end each
//! line. The socket's data stands below its addresses, beside them (`-O`), or alone if the
//! addresses were filtered out.

mod addresses;
mod clock;
mod info;
mod unnamed;

#[cfg(test)]
mod tests;

use std::path::Path;

use crate::error::{Place, TraceError};
use crate::import::Read;
use crate::import::input::{Input, shown};
use crate::import::kind::{Kind, Windows};
use crate::import::rows::{FlowNames, Rows};
use crate::record::{Record, Source};

use addresses::{OTHER_NETIDS, addresses_at};
use clock::Clock;
use info::{record, scheme, value};
use unnamed::Unnamed;

pub(super) const KIND: Kind = Kind {
    known: Some("ss -tin"),
    windows: Windows::Rows(|input, most, _| read(input, most)),
    ..Kind::called("ss -tin")
};

/// Assumed time between samples if the file has no times.
const UNTIMED_S: f64 = 1.0;

#[derive(Default)]
struct Flow {
    sample: u64,
    scheme: String,
}

/// The socket that the next line without addresses belongs to.
#[derive(PartialEq)]
enum Owner {
    /// No addresses were seen.
    Unknown,
    /// A socket without a flow, or whose data was already read.
    Nobody,
    /// The socket with these ends; it becomes a flow with its first data.
    Socket(String),
}

/// The position of the times.
#[derive(Clone, Copy, PartialEq)]
enum Times {
    Nowhere,
    Before,
    /// On a line after the sample.
    After,
}

struct Reader<'a> {
    path: &'a Path,
    names: FlowNames,
    flows: Vec<Flow>,
    unnamed: Unnamed,
    rows: Rows<Record>,
    /// Rows that wait for a time after them, with their line numbers.
    waiting: Vec<(u64, Record)>,
    most: usize,
    clock: Clock,
    times: Times,
    sample: u64,
    owner: Owner,
    mss_bytes: Option<u32>,
}

pub(super) fn read(input: Input<'_>, most: usize) -> Result<Read<Record>, TraceError> {
    let mut reader = Reader {
        path: input.path,
        names: FlowNames::default(),
        flows: Vec::new(),
        unnamed: Unnamed::default(),
        rows: Rows::new(most),
        waiting: Vec::new(),
        most,
        clock: Clock::default(),
        times: Times::Nowhere,
        sample: 0,
        owner: Owner::Unknown,
        mss_bytes: None,
    };
    let mut lines = input.lines()?;
    let mut feed = || -> Result<(), TraceError> {
        while let Some((number, line)) = lines.next()? {
            reader.line(number, line)?;
        }
        Ok(())
    };
    let damage = feed().err();
    let cut = lines.warning();
    Ok(reader.finish(damage, cut))
}

impl Reader<'_> {
    fn line(&mut self, number: u64, line: &str) -> Result<(), TraceError> {
        let wrong = |message: String| TraceError::at(self.path, number, "", message);
        let (mut time_s, mut line) = self.clock.split(line);
        let has_window = |line: &str| line.split_whitespace().any(|w| w.starts_with("cwnd:"));
        if time_s.is_none() && has_window(line) {
            (time_s, line) = self.clock.split_end(line);
        }
        if let Some(time_s) = time_s {
            self.at(time_s, line.trim().is_empty())?;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(first) = words.first() else {
            return Ok(());
        };
        if line.contains("Recv-Q") && line.contains("Send-Q") {
            self.sample += u64::from(self.times == Times::Nowhere);
            return Ok(());
        }
        // grep's separator between matches, and flent's between samples
        if *first == "--" || *first == "---" {
            return Ok(());
        }
        let mut info = &words[..];
        let begins = addresses_at(&words);
        if let Some(at) = begins {
            let Some([local, peer]) = words.get(at..at + 2) else {
                let message = format!("got {}, expected two addresses", shown(line));
                return Err(wrong(message));
            };
            info = &words[at + 2..];
            self.owner = Owner::Nobody;
            let transport = words[..at].iter().all(|w| !OTHER_NETIDS.contains(w));
            if transport && !words[..at].contains(&"LISTEN") {
                self.owner = Owner::Socket(format!("{local} -> {peer}"));
            }
        }
        if !info.iter().any(|word| word.starts_with("cwnd:")) {
            if begins.is_none() && !line.starts_with([' ', '\t']) && time_s.is_none() {
                let message = format!("got {}, expected a line of ss -tin", shown(line));
                return Err(wrong(message));
            }
            return Ok(());
        }
        self.socket(number, info)
    }

    /// Takes the data of a socket.
    fn socket(&mut self, number: u64, info: &[&str]) -> Result<(), TraceError> {
        let wrong = |message: String| TraceError::at(self.path, number, "", message);
        let flow = match &self.owner {
            Owner::Socket(name) => {
                let name = name.clone();
                self.owner = Owner::Nobody;
                self.flow(&name).map_err(wrong)?
            }
            Owner::Nobody => return Ok(()),
            // ss reports a window but no times for listening sockets
            Owner::Unknown if value(info, "rto:").or(value(info, "rtt:")).is_none() => {
                return Ok(());
            }
            Owner::Unknown => {
                let timed = self.times == Times::Before;
                let socket = self
                    .unnamed
                    .socket(info, self.sample, timed)
                    .map_err(wrong)?;
                self.flow(&format!(
                    "socket {socket}, whose addresses are not in the file"
                ))
                .map_err(wrong)?
            }
        };
        let known = &mut self.flows[flow as usize];
        if let Some(scheme) = scheme(info) {
            known.scheme = scheme.to_string();
        }
        let time_s = match self.times {
            Times::Nowhere => (known.sample - 1) as f64 * UNTIMED_S,
            Times::Before | Times::After => self.clock.now_s.unwrap_or(0.0),
        };
        let record = record(info, time_s, flow).map_err(wrong)?;
        let mss_bytes = value(info, "mss:").and_then(|mss| mss.parse().ok());
        self.mss_bytes = self.mss_bytes.or(mss_bytes);
        if self.times != Times::After {
            return self.push(number, record);
        }
        if self.rows.len() + self.waiting.len() >= self.most {
            return Err(wrong(format!("more than {} rows", self.most)));
        }
        self.waiting.push((number, record));
        Ok(())
    }

    fn push(&mut self, line: u64, record: Record) -> Result<(), TraceError> {
        let column = String::new();
        self.rows
            .push(self.path, Place::Line { line, column }, record)
    }

    /// Takes a time; `alone` if it has its own line.
    fn at(&mut self, time_s: f64, alone: bool) -> Result<(), TraceError> {
        if self.clock.now_s != Some(time_s) {
            self.sample += 1;
            self.clock.now_s = Some(time_s);
        }
        match self.times {
            Times::Nowhere if self.rows.len() == 0 => self.times = Times::Before,
            Times::Nowhere => {
                // the rows so far had assumed times
                for row in self.rows.iter_mut() {
                    row.time_s = time_s;
                }
                self.times = if alone { Times::After } else { Times::Before };
            }
            Times::After if alone => {
                for (line, record) in std::mem::take(&mut self.waiting) {
                    self.push(line, Record { time_s, ..record })?;
                }
            }
            Times::Before | Times::After => {}
        }
        Ok(())
    }

    /// Returns the number of a flow. A socket that appears again without a time begins a sample.
    fn flow(&mut self, name: &str) -> Result<u32, String> {
        let flow = self.names.number(name)?;
        if flow as usize == self.flows.len() {
            self.flows.push(Flow::default());
        }
        let known = &mut self.flows[flow as usize];
        if self.times == Times::Nowhere && known.sample > 0 && known.sample >= self.sample.max(1) {
            self.sample = known.sample + 1;
        }
        known.sample = self.sample.max(1);
        Ok(flow)
    }

    fn finish(mut self, damage: Option<TraceError>, cut: Option<String>) -> Read<Record> {
        let file = self.path.display();
        let mut warnings: Vec<String> = cut.into_iter().collect();
        if self.times == Times::Nowhere {
            warnings.push(format!(
                "{file}: no times; samples are taken to be {UNTIMED_S} s apart"
            ));
        }
        if self.owner == Owner::Unknown && self.rows.len() > 0 {
            let count = self.flows.len();
            warnings.push(format!(
                "{file}: no addresses; sockets are distinguished by their counters: {count}"
            ));
        }
        if !self.waiting.is_empty() {
            let count = self.waiting.len();
            warnings.push(format!(
                "{file}: {count} rows after the last time are left out"
            ));
        }
        // bytes acknowledged and time: the first and last of each flow
        let mut ends = vec![None; self.flows.len()];
        for row in self.rows.iter_mut() {
            if let Some(acked) = row.snd_una_bytes {
                let now = (row.time_s, acked);
                let (first, _) = ends[row.flow as usize].unwrap_or((now, now));
                ends[row.flow as usize] = Some((first, now));
            }
        }
        let mut read = Read::new(Source::Ss, self.rows, damage);
        read.name_flows(&self.names.names);
        read.metadata.mss_bytes = self.mss_bytes;
        if self.flows.iter().all(|flow| !flow.scheme.is_empty()) {
            let schemes = self.flows.into_iter().map(|flow| flow.scheme);
            read.metadata.schemes = schemes.collect();
        }
        for (number, ends) in (0..).zip(ends) {
            if let Some(((from_s, from), (to_s, to))) = ends
                && to_s > from_s
            {
                let rate_bps = to.saturating_sub(from) as f64 * 8.0 / (to_s - from_s);
                read.goodput_bps.insert(number, rate_bps);
            }
        }
        read.warnings = warnings;
        read
    }
}
