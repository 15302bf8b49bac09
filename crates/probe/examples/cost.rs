//! What each method costs: one flow over loopback that writes 10 kB about 900 times a second, watched
//! for three seconds by one method after the other.
//!
//! `cargo run --release -p pathcast-probe --example cost`

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use pathcast_probe::{Method, Selection, Watch, WatchOptions};
use pathcast_trace::WatchReport;

const SECONDS: u64 = 3;

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut sender = TcpStream::connect(address).expect("a connection");
    let (mut receiver, _) = listener.accept().expect("a connection");
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while receiver.read(&mut buffer).is_ok_and(|size| size > 0) {}
    });
    let options = |method| WatchOptions {
        method: Some(method),
        ..WatchOptions::default()
    };
    let any = |method| {
        let selection = Selection {
            remote_port: Some(address.port()),
            ..Selection::default()
        };
        Watch::start(selection, options(method))
    };
    println!("method     whose  records/s  us/record  of one processor");
    for method in [Method::TcpProbe, Method::SockDiag] {
        let watch = any(method);
        report("any", method, watch, || send(&mut sender));
    }
    for method in [
        Method::TcpProbe,
        Method::SockDiag,
        Method::TcpInfo,
        Method::OptStats,
    ] {
        let watch = Watch::sockets(&[sender.as_fd()], options(method));
        report("own", method, watch, || send(&mut sender));
    }
    let idle = || thread::sleep(Duration::from_secs(SECONDS));
    for method in [Method::TcpProbe, Method::SockDiag] {
        report("idle", method, any(method), idle);
    }
}

fn send(sender: &mut TcpStream) {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(SECONDS) {
        sender.write_all(&[0; 10_000]).expect("a receiver");
        thread::sleep(Duration::from_millis(1));
    }
}

fn report(
    whose: &str,
    method: Method,
    watch: Result<Watch, pathcast_probe::ProbeError>,
    work: impl FnOnce(),
) {
    let watch = match watch {
        Ok(watch) => watch,
        Err(error) => return println!("{method:<10} {error}"),
    };
    work();
    let (seen, _): (WatchReport, _) = watch.finish().expect("a report");
    let each_us = match seen.records {
        0 => "-".to_string(),
        records => format!("{:.1}", seen.cpu_s * 1e6 / records as f64),
    };
    let share = seen.cpu_s / seen.duration_s;
    let rate = seen.records as f64 / seen.duration_s;
    let method = method.to_string();
    println!(
        "{method:<10} {whose:<5} {rate:>10.0} {each_us:>10} {:>9.2} %",
        share * 100.0
    );
}
