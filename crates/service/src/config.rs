//! The configuration: a file in TOML, and what the command line adds.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use pathcast_web::{Access, Limits};
use serde::Deserialize;

use crate::error::ServiceError;
use crate::ports::Ports;

/// All options. `docs/reference/serve.md` documents each.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// Folder of the state; none: nothing is kept.
    pub state: Option<PathBuf>,
    /// Sockets of this host whose flows are samples; none: samples are sent.
    pub watch: Option<Ports>,
    /// Length of the sliding window, seconds.
    pub window_s: f64,
    /// Most client prefixes that are kept.
    pub prefixes: usize,
    /// Threads that answer requests; 0: one for each core.
    pub threads: usize,
    /// Congestion control of the servers, for pages and transfers.
    pub scheme: String,
    /// Protocols that the servers offer.
    pub protocols: Vec<String>,
    /// Loads of a page by each protocol behind a decision.
    pub loads: usize,
    /// Share of the HTTP decisions that are drawn at random.
    pub explore: f64,
    /// Table of networks and regions by prefix, CSV.
    pub networks: Option<PathBuf>,
    /// Limits of requests and connections.
    pub limits: Limits,
    /// Who may ask.
    pub access: Access,
    /// The log of decisions.
    pub decision_log: DecisionLog,
}

/// The log of decisions.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DecisionLog {
    /// Whether decisions and outcomes are written to the state folder.
    pub enabled: bool,
    /// A file that is larger is replaced by a new one; one older file is kept.
    pub bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            state: None,
            watch: None,
            window_s: 600.0,
            prefixes: 100_000,
            threads: 0,
            scheme: "cubic".into(),
            protocols: vec!["http/1.1".into(), "h2".into(), "h3".into()],
            loads: 20,
            explore: 0.0,
            networks: None,
            limits: Limits::default(),
            access: Access::default(),
            decision_log: DecisionLog::default(),
        }
    }
}

impl Default for DecisionLog {
    fn default() -> Self {
        Self {
            enabled: true,
            bytes: 256 << 20,
        }
    }
}

impl Config {
    /// The options of a file, if there is one, with those of the command line.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn from_options(
        file: Option<&Path>,
        listen: Option<SocketAddr>,
        state: Option<PathBuf>,
        watch: Option<Ports>,
    ) -> Result<Self, ServiceError> {
        let mut config = match file {
            Some(file) => Self::parse(file)?,
            None => Self::default(),
        };
        config.listen = listen.unwrap_or(config.listen);
        config.state = state.or(config.state);
        config.watch = watch.or(config.watch);
        config.check()?;
        Ok(config)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`ServiceError::Config`] with line and column for an unknown key, a wrong type, or a value out of range.
    pub fn read(file: &Path) -> Result<Self, ServiceError> {
        let config = Self::parse(file)?;
        config.check()?;
        Ok(config)
    }

    fn parse(file: &Path) -> Result<Self, ServiceError> {
        let wrong =
            |message: String| ServiceError::Config(format!("{}: {message}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
        toml::from_str(&text).map_err(|error| wrong(error.to_string()))
    }

    /// Checks the ranges of all values.
    ///
    /// # Errors
    /// [`ServiceError::Config`] names the first that is out of range, or what is missing to listen beyond this machine.
    pub fn check(&self) -> Result<(), ServiceError> {
        let wrong = |message: String| Err(ServiceError::Config(message));
        for (name, value, least, most) in [
            ("window_s", self.window_s, 1.0, 1e7),
            ("explore", self.explore, 0.0, 1.0),
        ] {
            if !(least..=most).contains(&value) {
                return wrong(format!("{name} is {value}, expected {least} to {most}"));
            }
        }
        for (name, value, least, most) in [
            ("prefixes", self.prefixes, 1, 100_000_000),
            ("threads", self.threads, 0, 1024),
            ("loads", self.loads, 1, 1000),
        ] {
            if !(least..=most).contains(&value) {
                return wrong(format!("{name} is {value}, expected {least} to {most}"));
            }
        }
        if self.scheme.is_empty() || self.scheme.len() > 15 {
            return wrong(format!(
                "scheme is {:?}, expected a name such as cubic",
                self.scheme
            ));
        }
        if self.protocols.is_empty() {
            return wrong("protocols is empty, expected some of http/1.1, h2, h3".into());
        }
        self.limits.check()?;
        Ok(self.access.check(self.listen)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, ServiceError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Config::read(file.path())
    }

    #[test]
    fn an_empty_file_is_all_defaults() {
        assert_eq!(read("").unwrap(), Config::default());
        assert_eq!(
            read("prefixes = 7\n[limits]\nconnections = 9")
                .unwrap()
                .limits
                .connections,
            9
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (text, said) in [
            ("prefixs = 7", "unknown field"),
            ("[limits]\nbody = 7", "unknown field"),
            ("prefixes = 0", "prefixes is 0"),
            ("window_s = nan", "window_s is NaN"),
            ("watch = 'https'", "expected a port"),
            ("watch = 0", "expected a port"),
            ("listen = 'here'", "listen"),
            ("listen = '0.0.0.0:80'", "other machines"),
            (
                "listen = '0.0.0.0:80'\n[access]\ntokens = 't'",
                "other machines",
            ),
            ("[access]\nkey = 'k'", "go together"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
