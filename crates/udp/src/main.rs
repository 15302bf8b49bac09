//! `pathcast-udp`: a sender and a receiver of Pathcast's own congestion controllers.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    // whoever reads the output may be gone
    let mut print = |line: &str| {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    };
    match pathcast_udp::command(std::env::args().skip(1), &mut print) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pathcast-udp: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
