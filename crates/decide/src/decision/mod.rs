//! The decisions: each from the state of a path.

pub mod bitrate;
pub mod http;
pub mod session;
pub mod transfer;

/// Payload of a packet, bits.
const PACKET_BITS: f64 = 8.0 * 1448.0;

/// The cell of a positive number on a scale of its logarithm: neighbors share an answer.
fn cell(value: f64, width: f64) -> u16 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
    let cell = (value.max(1e-9).ln() / width + 1000.0) as u16;
    cell
}
