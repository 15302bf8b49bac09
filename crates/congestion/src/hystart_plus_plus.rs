//! HyStart++ (RFC 9406): when the RTT of a round trip has grown, grow four times more slowly for up
//! to five round trips, and leave slow start only if the RTT does not come down again.

use pathcast_base::Span;

use crate::controller::Ack;

/// Bounds of the growth in RTT that counts (RFC 9406, section 4.3: MIN_RTT_THRESH, MAX_RTT_THRESH).
const THRESHOLD: (Span, Span) = (Span::from_millis(4), Span::from_millis(16));
/// Between them, this share of the last round's smallest RTT (MIN_RTT_DIVISOR).
const RTT_DIVISOR: u64 = 8;
/// Samples of a round before it says anything (N_RTT_SAMPLE).
const SAMPLES: u32 = 8;
/// Conservative slow start is this much slower (CSS_GROWTH_DIVISOR).
const GROWTH_DIVISOR: f64 = 4.0;
/// and lasts this many rounds (CSS_ROUNDS).
const CONSERVATIVE_ROUNDS: u32 = 5;
/// Packets that one acknowledgment may add, without pacing (L).
const LIMIT: f64 = 8.0;

/// Conservative slow start: what the RTT was when it began, and the rounds since.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    baseline: Span,
    rounds: u32,
}

/// HyStart++'s memory of this round trip and the last.
#[derive(Clone, Debug, Default)]
pub struct HyStartPlusPlus {
    last_round_min: Option<Span>,
    round_min: Option<Span>,
    samples: u32,
    conservative: Option<Conservative>,
}

impl HyStartPlusPlus {
    /// What an acknowledgment in slow start adds to the window; none: slow start is over.
    pub fn growth(&mut self, ack: &Ack) -> Option<f64> {
        if ack.round_ends {
            self.last_round_min = self.round_min.take();
            self.samples = 0;
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds += 1;
                if conservative.rounds >= CONSERVATIVE_ROUNDS {
                    return None;
                }
            }
        }
        if let Some(rtt) = ack.rtt {
            self.samples += 1;
            self.round_min = Some(self.round_min.map_or(rtt, |least| least.min(rtt)));
        }
        let growth = (ack.acked_packets as f64).min(LIMIT);
        let enough = self.round_min.filter(|_| self.samples >= SAMPLES);
        match (&self.conservative, enough, self.last_round_min) {
            (Some(conservative), Some(now), _) if now < conservative.baseline => {
                self.conservative = None; // it was no queue: back to slow start
            }
            (None, Some(now), Some(last)) => {
                let threshold = last.mul_div(1, RTT_DIVISOR).clamp(THRESHOLD.0, THRESHOLD.1);
                if now >= last + threshold {
                    self.conservative = Some(Conservative {
                        baseline: now,
                        rounds: 0,
                    });
                }
            }
            _ => {}
        }
        Some(match self.conservative {
            Some(_) => growth / GROWTH_DIVISOR,
            None => growth,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::tests::ack;

    /// One round of ten acknowledgments of two packets; what it adds.
    fn round(hystart: &mut HyStartPlusPlus, rtt_ms: u64) -> Option<f64> {
        (0..10)
            .map(|i| {
                hystart.growth(&Ack {
                    rtt: Some(Span::from_millis(rtt_ms)),
                    round_ends: i == 0,
                    ..ack(0.0, 2)
                })
            })
            .sum()
    }

    #[test]
    fn a_steady_rtt_leaves_slow_start_alone() {
        let mut hystart = HyStartPlusPlus::default();
        assert!((0..20).all(|_| round(&mut hystart, 100) == Some(20.0)));
    }

    #[test]
    fn a_grown_rtt_slows_growth_to_a_quarter_and_ends_it_after_five_rounds() {
        let mut hystart = HyStartPlusPlus::default();
        round(&mut hystart, 100);
        // noticed at the eighth sample, of which the growth is a quarter already
        assert_eq!(round(&mut hystart, 113), Some(7.0 * 2.0 + 3.0 * 0.5));
        for _ in 0..4 {
            assert_eq!(round(&mut hystart, 113), Some(5.0));
        }
        assert_eq!(round(&mut hystart, 113), None);
    }

    #[test]
    fn a_smaller_rtt_resumes_slow_start() {
        let mut hystart = HyStartPlusPlus::default();
        round(&mut hystart, 100);
        round(&mut hystart, 113);
        assert_eq!(round(&mut hystart, 105), Some(7.0 * 0.5 + 3.0 * 2.0));
        assert_eq!(round(&mut hystart, 105), Some(20.0));
    }

    #[test]
    fn growth_below_the_threshold_does_not_count() {
        let mut hystart = HyStartPlusPlus::default();
        round(&mut hystart, 100);
        assert_eq!(round(&mut hystart, 112), Some(20.0)); // 12.5 ms is the threshold
        let mut short = HyStartPlusPlus::default();
        round(&mut short, 8);
        assert_eq!(round(&mut short, 11), Some(20.0)); // 4 ms at least
    }

    #[test]
    fn one_acknowledgment_adds_eight_packets_at_most() {
        let mut hystart = HyStartPlusPlus::default();
        assert_eq!(hystart.growth(&ack(0.0, 40)), Some(8.0));
    }
}
