//! `ss -tin`, run again and again: one row for each socket and sample.
//!
//! A sample begins with a time on a line of its own or before each line (as `ts` puts it), or with
//! the table's header, or when a socket comes again.

use crate::error::{Place, TraceError};
use crate::import::Read;
use crate::import::input::{Input, shown};
use crate::import::rows::{FlowNames, Rows};
use crate::record::{Record, Source};

/// Between samples, where nothing tells the time.
const UNTIMED_S: f64 = 1.0;

const STATES: [&str; 13] = [
    "ESTAB",
    "SYN-SENT",
    "SYN-RECV",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "TIME-WAIT",
    "UNCONN",
    "CLOSE-WAIT",
    "LAST-ACK",
    "LISTEN",
    "CLOSING",
    "CLOSED",
    "BOUND",
];
/// What ss says of a connection in single words before the name of its congestion control.
const FLAGS: [&str; 9] = [
    "ts",
    "sack",
    "ecn",
    "ecnseen",
    "fastopen",
    "cubic_ecn",
    "app_limited",
    "tcp-ulp-tls",
    "mptcp",
];

#[derive(Default)]
struct Flow {
    sample: u64,
    first: Option<(f64, u64)>,
    last: Option<(f64, u64)>,
    scheme: String,
}

pub(super) fn read(input: Input<'_>, most: usize) -> Result<Read<Record>, TraceError> {
    let mut names = FlowNames::default();
    let mut flows: Vec<Flow> = Vec::new();
    let mut rows = Rows::new(most);
    let mut lines = input.lines()?;
    let mut warnings = Vec::new();
    let (mut clock, mut sample, mut timed) = (Clock::default(), 0u64, false);
    let mut mss_bytes = None;
    let mut feed = || -> Result<(), TraceError> {
        let mut socket: Option<u32> = None;
        while let Some((number, line)) = lines.next()? {
            let wrong = |message: String| TraceError::at(input.path, number, "", message);
            let (time_s, line) = clock.split(line);
            if let Some(time_s) = time_s {
                timed = true;
                if clock.now_s != Some(time_s) {
                    sample += 1;
                    clock.now_s = Some(time_s);
                }
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let Some(first) = words.first() else { continue };
            if line.contains("Recv-Q") && line.contains("Send-Q") {
                sample += u64::from(!timed);
                continue;
            }
            let queues = |at: usize| {
                words
                    .get(at..at + 2)
                    .is_some_and(|w| w.iter().all(|w| w.parse::<u64>().is_ok()))
            };
            let ends_at = match () {
                () if STATES.contains(first) && queues(1) => Some(3),
                () if queues(0) => Some(2), // one state was asked for, so it is not printed
                () => None,
            };
            let mut info = &words[..];
            if let Some(at) = ends_at {
                let Some([local, peer]) = words.get(at..at + 2) else {
                    let message = format!("got {}, expected two addresses", shown(line));
                    return Err(wrong(message));
                };
                socket = None;
                info = &words[at + 2..];
                if *first != "LISTEN" {
                    let flow = names.number(&format!("{local} -> {peer}")).map_err(wrong)?;
                    if flow as usize == flows.len() {
                        flows.push(Flow::default());
                    }
                    let known = &mut flows[flow as usize];
                    if !timed && known.sample > 0 && known.sample >= sample.max(1) {
                        sample = known.sample + 1;
                    }
                    known.sample = sample.max(1);
                    socket = Some(flow);
                }
            }
            if !info.iter().any(|word| word.starts_with("cwnd:")) {
                if ends_at.is_none() && !line.starts_with([' ', '\t']) && time_s.is_none() {
                    let message = format!("got {}, expected a line of ss -tin", shown(line));
                    return Err(wrong(message));
                }
                continue;
            }
            let Some(flow) = socket.take() else { continue };
            let known = &mut flows[flow as usize];
            let time_s = clock.now_s.unwrap_or((known.sample - 1) as f64 * UNTIMED_S);
            let record = record(info, time_s, flow).map_err(wrong)?;
            if let Some(acked) = record.snd_una_bytes {
                known.first.get_or_insert((time_s, acked));
                known.last = Some((time_s, acked));
            }
            if let Some(scheme) = scheme(info) {
                known.scheme = scheme.to_string();
            }
            mss_bytes = mss_bytes.or(value(info, "mss:").and_then(|mss| mss.parse().ok()));
            let place = Place::Line {
                line: number,
                column: String::new(),
            };
            rows.push(input.path, place, record)?;
        }
        Ok(())
    };
    let damage = feed().err();
    warnings.extend(lines.warning());
    if !timed {
        let file = input.path.display();
        warnings.push(format!(
            "{file}: no times; samples are taken to be {UNTIMED_S} s apart"
        ));
    }
    let mut read = Read::new(Source::Ss, rows, damage);
    read.name_flows(&names.names);
    read.metadata.mss_bytes = mss_bytes;
    if flows.iter().all(|flow| !flow.scheme.is_empty()) {
        read.metadata.schemes = flows.iter().map(|flow| flow.scheme.clone()).collect();
    }
    for (number, flow) in (0..).zip(&flows) {
        if let (Some((from_s, from)), Some((to_s, to))) = (flow.first, flow.last)
            && to_s > from_s
        {
            let rate_bps = to.saturating_sub(from) as f64 * 8.0 / (to_s - from_s);
            read.goodput_bps.insert(number, rate_bps);
        }
    }
    read.warnings = warnings;
    Ok(read)
}

fn value<'a>(info: &[&'a str], key: &str) -> Option<&'a str> {
    info.iter().find_map(|word| word.strip_prefix(key))
}

fn record(info: &[&str], time_s: f64, flow: u32) -> Result<Record, String> {
    let number = |key: &str, text: &str| -> Result<f64, String> {
        let parsed = text
            .parse::<f64>()
            .ok()
            .filter(|v| v.is_finite() && *v >= 0.0);
        parsed.ok_or_else(|| format!("{key} got {}, expected a number", shown(text)))
    };
    let optional = |key: &str| value(info, key).map(|text| number(key, text)).transpose();
    let count = |key: &str| -> Result<Option<u64>, String> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| format!("{key} got {}, expected a whole number", shown(text)))
        };
        value(info, key).map(parse).transpose()
    };
    let srtt_ms = value(info, "rtt:")
        .map(|rtt| number("rtt:", rtt.split_once('/').map_or(rtt, |(srtt, _)| srtt)))
        .transpose()?;
    let retransmits = value(info, "retrans:")
        .map(|both| {
            let total = both.split_once('/').map_or(both, |(_, total)| total);
            let parsed = total.parse::<u64>();
            parsed.map_err(|_| format!("retrans: got {}, expected NOW/TOTAL", shown(both)))
        })
        .transpose()?;
    let sent = count("bytes_sent:")?;
    // ss leaves out what is 0
    let resent = count("bytes_retrans:")?.unwrap_or(0);
    let acked = count("bytes_acked:")?;
    Ok(Record {
        time_s,
        flow,
        cwnd_packets: number("cwnd:", value(info, "cwnd:").unwrap_or(""))?,
        ssthresh_packets: optional("ssthresh:")?,
        srtt_s: srtt_ms.map(|ms| ms / 1e3),
        snd_nxt_bytes: sent.map(|sent| sent.saturating_sub(resent)),
        snd_una_bytes: acked.or(sent.map(|_| 0)),
        rwnd_bytes: count("snd_wnd:")?,
        retransmits: Some(retransmits.unwrap_or(0)),
    })
}

fn scheme<'a>(info: &[&'a str]) -> Option<&'a str> {
    let word = info.iter().find(|word| !FLAGS.contains(word))?;
    let name = word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    name.then_some(*word)
}

/// Times in the forms in which people put them between samples.
#[derive(Default)]
struct Clock {
    now_s: Option<f64>,
}

impl Clock {
    /// The time with which a line begins, if it does, and the rest of the line.
    fn split<'a>(&self, line: &'a str) -> (Option<f64>, &'a str) {
        let trimmed = line.trim_start_matches(['#', ' ', '[']);
        let (word, rest) = match trimmed.split_once([' ', '\t']) {
            Some((word, rest)) => (word, rest),
            None => (trimmed, ""),
        };
        let word = word.trim_end_matches([']', ':', ',']);
        // whole seconds since 1970, or with a point; a short number is a queue's length
        let long = word.len() >= 10 && word.bytes().all(|b| b.is_ascii_digit());
        if (long || word.contains('.'))
            && let Ok(time_s) = word.parse::<f64>()
            && time_s.is_finite()
        {
            return (Some(time_s), rest);
        }
        if let Some(time_s) = self.of_day(word) {
            return (Some(time_s), rest);
        }
        // 2026-11-22T00:52:11.5+00:00, or the same in two words; the zone does not matter
        let (date, time) = word.split_once('T').unwrap_or((word, ""));
        if let Some(days) = days(date) {
            let (time, rest) = match (time, rest.split_once([' ', '\t'])) {
                ("", Some((time, rest))) => (time, rest),
                ("", None) => (rest, ""),
                (time, _) => (time, rest),
            };
            let time = time.split(['Z', '+', ',']).next().unwrap_or("");
            let time = time.split('-').next().unwrap_or("");
            return match seconds_of_day(time) {
                Some(seconds) => (Some(days as f64 * 86_400.0 + seconds), rest),
                None => (None, line),
            };
        }
        // as date prints it: Sun Nov 22 00:52:11 UTC 2026
        let words: Vec<&str> = trimmed.split_whitespace().collect();
        if let [_, month, day, time, _, year] = words[..]
            && let Some(month) = MONTHS.iter().position(|name| *name == month)
            && let Some(days) = days(&format!("{year}-{}-{day}", month + 1))
            && let Some(seconds) = seconds_of_day(time)
        {
            return (Some(days as f64 * 86_400.0 + seconds), "");
        }
        (None, line)
    }

    /// HH:MM:SS, which begins again at midnight.
    fn of_day(&self, word: &str) -> Option<f64> {
        let seconds = seconds_of_day(word)?;
        let last_s = self.now_s.unwrap_or(seconds);
        let days = ((last_s - seconds) / 86_400.0 + 0.5).floor().max(0.0);
        Some(seconds + days * 86_400.0)
    }
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

fn seconds_of_day(text: &str) -> Option<f64> {
    let mut parts = text.splitn(3, ':');
    let hours: u32 = parts.next()?.parse().ok().filter(|h| *h < 24)?;
    let minutes: u32 = parts.next()?.parse().ok().filter(|m| *m < 60)?;
    let seconds: f64 = parts.next()?.parse().ok()?;
    let sane = (0.0..61.0).contains(&seconds);
    sane.then_some(f64::from(hours * 3600 + minutes * 60) + seconds)
}

/// Days since 1970 of YYYY-MM-DD.
fn days(date: &str) -> Option<i64> {
    let mut parts = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // the year begins in March, so that the day that comes and goes is its last
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    Some(year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::testing::{never_panics, read, read_prefix};

    const SAMPLES: &str = "\
1700000000.25
State Recv-Q Send-Q Local Address:Port Peer Address:Port Process
ESTAB 0      43440  10.0.0.1:5201      10.0.0.2:4444 timer:(on,200ms,0)
\t ts sack cubic wscale:7,7 rto:204 rtt:3.5/1.2 ato:40 mss:1448 pmtu:1500 cwnd:10 bytes_sent:2000 bytes_acked:1001 send 33.1Mbps delivery_rate 30Mbps unacked:3
LISTEN 0 128 0.0.0.0:22 0.0.0.0:*
\t cubic cwnd:10
1700000000.75
State Recv-Q Send-Q Local Address:Port Peer Address:Port Process
ESTAB 0      43440  10.0.0.1:5201      10.0.0.2:4444
\t ts sack cubic wscale:7,7 rto:204 rtt:4.5/1.2 mss:1448 cwnd:20 ssthresh:15 bytes_sent:9000 bytes_retrans:1000 bytes_acked:5001 retrans:0/4 snd_wnd:65536
";

    const UNTIMED: &str = "\
0 0 [::1]:5201 [::1]:4444
\t reno rtt:1/0.5 mss:1428 cwnd:10
0 0 [::1]:5201 [::1]:4444
\t reno rtt:1/0.5 mss:1428 cwnd:11
";

    #[test]
    fn samples_become_rows() {
        let read = read(SAMPLES).unwrap();
        let rows = &read.trace.records;
        assert_eq!(rows.len(), 2);
        let last = rows[1];
        assert_eq!((last.time_s, last.cwnd_packets), (0.5, 20.0));
        assert_eq!(last.ssthresh_packets, Some(15.0));
        assert_eq!(last.srtt_s, Some(0.0045));
        assert_eq!(last.snd_nxt_bytes, Some(8000));
        assert_eq!(last.snd_una_bytes, Some(5001));
        assert_eq!(last.retransmits, Some(4));
        assert_eq!(last.rwnd_bytes, Some(65_536));
        assert_eq!(read.trace.metadata.schemes, ["cubic"]);
        assert_eq!(read.trace.metadata.mss_bytes, Some(1448));
        assert_eq!(read.goodput_bps[&0], 64_000.0);
        assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    }

    #[test]
    fn without_times_samples_are_a_second_apart_and_that_is_told() {
        let read = read(UNTIMED).unwrap();
        let times: Vec<f64> = read.trace.records.iter().map(|r| r.time_s).collect();
        assert_eq!(times, [0.0, 1.0]);
        assert!(read.warnings[0].contains("no times"));
    }

    #[test]
    fn times_are_read_in_the_usual_forms() {
        let clock = Clock::default();
        for (line, wanted) in [
            ("1700000000", Some(1.7e9)),
            ("1700000000.5 ESTAB 0", Some(1.7e9 + 0.5)),
            ("# 12.5", Some(12.5)),
            ("00:00:10.5", Some(10.5)),
            ("2026-11-22T00:52:11.5Z", Some(1_795_308_731.5)),
            ("2026-11-22 00:52:11,", Some(1_795_308_731.0)),
            ("Sun Nov 22 00:52:11 UTC 2026", Some(1_795_308_731.0)),
            ("ESTAB 0 0 1.2.3.4:5 1.2.3.4:6", None),
            ("0 0 1.2.3.4:5 1.2.3.4:6", None),
            ("\t cubic cwnd:10", None),
        ] {
            assert_eq!(clock.split(line).0, wanted, "{line}");
        }
        let late = Clock {
            now_s: Some(86_399.0),
        };
        assert_eq!(late.split("00:00:01").0, Some(86_401.0));
    }

    #[test]
    fn what_is_wrong_is_told_by_line() {
        let error = read(SAMPLES.replace("cwnd:20", "cwnd:x")).unwrap_err();
        assert_eq!(error, "f:10: cwnd: got \"x\", expected a number");
        let kept = read_prefix(SAMPLES.replace("cwnd:20", "cwnd:x")).unwrap();
        assert_eq!(kept.trace.records.len(), 1);
    }

    never_panics!(SAMPLES, UNTIMED);
}
