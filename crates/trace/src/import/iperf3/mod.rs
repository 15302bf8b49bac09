//! iperf3's JSON: `-J` prints it at the end, `--json-stream` line by line. One row for each
//! interval and stream of the sender's side.
//!
//! With `--get-server-output` the client's report contains the server's. If the client is the
//! receiver (`-R`), the rows come from the server's report.

mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader};

use serde::de::DeserializeSeed;

use crate::error::{Place, TraceError};
use crate::import::Read;
use crate::import::input::{Budget, Input, Metered, json_error, shown};
use crate::import::kind::{Kind, Windows};
use crate::import::rows::Rows;
use crate::record::{Record, Source};

use report::{Document, Report, State};

pub(super) const KIND: Kind = Kind {
    known: Some("iperf3 -J"),
    windows: Windows::Rows(|input, most, _| read(input, most)),
    ..Kind::called("iperf3 JSON")
};

/// Bytes of IP and TCP headers with timestamps, to derive the payload size from the path's MTU.
const HEADERS_BYTES: u64 = 52;

pub(super) fn read(input: Input<'_>, most: usize) -> Result<Read<Record>, TraceError> {
    let budget = Budget::new();
    let mut state = State {
        client: Report::default(),
        server: Report::default(),
        budget: budget.clone(),
        most,
    };
    let mut source = BufReader::new(input.open()?);
    let first_line = 1 + skip_to_object(input, &mut source)?;
    let source = Metered { source, budget };
    let mut json = serde_json::Deserializer::from_reader(BufReader::new(source));
    // one object from `-J`, or one object for each event
    let mut damage = loop {
        let mut entered = false;
        let document = Document {
            state: &mut state,
            server: false,
            entered: &mut entered,
        };
        match document.deserialize(&mut json) {
            Ok(()) => {}
            Err(error) if error.is_eof() && !entered => break None,
            Err(error) => break Some(json_error(input.path, &error, first_line)),
        }
    };
    let State { client, server, .. } = state;
    let from_server = client.raw.is_empty() && !server.raw.is_empty();
    let report = if from_server { server } else { client };
    if report.raw.is_empty() && (damage.is_none() || report.intervals > 0) {
        damage = Some(TraceError::new(input.path, why_no_rows(&report)));
    }
    Ok(finish(input, report, from_server, damage, most))
}

/// Skips what a terminal or a warning put before a report, and counts its lines.
fn skip_to_object(input: Input<'_>, source: &mut impl BufRead) -> Result<u64, TraceError> {
    let error = |error: io::Error| TraceError::new(input.path, format!("cannot be read: {error}"));
    let mut lines = 0;
    loop {
        let buffer = source.fill_buf().map_err(error)?;
        let at = buffer.iter().position(|byte| *byte == b'{');
        let before = &buffer[..at.unwrap_or(buffer.len())];
        lines += before.iter().filter(|byte| **byte == b'\n').count() as u64;
        let (count, ended) = (before.len(), buffer.is_empty());
        source.consume(count);
        if at.is_some() || ended {
            return Ok(lines);
        }
    }
}

fn why_no_rows(report: &Report) -> String {
    let protocol = (report.start.as_ref())
        .and_then(|start| start.test_start.as_ref())
        .and_then(|test| test.protocol.as_deref())
        .filter(|protocol| *protocol != "TCP");
    match (&report.error, protocol) {
        (Some(error), _) if report.intervals == 0 => {
            format!("iperf3 reports the error {}", shown(error))
        }
        (_, Some(protocol)) => format!(
            "it is a report of {}, which tells of no windows; expected one of TCP",
            shown(protocol)
        ),
        _ if report.intervals == 0 => "it has no intervals".to_string(),
        _ => {
            "no interval has snd_cwnd: it is a receiver's report, or of a system without TCP_INFO; \
              expected the sender's, or --get-server-output"
                .to_string()
        }
    }
}

fn finish(
    input: Input<'_>,
    report: Report,
    from_server: bool,
    mut damage: Option<TraceError>,
    most: usize,
) -> Read<Record> {
    let mut warnings = Vec::new();
    let file = input.path.display();
    let (mss_bytes, doubt) = mss(&report);
    warnings.extend(doubt.map(|doubt| format!("{file}: {doubt}")));
    let mut rows = Rows::new(most);
    for (row, raw) in (1..).zip(&report.raw) {
        let record = Record {
            time_s: raw.end_s,
            flow: raw.flow,
            cwnd_packets: raw.cwnd_bytes / mss_bytes as f64,
            srtt_s: raw.srtt_s,
            snd_nxt_bytes: Some(raw.sent_bytes),
            rwnd_bytes: raw.rwnd_bytes,
            retransmits: raw.retransmits,
            ..Record::default()
        };
        let place = Place::Line {
            line: row,
            column: String::new(),
        };
        if let Err(mut error) = rows.push(input.path, place, record) {
            // the error counts in intervals, because their lines are not kept
            error.message = format!("row {row} of the intervals: {}", error.message);
            error.place = None;
            damage = Some(error);
            break;
        }
    }
    let mut read = Read::new(Source::Iperf3, rows, damage);
    read.metadata.mss_bytes = u32::try_from(mss_bytes).ok();
    let flows = report.streams.len();
    if let Some(start) = &report.start {
        let names: Vec<String> = (start.connected.iter())
            .map(|c| {
                let (local, remote) = (
                    format!("{}:{}", c.local_host, c.local_port),
                    format!("{}:{}", c.remote_host, c.remote_port),
                );
                // the client reports its own end; a server's report describes the other end
                format!("{local} -> {remote}")
            })
            .collect();
        read.name_flows(&names);
        let mut note = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                read.metadata.environment.insert(key.to_string(), value);
            }
        };
        note("iperf3", start.version.clone());
        let timestamp = start.timestamp.as_ref();
        note("started_s", timestamp.map(|t| t.timesecs.to_string()));
    }
    let scheme = (report.end.as_ref()).and_then(|end| end.sender_tcp_congestion.as_ref());
    if let Some(scheme) = scheme {
        read.metadata.schemes = vec![scheme.clone(); flows];
    }
    let (goodput_bps, doubt) = goodput(&report);
    warnings.extend(doubt.map(|doubt| format!("{file}: {doubt}")));
    read.goodput_bps = goodput_bps;
    if let Some(error) = report.error {
        let error = shown(error);
        warnings.push(format!("{file}: iperf3 reports the error {error}"));
    }
    if from_server {
        let from = "the server's report (the client received)";
        read.metadata
            .environment
            .insert("side".to_string(), from.to_string());
    }
    read.warnings = warnings;
    read
}

/// Returns the goodput of each flow: the receiver's count or, if the run was interrupted and there
/// is none, the sender's sum over intervals. The second value warns about such sums.
fn goodput(report: &Report) -> (BTreeMap<u32, f64>, Option<String>) {
    let mut goodput_bps = BTreeMap::new();
    let ends = report.end.as_ref().map_or(&[][..], |end| &end.streams);
    for (place, sum) in (0..).zip(ends.iter().map(|stream| stream.receiver.as_ref())) {
        let Some(sum) = sum.filter(|sum| sum.bits_per_second > 0.0) else {
            continue;
        };
        let known = |socket| report.streams.iter().position(|s| s.socket == socket);
        let flow = sum.socket.and_then(known).map_or(place, |flow| flow as u32);
        goodput_bps.insert(flow, sum.bits_per_second);
    }
    let mut summed = false;
    for (flow, stream) in (0..).zip(&report.streams) {
        let has_rows = report.raw.iter().any(|raw| raw.flow == flow);
        if has_rows && stream.end_s > 0.0 && !goodput_bps.contains_key(&flow) {
            goodput_bps.insert(flow, stream.bytes * 8.0 / stream.end_s);
            summed |= stream.bytes > 0.0;
        }
    }
    let doubt = summed.then(|| {
        "the report does not say what the receiver got (the run was interrupted); goodput is what the \
         sender's intervals sum up to"
            .to_string()
    });
    (goodput_bps, doubt)
}

/// Returns the payload of a full packet, and a warning if it is doubtful.
///
/// snd_cwnd is a multiple of the packet size. That gives the size if the report lacks it or has a
/// different one (the MSS before options).
fn mss(report: &Report) -> (u64, Option<String>) {
    let start = report.start.as_ref();
    let said = start
        .and_then(|start| start.tcp_mss.or(start.tcp_mss_default))
        .filter(|mss| (64..=65_535).contains(mss));
    let windows: BTreeSet<u64> = report.raw.iter().map(|raw| raw.cwnd_bytes as u64).collect();
    if let Some(mss) = said
        && windows.iter().all(|window| window % mss == 0)
    {
        return (mss, None);
    }
    let divisor = windows.iter().fold(0, |a, &b| gcd(a, b));
    if windows.len() >= 4 && (64..=65_535).contains(&divisor) {
        let doubt = said.map(|mss| {
            format!("the MSS is taken as {divisor} B, which divides all windows, not {mss} B")
        });
        return (divisor, doubt);
    }
    if let Some(mss) = said {
        return (mss, None);
    }
    let from_mtu = report.pmtu.and_then(|pmtu| pmtu.checked_sub(HEADERS_BYTES));
    let mss = from_mtu.filter(|mss| *mss >= 64).unwrap_or(1448);
    let doubt = format!("the report has no MSS; packets are taken to carry {mss} B");
    (mss, Some(doubt))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use crate::import::testing::{never_panics, read, read_prefix};

    const REPORT: &str = r#"{
  "start": {"connected": [{"socket": 5, "local_host": "10.0.0.1", "local_port": 4444, "remote_host": "10.0.0.2", "remote_port": 5201}],
    "version": "iperf 3.12", "timestamp": {"time": "x", "timesecs": 1700000000}, "tcp_mss_default": 1448,
    "test_start": {"protocol": "TCP", "num_streams": 1}},
  "intervals": [
    {"streams": [{"socket": 5, "start": 0, "end": 1.0, "seconds": 1.0, "bytes": 1745280, "bits_per_second": 1, "retransmits": 0, "snd_cwnd": 14480, "rtt": 20000, "rttvar": 9, "pmtu": 1500, "omitted": true, "sender": true}], "sum": {}},
    {"streams": [{"socket": 5, "start": 0, "end": 1.0, "seconds": 1.0, "bytes": 1000000, "bits_per_second": 1, "retransmits": 2, "snd_cwnd": 28960, "snd_wnd": 65536, "rtt": 21000, "rttvar": 9, "pmtu": 1500, "omitted": false, "sender": true}], "sum": {}},
    {"streams": [{"socket": 5, "start": 1.0, "end": 2.0, "seconds": 1.0, "bytes": 2000000, "bits_per_second": 1, "retransmits": 1, "snd_cwnd": 43440, "rtt": 22000, "rttvar": 9, "pmtu": 1500, "omitted": false, "sender": true}], "sum": {}}
  ],
  "end": {"streams": [{"sender": {"bits_per_second": 12.5}, "receiver": {"bits_per_second": 11750000.5}}], "sender_tcp_congestion": "reno"}
}
"#;

    const STREAMED: &str = r#"{"event":"start","data":{"connected":[],"tcp_mss":1000}}
{"event":"interval","data":{"streams":[{"socket":5,"start":0,"end":0.5,"bytes":100,"snd_cwnd":10000,"rtt":5}]}}
{"event":"interval","data":{"streams":[{"socket":5,"start":0.5,"end":1,"bytes":100,"snd_cwnd":12000,"rtt":5}]}}
{"event":"end","data":{}}
"#;

    #[test]
    fn intervals_become_rows_in_packets() {
        let read = read(REPORT).unwrap();
        let rows = &read.trace.records;
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].time_s, rows[1].time_s), (0.0, 1.0));
        assert_eq!((rows[0].cwnd_packets, rows[1].cwnd_packets), (20.0, 30.0));
        assert_eq!(rows[1].srtt_s, Some(0.022));
        assert_eq!(rows[1].snd_nxt_bytes, Some(3_000_000));
        assert_eq!(rows[1].retransmits, Some(3));
        assert_eq!(rows[0].rwnd_bytes, Some(65_536));
        assert_eq!(read.trace.metadata.schemes, ["reno"]);
        assert_eq!(read.trace.metadata.mss_bytes, Some(1448));
        assert_eq!(read.goodput_bps[&0], 11_750_000.5);
        let flow = &read.trace.metadata.environment["flow 0"];
        assert_eq!(flow, "10.0.0.1:4444 -> 10.0.0.2:5201");
    }

    #[test]
    fn a_stream_of_events_is_read() {
        let read = read(STREAMED).unwrap();
        let cwnds: Vec<f64> = read.trace.records.iter().map(|r| r.cwnd_packets).collect();
        assert_eq!(cwnds, [10.0, 12.0]);
    }

    #[test]
    fn the_server_of_a_reversed_test_is_the_sender() {
        let client = REPORT.replace("\"snd_cwnd\"", "\"x\"");
        let error = read(&client).unwrap_err();
        assert!(error.contains("no interval has snd_cwnd"), "{error}");
        let end = client.trim_end().len() - 1;
        let both = format!("{}, \"server_output_json\": {REPORT} }}", &client[..end]);
        assert_eq!(read(&both).unwrap().trace.records.len(), 2);
    }

    #[test]
    fn a_cut_report_is_refused_or_kept_so_far() {
        let cut = &REPORT[..REPORT.find("\"start\": 1.0").unwrap()];
        let error = read(cut).unwrap_err();
        assert!(error.starts_with("f:8: column "), "{error}");
        let kept = read_prefix(cut).unwrap();
        assert_eq!(kept.trace.records.len(), 1);
        let kept_rows = |w: &String| w.contains("the 1 rows before it are kept");
        assert!(kept.warnings.iter().any(kept_rows), "{:?}", kept.warnings);
    }

    #[test]
    fn goodput_of_an_interrupted_run_is_the_sum_of_its_intervals() {
        let receiver = REPORT.replace("11750000.5", "0");
        let streams = REPORT.find("\"end\": {\"streams\"").unwrap();
        let no_end = format!(
            "{}\"end\": {{}}, \"error\": \"interrupt\"}}",
            &REPORT[..streams]
        );
        for text in [receiver, no_end] {
            let read = read(text).unwrap();
            assert_eq!(read.goodput_bps[&0], 3_000_000.0 * 8.0 / 2.0);
            let warnings = read.warnings.join("\n");
            assert!(
                warnings.contains("what the sender's intervals sum up to"),
                "{warnings}"
            );
        }
    }

    #[test]
    fn streams_are_matched_by_their_sockets() {
        let text = r#"{"start": {"connected": [], "tcp_mss": 1000}, "intervals": [{"streams": [
            {"socket": 5, "end": 1, "bytes": 100, "snd_cwnd": 10000},
            {"socket": 7, "end": 1, "bytes": 100, "snd_cwnd": 10000}]}],
            "end": {"streams": [{"receiver": {"socket": 7, "bits_per_second": 7}},
            {"receiver": {"socket": 5, "bits_per_second": 5}}]}}"#;
        let read = read(text).unwrap();
        assert_eq!((read.goodput_bps[&0], read.goodput_bps[&1]), (5.0, 7.0));
    }

    #[test]
    fn what_stands_before_a_report_is_passed_over() {
        let read = read(format!("^C{REPORT}")).unwrap();
        assert_eq!(read.trace.records.len(), 2);
        let cut = &REPORT[..REPORT.find("\"start\": 1.0").unwrap()];
        let error = super::super::testing::read(format!("^C\n{cut}")).unwrap_err();
        assert!(error.starts_with("f:9: column "), "{error}");
    }

    #[test]
    fn a_report_without_windows_says_why() {
        let udp = REPORT
            .replace("\"TCP\"", "\"UDP\"")
            .replace("\"snd_cwnd\"", "\"x\"");
        let error = read(&udp).unwrap_err();
        assert!(error.contains("a report of \"UDP\""), "{error}");
        let cut = REPORT.replace("\"snd_cwnd\"", "\"x\"");
        let error = read(&cut[..cut.find("\"end\": {").unwrap()]).unwrap_err();
        assert!(error.contains("no interval has snd_cwnd"), "{error}");
    }

    never_panics!(REPORT, STREAMED);
}
