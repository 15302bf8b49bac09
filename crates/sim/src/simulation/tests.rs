use proptest::prelude::*;

use pathcast_trace::{Mode, PacketEvent, PacketRecord, Record};

use super::*;
use crate::sampler::Sampler;
use crate::wire::{MSS_BYTES, MTU_BYTES};

pub(super) fn simulation(path: &str, schemes: &[Scheme], duration_s: f64, seed: u64) -> Simulation {
    let path = Path::parse(path, "test.toml").unwrap();
    Simulation::bulk(path, schemes, Span::from_secs(duration_s), seed)
}

pub(super) fn scenario(text: &str, duration_s: f64, seed: u64) -> Simulation {
    Simulation {
        scenario: Scenario::parse(text, "test.toml").unwrap(),
        duration: Span::from_secs(duration_s),
        seed,
    }
}

pub(super) fn run(spec: &Simulation) -> Outcome {
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
pub(super) struct Log {
    pub(super) acks: Vec<Record>,
    pub(super) packets: Vec<PacketRecord>,
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

pub(super) const CORE: &str =
    "[links.core]\nrate = '12 Mbit/s'\ndelay = '20 ms'\nqueue = '2 BDP'\n";

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
