//! Windows, packet sizes, and how connections open and end.

use pathcast_trace::{PacketEvent, Record};

use super::tests::{CORE, Log, run, scenario};
use super::*;

#[test]
fn the_receive_window_and_the_first_window_are_kept() {
    let text = format!(
        "{CORE}[[flows]]\nscheme = 'cubic'\nreceive_window = '14480 B'\n[[flows]]\n\
         scheme = 'cubic'\ninitial_window = 2\nworkload = {{ kind = 'transfer', size = '1448 B' }}\n"
    );
    let outcome = run(&scenario(&text, 30.0, 1));
    // ten packets a round trip of 40 ms and the last one's time on the link
    let rate = outcome.flows()[0].goodput_bps * 0.041 / (10.0 * 1448.0 * 8.0);
    assert!((0.97..=1.0).contains(&rate), "{rate}");
}

#[test]
fn a_window_that_grows_ends_as_large_as_the_buffer_lets_it() {
    // 160 of 256 parts of a buffer of 1 MB, of which a packet of 2304 B has not been read when it is acknowledged, in
    // whole units of 128 B: 623,616 B, which are 430 packets
    let text = |workload: &str, handshake: bool| {
        format!(
            "[links.far]\nrate = '100 Mbit/s'\ndelay = '100 ms'\n[[flows]]\nscheme = 'cubic'\n\
             receive_window = {{ kind = 'auto', buffer = '1 MB' }}\nhandshake = {handshake}\n\
             workload = {workload}\n"
        )
    };
    for handshake in [false, true] {
        let mut records: Vec<Record> = Vec::new();
        scenario(&text("'bulk'", handshake), 60.0, 1)
            .run_recorded(&mut |_| ControlFlow::Continue(()), &mut records)
            .unwrap();
        let window = |record: &Record| record.rwnd_bytes.unwrap() / 1448;
        // three packets came before their acknowledgment is back: the window opens by two for each
        assert!((45..=50).contains(&window(&records[0])), "{:?}", records[0]);
        let last = &records[records.len() - 1];
        assert!((429..=431).contains(&window(last)), "{last:?}");
        let late: Vec<&Record> = records.iter().filter(|at| at.time_s > 10.0).collect();
        let sent = late[late.len() - 1].snd_una_bytes.unwrap() - late[0].snd_una_bytes.unwrap();
        let span_s = late[late.len() - 1].time_s - late[0].time_s;
        let share = sent as f64 / span_s * 0.2 / (430.0 * 1448.0);
        // the packets take 24 us a piece on the link besides
        assert!((0.98..1.0).contains(&share), "{share}");
        // packets shorter than the largest take as much memory: less of the buffer is payload
        let small = text("'bulk'", handshake) + "mss = '536 B'\n";
        let mut records: Vec<Record> = Vec::new();
        scenario(&small, 20.0, 1)
            .run_recorded(&mut |_| ControlFlow::Continue(()), &mut records)
            .unwrap();
        let window = records[records.len() - 1].rwnd_bytes.unwrap();
        assert!(
            (228_000..231_000).contains(&window),
            "{window}, 59 of 256 parts"
        );
    }
}

#[test]
fn packets_are_as_large_as_the_mss_lets_them_be() {
    let text = |workload: &str| {
        format!(
            "[links.core]\nrate = '10 Mbit/s'\ndelay = '10 ms'\nqueue = '1 BDP'\n\
             [[flows]]\nscheme = 'cubic'\nmss = '536 B'\nworkload = {workload}\n"
        )
    };
    let outcome = run(&scenario(&text("'bulk'"), 60.0, 1));
    let ideal = 10e6 * 536.0 / 588.0;
    let share = outcome.flows()[0].goodput_bps / ideal;
    assert!((0.98..=1.0).contains(&share), "{share}");
    let transfer = text("{ kind = 'transfer', size = '5400 B' }");
    let mut log = Log::default();
    scenario(&transfer, 60.0, 1)
        .run_recorded(&mut |_| ControlFlow::Continue(()), &mut log)
        .unwrap();
    let sent = log
        .packets
        .iter()
        .filter(|packet| packet.event == PacketEvent::Sent);
    let sizes: Vec<u32> = sent.map(|packet| packet.size_bytes).collect();
    assert_eq!(sizes, [vec![588; 10], vec![52 + 40]].concat());
    assert_eq!(log.acks.last().unwrap().snd_una_bytes, Some(10 * 536));
}

/// The outcome of one flow with `workload`, over 20 Mbit/s and 40 ms, whose connection opens with the flow or
/// is open before; `more` is of the path.
fn opened(workload: &str, handshake: bool, more: &str) -> Outcome {
    run(&scenario(
        &format!(
            "[links.core]\nrate = '20 Mbit/s'\ndelay = '20 ms'\n{more}\n\
             [[flows]]\nscheme = 'cubic'\nhandshake = {handshake}\nworkload = {workload}\n"
        ),
        60.0,
        1,
    ))
}

#[test]
fn a_handshake_takes_a_round_trip_and_a_lost_syn_a_second() {
    let transfer = "{ kind = 'transfer', size = '100 kB' }";
    let took_s = |handshake, more: &str| {
        let outcome = opened(transfer, handshake, more);
        outcome.flows()[0].completed_s.unwrap()
    };
    let open_s = took_s(false, "");
    // 60 bytes each way and the acknowledgment of 52 before the data, at 20 Mbit/s
    let rtt_s = 0.04 + 8.0 * (60.0 + 60.0 + 52.0) / 20e6;
    let whole_s = took_s(true, "");
    assert!(
        (whole_s - open_s - rtt_s).abs() < 1e-6,
        "{whole_s}, {open_s}"
    );
    let at_first = "loss = { kind = 'bursts', times = [['0 s', '0.9 s']] }";
    let lost_s = took_s(true, at_first);
    assert!((lost_s - whole_s - 1.0).abs() < 1e-6, "{lost_s}, {whole_s}");
    let answer = format!("[links.core.reverse]\n{at_first}");
    let lost_s = took_s(true, &answer);
    assert!((lost_s - whole_s - 1.0).abs() < 1e-3, "{lost_s}, {whole_s}");
    // only the acknowledgment of the SYN/ACK and the first window are lost, which the timeout repairs
    let later = "loss = { kind = 'bursts', times = [['30 ms', '60 ms']] }";
    let lost_s = took_s(true, later);
    assert!(
        (0.2..0.6).contains(&(lost_s - whole_s)),
        "{lost_s}, {whole_s}"
    );
}

#[test]
fn a_connection_ends_with_a_fin_of_its_own_or_on_its_last_data() {
    // SYN, its acknowledgment, two packets and a FIN; 700 packets are more than the first windows
    for (size, packets) in [(2 * 1448, 5), (700 * 1448, 702)] {
        let workload = format!("{{ kind = 'transfer', size = '{size} B' }}");
        let outcome = opened(&workload, true, "");
        assert_eq!(outcome.data().enqueued, packets, "{size}");
        assert_eq!(outcome.flows()[0].delivered_bytes, size);
        assert_eq!(outcome.flows()[0].retransmits, 0);
    }
}

#[test]
fn who_asks_opens_the_connection() {
    let workload = "{ kind = 'request-response', response = '10 kB', count = 1 }";
    let latency_ms = |handshake| {
        let outcome = opened(workload, handshake, "");
        let messages = outcome.flows()[0].messages.unwrap();
        assert_eq!((messages.written, messages.delivered), (1, 1));
        messages.latency_ms.mean
    };
    let rtt_ms = 40.0 + 8.0 * (60.0 + 60.0 + 52.0) / 20e3;
    let more_ms = latency_ms(true) - latency_ms(false);
    assert!(
        (more_ms - rtt_ms).abs() < 0.01 * rtt_ms,
        "{more_ms}, {rtt_ms}"
    );
}
