//! Which sockets of this host are watched.

use std::str::FromStr;

use serde::Deserialize;
use serde::de::Error as _;

use crate::error::ServiceError;

/// Which sockets are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ports {
    /// Those of all ports.
    All,
    /// Those of one port of this host.
    One(u16),
}

impl FromStr for Ports {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, ServiceError> {
        match (text, text.parse::<u16>()) {
            ("all", _) => Ok(Self::All),
            (_, Ok(port)) if port > 0 => Ok(Self::One(port)),
            _ => Err(ServiceError::Config(format!(
                "watch is {text:?}, expected a port of this host, or all"
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Port(u16),
            Text(String),
        }
        let text = match Either::deserialize(from)? {
            Either::Port(port) => port.to_string(),
            Either::Text(text) => text,
        };
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_or_all() {
        assert_eq!("443".parse::<Ports>().unwrap(), Ports::One(443));
        assert_eq!("all".parse::<Ports>().unwrap(), Ports::All);
        for text in ["0", "", "65536", "https", "-1"] {
            let error = text.parse::<Ports>().unwrap_err().to_string();
            assert!(error.contains("expected a port"), "{error}");
        }
    }
}
