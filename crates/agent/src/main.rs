//! `pathcast-agent`: the agent without Python.

use std::process::ExitCode;

fn main() -> ExitCode {
    match pathcast_agent::command(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pathcast-agent: {error}");
            ExitCode::from(2)
        }
    }
}
