//! ndt7, M-Lab's speed test: the server's archive of a test, or the lines of `ndt7-client -format
//! json`. One row for each TCP_INFO of the server, which sends in a download and receives in an
//! upload.

use serde::Deserialize;
use serde::de::{DeserializeSeed, MapAccess};

use crate::error::{Place, TraceError};
use crate::import::Read;
use crate::import::each::{Each, Keys, Members, skip};
use crate::import::input::{Budget, Input, Metered, json_error, shown};
use crate::import::kind::{Kind, Windows};
use crate::import::rows::Rows;
use crate::record::{Record, Source};

pub(super) const KIND: Kind = Kind {
    known: Some("ndt7 JSON"),
    windows: Windows::Rows(|input, most, _| read(input, most)),
    ..Kind::called("ndt7 JSON")
};

/// TCP_INFO's value for a threshold that was never reached.
const NO_THRESHOLD: f64 = 2_147_483_647.0;

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Measurement {
    #[serde(rename = "TCPInfo")]
    tcp_info: Option<TcpInfo>,
    #[serde(rename = "BBRInfo")]
    bbr_info: Option<serde::de::IgnoredAny>,
    connection_info: Option<Ends>,
    origin: Option<String>,
    test: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct TcpInfo {
    /// Microseconds since the connection began.
    elapsed_time: Option<f64>,
    snd_cwnd: Option<f64>,
    snd_ss_thresh: Option<f64>,
    #[serde(rename = "SndMSS")]
    snd_mss: Option<u32>,
    /// Smoothed round-trip time in microseconds.
    #[serde(rename = "RTT")]
    rtt: Option<f64>,
    bytes_acked: Option<u64>,
    bytes_sent: Option<u64>,
    bytes_retrans: Option<u64>,
    total_retrans: Option<u64>,
    snd_wnd: Option<u64>,
    /// Minimum round-trip time in microseconds.
    #[serde(rename = "MinRTT")]
    min_rtt: Option<f64>,
    /// Bytes per second; negative or huge without a limit.
    pacing_rate: Option<f64>,
    delivery_rate: Option<f64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Ends {
    client: Option<String>,
    server: Option<String>,
}

struct Test {
    rows: Rows<Record>,
    /// The first error in a row.
    wrong: Option<TraceError>,
    measurements: u64,
    /// Download measurements with the server's TCP_INFO.
    with_tcp_info: u64,
    uploads: u64,
    bbr: bool,
    mss_bytes: Option<u32>,
    ends: Ends,
    first: Option<(f64, u64)>,
    last: Option<(f64, u64)>,
    about: Vec<(&'static str, String)>,
}

/// Converts a rate from bytes per second; `None` for an invalid one.
fn rate_bps(bytes_per_s: Option<f64>) -> Option<f64> {
    bytes_per_s
        .filter(|rate| *rate > 0.0 && *rate < 1e15)
        .map(|rate| rate * 8.0)
}

impl Test {
    /// Takes a measurement of a sending server.
    fn take(&mut self, input: Input<'_>, measurement: &Measurement) -> Result<(), String> {
        self.measurements += 1;
        self.bbr |= measurement.bbr_info.is_some();
        let Some(info) = &measurement.tcp_info else {
            return Ok(());
        };
        self.with_tcp_info += 1;
        self.mss_bytes = self.mss_bytes.or(info.snd_mss.filter(|mss| *mss > 0));
        let (Some(elapsed_us), Some(cwnd_packets)) = (info.elapsed_time, info.snd_cwnd) else {
            return Ok(());
        };
        let time_s = elapsed_us / 1e6;
        let acked = info.bytes_acked;
        if let Some(acked) = acked {
            self.first.get_or_insert((time_s, acked));
            self.last = Some((time_s, acked));
        }
        let record = Record {
            time_s,
            cwnd_packets,
            ssthresh_packets: info.snd_ss_thresh.filter(|t| *t > 0.0 && *t < NO_THRESHOLD),
            srtt_s: info.rtt.filter(|rtt| *rtt > 0.0).map(|us| us / 1e6),
            snd_nxt_bytes: info
                .bytes_sent
                .map(|sent| sent.saturating_sub(info.bytes_retrans.unwrap_or(0))),
            snd_una_bytes: acked,
            rwnd_bytes: info.snd_wnd.filter(|w| *w > 0),
            retransmits: info.total_retrans,
            min_rtt_s: info
                .min_rtt
                .filter(|us| *us > 0.0 && *us < 4e9)
                .map(|us| us / 1e6),
            pacing_bps: rate_bps(info.pacing_rate),
            delivery_bps: rate_bps(info.delivery_rate),
            ..Record::default()
        };
        let place = Place::Line {
            line: self.measurements,
            column: String::new(),
        };
        if let Err(mut error) = self.rows.push(input.path, place, record) {
            error.place = None;
            error.message = format!("measurement {}: {}", self.measurements, error.message);
            let message = error.message.clone();
            self.wrong = Some(error);
            return Err(message);
        }
        Ok(())
    }
}

/// An archive, or one line of the client.
struct Top<'a> {
    input: Input<'a>,
    budget: &'a Budget,
    test: &'a mut Test,
}

impl Members for Top<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let (input, budget) = (self.input, self.budget);
        let test = &mut *self.test;
        match key {
            "Download" => {
                let members = Download {
                    input,
                    budget,
                    test,
                };
                map.next_value_seed(Keys { budget, members }).map(|_| ())
            }
            "Upload" => {
                let upload: Option<serde::de::IgnoredAny> = map.next_value()?;
                test.uploads += u64::from(upload.is_some());
                Ok(())
            }
            // a line of the client; the Key before it adds nothing to the value
            "Value" => {
                let measurement: Measurement = map.next_value()?;
                if measurement.test.as_deref() == Some("upload") {
                    test.uploads += u64::from(measurement.tcp_info.is_some());
                } else if measurement.origin.as_deref() == Some("server") {
                    if let Some(ends) = &measurement.connection_info {
                        test.ends.client = test.ends.client.take().or(ends.client.clone());
                        test.ends.server = test.ends.server.take().or(ends.server.clone());
                    }
                    let taken = test.take(input, &measurement);
                    taken.map_err(serde::de::Error::custom)?;
                }
                Ok(())
            }
            "ClientIP" | "ClientPort" | "ServerIP" | "ServerPort" | "StartTime" | "Version" => {
                let text = match map.next_value()? {
                    serde_json::Value::String(text) => text,
                    serde_json::Value::Number(number) => number.to_string(),
                    _ => return Ok(()),
                };
                match key {
                    "ClientIP" => test.ends.client = Some(text),
                    "ServerIP" => test.ends.server = Some(text),
                    "ClientPort" => join(&mut test.ends.client, &text),
                    "ServerPort" => join(&mut test.ends.server, &text),
                    "StartTime" => test.about.push(("started", text)),
                    _ => test.about.push(("ndt_server", text)),
                }
                Ok(())
            }
            _ => skip(map),
        }
    }
}

/// Appends a port to an address.
fn join(end: &mut Option<String>, port: &str) {
    if let Some(address) = end {
        *address = match address.contains(':') {
            true => format!("[{address}]:{port}"),
            false => format!("{address}:{port}"),
        };
    }
}

struct Download<'a> {
    input: Input<'a>,
    budget: &'a Budget,
    test: &'a mut Test,
}

impl Members for Download<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        if key != "ServerMeasurements" {
            return skip(map);
        }
        let (input, test) = (self.input, &mut *self.test);
        let take = |measurement: Measurement| test.take(input, &measurement);
        map.next_value_seed(Each::new(self.budget, take))
    }
}

pub(super) fn read(input: Input<'_>, most: usize) -> Result<Read<Record>, TraceError> {
    let budget = Budget::new();
    let mut test = Test {
        rows: Rows::new(most),
        wrong: None,
        measurements: 0,
        with_tcp_info: 0,
        uploads: 0,
        bbr: false,
        mss_bytes: None,
        ends: Ends::default(),
        first: None,
        last: None,
        about: Vec::new(),
    };
    let source = Metered {
        source: input.open()?,
        budget: budget.clone(),
    };
    let mut json = serde_json::Deserializer::from_reader(std::io::BufReader::new(source));
    let mut damage = loop {
        budget.renew();
        let mut ended = true;
        let members = Entered {
            top: Top {
                input,
                budget: &budget,
                test: &mut test,
            },
            ended: &mut ended,
        };
        let keys = Keys {
            budget: &budget,
            members,
        };
        match keys.deserialize(&mut json).map(|_| ()) {
            Ok(()) => {}
            Err(error) if error.is_eof() && ended => break None,
            Err(error) => break Some(json_error(input.path, &error, 1)),
        }
    };
    damage = test.wrong.take().or(damage);
    if damage.is_none() && test.rows.len() == 0 {
        damage = Some(TraceError::new(input.path, why_no_rows(&test)));
    }
    let mut read = Read::new(Source::Ndt7, test.rows, damage);
    read.metadata.mss_bytes = test.mss_bytes;
    if test.bbr {
        read.metadata.schemes = vec!["bbr".to_string()];
    }
    if let (Some(client), Some(server)) = (&test.ends.client, &test.ends.server) {
        read.name_flows(&[format!("{server} -> {client}")]);
    }
    for (name, text) in test.about {
        read.metadata.environment.insert(name.to_string(), text);
    }
    if let (Some((from_s, from)), Some((to_s, to))) = (test.first, test.last)
        && to_s > from_s
    {
        let rate_bps = to.saturating_sub(from) as f64 * 8.0 / (to_s - from_s);
        read.goodput_bps.insert(0, rate_bps);
    }
    if test.uploads > 0 {
        let file = input.path.display();
        read.warnings.push(format!(
            "{file}: the upload is left out: its measurements are those of the receiver"
        ));
    }
    Ok(read)
}

fn why_no_rows(test: &Test) -> String {
    let what = match (test.measurements, test.uploads) {
        (0, 0) => "it has no measurements of a server",
        (0, _) => "it has an upload alone, whose measurements are those of the receiver",
        _ if test.with_tcp_info == 0 => "no measurement has TCPInfo",
        _ => "no TCPInfo has SndCwnd and ElapsedTime",
    };
    format!(
        "is ndt7's data, and {what}; expected ServerMeasurements of a download with {}",
        shown("TCPInfo")
    )
}

/// Records that an object began, because its end may be cut off.
struct Entered<'a, 'b> {
    top: Top<'a>,
    ended: &'b mut bool,
}

impl Members for Entered<'_, '_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        *self.ended = false;
        self.top.member(key, map)
    }
}

#[cfg(test)]
mod tests {
    use crate::import::testing::{never_panics, read, read_prefix};

    /// As ndt-server stores it, with fewer TCPInfo fields.
    const ARCHIVE: &str = r#"{"GitShortCommit": "773d318", "Version": "v0.20.6", "ClientIP": "2001:db8::1", "ClientPort": 40910,
 "ServerIP": "192.0.2.7", "ServerPort": 443, "StartTime": "2026-01-01T15:26:05.98Z", "EndTime": "2026-01-01T15:26:16Z",
 "Download": {"StartTime": "x", "UUID": "u", "ClientMeasurements": [{"AppInfo": {"ElapsedTime": 5, "NumBytes": 6}}],
  "ServerMeasurements": [
   {"AppInfo": {"NumBytes": 100, "ElapsedTime": 9}, "BBRInfo": {"BW": 5, "MinRTT": 20000, "ElapsedTime": 100000},
    "TCPInfo": {"State": 1, "RTT": 20500, "RTTVar": 90, "SndCwnd": 32, "SndMSS": 1428, "SndSsThresh": 2147483647,
     "BytesAcked": 100001, "BytesSent": 150000, "BytesRetrans": 1428, "TotalRetrans": 1, "SndWnd": 65536, "ElapsedTime": 100000}},
   {"AppInfo": null},
   {"TCPInfo": {"RTT": 40500, "SndCwnd": 64, "SndMSS": 1428, "SndSsThresh": 40,
     "BytesAcked": 1100001, "BytesSent": 1200000, "BytesRetrans": 2856, "TotalRetrans": 2, "ElapsedTime": 1100000}}
  ]}}
"#;

    const LINES: &str = r#"{"Key":"starting","Value":{"Test":"download"}}
{"Key":"measurement","Value":{"AppInfo":{"NumBytes":5,"ElapsedTime":6},"Origin":"client","Test":"download"}}
{"Key":"measurement","Value":{"ConnectionInfo":{"Client":"10.0.0.1:4444","Server":"10.0.0.2:443","UUID":"u"},"Origin":"server","Test":"download","TCPInfo":{"RTT":20500,"SndCwnd":10,"SndMSS":1448,"BytesAcked":5,"ElapsedTime":250000}}}
{"Key":"measurement","Value":{"Origin":"server","Test":"download","TCPInfo":{"RTT":20500,"SndCwnd":20,"SndMSS":1448,"BytesAcked":1005,"ElapsedTime":500000}}}
{"Key":"measurement","Value":{"Origin":"server","Test":"upload","TCPInfo":{"RTT":20500,"SndCwnd":10,"SndMSS":1448,"ElapsedTime":250000}}}
{"Key":"complete","Value":{"Test":"upload"}}
{"ServerFQDN":"x","Download":{"UUID":"u","Throughput":{"Value":5,"Unit":"Mbit/s"}},"Upload":null}
"#;

    #[test]
    fn measurements_of_a_sending_server_become_rows() {
        let read = read(ARCHIVE).unwrap();
        let rows = &read.trace.records;
        assert_eq!(rows.len(), 2);
        let last = rows[1];
        assert_eq!((last.time_s, last.cwnd_packets), (1.0, 64.0));
        assert_eq!(last.srtt_s, Some(0.0405));
        assert_eq!(
            (rows[0].ssthresh_packets, last.ssthresh_packets),
            (None, Some(40.0))
        );
        assert_eq!(last.snd_nxt_bytes, Some(1_200_000 - 2856));
        assert_eq!(
            (last.snd_una_bytes, last.retransmits),
            (Some(1_100_001), Some(2))
        );
        assert_eq!(read.goodput_bps[&0], 8e6);
        assert_eq!(read.trace.metadata.mss_bytes, Some(1428));
        assert_eq!(read.trace.metadata.schemes, ["bbr"]);
        let flow = &read.trace.metadata.environment["flow 0"];
        assert_eq!(flow, "192.0.2.7:443 -> [2001:db8::1]:40910");
    }

    #[test]
    fn the_lines_of_a_client_are_read_without_the_upload() {
        let read = read(LINES).unwrap();
        let rows: Vec<_> = read
            .trace
            .records
            .iter()
            .map(|r| (r.time_s, r.cwnd_packets))
            .collect();
        assert_eq!(rows, [(0.0, 10.0), (0.25, 20.0)]);
        assert_eq!(read.goodput_bps[&0], 32_000.0);
        let flow = &read.trace.metadata.environment["flow 0"];
        assert_eq!(flow, "10.0.0.2:443 -> 10.0.0.1:4444");
        assert!(read.warnings[0].contains("the upload is left out"));
    }

    #[test]
    fn what_has_no_windows_is_refused_by_what_it_lacks() {
        for (text, wanted) in [
            (
                ARCHIVE.replace("\"Download\"", "\"Upload\""),
                "an upload alone",
            ),
            (ARCHIVE.replace("SndCwnd", "X"), "no TCPInfo has SndCwnd"),
            (
                ARCHIVE.replace("\"TCPInfo\"", "\"X\""),
                "no measurement has TCPInfo",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn a_cut_file_is_refused_or_kept_so_far() {
        let cut = &ARCHIVE[..ARCHIVE.find("{\"TCPInfo\": {\"RTT\": 40500").unwrap() + 30];
        assert!(read(cut).unwrap_err().starts_with("f:9: column "));
        assert_eq!(read_prefix(cut).unwrap().trace.records.len(), 1);
    }

    never_panics!(ARCHIVE, LINES);
}
