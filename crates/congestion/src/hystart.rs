//! HyStart: leave slow start before it overflows the queue (Ha and Rhee 2011, as in Linux).
//!
//! Two signs in a round trip say that the window has reached the path's capacity: the train of
//! closely spaced acknowledgments is as long as half the smallest RTT, or the RTTs at the head of
//! the round have grown by an eighth.

use pathcast_path::{Span, Time};

use crate::controller::Ack;

/// No sign is heeded below this window in packets (Linux's hystart_low_window).
const LOW_WINDOW: f64 = 16.0;
/// Acknowledgments further apart than this end a train (Linux's hystart_ack_delta_us).
const TRAIN_GAP: Span = Span::from_millis(2);
/// RTT samples looked at in the head of a round (Linux's HYSTART_MIN_SAMPLES).
const MIN_SAMPLES: u32 = 8;

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
        if cwnd < LOW_WINDOW {
            return false;
        }
        if ack.now.since(self.last_ack) <= TRAIN_GAP {
            self.last_ack = ack.now;
            if ack.now.since(self.round_start) > ack.min_rtt.mul_div(1, 2) {
                return true;
            }
        }
        let Some(rtt) = ack.rtt else { return false };
        if self.samples < MIN_SAMPLES {
            self.samples += 1;
            self.round_min_rtt = Some(self.round_min_rtt.map_or(rtt, |smallest| smallest.min(rtt)));
        }
        // an eighth of the smallest RTT, from 4 to 16 ms
        let growth = ack
            .min_rtt
            .mul_div(1, 8)
            .clamp(Span::from_millis(4), Span::from_millis(16));
        self.samples >= MIN_SAMPLES
            && self
                .round_min_rtt
                .is_some_and(|smallest| smallest > ack.min_rtt + growth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::tests::ack;

    #[test]
    fn a_long_train_ends_slow_start() {
        let mut hystart = HyStart::default();
        let exit = (0..100).find(|&i| hystart.should_exit(&ack(f64::from(i) * 1e-3, 1), 100.0));
        assert_eq!(exit, Some(51)); // past half of 100 ms
    }

    #[test]
    fn a_broken_train_does_not() {
        let mut hystart = HyStart::default();
        assert!((0..100).all(|i| !hystart.should_exit(&ack(f64::from(i) * 3e-3, 1), 100.0)));
    }

    #[test]
    fn grown_delay_ends_slow_start_after_eight_samples() {
        let mut hystart = HyStart::default();
        let exit = (0..100).find(|&i| {
            let slow = Ack {
                rtt: Some(Span::from_millis(113)),
                ..ack(f64::from(i) * 3e-3, 1)
            };
            hystart.should_exit(&slow, 100.0)
        });
        assert_eq!(exit, Some(7));
    }

    #[test]
    fn small_windows_are_left_alone() {
        let mut hystart = HyStart::default();
        assert!((0..100).all(|i| !hystart.should_exit(&ack(f64::from(i) * 1e-3, 1), 15.0)));
    }
}
