//! Pacing: when the next packets may leave (as Linux's internal pacing, without the fq scheduler).
//!
//! Packets leave in small bursts: a millisecond's worth or two packets. The next burst may leave when the
//! pacing rate allows for the bytes of this one. A burst that leaves late gets up to half of its own time
//! back. The first ten packets of a connection wait for nothing, whatever the rate: an initial window leaves at
//! once (tcp_update_skb_after_send).

use pathcast_base::{Span, Time};

use crate::offload::load_packets;

/// No packet waits longer.
const MAX_GAP: Span = Span::from_millis(100_000);
/// Packets of a connection after which the pace begins, sent again or not.
const UNPACED_PACKETS: u32 = 10;
/// Part of a nanosecond to which gaps are kept.
const FRACTION_BITS: u32 = 16;

/// A clock for departures; without a rate it lets everything pass.
#[derive(Clone, Debug, Default)]
pub struct Pacer {
    rate: Option<f64>,
    /// Between packets, in 2^-16 ns.
    gap: u64,
    burst_packets: u64,
    /// When the next burst may leave; and what is owed below a nanosecond.
    next: Time,
    fraction: u64,
    /// The time that the burst which is leaving gets back.
    credit: u64,
    /// Packets that the pace let pass, and those of the burst which is leaving.
    unpaced: u32,
    uncharged: u64,
}

impl Pacer {
    /// Sends at `rate` packets of `mss_bytes` a second from now on; none: as fast as anyone likes.
    #[inline]
    pub fn set_rate(&mut self, rate: Option<f64>, min_rtt: Option<Span>, mss_bytes: u32) {
        if rate == self.rate {
            return;
        }
        self.rate = rate;
        if let Some(rate) = rate {
            let gap_ns = (1e9 / rate.max(0.0)).min(MAX_GAP.as_nanos() as f64);
            self.gap = (gap_ns * f64::from(1u32 << FRACTION_BITS)) as u64;
            self.burst_packets = load_packets(rate as u64, min_rtt, mss_bytes);
        }
    }

    /// Packets in a burst; none without a rate.
    #[inline]
    pub fn burst_packets(&self) -> Option<u64> {
        self.rate.map(|_| self.burst_packets)
    }

    /// When the next burst may leave; a moment in the past if it may leave now.
    #[inline]
    pub const fn next(&self) -> Time {
        self.next
    }

    /// When the next burst may leave, if not at `now`.
    #[inline]
    pub fn blocked_until(&self, now: Time) -> Option<Time> {
        self.rate?;
        (self.next > now).then_some(self.next)
    }

    /// A packet left at `now`, the first of a burst or not.
    #[inline]
    pub fn on_send(&mut self, now: Time, begins: bool) {
        if self.rate.is_none() {
            return;
        }
        if begins {
            self.credit = now.since(self.next).as_nanos();
            self.next = self.next.max(now);
        }
        let gap = if self.unpaced < UNPACED_PACKETS {
            self.first_gap(begins)
        } else {
            self.gap
        };
        let cost = gap + self.fraction;
        self.fraction = cost & ((1 << FRACTION_BITS) - 1);
        let cost_ns = cost >> FRACTION_BITS;
        let back_ns = (cost_ns / 2).min(self.credit);
        self.credit -= back_ns;
        self.next += Span::from_nanos(cost_ns - back_ns);
    }

    /// What one of the first packets costs: nothing, but the burst with the tenth costs as any other.
    #[cold]
    fn first_gap(&mut self, begins: bool) -> u64 {
        self.unpaced += 1;
        self.uncharged = if begins { 1 } else { self.uncharged + 1 };
        if self.unpaced == UNPACED_PACKETS {
            self.gap * self.uncharged
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `packets` as soon as they may leave; returns when each did.
    fn departures(pacer: &mut Pacer, from: Time, packets: u64) -> Vec<Time> {
        let mut now = from;
        let burst = pacer.burst_packets().unwrap_or(1);
        (0..packets)
            .map(|packet| {
                let begins = packet % burst == 0;
                if begins {
                    now = pacer.blocked_until(now).unwrap_or(now);
                }
                pacer.on_send(now, begins);
                now
            })
            .collect()
    }

    /// A pacer that has let its first packets pass, long ago.
    fn warm(rate: f64) -> Pacer {
        let mut pacer = Pacer {
            unpaced: UNPACED_PACKETS,
            ..Pacer::default()
        };
        pacer.set_rate(Some(rate), None, 1448);
        pacer
    }

    fn micros(times: &[Time]) -> Vec<u64> {
        times.iter().map(|at| at.as_nanos() / 1000).collect()
    }

    #[test]
    fn the_first_ten_packets_leave_at_once() {
        // packets 9 and 10 are one burst, whose two milliseconds packet 11 waits for
        let mut pacer = Pacer::default();
        pacer.set_rate(Some(1000.0), None, 1448);
        let times = departures(&mut pacer, Time::ZERO, 14);
        assert_eq!(micros(&times[..10]), [0; 10]);
        assert_eq!(micros(&times[10..]), [2000, 2000, 4000, 4000]);
    }

    #[test]
    fn a_burst_that_goes_past_the_tenth_packet_is_paced_whole() {
        let mut pacer = Pacer::default();
        pacer.set_rate(Some(4096.0), None, 1448); // four in a burst
        let times = departures(&mut pacer, Time::ZERO, 16);
        let gap_s = times[12].since(times[8]).as_secs();
        assert_eq!(micros(&times[..12]), [0; 12]);
        assert!((gap_s - 4.0 / 4096.0).abs() < 1e-8);
    }

    #[test]
    fn packets_leave_at_the_rate_two_at_a_time() {
        let mut pacer = warm(1000.0);
        let times = departures(&mut pacer, Time::ZERO, 6);
        assert_eq!(micros(&times), [0, 0, 2000, 2000, 4000, 4000]);
    }

    #[test]
    fn bursts_are_about_a_millisecond_long() {
        let mut pacer = warm(10_240.0);
        let times = departures(&mut pacer, Time::ZERO, 20);
        assert_eq!(times[9], Time::ZERO);
        assert!((times[10].as_secs() - 10.0 / 10_240.0).abs() < 1e-8);
    }

    #[test]
    fn the_rate_holds_over_many_packets() {
        let mut pacer = warm(777_777.0);
        let times = departures(&mut pacer, Time::ZERO, 1_000_000);
        let expected_s = 1e6 / 777_777.0;
        assert!((times[999_999].as_secs() / expected_s - 1.0).abs() < 1e-4);
    }

    #[test]
    fn a_burst_that_leaves_late_gets_half_its_time_back_at_most() {
        let mut pacer = warm(1000.0);
        departures(&mut pacer, Time::ZERO, 2); // the next may leave at 2 ms
        let late = Time::ZERO + Span::from_millis(50);
        let times = departures(&mut pacer, late, 3);
        assert_eq!(times[2], late + Span::from_millis(1));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pacer = Pacer::default();
        let times = departures(&mut pacer, Time::ZERO, 100);
        assert!(times.iter().all(|at| *at == Time::ZERO));
        pacer.set_rate(Some(f64::INFINITY), None, 1448);
        assert_eq!(departures(&mut pacer, Time::ZERO, 100)[99], Time::ZERO);
    }
}
