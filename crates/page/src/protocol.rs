//! The versions of HTTP.

use std::fmt;
use std::str::FromStr;

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// HTTP/1.1: up to six connections to an origin, one request at a time on each.
    Http1,
    /// HTTP/2: one connection to an origin, responses interleaved in one stream of bytes.
    Http2,
    /// HTTP/3: one connection of QUIC to an origin, a stream for each request.
    Http3,
}

/// A name that is not a [`Protocol`]'s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownProtocol(String);

impl fmt::Display for UnknownProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "got {:?}, expected \"http/1.1\", \"h2\" or \"h3\"",
            self.0
        )
    }
}

impl std::error::Error for UnknownProtocol {}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Http1, Self::Http2, Self::Http3];

    /// Connections to one origin that a browser opens at most.
    pub const fn connections_per_origin(self) -> usize {
        match self {
            Self::Http1 => 6,
            Self::Http2 | Self::Http3 => 1,
        }
    }

    /// Whether QUIC carries it; TCP carries the others.
    pub const fn is_over_quic(self) -> bool {
        matches!(self, Self::Http3)
    }

    /// Its name as TLS negotiates it (ALPN).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http/1.1",
            Self::Http2 => "h2",
            Self::Http3 => "h3",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "http/1.1" | "h1" => Ok(Self::Http1),
            "h2" | "http/2" => Ok(Self::Http2),
            "h3" | "http/3" => Ok(Self::Http3),
            other => Err(UnknownProtocol(other.into())),
        }
    }
}
