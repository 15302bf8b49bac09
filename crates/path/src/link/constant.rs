//! A serial link of one rate.

use pathcast_base::{Bandwidth, Span, Time};

/// A link of constant rate that sends one packet at a time.
#[derive(Clone, Debug)]
pub struct ConstantLink {
    /// Nanoseconds a byte, in units of 2^-16 ns.
    cost_per_byte: u64,
    /// The part of a nanosecond left over from earlier packets, in the same units. Without it, a rate that
    /// does not divide 8 GHz would be off by up to half a nanosecond a packet.
    carry: u64,
    free_at: Time,
}

const FRACTION_BITS: u32 = 16;

impl ConstantLink {
    /// A link of rate `rate`, idle.
    pub fn new(rate: Bandwidth) -> Self {
        let cost = 8e9 / rate.as_bps() * f64::from(1u32 << FRACTION_BITS);
        Self {
            cost_per_byte: cost.round() as u64,
            carry: 0,
            free_at: Time::ZERO,
        }
    }

    /// The moment from which a new packet could be sent.
    pub const fn free_at(&self) -> Time {
        self.free_at
    }

    /// Sends `size_bytes` as soon as the link is free, `now` at the earliest: returns the moments
    /// at which the transmission begins and ends.
    #[inline]
    pub fn transmit(&mut self, now: Time, size_bytes: u32) -> (Time, Time) {
        let start = if self.free_at >= now {
            self.free_at
        } else {
            self.carry = 0;
            now
        };
        let cost = self
            .cost_per_byte
            .saturating_mul(u64::from(size_bytes))
            .saturating_add(self.carry);
        self.carry = cost & ((1 << FRACTION_BITS) - 1);
        self.free_at = start + Span::from_nanos(cost >> FRACTION_BITS);
        (start, self.free_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_at_the_rate() {
        let mut link = ConstantLink::new(Bandwidth::from_bps(12e6).unwrap());
        assert_eq!(
            link.transmit(Time::ZERO, 1500),
            (Time::ZERO, Time::from_nanos(1_000_000))
        );
        assert_eq!(
            link.transmit(Time::ZERO, 1500).1,
            Time::from_nanos(2_000_000)
        );
        let later = Time::from_nanos(9_000_000);
        assert_eq!(
            link.transmit(later, 750),
            (later, Time::from_nanos(9_500_000))
        );
    }

    #[test]
    fn rounding_does_not_add_up() {
        // 7 Mbit/s: 1714.2857 us for 1500 bytes
        let mut link = ConstantLink::new(Bandwidth::from_bps(7e6).unwrap());
        for _ in 0..1_000_000 {
            link.transmit(Time::ZERO, 1500);
        }
        let expected_s = 1e6 * 1500.0 * 8.0 / 7e6;
        assert!((link.free_at().as_secs() / expected_s - 1.0).abs() < 1e-7);
    }
}
