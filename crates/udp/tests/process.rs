//! The program over loopback: the lines that it prints, and how it ends.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A process that is killed if its test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_pathcast-udp"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn();
        Self(child.expect("the program is built"))
    }

    fn terminate(&self) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Waits for the end; returns the exit status and all it printed.
    fn end(&mut self, out: &mut impl Read) -> (ExitStatus, String) {
        let mut text = String::new();
        let began = Instant::now();
        let status = loop {
            match self.0.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(began.elapsed() < Duration::from_secs(30), "no end"),
            }
            thread::sleep(Duration::from_millis(5));
        };
        out.read_to_string(&mut text).unwrap();
        (status, text)
    }
}

/// A receiver on loopback, its output, and its address.
fn receiver() -> (Running, BufReader<impl Read>, String) {
    for _ in 0..20 {
        // a port that was free a moment ago: another test's process may be given it meanwhile
        let probe = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = probe.local_addr().unwrap().to_string();
        drop(probe);
        let mut running = Running::start(&["receive", &address]);
        let mut out = BufReader::new(running.0.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        if line == "listening\n" {
            return (running, out, address);
        }
        let (status, rest) = running.end(&mut out);
        assert!(!status.success(), "{line}{rest}");
    }
    panic!("none of twenty receivers listens");
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

#[test]
fn a_transfer_ends_by_itself_and_the_receiver_at_sigterm() {
    let (mut receiving, mut received, address) = receiver();
    let mut sending = Running::start(&["send", &address, "--scheme", "copa", "--bytes", "3000001"]);
    let mut out = sending.0.stdout.take().unwrap();
    let (status, text) = sending.end(&mut out);
    assert!(status.success());
    let said = json(&text);
    assert_eq!(said["controller"], "copa");
    assert_eq!(said["acknowledged_bytes"], 3_000_001);
    assert!(said["evidence"].as_str().unwrap().contains("cwnd"));
    receiving.terminate();
    let (status, text) = receiving.end(&mut received);
    assert!(status.success());
    assert_eq!(json(&text)["received_bytes"], 3_000_001);
}

#[test]
fn an_endless_flow_ends_at_sigterm_and_the_next_sender_is_served() {
    let (mut receiving, mut received, address) = receiver();
    let mut total = 0;
    for scheme in ["fixed:30", "ledbat++"] {
        let mut sending = Running::start(&["send", &address, "--scheme", scheme, "--bytes", "0"]);
        let mut out = sending.0.stdout.take().unwrap();
        thread::sleep(Duration::from_millis(400));
        sending.terminate();
        let (status, text) = sending.end(&mut out);
        assert!(status.success());
        let said = json(&text);
        assert_eq!(said["controller"], scheme.split(':').next().unwrap());
        let acknowledged = said["acknowledged_bytes"].as_u64().unwrap();
        assert!(acknowledged > 1_000_000, "{said}");
        total += acknowledged;
    }
    receiving.terminate();
    let (status, text) = receiving.end(&mut received);
    assert!(status.success());
    let said = json(&text);
    assert!(said["received_bytes"].as_u64().unwrap() >= total);
    assert_eq!(said["senders"], 2);
}

/// Processor time that a process has used, in clock ticks.
fn ticks(running: &Running) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", running.0.id())).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_receiver_with_nothing_to_do_sleeps() {
    let (receiving, _received, address) = receiver();
    // of an odd number of packets the last one's acknowledgment waits for the timer
    let mut sending =
        Running::start(&["send", &address, "--scheme", "fixed:1", "--bytes", "100000"]);
    let mut out = sending.0.stdout.take().unwrap();
    assert!(sending.end(&mut out).0.success());
    let before = ticks(&receiving);
    thread::sleep(Duration::from_millis(500));
    let used = ticks(&receiving) - before;
    assert!(used <= 5, "{used} ticks of 10 ms in 0.5 s");
}

#[test]
fn an_address_in_use_is_an_error_of_the_system() {
    let (_receiving, _received, address) = receiver();
    let mut second = Running::start(&["receive", &address]);
    let mut out = second.0.stdout.take().unwrap();
    let (status, text) = second.end(&mut out);
    assert_eq!(status.code(), Some(1));
    assert_eq!(text, "");
}
