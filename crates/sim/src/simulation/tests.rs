use proptest::prelude::*;

use pathcast_scenario::DATAGRAM_BYTES;
use pathcast_trace::{Mode, PacketEvent, PacketRecord, Record};

use super::*;
use crate::sampler::Sampler;
use crate::wire::{MSS_BYTES, MTU_BYTES};

fn simulation(path: &str, schemes: &[Scheme], duration_s: f64, seed: u64) -> Simulation {
    let path = Path::parse(path, "test.toml").unwrap();
    Simulation::bulk(path, schemes, Span::from_secs(duration_s), seed)
}

fn scenario(text: &str, duration_s: f64, seed: u64) -> Simulation {
    Simulation {
        scenario: Scenario::parse(text, "test.toml").unwrap(),
        duration: Span::from_secs(duration_s),
        seed,
    }
}

fn run(spec: &Simulation) -> Outcome {
    spec.run(&mut |_| ControlFlow::Continue(())).unwrap()
}

/// What is wrong with the counts of `spec`'s run, if anything is. A run in which nothing arrives
/// is none.
fn conserves(spec: &Simulation) -> Option<String> {
    let network = OnePath::new(&spec.scenario.links[0].path, spec.seed);
    let asking = asking_flows(&spec.scenario);
    let routed = Routed::new(&spec.scenario, spec.seed, &asking);
    let one_path = spec.scenario.as_bulk().map(|_| counts(spec, network));
    let routed = counts(spec, routed);
    match one_path
        .transpose()
        .and_then(|counts| Ok((counts, routed?)))
    {
        Err(wrong) => Some(wrong),
        Ok((Some(one_path), routed)) if one_path != routed => {
            Some(format!("one path {one_path:?}, routed {routed:?}"))
        }
        Ok(_) => None,
    }
}

/// The counts of `spec`'s run over `network`, if they fit together.
fn counts<N: Network>(spec: &Simulation, network: N) -> Result<Counters, String> {
    let (mut nothing, schemes) = (NoRecorder, spec.schemes().unwrap());
    let world = World::new(&spec.scenario, &schemes, spec.seed, network, &mut nothing);
    let mut world = world.map_err(|error| error.to_string())?;
    let end = Time::ZERO + spec.duration;
    world
        .run(end, Until::Done, &mut |_| ControlFlow::Continue(()))
        .map_err(|error| error.to_string())?;
    let c = world.network.counters();
    for (number, connection) in world.connections.iter().enumerate() {
        let (una, next) = connection.sender.una_and_next();
        let delivered = connection.receiver.delivered();
        if !(una <= delivered && delivered <= next) {
            return Err(format!("connection {number}: {una}, {delivered}, {next}"));
        }
    }
    // when the hosts fall silent, what is in transit arrives or is dropped
    let network = &mut world.network;
    loop {
        let now = network.next_data().min(network.next_ack());
        if now == Time::MAX {
            break;
        }
        network.take_data(now);
        network.take_ack(now);
        while network.take_dropped().is_some() {}
    }
    if network.in_flight() != 0 {
        return Err(format!("not conserved: {:?}", network.counters()));
    }
    Ok(c)
}

/// Keeps everything.
#[derive(Default)]
struct Log {
    acks: Vec<Record>,
    packets: Vec<PacketRecord>,
}

impl Recorder for Log {
    const ACKS: bool = true;
    const PACKETS: bool = true;
    fn ack(&mut self, record: Record) {
        self.acks.push(record);
    }
    fn packet(&mut self, record: PacketRecord) {
        self.packets.push(record);
    }
}

/// Mean goodput over seeds 1 to 5, in bits a second.
fn mean_goodput(path: &str, scheme: &str, duration_s: f64) -> f64 {
    (1..=5)
        .map(|seed| simulation(path, &[Scheme::named(scheme)], duration_s, seed))
        .map(|spec| run(&spec).flows[0].goodput_bps)
        .sum::<f64>()
        / 5.0
}

#[test]
fn records_tell_what_the_controller_believes() {
    let path = "rate = '20 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n";
    let log = |scheme| {
        let mut log = Log::default();
        simulation(path, &[scheme], 15.0, 1)
            .run_recorded(&mut |_| ControlFlow::Continue(()), &mut log)
            .unwrap();
        log.acks
    };
    for scheme in [Scheme::named("bbr"), Scheme::named("bbr3")] {
        let acks = log(scheme.clone());
        let modes: Vec<Mode> = acks.iter().filter_map(|ack| ack.mode).collect();
        assert_eq!((modes.len(), modes[0]), (acks.len(), Mode::SlowStart));
        for mode in [Mode::Drain, Mode::Up, Mode::Down, Mode::Cruise] {
            assert!(modes.contains(&mode), "{scheme} {mode:?}");
        }
        let last = acks.last().unwrap();
        let payload_bps = 20e6 * 1448.0 / 1500.0;
        assert!(
            (last.bandwidth_bps.unwrap() / payload_bps - 1.0).abs() < 0.05,
            "{last:?}"
        );
        assert!(
            (0.0406..0.042).contains(&last.min_rtt_s.unwrap()),
            "{last:?}"
        );
        assert!(last.pacing_bps.is_some() && last.delivery_bps.is_some());
    }
    let acks = log(Scheme::named("reno"));
    let last = acks.last().unwrap();
    assert_eq!(
        (last.mode, last.bandwidth_bps),
        (Some(Mode::Avoidance), None)
    );
    assert_eq!(
        (last.pacing_bps, acks[0].mode),
        (None, Some(Mode::SlowStart))
    );
}

/// What `docs/explanation/simulator.md` promises of every machine: a run that needs logarithms, powers and cube roots.
/// The number changes whenever the simulator's behavior does, and never with the machine.
#[test]
fn the_same_seed_gives_the_same_run_on_every_machine() {
    let path = "rate = { kind = 'poisson', rate = '12 Mbit/s' }\nqueue = { kind = 'red' }\nloss = 0.001\n\
        delay = { kind = 'jitter', base = '20 ms', jitter = '1 ms', distribution = 'exponential' }\n";
    let schemes = [
        Scheme::named("cubic"),
        Scheme::named("bbr"),
        Scheme::named("vivace"),
    ];
    let mut log = Log::default();
    simulation(path, &schemes, 20.0, 1)
        .run_recorded(&mut |_| ControlFlow::Continue(()), &mut log)
        .unwrap();
    // FNV-1a
    let digest = (log.acks.iter())
        .flat_map(|ack| [ack.time_s.to_bits(), ack.cwnd_packets.to_bits()])
        .fold(0xcbf2_9ce4_8422_2325_u64, |digest, word| {
            (digest ^ word).wrapping_mul(0x0100_0000_01b3)
        });
    assert_eq!(
        (log.acks.len(), digest),
        (12_152, 7_397_587_218_714_117_693)
    );
}

#[test]
fn a_flow_fills_a_link_with_a_queue_of_one_bdp() {
    for scheme in [Scheme::named("reno"), Scheme::named("cubic")] {
        let path = "rate = '100 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\n";
        let outcome = run(&simulation(path, std::slice::from_ref(&scheme), 60.0, 1));
        let ideal = 100e6 * f64::from(MSS_BYTES) / f64::from(MTU_BYTES);
        let share = outcome.flows[0].goodput_bps / ideal;
        assert!((0.98..=1.0).contains(&share), "{scheme}: {share}");
        // drops and retransmissions differ by what is found out only later
        let drops = outcome.data.dropped_by_queue;
        assert!(
            drops.abs_diff(outcome.flows[0].retransmits) <= drops / 20 + 2,
            "{scheme}"
        );
    }
}

#[test]
fn reno_under_random_loss_has_the_rate_of_mathis() {
    // 1.31 MSS / (R sqrt(p)) for independent loss and an ACK a packet (Mathis 1997), here with
    // an ACK for two packets but growth by bytes, so the same
    for p in [1e-3, 1e-4] {
        let path = format!("delay = '50 ms'\nloss = {p}\n");
        let goodput = mean_goodput(&path, "reno", 600.0);
        let mathis = 1.31 * f64::from(MSS_BYTES) * 8.0 / (0.1 * f64::sqrt(p));
        assert!(
            (goodput / mathis - 1.0).abs() < 0.1,
            "{p}: {}",
            goodput / mathis
        );
    }
}

#[test]
fn reno_under_periodic_loss_has_the_window_of_the_fluid_model() {
    for every in [10_000, 40_000] {
        let path = format!("delay = '50 ms'\nloss = {{ kind = 'periodic', every = {every} }}\n");
        let sent = |duration_s| {
            let outcome = run(&simulation(&path, &[Scheme::named("reno")], duration_s, 1));
            outcome.data.delivered as f64
        };
        // without the first minutes, which slow start shapes
        let window = (sent(2000.0) - sent(200.0)) / 1800.0 * 0.1;
        let fluid = (1.5 * f64::from(every)).sqrt(); // Mathis 1997
        assert!(
            (window / fluid - 1.0).abs() < 0.05,
            "{every}: {window} {fluid}"
        );
    }
}

/// Keeps the height and time of each peak of the window.
#[derive(Default)]
struct Peaks {
    highest: f64,
    peaks: Vec<(f64, f64)>,
}

impl Recorder for Peaks {
    const ACKS: bool = true;
    const PACKETS: bool = false;
    fn ack(&mut self, record: Record) {
        self.highest = self.highest.max(record.cwnd_packets);
        if record.cwnd_packets < 0.8 * self.highest {
            self.peaks.push((record.time_s, self.highest));
            self.highest = record.cwnd_packets;
        }
    }
    fn packet(&mut self, _: PacketRecord) {}
}

#[test]
fn cubic_under_periodic_loss_follows_the_fluid_model() {
    let (rtt_s, every) = (0.2, 20_000.0);
    let path = format!("delay = '100 ms'\nloss = {{ kind = 'periodic', every = {every} }}\n");
    let spec = simulation(&path, &[Scheme::named("cubic-rfc9438")], 900.0, 1);
    let mut simulated = Peaks::default();
    spec.run_recorded(&mut |_| ControlFlow::Continue(()), &mut simulated)
        .unwrap();
    let peaks = &simulated.peaks[10..];
    // RFC 9438, Eq. 1 and 2: W(t) = C (t - K)^3 + Wmax, from 0.7 Wmax on; a cycle is the time in which
    // 1 / p packets are sent, the first round trip of it in recovery; the window aims at what is due a
    // round trip later (section 4.2). Convergence is slow: near K the window hardly moves.
    let (c, beta) = (0.4, 0.7);
    let (first_s, mut w_max) = peaks[0];
    let (mut now_s, mut least, mut most) = (first_s, f64::MAX, 0.0f64);
    for &(at_s, height) in &peaks[1..] {
        let k = libm::cbrt(w_max * (1.0 - beta) / c);
        let step_s = 0.001;
        let (mut t, mut sent, mut window) = (0.0, beta * w_max, beta * w_max);
        while sent < every {
            window = c * libm::pow(t + rtt_s - k, 3.0) + w_max;
            sent += window * step_s / rtt_s;
            t += step_s;
        }
        now_s += t + rtt_s;
        window = window.floor(); // there are no parts of packets, which slows the convergence
        // on the way down from slow start a packet decides whether fast convergence sets in
        if at_s > first_s + 60.0 {
            let ratio = window / height;
            (least, most) = (least.min(ratio), most.max(ratio));
        }
        // fast convergence, RFC 9438, section 4.7
        w_max = if window < w_max {
            window * (1.0 + beta) / 2.0
        } else {
            window
        };
        if at_s > first_s + 600.0 {
            let took = (now_s - first_s) / (at_s - first_s);
            assert!((took - 1.0).abs() < 0.02, "time: {took}");
            break;
        }
    }
    assert!(least > 0.95 && most < 1.05, "windows: {least} to {most}");
}

#[test]
fn reno_saws_between_one_and_two_bdp_in_a_queue_of_one() {
    // windows from W/2 to W grow by a packet a round trip: 3/8 W^2 packets a cycle and W/2 in the round
    // trip of recovery. The first drop is missed a round trip later. In every second cycle one more is
    // sent until then than fits, as by Linux 6.18: of 24 cycles 11 had one drop, 13 had two. W is twice
    // the BDP B and those, and each window w lasts w / rate, so the queue's mean is the integral of
    // (w - B) w over that of w: 5/9 B
    let path = "rate = '12 Mbit/s'\ndelay = '30 ms'\nqueue = '60 packets'\n";
    let run_for = |duration_s| run(&simulation(path, &[Scheme::named("reno")], duration_s, 1));
    let (short, long) = (run_for(400.0), run_for(2400.0));
    let drops = (long.data.dropped_by_queue - short.data.dropped_by_queue) as f64;
    let packets = (long.data.delivered - short.data.delivered) as f64;
    let bdp: f64 = 61.0; // 60 on the wire at 1 ms each, one on the link
    let top = 2.0 * bdp + 0.5;
    let ratio = packets / (drops / 1.5) / (0.375 * top * top + top / 2.0);
    assert!((0.95..1.05).contains(&ratio), "drops: {ratio}");
    let queueing_ms = long.report(0.0, 0.0).one_way_delay_ms.mean - 31.0;
    let ratio = queueing_ms / (5.0 / 9.0 * bdp);
    assert!((0.95..1.05).contains(&ratio), "queueing: {ratio}");
}

#[test]
fn poisson_datagrams_wait_as_in_an_m_d_1_queue() {
    for load in [0.5, 0.8, 0.9] {
        let text = format!(
            "[links.core]\nrate = '12 Mbit/s'\ndelay = '5 ms'\nqueue = 'unlimited'\n[[flows]]\n\
             scheme = 'udp'\nworkload = {{ kind = 'constant-rate', rate = '{} bit/s', \
             portion = '{DATAGRAM_BYTES} B', arrivals = 'poisson' }}\n",
            12e6 * load * f64::from(DATAGRAM_BYTES) / f64::from(MTU_BYTES)
        );
        let outcome = run(&scenario(&text, 2000.0, 1));
        // Pollaczek and Khinchine: rho / (2 (1 - rho)) services of 1 ms
        let waits_ms = load / (2.0 * (1.0 - load));
        let waited_ms = outcome.report(0.0, 0.0).one_way_delay_ms.mean - 6.0;
        assert!(
            (waited_ms / waits_ms - 1.0).abs() < 0.03,
            "{load}: {waited_ms}"
        );
        assert_eq!(outcome.data.dropped(), 0);
    }
}

#[test]
fn equal_flows_share_equally() {
    let path = "rate = '50 Mbit/s'\ndelay = '10 ms'\nqueue = '1 BDP'\n";
    let outcome = run(&simulation(path, &vec![Scheme::named("reno"); 4], 120.0, 3));
    let rates: Vec<f64> = outcome.flows.iter().map(|flow| flow.goodput_bps).collect();
    let jain =
        libm::pow(rates.iter().sum(), 2.0) / (4.0 * rates.iter().map(|r| r * r).sum::<f64>());
    assert!(jain > 0.95, "{jain}: {rates:?}");
    assert!(
        rates.iter().sum::<f64>() > 0.95 * 50e6 * 1448.0 / 1500.0,
        "{rates:?}"
    );
}

#[test]
fn a_run_without_flows_or_time_is_refused() {
    let path = "delay = '10 ms'\n";
    let none = simulation(path, &[], 1.0, 1).run(&mut |_| ControlFlow::Continue(()));
    assert_eq!(none.err(), Some(SimError::NoFlow));
    let now =
        simulation(path, &[Scheme::named("reno")], 0.0, 1).run(&mut |_| ControlFlow::Continue(()));
    assert_eq!(now.err(), Some(SimError::NoTime));
}

#[test]
fn progress_may_stop_the_run() {
    let path = "rate = '1 Gbit/s'\ndelay = '5 ms'\n";
    let spec = simulation(path, &[Scheme::named("cubic")], 60.0, 1);
    let outcome = spec.run(&mut |_| ControlFlow::Break(())).unwrap();
    assert!(outcome.elapsed < Span::from_secs(60.0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn packets_are_conserved_and_runs_repeat(
        rate_mbps in 1..200u32,
        delay_ms in 1..100u32,
        loss in prop_oneof![Just(0.0), 1e-4..0.2f64],
        queue in prop_oneof![Just("1 BDP"), Just("5 packets"), Just("100 packets"), Just("unlimited")],
        schemes in prop::collection::vec(prop::sample::select(Scheme::all()), 1..4),
        seed in any::<u64>(),
    ) {
        // a BDP of 1 Mbit/s and 1 ms is less than a packet, which a path file must not ask for
        prop_assume!(queue != "1 BDP" || rate_mbps * delay_ms > 10);
        let path = format!(
            "rate = '{rate_mbps} Mbit/s'\ndelay = '{delay_ms} ms'\nqueue = '{queue}'\nloss = {loss}\n\
             [reverse]\nloss = {}\n", loss / 2.0
        );
        let spec = simulation(&path, &schemes, 2.0, seed);
        if let Some(wrong) = conserves(&spec) {
            prop_assert!(false, "{wrong}");
        }
        let recorded = || {
            let mut log = Log::default();
            let run_on = &mut |_| ControlFlow::Continue(());
            let outcome = spec.run_recorded(run_on, &mut log);
            outcome.map(|outcome| (outcome.data, log))
        };
        let (Ok((first, log)), Ok((second, again))) = (recorded(), recorded()) else {
            return Ok(()); // nothing arrived, which is an error
        };
        prop_assert_eq!(first, second);
        prop_assert_eq!(&log.acks, &again.acks);
        prop_assert_eq!(&log.packets, &again.packets);
        let count = |event| log.packets.iter().filter(|p| p.event == event).count() as u64;
        prop_assert_eq!(count(PacketEvent::Sent), first.enqueued);
        prop_assert_eq!(count(PacketEvent::Delivered), first.delivered);
        prop_assert_eq!(count(PacketEvent::DroppedByQueue), first.dropped_by_queue);
        prop_assert_eq!(count(PacketEvent::DroppedByLoss), first.dropped_by_loss);
    }
}

const CORE: &str = "[links.core]\nrate = '12 Mbit/s'\ndelay = '20 ms'\nqueue = '2 BDP'\n";

#[test]
fn a_transfer_ends_the_run_when_it_has_arrived() {
    let flow = "[[flows]]\nscheme = 'cubic'\nworkload = { kind = 'transfer', size = '1 MB' }\n";
    let outcome = run(&scenario(&format!("{CORE}{flow}"), 60.0, 1));
    let report = &outcome.flows()[0];
    assert_eq!(
        (report.delivered_bytes, report.workload.as_str()),
        (1_000_000, "transfer")
    );
    // 0.69 s on the link alone, a few round trips of slow start before it is full
    let took_s = report.completed_s.unwrap();
    assert!((0.75..1.1).contains(&took_s), "{took_s}");
    assert_eq!(outcome.elapsed.as_secs(), took_s);
    let messages = report.messages.unwrap();
    assert_eq!((messages.written, messages.delivered), (1, 1));
    assert!((messages.latency_ms.p50 / (took_s * 1e3) - 1.0).abs() < 0.02);
    assert!((report.goodput_bps * took_s / 8e6 - 1.0).abs() < 1e-9);
}

#[test]
fn probes_and_calls_have_the_rate_that_they_are_given() {
    for scheme in ["udp", "reno"] {
        let text = format!(
            "{CORE}[[flows]]\nscheme = '{scheme}'\nworkload = {{ kind = 'constant-rate', \
             rate = '2 Mbit/s', portion = '500 B' }}\n\
             [[flows]]\nscheme = '{scheme}'\nstart = '10 s'\nworkload = {{ kind = 'on-off', \
             on = {{ kind = 'exponential', mean = '200 ms' }}, \
             off = {{ kind = 'exponential', mean = '600 ms' }}, rate = '2 Mbit/s' }}\n"
        );
        let outcome = run(&scenario(&text, 1010.0, 1));
        let [probe, call] = outcome.flows() else {
            panic!()
        };
        assert!(
            (probe.goodput_bps / 2e6 - 1.0).abs() < 1e-3,
            "{scheme}: {probe:?}"
        );
        assert!(
            (call.goodput_bps / 0.5e6 - 1.0).abs() < 0.1,
            "{scheme}: {call:?}"
        );
        assert_eq!((call.start_s, call.completed_s), (10.0, None));
        let latency = probe.messages.unwrap().latency_ms;
        assert!((20.0..25.0).contains(&latency.p50), "{scheme}: {latency:?}");
    }
}

#[test]
fn a_recorded_call_is_replayed_and_ends() {
    let text = format!(
        "{CORE}[[flows]]\nscheme = 'udp'\nworkload = {{ kind = 'replay', \
         writes = [['0 s', '3 kB'], ['40 ms', '100 B'], ['80 ms', '1 kB']] }}\n"
    );
    let outcome = run(&scenario(&text, 60.0, 1));
    let report = &outcome.flows()[0];
    assert_eq!((report.delivered_bytes, outcome.data.delivered), (4100, 5));
    let done_s = report.completed_s.unwrap();
    assert!((done_s - 0.1007).abs() < 1e-3, "{done_s}");
}

#[test]
fn an_answer_takes_a_round_trip_and_its_time_on_the_link() {
    let text = format!(
        "{CORE}[[flows]]\nscheme = 'cubic'\nworkload = {{ kind = 'request-response', \
         response = '1000 B', think = '100 ms', count = 50 }}\n"
    );
    let outcome = run(&scenario(&text, 60.0, 1));
    let messages = outcome.flows()[0].messages.unwrap();
    assert_eq!((messages.written, messages.delivered), (50, 50));
    // 452 and 1052 bytes at 12 Mbit/s and 40 ms
    assert!(
        (messages.latency_ms.p50 / 41.003 - 1.0).abs() < 0.01,
        "{messages:?}"
    );
    assert!(
        (outcome.elapsed.as_secs() - 50.0 * 0.141).abs() < 0.2,
        "{:?}",
        outcome.elapsed
    );
}

#[test]
fn transfers_wait_for_each_other_and_slow_down_when_idle() {
    let run_with = |restart: bool| {
        let text = format!(
            "{CORE}[[flows]]\nscheme = 'reno'\nslow_start_after_idle = {restart}\nworkload = \
             {{ kind = 'transfer', size = '60 kB', pause = '2 s', count = 20 }}\n"
        );
        let outcome = run(&scenario(&text, 600.0, 1));
        let messages = outcome.flows()[0].messages.unwrap();
        assert_eq!((messages.written, messages.delivered), (20, 20));
        messages.latency_ms.p50
    };
    let (restarted, kept) = (run_with(true), run_with(false));
    assert!(restarted > kept + 40.0, "{restarted} {kept}"); // a round trip more at least
}

#[test]
fn a_long_route_gets_less_than_each_flow_that_crosses_it() {
    // the parking lot: one flow over all links, one over each
    let text = "[links.a]\nrate = '10 Mbit/s'\ndelay = '5 ms'\nqueue = '50 packets'\n\
                [links.b]\nrate = '10 Mbit/s'\ndelay = '5 ms'\nqueue = '50 packets'\n\
                [links.c]\nrate = '10 Mbit/s'\ndelay = '5 ms'\nqueue = '50 packets'\n\
                [[flows]]\nscheme = 'reno'\n\
                [[flows]]\nscheme = 'reno'\nroute = ['a']\n\
                [[flows]]\nscheme = 'reno'\nroute = ['b']\n\
                [[flows]]\nscheme = 'reno'\nroute = ['c']\n";
    let outcome = run(&scenario(text, 300.0, 1));
    let rates: Vec<f64> = outcome
        .flows()
        .iter()
        .map(|flow| flow.goodput_bps)
        .collect();
    for crossing in &rates[1..] {
        assert!(
            rates[0] < 0.7 * crossing && rates[0] > 0.05 * crossing,
            "{rates:?}"
        );
        let link = (rates[0] + crossing) / (10e6 * f64::from(MSS_BYTES) / f64::from(MTU_BYTES));
        assert!((0.97..=1.0).contains(&link), "{link}: {rates:?}");
    }
}

#[test]
fn own_delays_make_round_trips_longer_and_shares_smaller() {
    // without jitter flows run in step with the queue; in the kernel the far one gets 0.2 to 0.45 of the other
    let text = "[links.core]\nrate = '12 Mbit/s'\nqueue = '2 BDP'\n\
                delay = { kind = 'jitter', base = '20 ms', jitter = '0.1 ms' }\n\
                [[flows]]\nscheme = 'reno'\n[[flows]]\nscheme = 'reno'\ndelay = '60 ms'\n";
    let mut log = Log::default();
    let spec = scenario(text, 300.0, 1);
    let outcome = spec
        .run_recorded(&mut |_| ControlFlow::Continue(()), &mut log)
        .unwrap();
    let [near, far] = outcome.flows() else {
        panic!()
    };
    assert!(far.goodput_bps < 0.6 * near.goodput_bps, "{near:?} {far:?}");
    let least_rtt = |flow| {
        let delays = log.packets.iter().filter(|packet| packet.flow == flow);
        delays
            .filter_map(|packet| packet.one_way_delay_s)
            .fold(f64::MAX, f64::min)
    };
    assert!((least_rtt(0) - 0.021).abs() < 1e-4, "{}", least_rtt(0));
    // the near one's packets may always be in the queue
    let far_s = least_rtt(1);
    assert!((0.0809..0.091).contains(&far_s), "{far_s}");
}

#[test]
fn data_may_go_both_ways() {
    let text = format!(
        "{CORE}[links.core.reverse]\nqueue = '2 BDP'\n[[flows]]\nscheme = 'cubic'\n[[flows]]\n\
         scheme = 'cubic'\ndirection = 'reverse'\n"
    );
    let outcome = run(&scenario(&text, 60.0, 1));
    for flow in outcome.flows() {
        // acknowledgments take their share and come in bursts
        assert!(flow.goodput_bps > 9e6, "{flow:?}");
    }
}

#[test]
fn marks_take_the_place_of_drops_for_flows_that_take_them() {
    let run_with = |ecn: bool| {
        let text = format!(
            "[links.core]\nrate = '20 Mbit/s'\ndelay = '20 ms'\n\
             queue = {{ kind = 'codel', ecn = true }}\n\
             [[flows]]\nscheme = 'cubic'\necn = {ecn}\n"
        );
        run(&scenario(&text, 60.0, 1))
    };
    let (marked, dropped) = (run_with(true), run_with(false));
    assert_eq!(
        (marked.data.dropped(), marked.flows()[0].retransmits),
        (0, 0)
    );
    assert!(marked.data.marked > 20 && dropped.data.dropped() > 20);
    for outcome in [&marked, &dropped] {
        let delay = outcome.report(0.0, 0.0).one_way_delay_ms;
        assert!(delay.p50 < 32.0, "{delay:?}");
        assert!(
            outcome.flows()[0].goodput_bps > 16e6,
            "{:?}",
            outcome.flows()
        );
    }
}

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

#[test]
fn a_run_in_which_nothing_arrives_is_an_error_with_its_state() {
    for (path, words) in [
        (
            "delay = '10 ms'\nloss = { kind = 'bursts', times = [['0 s', '3600 s']] }\n",
            "dropped, 0 under way; flow 0 (cubic, bulk): window of 1 packets, 0 of 11",
        ),
        (
            "delay = '10 ms'\nrate = { kind = 'steps', steps = [['0 s', '0 bit/s'], \
             ['1000 s', '1 Mbit/s']] }\nqueue = '20 packets'\n",
            "the next thing on the path at 1000.012 s",
        ),
    ] {
        let spec = simulation(path, &[Scheme::named("cubic")], 60.0, 1);
        let error = spec
            .run(&mut |_| ControlFlow::Continue(()))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("no progress: nothing that was sent has arrived"),
            "{error}"
        );
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn where_nothing_limits_a_window_tcp_itself_does() {
    let spec = simulation("delay = '500 ms'\n", &[Scheme::named("reno")], 24.0, 1);
    let outcome = run(&spec);
    let rounds = (0..24).map(|round| (10 << round).min(pathcast_tcp::MAX_WINDOW_PACKETS));
    let packets = rounds.sum::<u64>() as f64;
    let ratio = outcome.data().delivered as f64 / packets;
    assert!((0.99..=1.0).contains(&ratio), "{ratio}");
}

#[test]
fn flows_of_one_scheme_draw_apart() {
    let path = "rate = '40 Mbit/s'\ndelay = '20 ms'\nqueue = '2 BDP'\n";
    let mut log = Log::default();
    let spec = simulation(path, &vec![Scheme::named("bbr"); 2], 20.0, 1);
    spec.run_recorded(&mut |_| ControlFlow::Continue(()), &mut log)
        .unwrap();
    let windows = |flow| {
        let records = log.acks.iter().filter(move |record| record.flow == flow);
        records
            .map(|record| record.cwnd_packets)
            .collect::<Vec<_>>()
    };
    assert_ne!(windows(0), windows(1));
}

fn any_workload() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "'bulk'",
        "{ kind = 'transfer', size = '300 kB' }",
        "{ kind = 'transfer', size = { kind = 'pareto', mean = '20 kB' }, pause = '50 ms' }",
        "{ kind = 'on-off', on = '300 ms', off = '200 ms' }",
        "{ kind = 'on-off', on = { kind = 'exponential', mean = '90 ms' }, off = '70 ms', \
         rate = '3 Mbit/s' }",
        "{ kind = 'constant-rate', rate = '1 Mbit/s', portion = '4 kB', arrivals = 'poisson' }",
        "{ kind = 'replay', writes = [['0 s', '1 B'], ['30 ms', '20 kB']], repeat = true }",
        "{ kind = 'request-response', response = '30 kB', think = '10 ms' }",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn whatever_runs_over_whatever_links_is_conserved_and_repeats(
        links in prop::collection::vec(
            (1..100u32, 1..50u32, prop::sample::select(vec![
                "'20 packets'", "{ kind = 'codel', ecn = true }", "{ kind = 'fq-codel' }",
                "{ kind = 'red', limit = '90 packets', ecn = true }", "{ kind = 'pie' }",
            ]), prop::sample::select(vec![0.0, 0.01, 0.1])),
            1..4,
        ),
        flows in prop::collection::vec(
            (
                prop::sample::select(Scheme::all()),
                any_workload(),
                (0..7usize, any::<bool>(), any::<bool>(), 0..30u32),
            ),
            1..5,
        ),
        seed in any::<u64>(),
    ) {
        let mut text = String::new();
        for (number, (rate, delay, queue, loss)) in links.iter().enumerate() {
            text += &format!(
                "[links.l{number}]\nrate = '{rate} Mbit/s'\ndelay = '{delay} ms'\n\
                 queue = {queue}\nloss = {loss}\n"
            );
        }
        for (scheme, workload, (first, reverse, ecn, delay)) in &flows {
            let route: Vec<String> =
                (first % links.len()..links.len()).map(|link| format!("'l{link}'")).collect();
            let heading = if *reverse { "reverse" } else { "forward" };
            text += &format!(
                "[[flows]]\nscheme = '{scheme}'\nworkload = {workload}\nroute = [{}]\n\
                 direction = '{heading}'\ndelay = '{delay} ms'\necn = {ecn}\ncount = 2\n",
                route.join(", ")
            );
        }
        let spec = scenario(&text, 2.0, seed);
        let asking = asking_flows(&spec.scenario);
        let routed = || counts(&spec, Routed::new(&spec.scenario, seed, &asking));
        let first = routed();
        prop_assert!(first.is_ok(), "{first:?}\n{text}");
        prop_assert_eq!(first, routed());
    }
}

#[test]
fn a_sampler_knows_where_messages_spend_their_time() {
    let text = |loss: &str, window: &str| {
        format!(
            "[links.a]\nrate = '20 Mbit/s'\ndelay = '20 ms'\n{loss}[[flows]]\nscheme = 'reno'\n{window}\
             workload = {{ kind = 'constant-rate', rate = '5 Mbit/s' }}\n"
        )
    };
    let sample = |text: &str, every| {
        let spec = scenario(text, 30.0, 1);
        let mut sampler = Sampler::new(0, 5.0, every, 0.1, spec.seed);
        spec.run_recorded(&mut |_| ControlFlow::Continue(()), &mut sampler)
            .unwrap();
        sampler
    };
    let all = sample(&text("", ""), 1);
    assert_eq!(all.messages.len() as u64, all.arrived);
    assert_eq!(all.buffered, 0);
    let alone_s = 0.02 + 1500.0 * 8.0 / 20e6;
    for message in &all.messages {
        assert_eq!(message.written_s, message.entered_s);
        assert!((message.left_s - message.sent_s - alone_s).abs() < 1e-6);
        assert_eq!(message.left_s, message.read_s);
    }
    assert!(
        (all.windows.len() as i32 - 250).abs() <= 1,
        "{}",
        all.windows.len()
    );
    let some = sample(&text("", ""), 20).messages.len();
    assert!((all.messages.len() / 20).abs_diff(some) < 20, "{some}");

    // 10 packets a round trip of 40.6 ms and no more: 2.9 of the 5 Mbit/s
    let clamped = sample(&text("", "receive_window = '14480 B'\n"), 1);
    assert_eq!(clamped.buffered, clamped.arrived);
    let last = clamped.messages.last().unwrap();
    assert!(last.sent_s - last.written_s > 5.0, "{last:?}");

    // what is lost is sent again, and what comes after it waits at the far end
    let lossy = sample(&text("loss = 0.01\n", ""), 1);
    let again = lossy.messages.iter().filter(|m| m.sent_s > m.entered_s);
    let lost = again.count() as f64 / lossy.arrived as f64;
    assert!((0.005..0.015).contains(&lost), "{lost}");
    let waited = lossy.messages.iter().filter(|m| m.read_s > m.left_s);
    assert!(waited.count() > lossy.messages.len() / 50);
    for message in &lossy.messages {
        assert!(message.written_s <= message.entered_s && message.entered_s <= message.sent_s);
        assert!(message.sent_s < message.left_s && message.left_s <= message.read_s);
    }
}
