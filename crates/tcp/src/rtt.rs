//! Round-trip times and the retransmission timeout (RFC 6298, with Linux's bounds).

use pathcast_base::Span;

/// Least allowance for variation (Linux's TCP_RTO_MIN, applied to 4 rttvar and not to the sum).
const MIN_VARIATION: Span = Span::from_millis(200);
/// Timeout before any sample (RFC 6298, section 2.1).
const INITIAL_RTO: Span = Span::from_millis(1000);
/// Timeout after a handshake that gave no sample (RFC 6298, section 5.7; Linux's TCP_TIMEOUT_FALLBACK).
const FALLBACK_RTO: Span = Span::from_millis(3000);
/// No timeout is longer (Linux's TCP_RTO_MAX).
const MAX_RTO: Span = Span::from_millis(120_000);

/// Smoothed and smallest round-trip time, and the timeout that follows.
///
/// The variation is the largest mean deviation of a round trip. It rises immediately, and falls by a
/// quarter of the difference once a round trip. A sample below the mean that would raise the deviation
/// moves it by a 32nd instead of a quarter (as Linux's tcp_rtt_estimator).
#[derive(Clone, Debug, Default)]
pub struct RttEstimator {
    srtt_ns: f64,
    /// Four times the mean deviation, and the largest of this round trip.
    deviation_ns: f64,
    most_ns: f64,
    /// What the timeout adds to srtt.
    variation_ns: f64,
    /// The round trip ends when this packet is acknowledged.
    round_end: u64,
    min: Option<Span>,
    backoff: u32,
    /// No timeout is shorter.
    least_rto: Span,
    /// What follows from the above, for it is asked for with every packet.
    srtt: Span,
    rto: Option<Span>,
}

impl RttEstimator {
    /// One whose timeouts are not shorter than `least`.
    pub fn with_least_rto(least: Span) -> Self {
        Self {
            least_rto: least,
            ..Self::default()
        }
    }

    /// Takes a sample; ends the backoff. `rtt` is that of the first packet that an acknowledgment
    /// covers, the time that a packet may wait for one included; `least` that of the last, which did
    /// not wait (Linux's seq_rtt and ca_rtt). All before `una` is acknowledged, all before `next` sent.
    #[inline]
    pub fn on_sample(&mut self, rtt: Span, least: Span, una: u64, next: u64) {
        // of signed numbers, which processors convert in one step
        let rtt_ns = rtt.as_nanos() as i64 as f64;
        let floor_ns = MIN_VARIATION.as_nanos() as f64;
        if self.min.is_none() {
            self.srtt_ns = rtt_ns;
            self.deviation_ns = 2.0 * rtt_ns;
            self.variation_ns = self.deviation_ns.max(floor_ns);
            self.most_ns = self.variation_ns;
            self.round_end = next;
        } else {
            let error_ns = rtt_ns - self.srtt_ns;
            self.srtt_ns += error_ns / 8.0;
            let change_ns = error_ns.abs() - self.deviation_ns / 4.0;
            let damped = error_ns < 0.0 && change_ns > 0.0;
            self.deviation_ns += if damped { change_ns / 8.0 } else { change_ns };
            self.most_ns = self.most_ns.max(self.deviation_ns);
            self.variation_ns = self.variation_ns.max(self.most_ns);
            if una > self.round_end {
                self.variation_ns -= (self.variation_ns - self.most_ns) / 4.0;
                self.round_end = next;
                self.most_ns = floor_ns;
            }
        }
        self.min = Some(self.min.map_or(least, |min| min.min(least)));
        self.backoff = 0;
        self.srtt = Span::from_nanos(self.srtt_ns as i64 as u64);
        self.rto = Some(self.base_rto().min(MAX_RTO));
    }

    /// See [`Sender::touch`](crate::Sender::touch).
    #[inline]
    pub fn touch(&self) -> u64 {
        self.srtt_ns.to_bits() ^ self.srtt.as_nanos()
    }

    /// The handshake gave no sample: the timeout is 3 s until there is one.
    pub const fn fall_back(&mut self) {
        self.rto = Some(FALLBACK_RTO);
    }

    /// The timeout without backoff.
    #[inline]
    fn base_rto(&self) -> Span {
        self.srtt().map_or(INITIAL_RTO, |srtt| {
            (srtt + Span::from_nanos(self.variation_ns as i64 as u64)).max(self.least_rto)
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

    const MS_100: Span = Span::from_millis(100);

    /// One sample a round trip, so that each ends one.
    fn samples(rtt: &mut RttEstimator, millis: impl IntoIterator<Item = u64>) {
        for millis in millis {
            let sample = Span::from_millis(millis);
            let una = rtt.round_end + 1;
            rtt.on_sample(sample, sample, una, una + 1);
        }
    }

    #[test]
    fn the_timeout_follows_rfc_6298_with_linux_bounds() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.rto(), INITIAL_RTO);
        samples(&mut rtt, [100]);
        assert_eq!(rtt.rto(), Span::from_millis(300)); // 100 + 4 * 50
        samples(&mut rtt, [100; 100]);
        assert_eq!(rtt.rto(), Span::from_millis(300)); // 100 + 200 at least
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.rto(), Span::from_millis(1200));
        (0..40).for_each(|_| rtt.back_off());
        assert_eq!(rtt.rto(), MAX_RTO);
        rtt.on_sample(MS_100, MS_100, 300, 301);
        assert_eq!(rtt.rto(), Span::from_millis(300));
    }

    #[test]
    fn a_long_round_trip_raises_the_variation_at_once_and_leaves_it_slowly() {
        let mut rtt = RttEstimator::default();
        samples(&mut rtt, [400; 60]);
        assert!((rtt.rto().as_secs() - 0.6).abs() < 1e-6, "{:?}", rtt.rto());
        samples(&mut rtt, [800]);
        // srtt 450; the deviation, four times over, is the error
        assert!((rtt.rto().as_secs() - 0.85).abs() < 0.01, "{:?}", rtt.rto());
        samples(&mut rtt, [450; 3]);
        let later = rtt.rto().as_secs();
        assert!((0.7..0.8).contains(&later), "{later}");
    }

    #[test]
    fn falling_round_trip_times_hardly_raise_the_timeout() {
        let (mut falling, mut rising) = (RttEstimator::default(), RttEstimator::default());
        samples(&mut falling, [400; 60]);
        samples(&mut rising, [400; 60]);
        samples(&mut falling, [100]);
        samples(&mut rising, [700]);
        let beyond = |rtt: &RttEstimator| rtt.rto().as_secs() - rtt.srtt().unwrap().as_secs();
        assert!(beyond(&falling) < 0.21, "{}", beyond(&falling));
        assert!(beyond(&rising) > 0.29, "{}", beyond(&rising));
    }
}
