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

/// Which response a server of HTTP/2 or HTTP/3 sends first.
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

/// What a browser takes itself, in processor time. Two of its threads matter, and each does one thing after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Browser {
    /// From the first byte of a document that nothing else causes until what it names can begin: it shows a new page.
    pub navigation: Span,
    /// The network thread for each response, before the connection takes another request.
    pub network_thread: Span,
    /// The main thread for each response, before what the response causes can begin.
    pub main_thread: Span,
}

impl Browser {
    /// One that takes no time.
    pub const NONE: Self = Self {
        navigation: Span::ZERO,
        network_thread: Span::ZERO,
        main_thread: Span::ZERO,
    };
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
    /// Which response a server of HTTP/2 or HTTP/3 sends first.
    pub streams: StreamOrder,
    /// Whether the browser has been to all origins before and HTTP/3 asks with its first packets (0-RTT).
    pub early_data: bool,
    /// What the browser takes itself.
    pub browser: Browser,
}

impl Http {
    /// TLS 1.3 with a certificate of 3 kB, names that are known, origins that are not. HTTP/2 sends responses in the order
    /// of priority, HTTP/3 in turn: the servers that most run, nginx and quic-go's, ignore what Chromium asks for there.
    pub const fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            tls: Tls::V1_3,
            certificate_bytes: 3000,
            dns: Span::ZERO,
            streams: match protocol {
                Protocol::Http1 | Protocol::Http2 => StreamOrder::Priority,
                Protocol::Http3 => StreamOrder::RoundRobin,
            },
            early_data: false,
            browser: Browser::NONE,
        }
    }

    /// Payload of a record of the server. Only a record that is whole can be read. Over TCP it is the largest of TLS, which
    /// nginx fills if it can (`ssl_buffer_size`); QUIC secures each packet by itself.
    pub(super) const fn record_bytes(&self) -> u64 {
        match self.protocol {
            Protocol::Http1 | Protocol::Http2 => 16_384,
            Protocol::Http3 => 1400,
        }
    }

    /// Bytes of a record beside its payload: those of TLS (RFC 8446, 5.2), and of two frames (RFC 9113, 4.1; nginx's
    /// `http2_chunk_size` is half a record).
    pub(super) const fn overhead_bytes(&self) -> u64 {
        if self.protocol.is_over_quic() {
            return 0; // the transport's packets have it
        }
        let tls = match self.tls {
            Tls::None => 0,
            Tls::V1_2 => 29,
            Tls::V1_3 => 22,
        };
        let frame = match self.protocol {
            Protocol::Http1 | Protocol::Http3 => 0,
            Protocol::Http2 => 18,
        };
        tls + frame
    }

    /// Bytes of a header that takes `bytes` in HTTP/1.1: HPACK leaves two thirds of the first on a
    /// connection, for many values are in its table, and a fifth of later ones, which repeat them. QPACK leaves two thirds
    /// of each, as nginx and quic-go keep no table of what has come, and frames take six bytes (RFC 9114, 7.1).
    pub(super) fn header_bytes(&self, bytes: u64, is_first: bool) -> u64 {
        match (self.protocol, is_first) {
            (Protocol::Http1, _) => bytes,
            (Protocol::Http2, true) => bytes * 2 / 3,
            (Protocol::Http2, false) => (bytes / 5).max(20),
            (Protocol::Http3, _) => bytes * 2 / 3 + 6,
        }
    }
}
