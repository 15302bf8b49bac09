//! How fast the path delivers (draft-cheng-iccrg-delivery-rate-estimation-02, as Linux's tcp_rate.c).

use pathcast_base::{Span, Time};
use pathcast_congestion::RateSample;

use crate::sent::Sent;

/// What was delivered and lost so far; each packet takes a copy of it with it when it is sent.
#[derive(Clone, Debug, Default)]
pub struct DeliveryRate {
    delivered: u64,
    lost: u64,
    /// When `delivered` last grew.
    delivered_at: Time,
    /// When the packet was sent that was the newest to arrive so far.
    first_sent_at: Time,
    /// While `delivered` is not past this, samples are limited by the application; 0: they are not.
    app_limited_until: u64,
}

impl DeliveryRate {
    /// Packets delivered so far.
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Packets found lost so far.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// `packets` were found lost.
    #[inline]
    pub fn on_lost(&mut self, packets: u64) {
        self.lost += packets;
    }

    /// A packet is about to be sent on a connection with nothing in flight: samples exclude idle time.
    #[inline]
    pub fn restart(&mut self, now: Time) {
        (self.first_sent_at, self.delivered_at) = (now, now);
    }

    /// The sender has no more data while `in_flight` packets are in flight.
    #[inline]
    pub fn on_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// What a packet sent at `now` as transmission `transmission` takes with it.
    #[inline]
    pub fn stamp(&self, now: Time, transmission: u32, in_flight: u64) -> Sent {
        // also what leaves when all has arrived: Linux ends the limit when more has (tcp_rate_gen)
        let limited = self.app_limited_until >= self.delivered.max(1);
        Sent::new(now, transmission)
            .with_counts(self.delivered, self.lost, in_flight)
            .with_times(now.since(self.delivered_at), now.since(self.first_sent_at))
            .with_app_limited(limited)
    }

    /// `packets` were delivered at `now`, and `newest` is the one of them that was sent last.
    #[inline]
    pub fn on_delivered(&mut self, now: Time, packets: u64, newest: &Sent) {
        self.delivered += packets;
        self.delivered_at = now;
        self.first_sent_at = newest.sent_at;
    }

    /// The sample of the packet `newest` that an acknowledgment at `now` delivered; none if it took
    /// less than a round trip: then it says more about reordering than about the path.
    #[inline]
    pub fn sample(&self, now: Time, newest: &Sent, min_rtt: Span) -> Option<RateSample> {
        let to_send = newest.since_first_sent();
        let to_acknowledge = now.since(newest.sent_at) + newest.since_delivered();
        let interval = to_send.max(to_acknowledge);
        (interval >= min_rtt).then(|| {
            let delivered_packets = newest.delivered_since(self.delivered);
            RateSample {
                delivered_packets,
                interval,
                prior_delivered: self.delivered - delivered_packets,
                sent_in_flight: newest.in_flight(),
                lost_packets: newest.lost_since(self.lost),
                app_limited: newest.app_limited(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn a_packet_a_millisecond_is_a_thousand_a_second() {
        let mut rate = DeliveryRate::default();
        rate.restart(at(0));
        let sent: Vec<Sent> = (0..100)
            .map(|i| rate.stamp(at(i), i as u32, i + 1))
            .collect();
        for (i, packet) in sent.iter().enumerate() {
            rate.on_delivered(at(100 + i as u64), 1, packet);
        }
        // sent when packets 0 to 49 had arrived, the last of them just then
        let packet = rate.stamp(at(200), 100, 50);
        rate.on_delivered(at(300), 100, &packet);
        let sample = rate
            .sample(at(300), &packet, Span::from_millis(100))
            .unwrap();
        assert_eq!(
            (sample.prior_delivered, sample.delivered_packets),
            (100, 100)
        );
        assert_eq!(sample.interval, Span::from_millis(101));
        assert_eq!((sample.sent_in_flight, sample.app_limited), (50, false));
    }

    #[test]
    fn acknowledgments_that_come_at_once_do_not_raise_the_rate() {
        // 10 packets sent within 9 ms, acknowledged together: the time to send them counts
        let mut rate = DeliveryRate::default();
        rate.restart(at(0));
        let first = rate.stamp(at(0), 1, 1);
        rate.on_delivered(at(10), 1, &first);
        let late = rate.stamp(at(40), 2, 10);
        rate.on_delivered(at(41), 10, &late);
        let sample = rate.sample(at(41), &late, Span::from_millis(1)).unwrap();
        assert_eq!(sample.interval, Span::from_millis(40));
        assert_eq!(sample.delivered_packets, 10);
    }

    #[test]
    fn a_sender_without_data_is_limited_until_more_than_it_had_in_flight_has_arrived() {
        let mut rate = DeliveryRate::default();
        rate.restart(at(0));
        rate.on_app_limited(2);
        let limited = rate.stamp(at(0), 1, 1);
        assert!(limited.app_limited());
        rate.on_delivered(at(10), 2, &limited);
        let after_idle = rate.stamp(at(90), 2, 1);
        assert!(after_idle.app_limited());
        rate.on_delivered(at(100), 1, &after_idle);
        assert!(!rate.stamp(at(100), 3, 1).app_limited());
    }

    #[test]
    fn a_sample_shorter_than_the_round_trip_is_none() {
        let mut rate = DeliveryRate::default();
        rate.restart(at(0));
        let packet = rate.stamp(at(0), 1, 1);
        rate.on_delivered(at(5), 1, &packet);
        assert_eq!(rate.sample(at(5), &packet, Span::from_millis(10)), None);
    }
}
