//! Runs flows over a path file and prints the report as JSON:
//! `cargo run --release -p pathcast-emulator --example emulate -- PATH.toml [SECONDS] [SCHEME]... `

use std::error::Error;
use std::sync::atomic::AtomicBool;

use pathcast_emulator::{DeviceKind, Options, capabilities, emulate};
use pathcast_path::{Path, Span};
use pathcast_probe::Method;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(file) = arguments.next() else {
        eprintln!("usage: emulate PATH.toml [SECONDS] [SCHEME]...");
        eprintln!("here: {:?}", capabilities());
        return Ok(());
    };
    let path = Path::parse(&std::fs::read_to_string(&file)?, &file)?;
    let duration_s: f64 = arguments.next().map_or(Ok(5.0), |text| text.parse())?;
    let mut schemes: Vec<String> = arguments.collect();
    if schemes.is_empty() {
        schemes.push("cubic".into());
    }
    let mut options = Options::new(path, schemes, Span::from_secs(duration_s), 1);
    if std::env::var_os("PATHCAST_TCP_INFO").is_some() {
        options.method = Method::TcpInfo;
    }
    options.device = match std::env::var("PATHCAST_DEVICE").as_deref() {
        Ok("tun") => Some(DeviceKind::Tun),
        Ok("veth") => Some(DeviceKind::Veth),
        _ => None,
    };
    options.super_packets = match std::env::var("PATHCAST_SUPER_PACKETS").as_deref() {
        Ok("yes") => Some(true),
        Ok("no") => Some(false),
        _ => None,
    };
    let progress = |elapsed_s: f64| eprint!("\r{elapsed_s:.1} s ");
    let (report, trace) = emulate(&options, &progress, &AtomicBool::new(false))?;
    eprintln!(
        "\r{} rows; {:?}",
        trace.records.len(),
        trace.metadata.environment
    );
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
