//! Prints how long round trips take on an idle path beyond the path's own delay, in microseconds: least,
//! median, 95 %, 99 %: `cargo run --release -p pathcast-emulator --example idle -- PATH.toml [COUNT]`

use std::error::Error;
use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use pathcast_emulator::{ShellOptions, shell};
use pathcast_path::{Path, Span};
use pathcast_probe::realtime::request_fifo;

const PRIORITY: i32 = 40;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if let (Some("inside"), Ok(base)) = (
        arguments.get(1).map(String::as_str),
        std::env::var("PATHCAST_BASE"),
    ) {
        return ping(&base, &arguments);
    }
    let [_, file, rest @ ..] = &arguments[..] else {
        return Err("usage: idle PATH.toml [COUNT]".into());
    };
    let count = rest.first().map_or("300", String::as_str);
    let path = Path::parse(&std::fs::read_to_string(file)?, file)?;
    let way = |direction: &pathcast_path::Direction| {
        let rate = direction.mean_rate();
        rate.map_or(0.0, |rate| 64.0 * 8.0 / rate.as_bps())
    };
    let own = path.base_rtt() + Span::from_secs(way(&path.forward) + way(&path.reverse));
    let server = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let port = server.local_addr()?.port();
    thread::spawn(move || {
        let _ = request_fifo(PRIORITY);
        let mut buffer = [0; 2048];
        while let Ok((size, from)) = server.recv_from(&mut buffer) {
            let _ = server.send_to(&buffer[..size], from);
        }
    });
    let inside = [
        "inside",
        &port.to_string(),
        count,
        &own.as_nanos().to_string(),
    ];
    let report = shell(
        &ShellOptions {
            links: vec![path],
            seed: 1,
            command: (
                std::env::current_exe()?.into(),
                inside.iter().map(Into::into).collect(),
            ),
            scheme: None,
            outside: None,
            environment: Vec::new(),
            user: None,
            device: None,
            super_packets: None,
            packets_file: None,
            mm_logs: [None, None],
        },
        &|| None,
    )?;
    println!(
        "pump {:.1} % of a processor, slip {:?}",
        100.0 * report.cpu_s / report.wall_s,
        report.slip_us
    );
    Ok(())
}

/// The part inside the shell.
fn ping(base: &str, arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let number = |at: usize| arguments.get(at).map_or(Ok(0), |text| text.parse::<u64>());
    let _ = request_fifo(PRIORITY);
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((base, number(2)? as u16))?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    let own = Duration::from_nanos(number(4)?);
    let mut beyond_us = Vec::new();
    for _ in 0..number(3)? {
        let began = Instant::now();
        socket.send(&[0; 36])?;
        socket.recv(&mut [0; 100])?;
        beyond_us.push(began.elapsed().saturating_sub(own).as_micros());
        thread::sleep(Duration::from_millis(10));
    }
    beyond_us.sort_unstable();
    let quantile = |percent: usize| beyond_us[(beyond_us.len() - 1) * percent / 100];
    let of = [0, 50, 95, 99].map(quantile);
    print!(
        "least {} median {} 95 % {} 99 % {} us; ",
        of[0], of[1], of[2], of[3]
    );
    Ok(())
}
