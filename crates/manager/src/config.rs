//! The configuration: a file in TOML, and what the command line adds.

use std::net::SocketAddr;
use std::path::Path;

use pathcast_control::Settings;
use pathcast_web::{Access, Limits};
use serde::Deserialize;

use crate::error::ManagerError;

/// All options. `docs/reference/manager.md` documents each.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// Database of the state: `sqlite:///FILE` or `postgresql://...`.
    pub state: String,
    /// Placement and guardrails.
    pub guardrails: Settings,
    /// Limits of requests and connections.
    pub limits: Limits,
    /// Who may ask.
    pub access: Access,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8090)),
            state: "sqlite://pathcast-manager.sqlite".into(),
            guardrails: Settings::default(),
            limits: Limits::default(),
            access: Access::default(),
        }
    }
}

impl Config {
    /// The configuration of a file, if there is one, and options that replace its keys.
    ///
    /// # Errors
    /// [`ManagerError::Config`] if the file cannot be read, a key is unknown, or a value is out of range.
    pub fn from_options(
        file: Option<&Path>,
        listen: Option<SocketAddr>,
        state: Option<String>,
    ) -> Result<Self, ManagerError> {
        let mut config = match file {
            None => Self::default(),
            Some(file) => {
                let wrong = |message: String| {
                    ManagerError::Config(format!("{}: {message}", file.display()))
                };
                let text =
                    std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
                toml::from_str(&text).map_err(|error| wrong(error.to_string()))?
            }
        };
        config.listen = listen.unwrap_or(config.listen);
        config.state = state.unwrap_or(config.state);
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ManagerError> {
        let wrong = |error: pathcast_control::ControlError| {
            ManagerError::Config(format!("guardrails.{error}"))
        };
        self.guardrails.check().map_err(wrong)?;
        self.limits.check()?;
        self.access.check(self.listen)?;
        if ["sqlite:", "postgresql://", "postgres://"]
            .iter()
            .any(|one| self.state.starts_with(one))
        {
            return Ok(());
        }
        // no value in the message: a password may be in it
        let message =
            "state is no URL of a database, expected sqlite:///FILE or postgresql://USER@HOST/NAME";
        Err(ManagerError::Config(message.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_options_are_refused_with_the_reason() {
        for (text, said) in [
            ("stat = 'x'", "unknown field"),
            ("state = 'mysql://secret@x'", "expected sqlite:///FILE"),
            ("listen = '0.0.0.0:1'", "other machines"),
            (
                "[guardrails]\nhold_out = 0.9",
                "guardrails.hold_out: got 0.9",
            ),
            ("[guardrails]\nholdout = 0.1", "unknown field"),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            let error = Config::from_options(Some(file.path()), None, None)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(said) && !error.contains("secret"),
                "{text}: {error}"
            );
        }
        assert_eq!(
            Config::from_options(None, None, None).unwrap(),
            Config::default()
        );
    }
}
