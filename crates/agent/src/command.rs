//! The command line of the agent.

use std::path::PathBuf;

use crate::agent::{dry_run, run, uninstall};
use crate::error::AgentError;
use crate::manager::Manager;
use crate::settings::Settings;
use crate::space::space;

/// What `--help` prints.
pub const HELP: &str = "\
Apply a manager's configuration to this server, by client prefix, and report what clients get.

usage: pathcast-agent --manager URL --token-file FILE [--config FILE] [--dry-run]
       pathcast-agent --uninstall [--config FILE] [--dry-run]
       pathcast-agent --space

  --manager URL      the manager; beyond this machine it must be https
  --token-file FILE  the agent's secret, 64 hexadecimal digits; mode 600
  --config FILE      settings in TOML
  --name NAME        the agent's name; default: the host's
  --state DIR        folder of what it keeps; default: /var/lib/pathcast-agent
  --dry-run          print every command and change nothing
  --uninstall        remove all that it set, and put back what was there before
  --space            print what can be configured here, as JSON
  --version          print the version
  --help             print this

Example: pathcast-agent --manager https://manager.example.net --token-file /etc/pathcast/token
";

/// What the command line asks for.
#[derive(Debug, Default, PartialEq)]
struct Asked {
    manager: Option<String>,
    token_file: Option<PathBuf>,
    config: Option<PathBuf>,
    name: Option<String>,
    state: Option<PathBuf>,
    dry_run: bool,
    uninstall: bool,
    space: bool,
    print: Option<String>,
}

fn asked(mut arguments: impl Iterator<Item = String>) -> Result<Asked, AgentError> {
    let wrong = |message: String| AgentError::Settings(message);
    let mut asked = Asked::default();
    while let Some(argument) = arguments.next() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name.to_string(), Some(value.to_string())),
            None => (argument, None),
        };
        let flag = match name.as_str() {
            "--help" | "-h" => {
                asked.print = Some(HELP.into());
                return Ok(asked);
            }
            "--version" => {
                asked.print = Some(format!("{}\n", env!("CARGO_PKG_VERSION")));
                return Ok(asked);
            }
            "--dry-run" => Some(&mut asked.dry_run),
            "--uninstall" => Some(&mut asked.uninstall),
            "--space" => Some(&mut asked.space),
            "--manager" | "--token-file" | "--config" | "--name" | "--state" => None,
            _ => {
                return Err(wrong(format!(
                    "got {name:?}; pathcast-agent --help lists the options"
                )));
            }
        };
        if let Some(flag) = flag {
            if value.is_some() {
                return Err(wrong(format!("{name} takes no value")));
            }
            *flag = true;
            continue;
        }
        let value = value.or_else(|| arguments.next());
        let value = value.ok_or_else(|| wrong(format!("{name} has no value")))?;
        match name.as_str() {
            "--manager" => asked.manager = Some(value),
            "--token-file" => asked.token_file = Some(value.into()),
            "--config" => asked.config = Some(value.into()),
            "--name" => asked.name = Some(value),
            _ => asked.state = Some(value.into()),
        }
    }
    Ok(asked)
}

/// Does what a command line asks for; without `--dry-run` or `--uninstall`, until the process ends.
///
/// # Errors
/// [`AgentError`], for a message on standard error and exit code 2.
pub fn command(arguments: impl Iterator<Item = String>) -> Result<(), AgentError> {
    let asked = asked(arguments)?;
    if let Some(text) = asked.print {
        print!("{text}");
        return Ok(());
    }
    if asked.space {
        let text = serde_json::to_string_pretty(&space()).map_err(AgentError::refused)?;
        println!("{text}");
        return Ok(());
    }
    let mut settings = Settings::read(asked.config.as_deref())?;
    if let Some(name) = asked.name {
        pathcast_control::report::check_agent(&name)
            .map_err(|error| AgentError::Settings(format!("--name: {error}")))?;
        settings.name = name;
    }
    if let Some(state) = asked.state {
        settings.state = state;
    }
    if asked.uninstall {
        return uninstall(settings, asked.dry_run);
    }
    let (Some(url), Some(file)) = (asked.manager, asked.token_file) else {
        return Err(AgentError::Settings(
            "expected --manager URL and --token-file FILE; pathcast-agent --help has an example"
                .into(),
        ));
    };
    let manager = Manager::new(&url, &file, &settings)?;
    match asked.dry_run {
        true => dry_run(&manager, settings),
        false => run(&manager, settings),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Asked, String> {
        asked(line.split_whitespace().map(String::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn options_have_values_by_space_or_equals_sign() {
        let found = read("--manager=http://127.0.0.1:1 --token-file t --dry-run").unwrap();
        assert_eq!(found.manager.as_deref(), Some("http://127.0.0.1:1"));
        assert!(found.dry_run && !found.uninstall);
        assert!(read("--uninstall --state /s").unwrap().uninstall);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, said) in [
            ("--managr x", "--help lists"),
            ("--manager", "no value"),
            ("--dry-run=yes", "takes no value"),
        ] {
            assert!(read(line).unwrap_err().contains(said), "{line}");
        }
        let error = command(["--dry-run".to_string()].into_iter())
            .unwrap_err()
            .to_string();
        assert!(error.contains("--manager URL"), "{error}");
    }
}
