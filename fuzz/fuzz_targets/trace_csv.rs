//! Traces as CSV: read or refused, the same gzipped; what is read comes back from its text.
//!
//! The first byte says whether the rest is CSV (even) or the file as it is, gzip or not (odd).
#![no_main]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;
use pathcast_fuzz::{check_trace, file_of, write_seeds};
use pathcast_trace::{read, read_csv};

fuzz_target!(init: write_seeds(seeds), |input: &[u8]| run(input));

fn run(input: &[u8]) {
    let Some((kind, content)) = input.split_first() else {
        return;
    };
    if kind % 2 == 1 {
        if let Ok(trace) = read(file_of(content).path()) {
            check_trace(&trace);
        }
        return;
    }
    let plain = read_csv(content, Path::new("t.csv")).ok();
    let gzipped = read(file_of(&gzip(content)).path()).ok();
    assert_eq!(plain, gzipped);
    if let Some(trace) = plain {
        check_trace(&trace);
        let mut text = String::from("time_s,cwnd_packets\n");
        for record in &trace.records {
            writeln!(text, "{},{}", record.time_s, record.cwnd_packets).expect("to memory");
        }
        let again = read_csv(text.as_bytes(), Path::new("t.csv")).expect("our own text");
        assert_eq!(again, trace);
    }
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).expect("to memory");
    encoder.finish().expect("to memory")
}

fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "time_s,cwnd_packets\n0,10\n0.5,11.25\n1e1,3\n",
        "cwnd_packets,x,time_s\r\n10,\"a,\"\"b\"\"\",0.5\r\n11,b,0.75\r\n",
        " time_s , cwnd_packets \n-1,+2\n\n1,  2.5e-3 \n",
        "time_s,cwnd_packets\n1,NaN\n",
        "time_s,cwnd_packets\n1\n",
        "a,b\n1,2\n",
    ];
    let mut seeds = Vec::new();
    for text in texts {
        seeds.push([b"0", text.as_bytes()].concat());
        seeds.push([b"1", text.as_bytes()].concat());
        seeds.push([b"1", &gzip(text.as_bytes())[..]].concat());
    }
    seeds
}
