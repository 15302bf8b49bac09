//! What the receiver of a flow over TCP takes: the key `receive_window`.

use std::fmt;

use pathcast_path::Size;
use pathcast_path::reader::{Field, Read};

const EXPECTED: &str = "a size with its unit such as \"500 kB\", or \"auto\"";

/// The largest window that TCP can say (RFC 7323, section 2.3).
const MOST_WINDOW_BYTES: u64 = 1 << 30;
/// The buffer that a connection begins with (Linux's net.ipv4.tcp_rmem, the second number).
const LEAST_BUFFER_BYTES: u64 = 131_072;
/// The largest that it grows to (the third number since Linux 6.16; 6 MB before).
const DEFAULT_BUFFER_BYTES: u64 = 32 << 20;

/// What the receiver of a flow takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiveWindow {
    /// It is never in the way.
    #[default]
    Unlimited,
    /// A fixed number of bytes.
    Fixed {
        /// The most that it takes.
        bytes: u64,
    },
    /// As much as the buffer has room for, which grows with what arrives in a round trip.
    Auto {
        /// The most that the buffer grows to, packets' overhead included.
        buffer_bytes: u64,
    },
}

impl ReceiveWindow {
    /// The fixed window, if it is fixed.
    pub const fn fixed_bytes(self) -> Option<u64> {
        match self {
            Self::Fixed { bytes } => Some(bytes),
            Self::Unlimited | Self::Auto { .. } => None,
        }
    }

    /// The largest buffer, if it grows.
    pub const fn auto_buffer_bytes(self) -> Option<u64> {
        match self {
            Self::Auto { buffer_bytes } => Some(buffer_bytes),
            Self::Unlimited | Self::Fixed { .. } => None,
        }
    }

    /// The value of the key, of flows whose full packets have a payload of `packet_bytes`.
    pub(crate) fn read(field: Field<'_, '_>, packet_bytes: u64) -> Read<Self> {
        const AUTO: ReceiveWindow = ReceiveWindow::Auto {
            buffer_bytes: DEFAULT_BUFFER_BYTES,
        };
        if field.is_table() {
            let (_, table) = field.kind(&[("auto", &["buffer"])])?;
            return table.or("buffer", AUTO, |field| {
                match field.quantity::<Size>("a size with its unit")?.as_bytes() {
                    buffer_bytes @ LEAST_BUFFER_BYTES..=MOST_WINDOW_BYTES => {
                        Ok(Self::Auto { buffer_bytes })
                    }
                    bytes => field.wrong(format_args!(
                        "got {bytes} B, expected {LEAST_BUFFER_BYTES} B, which the buffer begins with, to \
                         {MOST_WINDOW_BYTES} B"
                    )),
                }
            });
        }
        if field.text(EXPECTED)? == "auto" {
            return Ok(AUTO);
        }
        let bytes = field.quantity::<Size>(EXPECTED)?.as_bytes();
        if bytes < packet_bytes {
            return field.wrong(format_args!("expected at least {packet_bytes} B, a packet"));
        }
        Ok(Self::Fixed {
            bytes: bytes.min(MOST_WINDOW_BYTES),
        })
    }
}

/// As in a scenario file; nothing if there is no limit.
impl fmt::Display for ReceiveWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => Ok(()),
            Self::Fixed { bytes } => write!(f, "\"{bytes} B\""),
            Self::Auto { buffer_bytes } => {
                write!(f, "{{ kind = \"auto\", buffer = \"{buffer_bytes} B\" }}")
            }
        }
    }
}
