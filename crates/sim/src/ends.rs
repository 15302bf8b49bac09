//! What the two ends of a connection are given of a flow's transport.

use pathcast_scenario::Transport;
use pathcast_tcp::{GrowingBuffer, SenderConfig, Start};

/// The receiver's buffer, if that grows.
pub fn growing_buffer(transport: &Transport) -> Option<GrowingBuffer> {
    let Transport::Tcp {
        receive_window,
        mss_bytes,
        ..
    } = transport
    else {
        return None;
    };
    receive_window
        .auto_buffer_bytes()
        .map(|largest_bytes| GrowingBuffer {
            mss_bytes: *mss_bytes,
            largest_bytes,
        })
}

/// What a flow's sender begins with.
pub fn sender_config(transport: &Transport, start: Start) -> SenderConfig {
    let idle = SenderConfig {
        packets: Some(0),
        start,
        ..SenderConfig::default()
    };
    match transport {
        Transport::Udp | Transport::Quic { .. } => idle,
        Transport::Tcp {
            initial_window_packets,
            receive_window,
            slow_start_after_idle,
            ecn,
            mss_bytes,
            ..
        } => SenderConfig {
            mss_bytes: *mss_bytes,
            initial_window_packets: *initial_window_packets,
            receive_window_packets: receive_window
                .fixed_bytes()
                .map_or(idle.receive_window_packets, |bytes| {
                    (bytes / u64::from(*mss_bytes)).max(1)
                }),
            first_receive_window_packets: growing_buffer(transport)
                .map(GrowingBuffer::first_window_packets),
            slow_start_after_idle: *slow_start_after_idle,
            ecn: *ecn,
            ..idle
        },
    }
}
