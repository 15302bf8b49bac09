//! The merged log of a Pantheon tunnel (`*_datalink_run*.log`, `*_acklink_run*.log`): packets that
//! enter and leave it, with their one-way delays.
//!
//! Lines are `MS + BYTES FLOW` and `MS - BYTES DELAY_MS FLOW`. If mm-link emulated the path, there
//! are also lines `MS # BYTES`, one for each opportunity to send. Sizes include the 36 bytes that
//! the tunnel adds: its own number, UDP and IP headers. The log has no windows, so they are
//! inferred. A packet is in flight from its entry until its one-way delay and that of the
//! acknowledgment have passed.
//!
//! Throughput, delay and loss are computed as in Pantheon's own analysis (`tunnel_graph.py`).

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::error::{Place, TraceError};
use crate::import::Read;
use crate::import::input::{Input, shown};
use crate::import::kind::{Kind, Windows};
use crate::import::rows::{FlowNames, Rows, Timed};
use crate::record::{Direction, PacketEvent, PacketRecord, Record, Source};

pub(super) const KIND: Kind = Kind {
    known: Some("a datalink or acklink log of Pantheon"),
    windows: Windows::Rows(|input, most, _| read(input, most)),
    packets: Some(|input, most, _| packets(input, most)),
    ..Kind::called("merged log of a Pantheon tunnel")
};

/// Each time is rounded to a microsecond on its own.
const ROUNDING_US: i64 = 2;
const MAX_IN_TUNNEL: usize = 1 << 20;

/// One line.
struct Event {
    time_us: i64,
    bytes: u32,
    flow: u32,
    /// One-way delay in microseconds, for packets that leave.
    delay_us: Option<i64>,
}

/// The packets of a flow that have entered and not yet left, by time of entry.
#[derive(Default)]
struct Tunnel {
    entered: HashMap<i64, VecDeque<(u64, u32)>>,
    packets: u64,
}

pub(super) fn packets(input: Input<'_>, most: usize) -> Result<Read<PacketRecord>, TraceError> {
    let mut rows: Rows<PacketRecord> = Rows::new(most);
    let mut tunnels: Vec<Tunnel> = Vec::new();
    let (mut inside, mut unknown) = (0usize, 0u64);
    let said = events(input, |event, line| {
        if tunnels.len() <= event.flow as usize {
            tunnels.resize_with(event.flow as usize + 1, Tunnel::default);
        }
        let tunnel = &mut tunnels[event.flow as usize];
        let mut record = PacketRecord {
            time_s: event.time_us as f64 / 1e6,
            flow: event.flow,
            seq: tunnel.packets,
            size_bytes: event.bytes,
            event: PacketEvent::Sent,
            one_way_delay_s: None,
            direction: Direction::Data,
        };
        if let Some(delay_us) = event.delay_us {
            // the packet that entered at the time this line implies
            let entered_us = event.time_us.saturating_sub(delay_us);
            let near = (0..=ROUNDING_US).flat_map(|off| [entered_us - off, entered_us + off]);
            let found = near.into_iter().find_map(|at| {
                let waiting = tunnel.entered.get_mut(&at)?;
                let place = waiting
                    .iter()
                    .position(|(_, bytes)| *bytes == event.bytes)?;
                let (seq, _) = waiting.remove(place)?;
                if waiting.is_empty() {
                    tunnel.entered.remove(&at);
                }
                Some(seq)
            });
            let Some(seq) = found else {
                unknown += 1;
                return Ok(());
            };
            inside -= 1;
            record.seq = seq;
            record.event = PacketEvent::Delivered;
            record.one_way_delay_s = Some(delay_us as f64 / 1e6);
        } else {
            if inside == MAX_IN_TUNNEL {
                let message =
                    format!("more than {MAX_IN_TUNNEL} packets are lost or in the tunnel");
                return Err(TraceError::at(input.path, line, "", message));
            }
            let waiting = tunnel.entered.entry(event.time_us).or_default();
            waiting.push_back((tunnel.packets, event.bytes));
            tunnel.packets += 1;
            inside += 1;
        }
        rows.push(input.path, at(line), record)
    })?;
    let mut read = said.of(input, rows);
    if unknown > 0 {
        let file = input.path.display();
        let message =
            format!("{file}: {unknown} departures of packets that did not enter are left out");
        read.warnings.push(message);
    }
    Ok(read)
}

fn at(line: u64) -> Place {
    Place::Line {
        line,
        column: String::new(),
    }
}

/// What a log gives besides its rows.
struct Said {
    flows: FlowNames,
    sums: Vec<Sums>,
    opportunities: u64,
    damage: Option<TraceError>,
    /// A warning about doubtful values.
    warning: Option<String>,
}

/// The sums of Pantheon's analysis for one flow.
#[derive(Default)]
struct Sums {
    entered_bytes: u64,
    left_bytes: u64,
    /// When the first and the last packets left.
    left_us: Option<(i64, i64)>,
    delays_us: Vec<i64>,
}

impl Sums {
    fn add(&mut self, event: &Event) {
        let Some(delay_us) = event.delay_us else {
            self.entered_bytes += u64::from(event.bytes);
            return;
        };
        self.left_bytes += u64::from(event.bytes);
        let (first, last) = self.left_us.unwrap_or((event.time_us, event.time_us));
        self.left_us = Some((first, last.max(event.time_us)));
        self.delays_us.push(delay_us);
    }

    fn throughput_bps(&self) -> Option<f64> {
        let (first, last) = self.left_us?;
        let seconds = (last - first) as f64 / 1e6;
        (seconds > 0.0).then(|| self.left_bytes as f64 * 8.0 / seconds)
    }

    /// The sample nearest to the 95th percentile.
    fn delay_p95_us(&mut self) -> Option<i64> {
        let last = self.delays_us.len().checked_sub(1)?;
        // halves go to the even neighbor, as in NumPy
        let at = (last as f64 * 0.95).round_ties_even() as usize;
        Some(*self.delays_us.select_nth_unstable(at).1)
    }

    /// The share of bytes that had not left by the end, whether lost or queued.
    fn loss_rate(&self) -> Option<f64> {
        let entered = self.entered_bytes as f64;
        (entered > 0.0).then(|| 1.0 - self.left_bytes as f64 / entered)
    }
}

impl Said {
    fn of<R: Timed>(mut self, input: Input<'_>, rows: Rows<R>) -> Read<R> {
        let packets = self.sums.iter().any(|sums| sums.entered_bytes > 0);
        let damage = self.damage.or_else(|| {
            let message = format!(
                "is a merged log of a Pantheon tunnel without packets ({} opportunities to send): \
                 its run failed before the first one",
                self.opportunities
            );
            (!packets).then(|| TraceError::new(input.path, message))
        });
        let mut read = Read::new(Source::Pantheon, rows, damage);
        read.warnings.extend(self.warning);
        read.name_flows(&self.flows.names);
        let environment = &mut read.metadata.environment;
        let mut goodput_bps = BTreeMap::new();
        for (number, sums) in (0..).zip(&mut self.sums) {
            let numbers = [
                ("throughput_bps", sums.throughput_bps()),
                (
                    "one_way_delay_p95_s",
                    sums.delay_p95_us().map(|us| us as f64 / 1e6),
                ),
                ("loss_rate", sums.loss_rate()),
            ];
            for (name, value) in numbers {
                if let (Some(value), 0..64) = (value, number) {
                    environment.insert(format!("flow {number} {name}"), value.to_string());
                }
            }
            goodput_bps.extend(numbers[0].1.map(|bps| (number, bps)));
        }
        if self.opportunities > 0 {
            let count = self.opportunities.to_string();
            environment.insert("opportunities".to_string(), count);
        }
        read.goodput_bps = goodput_bps;
        read
    }
}

/// Calls `take` with each packet line, up to the first wrong one.
fn events(
    input: Input<'_>,
    mut take: impl FnMut(Event, u64) -> Result<(), TraceError>,
) -> Result<Said, TraceError> {
    let mut lines = input.lines()?;
    let mut said = Said {
        flows: FlowNames::default(),
        sums: Vec::new(),
        opportunities: 0,
        damage: None,
        warning: None,
    };
    let mut feed = || -> Result<(), TraceError> {
        while let Some((number, line)) = lines.next()? {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            let wrong = |message: String| TraceError::at(input.path, number, "", message);
            let Some(event) = parse(line, &mut said.flows).map_err(wrong)? else {
                said.opportunities += 1;
                continue;
            };
            if said.sums.len() <= event.flow as usize {
                said.sums
                    .resize_with(event.flow as usize + 1, Sums::default);
            }
            said.sums[event.flow as usize].add(&event);
            take(event, number)?;
        }
        Ok(())
    };
    said.damage = feed().err();
    said.warning = lines.warning();
    Ok(said)
}

/// Returns `None` for an opportunity of the underlying link.
fn parse(line: &str, names: &mut FlowNames) -> Result<Option<Event>, String> {
    let words: Vec<&str> = line.split_whitespace().take(6).collect();
    let (time, bytes, delay, flow) = match words[..] {
        [time, "#", ..] if time.parse::<f64>().is_ok() => return Ok(None),
        [time, "+", bytes] => (time, bytes, None, "0"),
        [time, "+", bytes, flow] => (time, bytes, None, flow),
        [time, "-", bytes, delay] => (time, bytes, Some(delay), "0"),
        [time, "-", bytes, delay, flow] => (time, bytes, Some(delay), flow),
        _ => {
            let wanted = "TIME + BYTES [FLOW] or TIME - BYTES DELAY [FLOW]";
            return Err(format!("got {}, expected {wanted}", shown(line)));
        }
    };
    let microseconds = |text: &str, what: &str| -> Result<i64, String> {
        let ms = text.parse::<f64>().ok().filter(|ms| ms.abs() < 1e14);
        let ms = ms.ok_or_else(|| format!("{what}: got {}, expected milliseconds", shown(text)))?;
        Ok((ms * 1e3).round() as i64)
    };
    let size = bytes.parse().ok().filter(|bytes: &u32| *bytes <= 1 << 20);
    Ok(Some(Event {
        time_us: microseconds(time, "the time")?,
        bytes: size.ok_or_else(|| format!("the size: got {}, expected bytes", shown(bytes)))?,
        flow: names.number(flow)?,
        delay_us: delay
            .map(|delay| microseconds(delay, "the delay"))
            .transpose()?,
    }))
}

/// The packets in flight of one flow, while its log is read.
#[derive(Default)]
struct Flight {
    /// Acknowledgments in flight: when they arrive, and what they acknowledge.
    coming: VecDeque<(i64, u32, i64)>,
    sent_bytes: u64,
    acked_bytes: u64,
    /// Packets that entered, the oldest first; some of them are lost.
    entered: VecDeque<(i64, u32)>,
    flight_bytes: u64,
    srtt_us: Option<f64>,
    largest_bytes: u32,
}

impl Flight {
    /// Takes a packet known to have arrived, which entered at `entered_us`. The sender regards
    /// earlier packets that have not arrived as lost.
    fn arrived(&mut self, entered_us: i64, bytes: u32) {
        while let Some(&(at, size)) = self.entered.front() {
            if at > entered_us + ROUNDING_US {
                break;
            }
            self.entered.pop_front();
            self.flight_bytes -= u64::from(size);
            if (at - entered_us).abs() <= ROUNDING_US && size == bytes {
                break;
            }
        }
    }
}

pub(super) fn read(input: Input<'_>, most: usize) -> Result<Read<Record>, TraceError> {
    // find the least delay first, because the log does not know the path of acknowledgments
    let mut least_us: Option<i64> = None;
    events(input, |event, _| {
        if let Some(delay_us) = event.delay_us {
            least_us = Some(least_us.map_or(delay_us, |least| least.min(delay_us)));
        }
        Ok(())
    })?;
    let back_us = least_us.unwrap_or(0).max(0);

    let mut rows: Rows<Record> = Rows::new(most);
    let mut flights: Vec<Flight> = Vec::new();
    let said = events(input, |event, line| {
        if flights.len() <= event.flow as usize {
            flights.resize_with(event.flow as usize + 1, Flight::default);
        }
        let flight = &mut flights[event.flow as usize];
        // apply the acknowledgments that have reached the sender by now
        while let Some(&(at_us, bytes, rtt_us)) = flight.coming.front() {
            if at_us > event.time_us {
                break;
            }
            flight.coming.pop_front();
            acknowledge(flight, at_us, bytes, rtt_us, event.flow)
                .map_or(Ok(()), |record| rows.push(input.path, at(line), record))?;
        }
        let bytes = event.bytes;
        match event.delay_us {
            None => {
                flight.sent_bytes += u64::from(bytes);
                flight.flight_bytes += u64::from(bytes);
                flight.largest_bytes = flight.largest_bytes.max(bytes);
                flight.entered.push_back((event.time_us, bytes));
                if flight.entered.len() > MAX_IN_TUNNEL {
                    let message = format!("more than {MAX_IN_TUNNEL} packets in the tunnel");
                    return Err(TraceError::at(input.path, line, "", message));
                }
            }
            Some(delay_us) => {
                let rtt_us = delay_us.max(0).saturating_add(back_us);
                let at_us = event.time_us.saturating_add(back_us);
                flight.coming.push_back((at_us, bytes, rtt_us));
                if flight.coming.len() > MAX_IN_TUNNEL {
                    let message = format!("more than {MAX_IN_TUNNEL} packets left at once");
                    return Err(TraceError::at(input.path, line, "", message));
                }
            }
        }
        Ok(())
    })?;
    let mss_bytes = flights
        .iter()
        .map(|flight| flight.largest_bytes)
        .max()
        .unwrap_or(0)
        .max(1);
    for record in rows.iter_mut() {
        record.cwnd_packets /= f64::from(mss_bytes);
    }
    let mut read = said.of(input, rows);
    read.metadata.mss_bytes = Some(mss_bytes);
    let environment = &mut read.metadata.environment;
    let inferred = format!(
        "inferred from the packets in flight, acknowledgments being taken to need {:.3} ms, the \
         smallest delay of this log",
        back_us as f64 / 1e3
    );
    environment.insert("cwnd_packets".to_string(), inferred);
    environment.insert(
        "snd_nxt_bytes".to_string(),
        "IP packets with their headers and the tunnel's, what is sent again counted again"
            .to_string(),
    );
    Ok(read)
}

/// The sender's state just before an acknowledgment; then applies that acknowledgment.
fn acknowledge(
    flight: &mut Flight,
    at_us: i64,
    bytes: u32,
    rtt_us: i64,
    flow: u32,
) -> Option<Record> {
    // RFC 6298, section 2
    let sample = rtt_us as f64;
    let srtt = flight
        .srtt_us
        .map_or(sample, |srtt| srtt + (sample - srtt) / 8.0);
    let record = (flight.flight_bytes > 0).then(|| Record {
        time_s: at_us as f64 / 1e6,
        flow,
        cwnd_packets: flight.flight_bytes as f64,
        srtt_s: flight.srtt_us.map(|srtt| srtt / 1e6),
        snd_nxt_bytes: Some(flight.sent_bytes),
        ..Record::default()
    });
    flight.srtt_us = Some(srtt);
    flight.acked_bytes += u64::from(bytes);
    flight.arrived(at_us.saturating_sub(rtt_us), bytes);
    record
}

#[cfg(test)]
mod tests {
    use crate::import::Format;
    use crate::import::testing::{never_panics, packets, read, read_prefix};
    use crate::record::PacketEvent::{Delivered, Sent};

    const LOG: &str = "\
# init timestamp: 1700000000000.125
10.000 + 1500 1
10.100 + 1500 1
10.200 + 1500 1
30.000 - 1500 20.000 1
30.200 - 1500 20.000 1
50.300 + 1500 1
70.300 - 1500 20.000 1
90.300 + 1500 1
120.000 + 1500 1
";

    #[test]
    fn windows_are_what_is_in_flight_and_losses_are_seen_by_arrivals_after_them() {
        let read = read(LOG).unwrap();
        let rows: Vec<_> = (read.trace.records.iter())
            .map(|r| (r.time_s, r.cwnd_packets, r.srtt_s))
            .collect();
        // acknowledged at 50.0, 50.2 and 90.3 ms; the second shows that the previous packet is lost
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[0].1, rows[1].1, rows[2].1), (3.0, 2.0, 1.0));
        assert!((rows[1].0 - 0.0002).abs() < 1e-9);
        assert!((rows[1].2.unwrap() - 0.04).abs() < 1e-9);
        assert_eq!(read.trace.metadata.mss_bytes, Some(1500));
        assert!(read.trace.metadata.environment["cwnd_packets"].contains("20.000 ms"));
    }

    #[test]
    fn packets_keep_their_numbers() {
        let records = packets(LOG).unwrap().records;
        assert_eq!(records.len(), 9);
        let last = records[6];
        assert_eq!((last.seq, last.event), (3, Delivered));
        assert_eq!(last.one_way_delay_s, Some(0.02));
        assert_eq!((records[8].seq, records[8].event), (5, Sent));
    }

    /// A log of an emulated path: it begins and ends with mm-link's opportunities.
    fn emulated() -> String {
        let opportunities = "0.000 # 1500\n".repeat(9000);
        let (header, lines) = LOG.split_once('\n').unwrap();
        format!("{header}\n{opportunities}{lines}121.000 # 1500\n")
    }

    #[test]
    fn a_log_that_begins_with_opportunities_is_of_a_tunnel_all_the_same() {
        let read = read(emulated()).unwrap();
        assert_eq!(read.format, Format::PantheonLog);
        assert_eq!(read.trace.records.len(), 3);
        let packets = packets(emulated()).unwrap();
        assert_eq!(packets.records.len(), 9);
        assert_eq!(packets.metadata.environment["opportunities"], "9001");
        // an mm-link log, which counts whole milliseconds
        let link = emulated().replace(".000 #", " #");
        assert_eq!(
            packets_of(&link[link.find("0 #").unwrap()..]),
            Format::MahimahiLog
        );
    }

    fn packets_of(text: &str) -> Format {
        crate::import::detect::detect(text.as_bytes()).unwrap()
    }

    #[test]
    fn throughput_delay_and_loss_are_those_of_pantheons_analysis() {
        let read = read(LOG).unwrap();
        // 3 of 6 packets left within 40.3 ms
        let bps = 3.0 * 1500.0 * 8.0 / 0.0403;
        assert!((read.goodput_bps[&0] - bps).abs() < 1.0);
        let environment = &read.trace.metadata.environment;
        assert_eq!(environment["flow 0 one_way_delay_p95_s"], "0.02");
        assert_eq!(environment["flow 0 loss_rate"], "0.5");
    }

    #[test]
    fn a_run_that_failed_is_refused_as_one() {
        for text in [
            "# init timestamp: 1700000000000.125\n",
            "# init timestamp: 1.5\n2.000 # 1500\n",
        ] {
            for error in [read(text).unwrap_err(), packets(text).unwrap_err()] {
                assert!(error.contains("Pantheon tunnel without packets"), "{error}");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_told_by_line_and_ends_of_a_tunnel_by_name() {
        let error = read(LOG.replace("70.300 - 1500 20.000 1", "70.300 - x 1 1")).unwrap_err();
        assert_eq!(error, "f:8: the size: got \"x\", expected bytes");
        let kept = read_prefix(LOG.replace("120.000 + 1500 1", "120.000 + ")).unwrap();
        assert!(
            kept.warnings[0].contains("f:10: got"),
            "{:?}",
            kept.warnings
        );
        let error = read("# x ingress: 15.5\n12.125 - 5 - 1500\n").unwrap_err();
        assert!(error.contains("knows packets of one end only"), "{error}");
    }

    never_panics!(LOG, emulated());
}
