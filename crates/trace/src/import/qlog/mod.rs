//! qlog, the log of QUIC endpoints: one JSON text (`.qlog`) or a sequence of them (`.sqlog`, split
//! by newlines or record separators).
//!
//! Events are known by the last part of their names, so that both those of draft 0.3
//! (`recovery:metrics_updated`, `transport:packet_sent`) and the newer ones
//! (`quic:recovery_metrics_updated`, `quic:packet_sent`) are read.

mod events;
mod file;

use crate::error::{Place, TraceError};
use crate::import::Read;
use crate::import::input::Input;
use crate::import::rows::Rows;
use crate::record::{Direction, PacketEvent, PacketRecord, Record, Source};

use events::What;
use file::Log;

/// The smallest packet that QUIC must be able to send (RFC 9000, section 14), where the log does
/// not tell.
const DATAGRAM_BYTES: u32 = 1200;

/// What an endpoint said of itself last; metrics are logged only where they changed.
#[derive(Clone, Copy, Default)]
struct Flow {
    cwnd_bytes: Option<f64>,
    ssthresh_bytes: Option<f64>,
    srtt_s: Option<f64>,
    sent_bytes: u64,
    sent_any: bool,
    lost: u64,
}

pub(super) fn read(input: Input<'_>, most: usize) -> Result<Read<Record>, TraceError> {
    let (log, damage) = file::read(input, most)?;
    let datagram_bytes = log.datagram_bytes.unwrap_or(DATAGRAM_BYTES);
    let mut rows = Rows::new(most);
    let mut flows = vec![Flow::default(); log.flows.len()];
    let mut wrong = None;
    for event in &log.events {
        let flow = &mut flows[event.flow as usize];
        match event.what {
            What::Sent { size_bytes, .. } => {
                flow.sent_any = true;
                flow.sent_bytes += u64::from(size_bytes);
                continue;
            }
            What::Lost { .. } => {
                flow.lost += 1;
                continue;
            }
            What::Metrics {
                cwnd_bytes,
                ssthresh_bytes,
                srtt_ms,
            } => {
                flow.cwnd_bytes = cwnd_bytes.or(flow.cwnd_bytes);
                flow.ssthresh_bytes = ssthresh_bytes.or(flow.ssthresh_bytes);
                flow.srtt_s = srtt_ms.map(|ms| ms / 1e3).or(flow.srtt_s);
            }
        }
        let Some(cwnd_bytes) = flow.cwnd_bytes else {
            continue;
        };
        let packets = |bytes: f64| bytes / f64::from(datagram_bytes);
        let record = Record {
            time_s: log.time_s(event),
            flow: event.flow,
            cwnd_packets: packets(cwnd_bytes),
            // no threshold yet is logged as the largest number
            ssthresh_packets: flow.ssthresh_bytes.filter(|b| *b < 1e15).map(packets),
            srtt_s: flow.srtt_s,
            snd_nxt_bytes: flow.sent_any.then_some(flow.sent_bytes),
            retransmits: Some(flow.lost),
            ..Record::default()
        };
        if let Err(error) = push(&mut rows, input, event.line, record) {
            wrong = Some(error);
            break;
        }
    }
    let rows_missing = rows.len() == 0 && damage.is_none() && wrong.is_none();
    let damage = wrong.or(damage).or_else(|| {
        rows_missing.then(|| {
            let message = format!(
                "none of its {} recovery events tells of a congestion window, expected \
                 metrics_updated with congestion_window",
                log.events.len()
            );
            TraceError::new(input.path, message)
        })
    });
    Ok(described(
        input,
        Read::new(Source::Qlog, rows, damage),
        &log,
    ))
}

pub(super) fn packets(input: Input<'_>, most: usize) -> Result<Read<PacketRecord>, TraceError> {
    let (log, mut damage) = file::read(input, most)?;
    let mut rows = Rows::new(most);
    for event in &log.events {
        let (seq, size_bytes, what) = match event.what {
            What::Sent { number, size_bytes } => (number, size_bytes, PacketEvent::Sent),
            What::Lost { number, size_bytes } => (number, size_bytes, PacketEvent::DroppedByLoss),
            What::Metrics { .. } => continue,
        };
        let record = PacketRecord {
            time_s: log.time_s(event),
            flow: event.flow,
            seq,
            size_bytes,
            event: what,
            one_way_delay_s: None,
            direction: Direction::Data,
        };
        if let Err(error) = push(&mut rows, input, event.line, record) {
            damage = Some(error);
            break;
        }
    }
    Ok(described(
        input,
        Read::new(Source::Qlog, rows, damage),
        &log,
    ))
}

fn push<R: super::rows::Timed>(
    rows: &mut Rows<R>,
    input: Input<'_>,
    line: u64,
    row: R,
) -> Result<(), TraceError> {
    let place = Place::Line {
        line,
        column: String::new(),
    };
    rows.push(input.path, place, row)
}

fn described<R: super::rows::Timed>(input: Input<'_>, mut read: Read<R>, log: &Log) -> Read<R> {
    read.metadata.mss_bytes = Some(log.datagram_bytes.unwrap_or(DATAGRAM_BYTES));
    if log.datagram_bytes.is_none() {
        read.warnings.push(format!(
            "{}: the size of a datagram is not told; taken to be {DATAGRAM_BYTES} B",
            input.path.display()
        ));
    }
    read.name_flows(&log.flows);
    read
}

#[cfg(test)]
mod tests {
    use crate::import::testing::{never_panics, packets, read, read_prefix};
    use crate::record::PacketEvent;

    const CONTAINED: &str = r#"{"qlog_version": "0.3", "qlog_format": "JSON", "title": "x", "traces": [{
  "vantage_point": {"type": "server"},
  "common_fields": {"reference_time": 1700000000000, "time_format": "relative", "group_id": "ab12"},
  "events": [
    {"time": 10, "name": "recovery:parameters_set", "data": {"max_datagram_size": 1000, "initial_congestion_window": 10000}},
    {"time": 10, "name": "recovery:metrics_updated", "data": {"congestion_window": 10000, "bytes_in_flight": 0}},
    {"time": 11, "name": "transport:packet_sent", "data": {"header": {"packet_type": "initial", "packet_number": 0}, "raw": {"length": 1000}}},
    {"time": 12, "name": "transport:packet_sent", "data": {"header": {"packet_type": "1RTT", "packet_number": 3}, "raw": {"length": 900}, "frames": [{"frame_type": "stream"}]}},
    {"time": 30, "name": "recovery:packet_lost", "data": {"header": {"packet_type": "1RTT", "packet_number": 3}, "trigger": "x"}},
    {"time": 40, "name": "recovery:metrics_updated", "data": {"smoothed_rtt": 28.5, "ssthresh": 5000}},
    {"time": 50, "name": "recovery:metrics_updated", "data": {"congestion_window": 5000}}
  ]}]}
"#;

    const SEQUENCE: &str = "\u{1e}{\"file_schema\":\"urn:ietf:params:qlog:file:sequential\",\"serialization_format\":\"application/qlog+json-seq\",\"trace\":{\"vantage_point\":{\"type\":\"client\"},\"common_fields\":{\"time_format\":\"relative_to_previous_event\"}}}
\u{1e}{\"time\":5,\"name\":\"quic:packet_sent\",\"data\":{\"header\":{\"packet_type\":\"1RTT\",\"packet_number\":0},\"raw\":{\"length\":1300}}}
\u{1e}{\"time\":5,\"name\":\"quic:recovery_metrics_updated\",\"data\":{\"congestion_window\":13000,\"smoothed_rtt\":20}}
\u{1e}{\"time\":5,\"name\":\"quic:recovery_metrics_updated\",\"data\":{\"congestion_window\":26000}}
";

    #[test]
    fn metrics_become_rows_that_hold_what_did_not_change() {
        let read = read(CONTAINED).unwrap();
        let rows = &read.trace.records;
        let of = |i: usize| {
            (
                rows[i].cwnd_packets,
                rows[i].srtt_s,
                rows[i].ssthresh_packets,
            )
        };
        assert_eq!(rows.len(), 3);
        assert_eq!(of(0), (10.0, None, None));
        assert_eq!(of(1), (10.0, Some(0.0285), Some(5.0)));
        assert_eq!(of(2), (5.0, Some(0.0285), Some(5.0)));
        assert!((rows[2].time_s - 0.04).abs() < 1e-9);
        assert_eq!(rows[2].retransmits, Some(1));
        assert_eq!(rows[2].snd_nxt_bytes, Some(900));
        assert_eq!(read.trace.metadata.mss_bytes, Some(1000));
        assert_eq!(read.trace.metadata.environment["flow 0"], "server ab12");
    }

    #[test]
    fn packets_of_application_data_are_told() {
        let packets = packets(CONTAINED).unwrap().records;
        assert_eq!(packets.len(), 2);
        assert_eq!((packets[0].seq, packets[0].event), (3, PacketEvent::Sent));
        assert_eq!(packets[0].size_bytes, 900);
        assert_eq!(packets[1].event, PacketEvent::DroppedByLoss);
    }

    #[test]
    fn a_packet_of_gigabytes_is_the_largest_datagram() {
        let huge = CONTAINED.replace("900", "4294967295");
        let packets = packets(huge).unwrap().records;
        assert_eq!(packets[0].size_bytes, 65_535);
    }

    #[test]
    fn a_sequence_with_the_newer_names_and_times_between_events_is_read() {
        let read = read(SEQUENCE).unwrap();
        let rows = &read.trace.records;
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].cwnd_packets, rows[1].cwnd_packets), (10.0, 20.0));
        assert!((rows[1].time_s - 0.005).abs() < 1e-9);
    }

    #[test]
    fn a_cut_log_is_refused_by_line_or_kept_so_far() {
        let cut = &SEQUENCE[..SEQUENCE.len() - 9];
        let error = read(cut).unwrap_err();
        assert!(error.starts_with("f:4: column "), "{error}");
        assert_eq!(read_prefix(cut).unwrap().trace.records.len(), 1);
        let none = CONTAINED.replace("congestion_window\": ", "x\": ");
        assert!(
            read(none)
                .unwrap_err()
                .contains("tells of a congestion window")
        );
    }

    never_panics!(CONTAINED, SEQUENCE);
}
