//! The Internet checksum (RFC 1071), whole and partial.

/// Adds the 16-bit words of `bytes` to `sum`; the end of odd bytes is padded.
pub(crate) fn add(sum: u64, bytes: &[u8]) -> u64 {
    let mut chunks = bytes.chunks_exact(2);
    let words = chunks.by_ref();
    let sum: u64 = words.fold(sum, |sum, word| {
        sum + u64::from(u16::from_be_bytes([word[0], word[1]]))
    });
    match chunks.remainder() {
        [last] => sum + (u64::from(*last) << 8),
        _ => sum,
    }
}

/// The one's complement sum in 16 bits.
pub(crate) const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Completes a checksum at `offset` bytes after `start`, which covers everything from `start` on and holds
/// the sum of the pseudo header. Gives `false` if the packet does not reach that far.
pub(crate) fn complete(packet: &mut [u8], start: usize, offset: usize) -> bool {
    let at = start + offset;
    if at + 2 > packet.len() {
        return false;
    }
    let sum = !fold(add(0, &packet[start..]));
    // UDP: 0 says that there is no checksum (RFC 768)
    let sum = if sum == 0 { 0xffff } else { sum };
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    true
}
