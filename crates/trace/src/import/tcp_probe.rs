//! tcp_probe as text: the lines of the old `/proc/net/tcpprobe` (kernels up to 4.15), or of the
//! tracepoint `tcp:tcp_probe` as tracefs prints them.
//!
//! [`probe_srtt`] infers the unit of srtt.
//!
//! Rows come from both ends if both are on one machine. Receivers, which never send, are left out.

use std::path::Path;

use crate::error::{Place, TraceError};
use crate::import::Read;
use crate::import::input::{Input, shown};
use crate::import::kind::{Kind, Windows};
use crate::import::probe_srtt::{self, SrttUnit};
use crate::import::rows::{FlowNames, Rows};
use crate::record::{Record, Source};

pub(super) const KIND: Kind = Kind {
    known: Some("tcp_probe text"),
    windows: Windows::Rows(|input, most, _| read(input, most)),
    ..Kind::called("tcp_probe text")
};

/// The kernel's value for an unset threshold.
const INFINITE_SSTHRESH: u64 = 0x7fff_ffff;

/// The data of one line.
struct Sample<'a> {
    time_s: f64,
    flow: String,
    snd_nxt: u32,
    snd_una: u32,
    cwnd: &'a str,
    ssthresh: u64,
    snd_wnd: u64,
    /// As printed.
    srtt: u64,
    traced: bool,
}

/// The counters of one flow, extended past 2^32.
#[derive(Default)]
struct Counters {
    seen: bool,
    base: u64,
    una: u64,
    una_low: u32,
    sent: bool,
}

impl Counters {
    /// Bytes sent and acknowledged since the flow was first seen.
    fn advance(&mut self, snd_nxt: u32, snd_una: u32) -> Option<(u64, u64)> {
        if !self.seen {
            // so far from 0 that a late row does not fall below it
            let start = (1 << 40) + u64::from(snd_una);
            *self = Self {
                seen: true,
                base: start,
                una: start,
                una_low: snd_una,
                sent: false,
            };
        }
        let step = i64::from(snd_una.wrapping_sub(self.una_low) as i32);
        let una = self.una.checked_add_signed(step)?;
        if step > 0 {
            (self.una, self.una_low, self.sent) = (una, snd_una, true);
        }
        let in_flight = snd_nxt.wrapping_sub(snd_una);
        if in_flight > 1 << 31 {
            return None;
        }
        self.sent |= in_flight > 0;
        let nxt = una + u64::from(in_flight);
        Some((nxt.saturating_sub(self.base), una.saturating_sub(self.base)))
    }
}

pub(super) fn read(input: Input<'_>, most: usize) -> Result<Read<Record>, TraceError> {
    let mut reader = Reader {
        path: input.path,
        names: FlowNames::default(),
        flows: Vec::new(),
        rows: Rows::new(most),
        lost: 0,
        traced: false,
    };
    let mut lines = input.lines()?;
    let mut feed = || -> Result<(), TraceError> {
        while let Some((number, line)) = lines.next()? {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                reader.line(number, line)?;
            }
        }
        Ok(())
    };
    let damage = feed().err();
    Ok(reader.finish(damage, lines.warning()))
}

struct Reader<'a> {
    path: &'a Path,
    names: FlowNames,
    flows: Vec<Counters>,
    rows: Rows<Record>,
    /// Events that the kernel lost.
    lost: u64,
    traced: bool,
}

impl Reader<'_> {
    fn line(&mut self, number: u64, line: &str) -> Result<(), TraceError> {
        let path = self.path;
        let wrong = |message: String| TraceError::at(path, number, "", message);
        // `CPU:1 [LOST 12 EVENTS]` marks an overflow of a processor's ring buffer
        if let Some((_, rest)) = line.split_once("[LOST ") {
            let count = rest.split_whitespace().next();
            self.lost += count.and_then(|count| count.parse().ok()).unwrap_or(1u64);
            return Ok(());
        }
        let Some(sample) = parse(line).map_err(wrong)? else {
            return Ok(());
        };
        self.traced |= sample.traced;
        let flow = self.names.number(&sample.flow).map_err(wrong)?;
        if flow as usize == self.flows.len() {
            self.flows.push(Counters::default());
        }
        let counters = &mut self.flows[flow as usize];
        let Some((snd_nxt, snd_una)) = counters.advance(sample.snd_nxt, sample.snd_una) else {
            let (nxt, una) = (sample.snd_nxt, sample.snd_una);
            let message = format!("got snd_nxt {nxt:#x} before snd_una {una:#x}");
            return Err(wrong(message));
        };
        let cwnd_packets = number_of(sample.cwnd, "snd_cwnd").map_err(wrong)? as f64;
        let place = Place::Line {
            line: number,
            column: String::new(),
        };
        let known = sample.ssthresh < INFINITE_SSTHRESH;
        let record = Record {
            time_s: sample.time_s,
            flow,
            cwnd_packets,
            ssthresh_packets: known.then_some(sample.ssthresh as f64),
            // as printed, until the unit is known
            srtt_s: (sample.srtt > 0).then_some(sample.srtt as f64),
            snd_nxt_bytes: Some(snd_nxt),
            snd_una_bytes: Some(snd_una),
            rwnd_bytes: Some(sample.snd_wnd),
            ..Record::default()
        };
        self.rows.push(path, place, record)
    }

    fn finish(mut self, damage: Option<TraceError>, cut: Option<String>) -> Read<Record> {
        self.leave_out_receivers();
        let any_srtt = self.rows.iter_mut().any(|record| record.srtt_s.is_some());
        let unit = probe_srtt::convert(&mut self.rows, self.traced);
        let mut read = Read::new(Source::TcpProbe, self.rows, damage);
        read.warnings.extend(cut);
        let file = self.path.display();
        let environment = &mut read.metadata.environment;
        match unit {
            _ if !any_srtt => {}
            SrttUnit::Known(_, name) => {
                environment.insert("srtt_s".to_string(), format!("inferred: printed in {name}"));
                if name != "microseconds" {
                    read.warnings.push(format!(
                        "{file}: round-trip times are taken to be printed in {name}, as sequence \
                         numbers and times show"
                    ));
                }
            }
            SrttUnit::Undecided => {
                let why = "left out: microseconds or jiffies, which its rows do not show";
                environment.insert("srtt_s".to_string(), why.to_string());
                read.warnings
                    .push(format!("{file}: round-trip times are {why}"));
            }
        }
        if self.lost > 0 {
            let lost = self.lost;
            read.warnings
                .push(format!("{file}: the kernel lost {lost} events"));
            read.metadata.valid = false;
        }
        read.name_flows(&self.names.names);
        read
    }

    /// Renumbers the flows that send, in order of appearance, if there are any.
    fn leave_out_receivers(&mut self) {
        if !self.flows.iter().any(|flow| flow.sent) {
            return;
        }
        let mut next = 0;
        let numbers: Vec<Option<u32>> = (self.flows.iter())
            .map(|flow| {
                flow.sent.then(|| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        let rows = &mut self.rows;
        rows.retain(|record: &Record| numbers[record.flow as usize].is_some());
        for record in rows.iter_mut() {
            record.flow = numbers[record.flow as usize].expect("the others are gone");
        }
        let mut kept = numbers.iter().map(Option::is_some);
        (self.names.names).retain(|_| kept.next().unwrap_or(false));
    }
}

fn number_of(text: &str, what: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{what}: got {}, expected a whole number", shown(text)))
}

fn sequence(text: &str, what: &str) -> Result<u32, String> {
    let wide = number_of(text, what)?;
    u32::try_from(wide).map_err(|_| format!("{what}: got {wide:#x}, expected 32 bits"))
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .map_err(|_| format!("time: got {}, expected seconds", shown(text)))
}

/// Returns `None` for a line of another event.
fn parse(line: &str) -> Result<Option<Sample<'_>>, String> {
    // `perf script` prints the event with its group
    let event = (line.split_once(" tcp_probe: ")).or_else(|| line.split_once(" tcp:tcp_probe: "));
    if let Some((before, fields)) = event {
        return traced(before, fields).map(Some);
    }
    let words: Vec<&str> = line.split_whitespace().take(12).collect();
    let event = words
        .iter()
        .any(|w| w.trim_start_matches("tcp:").starts_with("tcp_") && w.ends_with(':'));
    if event && line.contains('[') {
        return Ok(None);
    }
    let [
        time,
        from,
        to,
        _length,
        nxt,
        una,
        cwnd,
        ssthresh,
        wnd,
        srtt,
        ..,
    ] = words[..]
    else {
        let got = words.len();
        return Err(format!(
            "got {got} fields, expected at least 10: {}",
            shown(line)
        ));
    };
    if !from.contains(':') || !to.contains(':') {
        return Err(format!(
            "got {} and {}, expected addresses with ports",
            shown(from),
            shown(to)
        ));
    }
    Ok(Some(Sample {
        time_s: seconds(time)?,
        flow: format!("{from} -> {to}"),
        snd_nxt: sequence(nxt, "snd_nxt")?,
        snd_una: sequence(una, "snd_una")?,
        cwnd,
        ssthresh: number_of(ssthresh, "ssthresh")?,
        snd_wnd: number_of(wnd, "snd_wnd")?,
        srtt: number_of(srtt, "srtt")?,
        traced: false,
    }))
}

/// `  <idle>-0 [000] ..s2. 12345.678901` and `family=AF_INET src=... snd_nxt=0x12 ...`.
fn traced<'a>(before: &'a str, fields: &'a str) -> Result<Sample<'a>, String> {
    let time = before.split_whitespace().last().unwrap_or("");
    let field = |name: &str| {
        fields
            .split_whitespace()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            .ok_or_else(|| format!("{name} is missing"))
    };
    let cookie = field("sock_cookie").unwrap_or("");
    let mut flow = format!("{} -> {}", field("src")?, field("dest")?);
    if !cookie.is_empty() {
        flow += &format!(" (socket {cookie})");
    }
    Ok(Sample {
        time_s: seconds(time.trim_end_matches(':'))?,
        flow,
        snd_nxt: sequence(field("snd_nxt")?, "snd_nxt")?,
        snd_una: sequence(field("snd_una")?, "snd_una")?,
        cwnd: field("snd_cwnd")?,
        ssthresh: number_of(field("ssthresh")?, "ssthresh")?,
        snd_wnd: number_of(field("snd_wnd")?, "snd_wnd")?,
        srtt: number_of(field("srtt")?, "srtt")?,
        traced: true,
    })
}

#[cfg(test)]
mod tests {
    use crate::import::testing::{never_panics, read, read_prefix};

    const TRACED: &str = "\
# tracer: nop
#
          <idle>-0       [000] ..s2.   100.500000: tcp_probe: family=AF_INET src=10.0.0.1:5201 dest=10.0.0.2:4444 mark=0x0 data_len=0 snd_nxt=0xfffffff0 snd_una=0xffffff00 snd_cwnd=10 ssthresh=2147483647 snd_wnd=65536 srtt=20000 rcv_wnd=64240 sock_cookie=1 skbaddr=00000000e8b4fba8 skaddr=000000003a3ae1b5
          <idle>-0       [000] ..s2.   100.510000: tcp_probe: family=AF_INET src=10.0.0.2:4444 dest=10.0.0.1:5201 mark=0x0 data_len=1448 snd_nxt=0x5 snd_una=0x5 snd_cwnd=10 ssthresh=2147483647 snd_wnd=65536 srtt=20000 rcv_wnd=64240 sock_cookie=2 skbaddr=00000000e8b4fba8 skaddr=000000003a3ae1b5
     iperf3-123         [001] ..s2.   100.515000: tcp_retransmit_skb: family=AF_INET sport=5201
CPU:1 [LOST 12 EVENTS]
          <idle>-0       [000] ..s2.   100.520000: tcp_probe: family=AF_INET src=10.0.0.1:5201 dest=10.0.0.2:4444 mark=0x0 data_len=0 snd_nxt=0x100 snd_una=0x10 snd_cwnd=12 ssthresh=9 snd_wnd=65536 srtt=21000 rcv_wnd=64240 sock_cookie=1 skbaddr=00000000e8b4fba8 skaddr=000000003a3ae1b5
";

    const OLD: &str = "\
12.000000000 10.0.0.1:5001 10.0.0.2:6001 32 0x3d9d1cc 0x3d9cbb8 10 2147483647 65792 23000 229376
12.010000000 10.0.0.1:5001 10.0.0.2:6001 32 0x3d9e1cc 0x3d9d1cc 11 7 65792 24000 229376
";

    #[test]
    fn the_tracepoint_is_read_past_the_wrap_without_receivers() {
        let read = read(TRACED).unwrap();
        let rows = &read.trace.records;
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].time_s, 0.0);
        assert!((rows[1].time_s - 0.02).abs() < 1e-9);
        assert_eq!((rows[0].cwnd_packets, rows[1].cwnd_packets), (10.0, 12.0));
        assert_eq!(rows[0].ssthresh_packets, None);
        assert_eq!(rows[1].ssthresh_packets, Some(9.0));
        assert_eq!(rows[1].srtt_s, Some(0.021));
        assert_eq!(rows[0].snd_nxt_bytes, Some(0xf0));
        assert_eq!(rows[1].snd_una_bytes, Some(0x110));
        assert_eq!(rows[1].snd_nxt_bytes, Some(0x200));
        assert!(!read.trace.metadata.valid);
        assert_eq!(read.warnings, ["f: the kernel lost 12 events"]);
    }

    #[test]
    fn the_old_lines_are_read() {
        let read = read(OLD).unwrap();
        let last = read.trace.records[1];
        assert_eq!(last.cwnd_packets, 11.0);
        assert_eq!(last.ssthresh_packets, Some(7.0));
        assert_eq!(last.snd_una_bytes, Some(0x614));
        let flow = &read.trace.metadata.environment["flow 0"];
        assert_eq!(flow, "10.0.0.1:5001 -> 10.0.0.2:6001");
    }

    /// A flow of 500 rows, with an acknowledgment every `ack_s`, `flight` segments in flight, and
    /// `srtt` in the column. Rows that leave the window unchanged are not printed.
    fn clocked(ack_s: f64, flight: u32, srtt: u64) -> String {
        let rows = (0..500).filter(|row| row % 7 != 3 && row % 11 != 5);
        rows.map(|row| {
            let (una, nxt) = (row * 1448, (row + flight) * 1448);
            let time_s = f64::from(row) * ack_s;
            format!(
                "{time_s:.9} 10.0.0.1:5001 10.0.0.2:6001 32 {nxt:#x} {una:#x} {flight} 99 65792 \
                 {srtt} 229376\n"
            )
        })
        .collect()
    }

    #[test]
    fn the_unit_of_srtt_is_shown_by_sequence_numbers_and_times() {
        // a round trip of 0.8 s: 100 segments, one every 8 ms; and of 2 ms on a fast network
        for (ack_s, flight, srtt, seconds, name) in [
            (0.008, 100, 800_000, 0.8, "microseconds"),
            (0.008, 100, 6_400_000, 0.8, "eighths of a microsecond"),
            (0.008, 100, 800, 0.8, "jiffies of 1 ms"),
            (0.008, 100, 200, 0.8, "jiffies of 4 ms"),
            (0.008, 100, 80, 0.8, "jiffies of 10 ms"),
            (0.000_02, 100, 2000, 0.002, "microseconds"),
        ] {
            let read = read(clocked(ack_s, flight, srtt)).unwrap();
            let got = read.trace.records[9].srtt_s.unwrap();
            assert!((got - seconds).abs() < 1e-9, "{name}: {got}");
            let inferred = &read.trace.metadata.environment["srtt_s"];
            assert_eq!(inferred, &format!("inferred: printed in {name}"));
            let warned = read.warnings.iter().any(|w| w.contains(name));
            assert_eq!(warned, name != "microseconds");
        }
    }

    #[test]
    fn srtt_whose_unit_is_not_shown_is_missing() {
        let few: String = clocked(0.008, 100, 200)
            .lines()
            .take(20)
            .fold(String::new(), |text, line| text + line + "\n");
        let read = read(few).unwrap();
        assert!(read.trace.records.iter().all(|row| row.srtt_s.is_none()));
        assert!(
            read.warnings.iter().any(|w| w.contains("left out")),
            "{:?}",
            read.warnings
        );
    }

    #[test]
    fn what_is_wrong_is_told_by_line_and_the_rows_before_it_kept() {
        let text = format!("{OLD}12.02 10.0.0.1:5001 10.0.0.2:6001 32 0x3d9e1cc 0x3d9d");
        let error = read(&text).unwrap_err();
        assert!(
            error.starts_with("f:3: got 6 fields, expected at least 10"),
            "{error}"
        );
        let kept = read_prefix(&text).unwrap();
        assert_eq!(kept.trace.records.len(), 2);
        assert!(
            kept.warnings
                .iter()
                .any(|w| w.contains("f:3: got 6 fields"))
        );
        assert!(kept.trace.metadata.environment["damage"].contains("2 rows before it are kept"));
        let error = read(OLD.replace(" 11 7", " 0 7")).unwrap_err();
        assert_eq!(error, "f:2: cwnd: got 0, expected a window greater than 0");
        let error = read(OLD.replace("12.01", "2.01")).unwrap_err();
        assert_eq!(
            error,
            "f:2: time: got 2.01 s after 12 s, expected times in order"
        );
    }

    #[test]
    fn what_perf_script_prints_is_read_as_what_tracefs_prints() {
        let of_perf = TRACED.replace(": tcp_probe: ", ": tcp:tcp_probe: ");
        let other = "iperf3 7 [001] 100.2: tcp:tcp_retransmit_skb: skbaddr=0x1 sport=1 dport=2\n";
        let of_perf = read(of_perf + other).unwrap();
        assert_eq!(of_perf.trace, read(TRACED).unwrap().trace);
    }

    never_panics!(TRACED, OLD, clocked(0.008, 100, 200));
}
