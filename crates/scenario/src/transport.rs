//! What carries a flow, with its keys in a scenario file.

use std::fmt::Display;

use pathcast_path::reader::{Read, SIZE, Table};
use pathcast_path::{Defaults, Size};

use crate::quic::QuicScheme;
use crate::receive_window::ReceiveWindow;

/// Payload of a full packet of TCP with timestamps over IPv4 and an MTU of 1500 bytes.
pub const DEFAULT_MSS_BYTES: u32 = 1448;
/// Payload of a full packet of TCP over IPv4 with timestamps, which is what probes send by default.
const FULL_PAYLOAD_BYTES: u64 = DEFAULT_MSS_BYTES as u64;
/// The smallest that Linux takes (TCP_MIN_MSS), less the timestamps.
const MIN_MSS_BYTES: u64 = 88 - 12;

/// What carries a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP, with its congestion control and settings.
    Tcp {
        /// Congestion control, by name.
        scheme: String,
        /// The first window in packets; none: the scheme's.
        initial_window_packets: Option<u32>,
        /// What the receiver takes.
        receive_window: ReceiveWindow,
        /// Whether a flow that was idle begins with a smaller window.
        slow_start_after_idle: bool,
        /// Whether queues may mark its packets instead of dropping them.
        ecn: bool,
        /// Payload of a full packet, in bytes, without the 52 bytes of headers.
        mss_bytes: u32,
        /// Whether the connection opens over the links when the flow begins, and ends with a FIN; else it is
        /// open when the run begins.
        handshake: bool,
    },
    /// QUIC.
    Quic {
        /// The congestion control.
        scheme: QuicScheme,
        /// First window in datagrams; none: that of RFC 9002.
        initial_window_packets: Option<u32>,
        /// Whether datagrams are small at first and grow while probes find that larger ones arrive.
        mtu_discovery: bool,
        /// Whether the connection opens over the links when the flow begins; else it is open when the run begins.
        handshake: bool,
    },
    /// Datagrams as the application writes them.
    Udp,
}

impl Transport {
    /// TCP with its defaults.
    pub fn tcp(scheme: impl Into<String>) -> Self {
        Self::Tcp {
            scheme: scheme.into(),
            initial_window_packets: None,
            receive_window: ReceiveWindow::Unlimited,
            slow_start_after_idle: true,
            ecn: false,
            mss_bytes: DEFAULT_MSS_BYTES,
            handshake: false,
        }
    }

    /// QUIC if the scheme is one of QUIC's, else TCP with its defaults.
    pub fn by_scheme(scheme: impl Into<String>) -> Self {
        let scheme = scheme.into();
        QuicScheme::by_name(&scheme).map_or_else(|| Self::tcp(scheme), Self::quic)
    }

    /// QUIC with its defaults.
    pub const fn quic(scheme: QuicScheme) -> Self {
        Self::Quic {
            scheme,
            initial_window_packets: None,
            mtu_discovery: false,
            handshake: false,
        }
    }

    /// Payload of a full packet of TCP, in bytes.
    pub const fn mss_bytes(&self) -> u32 {
        match self {
            Self::Tcp { mss_bytes, .. } => *mss_bytes,
            Self::Quic { .. } | Self::Udp => DEFAULT_MSS_BYTES,
        }
    }

    /// Whether the connection opens when the flow begins.
    pub const fn has_handshake(&self) -> bool {
        matches!(
            self,
            Self::Tcp {
                handshake: true,
                ..
            } | Self::Quic {
                handshake: true,
                ..
            }
        )
    }

    /// The same transport, whose connections open when they are needed.
    #[must_use]
    pub const fn opening(mut self) -> Self {
        if let Self::Tcp { handshake, .. } = &mut self {
            *handshake = true;
        }
        self
    }

    /// Whether a kernel's TCP carries it, or the simulator's.
    pub const fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp { .. })
    }

    /// The congestion control, or `udp`.
    pub fn scheme(&self) -> &str {
        match self {
            Self::Tcp { scheme, .. } => scheme,
            Self::Quic { scheme, .. } => scheme.name(),
            Self::Udp => "udp",
        }
    }

    /// The keys of a flow that only QUIC has.
    pub(crate) const QUIC_KEYS: [&str; 1] = ["mtu_discovery"];

    /// The keys of a flow that only TCP has, but for those that [QUIC has too](Self::COMMON_KEYS).
    pub(crate) const TCP_KEYS: [&str; 6] = [
        "initial_window",
        "receive_window",
        "slow_start_after_idle",
        "ecn",
        "mss",
        "handshake",
    ];

    /// Of the keys of TCP, those of QUIC.
    const COMMON_KEYS: [&str; 2] = ["initial_window", "handshake"];

    /// The transport of a flow's table.
    pub(crate) fn read(table: Table<'_, '_>) -> Read<Self> {
        let scheme = table
            .need("scheme")?
            .text("a congestion control, or \"udp\"")?;
        if let Err(why) = QuicScheme::check(scheme) {
            return table.need("scheme")?.wrong(format_args!("got {why}"));
        }
        let first = table.get("initial_window");
        let initial_window_packets = || {
            let packets = first.map(|field| Ok(field.whole(1, 10_000)? as u32));
            packets.transpose()
        };
        let quic = QuicScheme::by_name(scheme);
        if let (None, [key]) = (quic, Self::QUIC_KEYS)
            && let Some(field) = table.get(key)
        {
            return field.wrong(format_args!("is of QUIC; {scheme} has none"));
        }
        let yes_or_no = |key, default| table.or(key, default, |field| field.boolean());
        if quic.is_some() || scheme == "udp" {
            for key in Self::TCP_KEYS {
                let has_it = quic.is_some() && Self::COMMON_KEYS.contains(&key);
                if let Some(field) = table.get(key)
                    && !has_it
                {
                    return field.wrong(format_args!("is of TCP; {scheme} has none"));
                }
            }
            return Ok(match quic {
                Some(scheme) => Self::Quic {
                    scheme,
                    initial_window_packets: initial_window_packets()?,
                    mtu_discovery: yes_or_no("mtu_discovery", false)?,
                    handshake: yes_or_no("handshake", false)?,
                },
                None => Self::Udp,
            });
        }
        Ok(Self::Tcp {
            scheme: scheme.to_string(),
            initial_window_packets: initial_window_packets()?,
            receive_window: table.or(
                "receive_window",
                ReceiveWindow::Unlimited,
                |field| ReceiveWindow::read(field, FULL_PAYLOAD_BYTES),
            )?,
            slow_start_after_idle: yes_or_no("slow_start_after_idle", true)?,
            ecn: yes_or_no("ecn", false)?,
            mss_bytes: table.or("mss", DEFAULT_MSS_BYTES, |field| {
                match field.quantity::<Size>(SIZE)?.as_bytes() {
                    bytes @ MIN_MSS_BYTES..=FULL_PAYLOAD_BYTES => Ok(bytes as u32),
                    bytes => field.wrong(format_args!(
                        "got {bytes} B, expected {MIN_MSS_BYTES} B to {FULL_PAYLOAD_BYTES} B: the payload of a \
                         full packet"
                    )),
                }
            })?,
            handshake: yes_or_no("handshake", false)?,
        })
    }

    /// Hands the keys beside `scheme`, with their values, to `line`. Defaults of TCP depend on `scheme`: other
    /// transports refuse these keys.
    pub(crate) fn write_keys(&self, defaults: Defaults, line: &mut impl FnMut(&str, &dyn Display)) {
        if let Self::Quic {
            initial_window_packets,
            mtu_discovery,
            handshake,
            ..
        } = self
        {
            if let Some(packets) = initial_window_packets {
                line("initial_window", packets);
            }
            if *mtu_discovery {
                line("mtu_discovery", mtu_discovery);
            }
            if *handshake {
                line("handshake", handshake);
            }
        }
        if let Self::Tcp {
            initial_window_packets,
            receive_window,
            slow_start_after_idle,
            ecn,
            mss_bytes,
            handshake,
            ..
        } = self
        {
            if let Some(packets) = initial_window_packets {
                line("initial_window", packets);
            }
            if *receive_window != ReceiveWindow::Unlimited {
                line("receive_window", receive_window);
            }
            let all = defaults == Defaults::All;
            if all || !slow_start_after_idle {
                line("slow_start_after_idle", slow_start_after_idle);
            }
            if all || *ecn {
                line("ecn", ecn);
            }
            if all || *mss_bytes != DEFAULT_MSS_BYTES {
                line("mss", &format_args!("\"{mss_bytes} B\""));
            }
            if all || *handshake {
                line("handshake", handshake);
            }
        }
    }
}
