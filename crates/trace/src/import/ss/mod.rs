//! `ss -tin`, run again and again: one row for each socket and sample.
//!
//! A sample begins with a time on a line of its own or before each line (as `ts` puts it), or with
//! the table's header, or when a socket comes again; a time may also follow a sample, or end each
//! line. What ss knows of a socket stands below its addresses, beside them (`-O`), or alone, where
//! the addresses were filtered out.

mod clock;
mod unnamed;

use std::path::Path;

use crate::error::{Place, TraceError};
use crate::import::Read;
use crate::import::input::{Input, shown};
use crate::import::rows::{FlowNames, Rows};
use crate::record::{Mode, Record, Source};

use clock::Clock;
use unnamed::Unnamed;

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
const FLAGS: [&str; 10] = [
    "ts",
    "usec_ts",
    "sack",
    "ecn",
    "ecnseen",
    "fastopen",
    "cubic_ecn",
    "app_limited",
    "tcp-ulp-tls",
    "mptcp",
];
/// What comes right after that name.
const AFTER_SCHEME: [&str; 7] = [
    "wscale:", "rto:", "backoff:", "rtt:", "ato:", "mss:", "cwnd:",
];

#[derive(Default)]
struct Flow {
    sample: u64,
    scheme: String,
}

/// Whose the next line without addresses is.
#[derive(PartialEq)]
enum Owner {
    /// No addresses came.
    Unknown,
    /// Of a socket that has no flow, or whose line has come already.
    Nobody,
    /// Of the socket with these ends, which is a flow once something is known of it.
    Socket(String),
}

/// Where the times stand.
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
    /// Rows that wait for the time after them, with their lines.
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
        // what grep puts between the parts that it found, and flent between samples
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

    /// Takes what ss knows of a socket.
    fn socket(&mut self, number: u64, info: &[&str]) -> Result<(), TraceError> {
        let wrong = |message: String| TraceError::at(self.path, number, "", message);
        let flow = match &self.owner {
            Owner::Socket(name) => {
                let name = name.clone();
                self.owner = Owner::Nobody;
                self.flow(&name).map_err(wrong)?
            }
            Owner::Nobody => return Ok(()),
            // of a socket that listens, ss knows a window and no times
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

    /// Notes a time, which may stand `alone` on its line.
    fn at(&mut self, time_s: f64, alone: bool) -> Result<(), TraceError> {
        if self.clock.now_s != Some(time_s) {
            self.sample += 1;
            self.clock.now_s = Some(time_s);
        }
        match self.times {
            Times::Nowhere if self.rows.len() == 0 => self.times = Times::Before,
            Times::Nowhere => {
                // what came before had no time, and was taken to be seconds apart
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

    /// The number of a flow; a socket that comes again without a time begins a sample.
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
                "{file}: no addresses; sockets are told apart by their counters: {count}"
            ));
        }
        if !self.waiting.is_empty() {
            let count = self.waiting.len();
            warnings.push(format!(
                "{file}: {count} rows after the last time are left out"
            ));
        }
        // bytes acknowledged, and when: of each flow the first and the last
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

/// What ss without `-t` puts before sockets other than TCP's.
const OTHER_NETIDS: [&str; 12] = [
    "udp", "raw", "u_str", "u_dgr", "u_seq", "nl", "p_raw", "p_dgr", "icmp6", "v_str", "sctp",
    "xdp",
];

/// Which word of a socket's line is its first address: after the kind of socket (without `-t`), the state (unless one
/// was asked for), and the lengths of two queues.
fn addresses_at(words: &[&str]) -> Option<usize> {
    let queues = |at: usize| {
        words
            .get(at..at + 2)
            .is_some_and(|w| w.iter().all(|w| w.parse::<u64>().is_ok()))
    };
    let state = |at: usize| words.get(at).is_some_and(|w| STATES.contains(w));
    let kind = |w: &&str| OTHER_NETIDS.contains(w) || ["tcp", "mptcp"].contains(w);
    match () {
        () if state(0) && queues(1) => Some(3),
        () if state(1) && queues(2) => Some(4),
        () if words.first().is_some_and(kind) && queues(1) => Some(3),
        () if queues(0) => Some(2),
        () => None,
    }
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
    let bbr = Bbr::of(info);
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
        min_rtt_s: bbr
            .least("mrtt:")
            .or(optional("minrtt:")?)
            .map(|ms| ms / 1e3),
        bandwidth_bps: bbr.word("bw:").and_then(bps),
        pacing_bps: value_after(info, "pacing_rate").and_then(bps),
        delivery_bps: value_after(info, "delivery_rate").and_then(bps),
        mode: bbr.mode(),
    })
}

/// The word after `key`.
fn value_after<'a>(info: &[&'a str], key: &str) -> Option<&'a str> {
    let at = info.iter().position(|word| *word == key)?;
    info.get(at + 1).copied()
}

/// A rate as ss prints it: `28.9Mbps`.
fn bps(text: &str) -> Option<f64> {
    let text = text.strip_suffix("bps")?;
    let (digits, unit) = match text.chars().last()? {
        'K' => (&text[..text.len() - 1], 1e3),
        'M' => (&text[..text.len() - 1], 1e6),
        'G' => (&text[..text.len() - 1], 1e9),
        'T' => (&text[..text.len() - 1], 1e12),
        _ => (text, 1.0),
    };
    let rate = digits.parse::<f64>().ok()? * unit;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// What ss says of BBR: `bbr:(bw:28.9Mbps,mrtt:19.6,pacing_gain:1,cwnd_gain:2)`.
struct Bbr<'a>(Option<&'a str>);

impl<'a> Bbr<'a> {
    fn of(info: &[&'a str]) -> Self {
        let inner = value(info, "bbr:(");
        Self(inner.map(|inner| inner.strip_suffix(')').unwrap_or(inner)))
    }

    fn word(&self, key: &str) -> Option<&'a str> {
        self.0?.split(',').find_map(|word| word.strip_prefix(key))
    }

    fn least(&self, key: &str) -> Option<f64> {
        let value = self.word(key)?.parse::<f64>().ok()?;
        (value.is_finite() && value > 0.0).then_some(value)
    }

    /// The kernel tells gains, which differ with the mode.
    fn mode(&self) -> Option<Mode> {
        let (pacing, window) = (self.least("pacing_gain:")?, self.least("cwnd_gain:")?);
        let mode = match () {
            () if pacing > 2.0 => Mode::SlowStart,
            () if pacing < 0.5 => Mode::Drain,
            () if pacing < 0.95 => Mode::Down,
            () if pacing > 1.05 => Mode::Up,
            () if window < 1.5 => Mode::ProbeRtt,
            () => Mode::Cruise,
        };
        Some(mode)
    }
}

/// The last bare word before the first number.
fn scheme<'a>(info: &[&'a str]) -> Option<&'a str> {
    let number = |word: &&str| AFTER_SCHEME.iter().any(|key| word.starts_with(key));
    let at = info.iter().position(number)?;
    let word = info[..at].last().filter(|word| !FLAGS.contains(word))?;
    let name = word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    name.then_some(*word)
}

#[cfg(test)]
mod tests {
    use crate::import::testing::{never_panics, read, read_prefix};
    use crate::record::Mode;

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
    fn what_ss_says_of_bbr_becomes_columns() {
        let said = "minrtt:18.5 bbr:(bw:30.5Mbps,mrtt:19.5,pacing_gain:0.75,cwnd_gain:2) \
                    pacing_rate 36.6Mbps send 33.1Mbps delivery_rate 28Kbps";
        let read = read(SAMPLES.replace("snd_wnd:65536", said)).unwrap();
        let row = read.trace.records[1];
        assert_eq!((row.min_rtt_s, row.mode), (Some(0.0195), Some(Mode::Down)));
        assert_eq!(
            (row.bandwidth_bps, row.pacing_bps),
            (Some(30.5e6), Some(36.6e6))
        );
        assert_eq!(row.delivery_bps, Some(28e3));
        let row = read.trace.records[0];
        assert_eq!(
            (row.min_rtt_s, row.mode, row.pacing_bps),
            (None, None, None)
        );
        assert_eq!(row.delivery_bps, Some(30e6));
    }

    #[test]
    fn without_times_samples_are_a_second_apart_and_that_is_told() {
        let read = read(UNTIMED).unwrap();
        let times: Vec<f64> = read.trace.records.iter().map(|r| r.time_s).collect();
        assert_eq!(times, [0.0, 1.0]);
        assert!(read.warnings[0].contains("no times"));
    }

    #[test]
    fn what_is_wrong_is_told_by_line() {
        let error = read(SAMPLES.replace("cwnd:20", "cwnd:x")).unwrap_err();
        assert_eq!(error, "f:10: cwnd: got \"x\", expected a number");
        let kept = read_prefix(SAMPLES.replace("cwnd:20", "cwnd:x")).unwrap();
        assert_eq!(kept.trace.records.len(), 1);
    }

    /// As iproute2 6.1 prints it (`ss -tinemoOp`): all in one line.
    const ONE_LINE: &str = "\
1700000000.0
State Recv-Q Send-Q Local Address:Port Peer Address:Port Process
ESTAB 29696 0 127.0.0.1:44327 127.0.0.1:45246 users:((\"my app\",pid=7,fd=3)) ino:67763 sk:1 cgroup:/ <-> skmem:(r96064,rb143455,t0,tb3939840,f2240,w0,o0,bl0,d0) ts sack bbr wscale:10,10 rto:200 rtt:0.018/0.009 mss:1448 cwnd:10 bytes_received:9
LISTEN 0 128 0.0.0.0:22 0.0.0.0:* ino:630 sk:1001 cgroup:/ <-> skmem:(r0,rb131072,t0,tb16384,f0,w0,o0,bl0,d0) cubic cwnd:10
ESTAB 0 5 127.0.0.1:45246 127.0.0.1:44327 timer:(persist,204ms,0) uid:1000 ino:67762 sk:2 cgroup:/ <-> skmem:(r0,rb131072,t0,tb4194304,f384,w2813568,o0,bl0,d0) ts sack cubic wscale:10,10 rto:204 rtt:1.5/1.1 mss:1448 cwnd:12 bytes_sent:1000 bytes_acked:1001
1700000001.0
State Recv-Q Send-Q Local Address:Port Peer Address:Port Process
ESTAB 0 5 127.0.0.1:45246 127.0.0.1:44327 timer:(persist,204ms,0) <-> skmem:(r0) ts sack cubic wscale:10,10 rto:204 rtt:2.5/1.1 mss:1448 cwnd:13 bytes_sent:3000 bytes_acked:2001 retrans:0/3
";

    /// As `ss -ti | grep cwnd` with a time at the end of each line leaves it, twice in a sample.
    const WITHOUT_ADDRESSES: &str = " \n\
\t cubic wscale:7,7 rto:292 rtt:90/1 mss:1402 cwnd:1263 bytes_acked:41659066 segs_out:31001 segs_in:3662 retrans:0/20 08:39:50.0 \n \n\
\t cubic cwnd:10\n\
\t cubic wscale:7,7 rto:292 rtt:80/1 mss:1402 cwnd:5 bytes_acked:100 segs_out:3 segs_in:3 08:39:50.0 \n\
\t cubic wscale:7,7 rto:248 rtt:46/0.2 mss:1402 cwnd:1267 bytes_acked:42254200 segs_out:31415 segs_in:3731 retrans:0/21 08:39:50.5 \n\
\t cubic wscale:7,7 rto:248 rtt:46/0.2 mss:1402 cwnd:6 bytes_acked:300 segs_out:5 segs_in:5 08:39:50.5 \n\
\t cubic wscale:7,7 rto:248 rtt:40/17 mss:1402 cwnd:10 bytes_acked:7 segs_out:2 segs_in:1 08:39:51.0 \n";

    #[test]
    fn a_socket_may_stand_in_one_line() {
        let read = read(ONE_LINE).unwrap();
        let rows = &read.trace.records;
        assert_eq!(rows.len(), 3);
        assert_eq!(read.trace.metadata.schemes, ["bbr", "cubic"]);
        let last = rows[2];
        assert_eq!((last.time_s, last.flow, last.cwnd_packets), (1.0, 1, 13.0));
        assert_eq!((last.srtt_s, last.retransmits), (Some(0.0025), Some(3)));
        assert_eq!(read.goodput_bps[&1], 8000.0);
        let flow = &read.trace.metadata.environment["flow 1"];
        assert_eq!(flow, "127.0.0.1:45246 -> 127.0.0.1:44327");
    }

    #[test]
    fn sockets_without_addresses_are_told_apart_by_their_counters() {
        let read = read(WITHOUT_ADDRESSES).unwrap();
        let rows: Vec<_> = read
            .trace
            .records
            .iter()
            .map(|r| (r.flow, r.time_s, r.cwnd_packets))
            .collect();
        let wanted = [
            (0, 0.0, 1263.0),
            (1, 0.0, 5.0),
            (0, 0.5, 1267.0),
            (1, 0.5, 6.0),
            (2, 1.0, 10.0),
        ];
        assert_eq!(rows, wanted);
        assert_eq!(read.goodput_bps[&0], (42_254_200.0 - 41_659_066.0) * 16.0);
        assert!(
            read.warnings[0].contains("no addresses"),
            "{:?}",
            read.warnings
        );
    }

    #[test]
    fn too_many_sockets_without_addresses_are_refused_soon() {
        let lines = |count: u32| -> String {
            let line = |n| format!("\t cubic rto:204 cwnd:10 segs_out:{}\n", count - n);
            (0..count).map(line).collect()
        };
        assert_eq!(read(lines(1024)).unwrap().trace.flows().len(), 1024);
        let error = read(lines(60_000)).unwrap_err();
        assert_eq!(error, "f:1025: more than 1024 sockets without addresses");
    }

    #[test]
    fn times_may_follow_their_samples() {
        let sample = |cwnd: u32, at: &str| {
            format!("0 0 [::1]:5201 [::1]:4444\n\t reno rtt:1/0.5 mss:1428 cwnd:{cwnd}\n{at}\n")
        };
        let text = [
            sample(10, "1700000000.5"),
            sample(11, "1700000002.5"),
            sample(12, ""),
        ];
        let read = read(text.concat()).unwrap();
        let rows: Vec<_> = read
            .trace
            .records
            .iter()
            .map(|r| (r.time_s, r.cwnd_packets))
            .collect();
        assert_eq!(rows, [(0.0, 10.0), (2.0, 11.0)]);
        assert!(read.warnings[0].contains("1 rows after the last time"));
    }

    #[test]
    fn other_kinds_of_sockets_and_what_grep_adds_are_passed_over() {
        let text = "\
Netid State Recv-Q Send-Q Local Address:Port Peer Address:Port Process
u_str ESTAB 0 0 * 123 * 456
udp ESTAB 0 0 10.0.0.1:68 10.0.0.2:67
tcp TIME-WAIT 0 0 10.0.0.1:5201 10.0.0.2:3333
tcp ESTAB 0 0 10.0.0.1:5201 10.0.0.2:4444
\t cubic rto:204 rtt:3.5/1.2 mss:1448 cwnd:10
--
";
        let read = read(text).unwrap();
        assert_eq!(read.trace.records.len(), 1);
        let flow = &read.trace.metadata.environment["flow 0"];
        assert_eq!(flow, "10.0.0.1:5201 -> 10.0.0.2:4444");
        assert_eq!(read.trace.metadata.schemes, ["cubic"]);
    }

    never_panics!(SAMPLES, UNTIMED, ONE_LINE, WITHOUT_ADDRESSES);
}
