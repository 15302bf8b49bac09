//! Path files: read or refused; what is read comes back from `to_toml`, and can be run.
//!
//! The input is the path file, the content of every trace that it names, and what is sent over it,
//! with a byte of 0 in between.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathcast_fuzz::{toml_files, write_seeds};
use pathcast_path::{Channel, PacketInfo, Path, Span, Time};

fuzz_target!(init: write_seeds(seeds), |input: &[u8]| run(input));

/// Packets sent each way.
const PACKETS: u64 = 256;
/// Moments at which something happens, at most, after which a run is given up.
const MOST_EVENTS: u64 = 100_000;

fn run(input: &[u8]) {
    let mut parts = input.splitn(3, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (text, trace, sent) = (part(), part(), part());
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let path = match Path::parse_with(text, "path.toml", &mut |_| Ok(trace.to_vec())) {
        Ok(path) => path,
        Err(error) => {
            let lines = text.split('\n').count();
            assert!(
                error
                    .place
                    .is_none_or(|(line, column)| line <= lines && column > 0)
            );
            return;
        }
    };
    let toml = path.to_toml();
    match Path::parse(&toml, "again.toml") {
        Ok(again) => assert_eq!(again, path, "{toml}"),
        Err(error) => panic!("{error}\n{toml}"),
    }
    let (forward, reverse) = path.channels::<u64, u64>(1);
    for channel in [forward, reverse] {
        Run::new(channel).send(sent);
    }
}

/// A channel in virtual time, and our own account of its packets.
struct Run {
    channel: Channel<u64>,
    now: Time,
    refused: u64,
    dropped: u64,
    arrived: u64,
    events: u64,
}

impl Run {
    fn new(mut channel: Channel<u64>) -> Self {
        channel.keep_drops();
        Self {
            channel,
            now: Time::ZERO,
            refused: 0,
            dropped: 0,
            arrived: 0,
            events: 0,
        }
    }

    /// Sends packets, each after the gap, of the size and the flow that four bytes of `sent` say.
    fn send(mut self, sent: &[u8]) {
        let (quads, _) = sent.as_chunks::<4>();
        let quads = match quads {
            [] => &[[200, 12, 0, 1], [0, 0, 20, 17]], // half a packet a millisecond
            quads => quads,
        };
        for (packet, [gap, shift, size, kind]) in (0..PACKETS).zip(quads.iter().cycle()) {
            // from no time to three minutes
            let gap = Span::from_nanos(u64::from(*gap) << (shift % 30));
            self.happen(self.now + gap);
            let info = PacketInfo {
                // any up to a jumbo frame, mostly the usual ones
                size_bytes: match size {
                    0..16 => 1500,
                    16..32 => 52,
                    size => u32::from(*size) * 36,
                },
                flow: u64::from(kind >> 4),
                ecn_capable: kind % 2 == 1,
            };
            let refused = self.channel.enqueue_as(self.now, info, packet).is_err();
            self.refused += u64::from(refused);
            self.channel.backlog_bytes(self.now);
            self.check();
        }
        // all but what is slower than any run
        self.happen(Time::from_nanos(u64::MAX / 2));
        if self.channel.next_event().is_none() {
            assert_eq!(
                self.channel.in_flight(),
                0,
                "what is under way arrives or is dropped"
            );
        }
    }

    /// All events up to `until`, each at its own moment.
    fn happen(&mut self, until: Time) {
        while let Some(event) = self.channel.next_event()
            && event <= until
            && self.events < MOST_EVENTS
        {
            assert!(event >= self.now, "{event:?} after {:?}", self.now);
            self.now = event;
            while let Some(arrival) = self.channel.receive(event) {
                assert!(arrival.due <= event);
                self.arrived += 1;
            }
            let next = self.channel.next_event();
            assert!(
                next.is_none_or(|next| next > event),
                "{next:?} after {event:?}"
            );
            self.events += 1;
        }
        self.now = self.now.max(until);
    }

    fn check(&mut self) {
        while self.channel.take_dropped().is_some() {
            self.dropped += 1;
        }
        let counters = self.channel.counters();
        assert_eq!(counters.delivered, self.arrived);
        assert_eq!(counters.dropped(), self.refused + self.dropped);
        assert_eq!(
            counters.enqueued,
            counters.delivered + counters.dropped() + self.channel.in_flight() as u64
        );
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut texts = toml_files("paths");
    texts.extend(HANDWRITTEN.map(String::from));
    let (trace, sent) = (
        "0\n1\n1\n2\n9\n",
        [[0, 0, 0, 1], [250, 11, 99, 33], [9, 20, 20, 16]],
    );
    texts
        .iter()
        .map(|text| {
            [
                text.as_bytes(),
                &[0],
                trace.as_bytes(),
                &[0],
                sent.as_flattened(),
            ]
            .concat()
        })
        .collect()
}

/// Every kind of every element, and each key once; then the ends of ranges.
const HANDWRITTEN: [&str; 12] = [
    "name = 'a'\nrate = { kind = 'steps', steps = [['0 s', '1 Mbit/s'], ['7 ms', '0 bit/s']], \
     period = '31 ms' }\ndelay = { kind = 'fixed', delay = '9000us' }\nqueue = '2 BDP'\n",
    "rate = { kind = 'mahimahi', file = 'x' }\ndelay = '5 ms'\n[reverse]\nrate = { kind = \
     'mahimahi', opportunities_ms = [0, 1, 5] }\nqueue = '9 kB'\n",
    "rate = { kind = 'poisson', rate = '1e6 bit/s' }\ndelay = { kind = 'jitter', base = '2 ms', \
     jitter = '4 ms', distribution = 'exponential', reorder = true }\nqueue = 'unlimited'\n",
    "rate = { kind = 'constant', rate = '2.5 Gbit/s' }\ndelay = '0 s'\nloss = { kind = \
     'gilbert-elliott', good_to_bad = 0.1, bad_to_good = 0.3, loss_good = 0, loss_bad = 1 }\n\
     queue = { kind = 'droptail', limit = '4 packets' }\n",
    "rate = '900 kbit/s'\ndelay = '1 ms'\nloss = { kind = 'periodic', every = 7, first = 2 }\n\
     queue = { kind = 'drophead', limit = '5 packets' }\naggregation = { kind = 'interval', \
     interval = '3 ms' }\n[reverse]\nloss = { kind = 'bursts', packets = [[3, 5], [9, 9]], \
     times = [['20 ms', '30 ms']] }\n",
    "rate = '3 Mbit/s'\ndelay = '1 ms'\nqueue = { kind = 'red', limit = '1 MB', min = '3 kB', \
     max = '9 kB', max_probability = 0.2, weight = 0.5, gentle = false, ecn = true }\n\
     policer = { rate = '1 Mbit/s', burst = '30 kB' }\n[reverse]\nqueue = { kind = \
     'adaptive-red', limit = '30 packets', target = '2 ms' }\nloss = { kind = 'iid', \
     probability = 0.5 }\n",
    "rate = '3 Mbit/s'\ndelay = '1 ms'\nqueue = { kind = 'codel', target = '1 ms', interval = \
     '5 ms', ecn = true }\naggregation = { kind = 'count', packets = 4, within = '6 ms' }\n",
    "rate = '3 Mbit/s'\ndelay = '1 ms'\nqueue = { kind = 'pie', limit = '99 packets', target = \
     '1 ms', update = '1 ms', max_burst = '0 ms', alpha = 1, beta = 2.5, ecn = true, mark_below = \
     0.2 }\n[[schedule]]\nat = '10 ms'\nrate = '2 Mbit/s'\n[[schedule]]\nat = '1 s'\ndelay = \
     { kind = 'jitter', base = '0 ms', jitter = '1 s' }\nloss = 0.1\n",
    "rate = '3 Mbit/s'\ndelay = '1 ms'\nqueue = { kind = 'fq-codel', limit = '12 packets', target \
     = '1 ms', interval = '5 ms', flows = 4, quantum = '300 B' }\n[[reverse.schedule]]\nat = \
     '9 ms'\nloss = { kind = 'periodic', every = 3 }\n",
    "rate = { kind = 'steps', steps = [['0 s', '1e-300 bit/s'], ['1 ns', '1 bit/s']], period = \
     '2 ns' }\ndelay = '3599999999999 ns'\nqueue = '18446744073709551615 B'\nloss = 5e-324\n\
     policer = { rate = '1e308 bit/s', burst = '9007199254740993 packets' }\n",
    "rate = '1e308 bit/s'\ndelay = '3600 s'\nloss = 0.9999999999999999\nqueue = { kind = 'red', \
     limit = '1e300 packets', min = '1e19 packets' }\n",
    "rate = { kind = 'poisson', rate = '1e300 Gbit/s' }\ndelay = '1 ns'\nqueue = { kind = 'pie', \
     update = '1 ns', limit = '1 packets', alpha = 1000 }\naggregation = { kind = 'interval', \
     interval = '1 ns' }\n",
];
