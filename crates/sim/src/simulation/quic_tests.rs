//! Flows over QUIC.

use pathcast_trace::{Direction, MessageRecord, PacketEvent, PacketRecord, Record};

use super::*;
use crate::recorder::Recorder;

/// 20 Mbit/s, of which payload is at most 1442 / 1500; a queue of one BDP.
const LINK: &str = "rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n";
const MOST_BPS: f64 = 20e6 * 1442.0 / 1500.0;

/// Keeps all events.
#[derive(Default)]
struct All {
    acks: Vec<Record>,
    packets: Vec<PacketRecord>,
    messages: Vec<MessageRecord>,
}

impl Recorder for All {
    const ACKS: bool = true;
    const PACKETS: bool = true;
    const MESSAGES: bool = true;
    fn ack(&mut self, record: Record) {
        self.acks.push(record);
    }
    fn packet(&mut self, record: PacketRecord) {
        self.packets.push(record);
    }
    fn message(&mut self, record: MessageRecord) {
        self.messages.push(record);
    }
}

fn over_path(path: &str, schemes: &[&str], workload: &str, duration_s: f64) -> Simulation {
    let path = Path::parse(path, "test.toml").unwrap();
    let mut scenario = Scenario::bulk(path, schemes.iter().copied());
    if !workload.is_empty() {
        scenario.set_workload(workload).unwrap();
    }
    Simulation {
        scenario,
        duration: Span::from_secs(duration_s),
        seed: 1,
    }
}

fn run(simulation: &Simulation) -> (Outcome, All) {
    let mut all = All::default();
    let outcome = simulation.run_recorded(&mut |_| ControlFlow::Continue(()), &mut all);
    (outcome.unwrap(), all)
}

#[test]
fn each_controller_fills_a_link() {
    // BBR of noq leaves a tenth, in the emulator too
    for (scheme, least) in [
        ("quic-cubic", 0.98),
        ("quic-reno", 0.96),
        ("quic-bbr3", 0.85),
    ] {
        let (outcome, all) = run(&over_path(LINK, &[scheme], "", 10.0));
        let flow = &outcome.flows()[0];
        assert_eq!(flow.scheme, scheme);
        let share = flow.goodput_bps / MOST_BPS;
        assert!((least..1.0).contains(&share), "{scheme}: {share}");
        assert_eq!(flow.retransmits > 0, outcome.data().dropped() > 0);
        assert_eq!(flow.workload, "bulk");
        // the handshake has measured the empty path: 40 ms and what datagrams take on the link
        let first = &all.acks[0];
        assert_eq!((first.time_s, first.snd_nxt_bytes), (0.0, Some(0)));
        let srtt_s = first.srtt_s.unwrap();
        assert!((0.040..0.042).contains(&srtt_s), "{srtt_s}");
        let last = all.acks.last().unwrap();
        assert!(last.snd_una_bytes.unwrap().abs_diff(flow.delivered_bytes) < 1_000_000);
        assert!(all.acks.iter().all(|row| row.cwnd_packets >= 2.0));
        let full = all.packets.iter().filter(|row| row.size_bytes == 1500);
        assert!(full.count() as f64 > 0.9 * all.packets.len() as f64);
        assert!(all.packets.iter().all(|row| row.size_bytes <= 1500));
    }
}

#[test]
fn a_transfer_takes_its_time_on_the_link_and_a_delay() {
    // 10 packets together, then twice as many each round trip: 1, 2, 4 ... of 40 ms, and 0.4 s on the link
    let workload = "{ kind = 'transfer', size = '1 MB' }";
    for scheme in ["quic-cubic", "quic-reno"] {
        let path = LINK.replace("1 BDP", "2000 packets");
        let (outcome, all) = run(&over_path(&path, &[scheme], workload, 20.0));
        let flow = &outcome.flows()[0];
        assert_eq!((flow.delivered_bytes, flow.retransmits), (1_000_000, 0));
        let took_s = flow.completed_s.unwrap();
        // windows of 10, 20, 40 packets leave the link idle for the rest of their round trips
        let idle_s = [10.0, 20.0, 40.0].map(|packets| 0.041 - packets * 12e3 / 20e6);
        let expected_s = 8e6 / MOST_BPS + 0.020 + idle_s.iter().sum::<f64>();
        let off = took_s / expected_s - 1.0;
        assert!(off.abs() < 0.05, "{scheme}: {took_s} s, {expected_s} s");
        assert_eq!(outcome.elapsed, Span::from_secs(took_s));
        let [message] = &all.messages[..] else {
            panic!("{:?}", all.messages)
        };
        assert_eq!((message.bytes, message.written_s), (1_000_000, 0.0));
        for at_s in [message.left_s, message.read_s] {
            assert!((at_s - took_s).abs() < 1e-9);
        }
        let reports = flow.messages.as_ref().unwrap();
        assert_eq!((reports.written, reports.delivered), (1, 1));
    }
}

/// The results of one flow over an empty link of 1 Gbit/s and 20 ms, with further keys.
fn over_a_fast_link(workload: &str, more: &str) -> (Outcome, All) {
    let text = format!(
        "[links.l]\nrate = '1 Gbit/s'\ndelay = '20 ms'\n[[flows]]\nscheme = 'quic-cubic'\n\
         workload = {workload}\n{more}"
    );
    run(&Simulation {
        scenario: Scenario::parse(&text, "test.toml").unwrap(),
        duration: Span::from_secs(2.0),
        seed: 1,
    })
}

const SHORT: &str = "{ kind = 'transfer', size = '55 kB' }";

#[test]
fn a_first_window_is_what_the_flow_says() {
    let took_s = |more| {
        over_a_fast_link(SHORT, more).0.flows()[0]
            .completed_s
            .unwrap()
    };
    // 38 datagrams: windows of 10, 20 and 40, or one, which is paced over less than a round trip
    let (usual_s, large_s) = (took_s(""), took_s("initial_window = 40\n"));
    assert!((0.095..0.125).contains(&usual_s), "{usual_s}");
    assert!((0.020..0.060).contains(&large_s), "{large_s}");
}

#[test]
fn a_connection_that_opens_over_the_links_takes_a_round_trip_more() {
    let asking = "{ kind = 'request-response', response = '2 kB', count = 3 }";
    for workload in [SHORT, asking] {
        let last_s = |more| {
            let (_, all) = over_a_fast_link(workload, more);
            all.messages.last().unwrap().read_s
        };
        let more_s = last_s("handshake = true\n") - last_s("");
        assert!((0.035..0.055).contains(&more_s), "{workload}: {more_s}");
    }
    let (_, all) = over_a_fast_link(SHORT, "handshake = true\n");
    // it knows no round-trip time before it has one
    assert!(all.acks[0].time_s >= 0.040, "{}", all.acks[0].time_s);
}

#[test]
fn a_connection_opens_over_links_that_lose() {
    let text = "[links.l]\nrate = '20 Mbit/s'\ndelay = '20 ms'\nloss = 0.2\n[links.l.reverse]\nloss = 0.2\n\
        [[flows]]\nscheme = 'quic-reno'\ncount = 20\nhandshake = true\n\
        workload = { kind = 'transfer', size = '20 kB' }\n";
    let (outcome, _) = run(&Simulation {
        scenario: Scenario::parse(text, "test.toml").unwrap(),
        duration: Span::from_secs(60.0),
        seed: 1,
    });
    for flow in outcome.flows() {
        assert_eq!(flow.delivered_bytes, 20_000);
    }
}

#[test]
fn datagrams_grow_while_larger_ones_arrive() {
    let sizes = |more| -> Vec<u32> {
        let (_, all) = over_a_fast_link("{ kind = 'transfer', size = '3 MB' }", more);
        let sent = all.packets.iter();
        sent.filter(|row| row.event == PacketEvent::Sent && row.direction == Direction::Data)
            .map(|row| row.size_bytes)
            .collect()
    };
    let most = |sizes: &[u32]| sizes.iter().copied().max().unwrap();
    let (fixed, found) = (sizes(""), sizes("mtu_discovery = true\n"));
    assert_eq!(most(&fixed[..10]), 1500);
    // UDP payloads of 1200 bytes at first, of 1452 in the end
    assert_eq!(found[0], 1228);
    assert_eq!(most(&found), 1480);
    let full = found.iter().filter(|size| **size == 1480).count();
    assert!(
        full as f64 > 0.7 * found.len() as f64,
        "{full} of {}",
        found.len()
    );
}

#[test]
fn losses_are_repaired_and_counted() {
    for scheme in ["quic-cubic", "quic-reno", "quic-bbr3"] {
        let path = format!("{LINK}loss = 0.01\n[reverse]\nloss = 0.01\n");
        let workload = "{ kind = 'transfer', size = '5 MB' }";
        let (outcome, all) = run(&over_path(&path, &[scheme], workload, 120.0));
        let flow = &outcome.flows()[0];
        assert_eq!(flow.delivered_bytes, 5_000_000);
        assert!(flow.completed_s.is_some());
        let dropped = outcome.data().dropped();
        assert!((10..=70).contains(&outcome.data().dropped_by_loss));
        // what is lost is sent again; probes for a lost tail and reordered acknowledgments add a few
        assert!(
            flow.retransmits.abs_diff(dropped) <= 10 + dropped / 4,
            "{scheme}: {} of {dropped}",
            flow.retransmits
        );
        let of = |event| all.packets.iter().filter(|row| row.event == event).count() as u64;
        assert_eq!(
            of(PacketEvent::DroppedByLoss),
            outcome.data().dropped_by_loss
        );
        assert_eq!(of(PacketEvent::Sent), outcome.data().enqueued);
    }
}

#[test]
fn an_answer_takes_a_round_trip_and_its_time_on_the_link() {
    let workload = "{ kind = 'request-response', request = '100 B', response = '1200 B', think = '10 ms', count = 20 }";
    let (outcome, all) = run(&over_path(LINK, &["quic-cubic"], workload, 20.0));
    let flow = &outcome.flows()[0];
    let messages = flow.messages.as_ref().unwrap();
    assert_eq!((messages.written, messages.delivered), (20, 20));
    assert_eq!(flow.delivered_bytes, 20 * 1200);
    let mean_ms = messages.latency_ms.mean;
    assert!((40.0..41.5).contains(&mean_ms), "{mean_ms}");
    let requests = all
        .messages
        .iter()
        .filter(|m| m.direction == Direction::Back);
    assert_eq!((requests.count(), all.messages.len()), (20, 40));
    for message in &all.messages {
        let times = [
            message.written_s,
            message.entered_s,
            message.sent_s,
            message.left_s,
            message.read_s,
        ];
        assert!(times.is_sorted() && times[4] < 20.0, "{times:?}");
    }
}

#[test]
fn all_workloads_run_and_end() {
    for (workload, bytes) in [
        (
            "{ kind = 'transfer', size = '20 kB', pause = '1 s', count = 3 }",
            60_000,
        ),
        (
            "{ kind = 'constant-rate', rate = '1 Mbit/s', portion = '1250 B', count = 200 }",
            250_000,
        ),
        (
            "{ kind = 'request-response', request = '2 kB', response = '30 kB', count = 5 }",
            150_000,
        ),
        (
            "{ kind = 'replay', writes = [['0 s', '3 kB'], ['40 ms', '500 B'], ['3 s', '9 kB']] }",
            12_500,
        ),
    ] {
        for scheme in ["quic-cubic", "quic-reno", "quic-bbr3"] {
            let path = format!("{LINK}loss = 0.02\n");
            let (outcome, _) = run(&over_path(&path, &[scheme], workload, 60.0));
            let flow = &outcome.flows()[0];
            assert_eq!(flow.delivered_bytes, bytes, "{scheme}, {workload}");
            assert!(flow.completed_s.is_some() && outcome.elapsed < Span::from_secs(60.0));
        }
    }
}

#[test]
fn what_an_on_off_flow_wrote_before_it_stops_still_goes() {
    let workload = "{ kind = 'on-off', on = '1 s', off = '1 s' }";
    let mut simulation = over_path(LINK, &["quic-cubic"], workload, 60.0);
    simulation.scenario.flows[0].stop = Some(Span::from_secs(5.0));
    let (outcome, _) = run(&simulation);
    let flow = &outcome.flows()[0];
    let completed_s = flow.completed_s.unwrap();
    // the window, 128 kB unsent and the queue
    assert!((5.02..5.3).contains(&completed_s), "{completed_s}");
    assert!(flow.delivered_bytes > 5_000_000 && flow.messages.is_none());
    let mut bulk = over_path(LINK, &["quic-reno"], "", 60.0);
    bulk.scenario.flows[0].stop = Some(Span::from_secs(2.0));
    let (outcome, _) = run(&bulk);
    assert!(outcome.flows()[0].completed_s.unwrap() < 2.5);
}

#[test]
fn flows_over_quic_and_tcp_share_a_link() {
    let simulation = over_path(LINK, &["quic-cubic", "quic-cubic", "cubic"], "", 30.0);
    let (outcome, _) = run(&simulation);
    let rates: Vec<f64> = outcome
        .flows()
        .iter()
        .map(|flow| flow.goodput_bps)
        .collect();
    let total = rates.iter().sum::<f64>() / MOST_BPS;
    assert!((0.97..1.01).contains(&total), "{rates:?}");
    assert!(
        rates.iter().all(|rate| *rate > 0.15 * MOST_BPS),
        "{rates:?}"
    );
    assert_eq!(simulation.metadata().mss_bytes, None); // theirs differ
}

#[test]
fn data_may_go_both_ways_over_several_links() {
    let text = "
[links.a]
rate = '10 Mbit/s'
delay = '5 ms'
queue = '1 BDP'
[links.b]
rate = '10 Mbit/s'
delay = '15 ms'
queue = '2 BDP'
[[flows]]
scheme = 'quic-cubic'
route = ['a', 'b']
workload = { kind = 'transfer', size = '1 MB' }
[[flows]]
scheme = 'quic-reno'
route = ['a', 'b']
direction = 'reverse'
delay = '10 ms'
workload = { kind = 'transfer', size = '1 MB' }
";
    let simulation = Simulation {
        scenario: Scenario::parse(text, "test.toml").unwrap(),
        duration: Span::from_secs(30.0),
        seed: 1,
    };
    let (outcome, all) = run(&simulation);
    for flow in outcome.flows() {
        assert_eq!(flow.delivered_bytes, 1_000_000);
        assert!(flow.completed_s.unwrap() < 2.0);
    }
    let srtt_s = |flow| all.acks.iter().find(|row| row.flow == flow).unwrap().srtt_s;
    assert!(
        (0.040..0.046).contains(&srtt_s(0).unwrap()),
        "{:?}",
        srtt_s(0)
    );
    assert!(
        (0.060..0.066).contains(&srtt_s(1).unwrap()),
        "{:?}",
        srtt_s(1)
    );
    assert_eq!(simulation.metadata().mss_bytes, Some(1442));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let path = format!("{LINK}loss = 0.01\n");
    let simulation = over_path(&path, &["quic-cubic", "quic-reno", "cubic"], "", 5.0);
    let told = |simulation: &Simulation| {
        let (outcome, all) = run(simulation);
        let told = (outcome.report(0.0, 0.0), all.acks, all.packets);
        format!("{told:?}")
    };
    let first = told(&simulation);
    // other connections between, and other threads at the same time
    run(&over_path(LINK, &["quic-cubic", "quic-bbr3"], "", 1.0));
    let others: Vec<String> = std::thread::scope(|scope| {
        let runs = [(); 2].map(|()| scope.spawn(|| told(&simulation)));
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert!(others.iter().all(|other| *other == first));
    let other = Simulation {
        seed: 2,
        ..simulation
    };
    assert!(told(&other) != first);
}

#[test]
fn a_run_in_which_nothing_arrives_says_so() {
    let dead = "delay = '1 ms'\nloss = { kind = 'bursts', times = [['0 s', '99 s']] }\n";
    let simulation = over_path(dead, &["quic-cubic"], "", 5.0);
    let error = simulation
        .run(&mut |_| ControlFlow::Continue(()))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("nothing that was sent has arrived"),
        "{error}"
    );
    assert!(
        error.contains("quic-cubic") && error.contains("window of"),
        "{error}"
    );
}
