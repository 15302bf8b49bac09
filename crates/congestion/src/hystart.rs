//! HyStart: leave slow start before it overflows the queue (Ha and Rhee 2011, as in Linux).
//!
//! Two signs in a round trip say that the window has reached the path's capacity: the train of
//! closely spaced acknowledgments is as long as half the smallest RTT (and half of what batches of
//! acknowledgments may add), or the smallest RTT of the round has grown by an eighth.

use pathcast_base::{Span, Time};

use crate::controller::Ack;

/// No sign is heeded below this window in packets (Linux's hystart_low_window).
const LOW_WINDOW: f64 = 16.0;
/// Acknowledgments further apart than this end a train (Linux's hystart_ack_delta_us).
const TRAIN_GAP: Span = Span::from_millis(2);
/// RTT samples that a round needs before one more decides (Linux's HYSTART_MIN_SAMPLES).
const MIN_SAMPLES: u32 = 8;
/// Links gather acknowledgments for at most this long,
const MAX_ACK_DELAY: Span = Span::from_millis(1);
/// or for four segments of 64 KiB, here in packets of 1,448 bytes (Linux's hystart_ack_delay).
const ACK_DELAY_PACKETS: f64 = 4.0 * 65_536.0 / 1448.0;

/// What HyStart remembers of the current round trip.
#[derive(Clone, Debug, Default)]
pub struct HyStart {
    round_start: Time,
    last_ack: Time,
    round_min_rtt: Option<Span>,
    samples: u32,
    started: bool,
}

impl HyStart {
    /// Looks at an acknowledgment in slow start: whether slow start should end here.
    pub fn should_exit(&mut self, ack: &Ack, cwnd: f64) -> bool {
        if ack.round_ends || !self.started {
            *self = Self {
                round_start: ack.now,
                last_ack: ack.now,
                started: true,
                ..Self::default()
            };
        }
        let Some(rtt) = ack.rtt else { return false };
        if cwnd < LOW_WINDOW {
            return false;
        }
        if ack.now.since(self.last_ack) <= TRAIN_GAP {
            self.last_ack = ack.now;
            let train = (ack.min_rtt + ack_delay(ack.srtt, cwnd)).mul_div(1, 2);
            if ack.now.since(self.round_start) > train {
                return true;
            }
        }
        let smallest = self.round_min_rtt.map_or(rtt, |smallest| smallest.min(rtt));
        self.round_min_rtt = Some(smallest);
        if self.samples < MIN_SAMPLES {
            self.samples += 1;
            return false;
        }
        // an eighth of the smallest RTT, from 4 to 16 ms
        let growth = ack
            .min_rtt
            .mul_div(1, 8)
            .clamp(Span::from_millis(4), Span::from_millis(16));
        smallest > ack.min_rtt + growth
    }
}

/// How long batches of acknowledgments may be, at slow start's rate of two windows a round trip.
fn ack_delay(srtt: Span, cwnd: f64) -> Span {
    let batch_s = ACK_DELAY_PACKETS * srtt.as_secs() / (2.0 * cwnd);
    MAX_ACK_DELAY.min(Span::from_secs(batch_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::tests::ack;

    #[test]
    fn a_long_train_ends_slow_start() {
        let mut hystart = HyStart::default();
        let exit = (0..100).find(|&i| hystart.should_exit(&ack(f64::from(i) * 1e-3, 1), 100.0));
        assert_eq!(exit, Some(51)); // past half of 101 ms
    }

    #[test]
    fn a_broken_train_does_not() {
        let mut hystart = HyStart::default();
        assert!((0..100).all(|i| !hystart.should_exit(&ack(f64::from(i) * 3e-3, 1), 100.0)));
    }

    #[test]
    fn on_a_path_of_1_ms_the_train_may_take_that_long() {
        let at = |micros: u32| Ack {
            srtt: Span::from_millis(1),
            min_rtt: Span::from_millis(1),
            rtt: Some(Span::from_millis(1)),
            ..ack(f64::from(micros) * 1e-6, 1)
        };
        let mut hystart = HyStart::default();
        let exit = (0..200).find(|i| hystart.should_exit(&at(10 * i), 36.0));
        assert_eq!(exit, Some(101)); // half of 1 ms and 1 ms, not half of 1 ms
    }

    #[test]
    fn one_short_round_trip_time_late_in_the_round_keeps_slow_start_going() {
        let mut hystart = HyStart::default();
        let exit = (0..100).find(|&i| {
            let rtt_ms = if i == 8 { 100 } else { 113 };
            let sample = Ack {
                rtt: Some(Span::from_millis(rtt_ms)),
                ..ack(f64::from(i) * 3e-3, 1)
            };
            hystart.should_exit(&sample, 100.0)
        });
        assert_eq!(exit, None);
    }

    #[test]
    fn grown_delay_ends_slow_start_with_the_ninth_sample() {
        let mut hystart = HyStart::default();
        let exit = (0..100).find(|&i| {
            let slow = Ack {
                rtt: Some(Span::from_millis(113)),
                ..ack(f64::from(i) * 3e-3, 1)
            };
            hystart.should_exit(&slow, 100.0)
        });
        assert_eq!(exit, Some(8));
    }

    #[test]
    fn small_windows_are_left_alone() {
        let mut hystart = HyStart::default();
        assert!((0..100).all(|i| !hystart.should_exit(&ack(f64::from(i) * 1e-3, 1), 15.0)));
    }
}
