//! Limits of requests and connections, and who may ask.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

use crate::error::WebError;

/// Limits of requests and connections.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Most connections at a time.
    pub connections: usize,
    /// Most bytes of a request's body.
    pub body_bytes: usize,
    /// Most bytes of a body once it is unpacked.
    pub unpacked_bytes: usize,
    /// Longest time until a request's header is complete; idle connections are closed after it too.
    pub header_timeout_s: f64,
    /// Longest time until a body is complete.
    pub body_timeout_s: f64,
    /// Most requests a second of one token, or without tokens of one address; 0: no limit.
    pub requests_per_s: f64,
    /// Longest time that running requests may take once the service stops.
    pub stop_timeout_s: f64,
}

/// Who may ask.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    /// File of tokens, one a line.
    pub tokens: Option<PathBuf>,
    /// Certificate chain of the service, PEM.
    pub certificate: Option<PathBuf>,
    /// Its private key, PEM.
    pub key: Option<PathBuf>,
    /// Authorities that sign the certificates of clients, PEM: clients must have one (mTLS).
    pub client_authorities: Option<PathBuf>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            body_bytes: 16 << 20,
            unpacked_bytes: 64 << 20,
            header_timeout_s: 60.0,
            body_timeout_s: 30.0,
            requests_per_s: 0.0,
            stop_timeout_s: 5.0,
        }
    }
}

impl Limits {
    /// Checks the ranges of all values.
    ///
    /// # Errors
    /// [`WebError`] names the first that is out of range.
    pub fn check(&self) -> Result<(), WebError> {
        for (name, value, least, most) in [
            (
                "limits.header_timeout_s",
                self.header_timeout_s,
                0.1,
                86_400.0,
            ),
            ("limits.body_timeout_s", self.body_timeout_s, 0.1, 86_400.0),
            ("limits.requests_per_s", self.requests_per_s, 0.0, 1e9),
            ("limits.stop_timeout_s", self.stop_timeout_s, 0.0, 600.0),
        ] {
            if !(least..=most).contains(&value) {
                return Err(WebError(format!(
                    "{name} is {value}, expected {least} to {most}"
                )));
            }
        }
        for (name, value, least, most) in [
            ("limits.connections", self.connections, 1, 1_000_000),
            ("limits.body_bytes", self.body_bytes, 1024, 1 << 30),
            ("limits.unpacked_bytes", self.unpacked_bytes, 1024, 4 << 30),
        ] {
            if !(least..=most).contains(&value) {
                return Err(WebError(format!(
                    "{name} is {value}, expected {least} to {most}"
                )));
            }
        }
        Ok(())
    }
}

impl Access {
    /// Checks that files go together, and that an address beyond loopback has TLS and tokens.
    ///
    /// # Errors
    /// [`WebError`] names what is missing.
    pub fn check(&self, listen: SocketAddr) -> Result<(), WebError> {
        let wrong = |message: &str| Err(WebError(message.into()));
        if self.certificate.is_some() != self.key.is_some() {
            return wrong("access.certificate and access.key go together, one is missing");
        }
        if self.client_authorities.is_some() && self.key.is_none() {
            return wrong("access.client_authorities needs access.certificate and access.key");
        }
        let is_known = self.tokens.is_some() || self.client_authorities.is_some();
        let is_safe = is_known && self.key.is_some();
        if !(is_safe || listen.ip().is_loopback()) {
            return Err(WebError(format!(
                "listen is {listen}, which other machines can reach; expected access.certificate, access.key, and \
                 access.tokens or access.client_authorities, or an address such as 127.0.0.1:8080"
            )));
        }
        Ok(())
    }
}
