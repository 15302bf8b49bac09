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

/// As iproute2 6.1 prints it (`ss -tinemoOp`): everything on one line.
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

/// The output of `ss -ti | grep cwnd` with a time at the end of each line, twice in a sample.
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
