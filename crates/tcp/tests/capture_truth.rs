//! How far windows that are inferred from a packet capture are from the sender's own: a flow of
//! which the window is known is written down as a capture at its sender, and read again.
//!
//! `cargo test -p pathcast-tcp --test capture_truth -- --nocapture` prints the table that
//! `docs/results/captures.md` quotes.

use std::path::Path as FilePath;

use pathcast_congestion::Scheme;
use pathcast_path::{Path, Time};
use pathcast_tcp::{AckSegment, DataSegment, Receiver, ReceiverConfig, Sender, SenderConfig};
use pathcast_trace::{ReadOptions, read_bytes};

const MSS_BYTES: u32 = 1448;
const HEADER_BYTES: u32 = 52;
/// So that numbers wrap soon.
const FIRST: u32 = u32::MAX - 1_000_000;

/// A pcap of raw IP with nanoseconds, of headers only; and the latest timestamp of the receiver.
struct Capture(Vec<u8>, u32);

impl Capture {
    fn new() -> Self {
        let words = [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 128, 101];
        let header = words.iter().flat_map(|word| word.to_le_bytes());
        Self(header.collect(), 0)
    }

    fn packet(
        &mut self,
        now: Time,
        backward: bool,
        numbers: (u32, u32),
        flags: u8,
        payload: u32,
        options: &[u8],
    ) {
        let headers = 40 + options.len() as u32;
        let nanoseconds = now.as_nanos();
        let seconds = 1_700_000_000 + (nanoseconds / 1_000_000_000) as u32;
        let fraction = (nanoseconds % 1_000_000_000) as u32;
        for word in [seconds, fraction, headers, headers + payload] {
            self.0.extend(word.to_le_bytes());
        }
        let (from, to): (u8, u8) = if backward { (2, 1) } else { (1, 2) };
        self.0.extend([0x45, 0]);
        self.0.extend(((headers + payload) as u16).to_be_bytes());
        self.0
            .extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
        self.0.extend([0, from, 0, to]);
        self.0.extend(numbers.0.to_be_bytes());
        self.0.extend(numbers.1.to_be_bytes());
        self.0.extend([
            ((20 + options.len()) as u8 / 4) << 4,
            flags,
            0xff,
            0xff,
            0,
            0,
            0,
            0,
        ]);
        self.0.extend(options);
    }

    /// Milliseconds, from 1 on.
    fn stamp(time: Time) -> u32 {
        (time.as_nanos() / 1_000_000) as u32 + 1
    }

    fn stamps(value: Time, echo: u32) -> Vec<u8> {
        let mut options = vec![1, 1, 8, 10];
        options.extend(Self::stamp(value).to_be_bytes());
        options.extend(echo.to_be_bytes());
        options
    }

    fn handshake(&mut self) {
        let mss = [
            &[2, 4, 5, 180, 4, 2, 3, 3, 14, 0, 0, 0][..],
            &[8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        let options = mss.concat();
        self.packet(
            Time::ZERO,
            false,
            (FIRST.wrapping_sub(1), 0),
            2,
            0,
            &options,
        );
        self.packet(Time::ZERO, true, (0, FIRST), 18, 0, &options);
    }

    fn data(&mut self, now: Time, segment: &DataSegment) {
        let seq = FIRST.wrapping_add((segment.seq * u64::from(MSS_BYTES)) as u32);
        let options = Self::stamps(now, self.1);
        self.packet(now, false, (seq, 1), 16, MSS_BYTES, &options);
    }

    fn ack(&mut self, now: Time, segment: &AckSegment) {
        let number = |packet: u64| FIRST.wrapping_add((packet * u64::from(MSS_BYTES)) as u32);
        self.1 = Self::stamp(now);
        let mut options = Self::stamps(now, Self::stamp(segment.echo));
        let sacks: Vec<_> = segment.sacks().collect();
        if !sacks.is_empty() {
            options.extend([1, 1, 5, 2 + 8 * sacks.len() as u8]);
            for block in sacks {
                options.extend(number(block.start).to_be_bytes());
                options.extend(number(block.end).to_be_bytes());
            }
        }
        self.packet(now, true, (1, number(segment.cumulative)), 16, 0, &options);
    }
}

/// What the sender knew just before an acknowledgment.
struct Truth {
    time_s: f64,
    cwnd: f64,
    in_flight: f64,
    srtt_s: f64,
    una: u64,
    recovering: bool,
}

fn run(path: &Path, scheme: &Scheme, duration_s: f64) -> (Capture, Vec<Truth>) {
    let (mut forward, mut reverse) = path.channels::<DataSegment, AckSegment>(7);
    let mut sender = Sender::new(SenderConfig::default(), scheme.controller(1));
    let mut receiver = Receiver::new(ReceiverConfig::default());
    let (mut capture, mut truth) = (Capture::new(), Vec::new());
    capture.handshake();
    let mut now = Time::ZERO;
    let mut recovering_until = 0;
    let mut retransmits = 0;
    while now.as_secs() < duration_s {
        while let Some(segment) = sender.poll_transmit(now) {
            capture.data(now, &segment);
            let _ = forward.enqueue(now, MSS_BYTES + HEADER_BYTES, segment);
        }
        if sender.retransmits() > retransmits {
            retransmits = sender.retransmits();
            recovering_until = sender.una_and_next().1;
        }
        let times = [
            forward.next_event(),
            reverse.next_event(),
            receiver.next_timer(),
            sender.next_timer(),
        ];
        now = times
            .into_iter()
            .flatten()
            .min()
            .expect("something is under way")
            .max(now);
        while let Some((_, segment)) = forward.dequeue(now) {
            if let Some(ack) = receiver.on_data(now, &segment) {
                let _ = reverse.enqueue(now, HEADER_BYTES, ack);
            }
        }
        if receiver.next_timer().is_some_and(|at| at <= now)
            && let Some(ack) = receiver.on_timer(now)
        {
            let _ = reverse.enqueue(now, HEADER_BYTES, ack);
        }
        while let Some((_, ack)) = reverse.dequeue(now) {
            truth.push(Truth {
                time_s: now.as_secs(),
                cwnd: sender.cwnd() as f64,
                in_flight: sender.in_flight() as f64,
                srtt_s: sender.rtt().srtt().map_or(f64::NAN, |srtt| srtt.as_secs()),
                una: sender.una_and_next().0,
                recovering: sender.una_and_next().0 < recovering_until,
            });
            capture.ack(now, &ack);
            sender.on_ack(now, &ack);
            while let Some(segment) = sender.poll_transmit(now) {
                capture.data(now, &segment);
                let _ = forward.enqueue(now, MSS_BYTES + HEADER_BYTES, segment);
            }
        }
        if sender.next_timer().is_some_and(|at| at <= now) {
            sender.on_timer(now);
        }
    }
    (capture, truth)
}

/// The `q`-quantile.
fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values
        .get(((values.len() as f64 - 1.0) * q) as usize)
        .copied()
        .unwrap_or(f64::NAN)
}

#[test]
fn windows_of_a_capture_are_those_of_the_sender() {
    let paths = [
        (
            "12 Mbit/s, 60 ms, 1 BDP",
            "name = 'a'\nrate = '12 Mbit/s'\ndelay = '30 ms'\nqueue = '1 BDP'\n",
        ),
        (
            "50 Mbit/s, 40 ms, 0.2 % loss",
            "name = 'b'\nrate = '50 Mbit/s'\ndelay = '20 ms'\nqueue = '1 BDP'\nloss = 0.002\n",
        ),
    ];
    println!("| path | scheme | rows | median | 95 % | in recovery, 95 % | srtt, 95 % |");
    for (what, toml) in paths {
        let path = Path::parse(toml, what).unwrap();
        for scheme in [
            Scheme::named("reno"),
            Scheme::named("cubic"),
            Scheme::named("bbr"),
        ] {
            let (capture, truth) = run(&path, &scheme, 60.0);
            let name = FilePath::new(what);
            let read = read_bytes(name, &capture.0, &ReadOptions::default()).unwrap();
            assert!(read.warnings.is_empty(), "{:?}", read.warnings);
            assert_eq!(read.trace.metadata.mss_bytes, Some(MSS_BYTES));
            let mut rows = read.trace.records.iter().peekable();
            let start_s = truth[0].time_s;
            let (mut steady, mut repairing, mut srtt) = (Vec::new(), Vec::new(), Vec::new());
            let mut of_flight = Vec::new();
            for known in &truth {
                let time_s = known.time_s - start_s;
                while rows.next_if(|row| row.time_s < time_s - 2e-9).is_some() {}
                let Some(row) = rows.next_if(|row| row.time_s < time_s + 2e-9) else {
                    continue;
                };
                assert_eq!(row.snd_una_bytes, Some(known.una * u64::from(MSS_BYTES)));
                let error = (row.cwnd_packets / known.cwnd - 1.0).abs();
                of_flight.push((row.cwnd_packets / known.in_flight.max(1.0) - 1.0).abs());
                if known.recovering {
                    repairing.push(error);
                } else {
                    steady.push(error);
                }
                if let Some(srtt_s) = row.srtt_s {
                    srtt.push((srtt_s / known.srtt_s - 1.0).abs());
                }
            }
            let count = steady.len() + repairing.len();
            assert!(count * 100 > truth.len() * 98, "{count} of {}", truth.len());
            let [median, most] = [0.5, 0.95].map(|q| quantile(&mut steady, q) * 100.0);
            let worst = quantile(&mut repairing, 0.95) * 100.0;
            let flight = quantile(&mut of_flight, 0.95) * 100.0;
            assert!(
                flight < 1.0,
                "{what}, {scheme}: {flight} % of what is in flight"
            );
            let rtt = quantile(&mut srtt, 0.95) * 100.0;
            println!(
                "| {what} | {scheme} | {count} | {median:.2} % | {most:.1} % | {worst:.1} % | {rtt:.1} % |"
            );
            if scheme == Scheme::named("bbr") {
                // paced, it leaves about half of its window unused
                assert!((30.0..60.0).contains(&median), "{median} %");
                continue;
            }
            // a packet or two of the window may wait for a whole load
            assert!(
                median < 0.1 && most < 8.0,
                "{what}, {scheme}: {median}, {most} %"
            );
            assert!(
                worst < 5.0 && rtt < 15.0,
                "{what}, {scheme}: {worst}, {rtt} %"
            );
        }
    }
}
