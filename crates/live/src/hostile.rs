//! What a client makes of a server that says anything at all, and a server of such a client: for fuzzing, and
//! for a quick test of the same by mutations with a fixed seed.

use std::time::Instant;

use pathcast_path::End;
use pathcast_scenario::{Heading, Scenario};

use crate::arrivals;
use crate::client::RunOptions;
use crate::clock::{Clock, Sample};
use crate::conclude::{Findings, Share, conclude};
use crate::control::{Frame, MOST_FROM_SERVER, Reply, Request, Results, read_frame};
use crate::cookie::COOKIE_BYTES;
use crate::endpoints::Arrival;
use crate::handshake::{Answer, Answered, Asking, Datagram, Signer, answer};
use crate::key::Key;
use crate::log::{Log, Rows};
use crate::message::Reader;
use crate::plan::{CLIENT, Plan, SERVER, check, over_real_path, scenario_of, tasks};
use crate::tunnel::TunnelReport;

/// The first byte of an input says what it is.
const DATAGRAM: u8 = 0;
const FRAMES: u8 = 1;
const RESULTS: u8 = 2;
const MESSAGES: u8 = 3;
const PLAN: u8 = 4;

/// A key that all inputs share, so that they can be right.
fn key() -> Key {
    Key::parse(&"5a".repeat(32)).expect("64 digits")
}

/// Treats `input` as a host treats what another says; whether it made sense to the end.
///
/// # Panics
/// If what it says breaks what is promised: that is a bug.
pub fn take(input: &[u8]) -> bool {
    let Some((kind, content)) = input.split_first() else {
        return false;
    };
    match *kind {
        DATAGRAM => datagram(content),
        FRAMES => frames(content),
        RESULTS => results(content),
        MESSAGES => messages(content),
        PLAN => plan(content),
        _ => false,
    }
}

fn datagram(content: &[u8]) -> bool {
    let signer = Signer::new(&key());
    if let (Some(Datagram::Hello(hello)), true) =
        (Datagram::parse(content), signer.is_hello(content))
    {
        let said = answer(&key(), &hello, 9, Answer::Welcome);
        assert!(said.is_none_or(|(welcome, _)| welcome.len() <= content.len()));
        assert!(signer.again(content, hello.cookie).len() <= content.len());
    }
    let asking = Asking::new(&key(), 7, &[0; COOKIE_BYTES]);
    assert!(
        !matches!(asking.answered(content), Answered::Welcome(_)),
        "nobody knows what this client has just said"
    );
    Datagram::parse(content).is_some()
}

fn frames(mut content: &[u8]) -> bool {
    while let Ok(frame) = read_frame(&mut content, MOST_FROM_SERVER) {
        if let Frame::Json(text) = frame {
            let _ = serde_json::from_slice::<Request>(&text);
            if serde_json::from_slice::<Reply>(&text).is_err() {
                return false;
            }
        }
    }
    content.is_empty()
}

/// Reads from pieces whose sizes it is given, as a socket would give them.
fn messages(mut content: &[u8]) -> bool {
    let mut reader = Reader::default();
    while let Some((&piece, rest)) = content.split_first() {
        let (wanted, matters) = reader.wants();
        let size = wanted.min(piece.into());
        let bytes = match matters {
            true => rest.get(..size as usize),
            false => Some(&[][..]),
        };
        let Some(bytes) = bytes.filter(|_| size > 0) else {
            return false;
        };
        if reader.take(size, bytes).is_err() {
            return false;
        }
        content = &rest[bytes.len()..];
    }
    true
}

fn plan(content: &[u8]) -> bool {
    let Ok(Request::Plan(plan)) = serde_json::from_slice(content) else {
        return false;
    };
    let Ok(scenario) = Scenario::parse(&plan.scenario, "plan") else {
        return false;
    };
    check(&scenario).is_ok() && !tasks(&scenario, plan.seed, SERVER).is_empty()
}

/// Flows of a client whose server says what it likes.
fn scenario() -> Scenario {
    let workload = "{ kind = 'transfer', size = '3 kB', count = 4 }";
    let mut scenario = scenario_of(
        &["cubic".into(), "reno".into()],
        Heading::Forward,
        Some(workload),
    )
    .expect("a workload");
    scenario.flows[1].heading = Heading::Reverse;
    over_real_path(&scenario)
}

/// TCP segments of a flow, as its host notes them.
fn log_of(side: End) -> Log {
    let mut log = Log::default();
    for number in 0..20u64 {
        let at_ns = 1_000_000_000 + number * 1_000_000;
        let mut packet = vec![0; 600];
        (packet[0], packet[9], packet[32]) = (0x45, 6, 5 << 4);
        packet[2..4].copy_from_slice(&600u16.to_be_bytes());
        let from = 20_000 + u16::from(side == SERVER);
        packet[20..22].copy_from_slice(&from.to_be_bytes());
        packet[22..24].copy_from_slice(&5001u16.to_be_bytes());
        packet[24..28].copy_from_slice(&(number as u32 * 560).to_be_bytes());
        log.note_sent(number, at_ns, &packet);
        log.note_received(number, at_ns + 5_000_000);
    }
    log
}

fn share(results: Results, log: &[u8], arrived: &[u8], begin_ns: u64) -> Option<Share> {
    Some(Share {
        results: results.shown(),
        rows: Rows::decode(log)?,
        records: Vec::new(),
        arrivals: arrivals::decode(arrived)?,
        environment: Default::default(),
        begin_ns,
    })
}

/// The client's own part is right; clocks, results, packets and messages of the server are `content`, each with
/// its size before it.
fn results(mut content: &[u8]) -> bool {
    let mut part = || -> Option<&[u8]> {
        let (size, rest) = content.split_first_chunk::<2>()?;
        let (part, rest) = rest.split_at_checked(u16::from_le_bytes(*size).into())?;
        content = rest;
        Some(part)
    };
    let (Some(clock), Some(said), Some(log), Some(arrived)) = (part(), part(), part(), part())
    else {
        return false;
    };
    let Ok(Reply::Results { begin_ns, results }) = serde_json::from_slice(said) else {
        return false;
    };
    let now_ns = 1_500_000_000;
    let samples: Vec<Sample> = clock
        .as_chunks::<24>()
        .0
        .iter()
        .filter_map(|times| Sample::of_answer(times, now_ns))
        .collect();
    if let Some(clock) = Clock::estimate(&samples, now_ns) {
        assert!(clock.least_rtt_s <= 10.0 && clock.offset_s.is_finite());
    }
    let Some(server) = share(results, log, arrived, begin_ns) else {
        return false;
    };
    let own = log_of(CLIENT).encode();
    let client = share(Results::default(), &own, &[], 1_000_000_000).expect("our own");
    let options = RunOptions {
        server: ("192.0.2.1".into(), 5600),
        key: key(),
        scenario: scenario(),
        duration_s: 1.0,
        seed: 1,
        packets_file: None,
        messages_file: None,
        programs: None,
    };
    let findings = Findings {
        begin_ns: 1_000_000_000,
        ended_ns: 2_000_000_000,
        samples,
        client,
        server,
    };
    let tunnel = TunnelReport {
        cpu_s: 0.0,
        fifo_refused: None,
        strange: 0,
    };
    let concluded = conclude(&options, &scenario(), findings, &tunnel, Instant::now());
    let report = &concluded.report;
    assert_eq!(report.run.flows.len(), 2);
    assert!(report.run.loss_rate >= 0.0 && report.run.loss_rate <= 1.0);
    assert!(
        report
            .run
            .flows
            .iter()
            .all(|flow| flow.goodput_bps.is_finite())
    );
    assert!(
        concluded
            .packets
            .iter()
            .all(|packet| packet.time_s.is_finite())
    );
    assert!(
        concluded
            .messages
            .iter()
            .all(|message| message.read_s.is_finite())
    );
    true
}

/// Inputs that are right, one at least of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let signer = Signer::new(&key());
    let hello = Asking::new(&key(), 7, &[0; COOKIE_BYTES]).hello;
    let Some(Datagram::Hello(parsed)) = Datagram::parse(&hello) else {
        unreachable!("a hello of ours");
    };
    let (welcome, mut session) = answer(&key(), &parsed, 9, Answer::Welcome).expect("the same key");
    let mut data = [0; crate::handshake::MOST_BYTES];
    let (_, size) = session.seal(&[2; 25], &mut data);
    let mut seeds: Vec<Vec<u8>> = [
        &hello[..],
        &welcome,
        &signer.again(&hello, &[3; COOKIE_BYTES]),
        &signer.other(&hello),
        &data[..size],
    ]
    .map(|datagram| [&[DATAGRAM], datagram].concat())
    .to_vec();

    let results = Results {
        endpoints: vec![
            crate::control::Endpoint {
                arrived_bytes: 12_000,
                written: 4,
                ended_ns: Some(1_200_000_000),
            };
            2
        ],
        senders: [(1, crate::control::Sender::default())].into(),
        cpu_s: 0.5,
        invalid_because: vec!["it said so".into()],
        refused: vec!["no real-time priority".into()],
        measured_by: "tcp_probe".into(),
    };
    let reply = Reply::Results {
        begin_ns: 1_000_000_000,
        results,
    };
    let reply = serde_json::to_vec(&reply).expect("plain data");
    let ready = Reply::Ready {
        environment: [("kernel".into(), "6.1".into())].into(),
    };
    let ready = serde_json::to_vec(&ready).expect("plain data");
    let mut frames = vec![FRAMES];
    for (kind, content) in [(0, &ready), (0, &reply), (1, &vec![7; 30])] {
        frames.push(kind);
        frames.extend((content.len() as u32).to_le_bytes());
        frames.extend(content);
    }
    seeds.push(frames);

    let mut clock = Vec::new();
    for number in 0..5u64 {
        let asked = 1_490_000_000 + number * 1_000_000;
        for time in [asked, asked + 3_000_500_000, asked + 3_000_600_000] {
            clock.extend(time.to_le_bytes());
        }
    }
    let arrived: Vec<Arrival> = (0..4)
        .map(|number| Arrival {
            flow: 0,
            bytes: 3000,
            written_ns: 1_000_000_000 + number * 1_000_000,
            arrived_ns: 1_006_000_000 + number * 1_000_000,
        })
        .collect();
    let mut all = vec![RESULTS];
    let log = log_of(SERVER).encode();
    for part in [&clock, &reply, &log, &arrivals::encode(&arrived)] {
        all.extend((part.len() as u16).to_le_bytes());
        all.extend(part);
    }
    seeds.push(all);

    let mut stream = vec![MESSAGES];
    for size in [24u64, 100, 3000] {
        let head = crate::message::Head::new(size, 1_000_000_000, 1).encode();
        stream.push(24);
        stream.extend(head);
        stream.extend(vec![200; (size as usize - 24).div_ceil(200)]);
    }
    seeds.push(stream);

    let plan = Request::Plan(Plan {
        scenario: scenario().to_toml(),
        duration_s: 2.0,
        seed: 1,
        programs: Some("{}".into()),
    });
    let plan = serde_json::to_vec(&plan).expect("plain data");
    seeds.push([&[PLAN][..], &plan].concat());
    seeds
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    /// A sequence of numbers that is the same each time (Marsaglia 2003, xorshift).
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % sides.max(1) as u64) as usize
        }
    }

    /// What breaks readers: the ends of all ranges, as varints, as little-endian words and as text.
    const EXTREMES: [&[u8]; 12] = [
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0xff; 8],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[0; 8],
        b"18446744073709551615",
        b"-1",
        b"1e308",
        b"null",
        b"\"\\u001b[2J\"",
        b"[[[[[[[[",
    ];

    fn mutated(seed: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
        let mut input = seed.to_vec();
        for _ in 0..1 + dice.roll(4) {
            // the first byte says what the input is
            let at = 1 + dice.roll(input.len() - 1);
            match dice.roll(6) {
                0 => input[at] ^= 1 << dice.roll(8),
                1 => input[at] = dice.roll(256) as u8,
                2 => input.truncate(at.max(2)),
                3 => drop(input.splice(at..at, EXTREMES[dice.roll(EXTREMES.len())].to_vec())),
                4 => {
                    let extreme = EXTREMES[dice.roll(EXTREMES.len())];
                    let end = (at + extreme.len()).min(input.len());
                    input.splice(at..end, extreme.to_vec());
                }
                _ => {
                    let from = dice.roll(other.len());
                    input.splice(at.., other[from..].to_vec());
                }
            }
            if input.len() < 2 {
                break;
            }
        }
        input
    }

    #[test]
    fn no_server_makes_a_client_panic_whatever_it_says() {
        let (seeds, mut dice) = (seeds(), Dice(0x9e37_79b9_7f4a_7c15));
        let datagrams = |seed: &&Vec<u8>| seed[0] != DATAGRAM;
        for seed in seeds.iter().filter(datagrams) {
            assert!(take(seed), "{seed:?}");
        }
        // the test runs for some seconds; PATHCAST_MUTATIONS=N makes it as long as one likes
        let count = std::env::var("PATHCAST_MUTATIONS").ok();
        let count = count.map_or(20_000, |count| count.parse().expect("a number"));
        let mut made_sense = 0;
        for number in 0..count {
            // what is put together of many parts has more ways to be wrong
            let seed = match dice.roll(2) {
                0 => seeds
                    .iter()
                    .find(|seed| seed[0] == RESULTS)
                    .expect("one of them"),
                _ => &seeds[dice.roll(seeds.len())],
            };
            let other = &seeds[dice.roll(seeds.len())];
            let input = mutated(seed, other, &mut dice);
            let taken = catch_unwind(|| take(&input));
            assert!(taken.is_ok(), "mutation {number}: {input:?}");
            made_sense += u32::from(taken.unwrap_or(false));
        }
        // otherwise all of them stop at the first parser
        assert!(made_sense > count / 10, "{made_sense} of {count}");
    }
}
