//! Flent's data files: one row for each sample that flent took of a socket (`--socket-stats`).
//!
//! The raw values of a TCP series hold both netperf's count in Mbit/s and ss's socket statistics.

use serde::Deserialize;
use serde::de::{DeserializeSeed, MapAccess};

use crate::error::{Place, TraceError};
use crate::import::Read;
use crate::import::each::{Each, Keys, Members, skip};
use crate::import::input::{Budget, Input, Metered, json_error};
use crate::import::kind::{Kind, Windows};
use crate::import::rows::{FlowNames, Rows};
use crate::record::{Record, Source};

pub(super) const KIND: Kind = Kind {
    known: Some("data of flent"),
    windows: Windows::Rows(|input, most, _| read(input, most)),
    ..Kind::called("flent's data")
};

/// Payload of a packet if the file does not state it: Ethernet, IPv4, TCP with timestamps.
const MSS_BYTES: u32 = 1448;

#[derive(Deserialize)]
struct Point {
    /// Seconds since 1970.
    t: Option<f64>,
    /// netperf: Mbit/s since the last sample; ping: milliseconds.
    val: Option<serde_json::Value>,
    /// Seconds that `val` averages over.
    dur: Option<f64>,
    tcp_cwnd: Option<f64>,
    /// Smoothed round-trip time in milliseconds.
    tcp_rtt: Option<f64>,
}

#[derive(Default)]
struct Series {
    name: String,
    looks: Vec<(f64, f64, Option<f64>)>,
    /// Times, and the bytes carried up to each.
    counts: Vec<(f64, f64)>,
}

#[derive(Default)]
struct File {
    series: Vec<Series>,
    /// Metadata texts and numbers.
    about: Vec<(&'static str, String)>,
    rows: usize,
    most: usize,
    had_raw_values: bool,
}

/// Metadata that helps to identify the run, with its name in the trace.
const ABOUT: [(&str, &str); 6] = [
    ("NAME", "flent_test"),
    ("TITLE", "flent_title"),
    ("TIME", "started"),
    ("HOST", "host"),
    ("LOCAL_HOST", "local_host"),
    ("FLENT_VERSION", "flent"),
];

struct Top<'a> {
    budget: &'a Budget,
    file: &'a mut File,
}

impl Members for Top<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let (budget, file) = (self.budget, &mut *self.file);
        match key {
            "metadata" => {
                let members = About { file };
                map.next_value_seed(Keys { budget, members }).map(|_| ())
            }
            "raw_values" => {
                file.had_raw_values = true;
                let members = RawValues { budget, file };
                map.next_value_seed(Keys { budget, members }).map(|_| ())
            }
            _ => skip(map),
        }
    }
}

struct About<'a> {
    file: &'a mut File,
}

impl Members for About<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let Some((_, name)) = ABOUT.iter().find(|(known, _)| *known == key) else {
            return skip(map);
        };
        if let serde_json::Value::String(text) = map.next_value()? {
            self.file.about.push((name, text));
        }
        Ok(())
    }
}

struct RawValues<'a> {
    budget: &'a Budget,
    file: &'a mut File,
}

impl Members for RawValues<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let mut series = Series {
            name: key.to_string(),
            ..Series::default()
        };
        let (rows, most) = (&mut self.file.rows, self.file.most);
        let take = |point: Point| {
            *rows += 1;
            if *rows > most {
                return Err(format!("more than {most} raw values"));
            }
            series.take(&point);
            Ok(())
        };
        let outcome = map.next_value_seed(Each::new(self.budget, take));
        // keep the rows before the cut of a truncated file
        if !series.looks.is_empty() {
            self.file.series.push(series);
        }
        outcome
    }
}

impl Series {
    fn take(&mut self, point: &Point) {
        let Some(time_s) = point.t.filter(|t| t.is_finite()) else {
            return;
        };
        if let Some(cwnd) = point.tcp_cwnd.filter(|cwnd| *cwnd > 0.0) {
            let srtt_s = point.tcp_rtt.filter(|rtt| *rtt > 0.0).map(|ms| ms / 1e3);
            self.looks.push((time_s, cwnd, srtt_s));
        }
        let rate_mbps = point.val.as_ref().and_then(serde_json::Value::as_f64);
        if let Some(rate_mbps) = rate_mbps.filter(|rate| *rate >= 0.0) {
            let (before_s, bytes) = self.counts.last().copied().unwrap_or((time_s, 0.0));
            // the interval before the first value without a length is unknown
            let since_s = point.dur.unwrap_or(time_s - before_s).max(0.0);
            if self.counts.is_empty() {
                self.counts.push((time_s - since_s, 0.0));
            }
            self.counts
                .push((time_s, bytes + rate_mbps * 1e6 / 8.0 * since_s));
        }
    }

    /// Bytes carried until `time_s`, interpolated linearly between two counts.
    fn bytes_at(&self, time_s: f64) -> Option<u64> {
        let after = self.counts.partition_point(|(t, _)| *t < time_s);
        let bytes = match (
            self.counts.get(after.wrapping_sub(1)),
            self.counts.get(after),
        ) {
            (Some((from_s, from)), Some((to_s, to))) => {
                let share = (time_s - from_s) / (to_s - from_s).max(f64::MIN_POSITIVE);
                from + (to - from) * share.clamp(0.0, 1.0)
            }
            (Some((_, bytes)), None) | (None, Some((_, bytes))) => *bytes,
            (None, None) => return None,
        };
        Some(bytes as u64)
    }

    fn goodput_bps(&self) -> Option<f64> {
        let ((from_s, _), (to_s, bytes)) = (self.counts.first()?, self.counts.last()?);
        (to_s > from_s).then(|| bytes * 8.0 / (to_s - from_s))
    }
}

pub(super) fn read(input: Input<'_>, most: usize) -> Result<Read<Record>, TraceError> {
    let budget = Budget::new();
    let mut file = File {
        most,
        ..File::default()
    };
    let source = Metered {
        source: input.open()?,
        budget: budget.clone(),
    };
    let mut json = serde_json::Deserializer::from_reader(std::io::BufReader::new(source));
    let members = Top {
        budget: &budget,
        file: &mut file,
    };
    let whole = Keys {
        budget: &budget,
        members,
    };
    let outcome = whole.deserialize(&mut json).map(|_| ());
    let outcome = outcome.and_then(|()| json.end());
    let mut damage = outcome.err().map(|error| json_error(input.path, &error, 1));
    if file.series.is_empty() && damage.is_none() {
        let why = if file.had_raw_values {
            "is flent's data of a test without windows; run flent with --socket-stats, which asks ss \
             for them"
        } else {
            "is flent's data without raw values, which alone have windows"
        };
        damage = Some(TraceError::new(input.path, why));
    }
    let mut names = FlowNames::default();
    let mut looks: Vec<(f64, Record)> = Vec::new();
    let mut goodput_bps = std::collections::BTreeMap::new();
    for series in &mut file.series {
        series.counts.sort_by(|a, b| a.0.total_cmp(&b.0));
        let flow = names
            .number(&series.name)
            .map_err(|message| TraceError::new(input.path, message))?;
        goodput_bps.extend(series.goodput_bps().map(|rate| (flow, rate)));
        for &(time_s, cwnd_packets, srtt_s) in &series.looks {
            let record = Record {
                time_s,
                flow,
                cwnd_packets,
                srtt_s,
                snd_nxt_bytes: series.bytes_at(time_s),
                ..Record::default()
            };
            looks.push((time_s, record));
        }
    }
    looks.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut rows = Rows::new(most);
    for (number, (_, record)) in (1..).zip(looks) {
        let place = Place::Line {
            line: number,
            column: String::new(),
        };
        if let Err(mut error) = rows.push(input.path, place, record) {
            error.place = None;
            error.message = format!("look {number} at a socket: {}", error.message);
            damage = damage.or(Some(error));
            break;
        }
    }
    let mut read = Read::new(Source::Flent, rows, damage);
    read.name_flows(&names.names);
    read.metadata.mss_bytes = Some(MSS_BYTES);
    read.goodput_bps = goodput_bps;
    for (name, text) in file.about {
        read.metadata.environment.insert(name.to_string(), text);
    }
    if read.rows.len() > 0 {
        read.warnings.push(format!(
            "{}: flent's data has no MSS; packets are taken to carry {MSS_BYTES} B",
            input.path.display()
        ));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use crate::import::testing::{never_panics, read, read_prefix};

    /// As flent 2 writes `tcp_nup --socket-stats`: ordered keys, and a ping series.
    const DATA: &str = r#"{
 "metadata": {"BATCH_NAME": null, "FLENT_VERSION": "2.1.1", "HOST": "10.0.0.2", "NAME": "tcp_1up",
  "SERIES_META": {"TCP upload": {"UNITS": "Mbits/s"}}, "TIME": "2026-01-01T00:00:00.000000Z", "TITLE": "x"},
 "raw_values": {
  "Ping (ms) ICMP": [{"seq": 1.0, "t": 1700000000.1, "val": 20.5}],
  "TCP upload": [
   {"t": 1700000000.0, "tcp_cwnd": 10.0, "tcp_rtt": 20.5, "tcp_rtt_var": 1.0, "tcp_pacing_rate": 5.0},
   {"dur": 1.0, "t": 1700000001.0, "val": 8.0},
   {"t": 1700000001.5, "tcp_cwnd": 20.0, "tcp_rtt": 40.5},
   {"dur": 1.0, "t": 1700000002.0, "val": 16.0},
   {"t": 1700000002.5, "tcp_cwnd": 30.0}
  ]
 },
 "results": {"TCP upload": [8.0, 16.0], "TCP upload::tcp_cwnd": [10.0, 20.0]},
 "version": 4,
 "x_values": [0.0, 0.2]
}
"#;

    #[test]
    fn looks_at_sockets_become_rows() {
        let read = read(DATA).unwrap();
        let rows = &read.trace.records;
        let got: Vec<_> = rows
            .iter()
            .map(|r| (r.time_s, r.cwnd_packets, r.srtt_s))
            .collect();
        let wanted = [
            (0.0, 10.0, Some(0.0205)),
            (1.5, 20.0, Some(0.0405)),
            (2.5, 30.0, None),
        ];
        assert_eq!(got, wanted);
        // 1 MB in the first second, 2 MB in the next
        let bytes: Vec<_> = rows.iter().map(|r| r.snd_nxt_bytes).collect();
        assert_eq!(bytes, [Some(0), Some(2_000_000), Some(3_000_000)]);
        assert_eq!(read.goodput_bps[&0], 12e6);
        let about = &read.trace.metadata.environment;
        assert_eq!(about["flow 0"], "TCP upload");
        assert_eq!(about["flent_test"], "tcp_1up");
        assert!(read.warnings[0].contains("no MSS"), "{:?}", read.warnings);
    }

    #[test]
    fn data_without_windows_say_what_to_run() {
        let error = read(DATA.replace("tcp_cwnd\": ", "x\": ")).unwrap_err();
        assert!(error.contains("--socket-stats"), "{error}");
        let error = read(DATA.replace("raw_values", "raw")).unwrap_err();
        assert!(error.contains("without raw values"), "{error}");
    }

    #[test]
    fn a_cut_file_is_refused_or_kept_so_far() {
        let cut = &DATA[..DATA.find("{\"dur\": 1.0, \"t\": 1700000002.0").unwrap()];
        assert!(read(cut).unwrap_err().starts_with("f:10: column "));
        assert_eq!(read_prefix(cut).unwrap().trace.records.len(), 2);
    }

    never_panics!(DATA);
}
