//! How browser and servers speak HTTP.

use std::str::FromStr;

use pathcast_page::Protocol;
use pathcast_path::Span;
use pathcast_path::reader::by_name;

/// What secures the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Nothing.
    None,
    /// TLS 1.2: two round trips before the first request.
    V1_2,
    /// TLS 1.3: one.
    V1_3,
}

impl Tls {
    const NAMES: [(Self, &str); 3] = [
        (Self::None, "none"),
        (Self::V1_2, "1.2"),
        (Self::V1_3, "1.3"),
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }
}

impl FromStr for Tls {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        by_name(&Self::NAMES, text)
    }
}

/// Which response a server of HTTP/2 sends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOrder {
    /// The most urgent one, and among equals the one that was asked for first: what Chromium asks for, and nginx does.
    Priority,
    /// A record of each in turn.
    RoundRobin,
}

impl StreamOrder {
    const NAMES: [(Self, &str); 2] = [
        (Self::Priority, "priority"),
        (Self::RoundRobin, "round-robin"),
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }
}

impl FromStr for StreamOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        by_name(&Self::NAMES, text)
    }
}

/// How browser and servers speak HTTP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Http {
    /// The version.
    pub protocol: Protocol,
    /// What secures the connections.
    pub tls: Tls,
    /// Bytes of the server's certificates with all that it sends beside them; a connection that resumes a session does
    /// without.
    pub certificate_bytes: u64,
    /// How long the name of an origin takes to be resolved.
    pub dns: Span,
    /// Which response a server of HTTP/2 sends first.
    pub streams: StreamOrder,
}

impl Http {
    /// TLS 1.3 with a certificate of 3 kB, names that are known, responses in the order of priority.
    pub const fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            tls: Tls::V1_3,
            certificate_bytes: 3000,
            dns: Span::ZERO,
            streams: StreamOrder::Priority,
        }
    }

    /// Payload of a record of the server: the largest of TLS, which nginx fills if it can (`ssl_buffer_size`). Only a
    /// record that is whole can be read.
    pub(super) const RECORD_BYTES: u64 = 16_384;

    /// Bytes of a record beside its payload: those of TLS (RFC 8446, 5.2), and of two frames (RFC 9113, 4.1; nginx's
    /// `http2_chunk_size` is half a record).
    pub(super) const fn overhead_bytes(&self) -> u64 {
        let tls = match self.tls {
            Tls::None => 0,
            Tls::V1_2 => 29,
            Tls::V1_3 => 22,
        };
        let frame = match self.protocol {
            Protocol::Http1 => 0,
            Protocol::Http2 => 18,
        };
        tls + frame
    }

    /// Bytes of a header that takes `bytes` in HTTP/1.1: HPACK leaves two thirds of the first on a
    /// connection, for many values are in its table, and a fifth of later ones, which repeat them.
    pub(super) fn header_bytes(&self, bytes: u64, is_first: bool) -> u64 {
        match (self.protocol, is_first) {
            (Protocol::Http1, _) => bytes,
            (Protocol::Http2, true) => bytes * 2 / 3,
            (Protocol::Http2, false) => (bytes / 5).max(20),
        }
    }
}
