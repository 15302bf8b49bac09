//! A packet in flight, in 32 bytes: with ten thousand of them, they are most of what a flow touches.

use pathcast_base::{Span, Time};

/// Arrived out of order.
pub const SACKED: u8 = 1;
/// Lost, as far as is known; sent again or not.
pub const LOST: u8 = 2;
/// Lost, and a copy is in flight.
pub const RETRANSMITTED: u8 = 4;
/// Sent more than once.
pub const EVER_RETRANSMITTED: u8 = 8;
/// Sent while the application gave too little data.
pub const APP_LIMITED: u8 = 16;

/// Times before sending are kept in units of 2^6 ns, up to 274 s.
const TICK_BITS: u32 = 6;

/// A packet, and the sender's counts when the packet was last sent. They are the low bits of the
/// connection's counts, so only differences have a meaning.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// When it was last sent.
    pub sent_at: Time,
    /// Which of all transmissions that was: packets sent at one moment have an order. Wraps.
    pub transmission: u32,
    delivered: u32,
    lost: u32,
    since_delivered: u32,
    since_first_sent: u32,
    in_flight: [u8; 3],
    /// `SACKED` and so on.
    pub flags: u8,
}

const _: () = assert!(size_of::<Sent>() == 32);

impl Sent {
    /// A packet sent at `now`.
    #[inline]
    pub const fn new(now: Time, transmission: u32) -> Self {
        Self {
            sent_at: now,
            transmission,
            delivered: 0,
            lost: 0,
            since_delivered: 0,
            since_first_sent: 0,
            in_flight: [0; 3],
            flags: 0,
        }
    }

    /// Sets how many packets had been delivered and lost, and how many were in flight.
    #[inline]
    pub const fn with_counts(mut self, delivered: u64, lost: u64, in_flight: u64) -> Self {
        self.delivered = delivered as u32;
        self.lost = lost as u32;
        // at most 16.7 million
        let in_flight = if in_flight < 1 << 24 {
            in_flight
        } else {
            (1 << 24) - 1
        };
        let [a, b, c, ..] = in_flight.to_le_bytes();
        self.in_flight = [a, b, c];
        self
    }

    /// With how long ago the last packet had been delivered, and the first of the sample been sent.
    #[inline]
    pub fn with_times(mut self, since_delivered: Span, since_first_sent: Span) -> Self {
        let ticks = |span: Span| u32::try_from(span.as_nanos() >> TICK_BITS).unwrap_or(u32::MAX);
        self.since_delivered = ticks(since_delivered);
        self.since_first_sent = ticks(since_first_sent);
        self
    }

    /// With whether the application gave too little data.
    #[inline]
    pub const fn with_app_limited(mut self, limited: bool) -> Self {
        self.flags |= if limited { APP_LIMITED } else { 0 };
        self
    }

    /// Whether it was last sent after the packet of transmission `other`.
    #[inline]
    pub const fn sent_after(&self, other: u32) -> bool {
        (self.transmission.wrapping_sub(other) as i32) > 0
    }

    /// Whether all of `flags` are set.
    #[inline]
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// How many of the connection's `delivered` packets were delivered since.
    #[inline]
    pub const fn delivered_since(&self, delivered: u64) -> u64 {
        (delivered as u32).wrapping_sub(self.delivered) as u64
    }

    /// How many of the connection's `lost` packets were found lost since.
    #[inline]
    pub const fn lost_since(&self, lost: u64) -> u64 {
        (lost as u32).wrapping_sub(self.lost) as u64
    }

    /// How long before it was sent the last packet had been delivered.
    #[inline]
    pub const fn since_delivered(&self) -> Span {
        Span::from_nanos((self.since_delivered as u64) << TICK_BITS)
    }

    /// How long before it the packet had been sent that was the newest to have arrived.
    #[inline]
    pub const fn since_first_sent(&self) -> Span {
        Span::from_nanos((self.since_first_sent as u64) << TICK_BITS)
    }

    /// Packets in flight when this one was sent, itself included.
    #[inline]
    pub const fn in_flight(&self) -> u64 {
        let [a, b, c] = self.in_flight;
        u32::from_le_bytes([a, b, c, 0]) as u64
    }

    /// Whether the application gave too little data.
    #[inline]
    pub const fn app_limited(&self) -> bool {
        self.has(APP_LIMITED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_by_difference_past_32_bits() {
        let before = (1u64 << 32) - 10;
        let sent = Sent::new(Time::ZERO, 0).with_counts(before, 5, 70_000);
        assert_eq!(sent.delivered_since(before + 100), 100);
        assert_eq!(sent.lost_since(7), 2);
        assert_eq!(sent.in_flight(), 70_000);
    }

    #[test]
    fn transmissions_keep_their_order_when_they_wrap() {
        assert!(Sent::new(Time::ZERO, 3).sent_after(u32::MAX));
        assert!(!Sent::new(Time::ZERO, u32::MAX).sent_after(3));
        assert!(!Sent::new(Time::ZERO, 3).sent_after(3));
    }
}
