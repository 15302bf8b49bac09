//! Schemes by name, as users and the kernel call them.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::controller::Controller;
use crate::cubic::{Cubic, CubicConfig};
use crate::reno::Reno;

/// A congestion controller that the simulator can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `cubic`: CUBIC as Linux has it.
    Cubic,
    /// `cubic-rfc9438`: CUBIC as RFC 9438 has it.
    CubicRfc9438,
    /// `reno`.
    Reno,
}

/// A name that is no scheme.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} is no scheme of the simulator, expected one of {names}", names = Scheme::names())]
pub struct SchemeError(pub String);

impl Scheme {
    /// All schemes.
    pub const ALL: [Self; 3] = [Self::Cubic, Self::CubicRfc9438, Self::Reno];

    /// The scheme's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::CubicRfc9438 => "cubic-rfc9438",
            Self::Reno => "reno",
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// The controller of a new connection.
    pub fn controller(self) -> Box<dyn Controller> {
        match self {
            Self::Cubic => Box::new(Cubic::new(CubicConfig::linux())),
            Self::CubicRfc9438 => Box::new(Cubic::new(CubicConfig::rfc9438())),
            Self::Reno => Box::new(Reno::default()),
        }
    }
}

impl FromStr for Scheme {
    type Err = SchemeError;
    fn from_str(name: &str) -> Result<Self, SchemeError> {
        Self::ALL
            .into_iter()
            .find(|scheme| scheme.name() == name)
            .ok_or_else(|| SchemeError(name.to_string()))
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
