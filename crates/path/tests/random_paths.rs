//! Properties of every path, tested with random paths of all elements.

use pathcast_path::{PacketInfo, Path, Span, Time};
use proptest::prelude::*;

fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(texts)
}

/// One direction's keys; whether packets may overtake each other.
fn direction() -> impl Strategy<Value = (String, bool)> {
    let rate = one_of(&[
        "",
        "rate = '10 Mbit/s'",
        "rate = { kind = 'poisson', rate = '10 Mbit/s' }",
        "rate = { kind = 'wandering', rate = '10 Mbit/s', spread = 1.5, correlation = '30 ms' }",
        "rate = { kind = 'mahimahi', opportunities_ms = [0, 1, 1, 2, 5, 9] }",
        "rate = { kind = 'steps', steps = [['0 s', '20 Mbit/s'], ['7 ms', '0 bit/s'], ['12 ms', '3 Mbit/s']], period = '31 ms' }",
    ]);
    let delay = prop_oneof![
        Just(("'5 ms'", false)),
        Just(("{ kind = 'jitter', base = '2 ms', jitter = '4 ms' }", false)),
        Just((
            "{ kind = 'jitter', base = '2 ms', jitter = '4 ms', distribution = 'exponential', reorder = true }",
            true
        )),
    ];
    let loss = one_of(&[
        "0",
        "0.1",
        "{ kind = 'gilbert-elliott', good_to_bad = 0.05, bad_to_good = 0.3 }",
        "{ kind = 'periodic', every = 7 }",
        "{ kind = 'bursts', packets = [[3, 5], [9, 9]], times = [['20 ms', '30 ms']] }",
    ]);
    let queue = prop_oneof![
        Just(("'3 packets'", false)),
        Just(("{ kind = 'droptail', limit = '20 kB' }", false)),
        Just(("{ kind = 'drophead', limit = '5 packets' }", false)),
        Just((
            "{ kind = 'red', limit = '30 packets', weight = 0.5, ecn = true }",
            false
        )),
        Just(("{ kind = 'adaptive-red', limit = '30 packets' }", false)),
        Just((
            "{ kind = 'codel', target = '1 ms', interval = '5 ms' }",
            false
        )),
        Just((
            "{ kind = 'codel', limit = '20 packets', target = '1 ms', interval = '5 ms', ecn = true }",
            false
        )),
        Just((
            "{ kind = 'pie', target = '1 ms', update = '1 ms', max_burst = '0 ms', ecn = true }",
            false
        )),
        Just((
            "{ kind = 'fq-codel', limit = '12 packets', target = '1 ms', interval = '5 ms', flows = 4 }",
            true
        )),
    ];
    let policer = one_of(&["", "policer = { rate = '8 Mbit/s', burst = '5 kB' }"]);
    let aggregation = one_of(&[
        "",
        "aggregation = { kind = 'interval', interval = '3 ms' }",
        "aggregation = { kind = 'count', packets = 4, within = '6 ms' }",
    ]);
    (rate, delay, loss, queue, policer, aggregation).prop_map(
        |(rate, (delay, shuffles), loss, (queue, fair), policer, aggregation)| {
            let text = format!(
                "{rate}\ndelay = {delay}\nloss = {loss}\nqueue = {queue}\n{policer}\n{aggregation}\n"
            );
            (text, shuffles || fair)
        },
    )
}

fn schedule() -> impl Strategy<Value = &'static str> {
    one_of(&[
        "",
        "[[schedule]]\nat = '10 ms'\ndelay = '1 ms'\n[[schedule]]\nat = '40 ms'\nloss = 0.2\n",
        "[[schedule]]\nat = '10 ms'\ndelay = { kind = 'jitter', base = '0 ms', jitter = '9 ms' }\nloss = { kind = 'periodic', every = 3 }\n",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn packets_are_conserved_arrive_in_order_and_runs_repeat(
        (direction, overtakes) in direction(),
        schedule in schedule(),
        offered in prop::collection::vec((0..3000u64, 40..1501u32, 0..5u64, any::<bool>()), 1..300),
        seed in any::<u64>(),
    ) {
        let path = Path::parse(&format!("{direction}{schedule}"), "random.toml").unwrap();
        let run = || -> Result<_, TestCaseError> {
            let (mut channel, _) = path.channels::<usize, ()>(seed);
            channel.keep_drops();
            let (mut now, mut last_due, mut last_id) = (Time::ZERO, Time::ZERO, None);
            let (mut refused, mut dropped, mut marked) = (0, 0, 0);
            let mut arrivals = Vec::new();
            let end = [(3_600_000_000, 0, 0, false)];
            for (id, (gap_us, size_bytes, flow, ecn_capable)) in
                offered.iter().chain(&end).copied().enumerate()
            {
                let next = now + Span::from_nanos(gap_us * 1000);
                // all events up to then, each at its own moment
                while let Some(event) = channel.next_event().filter(|event| *event <= next) {
                    prop_assert!(event >= now, "{:?} after {:?}", event, now);
                    now = event;
                    while let Some(arrival) = channel.receive(now) {
                        prop_assert!(last_due <= arrival.due && arrival.due <= now);
                        prop_assert!(overtakes || last_id.is_none_or(|last| last < arrival.packet));
                        (last_due, last_id) = (arrival.due, Some(arrival.packet));
                        marked += u64::from(arrival.marked);
                        arrivals.push((arrival.due, arrival.packet));
                    }
                    prop_assert!(channel.next_event().is_none_or(|next| next > now));
                }
                now = next;
                if size_bytes > 0 {
                    let info = PacketInfo { size_bytes, flow, ecn_capable };
                    refused += u64::from(channel.enqueue_as(now, info, id).is_err());
                }
                while channel.take_dropped().is_some() {
                    dropped += 1;
                }
                let counters = channel.counters();
                prop_assert_eq!(counters.dropped(), refused + dropped);
                prop_assert_eq!(
                    counters.enqueued,
                    counters.delivered + counters.dropped() + channel.in_flight() as u64
                );
            }
            prop_assert_eq!(channel.in_flight(), 0, "an hour later all have arrived");
            prop_assert_eq!(channel.backlog_bytes(now), 0);
            prop_assert!(marked <= channel.counters().marked);
            Ok((arrivals, channel.counters()))
        };
        prop_assert_eq!(run()?, run()?);
    }

    #[test]
    fn what_is_written_is_read_back(
        (forward, _) in direction(),
        (reverse, _) in direction(),
        schedule in schedule(),
        rate in 1e3..1e10f64,
    ) {
        let rate_line = if forward.starts_with("rate") { String::new() } else { format!("rate = '{rate} bit/s'\n") };
        let text = format!("{rate_line}{forward}{schedule}[reverse]\n{reverse}");
        let path = Path::parse(&text, "random.toml").unwrap();
        let again = Path::parse(&path.to_toml(), "again.toml").unwrap_or_else(|error| panic!("{error}\n{}", path.to_toml()));
        prop_assert_eq!(again, path);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[a-z0-9 ='{}\\[\\],\n\"._-]{0,200}") {
        let _ = Path::parse(&text, "random.toml");
    }
}
