//! BBR's answer to token-bucket policers (in Linux since 4.9 as "long-term bandwidth"; the talk at
//! IETF 97, "BBR congestion control", has the idea).
//!
//! A policer passes a burst at line rate and then drops all that exceeds its rate. A model that
//! believes the burst sends far too fast. So from a first loss on the delivery rate is measured over
//! intervals of 4 to 16 round trips; if two intervals in a row lost at least a fifth and delivered at
//! nearly one rate, that rate is taken for the policer's and used for 48 round trips.

use pathcast_base::Time;

use crate::controller::{Ack, RateSample};

/// Shortest interval in round trips (Linux's bbr_lt_intvl_min_rtts); four times as long is too long.
const MIN_ROUNDS: u32 = 4;
/// Share of packets lost that looks like a policer (bbr_lt_loss_thresh, 50/256).
const LOSS_SHARE: f64 = 50.0 / 256.0;
/// Two intervals agree if their rates differ by no more than this share (bbr_lt_bw_ratio),
const AGREEMENT: f64 = 1.0 / 8.0;
/// or by 4 kbit/s (bbr_lt_bw_diff), here in packets of 1,448 bytes.
const AGREEMENT_PACKETS_PER_S: f64 = 500.0 / 1448.0;
/// Round trips that the policer's rate is used before the path is probed again
/// (bbr_lt_bw_max_rtts).
const USE_ROUNDS: u32 = 48;

/// The search for a policer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policer {
    sampling: bool,
    in_use: bool,
    /// The last interval's rate; 0 for none.
    rate: f64,
    rounds: u32,
    began: Time,
    began_delivered: u64,
    began_lost: u64,
}

impl Policer {
    /// The policer's rate in packets a second, while it is used.
    pub fn rate(&self) -> Option<f64> {
        self.in_use.then_some(self.rate)
    }

    /// Whether the use of a policer's rate is over and the path is to be probed again.
    pub fn on_ack(
        &mut self,
        ack: &Ack,
        rate: &RateSample,
        round_starts: bool,
        probing: bool,
    ) -> bool {
        if self.in_use {
            self.rounds += u32::from(probing && round_starts);
            if self.rounds >= USE_ROUNDS {
                self.reset(ack);
                return true;
            }
            return false;
        }
        if !self.sampling {
            if ack.lost_packets == 0 {
                return false;
            }
            self.begin_interval(ack);
            self.sampling = true;
        }
        if rate.app_limited {
            self.reset(ack);
            return false;
        }
        self.rounds += u32::from(round_starts);
        if self.rounds > 4 * MIN_ROUNDS {
            self.reset(ack);
            return false;
        }
        // an interval ends with a loss: the tokens are used up
        if self.rounds < MIN_ROUNDS || ack.lost_packets == 0 {
            return false;
        }
        let delivered = (ack.delivered - self.began_delivered) as f64;
        let lost = (ack.lost - self.began_lost) as f64;
        let interval_s = ack.now.since(self.began).as_secs();
        if delivered > 0.0 && lost >= LOSS_SHARE * delivered && interval_s >= 1e-3 {
            self.end_interval(ack, delivered / interval_s);
        }
        false
    }

    /// The retransmission timer expired, which counts as the end of a round trip.
    pub fn on_timeout(&mut self, probing: bool) {
        self.rounds += u32::from(if self.in_use { probing } else { self.sampling });
    }

    /// The losses were none.
    pub fn on_undo(&mut self) {
        *self = Self::default();
    }

    fn end_interval(&mut self, ack: &Ack, rate: f64) {
        let difference = (rate - self.rate).abs();
        let agree = difference <= AGREEMENT * self.rate || difference <= AGREEMENT_PACKETS_PER_S;
        if self.rate > 0.0 && agree {
            self.rate = (self.rate + rate) / 2.0;
            self.in_use = true;
            self.rounds = 0;
        } else {
            self.rate = rate;
            self.begin_interval(ack);
        }
    }

    fn begin_interval(&mut self, ack: &Ack) {
        self.began = ack.now;
        self.began_delivered = ack.delivered;
        self.began_lost = ack.lost;
        self.rounds = 0;
    }

    fn reset(&mut self, ack: &Ack) {
        self.rate = 0.0;
        self.in_use = false;
        self.sampling = false;
        self.begin_interval(ack);
    }
}

#[cfg(test)]
mod tests {
    use pathcast_base::Span;

    use super::*;
    use crate::controller::tests::ack;

    /// Rounds of 100 ms with `delivered` and `lost` packets, the loss at the end; the rates in use.
    fn rounds(policer: &mut Policer, count: u32, delivered: u64, lost: u64) -> Vec<Option<f64>> {
        let rate = RateSample {
            delivered_packets: delivered,
            interval: Span::from_millis(100),
            prior_delivered: 0,
            sent_in_flight: 10,
            lost_packets: 0,
            app_limited: false,
        };
        (1..=count)
            .map(|round| {
                let event = Ack {
                    delivered: delivered * u64::from(round),
                    lost_packets: lost,
                    lost: lost * u64::from(round),
                    ..ack(0.1 * f64::from(round), delivered)
                };
                policer.on_ack(&event, &rate, true, true);
                policer.rate()
            })
            .collect()
    }

    #[test]
    fn two_intervals_of_heavy_loss_at_one_rate_are_a_policer() {
        let mut policer = Policer::default();
        let rates = rounds(&mut policer, 12, 50, 20);
        let found = rates.iter().position(Option::is_some);
        assert!(
            found.is_some_and(|round| (7..10).contains(&round)),
            "{rates:?}"
        );
        assert!((rates[11].unwrap() / 500.0 - 1.0).abs() < 0.01, "{rates:?}");
    }

    #[test]
    fn its_rate_is_used_for_48_round_trips() {
        let mut policer = Policer::default();
        let rates = rounds(&mut policer, 100, 50, 20);
        let first = rates.iter().position(Option::is_some).unwrap();
        let used = rates[first..].iter().take_while(|rate| rate.is_some());
        assert_eq!(used.count(), USE_ROUNDS as usize);
    }

    #[test]
    fn timeouts_count_as_round_trips_of_its_use() {
        let mut policer = Policer::default();
        rounds(&mut policer, 12, 50, 20);
        assert!(policer.rate().is_some());
        for _ in 0..USE_ROUNDS {
            policer.on_timeout(true);
        }
        assert_eq!(rounds(&mut policer, 1, 50, 20), [None]);
    }

    #[test]
    fn light_loss_is_none() {
        let mut policer = Policer::default();
        assert!(rounds(&mut policer, 50, 50, 5).iter().all(Option::is_none));
    }
}
