//! Round-trip times and the retransmission timeout (RFC 6298, with Linux's bounds).

use pathcast_path::Span;

/// Least allowance for variation (Linux's TCP_RTO_MIN, applied to 4 rttvar and not to the sum).
const MIN_VARIATION: Span = Span::from_millis(200);
/// Timeout before any sample (RFC 6298, section 2.1).
const INITIAL_RTO: Span = Span::from_millis(1000);
/// No timeout is longer (Linux's TCP_RTO_MAX).
const MAX_RTO: Span = Span::from_millis(120_000);

/// Smoothed and smallest round-trip time, and the timeout that follows.
#[derive(Clone, Debug, Default)]
pub struct RttEstimator {
    srtt_ns: f64,
    rttvar_ns: f64,
    min: Option<Span>,
    backoff: u32,
    /// What follows from the above, for it is asked for with every packet.
    srtt: Span,
    rto: Option<Span>,
}

impl RttEstimator {
    /// Takes a sample; ends the backoff. `rtt` is that of the first packet that an acknowledgment
    /// covers, the time that a packet may wait for one included; `least` that of the last, which did
    /// not wait (Linux's seq_rtt and ca_rtt).
    #[inline]
    pub fn on_sample(&mut self, rtt: Span, least: Span) {
        let rtt_ns = rtt.as_nanos() as f64;
        if self.min.is_none() {
            (self.srtt_ns, self.rttvar_ns) = (rtt_ns, rtt_ns / 2.0);
        } else {
            self.rttvar_ns += ((self.srtt_ns - rtt_ns).abs() - self.rttvar_ns) / 4.0;
            self.srtt_ns += (rtt_ns - self.srtt_ns) / 8.0;
        }
        self.min = Some(self.min.map_or(least, |min| min.min(least)));
        self.backoff = 0;
        self.srtt = Span::from_nanos(self.srtt_ns as u64);
        self.rto = Some(self.base_rto().min(MAX_RTO));
    }

    /// The timeout without backoff.
    #[inline]
    fn base_rto(&self) -> Span {
        self.srtt().map_or(INITIAL_RTO, |srtt| {
            srtt + Span::from_nanos((4.0 * self.rttvar_ns) as u64).max(MIN_VARIATION)
        })
    }

    /// The retransmission timer expired: the next timeout is twice as long.
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
        self.rto = Some(self.base_rto().mul_div(1 << self.backoff, 1).min(MAX_RTO));
    }

    /// Smoothed round-trip time, once there is a sample.
    #[inline]
    pub fn srtt(&self) -> Option<Span> {
        self.min.map(|_| self.srtt)
    }

    /// Smallest round-trip time so far, once there is a sample.
    pub const fn min(&self) -> Option<Span> {
        self.min
    }

    /// Timeouts in a row.
    pub const fn backoff(&self) -> u32 {
        self.backoff
    }

    /// The retransmission timeout.
    #[inline]
    pub fn rto(&self) -> Span {
        self.rto.unwrap_or(INITIAL_RTO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_rfc_6298_with_linux_bounds() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.rto(), INITIAL_RTO);
        rtt.on_sample(Span::from_millis(100), Span::from_millis(100));
        assert_eq!(rtt.rto(), Span::from_millis(300)); // 100 + 4 * 50
        for _ in 0..100 {
            rtt.on_sample(Span::from_millis(100), Span::from_millis(100));
        }
        assert_eq!(rtt.rto(), Span::from_millis(300)); // 100 + 200 at least
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.rto(), Span::from_millis(1200));
        (0..40).for_each(|_| rtt.back_off());
        assert_eq!(rtt.rto(), MAX_RTO);
        rtt.on_sample(Span::from_millis(100), Span::from_millis(100));
        assert_eq!(rtt.rto(), Span::from_millis(300));
    }
}
