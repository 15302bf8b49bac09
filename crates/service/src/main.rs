//! `pathcast-serve`: the service without Python.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use pathcast_service::{Config, Ports, ServiceError, Stop, serve};

const HELP: &str = "\
Answer questions of servers and players about their clients, from samples of flows.

usage: pathcast-serve [--listen ADDRESS:PORT] [--state DIR] [--watch PORT|all] [--config FILE]

  --listen ADDRESS:PORT  where to listen; default: 127.0.0.1:8080, this machine only
  --state DIR            folder of the state; default: nothing is kept
  --watch PORT|all       take samples from sockets of this host: those of a port, or all
  --config FILE          configuration in TOML
  --version              print the version
  --help                 print this

Example: pathcast-serve --state /var/lib/pathcast
";

/// What the command line asks for.
enum Asked {
    Serve(Box<Config>),
    Print(String),
}

fn asked(mut arguments: impl Iterator<Item = String>) -> Result<Asked, ServiceError> {
    let wrong = |message: String| ServiceError::Config(message);
    let (mut listen, mut state, mut watch, mut file) = (None, None, None, None);
    while let Some(argument) = arguments.next() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name.to_string(), Some(value.to_string())),
            None => (argument, None),
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(Asked::Print(HELP.into())),
            "--version" => return Ok(Asked::Print(format!("{}\n", env!("CARGO_PKG_VERSION")))),
            "--listen" | "--state" | "--watch" | "--config" => {}
            _ => {
                return Err(wrong(format!(
                    "got {name:?}; pathcast-serve --help lists the options"
                )));
            }
        }
        let value = value.or_else(|| arguments.next());
        let value = value.ok_or_else(|| wrong(format!("{name} has no value")))?;
        match name.as_str() {
            "--listen" => {
                let address = value.parse::<SocketAddr>();
                listen = Some(address.map_err(|_| {
                    wrong(format!(
                        "--listen is {value:?}, expected such as 127.0.0.1:8080 or [::1]:8080"
                    ))
                })?);
            }
            "--state" => state = Some(PathBuf::from(value)),
            "--watch" => watch = Some(value.parse::<Ports>()?),
            _ => file = Some(PathBuf::from(value)),
        }
    }
    Config::from_options(file.as_deref(), listen, state, watch)
        .map(|config| Asked::Serve(Box::new(config)))
}

fn main() -> ExitCode {
    let served = match asked(std::env::args().skip(1)) {
        Ok(Asked::Print(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Ok(Asked::Serve(config)) => serve(*config, &Stop::default(), true, |_| ()),
        Err(error) => Err(error),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pathcast-serve: {error}");
            ExitCode::from(2)
        }
    }
}
