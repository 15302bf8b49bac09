//! `pathcast-manager`: the manager without Python.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use pathcast_manager::{Config, ManagerError, Stop, serve};

const HELP: &str = "\
Decide which server configuration each client prefix gets, from reports of agents.

usage: pathcast-manager [--listen ADDRESS:PORT] [--state URL] [--config FILE]

  --listen ADDRESS:PORT  where to listen; default: 127.0.0.1:8090, this machine only
  --state URL            sqlite:///FILE or postgresql://USER@HOST/NAME;
                         default: sqlite://pathcast-manager.sqlite, a file in this folder
  --config FILE          configuration in TOML
  --version              print the version
  --help                 print this

Example: pathcast-manager --state sqlite:///var/lib/pathcast/manager.sqlite
";

/// What the command line asks for.
enum Asked {
    Serve(Box<Config>),
    Print(String),
}

fn asked(mut arguments: impl Iterator<Item = String>) -> Result<Asked, ManagerError> {
    let wrong = |message: String| ManagerError::Config(message);
    let (mut listen, mut state, mut file) = (None, None, None);
    while let Some(argument) = arguments.next() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name.to_string(), Some(value.to_string())),
            None => (argument, None),
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(Asked::Print(HELP.into())),
            "--version" => return Ok(Asked::Print(format!("{}\n", env!("CARGO_PKG_VERSION")))),
            "--listen" | "--state" | "--config" => {}
            _ => {
                return Err(wrong(format!(
                    "got {name:?}; pathcast-manager --help lists the options"
                )));
            }
        }
        let value = value.or_else(|| arguments.next());
        let value = value.ok_or_else(|| wrong(format!("{name} has no value")))?;
        match name.as_str() {
            "--listen" => {
                let address = value.parse::<SocketAddr>();
                let expected = "expected such as 127.0.0.1:8090 or [::1]:8090";
                listen =
                    Some(address.map_err(|_| wrong(format!("--listen is {value:?}, {expected}")))?);
            }
            "--state" => state = Some(value),
            _ => file = Some(PathBuf::from(value)),
        }
    }
    Config::from_options(file.as_deref(), listen, state)
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
            eprintln!("pathcast-manager: {error}");
            ExitCode::from(2)
        }
    }
}
