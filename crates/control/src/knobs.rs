//! The knobs of a server's network stack. A knob that is absent keeps the server's default.

use serde::{Deserialize, Serialize};

use crate::error::{ControlError, invalid, shown, within};

/// Longest name of a congestion control: TCP_CA_NAME_MAX less the NUL (linux/tcp.h).
const LONGEST_SCHEME: usize = 15;

/// Version of HTTP, by its ALPN name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HttpVersion {
    /// HTTP/1.1.
    #[serde(rename = "http/1.1")]
    Http1,
    /// HTTP/2.
    #[serde(rename = "h2")]
    Http2,
    /// HTTP/3.
    #[serde(rename = "h3")]
    Http3,
}

/// Version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    Tls13,
}

/// Pacing of TCP by the socket or the queueing discipline, for schemes that do not pace themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pacing {
    /// Packets are paced.
    On,
    /// Packets leave in bursts.
    Off,
}

/// The knobs of one template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Knobs {
    /// Congestion control by its kernel name, such as `bbr`: 1 to 15 lower-case letters, digits, `_` or `-`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Initial congestion window, packets: 1 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// Whether an idle connection starts slowly again (`tcp_slow_start_after_idle`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_start_after_idle: Option<bool>,
    /// Version of HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_version: Option<HttpVersion>,
    /// Whether small writes are joined (`tcp_autocorking`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autocorking: Option<bool>,
    /// Pacing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing: Option<Pacing>,
    /// Largest receive buffer, bytes: 4096 to 2^30.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer_bytes: Option<u64>,
    /// Largest send buffer, bytes: 4096 to 2^30.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_buffer_bytes: Option<u64>,
    /// What may wait unsent in a socket, bytes: 4096 to 2^30. What was written still comes of a download that is given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsent_bytes: Option<u64>,
    /// Initial receive window, packets: 1 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_receive_window: Option<u32>,
    /// Version of TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_version: Option<TlsVersion>,
    /// Size of TLS records, bytes: 512 to 16384.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_record_bytes: Option<u32>,
    /// How long an idle connection stays open, seconds: 0 to 3600; 0 closes it after each response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive_s: Option<u32>,
}

impl Knobs {
    /// Whether no knob is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks all ranges; `at` names the template.
    pub(crate) fn check(&self, at: &str) -> Result<(), ControlError> {
        if let Some(scheme) = &self.congestion_control {
            let fits = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-')
            };
            let is_name = (1..=LONGEST_SCHEME).contains(&scheme.len())
                && !scheme.starts_with('-')
                && scheme.bytes().all(fits);
            if !is_name {
                return Err(invalid(
                    format!("{at}.congestion_control"),
                    format!(
                        "got {:?}, expected 1 to {LONGEST_SCHEME} lower-case letters, digits, _ or -, such as bbr",
                        shown(scheme)
                    ),
                ));
            }
        }
        let buffers = (4096.0, f64::from(1_u32 << 30));
        #[allow(clippy::cast_precision_loss)] // ranges are far below 2^53
        for (name, value, (least, most)) in [
            (
                "initial_window",
                self.initial_window.map(f64::from),
                (1.0, 1000.0),
            ),
            (
                "receive_buffer_bytes",
                self.receive_buffer_bytes.map(|bytes| bytes as f64),
                buffers,
            ),
            (
                "send_buffer_bytes",
                self.send_buffer_bytes.map(|bytes| bytes as f64),
                buffers,
            ),
            (
                "unsent_bytes",
                self.unsent_bytes.map(|bytes| bytes as f64),
                buffers,
            ),
            (
                "initial_receive_window",
                self.initial_receive_window.map(f64::from),
                (1.0, 1000.0),
            ),
            (
                "tls_record_bytes",
                self.tls_record_bytes.map(f64::from),
                (512.0, 16_384.0),
            ),
            (
                "keep_alive_s",
                self.keep_alive_s.map(f64::from),
                (0.0, 3600.0),
            ),
        ] {
            if let Some(value) = value {
                within(|| format!("{at}.{name}"), value, least, most)?;
            }
        }
        Ok(())
    }
}
