//! qlog, the log of QUIC endpoints: one JSON text (`.qlog`) or a sequence of them (`.sqlog`,
//! separated by newlines or record separators).
//!
//! Events are objects or, in drafts 00 and 01, lists whose `event_fields` name the positions. They
//! are identified by the last part of their names. That covers the drafts (`metrics_updated`), 0.3
//! (`recovery:metrics_updated`), newer versions (`quic:recovery_metrics_updated`) and mvfst
//! (`congestion_metric_update`). Times are in the unit of `time_units`, by default milliseconds. So
//! are round-trip times, unless packets and their acknowledgments show otherwise.

mod events;
mod file;
mod rtt_unit;

use crate::error::{Place, TraceError};
use crate::import::Read;
use crate::import::input::Input;
use crate::import::kind::{Kind, Windows};
use crate::import::rows::Rows;
use crate::record::{Direction, PacketEvent, PacketRecord, Record, Source};

use events::What;
use file::Log;

pub(super) const KIND: Kind = Kind {
    known: Some("qlog"),
    windows: Windows::Rows(|input, most, _| read(input, most)),
    packets: Some(|input, most, _| packets(input, most)),
    ..Kind::called("qlog")
};

/// The smallest packet that QUIC must be able to send (RFC 9000, section 14), used if the log has
/// no size.
const DATAGRAM_BYTES: u32 = 1200;

/// The last reported metrics of an endpoint; logs contain only changes.
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
    for event in log.in_order() {
        let flow = &mut flows[event.flow as usize];
        match event.what {
            What::Sent { size_bytes, .. } => {
                flow.sent_any = true;
                flow.sent_bytes += u64::from(size_bytes);
                continue;
            }
            What::Lost { packets, .. } => {
                flow.lost += u64::from(packets);
                continue;
            }
            What::Acknowledged { .. } => continue,
            What::Metrics {
                cwnd_bytes,
                ssthresh_bytes,
                srtt,
                ..
            } => {
                flow.cwnd_bytes = cwnd_bytes.or(flow.cwnd_bytes);
                flow.ssthresh_bytes = ssthresh_bytes.or(flow.ssthresh_bytes);
                flow.srtt_s = srtt.map(|rtt| rtt * log.rtt_unit_s(event)).or(flow.srtt_s);
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
            // an unset threshold is logged as the largest number
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
            let packets = log
                .events
                .iter()
                .any(|e| matches!(e.what, What::Sent { .. }));
            let instead = if packets {
                "; it tells of packets, which `convert --packets` reads"
            } else {
                ""
            };
            let message = format!(
                "none of its {} events tells of a congestion window, expected metrics_updated with \
                 congestion_window or cwnd{instead}",
                log.seen
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
    for event in log.in_order() {
        let (seq, size_bytes, what) = match event.what {
            What::Sent { number, size_bytes } => (number, size_bytes, PacketEvent::Sent),
            What::Lost {
                number, size_bytes, ..
            } => (number, size_bytes, PacketEvent::DroppedByLoss),
            What::Metrics { .. } | What::Acknowledged { .. } => continue,
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
    if rows.len() == 0 && damage.is_none() {
        let message = format!(
            "none of its {} events tells of a packet sent or lost",
            log.seen
        );
        damage = Some(TraceError::new(input.path, message));
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
            "{}: the size of a datagram is not given; assumed to be {DATAGRAM_BYTES} B",
            input.path.display()
        ));
    }
    if let Some(unit) = log.odd_rtt_unit() {
        let said = "round-trip times are taken to be in";
        let why = "for that is what packets and their acknowledgments took";
        read.warnings
            .push(format!("{}: {said} {unit}, {why}", input.path.display()));
        let environment = &mut read.metadata.environment;
        environment.insert("srtt_s".to_string(), format!("inferred: {unit}"));
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

    /// As current picoquic writes it.
    const POSITIONAL: &str = r#"{ "qlog_version": "draft-00", "title": "picoquic", "traces": [
{ "vantage_point": { "name": "backend-67", "type": "server" },
"event_fields": ["relative_time", "path_id", "category", "event", "data"],
"configuration": {"time_units": "us"},
"common_fields": { "protocol_type": "QUIC_HTTP3", "reference_time": "11001"},
"events": [
[0, 0, "transport", "datagram_received", { "byte_length": 1252, "addr_from" : {"port_v4":1234}}],
[1000, 0, "recovery", "metrics_updated", {"cwnd": 15360, "smoothed_rtt": 0, "bytes_in_flight": 0}],
[2000, 0, "transport", "packet_sent", { "packet_type": "1RTT", "header": { "packet_size": 1200, "packet_number": 7 }, "frames": [{ "frame_type": "padding"}]}],
[3000, 0, "transport", "packet_sent", { "packet_type": "initial", "header": { "packet_size": 900, "packet_number": 0 }}],
[22000, 0, "recovery", "metrics_updated", {"cwnd": 16560,"smoothed_rtt": 20000}],
["23000", 1, "recovery", "metrics_updated", {"cwnd": 12000}],
[24000, 0, "recovery", "packet_lost", { "packet_type" : "1RTT", "trigger": "repeat", "header": { "packet_type": "1RTT", "packet_number": 7, "packet_size": 1200}}],
[25000, 0, "recovery", "metrics_updated", {"cwnd": 8280}],
[]]}]}
"#;

    #[test]
    fn events_that_are_lists_are_read_by_their_fields_and_units() {
        let read = read(POSITIONAL).unwrap();
        let rows: Vec<_> = (read.trace.records.iter())
            .map(|r| (r.flow, r.cwnd_packets, r.srtt_s, r.retransmits))
            .collect();
        assert_eq!(
            rows,
            [
                (0, 12.8, None, Some(0)),
                (0, 13.8, Some(0.02), Some(0)),
                (1, 10.0, None, Some(0)),
                (0, 6.9, Some(0.02), Some(1)),
            ]
        );
        assert!((read.trace.records[3].time_s - 0.024).abs() < 1e-9);
        assert_eq!(read.trace.metadata.environment["flow 1"], "server path 1");
        let records = packets(POSITIONAL).unwrap().records;
        assert_eq!(records.len(), 2);
        assert!((records[1].time_s - 0.022).abs() < 1e-9);
    }

    #[test]
    fn times_since_the_event_before_are_summed() {
        let text = r#"{"qlog_version":"draft-01","traces":[{"configuration":{"time_units":"us"},
            "event_fields":["delta_time","category","event","trigger","data"],
            "events":[[1400652327546,"transport","packet_received","default",{}],
            [500,"recovery","metrics_updated","default",{"cwnd":12000}],
            [500,"recovery","metrics_updated","default",{"cwnd":13200}]]}]}"#;
        let rows = read(text).unwrap().trace.records;
        assert!((rows[1].time_s - 0.0005).abs() < 1e-6);
    }

    #[test]
    fn aioquic_and_mvfst_have_names_of_their_own() {
        let aioquic = r#"{"qlog_format": "JSON", "qlog_version": "0.3", "traces": [{"common_fields": {"ODCID": "3f48"}, "events": [
            {"data": {"cwnd": 12800, "bytes_in_flight": 0}, "name": "recovery:metrics_updated", "time": 1744082002713.5},
            {"data": {"latest_rtt": 20.5, "smoothed_rtt": 20.5}, "name": "recovery:metrics_updated", "time": 1744082002734.5}],
            "vantage_point": {"name": "aioquic", "type": "client"}}]}"#;
        let read_back = read(aioquic).unwrap();
        let rows = &read_back.trace.records;
        assert_eq!((rows.len(), rows[1].srtt_s), (2, Some(0.0205)));
        let name = &read_back.trace.metadata.environment["flow 0"];
        assert_eq!(name, "client 3f48");
        let mvfst = r#"{"qlog_version":"draft-00","traces":[{"configuration":{"time_units":"us"},
            "event_fields":["relative_time","category","event","data"],"events":[
            ["1000","metric_update","congestion_metric_update",{"current_cwnd":12000,"state":"x"}],
            ["2000","loss","packets_lost",{"largest_lost_packet_num":9,"lost_bytes":2400,"lost_packets":2}],
            ["3000","metric_update","metric_update",{"smoothed_rtt":31000,"min_rtt":30000}]]}]}"#;
        let rows = read(mvfst).unwrap().trace.records;
        assert_eq!(
            (rows[1].srtt_s, rows[1].retransmits),
            (Some(0.031), Some(2))
        );
    }

    /// 20 round trips of 25 ms, each reported as `told`.
    fn round_trips(told: &str) -> String {
        let mut text =
            "\u{1e}{\"qlog_version\":\"0.3\",\"qlog_format\":\"JSON-SEQ\",\"trace\":{}}\n"
                .to_string();
        for i in 0..20 {
            let ms = i * 30;
            text += &format!(
                "\u{1e}{{\"time\":{ms},\"name\":\"transport:packet_sent\",\"data\":{{\"header\":{{\"packet_type\":\"1RTT\",\"packet_number\":{i}}},\"raw\":{{\"length\":1200}}}}}}\n\
                 \u{1e}{{\"time\":{},\"name\":\"transport:packet_received\",\"data\":{{\"header\":{{\"packet_type\":\"1RTT\",\"packet_number\":{i}}},\"frames\":[{{\"frame_type\":\"ack\",\"acked_ranges\":[[0,{i}]]}}]}}}}\n\
                 \u{1e}{{\"time\":{},\"name\":\"recovery:metrics_updated\",\"data\":{{\"congestion_window\":12000,\"smoothed_rtt\":{told}}}}}\n",
                ms + 25,
                ms + 25,
            );
        }
        text
    }

    #[test]
    fn round_trip_times_in_another_unit_are_shown_by_acknowledgments() {
        for (told, unit) in [
            ("25.5", ""),
            ("0.0255", "seconds"),
            ("25500", "microseconds"),
        ] {
            let read = read(round_trips(told)).unwrap();
            let srtt_s = read.trace.records[5].srtt_s.unwrap();
            assert!((srtt_s - 0.0255).abs() < 1e-9, "{told}: {srtt_s}");
            assert_eq!(read.warnings.len(), usize::from(!unit.is_empty()));
            assert!(read.warnings.iter().all(|warning| warning.contains(unit)));
        }
    }

    #[test]
    fn what_is_of_before_the_drafts_or_tells_nothing_is_refused_by_name() {
        let script = "var x = {\n \"qlog_version\": \"0.1\",\n \"connections\": [{}]};";
        let error = read(script).unwrap_err();
        assert!(
            error.contains("before the drafts (qlog_version 0.1)"),
            "{error}"
        );
        let json = "{\"qlog_version\": \"0.1\",\"connections\": []}";
        assert!(packets(json).unwrap_err().contains("before the drafts"));
        let script = "var x = {\"qlog_version\": \"draft-01\", \"traces\": []};";
        assert!(read(script).unwrap_err().contains("within a script"));
        let sent = round_trips("1")
            .replace("congestion_window", "x")
            .replace("smoothed_rtt", "y");
        let error = read(sent).unwrap_err();
        assert!(error.contains("`convert --packets`"), "{error}");
        let messages = r#"{"qlog_version":"draft-00","traces":[{"event_fields":["relative_time","category",
            "event","data"],"events":[[0,"info","message",{"message":"s:x"}]]}]}"#;
        let error = packets(messages).unwrap_err();
        assert_eq!(
            error,
            "f: none of its 1 events tells of a packet sent or lost"
        );
    }

    #[test]
    fn traces_behind_one_another_are_put_in_order() {
        let trace = r#"{"events":[{"time":1,"name":"recovery:metrics_updated","data":{"cwnd":12000}},
            {"time":9000,"name":"recovery:metrics_updated","data":{"cwnd":12000}}]}"#;
        let text = format!("{{\"qlog_version\":\"0.3\",\"traces\":[{trace},{trace}]}}");
        let rows = read(text).unwrap().trace.records;
        let flows: Vec<u32> = rows.iter().map(|row| row.flow).collect();
        assert_eq!(flows, [0, 1, 0, 1]);
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

    never_panics!(CONTAINED, SEQUENCE, POSITIONAL, round_trips("0.0255"));
}
