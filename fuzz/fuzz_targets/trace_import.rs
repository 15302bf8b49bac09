//! Files of other tools: read or refused, by whichever reader their content asks for; what comes
//! before damage is no less than what comes without; gzipped or not makes no difference; what is
//! exported is read again.
#![no_main]

use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;
use pathcast_fuzz::{check_trace, file_of, write_seeds};
use pathcast_trace::{
    Damage, PacketRecord, ReadOptions, packets_of_bytes, read_bytes, read_packets,
    read_pantheon_perf, write_delivery_trace, write_mm_link_log,
};

fuzz_target!(init: write_seeds(seeds), |input: &[u8]| run(input));

fn run(input: &[u8]) {
    if input.starts_with(b"PAR1") {
        return; // trace_parquet's
    }
    let name = Path::new("t");
    let strict = ReadOptions::default();
    let keeping = ReadOptions {
        damage: Damage::KeepPrefix,
        ..ReadOptions::default()
    };
    let read = read_bytes(name, input, &strict).ok();
    let kept = read_bytes(name, input, &keeping).ok();
    if let Some(read) = &read {
        check_trace(&read.trace);
        assert_eq!(kept.as_ref(), Some(read));
    }
    if let Some(kept) = &kept {
        check_trace(&kept.trace);
    }
    // what is gzipped already would be unpacked once only
    if !input.starts_with(&[0x1f, 0x8b]) {
        assert_eq!(read_bytes(name, &gzip(input), &keeping).ok(), kept);
    }
    if let Ok(packets) = packets_of_bytes(name, input, &keeping) {
        check_packets(&packets.records);
        let folder = tempfile::tempdir().expect("a folder can be made");
        let log = folder.path().join("link.log");
        if write_mm_link_log(&log, &packets.records).is_ok() {
            let again = read_packets(&log, &strict).expect("our own log");
            check_packets(&again.records);
        }
        let _ = write_delivery_trace(&folder.path().join("link.trace"), &packets.records);
    }
    if input.first() == Some(&b'{') {
        let _ = read_pantheon_perf(file_of(input).path(), &keeping);
    }
}

fn check_packets(records: &[PacketRecord]) {
    assert!(!records.is_empty());
    assert!(records.is_sorted_by(|a, b| a.time_s <= b.time_s));
    assert!(records.iter().all(|record| record.time_s.is_finite()));
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).expect("to memory");
    encoder.finish().expect("to memory")
}

/// A capture of raw IPv4, of headers only: a packet each way, twice.
fn capture() -> Vec<u8> {
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    let mut bytes = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 96, 101]);
    for i in 0..4u32 {
        let (from, to) = if i % 2 == 0 { (1, 2) } else { (2, 1) };
        let payload = if i % 2 == 0 { 1000u16 } else { 0 };
        bytes.extend(words(&[
            1_700_000_000,
            i * 1000,
            40,
            40 + u32::from(payload),
        ]));
        bytes.extend([0x45, 0]);
        bytes.extend((40 + payload).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
        bytes.extend([0, from, 0, to]);
        let numbers = if i % 2 == 0 {
            [i * 500, 1]
        } else {
            [1, (i + 1) * 500]
        };
        bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        bytes.extend([0x50, 16, 1, 0, 0, 0, 0, 0]);
    }
    bytes
}

fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "{\"start\":{\"tcp_mss\":1000,\"connected\":[]},\"intervals\":[{\"streams\":[{\"socket\":5,\
         \"end\":1,\"bytes\":9,\"snd_cwnd\":10000,\"rtt\":5}]}],\"end\":{}}",
        "{\"event\":\"start\",\"data\":{\"tcp_mss\":1000}}\n{\"event\":\"interval\",\"data\":\
         {\"streams\":[{\"socket\":5,\"end\":1,\"bytes\":9,\"snd_cwnd\":10000}]}}\n",
        "  x-1 [000] ..s. 1.5: tcp_probe: family=AF_INET src=1.1.1.1:1 dest=2.2.2.2:2 snd_nxt=0x9 \
         snd_una=0x1 snd_cwnd=10 ssthresh=7 snd_wnd=9 srtt=20\n",
        "0.1 10.0.0.1:5 10.0.0.2:6 32 0x3d9 0x3d8 10 100 200 23\n",
        "1700000000.5\nESTAB 0 0 1.1.1.1:1 2.2.2.2:2 timer:(on,8ms,0) ino:6 sk:1 <-> skmem:(r0,rb1) ts sack cubic \
         wscale:7,7 rto:204 rtt:3/1 mss:1448 cwnd:10 bytes_acked:9\n",
        "\t cubic wscale:7,7 rto:292 rtt:91/1 mss:1402 cwnd:12 bytes_acked:41 segs_out:3 segs_in:3 08:39:50.03\n",
        r#"{"metadata": {"FLENT_VERSION": "2.1"}, "raw_values": {"TCP upload": [{"t": 1.5, "tcp_cwnd": 10.0,
         "tcp_rtt": 20.5}, {"t": 2.5, "dur": 1.0, "val": 8.0}]}, "version": 4}"#,
        r#"{"ClientIP": "::1", "ClientPort": 4, "ServerIP": "::2", "ServerPort": 443, "Download": {"ServerMeasurements":
         [{"TCPInfo": {"ElapsedTime": 100000, "SndCwnd": 32, "SndMSS": 1428, "RTT": 20500, "BytesAcked": 7}}]}}"#,
        r#"{"Key":"measurement","Value":{"Origin":"server","Test":"download","TCPInfo":{"ElapsedTime":1,"SndCwnd":3}}}"#,
        "1700000000.5\nESTAB 0 0 1.1.1.1:1 2.2.2.2:2\n\t cubic rtt:3/1 mss:1448 cwnd:10 \
         bytes_sent:9 bytes_acked:5 retrans:0/1\n",
        "{\"qlog_version\":\"0.3\",\"traces\":[{\"common_fields\":{\"time_format\":\"relative\"},\
         \"events\":[{\"time\":1,\"name\":\"recovery:metrics_updated\",\"data\":\
         {\"congestion_window\":12000,\"smoothed_rtt\":20}}]}]}",
        "\u{1e}{\"qlog_format\":\"JSON-SEQ\",\"trace\":{}}\n\u{1e}{\"time\":1,\"name\":\
         \"quic:packet_sent\",\"data\":{\"header\":{\"packet_type\":\"1RTT\",\"packet_number\":1},\
         \"raw\":{\"length\":1200}}}\n",
        "# base timestamp: 5\n5 + 1504\n5 # 1504\n5 - 1504 0\n6 + 504\n6 d 1 504\n",
        "# init timestamp: 1.5\n1.500 + 1500 1\n21.500 - 1500 20.000 1\n70.000 + 1500 1\n",
        "{\"bbr\":{\"1\":{\"all\":{\"tput\":1,\"delay\":2,\"loss\":0}}}}",
    ];
    let mut seeds: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    seeds.push(capture());
    seeds
}
