//! Load for a running service: questions over several connections, and batches of samples.
//!
//! ```text
//! load ADDRESS decisions SECONDS CONNECTIONS RATE PREFIXES TOGETHER
//! load ADDRESS samples   SECONDS RATE PREFIXES
//! ```
//!
//! RATE is in questions or samples a second, 0: as many as go. A connection sends TOGETHER questions at a time, and waits
//! for their answers. Prints a line of JSON. `benches/serve.py` runs it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

/// Samples of one request.
const BATCH: usize = 5000;
const BITRATES: &str = "1e6,2e6,3e6,4e6,6e6,9e6,14e6,20e6";

/// A client of the prefix with this number.
fn client(prefix: usize) -> String {
    format!(
        "{}.{}.{}.{}",
        11 + prefix / 65_536,
        prefix / 256 % 256,
        prefix % 256,
        1 + prefix % 200
    )
}

/// The path to a prefix: rate in bit/s, round-trip time in seconds, loss rate.
fn path(prefix: usize) -> (f64, f64, f64) {
    let part = |by: usize| (prefix.wrapping_mul(by) % 1009) as f64 / 1009.0;
    (
        1e6 * 100_f64.powf(part(7919)),
        0.01 * 20_f64.powf(part(104_729)),
        1e-5 * 1000_f64.powf(part(1_299_709)),
    )
}

fn question(number: usize, prefix: usize) -> String {
    let client = client(prefix);
    match number % 4 {
        0 => format!("/v1/throughput?client={client}&horizon_s=5"),
        1 => format!("/v1/bitrate?client={client}&segment_s=4&confidence=0.9&ladder={BITRATES}"),
        2 => format!(
            "/v1/transfer?client={client}&bytes={}",
            50_000 << (prefix % 7)
        ),
        _ => format!("/v1/http?client={client}&page=home"),
    }
}

/// Reads a response; its status.
fn response(reader: &mut impl BufRead, line: &mut String, body: &mut Vec<u8>) -> u16 {
    let (mut status, mut length) = (0, 0);
    loop {
        line.clear();
        if reader.read_line(line).expect("the service answers") == 0 {
            return 0;
        }
        if status == 0 {
            status = line
                .split(' ')
                .nth(1)
                .and_then(|one| one.parse().ok())
                .unwrap_or(0);
        } else if line == "\r\n" {
            break;
        } else if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    body.resize(length, 0);
    reader.read_exact(body).expect("the body is whole");
    status
}

/// Latencies in seconds, and responses that are no success.
fn ask(
    address: &str,
    seconds: f64,
    rate: f64,
    prefixes: usize,
    (seed, together): (usize, usize),
) -> (Vec<f64>, u64) {
    let mut stream = TcpStream::connect(address).expect("the service listens");
    stream.set_nodelay(true).expect("it is TCP");
    let mut reader = BufReader::with_capacity(16 << 10, stream.try_clone().expect("descriptors"));
    let (mut line, mut body) = (String::new(), Vec::new());
    let (mut latencies, mut failed) = (Vec::new(), 0);
    let begin = Instant::now();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for number in 0.. {
        if rate > 0.0 {
            let due = Duration::from_secs_f64(number as f64 / rate);
            if let Some(wait) = due.checked_sub(begin.elapsed()) {
                thread::sleep(wait);
            }
        }
        if begin.elapsed().as_secs_f64() > seconds {
            break;
        }
        let mut requests = String::new();
        for one in 0..together {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let path = question(number + one + seed, state % prefixes);
            requests += &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
        let sent = Instant::now();
        stream
            .write_all(requests.as_bytes())
            .expect("the service reads");
        for _ in 0..together {
            let status = response(&mut reader, &mut line, &mut body);
            latencies.push(sent.elapsed().as_secs_f64());
            failed += u64::from(status != 200);
        }
    }
    (latencies, failed)
}

fn decisions(address: &str, [seconds, connections, rate, prefixes, together]: [f64; 5]) {
    let (connections, prefixes, together) =
        (connections as usize, prefixes as usize, together as usize);
    let begin = Instant::now();
    let each = rate / (connections * together) as f64;
    let asked: Vec<(Vec<f64>, u64)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|number| {
                scope.spawn(move || {
                    ask(address, seconds, each, prefixes, (number * 7 + 1, together))
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|one| one.join().expect("no panic"))
            .collect()
    });
    let took = begin.elapsed().as_secs_f64();
    let failed: u64 = asked.iter().map(|one| one.1).sum();
    let mut all: Vec<f64> = asked.into_iter().flat_map(|one| one.0).collect();
    all.sort_unstable_by(f64::total_cmp);
    let at = |level: f64| 1e3 * all[((all.len() - 1) as f64 * level) as usize];
    println!(
        "{{\"per_s\": {:.0}, \"p50_ms\": {:.3}, \"p99_ms\": {:.3}, \"p999_ms\": {:.3}, \"failed\": {failed}}}",
        all.len() as f64 / took,
        at(0.5),
        at(0.99),
        at(0.999)
    );
}

fn samples(address: &str, seconds: f64, rate: f64, prefixes: usize) {
    let mut stream = TcpStream::connect(address).expect("the service listens");
    let mut reader = BufReader::new(stream.try_clone().expect("descriptors"));
    let (mut line, mut answer) = (String::new(), Vec::new());
    // the batches are made before: what is measured is the service
    let batches: Vec<Vec<u8>> = (0..prefixes.div_ceil(BATCH).max(8))
        .map(|batch| {
            let mut body = String::new();
            for number in 0..BATCH {
                let one = (batch * BATCH + number) % prefixes;
                let (rate, rtt, loss) = path(one);
                let noise = 0.8 + 0.4 * ((batch * 31 + number * 17) % 101) as f64 / 101.0;
                body += &format!(
                    "{{\"client\":\"{}\",\"rate_bps\":{:.0},\"rtt_s\":{:.4},\"cwnd_packets\":{:.1},\
                     \"packets\":200,\"losses\":{}}}\n",
                    client(one),
                    rate * noise,
                    rtt,
                    (rate * rtt / 12_000.0).max(2.0),
                    u32::from(((number * 7919 + batch) % 1000) as f64 / 1000.0 < 200.0 * loss)
                );
            }
            body.into_bytes()
        })
        .collect();
    let begin = Instant::now();
    let (mut sent, mut failed) = (0_usize, 0_u64);
    for body in batches.iter().cycle() {
        if rate > 0.0 {
            let due = Duration::from_secs_f64(sent as f64 / rate);
            if let Some(wait) = due.checked_sub(begin.elapsed()) {
                thread::sleep(wait);
            }
        }
        if begin.elapsed().as_secs_f64() > seconds {
            break;
        }
        let head = format!(
            "POST /v1/samples HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body))
            .expect("the service reads");
        failed += u64::from(response(&mut reader, &mut line, &mut answer) != 200);
        sent += BATCH;
    }
    let took = begin.elapsed().as_secs_f64();
    println!(
        "{{\"per_s\": {:.0}, \"sent\": {sent}, \"failed\": {failed}}}",
        sent as f64 / took
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments[at].parse::<f64>().expect("a number");
    match arguments[1].as_str() {
        "decisions" => decisions(&arguments[0], [2, 3, 4, 5, 6].map(number)),
        _ => samples(&arguments[0], number(2), number(3), number(4) as usize),
    }
}
